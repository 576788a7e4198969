"""Time as a dependency: nothing below the edges reads a clock of its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where time comes from.

    `speed` scales delays and never timestamps: at speed 20 a wait of 10 s takes 0.5 s, while
    `now()` stays what the wall says. Whoever compares two timestamps with a delay divides the
    delay (`scaled`).
    """

    speed: float

    def now(self) -> datetime:
        """The time, in UTC, with microseconds."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits `seconds / speed`."""
        ...

    def scaled(self, delay: timedelta) -> timedelta:
        """How long `delay` takes by `now()`: `delay / speed`."""
        ...


class SystemClock:
    """The wall clock, with delays divided by `speed`."""

    def __init__(self, speed: float = 1.0) -> None:
        if not 0 < speed <= 1000:
            raise ValueError(f"speed: {speed} is not above 0 and at most 1000")
        self.speed = speed

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)

    def scaled(self, delay: timedelta) -> timedelta:
        return delay / self.speed


class LoopClock(SystemClock):
    """A clock that follows the running event loop's own time.

    Under a loop with virtual time (tests) a day passes in no time; `start` is what the loop's zero stands for.
    """

    def __init__(self, start: datetime, speed: float = 1.0) -> None:
        super().__init__(speed)
        self._start = start

    def now(self) -> datetime:
        return self._start + timedelta(seconds=asyncio.get_running_loop().time())
