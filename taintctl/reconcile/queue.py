"""A work queue as controllers use it: a key is worked on once at a time, and never waits twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Keys, now or after a delay (in seconds of the running loop). The earliest time of a key wins."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._queued: set[K] = set()
        self._active: set[K] = set()
        self._again: set[K] = set()
        self._timers: dict[K, asyncio.TimerHandle] = {}

    def add(self, key: K, delay: float = 0.0) -> None:
        if delay <= 0:
            self._push(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + delay:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(delay, self._push, key)

    async def get(self) -> K:
        key = await self._ready.get()
        self._queued.discard(key)
        self._active.add(key)
        return key

    def done(self, key: K) -> None:
        self._active.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._push(key)

    async def work(self, one: Callable[[K], Awaitable[timedelta | None]]) -> None:
        """A worker, until cancelled. `one` deals with a key and returns after which time it is due again at the
        latest; None: when it is added again. It has to keep its errors to itself."""
        while True:
            key = await self.get()
            try:
                again = await one(key)
                if again is not None:
                    self.add(key, again.total_seconds())
            finally:
                self.done(key)  # last: where the key was added meanwhile it is due now, and not once more later

    def _push(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        if key in self._active:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
