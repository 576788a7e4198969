"""How the connection is, kept for probes, logs and status pages."""

from __future__ import annotations

from datetime import datetime

from taintctl.ports.chat import ChatState
from taintctl.ports.clock import Clock

MAX_CHANNELS = 100


class Status:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._connected = False
        self._since: datetime | None = None
        self._error = ""
        self._channels: dict[str, None] = {}

    def up(self) -> bool:
        """Whether that is new."""
        new = not self._connected
        if new:
            self._connected, self._since = True, self._clock.now()
        self._error = ""
        return new

    def down(self, error: str) -> bool:
        """Whether that is new: another error than the last, or the connection was up."""
        new = self._connected or self._since is None or error != self._error
        if self._connected or self._since is None:
            self._connected, self._since = False, self._clock.now()
        self._error = error
        return new

    def reached(self, channel: str, *, works: bool) -> None:
        """A channel takes our messages, or does not any more."""
        self._channels.pop(channel, None)
        if works:
            self._channels[channel] = None
            while len(self._channels) > MAX_CHANNELS:
                del self._channels[next(iter(self._channels))]

    def state(self) -> ChatState:
        return ChatState(self._connected, self._since, self._error, frozenset(self._channels))
