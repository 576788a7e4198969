"""A watch that goes on by itself, over timeouts and lost connections, until its place is forgotten (410)."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Generic, Literal, TypeVar

import msgspec

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.status import Expired, Status, decode, refusal, to_error
from taintctl.api.objects import Meta
from taintctl.ports.clock import Clock
from taintctl.ports.errors import Unavailable

T = TypeVar("T")

SERVER_TIMEOUT = (240, 360)
"""Seconds after which the server is asked to end a watch; spread, so that not all come back at once."""
SILENCE = 150.0
"""Seconds without a byte before a connection counts as lost; an API server sends a bookmark every minute."""
FIRST_BACKOFF = 0.5
LAST_BACKOFF = 30.0
SAID_AFTER = 3
"""Failures in a row after which the log says so, once: single cuts are normal."""

log = logging.getLogger("taintctl.watch")


class _Raw(msgspec.Struct, frozen=True):
    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Versioned(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()


class WatchEvent(msgspec.Struct, Generic[T], frozen=True):
    """What changed. A BOOKMARK has no object and says only that nothing happened up to its resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str


async def watch(
    client: Client,
    clock: Clock,
    url_path: str,
    kind: type[T],
    resource_version: str,
    *,
    params: Mapping[str, str] | None = None,
) -> AsyncIterator[WatchEvent[T]]:
    """Every change after `resource_version`, for ever. Raises Expired where the server no longer knows that place
    (list again), and ClusterError for what will not pass by itself. Close it with `aclosing`."""
    failures = 0
    while True:
        timeout = random.randint(*SERVER_TIMEOUT)  # noqa: S311 (spreads load; nothing secret)
        query = {
            **(params or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout),
        }
        heard = False
        try:
            async with aclosing(client.stream(url_path, query, SILENCE)) as lines:  # type: ignore[type-var]
                async for line in lines:
                    event = read_event(line, kind, url_path)
                    if _goes_back(event.resource_version, resource_version):
                        raise Expired(f"The API server counts from lower again, as after a restore (WATCH {url_path}).")
                    resource_version = event.resource_version or resource_version
                    heard = True
                    yield event
        except Unavailable as error:
            if failures == SAID_AFTER:
                log.warning("the watch of %s is cut off and tried again: %s", url_path, error.message)
        # A server that ends each watch at once must not be asked in a tight loop.
        failures = 0 if heard else failures + 1
        if failures:
            delay: float = min(FIRST_BACKOFF * 2.0 ** min(failures - 1, 10), LAST_BACKOFF)
            await clock.sleep(delay * random.uniform(0.5, 1.0))  # noqa: S311


def read_event(line: bytes, kind: type[T], url_path: str) -> WatchEvent[T]:
    """One line of a watch. Raises Expired or another ClusterError for an ERROR event and for what can't be read."""
    what = f"WATCH {url_path}"
    raw: _Raw = decode(line, _Raw, what)
    body = bytes(raw.object)
    if raw.type in ("ADDED", "MODIFIED", "DELETED"):
        obj: Any = decode(body, kind, what)
        return WatchEvent(raw.type, obj, _version(body, what))  # type: ignore[arg-type]
    if raw.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", None, _version(body, what))
    if raw.type == "ERROR":
        status: Status = decode(body, Status, what)
        raise to_error(refusal(status.code or 500, body), what)
    raise Expired(f"The API server sent an event of an unknown type ({what}).")


def _goes_back(version: str, known: str) -> bool:
    """A watch's versions only grow; they can be compared where they are numbers, as those of an API server are."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _version(body: bytes, what: str) -> str:
    versioned: _Versioned = decode(body, _Versioned, what)
    return versioned.metadata.resource_version
