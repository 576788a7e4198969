"""Targets of every kind, from dry run to release; partitions and hardware that changes under its name."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import DRIVER, NODE, ON_NODE_1, WHOLE_PATH, World

pytestmark = pytest.mark.looptime

LENIENT: dict[str, Any] = {"limits": {}, "approval": {"required": "Never"}, "budgets": "Ignore"}
SLICES = "resourceslices.resource.k8s.io"


def uuid_of(world: World, node: str, device: str) -> str:
    """The UUID that is published for a device."""
    for item in world.store.list(SLICES):
        for published in item["spec"].get("devices", ()) if item["spec"]["pool"]["name"] == node else ():
            if published["name"] == device:
                return str(published["attributes"]["uuid"]["string"])
    raise AssertionError(f"{node} publishes no {device}")


def becomes(world: World, node: str, device: str, uuid: str) -> None:
    """The driver publishes other hardware under that name."""
    for item in world.store.list(SLICES):
        names = [d["name"] for d in item["spec"].get("devices", ())]
        if item["spec"]["pool"]["name"] == node and device in names:
            found, index = item["metadata"]["name"], names.index(device)

    def swap(published: dict[str, Any]) -> None:
        published["spec"]["devices"][index]["attributes"]["uuid"].update(string=uuid)

    world.store.mutate(SLICES, None, found, swap)


def selectors(world: World) -> list[tuple[str, str | None]]:
    chosen = [rule["spec"]["deviceSelector"] for rule in world.rules()]
    return sorted((selector["pool"], selector.get("device")) for selector in chosen)


@pytest.mark.parametrize(
    "target",
    [
        {"nodeSelector": {"kubernetes.io/hostname": NODE}},
        {"driver": DRIVER, "nodeSelector": {"kubernetes.io/hostname": NODE, "example.com/accelerator": "H100"}},
        {"deviceClassName": DRIVER, "nodeSelector": {"kubernetes.io/hostname": NODE}},
        {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}], "driver": DRIVER, "pool": NODE},
    ],
    ids=["labels", "driver and labels", "class", "expression"],
)
async def test_a_pool_that_is_meant_whole_goes_from_dry_run_to_release_under_one_rule(target: dict[str, Any]) -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        await world.start(policyName="policy", target=target)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert selectors(world) == [(NODE, None)]
        assert set(world.deleted_pods) == ON_NODE_1
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()
        assert world.seen["run"] == WHOLE_PATH


async def test_uuids_taint_those_devices_and_no_other() -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        uuids = [uuid_of(world, NODE, "gpu-1"), uuid_of(world, "gpu-worker-02", "gpu-0")]
        await world.start(policyName="policy", target={"uuids": uuids})
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert selectors(world) == [(NODE, "gpu-1"), ("gpu-worker-02", "gpu-0")]


async def test_an_expression_that_does_not_compile_ends_the_run_and_one_that_fails_on_a_device_blocks_it() -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        await world.start("broken", policyName="policy", target={"selectors": [{"cel": {"expression": "device."}}]})
        await world.until_phase(Phase.FAILED, name="broken")
        broken = world.run("broken").status
        assert broken.reason == "InvalidSpec"
        assert "spec.target.selectors[0].cel.expression: does not compile" in broken.message
        missing = f"device.attributes['{DRIVER}'].serial == '7'"
        await world.start("fails", policyName="policy", target={"selectors": [{"cel": {"expression": missing}}]})
        await world.until_phase(Phase.BLOCKED, name="fails")
        assert world.run("fails").status.reason == "SelectorFailed"
        assert f"device {DRIVER}/{NODE}/gpu-0" in world.run("fails").status.message
        assert world.rules() == []


async def test_runs_for_different_nodes_go_on_side_by_side_and_one_for_the_same_device_waits() -> None:
    async with World(nodes=3) as world:
        world.policy(**LENIENT)
        await world.control()
        for number in (1, 2):
            label = {"kubernetes.io/hostname": f"gpu-worker-0{number}"}
            await world.start(f"node-{number}", policyName="policy", target={"nodeSelector": label})
        await world.until_phase(Phase.IN_MAINTENANCE, name="node-1")
        await world.until_phase(Phase.IN_MAINTENANCE, name="node-2")
        same = {"uuids": [uuid_of(world, "gpu-worker-02", "gpu-3")]}
        await world.start("third", policyName="policy", target=same)
        await world.wait(30)
        assert world.run("third").status.reason == "DeviceInOtherRun"
        assert "node-2 has a device" in world.run("third").status.message


async def test_a_gpu_takes_the_pods_of_its_partitions_along() -> None:
    async with World(partitions=2) as world:
        world.policy(**LENIENT)
        await world.control()
        users = {"team-b/batch-0", "team-b/batch-1"}
        assert users <= world.pods_on(NODE)
        await world.start(policyName="policy", target={"driver": DRIVER, "pool": NODE, "device": "gpu-3"})
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == users
        assert [device for _, device in selectors(world)] == ["gpu-3", "gpu-3-mig-3g40gb-9-0", "gpu-3-mig-3g40gb-9-4"]


async def test_a_gpu_by_itself_is_not_idle_while_its_partitions_are_in_use() -> None:
    async with World(partitions=2) as world:
        world.policy(**LENIENT)
        await world.control()
        target = {"driver": DRIVER, "pool": NODE, "device": "gpu-3", "partitions": "Exact"}
        await world.start(policyName="policy", target=target, drain={"timeout": "2m"})
        await world.until_phase(Phase.DRAINING)
        await world.wait(100)
        assert world.phase() is Phase.DRAINING
        assert "team-b/batch-0" in world.run().status.message
        await world.until_phase(Phase.FAILED)
        assert world.run().status.reason == "DrainTimeout"
        assert world.deleted_pods == []
        world.assert_no_rule_left()


@pytest.mark.parametrize("when", [Phase.AWAITING_APPROVAL, Phase.NOTICE])
async def test_a_device_that_becomes_other_hardware_before_eviction_is_planned_anew(when: Phase) -> None:
    async with World() as world:
        world.policy(approval={"required": "Always"}, budgets="Ignore", limits={})
        ann = await world.user("ann@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy", notice="1m")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        if when is Phase.NOTICE:
            await world.decide(ann, "ann@example.com", "Approve")
            await world.until_phase(Phase.NOTICE)
        becomes(world, NODE, "gpu-0", "GPU-new")
        await world.wait(180)
        # Nobody has approved the new one.
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()
        await world.decide(ann, "ann@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_hardware_that_changed_in_maintenance_is_released_by_somebody_who_says_so() -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        becomes(world, NODE, "gpu-0", "GPU-new")
        await world.patch(workCompleted=True)
        await world.wait(60)
        assert world.run().status.reason == "HardwareChanged"
        assert f"{DRIVER}/{NODE}/gpu-0 (now GPU-new)" in world.run().status.message
        assert world.run().status.next_step == "taintctl release run"
        await world.patch(released=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()
