"""Lists in chunks, all of one state of the cluster."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.requests import Request
from taintctl.sandbox.apiserver.selectors import matcher
from taintctl.sandbox.apiserver.views import ListMeta, View
from taintctl.sandbox.store import Record, Store

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


def place(record: Record) -> tuple[str, str]:
    """Where an object stands in a list: by namespace, then name."""
    meta = record.obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def snapshot(store: Store, key: str, revision: int) -> Sequence[Record]:
    """The objects of a resource as they were at `revision`; ApiError 410 where the history does not reach back."""
    changes = store.changes_since(key, revision)
    records = store.records(key)
    if not changes:
        return records
    by_place = {place(record): record for record in records}
    for event in reversed(changes):
        if event.old is None:
            by_place.pop(place(event.record), None)
        else:
            old = Record(event.old, int(event.old["metadata"]["resourceVersion"]))
            by_place[place(old)] = old
    return [by_place[one] for one in sorted(by_place)]


def listed(store: Store, request: Request, view: View) -> bytes:
    """The answer to a list request."""
    limit, token = request.number("limit"), request.query.get("continue", "")
    wanted = matcher(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""), request.info)
    asked = request.number("resourceVersion")
    match = request.query.get("resourceVersionMatch", "")
    if match and (match not in ("Exact", "NotOlderThan") or asked is None or token):
        raise errors.bad_request(f"resourceVersionMatch {match!r} is forbidden here: give it with a resourceVersion")
    if asked and asked > store.resource_version:
        raise errors.resource_version_too_large(asked, store.resource_version)
    start: tuple[str, str] | None = None
    revision = store.resource_version
    if token:
        if asked:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        revision, start = _decoded(token)
    elif asked and match == "Exact":
        revision = asked
    try:
        records = snapshot(store, request.info.key, revision)
    except errors.ApiError as error:
        if not token:
            raise
        raise errors.expired(_EXPIRED) from error
    if request.namespace:
        records = [one for one in records if one.obj["metadata"].get("namespace") == request.namespace]
    first = bisect_right(records, start, key=place) if start is not None else 0
    if wanted is not None:
        records, first = [one for one in records[first:] if wanted(one.obj)], 0
    left = len(records) - first
    remaining, following = None, ""
    if limit and left > limit:
        following = _encoded(revision, place(records[first + limit - 1]))
        # Upstream does not count what a selector would have to be asked about.
        remaining = left - limit if wanted is None else None
    chunk = records[first : first + limit] if limit else records[first:]
    return view.list(chunk, ListMeta(revision, following, remaining))


def _encoded(revision: int, last: tuple[str, str]) -> str:
    raw = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(last)})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(token: str) -> tuple[int, tuple[str, str]]:
    try:
        raw: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = raw["start"].partition("/")
        return int(raw["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise errors.bad_request("continue key is not valid: use the token of the list before, unchanged") from None
