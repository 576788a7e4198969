"""The recordings of a real control plane, replayed: what it answered is what the sandbox answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import (
    CLAIMS,
    CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    RULES,
    SLICES,
)
from tests.sandbox.controlplane.plane import Obj, Plane, entry, holder, normal, recorded
from tests.sandbox.controlplane.traces import Timelines, replay_rule, traced

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    "create", [e for e in recorded("02-dry-runs.json") if e["request"]["method"] == "POST"], ids=lambda e: e["case"]
)
async def test_dry_run_messages(plane: Plane, create: Obj) -> None:
    plane.recorded_fleet()
    await plane.manager.start()
    replay_rule(plane, create)
    await plane.settle()
    status = entry(recorded("02-dry-runs.json"), create["case"], "status after")
    assert normal(plane.get(RULES, create["case"])) == normal(status["response"])


async def test_only_a_spec_change_or_a_new_rule_refreshes_the_message(plane: Plane) -> None:
    recording = recorded("03-refresh.json")

    def same(what: str) -> None:
        assert normal(plane.get(RULES, "stale")) == normal(entry(recording, "stale", what)["response"])

    plane.recorded_fleet()
    await plane.manager.start()
    replay_rule(plane, entry(recording, "stale", "create"))
    await plane.settle()
    [first] = [e for e in recording if e["what"] == "status"]
    assert normal(plane.get(RULES, "stale")) == normal(first["response"])
    plane.store.delete(PODS, "team-a", "claim-0")
    await asyncio.sleep(14)
    assert plane.pod("team-a", "claim-0") == "gone"
    same("status 14 s after")
    plane.store.mutate(RULES, None, "stale", lambda rule: rule["metadata"].update(labels={"poke": "1"}))
    await asyncio.sleep(1)
    same("status after a label patch")
    plane.store.mutate(RULES, None, "stale", lambda rule: rule["spec"]["taint"].update(value="other"))
    await plane.settle()
    same("status after a taint value patch")
    plane.store.delete(RULES, None, "stale")
    replay_rule(plane, entry(recording, "stale", "recreate"))
    await plane.settle()
    same("status after recreate")


async def test_an_eviction_from_none_to_completed(plane: Plane) -> None:
    [recording] = recorded("05-eviction-trace.json")
    plane.recorded_fleet()
    await plane.manager.start()
    plane.store.delete(PODS, "team-a", "claim-0")
    await asyncio.sleep(6)
    plane.rule("evict", "None", driver="gpu.example.com")
    asyncio.get_running_loop().call_later(1.0, plane.set_effect, "evict", "NoExecute")
    Timelines(await traced(plane, "evict", 33)).assert_like(Timelines(recording["trace"]))


async def test_the_events_of_an_eviction(plane: Plane) -> None:
    [recording] = recorded("06-events.json")
    plane.recorded_fleet()
    await plane.manager.start()
    plane.rule("evict", "NoExecute", driver="gpu.example.com")
    await asyncio.sleep(25)
    written = {e["involvedObject"]["name"]: e for e in plane.store.list(EVENTS)}
    known = {e["involvedObject"]["name"]: e for e in recording["response"]["items"]}
    assert set(written) == {"claim-0", "shared-0", "shared-1", "two-0", "delayed-0"}
    for name, event in written.items():
        assert event["metadata"]["name"].startswith(f"{name}.")
        # As stored; a list leaves kind and apiVersion out.
        mine = normal({k: v for k, v in event.items() if k not in ("kind", "apiVersion")})
        theirs = normal(known[name])
        mine["metadata"].pop("name"), theirs["metadata"].pop("name")
        assert mine == theirs


async def test_which_tolerations_stop_an_eviction(plane: Plane) -> None:
    recording = recorded("08-tolerations.json")
    plane.recorded_fleet(pods=False)
    claims = [e["response"] for e in recording if e["what"] == "the claim"]
    assert len(claims) == 5
    plane.holders([holder(claim, "one-gpu") for claim in claims], claims)
    await plane.manager.start()
    for create in [e for e in recording if e["request"]["method"] == "POST"]:
        replay_rule(plane, create)
        await plane.settle()
        status = entry(recording, create["case"], "status after")
        assert normal(plane.get(RULES, create["case"])) == normal(status["response"])
        plane.store.delete(RULES, None, create["case"])


LATE = "late.acc.example.com"


async def late_fleet(plane: Plane) -> list[Obj]:
    """The node, driver and class that recording 09 was made with."""
    plane.store.create(NAMESPACES, fleet.namespace("acc-late"))
    plane.store.create(CLASSES, fleet.device_class(LATE, driver=LATE, extended_resource=None))
    plane.store.create(SLICES, fleet.resource_slice("late-n0", 4, driver=LATE))
    node = fleet.node("late-n0")
    plane.put(NODES, node)
    await plane.manager.start()
    return recorded("09-late-and-slow.json")


def late_pod(plane: Plane, name: str, claim: str, *, grace: int = 1, **more: Any) -> None:
    """A pod as the recording's: one container, a grace period of a second unless it is slow."""
    metadata: Obj = {"name": name, "namespace": "acc-late", **more}
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "g"}]}}
    resource_claims = [{"name": "g", "resourceClaimName": claim}]
    spec = {"containers": [container], "terminationGracePeriodSeconds": grace, "resourceClaims": resource_claims}
    plane.store.create(PODS, {"metadata": metadata, "spec": spec})


def late_claim(plane: Plane, name: str, **exactly: Any) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": LATE, **exactly}}
    claim = {"metadata": {"name": name, "namespace": "acc-late"}, "spec": {"devices": {"requests": [request]}}}
    plane.store.create(CLAIMS, claim)


async def test_a_delayed_pod_that_leaves_by_itself_leaves_the_condition_true(plane: Plane) -> None:
    recording = await late_fleet(plane)
    late_claim(plane, "slow", tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}])
    late_pod(plane, "slow", "slow")
    await asyncio.sleep(2)
    assert plane.pods() == {"acc-late/slow": "Running"}
    replay_rule(plane, entry(recording, "leaves-by-itself", "NoExecute on a device"))
    await asyncio.sleep(12)
    expected = entry(recording, "leaves-by-itself", "status after 12 s")["response"]
    assert normal(plane.get(RULES, "late-a")) == normal(expected)
    plane.store.delete(PODS, "acc-late", "slow")
    await asyncio.sleep(75)
    assert plane.pods() == {}
    [only] = entry(recording, "leaves-by-itself", "the condition for 75 s")["trace"]
    assert normal(plane.condition("late-a")) == normal(only["condition"])


async def test_a_pod_joins_an_allocated_claim_under_no_schedule(plane: Plane) -> None:
    recording = await late_fleet(plane)
    late_claim(plane, "first")
    late_pod(plane, "holder", "first")
    await asyncio.sleep(2)
    assert plane.devices("acc-late", "first") == ["late-n0/gpu-0"]
    plane.rule("late-b", "NoSchedule", driver=LATE, pool="late-n0", device="gpu-0")
    await asyncio.sleep(12)
    late_pod(plane, "joiner", "first")
    await asyncio.sleep(2)
    expected = entry(recording, "joins-shared-claim", "a second pod")["response"]
    joiner = plane.get(PODS, "joiner", "acc-late")
    assert normal(joiner["spec"]) == normal(expected["spec"])
    assert joiner["status"]["phase"] == expected["status"]["phase"] == "Running"


async def test_a_rule_without_a_selector_does_nothing(plane: Plane) -> None:
    recording = await late_fleet(plane)
    replay_rule(plane, entry(recording, "no-selector", "NoSchedule without"))
    await asyncio.sleep(6)
    late_claim(plane, "ns")
    late_pod(plane, "ns", "ns")
    await asyncio.sleep(2)
    expected = entry(recording, "no-selector", "a new pod")["response"]
    assert normal(plane.get(PODS, "ns", "acc-late")["spec"]) == normal(expected["spec"])
    assert plane.pods() == {"acc-late/ns": "Running"}


async def test_the_condition_is_false_while_a_slow_pod_still_stops(plane: Plane) -> None:
    recording = await late_fleet(plane)
    late_claim(plane, "slow")
    late_pod(plane, "slow", "slow", grace=30, annotations={"sandbox.taintctl.dev/stop-after": "25s"})
    await asyncio.sleep(2)
    plane.rule("late-d", "NoExecute", driver=LATE)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await asyncio.sleep(0.02)
    for state in entry(recording, "terminating-while-false", "a pod that takes 25 s")["trace"]:
        await asyncio.sleep(max(0.0, started + state["t"] + 0.2 - loop.time()))
        assert normal(plane.condition("late-d")) == normal(state["condition"])
        assert plane.pod("acc-late", "slow") == (state["pod"] or "gone")
        assert bool(plane.devices("acc-late", "slow")) is state["claimAllocated"]
