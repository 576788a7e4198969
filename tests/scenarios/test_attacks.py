"""Hostile hands and bad days: no taint of ours is forgotten, and nothing goes that was not allowed and approved."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time, parse_time
from taintctl.api.reasons import Phase
from tests.scenarios.world import APPROVALS, DRIVER, NODE, ON_NODE_1, POD_KEY, RULES, RUNS, World, manifests

pytestmark = pytest.mark.looptime

OTHER_NODE = "gpu-worker-02"


async def draining(world: World, **spec: Any) -> None:
    world.policy()
    await world.control()
    await world.start(policyName="policy", **spec)
    await world.until_phase(Phase.DRAINING)


def hide(rule: dict[str, Any]) -> None:
    rule["metadata"]["labels"] = {}


@pytest.mark.parametrize("phase", [Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.DRAINING, Phase.IN_MAINTENANCE])
async def test_a_rule_whose_marks_were_taken_off_by_hand_is_not_forgotten(phase: Phase) -> None:
    """Its name says whose it is; a taint that nobody owns would stay for ever."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", notice="60s")
        await world.until_phase(phase)
        (name,) = {r["metadata"]["name"] for r in world.rules() if not r["metadata"]["name"].endswith("-dry")}
        world.store.mutate(RULES, None, name, hide)
        await world.patch(cancelled=True, released=True)
        await world.until(lambda: (phase := world.phase()) is not None and phase.ended)
        world.assert_no_rule_left()


@pytest.mark.parametrize("propagation", ["Orphan", "Background", "Foreground"])
async def test_a_run_deleted_while_draining_takes_its_taint_along_however_it_is_deleted(propagation: str) -> None:
    async with World() as world:
        await draining(world)
        world.store.delete(RUNS, None, "run", propagation=propagation)
        await world.until(lambda: world.store.find(RUNS, None, "run") is None)
        world.assert_no_rule_left()


@pytest.mark.parametrize("propagation", ["Orphan", "Background", "Foreground"])
async def test_no_garbage_collector_frees_devices_in_maintenance_however_the_run_is_deleted(propagation: str) -> None:
    """GitOps tools delete in the foreground, which takes an owner's dependents off first."""
    async with World() as world:
        await draining(world)
        await world.until_phase(Phase.IN_MAINTENANCE)
        (before,) = world.rules()
        world.store.delete(RUNS, None, "run", propagation=propagation)
        await world.wait(300)
        assert [r["metadata"]["uid"] for r in world.rules()] == [before["metadata"]["uid"]]
        assert not world.rules()[0]["metadata"].get("deletionTimestamp")
        assert world.run().status.reason == "WaitingForRelease"
        await world.patch(workCompleted=True)
        await world.until(lambda: world.store.find(RUNS, None, "run") is None)
        world.assert_no_rule_left()


async def test_a_rule_of_somebody_else_that_only_claims_our_run_as_owner_is_left_alone() -> None:
    async with World() as world:
        await draining(world)
        uid = world.raw()["metadata"]["uid"]
        owner = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "name": "run", "uid": uid}
        foreign = {
            "kind": "DeviceTaintRule",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": {"name": "by-hand", "ownerReferences": [owner]},
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": "elsewhere"},
                "taint": {"key": "a.example/b", "effect": "NoSchedule"},
            },
        }
        world.store.create(RULES, foreign)
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        assert [r["metadata"]["name"] for r in world.rules()] == ["by-hand"]
        assert set(world.deleted_pods) == ON_NODE_1


async def test_an_approval_of_a_run_of_the_same_name_that_was_deleted_does_not_count() -> None:
    """The same plan, seconds later: what was said of the first run is not said of the second."""
    async with World() as world:
        world.without_budgets()
        boss = await world.user("boss@example.com", "taintctl-approver")
        await world.control()
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(boss, "boss@example.com", "Approve")
        await world.delete()
        await world.until(lambda: world.store.find(RUNS, None, "run") is None)
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        asked = world.run().status.approval
        assert asked is not None
        assert asked.asked_at is not None
        (old,) = world.store.list(APPROVALS)
        assert parse_time(old["metadata"]["creationTimestamp"]) + timedelta(seconds=5) >= asked.asked_at
        await world.wait(60)
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()


async def test_an_approved_plan_that_is_made_larger_in_the_status_by_hand_evicts_nobody() -> None:
    """Somebody with rights on /status puts his pod's neighbours into what was asked about."""
    async with World() as world:
        world.without_budgets()
        boss = await world.user("boss@example.com", "taintctl-approver")
        await world.control()
        await world.start(startAt=format_time(world.clock.now() + timedelta(minutes=5)))
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(boss, "boss@example.com", "Approve")
        await world.until(lambda: world.condition("Approved") == "True")
        await world.kill()
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.wait(10)
        newcomer = world.store.get(POD_KEY, "team-b", "newcomer")["metadata"]["uid"]

        def forge(run: dict[str, Any]) -> None:
            pods = run["status"]["approval"]["asked"]["pods"]
            entry = hashlib.sha256(json.dumps([newcomer], separators=(",", ":")).encode()).digest()[:8]
            pods["Evicted"] = base64.b64encode(base64.b64decode(pods["Evicted"]) + entry).decode()

        world.store.mutate(RUNS, None, "run", forge, subresource="status")
        await world.control()
        await world.wait(900)
        world.assert_never_no_execute()
        assert world.phase() is not Phase.EVICTING
        assert world.deleted_pods == []


async def test_no_execute_is_not_set_on_reads_that_grew_old_while_the_api_server_held_us_up() -> None:
    """429 with Retry-After: the client waits and tries again, and the gate's reads are worth ten seconds."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.NOTICE)
        await world.until(lambda: {r["spec"]["taint"]["effect"] for r in world.rules()} == {"NoSchedule"})
        fault = world.sandbox.faults.fail(429, verbs=["patch"], resources=[RULES], retry_after=9, times=2)
        await world.until(lambda: any(effect == "NoExecute" for _, _, effect in world.effects))
        assert fault.met == 2
        passed = world.run().status.eviction
        assert passed is not None
        assert passed.started_at is not None
        patched = next(at for at, _, effect in world.effects if effect == "NoExecute")
        assert patched - passed.started_at <= timedelta(seconds=10)


def fabric() -> list[dict[str, Any]]:
    """A pool whose devices every node can use, as with an appliance in the network, and a pod on the second node."""
    device = {"name": "port-0", "attributes": {"fabric": {"bool": True}}}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "fabric"},
            "spec": {
                "driver": DRIVER,
                "pool": {"name": "fabric", "generation": 1, "resourceSliceCount": 1},
                "allNodes": True,
                "devices": [device],
            },
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "fabric"},
            "spec": {"selectors": [{"cel": {"expression": f"has(device.attributes['{DRIVER}'].fabric)"}}]},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"namespace": "team-a", "name": "fabric"},
            "spec": {"devices": {"requests": [{"name": "port", "exactly": {"deviceClassName": "fabric"}}]}},
        },
    ]


async def test_the_node_of_a_pod_counts_although_the_device_is_local_to_none() -> None:
    """The node goes silent, the pod is force-deleted, and its process may use the device all the same."""
    async with World() as world:
        world.sandbox.apply(fabric())
        world.sandbox.start_pod("team-a", "uplink", on=OTHER_NODE, claim="fabric")
        await world.wait(10)
        assert "team-a/uplink" in world.pods()
        world.policy()
        await world.control()
        await world.start(policyName="policy", target={"driver": DRIVER, "pool": "fabric"}, drain={"timeout": "10m"})
        await world.until_phase(Phase.EVICTING)
        world.sandbox.node_silent(OTHER_NODE)
        await world.until(lambda: "team-a/uplink" in world.deleted_pods)
        world.store.delete(POD_KEY, "team-a", "uplink", grace_seconds=0)
        await world.wait(400)
        assert world.phase() is Phase.DRAINING
        assert world.condition("DevicesIdle") == "Unknown"
        assert world.run().status.reason == "NodeNotReady"
        assert OTHER_NODE in world.run().status.message
        await world.until_phase(Phase.FAILED, seconds=900)
        assert "InMaintenance" not in world.seen["run"]


async def test_a_node_beyond_the_first_hundred_devices_is_minded_too() -> None:
    """The status lists a hundred devices; a node that was deleted with its slices must be known all the same."""
    async with World(nodes=14, gpus_per_node=8) as world:
        world.policy()
        await world.control()
        target = {"driver": DRIVER, "wholeDriver": True}
        world.policy("all", limits={}, approval={"required": "Never"}, budgets="Ignore")
        await world.start(policyName="all", target=target, drain={"timeout": "10m"})
        await world.until_phase(Phase.DRAINING)
        last = "gpu-worker-14"
        plan = world.run().status.plan
        assert plan is not None
        assert last not in {d.node for d in plan.devices}
        world.store.delete("nodes", None, last)
        world.sandbox.remove_slice(last)
        await world.wait(400)
        assert world.phase() is Phase.DRAINING
        assert last in world.run().status.message
        assert world.condition("DevicesIdle") == "Unknown"


async def test_an_approval_that_was_forged_while_the_admission_policy_was_away_does_not_count_when_it_is_back() -> None:
    async with World() as world:
        world.without_budgets()
        (policy,) = manifests("deploy/admission.yaml")[:1]
        name = policy["metadata"]["name"]
        world.store.delete("validatingadmissionpolicies.admissionregistration.k8s.io", None, name)
        mallory = await world.user("mallory@example.com", "taintctl-approver")
        await world.control()
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(mallory, "boss@example.com", "Approve")
        await world.wait(30)
        assert world.run().status.reason == "ApproversUnverified"
        world.sandbox.apply(manifests("deploy/admission.yaml"))
        await world.wait(300)
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()
        boss = await world.user("boss@example.com", "taintctl-approver")
        (forged,) = world.store.list(APPROVALS)
        world.store.delete(APPROVALS, None, forged["metadata"]["name"])
        await world.decide(boss, "boss@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
