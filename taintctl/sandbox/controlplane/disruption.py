"""PodDisruptionBudgets: how many pods each allows to be disrupted now.

Source: pkg/controller/disruption of Kubernetes 1.36 and recording 07. The sandbox has no workload controllers: where
upstream asks a pod's controller for its scale, the number of its pods stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from datetime import timedelta

from taintctl.sandbox.apiserver.meta import parse_time
from taintctl.sandbox.controlplane.objects import (
    BUDGETS,
    PODS,
    Obj,
    deleting,
    is_true,
    labels_match,
    meta,
    set_condition,
    terminal,
)
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import Event

DELETION_TIMEOUT = 120.0
"""Seconds for which an evicted pod counts as disrupted before its deletion is seen."""


class Disruption(Controller):
    """Keeps the status of every budget."""

    name = "disruption"
    watches = frozenset({BUDGETS, PODS})

    def sync(self) -> None:
        for budget in self.store.list(BUDGETS):
            self.queue.add((meta(budget)["namespace"], meta(budget)["name"]))

    def on_event(self, event: Event) -> None:
        m = meta(event.obj)
        if event.key == BUDGETS:
            if event.type != "DELETED":
                self.queue.add((m["namespace"], m["name"]))
            return
        for budget in self.store.list(BUDGETS, m["namespace"]):
            selector = budget["spec"].get("selector")
            states = (event.obj, event.old) if event.old is not None else (event.obj,)
            if any(labels_match(selector, meta(pod).get("labels")) for pod in states):
                self.queue.add((m["namespace"], meta(budget)["name"]))

    async def handle(self, item: Hashable) -> float | None:
        assert isinstance(item, tuple)
        namespace, name = item
        budget = self.store.find(BUDGETS, namespace, name)
        if budget is None:
            return None
        selector = budget["spec"].get("selector")
        pods = [
            p
            for p in self.store.list(PODS, namespace)
            if not terminal(p) and labels_match(selector, meta(p).get("labels"))
        ]
        now = self.clock.now()
        disrupted, again = self._disrupted(budget, pods)
        healthy = sum(is_true(p, "Ready") and not deleting(p) and meta(p)["name"] not in disrupted for p in pods)
        expected, desired = _expected(budget["spec"], pods)
        allowed = max(0, healthy - desired) if expected > 0 else 0

        def write(current: Obj) -> None:
            if meta(current)["uid"] != meta(budget)["uid"]:
                return
            status = {
                "observedGeneration": meta(current)["generation"],
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": desired,
                "expectedPods": expected,
            }
            if disrupted:
                status["disruptedPods"] = disrupted
            status["conditions"] = (current.get("status") or {}).get("conditions") or []
            current["status"] = status
            verdict = {
                "type": "DisruptionAllowed",
                "status": "True" if allowed else "False",
                "observedGeneration": meta(current)["generation"],
                "reason": "SufficientPods" if allowed else "InsufficientPods",
                "message": "",
            }
            set_condition(current, verdict, now)

        self.store.mutate(BUDGETS, namespace, name, write, subresource="status")
        return again

    def _disrupted(self, budget: Obj, pods: list[Obj]) -> tuple[dict[str, str], float | None]:
        """Pods that the Eviction API has let go and that are still there; and when the first of them is forgotten."""
        noted = (budget.get("status") or {}).get("disruptedPods") or {}
        now = self.clock.now()
        kept: dict[str, str] = {}
        again: float | None = None
        for pod in pods:
            at = noted.get(meta(pod)["name"])
            if at is None or deleting(pod):
                continue
            left = (parse_time(at) + self.clock.scaled(timedelta(seconds=DELETION_TIMEOUT)) - now).total_seconds()
            if left > 0:
                kept[meta(pod)["name"]] = at
                left *= self.clock.speed
                again = left if again is None else min(again, left)
        return kept, again


def _expected(spec: Obj, pods: list[Obj]) -> tuple[int, int]:
    """How many pods there should be, and how many of them have to stay healthy."""
    if "maxUnavailable" not in spec and not isinstance(spec.get("minAvailable"), str):
        # An absolute number (1 where the budget names nothing, as upstream).
        return len(pods), int(spec.get("minAvailable", 1))
    # Shares are of what controllers want; pods without a controller are not counted.
    expected = sum(any(r.get("controller") for r in meta(p).get("ownerReferences") or ()) for p in pods)
    if "maxUnavailable" in spec:
        return expected, max(0, expected - _number(spec["maxUnavailable"], expected))
    return expected, _number(spec["minAvailable"], expected)


def _number(value: int | str, total: int) -> int:
    """A count or a percentage of `total`, rounded up as upstream does for both kinds of budget."""
    return math.ceil(int(value.rstrip("%")) * total / 100) if isinstance(value, str) else value
