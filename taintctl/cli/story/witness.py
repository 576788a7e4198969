"""An independent record of what happened: every write to rules and pods, as the sandbox's own store saw it.

What the run says of itself in its status is compared with this at the end of a story.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.store import Event

RULES, PODS = "devicetaintrules.resource.k8s.io", "pods"


@dataclass(frozen=True)
class Marked:
    """A pod that was marked for deletion, by whom, and the strongest effect that any rule had at that moment."""

    namespace: str
    name: str
    uid: str
    by: str
    under: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass
class Witness:
    effects: list[tuple[str, str]] = field(default_factory=list)
    """(rule, effect) in the order in which effects were set; a deleted rule has the effect `deleted`."""
    marked: list[Marked] = field(default_factory=list)
    _live: dict[str, str] = field(default_factory=dict)
    _unsubscribe: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, sandbox: Sandbox) -> Witness:
        witness = cls()
        witness._unsubscribe = sandbox.store.subscribe(None, witness._see)
        return witness

    def stop(self) -> None:
        self._unsubscribe()

    def _see(self, event: Event) -> None:
        if event.key == RULES:
            self._rule(event)
        elif event.key == PODS:
            self._pod(event)

    def _rule(self, event: Event) -> None:
        name = event.obj["metadata"]["name"]
        effect = "deleted" if event.type == "DELETED" else event.obj["spec"]["taint"]["effect"]
        if self._live.get(name) != effect:
            self.effects.append((name, effect))
        if event.type == "DELETED":
            self._live.pop(name, None)
        else:
            self._live[name] = effect

    def _pod(self, event: Event) -> None:
        meta = event.obj["metadata"]
        before = (event.old or {}).get("metadata", {})
        going = event.type == "DELETED" or "deletionTimestamp" in meta
        if not going or "deletionTimestamp" in before or any(m.uid == meta["uid"] for m in self.marked):
            return
        self.marked.append(Marked(meta["namespace"], meta["name"], meta["uid"], event.user, self.strongest()))

    def strongest(self) -> str:
        order = ("NoExecute", "NoSchedule", "None")
        return next((effect for effect in order if effect in self._live.values()), "no rule")
