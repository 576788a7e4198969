"""Targets by label, class, expression and UUID: which devices they mean, and the rules for exactly those."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.objects import (
    CELDeviceSelector,
    ClassSelector,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    Meta,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceSlice,
    SliceDevice,
    Snapshot,
)
from taintctl.api.plan import Problem
from taintctl.api.pools import published_pools
from taintctl.api.reasons import Reason
from taintctl.api.target import Target
from taintctl.impact import pools_meant, target_problems
from taintctl.impact.allocations import Allocations
from taintctl.impact.targets import Resolved, may_mean, resolve
from tests.impact.fleet import DRIVER, claim, pool, result, snapshot

NIC = "nic.example.com"


def gpu(name: str, *, product: str | None = "H100", memory: str = "80Gi", **attributes: Any) -> SliceDevice:
    own = {"uuid": DeviceAttribute(string=f"GPU-{name}")}
    if product is not None:
        own["productName"] = DeviceAttribute(string=product)
    return SliceDevice(
        name=name,
        attributes={**own, **{key: DeviceAttribute(**value) for key, value in attributes.items()}},
        capacity={"memory": DeviceCapacity(value=memory)},
    )


def gpus(node: str, *devices: SliceDevice) -> ResourceSlice:
    made = pool(node)
    from msgspec.structs import replace

    return replace(made, spec=replace(made.spec, devices=devices))


def labelled(name: str, **labels: str) -> Node:
    return Node(metadata=Meta(name=name, labels=labels))


def gpu_class(*expressions: str | None) -> DeviceClass:
    return DeviceClass(
        metadata=Meta(name="gpu"),
        spec=DeviceClassSpec(
            selectors=tuple(
                ClassSelector(cel=CELDeviceSelector(expression=e) if e is not None else None) for e in expressions
            )
        ),
    )


def meant(cluster: Snapshot, **target: Any) -> Resolved | Problem:
    return resolve(cluster, Target.model_validate(target), Allocations(cluster))


def names(found: Resolved | Problem) -> list[str]:
    assert isinstance(found, Resolved), found
    return [f"{d.id.pool}/{d.id.device}" for d in found.devices]


def rules(found: Resolved | Problem) -> list[str]:
    assert isinstance(found, Resolved), found
    return [f"{s.pool}/{s.device or '*'}" for s in found.selectors]


def refused(found: Resolved | Problem) -> Problem:
    assert isinstance(found, Problem), found
    return found


def expression(*texts: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": text}} for text in texts]


MIXED = snapshot(
    slices=(
        gpus("n1", gpu("a0"), gpu("a1", product="L4", memory="24Gi")),
        gpus("n2", gpu("b0"), gpu("b1")),
        pool("n1", "nic-0", driver=NIC),
        pool("n3", "nic-1", driver=NIC),
    ),
    nodes=(labelled("n1", zone="a", rack="1"), labelled("n2", zone="b"), labelled("n3", zone="a")),
    classes=(gpu_class(f"device.driver == '{DRIVER}'", f"device.attributes['{DRIVER}'].productName == 'H100'"),),
)
H100 = f"device.attributes['{DRIVER}'].productName == 'H100'"
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


def test_every_criterion_must_match() -> None:
    assert names(meant(MIXED, driver=DRIVER, selectors=expression(H100))) == ["n1/a0", "n2/b0", "n2/b1"]
    assert names(meant(MIXED, driver=DRIVER, selectors=expression(H100, LARGE), pool="n1")) == ["n1/a0"]
    assert names(meant(MIXED, deviceClassName="gpu", nodeSelector={"zone": "b"})) == ["n2/b0", "n2/b1"]
    assert names(meant(MIXED, driver=DRIVER, nodeSelector={"zone": "a"})) == ["n1/a0", "n1/a1"]
    assert names(meant(MIXED, uuids=["GPU-a1", "GPU-b1"])) == ["n1/a1", "n2/b1"]
    assert names(meant(MIXED, uuids=["GPU-a1"], nodeSelector={"zone": "a", "rack": "1"})) == ["n1/a1"]


def test_without_a_driver_it_may_mean_devices_of_several() -> None:
    assert names(meant(MIXED, nodeSelector={"rack": "1"})) == ["n1/a0", "n1/a1", "n1/nic-0"]
    assert rules(meant(MIXED, nodeSelector={"rack": "1"})) == ["n1/*", "n1/*"]


def test_a_rule_is_for_a_pool_where_all_of_it_is_meant_and_else_for_a_device() -> None:
    assert rules(meant(MIXED, driver=DRIVER, selectors=expression(H100))) == ["n1/a0", "n2/*"]
    # Devices that were named stay those devices, should the pool grow.
    assert rules(meant(MIXED, uuids=["GPU-b0", "GPU-b1"])) == ["n2/b0", "n2/b1"]


def test_a_rule_for_a_pool_never_selects_what_only_an_allocation_names_and_the_target_does_not() -> None:
    held = claim("old", result("n2", "b9"), users=("p",))
    cluster = snapshot(slices=MIXED.slices, nodes=MIXED.nodes, classes=MIXED.classes, claims=(held,))
    assert rules(meant(cluster, driver=DRIVER, selectors=expression(H100))) == ["n1/a0", "n2/b0", "n2/b1"]
    # By labels the pool is meant, and with it what is still in use of it.
    local = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n2",)),)
    )
    from msgspec.structs import replace

    allocation = replace(held.status.allocation, node_selector=NodeSelector(node_selector_terms=(local,)))  # type: ignore[type-var]
    held = replace(held, status=replace(held.status, allocation=allocation))
    cluster = snapshot(slices=MIXED.slices, nodes=MIXED.nodes, claims=(held,))
    found = meant(cluster, driver=DRIVER, nodeSelector={"zone": "b"})
    assert (names(found), rules(found)) == (["n2/b0", "n2/b1", "n2/b9"], ["n2/*"])
    assert names(meant(cluster, driver=DRIVER, nodeSelector={"zone": "a"})) == ["n1/a0", "n1/a1"]


def test_every_device_of_any_driver_needs_whole_driver() -> None:
    problem = refused(meant(MIXED, nodeSelector={"zone": "a"}))
    assert problem.reason == Reason.WHOLE_DRIVER
    assert "every device of driver nic.example.com (2 devices)" in problem.message
    assert names(meant(MIXED, nodeSelector={"zone": "a"}, wholeDriver=True)) == [
        "n1/a0",
        "n1/a1",
        "n1/nic-0",
        "n3/nic-1",
    ]


def test_an_expression_that_fails_on_a_device_is_an_error_that_names_it() -> None:
    cluster = snapshot(slices=(gpus("n1", gpu("a0"), gpu("a1", product=None)), gpus("n2", gpu("b0"))))
    problem = refused(meant(cluster, driver=DRIVER, selectors=expression(H100)))
    assert problem.reason == Reason.SELECTOR_FAILED
    assert problem.message.startswith(f"target.selectors[0] cannot be decided for device {DRIVER}/n1/a1: ")
    # The pools that the other criteria leave out are not asked about.
    assert refused(meant(cluster, driver=DRIVER, pool="n3", selectors=expression(H100))).reason == Reason.NO_DEVICES
    assert names(meant(cluster, driver=DRIVER, pool="n2", selectors=expression(H100))) == ["n2/b0"]


@pytest.mark.parametrize(
    ("given", "reason", "said"),
    [
        ("no", Reason.DEVICE_CLASS_NOT_FOUND, "There is no DeviceClass no;"),
        ("gpu", Reason.SELECTOR_FAILED, "An expression of DeviceClass gpu cannot be used: "),
    ],
)
def test_a_class_that_is_missing_or_does_not_compile(given: str, reason: Reason, said: str) -> None:
    cluster = snapshot(slices=MIXED.slices, classes=(gpu_class("device.driver =="),))
    problem = refused(meant(cluster, deviceClassName=given))
    assert problem.reason == reason
    assert problem.message.startswith(said)


def test_a_class_with_a_selector_of_a_later_kind_is_refused() -> None:
    cluster = snapshot(slices=MIXED.slices, classes=(gpu_class(None),))
    assert "not CEL" in refused(meant(cluster, deviceClassName="gpu")).message


def test_a_class_without_selectors_means_every_device() -> None:
    cluster = snapshot(slices=MIXED.slices, classes=(gpu_class(),))
    assert names(meant(cluster, deviceClassName="gpu", driver=DRIVER, pool="n2")) == ["n2/b0", "n2/b1"]


def test_an_expression_that_does_not_compile_is_named_by_its_field() -> None:
    target = Target.model_validate({"driver": DRIVER, "selectors": expression("true", "device.driver ==")})
    (problem,) = target_problems(target)
    assert problem.field == "spec.target.selectors[1].cel.expression"
    assert refused(resolve(MIXED, target, Allocations(MIXED))).reason == Reason.SELECTOR_FAILED


def test_a_uuid_that_nothing_has_is_refused_although_others_are_there() -> None:
    problem = refused(meant(MIXED, uuids=["GPU-a0", "GPU-typo"]))
    assert problem.reason == Reason.NO_DEVICES
    assert "GPU-typo" in problem.message
    assert "GPU-a0" not in problem.message


def test_what_matches_nothing_says_which_criteria_do_not() -> None:
    problem = refused(meant(MIXED, driver=DRIVER, nodeSelector={"zone": "z"}, selectors=expression(LARGE)))
    assert problem.message.startswith(
        f"None of the 4 devices of driver {DRIVER} matches the target's nodeSelector, selectors;"
    )
    assert "None of the 6 devices matches the target's uuids" in refused(meant(MIXED, uuids=["GPU-x"])).message


def test_pools_that_are_not_published_whole_are_waited_for() -> None:
    half = pool("n4", "c0", count=2)
    cluster = snapshot(slices=(*MIXED.slices, half), nodes=MIXED.nodes, classes=MIXED.classes)
    problem = refused(meant(cluster, deviceClassName="gpu"))
    assert problem.reason == Reason.POOL_INCOMPLETE
    assert "Pool n4" in problem.message


def test_the_pools_to_read_are_those_with_a_match_or_a_doubt() -> None:
    slices = (
        *MIXED.slices,
        pool("n4", "c0", count=2),
        gpus("n5", gpu("d0", product=None)),
        gpus("n6", gpu("e0", product="L4")),
    )
    pools = published_pools(slices)

    def picked(**target: Any) -> list[str]:
        return sorted(name for _, name in pools_meant(Target.model_validate(target), pools, MIXED.classes))

    assert picked(driver=DRIVER, selectors=expression(H100)) == ["n1", "n2", "n4", "n5"]
    assert picked(driver=DRIVER, device="b1") == ["n2", "n4"]
    assert picked(uuids=["GPU-e0"]) == ["n4", "n6"]
    assert picked(driver=DRIVER, pool="n6") == ["n6"]
    assert picked(deviceClassName="gone") == []


def test_two_targets_meet_where_one_means_a_device_of_the_others_plan() -> None:
    found = meant(MIXED, driver=DRIVER, pool="n2")
    assert isinstance(found, Resolved)

    def meets(**target: Any) -> bool:
        return may_mean(MIXED, Target.model_validate(target), found.devices)

    assert meets(driver=DRIVER, selectors=expression(H100))
    assert meets(nodeSelector={"zone": "b"})
    assert meets(uuids=["GPU-b1"])
    assert not meets(nodeSelector={"zone": "a"})
    assert not meets(driver=DRIVER, selectors=expression(H100), pool="n1")
    assert not meets(deviceClassName="gone")
    # What cannot be decided may be.
    assert meets(driver=DRIVER, selectors=expression(f"device.attributes['{DRIVER}'].missing == 'x'"))


def test_a_device_that_only_an_allocation_names_meets_by_name() -> None:
    cluster = snapshot(slices=MIXED.slices, claims=(claim("old", result("n9", "z0")),))
    found = meant(cluster, driver=DRIVER, pool="n9")
    assert isinstance(found, Resolved)
    assert may_mean(cluster, Target(driver=DRIVER), found.devices)
    assert not may_mean(cluster, Target(driver=DRIVER, pool="n1"), found.devices)
    assert not may_mean(cluster, Target.model_validate({"uuids": ["GPU-a0"]}), found.devices)
