"""Partitionable devices: the slices of recording 07, where a rule on the physical GPU reached no pod of a partition."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from taintctl.api.objects import ResourceSlice, Snapshot
from taintctl.api.plan import DeviceID, Plan, Verdict
from taintctl.api.pools import published_pools
from taintctl.api.target import Target
from taintctl.impact import build_plan, idleness
from taintctl.impact.allocations import Allocations
from taintctl.impact.partitions import overlapping, same_hardware
from taintctl.impact.targets import Resolved, resolve
from tests.impact.fleet import claim, entries, node, pod, pool, result, snapshot

MIG = "mig.example.com"
GPU, FIRST, SECOND = "gpu-0", "gpu-0-mig-3g40gb-0", "gpu-0-mig-3g40gb-4"
SLICES = tuple(
    msgspec.convert(entry["response"], ResourceSlice, strict=False)
    for entry in entries("07-partitions-budgets-cancel")
    if entry["case"] == "partitionable" and (entry["response"] or {}).get("kind") == "ResourceSlice"
)


def changed(**change: Any) -> tuple[ResourceSlice, ...]:
    """The recorded slices with other attributes or counters: `attributes` and `counters` of every device."""
    raw = list(map(msgspec.to_builtins, SLICES))
    for item in raw:
        for device in item["spec"].get("devices") or ():
            for name in change.get("without", ()):
                (device.get("attributes") or {}).pop(name, None)
                device.pop(name, None)
        if "total" in change and item["spec"].get("sharedCounters"):
            item["spec"]["sharedCounters"][0]["counters"]["memory"]["value"] = change["total"]
    return tuple(msgspec.convert(item, ResourceSlice) for item in raw)


def cluster(*held: str, slices: tuple[ResourceSlice, ...] = SLICES, other: bool = True) -> Snapshot:
    """The recorded node, a pod for each of the devices `held`, and another pool, so that one GPU is not the driver."""
    return snapshot(
        slices=(*slices, *((pool("other", "gpu-9", driver=MIG),) if other else ())),
        claims=tuple(claim(f"c-{name}", result("mig-worker", name, driver=MIG), users=(f"p-{name}",)) for name in held),
        pods=tuple(pod(f"p-{name}", node="mig-worker") for name in held),
        nodes=(node("mig-worker"), node("other")),
    )


def names(snapshot_: Snapshot, **target: Any) -> list[str]:
    found = resolve(
        snapshot_, Target.model_validate({"driver": MIG, "pool": "mig-worker", **target}), Allocations(snapshot_)
    )
    assert isinstance(found, Resolved), found
    return [d.id.device for d in found.devices]


@pytest.mark.parametrize("device", [GPU, FIRST, SECOND])
@pytest.mark.parametrize("without", [(), ("parentUUID",), ("consumes_counters", "consumesCounters")])
def test_a_gpu_takes_its_partitions_along_and_the_reverse(device: str, without: tuple[str, ...]) -> None:
    slices = changed(without=without)
    assert names(cluster(slices=slices), device=device) == [GPU, FIRST, SECOND]
    assert names(cluster(slices=slices), device=device, partitions="Exact") == [device]


def test_what_goes_along_is_marked_and_gets_its_own_rule() -> None:
    found = resolve(cluster(), Target(driver=MIG, pool="mig-worker", device=GPU), Allocations(cluster()))
    assert isinstance(found, Resolved)
    assert [(d.id.device, d.along) for d in found.devices] == [(GPU, False), (FIRST, True), (SECOND, True)]
    assert [s.device for s in found.selectors] == [GPU, FIRST, SECOND]


def test_the_pods_of_the_partitions_are_in_the_plan() -> None:
    plan = build_plan(cluster(FIRST, SECOND), Target(driver=MIG, pool="mig-worker", device=GPU), key="k", value="v")
    assert isinstance(plan, Plan)
    assert [p.name for p in plan.pods] == [f"p-{FIRST}", f"p-{SECOND}"]
    # Recording 07: the rule on the GPU itself counts none of them; those on the partitions do.
    assert [(r.device, r.published, r.allocated, r.pods) for r in plan.rules] == [
        (GPU, 1, 0, 0),
        (FIRST, 1, 1, 1),
        (SECOND, 1, 1, 1),
    ]
    exact = Target.model_validate({"driver": MIG, "pool": "mig-worker", "device": GPU, "partitions": "Exact"})
    alone = build_plan(cluster(FIRST), exact, key="k", value="v")
    assert isinstance(alone, Plan)
    assert alone.pods == ()


def test_devices_without_anything_in_common_are_alone() -> None:
    plain = published_pools((pool("n1", "gpu-0", "gpu-1"),))[pool("n1").spec.driver, "n1"]
    first = DeviceID(plain.driver, "n1", "gpu-0")
    assert list(same_hardware(plain, [first])) == [first]
    assert overlapping(plain, frozenset({first})) == {}
    assert same_hardware(plain, [DeviceID(plain.driver, "n1", "gone")]) == {}


@pytest.mark.parametrize(
    ("target", "without", "total", "others"),
    [
        (GPU, (), "80Gi", {FIRST, SECOND}),
        (FIRST, (), "80Gi", {GPU}),
        # 80 of 80 and 40 of 80 do not go together; 40 and 40 do (the counters alone).
        (GPU, ("parentUUID",), "80Gi", {FIRST, SECOND}),
        (SECOND, ("parentUUID",), "80Gi", {GPU}),
        # Of half the memory, one partition already takes all.
        (FIRST, (), "40Gi", {GPU, SECOND}),
        # What cannot be read may be in use.
        (FIRST, (), "lots", {GPU, SECOND}),
        # By UUID alone.
        (GPU, ("consumes_counters", "consumesCounters"), "80Gi", {FIRST, SECOND}),
        (FIRST, ("consumes_counters", "consumesCounters"), "80Gi", {GPU}),
    ],
)
def test_what_is_in_use_on_the_same_hardware(
    target: str, without: tuple[str, ...], total: str, others: set[str]
) -> None:
    published = published_pools(changed(without=without, total=total))[MIG, "mig-worker"]
    found = overlapping(published, frozenset({DeviceID(MIG, "mig-worker", target)}))
    assert {id_.device for id_ in found} == others


def idle_of(device: str, *held: str) -> Verdict:
    found = idleness(
        cluster(*held),
        [(MIG, "mig-worker", device)],
        key="k",
        value="v",
        nodes=frozenset(),
        evicting_since=None,
        proven_at=None,
    )
    assert [d.id.device for d in found.devices] == [device]
    return found.verdict


def test_a_gpu_is_not_idle_while_a_partition_of_it_is_in_use_whatever_the_target_says() -> None:
    assert idle_of(GPU, FIRST) is Verdict.FALSE
    assert idle_of(FIRST, GPU) is Verdict.FALSE
    assert idle_of(GPU) is Verdict.TRUE
    # Two partitions are used side by side.
    assert idle_of(FIRST, SECOND) is Verdict.TRUE


def test_the_only_gpu_of_a_driver_is_the_whole_driver_with_its_partitions() -> None:
    alone = cluster(other=False)
    found = resolve(alone, Target(driver=MIG, pool="mig-worker", device=FIRST), Allocations(alone))
    assert not isinstance(found, Resolved)
    assert "every device of driver mig.example.com (3 devices)" in found.message
