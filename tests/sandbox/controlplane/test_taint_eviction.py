"""What the recordings do not show of the eviction controller: restarts, pauses, speed, drivers' taints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import CLAIMS, EVENTS, PODS, RULES, SLICES, condition
from taintctl.sandbox.controlplane.rule_status import Counts
from taintctl.sandbox.controlplane.rule_status import condition as rule_condition
from tests.sandbox.controlplane.plane import Obj, Plane, rule

pytestmark = pytest.mark.looptime


async def holding(plane: Plane, name: str = "p", **exactly: Any) -> None:
    plane.store.create(CLAIMS, fleet.claim("team", name, **exactly))
    plane.store.create(PODS, fleet.pod("team", name, claim=name))
    await asyncio.sleep(2)
    assert plane.pod("team", name) == "Running"


async def started(plane: Plane, **exactly: Any) -> None:
    plane.nodes()
    await plane.manager.start()
    await holding(plane, **exactly)


async def test_a_restarted_controller_forgets_what_it_evicted(plane: Plane) -> None:
    await started(plane)
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await asyncio.sleep(11)
    assert plane.condition("r")["reason"] == "Completed"
    await plane.manager.restart("taint-eviction")
    await asyncio.sleep(11)
    told = plane.condition("r")
    assert (told["status"], told["reason"], told["message"]) == ("False", "NotStarted", "")


async def test_a_stopped_controller_leaves_the_observed_generation_behind(plane: Plane) -> None:
    await started(plane)
    plane.rule("r", "None", driver=fleet.DRIVER)
    await plane.settle()
    await plane.manager.stop("taint-eviction")
    plane.set_effect("r", "NoExecute")
    await asyncio.sleep(60)
    assert plane.condition("r")["observedGeneration"] == 1
    assert plane.pod("team", "p") == "Running"
    await plane.manager.start("taint-eviction")
    await plane.settle()
    assert plane.condition("r")["observedGeneration"] == 2
    assert plane.pod("team", "p") == "Terminating"


async def test_a_paused_controller_goes_on_where_it_was(plane: Plane) -> None:
    await started(plane)
    plane.manager.pause("taint-eviction")
    assert plane.manager["taint-eviction"].paused
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await asyncio.sleep(60)
    assert plane.condition("r") == {}
    assert plane.pod("team", "p") == "Running"
    plane.manager.resume("taint-eviction")
    await plane.settle()
    assert plane.condition("r")["reason"] == "PodsPendingEviction"
    assert plane.pod("team", "p") == "Terminating"


async def test_a_drivers_own_no_execute_evicts_and_no_rule_counts_it(plane: Plane) -> None:
    await started(plane)
    plane.rule("other", "NoExecute", driver=fleet.DRIVER, pool="n1", device="gpu-3")

    def taint(current: Obj) -> None:
        current["spec"]["devices"][0]["taints"] = [{"key": "gpu.example.com/lost", "effect": "NoExecute"}]

    plane.store.mutate(SLICES, None, "n1-gpu", taint)
    await plane.settle()
    assert plane.pod("team", "p") == "Terminating"
    await asyncio.sleep(20)
    assert plane.condition("other")["reason"] == "NotStarted"


async def test_a_pod_that_comes_later_is_evicted_too(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await plane.settle()
    assert plane.condition("r")["reason"] == "NotStarted"
    tolerant = [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    await holding(plane, "late", tolerations=tolerant)
    # The rule was set a moment before the pod: its 30 seconds run from the taint, not from the pod.
    await asyncio.sleep(27)
    assert plane.pod("team", "late") == "Running"
    await asyncio.sleep(2)
    assert plane.pod("team", "late") == "Terminating"


async def test_the_evicted_pod_says_why(plane: Plane) -> None:
    await started(plane)
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await plane.settle()
    target = condition(plane.get(PODS, "p", "team"), "DisruptionTarget")
    assert target is not None
    assert (target["status"], target["reason"]) == ("True", "DeletionByDeviceTaintManager")
    assert target["message"] == "Device Taint manager: deleting due to NoExecute taint"


async def test_a_cancelled_deletion_is_an_event(plane: Plane) -> None:
    await started(plane, tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await plane.settle()
    plane.store.delete(RULES, None, "r")
    await asyncio.sleep(120)
    assert plane.pod("team", "p") == "Running"
    told = [e["message"] for e in plane.store.list(EVENTS) if e["reason"] == "DeviceTaintManagerEviction"]
    assert told == ["Cancelling deletion"]


async def test_a_rule_replaced_under_the_same_name_is_another_rule(plane: Plane) -> None:
    await started(plane)
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await asyncio.sleep(11)
    plane.store.delete(RULES, None, "r")
    plane.rule("r", "NoExecute", driver=fleet.DRIVER)
    await plane.settle()
    assert plane.condition("r")["reason"] == "NotStarted"


async def test_speed_shortens_delays_and_leaves_timestamps_alone() -> None:
    plane = Plane(speed=20)
    try:
        await started(plane, tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])
        plane.rule("r", "NoExecute", driver=fleet.DRIVER)
        before = plane.clock.now()
        await asyncio.sleep(2.9)
        assert plane.pod("team", "p") == "Running"
        await asyncio.sleep(0.15)
        assert plane.pod("team", "p") == "Terminating"
        await asyncio.sleep(0.5)
        assert plane.condition("r")["reason"] == "Completed"
        assert (plane.clock.now() - before).total_seconds() == pytest.approx(3.55)
    finally:
        await plane.manager.stop()


@pytest.mark.parametrize(
    ("effect", "counts", "status", "reason", "message"),
    [
        # One pod evicted: upstream's maybeUpdateRuleStatus has a singular of its own.
        ("NoExecute", Counts(evicted=1), "False", "Completed", "1 pod evicted since starting the controller."),
        (
            "NoExecute",
            Counts(pods=2, namespaces=2, evicted=1),
            "True",
            "PodsPendingEviction",
            "2 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller.",
        ),
        (
            "NoSchedule",
            Counts(evicted=2),
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect. 2 pods evicted since starting the controller.",
        ),
    ],
)
def test_the_words_of_the_condition(effect: str, counts: Counts, status: str, reason: str, message: str) -> None:
    made = rule("r", effect)
    made["metadata"]["generation"] = 4
    assert rule_condition(made, counts) == {
        "type": "EvictionInProgress",
        "status": status,
        "observedGeneration": 4,
        "reason": reason,
        "message": message,
    }
