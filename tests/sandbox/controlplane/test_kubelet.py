"""Kubelets, silent nodes and the node lifecycle."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import CLAIMS, EVENTS, NODES, PODS, TEMPLATES, condition, parse_duration
from tests.sandbox.controlplane.plane import Obj, Plane

pytestmark = pytest.mark.looptime


async def running(plane: Plane, name: str = "p", **shape: Any) -> Obj:
    created = plane.store.create(PODS, fleet.pod("team", name, **shape))
    await asyncio.sleep(1)
    assert plane.pod("team", name) == "Running"
    return created


def ready(plane: Plane, name: str = "n1") -> str:
    found = condition(plane.get(NODES, name), "Ready")
    assert found is not None
    return str(found["status"])


@pytest.mark.parametrize(
    ("grace", "stop_after", "seconds"),
    [
        # As in the recordings: 3 s, though the grace period is 2 s.
        (2, None, 3),
        (30, None, 3),
        (30, "25s", 25),
        # Killed at the end of the grace period, and gone two seconds later.
        (10, "1m", 12),
    ],
)
async def test_how_long_a_pod_takes_to_stop(plane: Plane, grace: int, stop_after: str | None, seconds: float) -> None:
    plane.nodes()
    await plane.manager.start()
    await running(plane, grace_seconds=grace, stop_after=stop_after)
    plane.store.delete(PODS, "team", "p")
    await asyncio.sleep(seconds - 0.1)
    assert plane.pod("team", "p") == "Terminating"
    await asyncio.sleep(0.2)
    assert plane.pod("team", "p") == "gone"


async def test_a_pod_that_completes_gives_its_claim_back(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(TEMPLATES, fleet.template("team", "one"))
    await plane.manager.start()
    job = fleet.pod("team", "job", template="one")
    job["metadata"]["annotations"] = {"sandbox.taintctl.dev/complete-after": "1m30s"}
    plane.store.create(PODS, job)
    await asyncio.sleep(89)
    assert plane.pod("team", "job") == "Running"
    assert len(plane.store.list(CLAIMS)) == 1
    await asyncio.sleep(3)
    assert plane.pod("team", "job") == "Succeeded"
    assert plane.store.list(CLAIMS) == []


async def test_a_silent_node_becomes_unknown_after_40_seconds_and_finalises_nothing(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(CLAIMS, fleet.claim("team", "c"))
    await plane.manager.start()
    await running(plane, claim="c")
    plane.manager.node_silent("n1")
    plane.store.delete(PODS, "team", "p")
    await asyncio.sleep(39)
    assert ready(plane) == "True"
    await asyncio.sleep(2)
    assert ready(plane) == "Unknown"
    taints = plane.get(NODES, "n1")["spec"]["taints"]
    assert [(t["key"], t["effect"]) for t in taints] == [
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    ]
    await asyncio.sleep(3600)
    assert plane.pod("team", "p") == "Terminating"
    assert plane.devices("team", "c") == ["n1/gpu-0"]
    plane.manager.node_back("n1")
    await asyncio.sleep(4)
    assert plane.pod("team", "p") == "gone"
    assert plane.devices("team", "c") == []
    assert ready(plane) == "True"
    assert "taints" not in plane.get(NODES, "n1")["spec"]


async def test_pods_of_an_unreachable_node_are_marked_after_their_300_seconds(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    await running(plane)
    plane.manager.node_silent("n1")
    await asyncio.sleep(40 + 299)
    assert plane.pod("team", "p") == "Running"
    ready_pod = condition(plane.get(PODS, "p", "team"), "Ready")
    assert ready_pod is not None
    assert ready_pod["status"] == "False"
    await asyncio.sleep(2)
    assert plane.pod("team", "p") == "Terminating"
    disrupted = condition(plane.get(PODS, "p", "team"), "DisruptionTarget")
    assert disrupted is not None
    assert disrupted["reason"] == "DeletionByTaintManager"
    assert "TaintManagerEviction" in {e["reason"] for e in plane.store.list(EVENTS)}


async def test_a_node_that_comes_back_in_time_keeps_its_pods(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    await running(plane)
    plane.manager.node_silent("n1")
    await asyncio.sleep(120)
    plane.manager.node_back("n1")
    await asyncio.sleep(600)
    assert plane.pod("team", "p") == "Running"
    ready_pod = condition(plane.get(PODS, "p", "team"), "Ready")
    assert ready_pod is not None
    assert ready_pod["status"] == "True"


async def test_a_new_node_reports_ready_and_gets_pods(plane: Plane) -> None:
    await plane.manager.start()
    bare = fleet.node("n9")
    del bare["status"]
    plane.store.create(NODES, bare)
    await plane.settle()
    await running(plane)
    assert ready(plane, "n9") == "True"


async def test_a_no_execute_taint_of_a_node_evicts_by_hand(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    await running(plane)
    taint = {"key": "maintenance", "effect": "NoExecute"}
    plane.store.mutate(NODES, None, "n1", lambda node: node["spec"].update(taints=[taint]))
    await plane.settle(0.1)
    assert plane.pod("team", "p") == "Terminating"


@pytest.mark.parametrize(("text", "seconds"), [("25s", 25), ("1h30m", 5400), ("2m5s", 125), ("0.5s", 0.5)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "25", "s", "5m1h", "-1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)
