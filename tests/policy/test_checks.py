"""Each check by itself, and their order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taintctl.api.plan import Budget, Plan, PlannedDevice, Violation
from taintctl.api.policy import BUILT_IN_POLICY, EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.run import DrainMode
from taintctl.policy import CHECKS, Evaluation, evaluate
from tests.policy.plans import device, plan, pod, policy

LATER, NOT_REACHED, TOLERATES = PodEffect.EVICTED_LATER, PodEffect.NOT_REACHED_BY_TAINT, PodEffect.TOLERATES
HALF_AN_HOUR = timedelta(minutes=30)


def judge(
    given: Plan,
    by: EvictionPolicy,
    *,
    drain_timeout: timedelta = HALF_AN_HOUR,
    time_left: timedelta = timedelta(hours=8),
    mode: DrainMode = DrainMode.TAINT,
) -> Evaluation:
    return evaluate(given, by, drain_timeout=drain_timeout, time_left=time_left, drain_mode=mode)


def only(found: Evaluation) -> Violation:
    (violation,) = found.violations
    assert not found.allowed
    return violation


def test_the_order_of_the_chain() -> None:
    assert [name for name, _ in CHECKS] == [
        "maxPods",
        "maxNamespaces",
        "maxWorkloads",
        "maxDevices",
        "maxUnavailable",
        "tolerationSeconds",
        "protected",
        "toleratingPods",
        "budgets",
        "multipleBudgets",
    ]


def test_every_check_is_asked_and_says_its_own_name() -> None:
    everything = plan(
        pod("a", LATER, seconds=3600),
        pod("b", NOT_REACHED, namespace="team-b"),
        pod("c", TOLERATES),
        budgets=(Budget("team-a", "web", 0, 1),),
        multiple_budgets=("team-b/b",),
    )
    none = {"maxPods": 0, "maxNamespaces": 0, "maxWorkloads": 0, "maxDevices": 0, "maxUnavailable": 0}
    strict = policy(limits=none, protected={"namespaces": ["team-b"]}, toleratingPods="Block")
    found = judge(everything, strict)
    assert [v.check for v in found.violations] == [name for name, _ in CHECKS]


def test_the_built_in_policy_has_no_limits() -> None:
    found = judge(plan(*(pod(f"p{i}", namespace=f"n{i}") for i in range(50))), BUILT_IN_POLICY)
    assert found == Evaluation((), ())
    assert found.allowed


@pytest.mark.parametrize(("limit", "allowed"), [(4, True), (3, True), (2, False), (0, False), (None, True)])
def test_max_pods_counts_all_that_would_go(limit: int | None, allowed: bool) -> None:
    given = plan(
        pod("a"), pod("b", LATER, seconds=5), pod("c", NOT_REACHED), pod("d", TOLERATES), pod("e", terminating=True)
    )
    assert judge(given, policy(limits={"maxPods": limit})).allowed is allowed


def test_a_limit_is_said_in_one_sentence() -> None:
    found = only(judge(plan(pod("a"), pod("b")), policy(limits={"maxPods": 1})))
    assert found == Violation(
        check="maxPods",
        limit="1",
        actual="2",
        message="The plan hits 2 pods and maxPods is 1; narrow the target, or raise limits.maxPods in the "
        "EvictionPolicy.",
    )


def test_max_namespaces_counts_those_of_pods_that_would_go() -> None:
    given = plan(pod("a"), pod("b", namespace="team-b"), pod("c", TOLERATES, namespace="team-c"))
    assert judge(given, policy(limits={"maxNamespaces": 2})).allowed
    found = only(judge(given, policy(limits={"maxNamespaces": 1})))
    assert (found.check, found.limit, found.actual) == ("maxNamespaces", "1", "2")


def test_max_workloads_counts_owners_once_and_pods_without_one_each() -> None:
    """Two pods of web, one of train, one alone: 3. What stays, and what is going already, is no loss."""
    given = plan(
        pod("web-1", workload="web"),
        pod("web-2", LATER, seconds=5, workload="web"),
        pod("train-0", NOT_REACHED, workload="train"),
        pod("alone"),
        pod("dcgm", TOLERATES, workload="dcgm"),
        pod("ending", terminating=True, workload="ending"),
    )
    assert judge(given, policy(limits={"maxWorkloads": 3})).allowed
    found = only(judge(given, policy(limits={"maxWorkloads": 2})))
    assert (found.check, found.limit, found.actual) == ("maxWorkloads", "2", "3")
    assert "hits 3 workloads and maxWorkloads is 2" in found.message


def test_max_devices_counts_devices_that_nobody_uses_too() -> None:
    given = plan(devices=(device("gpu-0"), device("gpu-1")))
    assert judge(given, policy(limits={"maxDevices": 2})).allowed
    found = only(judge(given, policy(limits={"maxDevices": 1})))
    assert (found.check, found.limit, found.actual) == ("maxDevices", "1", "2")


def gpus(count: int) -> tuple[PlannedDevice, ...]:
    return tuple(device(f"gpu-{number}") for number in range(count))


@pytest.mark.parametrize(
    ("percent", "published", "least", "limit"),
    [
        ("25%", 3, 1, 1),  # 0.75, rounded down to none: one of three can still be serviced
        ("25%", 4, 1, 1),
        ("25%", 7, 1, 1),  # 1.75
        ("25%", 8, 1, 2),
        ("33%", 3, 1, 1),  # 0.99
        ("34%", 3, 1, 1),  # 1.02
        ("25%", 3, 0, 0),
        ("0%", 100, 1, 1),
        ("0%", 100, 0, 0),
        ("10%", 8, 2, 2),
        ("100%", 8, 1, 8),
    ],
)
def test_a_percentage_is_of_what_is_published_rounded_down_and_at_least_min(
    percent: str, published: int, least: int, limit: int
) -> None:
    by = policy(limits={"maxDevices": percent, "min": least})
    assert judge(plan(devices=gpus(limit), published=published), by).allowed
    found = only(judge(plan(devices=gpus(limit + 1), published=published), by))
    assert (found.check, found.limit, found.actual) == (
        "maxDevices",
        f"{percent} ({limit} of {published})",
        str(limit + 1),
    )


def test_a_percentage_of_devices_is_said_in_one_sentence() -> None:
    found = only(judge(plan(devices=gpus(4), published=12), policy(limits={"maxDevices": "25%"})))
    assert found.message == (
        "The plan hits 4 devices and maxDevices is 25% (3 of 12); narrow the target, or raise limits.maxDevices in the "
        "EvictionPolicy."
    )


def test_max_unavailable_counts_what_other_runs_keep_out() -> None:
    given = plan(devices=gpus(2), published=8, elsewhere=2)
    assert judge(given, policy(limits={"maxUnavailable": "50%"})).allowed
    assert judge(given, policy(limits={"maxUnavailable": 4})).allowed
    found = only(judge(given, policy(limits={"maxUnavailable": 3})))
    assert found == Violation(
        check="maxUnavailable",
        limit="3",
        actual="4",
        message="With the plan 4 devices would be out of service, 2 of them by other runs, and maxUnavailable is 3; "
        "wait until other runs release theirs, or raise limits.maxUnavailable in the EvictionPolicy.",
    )
    alone = only(judge(plan(devices=gpus(2), published=8), policy(limits={"maxUnavailable": "12%"})))
    assert (alone.limit, alone.actual) == ("12% (1 of 8)", "2")
    assert "narrow the target" in alone.message


STAYS = plan(
    pod("burn-in", TOLERATES),
    pod("monitor", TOLERATES, admin_access=True),
    pod("leaving", TOLERATES, terminating=True),
    pod("goes"),
)


def test_tolerating_pods_are_warned_of_block_or_are_not_said() -> None:
    """Those that keep a device busy: a monitor with adminAccess does not, and one that is going goes."""
    waits = judge(STAYS, policy())
    assert waits.allowed
    assert waits.warnings == (
        Violation(
            check="toleratingPods",
            limit="none at drain.timeout",
            actual="1 pod",
            message="team-a/burn-in tolerates the taint without adminAccess and keeps devices busy; the run waits for "
            "them until drain.timeout.",
        ),
    )
    blocked = judge(STAYS, policy(toleratingPods="Block"))
    assert (only(blocked).check, only(blocked).limit, only(blocked).actual) == ("toleratingPods", "none", "1 pod")
    assert not blocked.protected
    assert judge(STAYS, policy(toleratingPods="Ignore")) == Evaluation((), ())
    assert judge(plan(pod("monitor", TOLERATES, admin_access=True)), policy(toleratingPods="Block")).allowed


@pytest.mark.parametrize(("seconds", "allowed"), [(1800, True), (1801, False)])
def test_toleration_seconds_must_end_before_the_drain_timeout(seconds: int, allowed: bool) -> None:
    found = judge(plan(pod("slow", LATER, seconds=seconds)), policy())
    assert found.allowed is allowed
    if not allowed:
        assert only(found) == Violation(
            check="tolerationSeconds",
            limit="drain.timeout 30m",
            actual="30m1s",
            message="team-a/slow may stay up to 30m1s under the taint, which is beyond drain.timeout 30m; "
            "raise drain.timeout or shorten tolerationSeconds.",
        )


@pytest.mark.parametrize(("seconds", "allowed"), [(600, True), (601, False)])
def test_toleration_seconds_must_end_before_the_deadline(seconds: int, allowed: bool) -> None:
    found = judge(plan(pod("slow", LATER, seconds=seconds)), policy(), time_left=timedelta(minutes=10))
    assert found.allowed is allowed
    if not allowed:
        assert (only(found).limit, only(found).actual) == ("the deadline", "10m1s")


def test_toleration_seconds_beyond_both_is_said_twice_and_names_three_pods() -> None:
    given = plan(*(pod(f"p{i}", LATER, seconds=7200 + i) for i in range(5)))
    found = judge(given, policy(), time_left=timedelta(hours=1))
    assert [v.limit for v in found.violations] == ["drain.timeout 30m", "the deadline"]
    assert found.violations[0].message.startswith("team-a/p0, team-a/p1, team-a/p2 and 2 more may stay up to 2h4s")


def test_toleration_seconds_of_pods_that_go_otherwise_do_not_matter() -> None:
    given = plan(pod("a", seconds=9999), pod("b", LATER, seconds=9999, terminating=True), pod("c", LATER))
    assert judge(given, policy()).allowed


BROKEN = plan(pod("a"), budgets=(Budget("team-a", "db", 1, 1), Budget("team-a", "web", 1, 2)))


def test_a_budget_that_would_break_blocks_by_default() -> None:
    assert only(judge(BROKEN, policy())) == Violation(
        check="budgets",
        limit="team-a/web allows 1",
        actual="2",
        message="PodDisruptionBudget team-a/web allows 1 disruption and the plan needs 2; add replicas, or wait until "
        "more of them are healthy.",
    )


def test_a_budget_that_would_break_is_a_warning_or_nothing_where_the_policy_says_so() -> None:
    warned = judge(BROKEN, policy(budgets="Warn"))
    assert warned.allowed
    assert [(w.check, w.limit) for w in warned.warnings] == [("budgets", "team-a/web allows 1")]
    assert judge(BROKEN, policy(budgets="Ignore")) == Evaluation((), ())


def test_many_broken_budgets_are_bounded() -> None:
    def broken(count: int) -> Evaluation:
        return judge(plan(budgets=tuple(Budget("team-a", f"b{i:03}", 0, 1) for i in range(count))), policy())

    assert len(broken(20).violations) == 20
    found = broken(50).violations
    assert len(found) == 20
    assert (found[-1].limit, found[-1].actual) == ("50 PodDisruptionBudgets", "31")
    assert "31 more PodDisruptionBudgets would break" in found[-1].message


@pytest.mark.parametrize("mode", ["Respect", "Warn", "Ignore"])
def test_a_pod_that_the_eviction_api_can_never_take_blocks_in_every_mode(mode: str) -> None:
    given = plan(pod("ext", NOT_REACHED), pod("own"), multiple_budgets=("team-a/ext", "team-a/own"))
    found = only(judge(given, policy(budgets=mode)))
    assert (found.check, found.actual) == ("multipleBudgets", "1 pod")
    assert "team-a/ext" in found.message
    assert "team-a/own" not in found.message


def test_two_budgets_do_not_matter_for_pods_that_the_taint_deletes() -> None:
    given = plan(pod("own"), pod("t", TOLERATES), multiple_budgets=("team-a/own", "team-a/t"))
    assert judge(given, policy()).allowed


@pytest.mark.parametrize("mode", ["Respect", "Warn"])
def test_the_eviction_api_breaks_no_budget_so_one_that_allows_fewer_now_is_waited_for(mode: str) -> None:
    """The API answers 429 while a budget forbids (policy/v1 Eviction); at drain.timeout the taint comes off."""
    found = judge(BROKEN, policy(budgets=mode), mode=DrainMode.EVICT)
    assert found.allowed
    (warning,) = found.warnings
    assert (warning.check, warning.limit, warning.actual) == ("budgets", "team-a/web allows 1", "2")
    assert warning.message == (
        "PodDisruptionBudget team-a/web allows 1 disruption and the plan needs 2, so the eviction waits for it until "
        "drain.timeout; add replicas, or give it more time."
    )
    assert judge(BROKEN, policy(budgets="Ignore"), mode=DrainMode.EVICT) == Evaluation((), ())


def test_forced_at_the_timeout_it_would_break_after_all_and_blocks() -> None:
    force = {"forceAtTimeout": True}
    assert only(judge(BROKEN, policy(drain=force), mode=DrainMode.EVICT)).limit == "team-a/web allows 1"
    assert judge(BROKEN, policy(drain=force, budgets="Warn"), mode=DrainMode.EVICT).warnings
    enough = plan(pod("a"), budgets=(Budget("team-a", "web", 1, 1),))
    assert judge(enough, policy(drain=force), mode=DrainMode.EVICT) == Evaluation((), ())


def test_force_is_of_no_account_where_the_taint_drains() -> None:
    assert judge(BROKEN, policy(drain={"forceAtTimeout": True})) == judge(BROKEN, policy())


def test_many_budgets_to_wait_for_are_bounded_too() -> None:
    given = plan(budgets=tuple(Budget("team-a", f"b{i:03}", 0, 1) for i in range(50)))
    found = judge(given, policy(), mode=DrainMode.EVICT).warnings
    assert len(found) == 20
    assert found[-1].message == "And 31 more PodDisruptionBudgets have to be waited for; narrow the target."


@pytest.mark.parametrize("budgets", ["Respect", "Warn", "Ignore"])
def test_with_the_eviction_api_alone_two_budgets_matter_for_every_pod(budgets: str) -> None:
    given = plan(pod("own"), pod("t", TOLERATES), multiple_budgets=("team-a/own", "team-a/t"))
    found = only(judge(given, policy(budgets=budgets), mode=DrainMode.EVICT))
    assert (found.check, found.actual) == ("multipleBudgets", "1 pod")
    assert "team-a/own" in found.message


def test_where_the_taint_may_have_them_at_the_timeout_two_budgets_matter_only_for_whom_it_does_not_reach() -> None:
    given = plan(pod("ext", NOT_REACHED), pod("own"), multiple_budgets=("team-a/ext", "team-a/own"))
    found = only(judge(given, policy(drain={"forceAtTimeout": True}), mode=DrainMode.EVICT))
    assert "team-a/ext" in found.message
    assert "team-a/own" not in found.message
