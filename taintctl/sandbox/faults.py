"""API errors that can be switched on: what a cluster does to its clients on a bad day."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

MAX_FAULTS = 100


class Effect(Enum):
    """What happens to a request that a fault meets."""

    STATUS = "status"
    """It is answered with an HTTP error and not done."""
    DELAY = "delay"
    """It is done later."""
    DROP = "drop"
    """The connection is closed, and it is not done."""
    LOSE_ANSWER = "lose-answer"
    """It is done, and the connection is closed before the answer."""


@dataclass
class Fault:
    """One fault. Empty `verbs`, `resources`, `users` and `names` mean any.

    Verbs are those of RBAC (`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`),
    resources are keys such as `pods`, `pods/eviction` or `devicetaintrules.resource.k8s.io/status`.
    """

    effect: Effect
    status: int = 0
    retry_after: int | None = None
    delay: float = 0.0
    verbs: frozenset[str] = frozenset()
    resources: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    remaining: int | None = None
    """How many more requests it meets; None until it is cleared."""
    met: int = field(default=0, init=False)
    """How many requests it has met."""

    def matches(self, verb: str, resource: str, user: str, name: str) -> bool:
        return (
            self.remaining != 0
            and (not self.verbs or verb in self.verbs)
            and (not self.resources or resource in self.resources)
            and (not self.users or user in self.users)
            and (not self.names or name in self.names)
        )


class Faults:
    """The faults in force. The server asks for every request; the first fault that matches counts."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._cutters: list[Callable[[bool], None]] = []
        self.away = False
        """The API server is away: every connection is closed without an answer."""

    def fail(
        self,
        status: int,
        *,
        verbs: Iterable[str] = (),
        resources: Iterable[str] = (),
        users: Iterable[str] = (),
        names: Iterable[str] = (),
        times: int | None = None,
        retry_after: int | None = None,
    ) -> Fault:
        """Answers with an HTTP error: 500, 503, 429 (with `Retry-After` seconds), 410, 409 …"""
        if not 400 <= status <= 599:
            raise ValueError(f"status: {status} is not an HTTP error")
        return self._add(Effect.STATUS, verbs, resources, users, names, times, status=status, retry_after=retry_after)

    def slow(
        self,
        seconds: float,
        *,
        verbs: Iterable[str] = (),
        resources: Iterable[str] = (),
        users: Iterable[str] = (),
        names: Iterable[str] = (),
        times: int | None = None,
    ) -> Fault:
        """Delays requests by `seconds`, divided by the clock's speed."""
        return self._add(Effect.DELAY, verbs, resources, users, names, times, delay=seconds)

    def drop(
        self,
        *,
        verbs: Iterable[str] = (),
        resources: Iterable[str] = (),
        users: Iterable[str] = (),
        names: Iterable[str] = (),
        times: int | None = None,
        after: bool = False,
    ) -> Fault:
        """Closes the connection: before the request is done, or, with `after`, when it is done but not answered."""
        return self._add(Effect.LOSE_ANSWER if after else Effect.DROP, verbs, resources, users, names, times)

    def _add(
        self,
        effect: Effect,
        verbs: Iterable[str],
        resources: Iterable[str],
        users: Iterable[str],
        names: Iterable[str],
        times: int | None,
        *,
        status: int = 0,
        retry_after: int | None = None,
        delay: float = 0.0,
    ) -> Fault:
        if len(self._faults) >= MAX_FAULTS:
            raise ValueError(f"at most {MAX_FAULTS} faults at a time: clear some first")
        fault = Fault(
            effect,
            status=status,
            retry_after=retry_after,
            delay=delay,
            verbs=frozenset(verbs),
            resources=frozenset(resources),
            users=frozenset(users),
            names=frozenset(names),
            remaining=times,
        )
        self._faults.append(fault)
        return fault

    def clear(self, fault: Fault | None = None) -> None:
        """Ends one fault, or all of them, `away` too."""
        if fault is None:
            self._faults.clear()
            self.away = False
        elif fault in self._faults:
            self._faults.remove(fault)

    def go_away(self) -> None:
        """Takes the API server away: no answers, and the open watches end."""
        self.away = True
        self.cut_watches()

    def cut_watches(self) -> None:
        """Closes every open watch, as a load balancer or a restart does."""
        for cut in self._cutters:
            cut(False)

    def expire_watches(self) -> None:
        """Ends every open watch with an ERROR event of code 410, as after a compaction."""
        for cut in self._cutters:
            cut(True)

    def on_cut(self, cut: Callable[[bool], None]) -> Callable[[], None]:
        """For the server: called to close its watches (True: with a 410 first); returns what ends the subscription."""
        self._cutters.append(cut)
        return lambda: self._cutters.remove(cut)

    def meet(self, verb: str, resource: str, user: str, name: str) -> Fault | None:
        """The fault that this request meets, counted; None when it meets none."""
        for fault in self._faults:
            if fault.matches(verb, resource, user, name):
                fault.met += 1
                if fault.remaining is not None:
                    fault.remaining -= 1
                    if not fault.remaining:
                        self._faults.remove(fault)
                return fault
        return None
