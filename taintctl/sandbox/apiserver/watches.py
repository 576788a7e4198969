"""Watches: each change encoded once and handed as bytes to every watcher that wants it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.selectors import Matcher
from taintctl.sandbox.apiserver.views import TableView, View, encode
from taintctl.sandbox.store import Event, Store

MAX_PENDING = 10_000
"""Changes that may wait for one slow watcher; it is dropped with 410 when there are more."""

BOOKMARK_SECONDS = 60.0
"""How often a watch that allows bookmarks gets one."""

LAST_BOOKMARK_SECONDS = 2.0
"""How long before its time is over a watch gets one more, as upstream does it: the client resumes from there."""

DEFAULT_TIMEOUT = 1800.0
"""How long a watch stays open that does not say; upstream picks between 30 and 60 minutes."""

WRITE_TIMEOUT = 30.0
"""How long a client may take to read what it was sent before its connection is closed."""


def error_line(error: errors.ApiError) -> bytes:
    """The event that ends a watch."""
    return View.raw_line("ERROR", encode(error.to_status()))


class Watcher:
    """One open watch: what it wants, and what waits to be sent."""

    def __init__(self, view: View, namespace: str, name: str, wanted: Matcher | None) -> None:
        self._view = view
        self._namespace = namespace
        self._name = name
        self._wanted = wanted
        self._pending: deque[bytes] = deque()
        self._ready = asyncio.Event()
        self.ended = False

    def wants(self, obj: dict[str, object] | None) -> bool:
        """Whether the object is one that this watch shows."""
        if obj is None:
            return False
        meta = obj["metadata"]
        assert isinstance(meta, dict)
        if self._namespace and meta.get("namespace") != self._namespace:
            return False
        if self._name and meta.get("name") != self._name:
            return False
        return self._wanted is None or self._wanted(obj)

    def offer(self, event: Event) -> None:
        """Queues a change, as what it is to somebody who sees only what the selector lets through."""
        if self.ended:
            return
        before = self.wants(event.old)
        after = event.type != "DELETED" and self.wants(event.obj)
        if not before and not after:
            return
        kind = "DELETED" if not after else "MODIFIED" if before else "ADDED"
        self.send(self._view.line(kind, event))
        if len(self._pending) > MAX_PENDING:
            self.end(errors.expired("too many changes are waiting for this watch: list again and read faster"))

    def send(self, line: bytes) -> None:
        self._pending.append(line)
        self._ready.set()

    def end(self, error: errors.ApiError | None = None) -> None:
        """Ends the watch, with an ERROR event when there is one; what waits is dropped then."""
        if error is not None:
            self._pending.clear()
            self._pending.append(error_line(error))
        self.ended = True
        self._ready.set()

    async def lines(self, timeout: float) -> bytes | None:
        """What is to be sent next, waiting up to `timeout` seconds; empty after that, None when the watch is over."""
        if not self._pending and not self.ended:
            self._ready.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return b""
        if not self._pending:
            return None
        batch = b"".join(self._pending)
        self._pending.clear()
        return batch


class Broadcaster:
    """Hands the store's changes to the watchers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._watchers: dict[str, set[Watcher]] = {}
        self._unsubscribe: Callable[[], None] = store.subscribe(None, self._on_event)

    def close(self) -> None:
        """Ends all watches and listens no more."""
        self._unsubscribe()
        self.cut(expired=False)

    def cut(self, expired: bool) -> None:
        """Ends all open watches, with a 410 first when `expired`."""
        error = errors.expired(f"too old resource version: 1 ({self._store.resource_version})") if expired else None
        for watchers in self._watchers.values():
            for watcher in tuple(watchers):
                watcher.end(error)

    def _on_event(self, event: Event) -> None:
        for watcher in tuple(self._watchers.get(event.key, ())):
            watcher.offer(event)

    def open(
        self,
        key: str,
        view: View,
        *,
        namespace: str,
        name: str,
        wanted: Matcher | None,
        since: int | None,
        initial: bool,
    ) -> Watcher:
        """A watcher with what it has missed queued already.

        `since` is the revision to go on from; None starts with the objects there are, as ADDED. `initial` marks their
        end with a bookmark (WatchList). A revision that is too old or too new ends the watch with an ERROR event, as
        upstream does it.
        """
        watcher = Watcher(view, namespace, name, wanted)
        if since is None:
            there = [record for record in self._store.records(key) if watcher.wants(record.obj)]
            # As one piece: however many there are, they do not count against what may wait for a slow watcher.
            watcher.send(b"".join(View.raw_line("ADDED", view.item(record)) for record in there))
            if initial:
                watcher.send(view.bookmark(self._store.resource_version, initial_end=True))
        elif since > self._store.resource_version:
            watcher.end(errors.resource_version_too_large(since, self._store.resource_version))
            return watcher
        else:
            try:
                missed = self._store.changes_since(key, since)
            except errors.ApiError as error:
                watcher.end(error)
                return watcher
            for event in missed:
                watcher.offer(event)
        self._watchers.setdefault(self._store.resources.get(key).storage_key, set()).add(watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        for watchers in self._watchers.values():
            watchers.discard(watcher)

    def end_of(self, key: str) -> None:
        """Ends the watches of a resource that is served no more."""
        for watcher in tuple(self._watchers.get(key, ())):
            watcher.end()

    async def serve(
        self, watcher: Watcher, write: Callable[[bytes], object], view: View, *, timeout: float, bookmarks: bool
    ) -> None:
        """Sends a watcher's lines until it ends, its time is over or its client is gone (ConnectionError)."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        next_bookmark = self._next_bookmark(loop.time(), deadline)
        while (left := deadline - loop.time()) > 0:
            wait = min(left, next_bookmark - loop.time()) if bookmarks else left
            if isinstance(view, TableView):
                view.now = self._clock.now()
            batch = await watcher.lines(max(wait, 0.0))
            if batch is None:
                return
            if bookmarks and loop.time() >= next_bookmark:
                batch += view.bookmark(self._store.resource_version)
                next_bookmark = self._next_bookmark(loop.time(), deadline)
            if batch:
                async with asyncio.timeout(WRITE_TIMEOUT):
                    result = write(batch)
                    if asyncio.iscoroutine(result):
                        await result

    def _next_bookmark(self, now: float, deadline: float) -> float:
        regular = now + BOOKMARK_SECONDS / self._clock.speed
        last = deadline - LAST_BOOKMARK_SECONDS
        return min(regular, last) if last > now else regular
