"""Which kubelets are silent: the fact that a kubelet knows of itself and the node lifecycle notices late."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from taintctl.ports.clock import Clock


class NodeHealth:
    """Switched by tests and demonstrations, read by the kubelets and the node lifecycle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._silent: dict[str, datetime] = {}
        self._listeners: list[Callable[[str], None]] = []

    def node_silent(self, name: str) -> None:
        """From now on the node's kubelet neither reports nor finalises anything; its pods run on."""
        self._silent.setdefault(name, self._clock.now())
        self._tell(name)

    def node_back(self, name: str) -> None:
        """The kubelet reports again and catches up."""
        if self._silent.pop(name, None) is not None:
            self._tell(name)

    def silent_since(self, name: str) -> datetime | None:
        return self._silent.get(name)

    def listen(self, callback: Callable[[str], None]) -> Callable[[], None]:
        """Calls back with a node's name on each change; returns how to end that."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def _tell(self, name: str) -> None:
        for callback in tuple(self._listeners):
            callback(name)
