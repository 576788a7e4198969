"""Partitionable devices (KEP-4815): who gets what, while the counters last.

Expected allocations are worked out by hand from the counters; the rules are those of
k8s.io/dynamic-resource-allocation/structured.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, SLICES, condition
from tests.sandbox.controlplane.plane import Obj, Plane

pytestmark = pytest.mark.looptime

MIG = fleet.PARTITION_CLASS
WHOLE = fleet.DRIVER
PARTS = ["gpu-0-mig-2g20gb-14-0", "gpu-0-mig-2g20gb-14-2", "gpu-0-mig-2g20gb-14-4"]


def partitioned(plane: Plane, *, gpus: int = 1, partitions: int = 3) -> None:
    """Node n1 with its GPUs, whole and in partitions, and the two classes."""
    plane.store.create(CLASSES, fleet.device_class(of_type="gpu"))
    plane.store.create(CLASSES, fleet.device_class(MIG, extended_resource=None, of_type="mig"))
    plane.store.create(NAMESPACES, fleet.namespace("team"))
    fleet.add_node(plane.store, "n1", gpus, partitions=partitions)


def holder(plane: Plane, name: str, device_class: str, **exactly: Any) -> None:
    """A pod with a claim of the same name."""
    plane.store.create(CLAIMS, fleet.claim("team", name, deviceClassName=device_class, **exactly))
    plane.store.create(PODS, fleet.pod("team", name, claim=name, grace_seconds=1))


async def holders(plane: Plane, device_class: str, *names: str, **exactly: Any) -> None:
    for name in names:
        holder(plane, name, device_class, **exactly)
        await asyncio.sleep(2)


def got(plane: Plane, name: str) -> list[str]:
    return [where.partition("/")[2] for where in plane.devices("team", name)]


async def leaves(plane: Plane, name: str) -> None:
    """The pod is deleted and gone, and waiting pods have had their turn."""
    plane.store.delete(PODS, "team", name)
    await asyncio.sleep(25)
    assert got(plane, name) == []


async def test_a_partition_waits_for_the_whole_gpu_and_the_reverse(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    await holders(plane, WHOLE, "whole")
    await holders(plane, MIG, "part")
    assert (got(plane, "whole"), got(plane, "part")) == (["gpu-0"], [])
    await leaves(plane, "whole")
    assert got(plane, "part") == PARTS[:1]
    await holders(plane, WHOLE, "next")
    assert got(plane, "next") == []
    await leaves(plane, "part")
    assert got(plane, "next") == ["gpu-0"]


async def test_partitions_are_given_until_the_gpu_is_full(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    await holders(plane, MIG, "a", "b", "c", "d")
    assert [got(plane, name) for name in "abcd"] == [[PARTS[0]], [PARTS[1]], [PARTS[2]], []]
    assert plane.pod("team", "d") == "Pending"


async def test_one_claim_for_the_whole_and_a_part_needs_two_gpus(plane: Plane) -> None:
    partitioned(plane, gpus=2)
    requests = [
        {"name": name, "exactly": {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": 1}}
        for name, device_class in (("part", MIG), ("whole", WHOLE))
    ]
    claim = {"metadata": {"name": "both", "namespace": "team"}, "spec": {"devices": {"requests": requests}}}
    plane.store.create(CLAIMS, claim)
    plane.store.create(PODS, fleet.pod("team", "both", claim="both"))
    await plane.manager.start()
    await asyncio.sleep(2)
    # The first partition is of gpu-0, and so the whole one has to be the other.
    assert got(plane, "both") == [PARTS[0], "gpu-1"]


async def test_the_search_goes_back_where_counters_do_not_suffice(plane: Plane) -> None:
    partitioned(plane)
    # One device of 50Gi and two of 40Gi share 80Gi: two fit only without the first.
    counters = {"memory": {"value": "80Gi"}}
    pool = {"name": "odd", "generation": 1, "resourceSliceCount": 2}
    base = {"driver": "odd.example.com", "nodeName": "n1", "pool": pool}
    shared = {**base, "sharedCounters": [{"name": "s", "counters": counters}]}
    devices = [
        {"name": name, "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": value}}}]}
        for name, value in (("big", "50Gi"), ("one", "40Gi"), ("two", "40Gi"))
    ]
    plane.store.create(SLICES, {"metadata": {"name": "odd-counters"}, "spec": shared})
    plane.store.create(SLICES, {"metadata": {"name": "odd"}, "spec": {**base, "devices": devices}})
    plane.store.create(CLASSES, fleet.device_class("odd", driver="odd.example.com", extended_resource=None))
    await plane.manager.start()
    await holders(plane, "odd", "pair", count=2)
    assert got(plane, "pair") == ["one", "two"]
    await holders(plane, "odd", "late")
    assert got(plane, "late") == []


async def test_all_partitions_of_a_gpu_or_none(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    await holders(plane, MIG, "all", allocationMode="All")
    assert got(plane, "all") == PARTS
    await leaves(plane, "all")
    await holders(plane, WHOLE, "whole")
    await holders(plane, MIG, "again", allocationMode="All")
    assert (got(plane, "whole"), got(plane, "again")) == (["gpu-0"], [])


async def test_an_admin_claim_needs_the_counters_a_second_time(plane: Plane) -> None:
    # kubernetes#140729, open for 1.36 and 1.37: an admin is let beside a holder of a plain device, not of this.
    partitioned(plane, gpus=2)
    await plane.manager.start()
    await holders(plane, WHOLE, "admin", adminAccess=True)
    await holders(plane, WHOLE, "one", "two")
    # What an admin holds takes nothing from others, since it does not count as allocated.
    assert (got(plane, "admin"), got(plane, "one"), got(plane, "two")) == (["gpu-0"], ["gpu-0"], ["gpu-1"])
    await holders(plane, WHOLE, "late-admin", adminAccess=True)
    assert got(plane, "late-admin") == []


async def test_two_decided_at_once_never_share_counters(plane: Plane) -> None:
    partitioned(plane)
    plane.manager.scheduler.prebind_delay = 5.0
    await plane.manager.start()
    holder(plane, "whole", WHOLE)
    holder(plane, "part", MIG)
    await asyncio.sleep(12)
    assert sorted([*got(plane, "whole"), *got(plane, "part")]) in ([PARTS[0]], ["gpu-0"])


async def test_a_restarted_scheduler_knows_what_counters_are_left(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    await holders(plane, MIG, "part")
    await plane.manager.stop()
    await plane.manager.start()
    await holders(plane, WHOLE, "whole")
    assert (got(plane, "part"), got(plane, "whole")) == (PARTS[:1], [])


async def test_an_overdrawn_counter_keeps_every_partition_of_the_pool_back(plane: Plane) -> None:
    partitioned(plane, gpus=2)
    await plane.manager.start()
    await holders(plane, MIG, "part")

    def shrink(current: Obj) -> None:
        current["spec"]["sharedCounters"][0]["counters"]["memory"]["value"] = "10Gi"

    plane.store.mutate(SLICES, None, "n1-counters-0", shrink)
    # gpu-0 has 10Gi, of which 20Gi are used. gpu-1 is free, and the allocator looks at every counter of the pool.
    await holders(plane, MIG, "other")
    assert got(plane, "other") == []


def without_counters(plane: Plane) -> None:
    plane.store.delete(SLICES, None, "n1-counters-0")


def other_set(plane: Plane) -> None:
    def rename(current: Obj) -> None:
        current["spec"]["sharedCounters"][0]["name"] = "other"

    plane.store.mutate(SLICES, None, "n1-counters-0", rename)


def other_counter(plane: Plane) -> None:
    def drop(current: Obj) -> None:
        del current["spec"]["sharedCounters"][0]["counters"]["memory-slice-7"]

    plane.store.mutate(SLICES, None, "n1-counters-0", drop)


def set_twice(plane: Plane) -> None:
    twice = plane.get(SLICES, "n1-counters-0")["spec"]
    plane.store.create(SLICES, {"metadata": {"name": "n1-twice"}, "spec": twice})
    _three(plane)


def device_twice(plane: Plane) -> None:
    twice = plane.get(SLICES, "n1-gpu-0")["spec"]
    plane.store.create(SLICES, {"metadata": {"name": "n1-twice"}, "spec": twice})
    _three(plane)


def _three(plane: Plane) -> None:
    for resource_slice in plane.store.list(SLICES):
        name = resource_slice["metadata"]["name"]
        plane.store.mutate(SLICES, None, name, lambda current: current["spec"]["pool"].update(resourceSliceCount=3))


@pytest.mark.parametrize("spoil", [without_counters, other_set, other_counter, set_twice, device_twice])
async def test_nothing_is_given_away_from_a_pool_that_does_not_fit_together(plane: Plane, spoil: Any) -> None:
    partitioned(plane)
    whole = [resource_slice["spec"] for resource_slice in plane.store.list(SLICES)]
    spoil(plane)
    await plane.manager.start()
    await holders(plane, MIG, "part")
    await holders(plane, WHOLE, "whole")
    assert (got(plane, "part"), got(plane, "whole")) == ([], [])
    # The driver publishes it anew, and it is used again.
    for index, spec in enumerate(whole):
        newer = {**spec, "pool": {**spec["pool"], "generation": 2}}
        plane.store.create(SLICES, {"metadata": {"name": f"n1-new-{index}"}, "spec": newer})
    await asyncio.sleep(25)
    assert sorted([*got(plane, "part"), *got(plane, "whole")]) in ([PARTS[0]], ["gpu-0"])


async def test_nothing_is_given_away_once_the_driver_withdraws_the_counters(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    await holders(plane, MIG, "before")
    without_counters(plane)
    await holders(plane, MIG, "after")
    assert (got(plane, "before"), got(plane, "after")) == (PARTS[:1], [])
    told = condition(plane.get(PODS, "after", "team"), "PodScheduled")
    assert told is not None
    assert told["message"] == "0/1 nodes are available: 1 cannot allocate all claims."


async def test_a_taint_on_the_gpu_does_not_keep_a_partition_back_nor_the_reverse(plane: Plane) -> None:
    partitioned(plane)
    await plane.manager.start()
    plane.rule("r", "NoSchedule", driver=WHOLE, pool="n1", device="gpu-0")
    await holders(plane, WHOLE, "whole")
    await holders(plane, MIG, "part")
    assert (got(plane, "whole"), got(plane, "part")) == ([], PARTS[:1])
    plane.rule("s", "NoSchedule", driver=WHOLE, pool="n1", device=PARTS[1])
    await holders(plane, MIG, "next")
    assert got(plane, "next") == PARTS[2:]


@pytest.mark.parametrize(
    ("scope", "node", "selector"),
    [
        ({"nodeName": "n2"}, "n2", {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
                    ]
                }
            },
            "n2",
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
        ),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}},
            "n2",
            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        ),
        ({"allNodes": True}, None, None),
    ],
    ids=["name", "fields", "labels", "all"],
)
async def test_each_device_can_say_which_nodes_reach_it(
    plane: Plane, scope: Obj, node: str | None, selector: Obj | None
) -> None:
    plane.nodes(2, gpus=1)
    plane.store.mutate(NODES, None, "n2", lambda found: found["metadata"]["labels"].update(zone="b"))
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "far", "nodeName": "n3"}, {"name": "nic", **scope}]
    spec = {"driver": "net.example.com", "pool": pool, "perDeviceNodeSelection": True, "devices": devices}
    plane.store.create(SLICES, {"metadata": {"name": "net"}, "spec": spec})
    plane.store.create(CLASSES, fleet.device_class("nic", driver="net.example.com", extended_resource=None))
    await plane.manager.start()
    await holders(plane, "nic", "p")
    assert got(plane, "p") == ["nic"]
    assert node is None or plane.get(PODS, "p", "team")["spec"]["nodeName"] == node
    allocation = plane.get(CLAIMS, "p", "team")["status"]["allocation"]
    assert allocation.get("nodeSelector") == (selector and {"nodeSelectorTerms": [selector]})


async def test_a_request_is_not_asked_about_devices_that_its_class_leaves_out(plane: Plane) -> None:
    partitioned(plane)
    uuid = plane.get(SLICES, "n1-gpu-0")["spec"]["devices"][0]["attributes"]["uuid"]["string"]
    # On the whole GPU this would fail: it has no parentUUID.
    of_parent = {"cel": {"expression": f"device.attributes['{fleet.DRIVER}'].parentUUID == '{uuid}'"}}
    await plane.manager.start()
    await holders(plane, MIG, "part", selectors=[of_parent])
    assert got(plane, "part") == PARTS[:1]
