"""What an approval is for, and which plans it still covers."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taintctl.api.plan import Plan, PlannedDevice, PlannedPod, Violation
from taintctl.api.reasons import PodEffect
from taintctl.api.run import CompactPlan
from taintctl.policy import compact, covers, digest, other_hardware, uncovered
from tests.policy.plans import device, plan, pod, policy

POLICY = policy()
BUDGET = Violation("budgets", "team-a/web allows 0", "1", "a sentence")
EVICTED, LATER, NOT_REACHED, TOLERATES = (
    PodEffect.EVICTED,
    PodEffect.EVICTED_LATER,
    PodEffect.NOT_REACHED_BY_TAINT,
    PodEffect.TOLERATES,
)


def test_a_digest_is_64_hex_digits_and_the_same_for_the_same_plan_in_any_order() -> None:
    forward = plan(pod("a"), pod("b"), devices=(device("gpu-0"), device("gpu-1")))
    backward = plan(pod("b"), pod("a"), devices=(device("gpu-1"), device("gpu-0")))
    assert len(digest(forward, POLICY)) == 64
    int(digest(forward, POLICY), 16)
    assert digest(forward, POLICY) == digest(backward, POLICY)


def test_whatever_an_approval_is_for_changes_the_digest() -> None:
    base = plan(pod("a"), devices=(device("gpu-0"),))
    different = [
        digest(base, POLICY),
        digest(plan(pod("b")), POLICY),
        digest(plan(pod("a"), pod("b")), POLICY),
        digest(plan(pod("a", LATER)), POLICY),
        digest(plan(pod("a"), devices=(device("gpu-1"),)), POLICY),
        digest(plan(pod("a"), devices=(device("gpu-0", uuid="GPU-other"),)), POLICY),
        digest(plan(pod("a"), devices=(replace(device("gpu-0"), pci_bus_id="0000:17:00.0"),)), POLICY),
        digest(base, policy(generation=2)),
        digest(base, policy(uid="policy-2")),
        digest(base, POLICY, (BUDGET,)),
    ]
    assert len(set(different)) == len(different)


def test_terminating_pods_do_not_matter() -> None:
    without, with_one = plan(pod("a")), plan(pod("a"), pod("b", terminating=True))
    assert digest(without, POLICY) == digest(with_one, POLICY)
    assert compact(without, POLICY) == compact(with_one, POLICY)
    assert covers(compact(without, POLICY), with_one, POLICY)


def test_the_same_plan_is_covered_and_a_smaller_one() -> None:
    asked = compact(plan(pod("a"), pod("b", TOLERATES), devices=(device("gpu-0"), device("gpu-1"))), POLICY, (BUDGET,))
    assert covers(
        asked, plan(pod("a"), pod("b", TOLERATES), devices=(device("gpu-0"), device("gpu-1"))), POLICY, (BUDGET,)
    )
    assert covers(asked, plan(pod("a"), devices=(device("gpu-1"),)), POLICY)
    assert covers(asked, plan(devices=()), POLICY)


@pytest.mark.parametrize(
    "larger",
    [
        plan(pod("a"), pod("new")),
        plan(pod("a"), pod("new", TOLERATES)),
        plan(pod("a"), devices=(device("gpu-0"), device("gpu-1"))),
        plan(pod("a"), devices=(device("gpu-0", uuid="GPU-swapped"),)),
        plan(pod("a"), devices=(device("gpu-0", uuid=""),)),
    ],
)
def test_a_new_pod_device_or_uuid_is_not_covered(larger: Plan) -> None:
    assert not covers(compact(plan(pod("a")), POLICY), larger, POLICY)


@pytest.mark.parametrize(("was", "now"), list(itertools.product(PodEffect, PodEffect)))
def test_an_effect_may_only_become_better(was: PodEffect, now: PodEffect) -> None:
    badness = {TOLERATES: 0, NOT_REACHED: 1, LATER: 2, EVICTED: 3}
    assert covers(compact(plan(pod("a", was)), POLICY), plan(pod("a", now)), POLICY) is (badness[now] <= badness[was])


def test_another_policy_or_another_generation_voids() -> None:
    asked = compact(plan(pod("a")), POLICY)
    assert not covers(asked, plan(pod("a")), policy(generation=2))
    assert not covers(asked, plan(pod("a")), policy(uid="policy-2"))


def test_a_new_violation_voids_and_an_old_one_by_another_number_does_not() -> None:
    asked = compact(plan(pod("a")), POLICY, (BUDGET,))
    less = Violation("budgets", "team-a/web allows 0", "0", "another sentence")
    assert covers(asked, plan(pod("a")), POLICY, (less,))
    assert not covers(asked, plan(pod("a")), POLICY, (Violation("budgets", "team-a/db allows 0", "1", "x"),))
    assert not covers(asked, plan(pod("a")), POLICY, (BUDGET, Violation("maxPods", "1", "2", "x")))


@pytest.mark.parametrize(
    "broken",
    [
        {"devices": "not base64"},
        {"devices": "AAAA"},
        {"pods": {"Evicted": "é"}},
        {"pods": {"Vaporised": "AAAAAAAAAAA="}},
    ],
)
def test_what_cannot_be_read_back_covers_nothing(broken: dict[str, object]) -> None:
    asked = compact(plan(pod("a")), POLICY)
    assert not covers(asked.model_copy(update=broken), plan(devices=()), POLICY)


def test_it_survives_the_status_and_stays_small_with_ten_thousand_pods() -> None:
    pods = tuple(pod(f"p{i}", list(PodEffect)[i % 4]) for i in range(10_000))
    large = plan(*pods, devices=tuple(device(f"gpu-{i}") for i in range(1000)))
    asked = compact(large, POLICY)
    stored = json.dumps(asked.dump())
    assert len(stored) < 150_000
    assert covers(CompactPlan.model_validate(json.loads(stored)), large, POLICY)


def test_another_run_is_another_question() -> None:
    asked = compact(plan(pod("a")), POLICY, run_uid="run-1")
    assert covers(asked, plan(pod("a")), POLICY, run_uid="run-1")
    assert not covers(asked, plan(pod("a")), POLICY, run_uid="run-2")
    assert digest(plan(pod("a")), POLICY, run_uid="run-1") != digest(plan(pod("a")), POLICY, run_uid="run-2")


@pytest.mark.parametrize("field", ["devices", "pods", "violations"])
def test_a_status_that_was_made_to_hold_more_than_its_digest_covers_nothing(field: str) -> None:
    """Who may write the status must not be able to widen what somebody else approved."""
    small = compact(plan(pod("a")), POLICY)
    more = plan(pod("a"), pod("b"), devices=(device("gpu-0"), device("gpu-1")))
    large = compact(more, POLICY, (BUDGET,))
    forged = small.model_copy(update={field: getattr(large, field)})
    assert not covers(forged, plan(pod("a")), POLICY)
    assert uncovered(forged, plan(pod("a"))) == {pod("a").uid}


def test_pods_that_are_not_covered_are_found_each_by_itself() -> None:
    def on(name: str, gpu: str, effect: PodEffect = EVICTED) -> PlannedPod:
        return replace(pod(name, effect), devices=(device(gpu).id,))

    asked = compact(plan(on("same", "gpu-0"), on("worse", "gpu-0", TOLERATES), on("moved", "gpu-0")), POLICY)
    now = plan(
        on("same", "gpu-0"),
        on("worse", "gpu-0"),
        on("moved", "gpu-1"),
        on("new", "gpu-0"),
        replace(on("going", "gpu-0"), terminating=True),
        devices=(device("gpu-0"), device("gpu-1")),
    )
    assert uncovered(asked, now) == {"uid-worse", "uid-moved", "uid-new"}
    # Another generation of the policy makes no pod late.
    assert uncovered(compact(plan(on("same", "gpu-0")), policy(generation=2)), plan(on("same", "gpu-0"))) == frozenset()


def test_among_ten_thousand_pods_every_late_one_is_found_and_no_other() -> None:
    """By reading what was approved once: the event loop has a lease to renew meanwhile."""
    pods = tuple(pod(f"p{i}") for i in range(10_000))
    asked = compact(plan(*pods[::2]), POLICY)
    assert uncovered(asked, plan(*pods)) == {p.uid for p in pods[1::2]}


names = st.sampled_from([f"p{i}" for i in range(5)])
some_pods = st.dictionaries(names, st.sampled_from(list(PodEffect)), max_size=5).map(
    lambda chosen: tuple(pod(name, effect) for name, effect in sorted(chosen.items()))
)
some_devices = st.lists(st.sampled_from(["g0", "g1", "g2"]), unique=True).map(lambda ds: tuple(device(d) for d in ds))


@settings(max_examples=200, deadline=None)
@given(some_pods, some_devices, some_pods, some_devices)
def test_covered_is_exactly_the_same_or_smaller(
    asked_pods: tuple[PlannedPod, ...],
    asked_devices: tuple[PlannedDevice, ...],
    pods: tuple[PlannedPod, ...],
    devices: tuple[PlannedDevice, ...],
) -> None:
    order = [TOLERATES, NOT_REACHED, LATER, EVICTED]
    was = {p.uid: order.index(p.effect) for p in asked_pods}
    smaller = set(devices) <= set(asked_devices) and all(
        p.uid in was and order.index(p.effect) <= was[p.uid] for p in pods
    )
    asked = compact(plan(*asked_pods, devices=asked_devices), POLICY)
    assert covers(asked, plan(*pods, devices=devices), POLICY) is smaller


def test_a_name_that_stands_for_other_hardware_is_told_from_a_new_name() -> None:
    approved = compact(plan(devices=(device("gpu-0"), device("gpu-1"))), POLICY)
    other = device("gpu-0", uuid="GPU-other")
    moved = replace(device("gpu-1"), pci_bus_id="0000:17:00.0")
    assert other_hardware(approved, (device("gpu-0"), device("gpu-1"))) == ()
    assert other_hardware(approved, (device("gpu-9"), other, moved)) == (other, moved)
    assert other_hardware(approved.model_copy(update={"devices": "no base64"}), (device("gpu-0"),)) == (
        device("gpu-0"),
    )
