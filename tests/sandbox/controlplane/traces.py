"""Comparing what the sandbox does over time with what a real control plane was recorded to do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import datetime
from typing import Any

from taintctl.sandbox.controlplane.objects import RULES
from tests.sandbox.controlplane.plane import Obj, Plane, normal

TOLERANCE = 1.0
"""Seconds by which an instant may differ: the recorder looked ten times a second, and whole seconds are stored."""


def replay_rule(plane: Plane, create: Obj) -> None:
    """Creates the recorded rule and compares the answer."""
    assert normal(plane.store.create(RULES, create["request"]["body"])) == normal(create["response"])


class Timelines:
    """What happened when: a trace taken apart into one line of changes for each thing it follows."""

    def __init__(self, trace: list[Obj]) -> None:
        self.lines: dict[str, list[tuple[float, Any]]] = defaultdict(list)
        for state in trace:
            rule = state["rule"]
            self._note("rule", state["t"], (rule["generation"], rule["effect"]))
            condition = rule["condition"]
            told = {k: v for k, v in condition.items() if k != "lastTransitionTime"}
            self._note("condition", state["t"], told)
            since = datetime.fromisoformat(condition["lastTransitionTime"]) - datetime.fromisoformat(rule["timeAdded"])
            self._note("transition", since.total_seconds(), told)
            for kind in ("pods", "allocatedClaims"):
                names = set(state[kind]) | {n.partition(" ")[2] for n in self.lines if n.startswith(f"{kind} ")}
                for name in names:
                    there = state[kind].get(name, "gone") if kind == "pods" else name in state[kind]
                    self._note(f"{kind} {name}", state["t"], there)

    def _note(self, name: str, at: float, value: Any) -> None:
        if not self.lines[name] or self.lines[name][-1][1] != value:
            self.lines[name].append((at, value))

    def assert_like(self, other: Timelines) -> None:
        assert self.lines.keys() == other.lines.keys()
        for name, line in self.lines.items():
            assert [value for _, value in line] == [value for _, value in other.lines[name]], name
            for (at, value), (expected, _) in zip(line, other.lines[name], strict=True):
                assert abs(at - expected) <= TOLERANCE, f"{name} became {value} at {at}, recorded at {expected}"


async def traced(plane: Plane, rule: str, seconds: float) -> list[Obj]:
    """The states of a rule, the pods and the claims, ten times a second."""
    loop = asyncio.get_running_loop()
    started, trace = loop.time(), []
    while loop.time() - started <= seconds:
        await asyncio.sleep(0.02)
        found = plane.get(RULES, rule)
        taint = found["spec"]["taint"]
        trace.append(
            {
                "t": loop.time() - started,
                "rule": {
                    "generation": found["metadata"]["generation"],
                    "effect": taint["effect"],
                    "timeAdded": taint["timeAdded"],
                    "condition": plane.condition(rule),
                },
                "pods": plane.pods(),
                "allocatedClaims": plane.allocated(),
            }
        )
        await asyncio.sleep(0.08)
    return trace
