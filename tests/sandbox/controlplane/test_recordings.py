"""The recordings of a real control plane, replayed: what it answered is what the sandbox answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import (
    BUDGETS,
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

pytestmark = pytest.mark.looptime

TOLERANCE = 1.0
"""Seconds by which an instant may differ: the recorder looked ten times a second, and whole seconds are stored."""


def replay_rule(plane: Plane, create: Obj) -> None:
    """Creates the recorded rule and compares the answer."""
    assert normal(plane.store.create(RULES, create["request"]["body"])) == normal(create["response"])


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


def recorded_claim(pod: str) -> Obj:
    """The claim of recording 01 that a template made for a pod."""
    [listed] = [e["response"] for e in recorded("01-objects.json") if e["response"]["kind"] == "ResourceClaimList"]
    found: list[Obj] = [c for c in listed["items"] if c["metadata"].get("generateName") == f"{pod}-g0-"]
    [claim] = found
    return claim


def moved(claim: Obj, device: str) -> Obj:
    """The claim with another device of gpu-worker-01, as recording 07 needs it."""
    allocation = claim["status"]["allocation"]
    allocation["devices"]["results"][0].update(pool="gpu-worker-01", device=device)
    allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] = ["gpu-worker-01"]
    return claim


def budget_fleet(plane: Plane) -> list[Obj]:
    """The fleet of recording 07 without its partitions."""
    recording = recorded("07-partitions-budgets-cancel.json")
    plane.recorded_fleet(pods=False)
    claims = [
        claim
        for claim in entry(recording, "objects", "claims")["response"]["items"]
        if claim["metadata"]["name"].startswith(("admin-0", "claim-0"))
    ]
    pods = [
        holder(claim, "one-gpu", labels={"app": "web"} if claim["metadata"]["namespace"] == "team-a" else None)
        for claim in claims
    ]
    plane.holders(pods, claims)
    return recording


async def test_an_admin_claim_is_counted_and_evicted_and_a_budget_is_not_asked(plane: Plane) -> None:
    recording = budget_fleet(plane)
    await plane.manager.start()
    plane.store.create(BUDGETS, fleet.budget("team-a", "web", "web", 1))
    replay_rule(plane, entry(recording, "dry-admin", "create"))
    await plane.settle()
    assert normal(plane.get(RULES, "dry-admin")) == normal(entry(recording, "dry-admin", "status")["response"])
    assert normal(plane.get(BUDGETS, "web", "team-a")) == normal(
        entry(recording, "pdb", "the budget before")["response"]
    )

    plane.rule("force", "NoExecute", driver="gpu.example.com", pool="gpu-worker-01", device="gpu-0")
    expected = entry(recording, "pdb", "NoExecute on the device")["trace"]
    for state in expected:
        # The partition's pod is not part of this fleet.
        state["pods"].pop("team-a/mig-0")
        state["allocatedClaims"] = [c for c in state["allocatedClaims"] if "mig" not in c]
    # The recorder saw the pods Running at 0.04 s, before the controller had deleted them.
    expected = expected[1:]
    Timelines(await traced(plane, "force", 12)).assert_like(Timelines(expected))


async def test_going_back_to_none_cancels_a_pending_deletion(plane: Plane) -> None:
    recording = recorded("07-partitions-budgets-cancel.json")
    plane.recorded_fleet(pods=False)
    claim = moved(recorded_claim("delayed-0"), "gpu-0")
    plane.holders([holder(claim, "delayed")], [claim])
    await plane.manager.start()
    plane.rule("cancel", "NoExecute", driver="gpu.example.com", pool="gpu-worker-01", device="gpu-0")
    await asyncio.sleep(2)
    pending = entry(recording, "cancel", "pending eviction")
    assert normal(plane.get(RULES, "cancel")) == normal(pending["response"])
    assert normal(plane.set_effect("cancel", "None")) == normal(entry(recording, "cancel", "effect back")["response"])
    await plane.settle()
    assert normal(plane.get(RULES, "cancel")) == normal(entry(recording, "cancel", "status after")["response"])
    await asyncio.sleep(22)
    assert plane.pod("team-a", "delayed-0") == "Running"


async def test_two_overlapping_rules_count_the_same_pod_each(plane: Plane) -> None:
    recording = recorded("07-partitions-budgets-cancel.json")
    plane.recorded_fleet(pods=False)
    claims = [moved(recorded_claim("delayed-0"), "gpu-0"), moved(recorded_claim("claim-0"), "gpu-1")]
    plane.holders([holder(claim, "one-gpu") for claim in claims], claims)
    await plane.manager.start()
    for name in ("two-a", "two-b"):
        replay_rule(plane, entry(recording, name, "create"))
    await plane.settle()
    for name in ("two-a", "two-b"):
        assert normal(plane.get(RULES, name)) == normal(entry(recording, name, "status")["response"])


async def test_a_driver_taints_its_own_device(plane: Plane) -> None:
    answer = entry(recorded("07-partitions-budgets-cancel.json"), "driver-taint", "the driver taints")
    plane.recorded_fleet(pods=False)
    await plane.manager.start()

    def taint(current: Obj) -> None:
        current["spec"]["devices"][1]["taints"] = [
            {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}
        ]

    assert normal(plane.store.mutate(SLICES, None, "gpu-worker-01-gpu", taint)) == normal(answer["response"])


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
