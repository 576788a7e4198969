"""What every controller here is made of: a subscription that never blocks, and one worker with a queue.

The shape is client-go's: events only put items into a queue, which holds each item once; a single worker takes them
in turn; what fails is tried again with a growing delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ClassVar

from taintctl.ports.clock import Clock
from taintctl.sandbox.store import ApiError, Event, Store

_log = logging.getLogger(__name__)

FIRST_RETRY = 0.05
LAST_RETRY = 10.0
"""Seconds before a failed item is tried again: doubled each time, from the first to the last."""


class WorkQueue:
    """Items that wait to be worked on, each once; delays are seconds of the sandbox, divided by the clock's speed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: OrderedDict[Hashable, None] = OrderedDict()
        self._timers: dict[Hashable, asyncio.TimerHandle] = {}
        self._failures: dict[Hashable, int] = {}
        self._wake = asyncio.Event()

    def add(self, item: Hashable) -> None:
        """Puts `item` at the end, unless it waits already."""
        self._forget_timer(item)
        self._ready[item] = None
        self._wake.set()

    def add_after(self, item: Hashable, seconds: float) -> None:
        """Adds `item` in `seconds`; of two delays for one item the shorter one holds, as in client-go."""
        if seconds <= 0:
            self.add(item)
            return
        if item in self._ready:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds / self._clock.speed
        timer = self._timers.get(item)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[item] = loop.call_at(due, self.add, item)

    def retry(self, item: Hashable) -> None:
        """Adds `item` after a delay that doubles with each failure, up to `LAST_RETRY`."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        self.add_after(item, min(LAST_RETRY, FIRST_RETRY * 2 ** min(failures, 16)))

    def forget(self, item: Hashable) -> None:
        """Forgets that `item` ever failed."""
        self._failures.pop(item, None)

    async def get(self) -> Hashable:
        """Takes the next item, and waits for one if there is none."""
        while not self._ready:
            self._wake.clear()
            await self._wake.wait()
        return self._ready.popitem(last=False)[0]

    def clear(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        self._failures.clear()

    def _forget_timer(self, item: Hashable) -> None:
        timer = self._timers.pop(item, None)
        if timer is not None:
            timer.cancel()


class Controller:
    """One control loop, which can be started, stopped (its memory is lost) and paused (its memory is kept).

    A subclass fills its queue in `sync` (from what is stored, at the start) and `on_event`, neither of which may
    block, and does its work in `handle`.
    """

    name: ClassVar[str]
    watches: ClassVar[frozenset[str]]
    """The store keys whose events reach `on_event`; an empty set means every key."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.queue: WorkQueue
        self._going = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._unsubscribe: list[Callable[[], None]] = []

    @property
    def running(self) -> bool:
        return self._task is not None

    @property
    def paused(self) -> bool:
        return self.running and not self._going.is_set()

    def reset(self) -> None:
        """Drops what is only in memory. Called before every start."""

    def sync(self) -> None:
        """Reads what is stored when the controller starts."""

    def on_event(self, event: Event) -> None:
        """Takes note of a write; must neither block nor write."""

    async def handle(self, item: Hashable) -> float | None:
        """Works on one item; the result says in how many seconds again, None for not at all."""
        raise NotImplementedError

    async def start(self) -> None:
        if self._task is not None:
            return
        self.queue = WorkQueue(self.clock)
        self._going.set()
        self.reset()
        keys: list[str | None] = [*sorted(self.watches)] if self.watches else [None]
        self._unsubscribe = [self.store.subscribe(key, self._notice) for key in keys]
        self.sync()
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"sandbox {self.name}")

    async def stop(self) -> None:
        """Stops at once, wherever the worker is; what it knew is forgotten."""
        task, self._task = self._task, None
        if task is None:
            return
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self.queue.clear()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def pause(self) -> None:
        """Does nothing from now on, but remembers what it would have to do: a controller that hangs."""
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def _notice(self, event: Event) -> None:
        try:
            self.on_event(event)
        except Exception:
            # A write must not fail because a controller stumbles over it.
            _log.exception("%s: cannot take note of %s %s", self.name, event.type, event.key)

    async def _work(self) -> None:
        while True:
            item = await self.queue.get()
            await self._going.wait()
            try:
                again = await self.handle(item)
            except ApiError as error:
                # Conflicts and injected faults are everyday: the next try reads afresh.
                _log.debug("%s: %s: %s", self.name, item, error)
                self.queue.retry(item)
                continue
            except Exception:
                _log.exception("%s: %s failed", self.name, item)
                self.queue.retry(item)
                continue
            self.queue.forget(item)
            if again is not None:
                self.queue.add_after(item, again)
