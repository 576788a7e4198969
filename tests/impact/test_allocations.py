"""Claims, the devices they hold and the pods behind them."""

from __future__ import annotations

from taintctl.api.objects import ConsumerReference, DeviceSelector, Meta, ResourceClaim
from taintctl.api.plan import DeviceID
from taintctl.impact.allocations import Allocations, holds_as_extended, is_pod, selects
from tests.impact.fleet import DRIVER, claim, pod, recorded_snapshot, result, snapshot


def test_a_selector_matches_by_every_field_it_has() -> None:
    device = DeviceID(DRIVER, "n1", "gpu-0")
    assert selects(DeviceSelector(), device)
    assert selects(DeviceSelector(driver=DRIVER), device)
    assert selects(DeviceSelector(driver=DRIVER, pool="n1", device="gpu-0"), device)
    assert not selects(DeviceSelector(driver="other"), device)
    assert not selects(DeviceSelector(driver=DRIVER, pool="n2"), device)
    assert not selects(DeviceSelector(driver=DRIVER, pool="n1", device="gpu-1"), device)


def test_the_recorded_cluster_has_six_allocations_over_two_pools() -> None:
    allocations = Allocations(recorded_snapshot())
    held = {str(hold.device): hold for hold in allocations.holds(DeviceSelector(driver=DRIVER))}
    assert sorted(held) == [
        f"{DRIVER}/gpu-worker-01/gpu-0",
        f"{DRIVER}/gpu-worker-01/gpu-1",
        f"{DRIVER}/gpu-worker-02/gpu-0",
        f"{DRIVER}/gpu-worker-02/gpu-1",
        f"{DRIVER}/gpu-worker-02/gpu-2",
        f"{DRIVER}/gpu-worker-02/gpu-3",
    ]
    shared = held[f"{DRIVER}/gpu-worker-02/gpu-2"]
    assert [p.metadata.name for c in shared.consumers if (p := allocations.pod(c))] == ["shared-0", "shared-1", "two-0"]
    assert [hold.claim for hold in held.values() if hold.extended] == ["ext-0-extended-resources-f8tt6"]


def test_a_claim_that_is_not_allocated_holds_nothing() -> None:
    waiting = ResourceClaim(metadata=Meta(name="waiting", namespace="team-a"))
    no_devices = claim("none")
    assert list(Allocations(snapshot(claims=(waiting, no_devices))).holds(DeviceSelector())) == []


def test_a_reserved_pod_is_found_by_uid_and_is_gone_when_another_has_its_name() -> None:
    allocations = Allocations(snapshot(pods=(pod("a"),)))
    assert allocations.pod(ConsumerReference(resource="pods", name="a", uid="uid-a")) is not None
    assert allocations.pod(ConsumerReference(resource="pods", name="a", uid="uid-before")) is None


def test_a_pod_group_is_no_pod() -> None:
    group = ConsumerReference(resource="podgroups", api_group="scheduling.k8s.io", name="a", uid="uid-a")
    assert not is_pod(group)
    assert not is_pod(ConsumerReference(resource="pods", api_group="example.com", name="a", uid="uid-a"))
    assert Allocations(snapshot(pods=(pod("a"),))).pod(group) is None


def test_an_extended_resource_is_told_by_the_claim_or_by_the_pod() -> None:
    marked, bare = claim("x", result("n1", "gpu-0"), extended=True), claim("x", result("n1", "gpu-0"))
    (by_claim,) = Allocations(snapshot(claims=(marked,))).holds(DeviceSelector())
    (unmarked,) = Allocations(snapshot(claims=(bare,))).holds(DeviceSelector())
    assert holds_as_extended(by_claim, pod("a"))
    assert holds_as_extended(unmarked, pod("a", backed_by="x"))
    assert not holds_as_extended(unmarked, pod("a", backed_by="y"))
    assert not holds_as_extended(unmarked, pod("a"))
