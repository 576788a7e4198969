"""A device is idle when it is proven, and not before: whoever holds it, however quiet the control plane is about it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from taintctl.sandbox.fleet import budget
from tests.scenarios.world import MONITOR, NODE, ON_NODE_1, POD_KEY, World

pytestmark = pytest.mark.looptime

NOTEBOOK = "team-b/notebook-0"


async def draining(world: World, **spec: Any) -> None:
    world.policy()
    await world.control()
    await world.start(policyName="policy", **spec)
    await world.until_phase(Phase.DRAINING)


def assert_never_idle(world: World) -> None:
    assert world.condition("DevicesIdle") != "True", world.describe()
    assert "InMaintenance" not in world.seen["run"]


async def test_a_device_held_by_an_extended_resource_pod_is_never_idle_while_that_pod_runs() -> None:
    """A budget forbids its eviction; the control plane's condition says False and Completed all the while."""
    async with World() as world:
        world.sandbox.apply([budget("team-b", "notebook", "notebook", 1)])
        await draining(world, drain={"timeout": "10m"})
        for _ in range(28):
            await world.wait(20)
            assert NOTEBOOK in world.pods()
            assert_never_idle(world)
        rule = world.rules()[0]["status"]["conditions"][0]
        assert (rule["status"], rule["reason"]) == ("False", "Completed")
        eviction = world.run().status.eviction
        assert eviction is not None
        assert "notebook" in " ".join(eviction.blocked_by)
        assert "notebook" in world.run().status.message
        await world.until_phase(Phase.FAILED, seconds=3600)
        assert world.run().status.reason == "DrainTimeout"
        assert_never_idle(world)
        assert NOTEBOOK in world.pods()
        world.assert_no_rule_left()


async def test_the_extended_resource_pod_goes_as_soon_as_its_budget_lets_it() -> None:
    async with World() as world:
        world.sandbox.apply([budget("team-b", "notebook", "notebook", 1)])
        await draining(world)
        await world.wait(120)
        world.store.delete("poddisruptionbudgets.policy", "team-b", "notebook")
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=90)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_a_pod_that_two_budgets_select_is_found_at_planning_time() -> None:
    async with World() as world:
        world.sandbox.apply([budget("team-b", name, "notebook", 0) for name in ("one", "two")])
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED)
        assert "notebook-0" in world.run().status.message
        world.assert_never_no_execute()


async def test_two_budgets_that_come_after_the_gate_end_the_run_as_multiple_budgets() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.EVICTING)
        world.sandbox.apply([budget("team-b", name, "notebook", 0) for name in ("one", "two")])
        await world.until_phase(Phase.FAILED)
        assert world.run().status.reason == "MultipleBudgets"
        assert NOTEBOOK in world.pods()
        world.assert_no_rule_left()


async def test_a_terminating_pod_keeps_its_device_busy_though_the_condition_says_completed() -> None:
    """Recording 09: False and Completed at 10 s, the pod gone at 25 s."""
    async with World() as world:
        pod = "team-a/slow"
        world.store.delete(POD_KEY, "team-a", "train-01", grace_seconds=0)
        world.sandbox.start_pod("team-a", "slow", on=NODE, template="one-gpu", stop_after="25s")
        await world.wait(10)
        await draining(world)
        said_completed = False
        while pod in world.pods_on(NODE):
            said_completed = said_completed or any(
                c["status"] == "False" for r in world.rules() for c in (r["status"].get("conditions") or ())
            )
            assert_never_idle(world)
            await world.wait(1)
        assert said_completed
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_a_node_that_went_silent_proves_nothing() -> None:
    """Its pods are force-deleted and gone from the API; the processes may still run."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", drain={"timeout": "10m"})
        await world.until_phase(Phase.EVICTING)
        world.sandbox.node_silent(NODE)
        await world.until(lambda: set(world.deleted_pods) == ON_NODE_1)
        for name in sorted(ON_NODE_1 | {MONITOR}):
            namespace, pod = name.split("/")
            world.store.delete(POD_KEY, namespace, pod, grace_seconds=0)
        for _ in range(25):
            await world.wait(20)
            assert_never_idle(world)
        assert world.run().status.reason == "NodeNotReady"
        assert NODE in world.run().status.message
        await world.until_phase(Phase.FAILED, seconds=3600)
        world.assert_no_rule_left()


async def test_a_node_that_came_back_before_the_proof_still_proves_nothing() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.EVICTING)
        world.sandbox.node_silent(NODE)
        await world.wait(120)
        assert_never_idle(world)
        world.sandbox.node_back(NODE)
        await world.wait(300)
        assert world.pods_on(NODE) == {MONITOR}
        assert_never_idle(world)


async def test_a_node_that_reboots_in_maintenance_is_released_when_it_is_back_and_not_before() -> None:
    async with World() as world:
        await draining(world)
        await world.until_phase(Phase.IN_MAINTENANCE)
        world.sandbox.node_silent(NODE)
        await world.wait(300)
        await world.patch(workCompleted=True)
        await world.wait(120)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.condition("DevicesIdle") == "Unknown"
        world.sandbox.node_back(NODE)
        await world.until_phase(Phase.SUCCEEDED)


async def test_a_node_that_is_taken_out_of_the_cluster_in_maintenance_does_not_hold_the_run_for_ever() -> None:
    async with World() as world:
        await draining(world)
        await world.until_phase(Phase.IN_MAINTENANCE)
        world.sandbox.node_silent(NODE)
        world.store.delete(POD_KEY, "gpu-monitoring", "dcgm-0", grace_seconds=0)
        world.store.delete("nodes", None, NODE)
        world.sandbox.remove_slice(NODE)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()


async def test_an_ended_run_is_deleted_without_a_controller() -> None:
    async with World() as world:
        await draining(world, work={"mode": "Duration", "duration": "1m"})
        await world.until_phase(Phase.SUCCEEDED)
        await world.wait(5)
        await world.kill()
        await world.delete()
        assert world.store.find("maintenanceruns.taintctl.dev", None, "run") is None


async def test_a_condition_that_stays_true_for_nobody_does_not_hold_the_run_up() -> None:
    """Recording 09: a delayed pod that leaves by itself triggers no update."""
    async with World() as world:
        patient = "team-a/patient"
        world.store.delete(POD_KEY, "team-a", "train-01", grace_seconds=0)
        world.sandbox.start_pod("team-a", "patient", on=NODE, template="patient")
        await world.wait(10)
        await draining(world)
        assert patient in world.pods()
        world.store.delete(POD_KEY, "team-a", "patient")
        left = world.clock.now()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert world.clock.now() - left < timedelta(seconds=120)


async def test_a_pod_with_toleration_seconds_is_waited_for() -> None:
    async with World() as world:
        world.store.delete(POD_KEY, "team-a", "train-01", grace_seconds=0)
        world.sandbox.start_pod("team-a", "patient", on=NODE, template="patient")
        await world.wait(10)
        await draining(world)
        evicting = next(at for at, _, effect in world.effects if effect == "NoExecute")
        await world.until(lambda: "team-a/patient" in world.deleted_pods)
        assert timedelta(seconds=19) <= world.clock.now() - evicting <= timedelta(seconds=22)
        assert_never_idle(world)
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_waiting_for_false_never_succeeds_on_the_state_from_before_the_patch() -> None:
    """The eviction controller hangs from the moment of the patch: what it said under NoSchedule is False already."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until(lambda: any(effect == "NoExecute" for _, _, effect in world.effects))
        await world.kill()
        assert world.deleted_pods == [] or set(world.deleted_pods) <= ON_NODE_1
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_a_tolerating_pod_without_admin_access_keeps_its_device_busy() -> None:
    async with World() as world:
        world.sandbox.apply(
            [
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaimTemplate",
                    "metadata": {"namespace": "team-a", "name": "stubborn"},
                    "spec": {
                        "spec": {
                            "devices": {
                                "requests": [
                                    {
                                        "name": "gpu",
                                        "exactly": {
                                            "deviceClassName": "gpu.example.com",
                                            "tolerations": [{"operator": "Exists", "effect": "NoExecute"}],
                                        },
                                    }
                                ]
                            }
                        }
                    },
                }
            ]
        )
        world.sandbox.start_pod("team-a", "stubborn", on=NODE, template="stubborn")
        await world.wait(10)
        await draining(world, drain={"timeout": "10m"})
        await world.wait(500)
        assert_never_idle(world)
        assert "stubborn" in world.run().status.message
        await world.until_phase(Phase.FAILED)
        assert "team-a/stubborn" in world.pods()


async def test_a_pod_on_the_same_hardware_through_a_device_plugin_makes_idle_unknown() -> None:
    async with World() as world:
        world.store.delete("deviceclasses.resource.k8s.io", None, "gpu.example.com")
        plugin = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": "team-b", "name": "classic"},
            "spec": {
                "nodeName": NODE,
                "containers": [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "1"}}}],
            },
        }
        world.store.create(POD_KEY, plugin)
        await world.wait(10)
        await draining(world, drain={"timeout": "10m"})
        await world.wait(400)
        assert_never_idle(world)
        assert world.run().status.reason == "DevicePluginPod"
        assert "classic" in world.run().status.message


async def test_an_allocation_that_is_written_late_is_seen_until_release() -> None:
    """PreBind may write an allocation that was decided before the taint: in maintenance it still stops the release."""
    async with World() as world:
        await draining(world)
        await world.until_phase(Phase.IN_MAINTENANCE)
        world.sandbox.apply(
            [
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": {"namespace": "team-a", "name": "late"},
                    "spec": {
                        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}
                    },
                }
            ]
        )
        held: dict[str, Any] = {"resource": "pods", "name": "ghost", "uid": "00000000-0000-0000-0000-000000000001"}

        def allocate(claim: dict[str, Any]) -> None:
            result = {"request": "gpu", "driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"}
            claim["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [held]}

        world.sandbox.manager.pause("claims")
        world.store.mutate("resourceclaims.resource.k8s.io", "team-a", "late", allocate, subresource="status")
        await world.patch(workCompleted=True)
        await world.wait(300)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.condition("DevicesIdle") == "False"
        assert world.rules() != []
        world.store.delete("resourceclaims.resource.k8s.io", "team-a", "late")
        claim = world.store.find("resourceclaims.resource.k8s.io", "team-a", "late")
        if claim is not None:
            world.sandbox.manager.resume("claims")
        await world.until_phase(Phase.SUCCEEDED)


async def test_ten_seconds_of_our_own_clock_lie_between_the_taint_and_idle() -> None:
    async with World() as world:
        for name in sorted(ON_NODE_1):
            namespace, pod = name.split("/")
            world.store.delete(POD_KEY, namespace, pod, grace_seconds=0)
        await world.wait(30)
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        evicting: datetime = next(at for at, _, effect in world.effects if effect == "NoExecute")
        assert world.clock.now() - evicting >= timedelta(seconds=10)
