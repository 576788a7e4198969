"""What the store keeps: objects with their revisions, and the recent changes of each resource."""

from __future__ import annotations

from collections import deque

import msgspec

from taintctl.sandbox.apiserver.meta import Object


class Record:
    """One stored object with its revision; the encoded form is made once, when first asked for."""

    __slots__ = ("_body", "obj", "revision")

    def __init__(self, obj: Object, revision: int) -> None:
        self.obj = obj
        self.revision = revision
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """The object's JSON without kind and apiVersion, which depend on the version asked for."""
        if self._body is None:
            self._body = msgspec.json.encode({k: v for k, v in self.obj.items() if k not in {"kind", "apiVersion"}})
        return self._body


class Event:
    """One change of the store, as subscribers and watches get it."""

    __slots__ = ("key", "lines", "old", "record", "type", "user")

    def __init__(self, kind: str, key: str, record: Record, old: Object | None, user: str) -> None:
        self.type = kind
        """ADDED, MODIFIED or DELETED."""
        self.key = key
        self.record = record
        self.old = old
        """The object before the change; None for ADDED."""
        self.user = user
        """Who wrote."""
        self.lines: dict[str, bytes] = {}
        """Encoded watch lines by apiVersion, so that every watcher gets the same bytes."""

    @property
    def obj(self) -> Object:
        """The object after the change; for DELETED its last state with the revision of the deletion."""
        return self.record.obj

    @property
    def revision(self) -> int:
        return self.record.revision


class Table:
    """The objects and recent changes of one resource."""

    __slots__ = ("_order", "_sorted", "dropped", "history", "records")

    def __init__(self, history: int) -> None:
        self.records: dict[tuple[str, str], Record] = {}
        self._order: list[tuple[str, str]] | None = []
        self._sorted: tuple[Record, ...] | None = ()
        self.history: deque[Event] = deque(maxlen=history)
        self.dropped = 0
        """Revision of the newest change that is not in `history` any more."""

    def put(self, place: tuple[str, str], record: Record) -> None:
        if place not in self.records:
            self._order = None
        self.records[place] = record
        self._sorted = None

    def remove(self, place: tuple[str, str]) -> None:
        del self.records[place]
        self._order = self._sorted = None

    def sorted_records(self) -> tuple[Record, ...]:
        """By namespace and name; the same tuple until the next write, for the pages of a list are asked for one by
        one."""
        if self._order is None:
            self._order = sorted(self.records)
        if self._sorted is None:
            self._sorted = tuple(self.records[key] for key in self._order)
        return self._sorted
