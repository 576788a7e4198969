"""What a target comes to, and what is refused."""

from __future__ import annotations

import pytest

from taintctl.api.base import MAX_RULES
from taintctl.api.objects import (
    DeviceAttribute,
    DeviceSelector,
    Meta,
    Pool,
    ResourceSlice,
    SliceDevice,
    SliceSpec,
    Snapshot,
)
from taintctl.api.plan import DeviceID, PlannedDevice, Problem
from taintctl.api.pools import published_pools
from taintctl.api.reasons import Reason
from taintctl.api.target import Target
from taintctl.impact.allocations import Allocations
from taintctl.impact.targets import Resolved, resolve
from tests.impact.fleet import DRIVER, claim, pool, result, snapshot

TWO_NODES = snapshot(slices=(pool("n1", "gpu-0", "gpu-1"), pool("n2", "gpu-0", "gpu-2")))


def resolved(cluster: Snapshot, target: Target) -> Resolved:
    found = resolve(cluster, target, Allocations(cluster))
    assert isinstance(found, Resolved), found
    return found


def problem(cluster: Snapshot, target: Target) -> Problem:
    found = resolve(cluster, target, Allocations(cluster))
    assert isinstance(found, Problem), found
    return found


def names(found: Resolved) -> list[str]:
    return [f"{device.id.pool}/{device.id.device}" for device in found.devices]


def rules(found: Resolved) -> list[tuple[str | None, str | None, str | None]]:
    return [(s.driver, s.pool, s.device) for s in found.selectors]


@pytest.mark.parametrize(
    ("target", "devices", "selectors"),
    [
        (Target(driver=DRIVER, pool="n1"), ["n1/gpu-0", "n1/gpu-1"], [("n1", None)]),
        (Target(driver=DRIVER, pool="n1", device="gpu-1"), ["n1/gpu-1"], [("n1", "gpu-1")]),
        (
            Target(driver=DRIVER, whole_driver=True),
            ["n1/gpu-0", "n1/gpu-1", "n2/gpu-0", "n2/gpu-2"],
            [("n1", None), ("n2", None)],
        ),
        (Target(driver=DRIVER, device="gpu-0"), ["n1/gpu-0", "n2/gpu-0"], [("n1", "gpu-0"), ("n2", "gpu-0")]),
        (Target(driver=DRIVER, device="gpu-2"), ["n2/gpu-2"], [("n2", "gpu-2")]),
    ],
)
def test_every_rule_names_driver_and_pool(
    target: Target, devices: list[str], selectors: list[tuple[str, str | None]]
) -> None:
    found = resolved(TWO_NODES, target)
    assert names(found) == devices
    assert rules(found) == [(DRIVER, *selector) for selector in selectors]


def test_a_device_carries_its_uuid_and_its_node() -> None:
    (device,) = resolved(TWO_NODES, Target(driver=DRIVER, pool="n1", device="gpu-1")).devices
    assert device == PlannedDevice(id=DeviceID(DRIVER, "n1", "gpu-1"), uuid="GPU-n1-gpu-1", node="n1", published=True)


def test_a_uuid_may_be_written_with_the_drivers_domain_and_a_node_at_the_device() -> None:
    shared = ResourceSlice(
        metadata=Meta(name="shared"),
        spec=SliceSpec(
            driver=DRIVER,
            pool=Pool(name="shared"),
            devices=(
                SliceDevice(name="a", attributes={f"{DRIVER}/uuid": DeviceAttribute(string="GPU-7")}, node_name="n7"),
                SliceDevice(name="b", attributes={"uuid": DeviceAttribute()}),
                SliceDevice(name="c"),
            ),
        ),
    )
    found = resolved(snapshot(slices=(shared,)), Target(driver=DRIVER, whole_driver=True))
    assert [(d.uuid, d.node) for d in found.devices] == [("GPU-7", "n7"), ("", ""), ("", "")]


def test_two_devices_with_one_uuid_are_both_planned() -> None:
    attributes = {"uuid": DeviceAttribute(string="GPU-7")}
    twins = ResourceSlice(
        metadata=Meta(name="twins"),
        spec=SliceSpec(
            driver=DRIVER,
            pool=Pool(name="n1"),
            devices=(SliceDevice(name="a", attributes=attributes), SliceDevice(name="b", attributes=attributes)),
        ),
    )
    found = resolved(snapshot(slices=(twins,)), Target(driver=DRIVER, whole_driver=True))
    assert [(d.id.device, d.uuid) for d in found.devices] == [("a", "GPU-7"), ("b", "GPU-7")]


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    cluster = snapshot(
        slices=(
            pool("n1", "old", generation=1),
            pool("n1", "gpu-0", generation=2, count=2, part="a"),
            pool("n1", "gpu-1", generation=2, count=2, part="b"),
            pool("n2", "gpu-0"),
        )
    )
    assert names(resolved(cluster, Target(driver=DRIVER, pool="n1"))) == ["n1/gpu-0", "n1/gpu-1"]
    assert published_pools(cluster.slices)[DRIVER, "n1"].generation == 2


def test_an_incomplete_pool_stops_with_its_name_and_counts() -> None:
    cluster = snapshot(slices=(pool("n1", "gpu-0", generation=4, count=3), pool("n2", "gpu-0")))
    found = problem(cluster, Target(driver=DRIVER, whole_driver=True))
    assert found.reason == Reason.POOL_INCOMPLETE
    assert "Pool n1 of driver gpu.example.com has 1 of 3 ResourceSlices of generation 4" in found.message
    assert names(resolved(cluster, Target(driver=DRIVER, pool="n2", device="gpu-0"))) == ["n2/gpu-0"]


def test_an_allocation_whose_slice_is_gone_is_still_hit() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("c", result("n1", "gpu-9")),
            claim("d", result("gone", "gpu-0")),
            claim("e", result("n1", "gpu-0")),
        ),
    )
    found = resolved(cluster, Target(driver=DRIVER, whole_driver=True))
    assert [(d.id.pool, d.id.device, d.published) for d in found.devices] == [
        ("gone", "gpu-0", False),
        ("n1", "gpu-0", True),
        ("n1", "gpu-1", True),
        ("n1", "gpu-9", False),
    ]
    assert found.selectors == (DeviceSelector(driver=DRIVER, pool="gone"), DeviceSelector(driver=DRIVER, pool="n1"))
    assert names(resolved(cluster, Target(driver=DRIVER, pool="gone"))) == ["gone/gpu-0"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            Target(driver="typo.example.com"),
            "No ResourceSlice is of driver typo.example.com; there is gpu.example.com.",
        ),
        (Target(driver=DRIVER, pool="n9"), "Driver gpu.example.com has no pool n9; there are n1, n2."),
        (
            Target(driver=DRIVER, pool="n1", device="gpu-9"),
            "There is no device gpu-9 in pool n1; there are gpu-0, gpu-1.",
        ),
        (
            Target(driver=DRIVER, device="gpu-9"),
            "There is no device gpu-9 in driver gpu.example.com; there are gpu-0, gpu-1, gpu-2.",
        ),
    ],
)
def test_a_target_that_matches_nothing_says_what_there_is(target: Target, message: str) -> None:
    found = problem(TWO_NODES, target)
    assert (found.reason, found.message) == (Reason.NO_DEVICES, message)


def test_an_empty_cluster_and_a_long_list_are_said_shortly() -> None:
    assert problem(snapshot(), Target(driver=DRIVER)).message == (
        f"No ResourceSlice is of driver {DRIVER}; is it running? kubectl get resourceslices shows them all."
    )
    empty = snapshot(slices=(pool("n1"),))
    assert (
        "There is no device in pool n1; there is no device at all"
        in problem(empty, Target(driver=DRIVER, pool="n1")).message
    )
    many = snapshot(slices=tuple(pool(f"n{i}", "gpu-0") for i in range(9)))
    assert "there are n0, n1, n2, n3, n4 and 4 more." in problem(many, Target(driver=DRIVER, pool="typo")).message


def test_every_device_of_a_driver_needs_whole_driver_however_it_is_said() -> None:
    one = snapshot(slices=(pool("n1", "gpu-0"), pool("n1", "nic-0", driver="nic.example.com")))
    for target in (
        Target(driver=DRIVER),
        Target(driver=DRIVER, pool="n1"),
        Target(driver=DRIVER, device="gpu-0"),
        Target(driver=DRIVER, pool="n1", device="gpu-0"),
    ):
        found = problem(one, target)
        assert found.reason == Reason.WHOLE_DRIVER
        assert "every device of driver gpu.example.com (1 device)" in found.message
        assert names(resolved(one, target.model_copy(update={"whole_driver": True}))) == ["n1/gpu-0"]
    assert "(4 devices)" in problem(TWO_NODES, Target(driver=DRIVER)).message


def test_only_a_driver_is_the_whole_driver_even_where_its_slices_are_gone() -> None:
    cluster = snapshot(claims=(claim("c", result("n1", "gpu-0")),))
    assert problem(cluster, Target(driver=DRIVER)).reason == Reason.WHOLE_DRIVER
    assert names(resolved(cluster, Target(driver=DRIVER, pool="n1"))) == ["n1/gpu-0"]


def test_more_rules_than_a_run_may_make_are_refused() -> None:
    def fleet(size: int) -> Snapshot:
        return snapshot(slices=tuple(pool(f"n{i}", "gpu-0") for i in range(size)))

    target = Target(driver=DRIVER, whole_driver=True)
    assert len(resolved(fleet(MAX_RULES), target).selectors) == 256
    found = problem(fleet(MAX_RULES + 1), target)
    assert found.reason == Reason.TOO_MANY_RULES
    assert "needs 257 DeviceTaintRules" in found.message
