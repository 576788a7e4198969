"""Recording 07, replayed: partitions, a budget, an adminAccess claim, a cancelled eviction and overlapping rules."""

from __future__ import annotations

import asyncio

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RULES,
    SLICES,
    TEMPLATES,
)
from tests.sandbox.controlplane.plane import Obj, Plane, entry, holder, normal, recorded
from tests.sandbox.controlplane.traces import Timelines, replay_rule, traced

pytestmark = pytest.mark.looptime

RECORDING = "07-partitions-budgets-cancel.json"


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


def partitioned_node(plane: Plane) -> None:
    """The node whose GPU recording 07 partitions, with its slices as they were sent, and the class of partitions."""
    plane.put(NODES, fleet.node("mig-worker"))
    for sent in [e for e in recorded(RECORDING) if e["case"] == "partitionable"]:
        assert normal(plane.store.create(SLICES, sent["request"]["body"])) == normal(sent["response"])
    mig = fleet.device_class("mig", driver="mig.example.com", extended_resource=None, of_type="mig")
    plane.store.create(CLASSES, mig)


def whole_fleet(plane: Plane) -> list[Obj]:
    """All that recording 07 was made with: the nodes, the three claims and who holds them."""
    recording = recorded(RECORDING)
    plane.recorded_fleet(pods=False)
    partitioned_node(plane)
    claims = entry(recording, "objects", "claims")["response"]["items"]
    web = {"claim-0": {"app": "web"}}
    pods = [holder(claim, "template", labels=web.get(claim["status"]["reservedFor"][0]["name"])) for claim in claims]
    plane.holders(pods, claims)
    return recording


async def test_a_partition_is_allocated_as_recorded(plane: Plane) -> None:
    listed = entry(recorded(RECORDING), "objects", "claims")["response"]["items"]
    [known] = [claim for claim in listed if claim["metadata"]["name"].startswith("mig-0")]
    partitioned_node(plane)
    plane.store.create(NAMESPACES, fleet.namespace("team-a"))
    plane.store.create(TEMPLATES, fleet.template("team-a", "mig", deviceClassName="mig"))
    await plane.manager.start()
    pod = fleet.pod("team-a", "mig-0", template="mig")
    pod["spec"]["resourceClaims"][0]["name"] = "g0"
    pod["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "g0"
    plane.store.create(PODS, pod)
    await asyncio.sleep(1)
    [made] = plane.store.list(CLAIMS)
    expected = normal(known)
    expected["metadata"]["name"] = made["metadata"]["name"]
    assert normal({k: v for k, v in made.items() if k not in ("kind", "apiVersion")}) == expected


@pytest.mark.parametrize("case", ["dry-parent", "dry-partition", "dry-admin"])
async def test_dry_runs_beside_partitions(plane: Plane, case: str) -> None:
    recording = whole_fleet(plane)
    await plane.manager.start()
    replay_rule(plane, entry(recording, case, "create"))
    await plane.settle()
    assert normal(plane.get(RULES, case)) == normal(entry(recording, case, "status")["response"])


async def test_no_execute_asks_no_budget_and_leaves_the_partitions_pod(plane: Plane) -> None:
    recording = whole_fleet(plane)
    await plane.manager.start()
    plane.store.create(BUDGETS, fleet.budget("team-a", "web", "web", 1))
    await plane.settle()
    before = entry(recording, "pdb", "the budget before")["response"]
    assert normal(plane.get(BUDGETS, "web", "team-a")) == normal(before)
    plane.rule("force", "NoExecute", driver="gpu.example.com", pool="gpu-worker-01", device="gpu-0")
    expected = entry(recording, "pdb", "NoExecute on the device")["trace"]
    # The recorder saw the pods Running at 0.04 s, before the controller had deleted them.
    Timelines(await traced(plane, "force", 12)).assert_like(Timelines(expected[1:]))


async def test_a_no_execute_rule_on_the_whole_gpu_leaves_its_partitions_pod(plane: Plane) -> None:
    # dry-parent says that nobody is counted; then nobody is deleted either (dra-driver-nvidia-gpu#1316).
    whole_fleet(plane)
    await plane.manager.start()
    plane.rule("parent", "NoExecute", driver="mig.example.com", pool="mig-worker", device="gpu-0")
    await asyncio.sleep(30)
    assert plane.pod("team-a", "mig-0") == "Running"
    assert (plane.condition("parent")["status"], plane.condition("parent")["reason"]) == ("False", "NotStarted")
    plane.rule("partition", "NoExecute", driver="mig.example.com", pool="mig-worker", device="gpu-0-mig-3g40gb-0")
    await asyncio.sleep(15)
    assert plane.pods() == {"admin/admin-0": "Running", "team-a/claim-0": "Running"}
    assert plane.condition("partition")["message"] == "1 pod evicted since starting the controller."


async def test_going_back_to_none_cancels_a_pending_deletion(plane: Plane) -> None:
    recording = recorded(RECORDING)
    plane.recorded_fleet(pods=False)
    later = entry(recording, "cancel", "the pod 22 s later")["response"]
    [noted] = later["status"]["resourceClaimStatuses"]
    claim = moved(recorded_claim("delayed-0"), "gpu-0")
    claim["metadata"]["name"] = noted["resourceClaimName"]
    for named in (claim["status"]["reservedFor"][0], claim["metadata"]["ownerReferences"][0]):
        named["name"] = "delayed-9"
    plane.holders([holder(claim, "delayed")], [claim])
    await plane.manager.start()
    plane.rule("cancel", "NoExecute", driver="gpu.example.com", pool="gpu-worker-01", device="gpu-0")
    await asyncio.sleep(2)
    pending = entry(recording, "cancel", "pending eviction")
    assert normal(plane.get(RULES, "cancel")) == normal(pending["response"])
    assert normal(plane.set_effect("cancel", "None")) == normal(entry(recording, "cancel", "effect back")["response"])
    await plane.settle()
    assert normal(plane.get(RULES, "cancel")) == normal(entry(recording, "cancel", "status after")["response"])
    deleted = plane.store.delete(RULES, None, "cancel")
    assert normal(deleted) == normal(entry(recording, "cancel", "delete")["response"])
    await asyncio.sleep(22)
    pod = plane.get(PODS, "delayed-9", "team-a")
    assert normal(pod["metadata"]) == normal(later["metadata"])
    assert normal(pod["spec"]) == normal(later["spec"])
    assert pod["status"]["phase"] == later["status"]["phase"] == "Running"
    assert pod["status"]["resourceClaimStatuses"] == later["status"]["resourceClaimStatuses"]


async def test_two_overlapping_rules_count_the_same_pod_each(plane: Plane) -> None:
    recording = recorded(RECORDING)
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
    answer = entry(recorded(RECORDING), "driver-taint", "the driver taints")
    plane.recorded_fleet(pods=False)
    await plane.manager.start()

    def taint(current: Obj) -> None:
        current["spec"]["devices"][1]["taints"] = [
            {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}
        ]

    assert normal(plane.store.mutate(SLICES, None, "gpu-worker-01-gpu", taint)) == normal(answer["response"])
