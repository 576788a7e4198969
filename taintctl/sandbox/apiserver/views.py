"""How objects leave the server: as they are, as Tables for `kubectl get`, or as their metadata only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from taintctl.sandbox.apiserver.columns import COLUMNS, DEFAULT_COLUMNS, Column, custom_columns
from taintctl.sandbox.apiserver.events_v1 import to_events_v1
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.strategies.custom import CustomStrategy
from taintctl.sandbox.resources import ResourceInfo
from taintctl.sandbox.store import Event, Record, Store

encode = msgspec.json.encode

_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


@dataclass(frozen=True)
class ListMeta:
    """`metadata` of a list."""

    resource_version: int
    continue_token: str = ""
    remaining: int | None = None

    def to_dict(self) -> Object:
        meta: Object = {"resourceVersion": str(self.resource_version)}
        if self.continue_token:
            meta["continue"] = self.continue_token
        if self.remaining:
            meta["remainingItemCount"] = self.remaining
        return meta


class View:
    """Objects of one resource in one served version, as they are."""

    cacheable = True
    """Whether every watcher gets the same bytes, so that an event is encoded once."""

    def __init__(self, info: ResourceInfo, version: str) -> None:
        self.info = info
        self.api_version = info.api_version_of(version)
        self._head = b'{"kind":%s,"apiVersion":%s,' % (encode(info.kind), encode(self.api_version))

    def _body(self, record: Record) -> bytes:
        if self.info.storage:
            # The one resource that is a view of another: events.k8s.io over core events.
            return encode(to_events_v1(record.obj))
        return record.body

    def item(self, record: Record) -> bytes:
        return self._head + self._body(record)[1:]

    def list(self, records: Iterable[Record], meta: ListMeta) -> bytes:
        # As recorded: items of built-in kinds do not repeat kind and apiVersion.
        items = b",".join(map(self.item, records) if self.info.custom else map(self._body, records))
        head = b'{"kind":%s,"apiVersion":%s,' % (encode(self.info.list_kind), encode(self.api_version))
        return b"%s%s%s,%s%s]}" % (head, b'"metadata":', encode(meta.to_dict()), b'"items":[', items)

    def line(self, kind: str, event: Event) -> bytes:
        """A watch line for an event, which a selector may show as another kind of change."""
        if not self.cacheable:
            return self.raw_line(kind, self.item(event.record))
        key = f"{type(self).__name__} {kind} {self.api_version} {self.info.key}"
        line = event.lines.get(key)
        if line is None:
            line = event.lines[key] = self.raw_line(kind, self.item(event.record))
        return line

    @staticmethod
    def raw_line(kind: str, obj: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        meta: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {"k8s.io/initial-events-end": "true"}
        return self.raw_line("BOOKMARK", self._bookmark_object(meta))

    def _bookmark_object(self, meta: Object) -> bytes:
        return encode({"kind": self.info.kind, "apiVersion": self.api_version, "metadata": meta})


class MetadataView(View):
    """Only the metadata: `PartialObjectMetadata`."""

    def item(self, record: Record) -> bytes:
        return _PARTIAL + encode(record.obj["metadata"]) + b"}"

    def list(self, records: Iterable[Record], meta: ListMeta) -> bytes:
        head = b'{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":'
        return b"%s%s,%s%s]}" % (head, encode(meta.to_dict()), b'"items":[', b",".join(map(self.item, records)))

    def _bookmark_object(self, meta: Object) -> bytes:
        return _PARTIAL + encode(meta) + b"}"


class TableView(View):
    """A `Table` with the printer columns; ages are as of the answer, so nothing is cached."""

    cacheable = False

    def __init__(
        self, info: ResourceInfo, version: str, columns: tuple[Column, ...], include: str, now: datetime
    ) -> None:
        super().__init__(info, version)
        self._columns = columns
        self._include = include
        self.now = now
        self._headed = False

    def _row(self, record: Record) -> Object:
        obj = record.obj
        row: Object = {"cells": [column.cell(obj, self.now) for column in self._columns]}
        if self._include == "Object":
            row["object"] = msgspec.Raw(View.item(self, record))
        elif self._include != "None":
            row["object"] = msgspec.Raw(_PARTIAL + encode(obj["metadata"]) + b"}")
        return row

    def _table(self, rows: list[Object], meta: Object) -> bytes:
        # In a watch only the first table says what the columns are: kubectl prints the header once.
        definitions: list[Any] = [] if self._headed else [column.definition() for column in self._columns]
        self._headed = True
        return encode(
            {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": meta,
                "columnDefinitions": definitions,
                "rows": rows,
            }
        )

    def item(self, record: Record) -> bytes:
        return self._table([self._row(record)], {"resourceVersion": record.obj["metadata"].get("resourceVersion", "")})

    def list(self, records: Iterable[Record], meta: ListMeta) -> bytes:
        return self._table([self._row(record) for record in records], meta.to_dict())

    def _bookmark_object(self, meta: Object) -> bytes:
        row = {
            "cells": [],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta},
        }
        return self._table([row], {"resourceVersion": meta["resourceVersion"]})


def view_for(accept: str, include: str, info: ResourceInfo, version: str, store: Store) -> View:
    """The view that an Accept header asks for. JSON is the answer to what it does not know, protobuf among it."""
    for media in accept.split(","):
        kind, *parameters = [part.strip() for part in media.split(";")]
        if kind not in ("application/json", "*/*", "application/*", ""):
            continue
        wanted = dict(part.partition("=")[::2] for part in parameters)
        shape = wanted.get("as", "")
        if shape == "Table" and wanted.get("v") == "v1":
            return TableView(info, version, _columns(info, store), include or "Metadata", store.clock.now())
        if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return MetadataView(info, version)
        if not shape:
            break
    return View(info, version)


def _columns(info: ResourceInfo, store: Store) -> tuple[Column, ...]:
    strategy = store.resources.strategy(info.key)
    if isinstance(strategy, CustomStrategy):
        return custom_columns(strategy.version)
    return COLUMNS.get(info.storage_key, DEFAULT_COLUMNS)
