"""Whom a policy protects, and what a Break lifts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.plan import Plan, PlannedPod, Violation
from taintctl.api.reasons import PodEffect
from taintctl.policy import Evaluation, compact, covers, digest, evaluate, people_needed, uncovered
from taintctl.policy.digest import _seal
from tests.policy.plans import plan, pod, policy


def judge(given: Plan, **spec: Any) -> Evaluation:
    return evaluate(given, policy(**spec), drain_timeout=timedelta(minutes=30), time_left=timedelta(hours=8))


def protects(which: PlannedPod, **criteria: Any) -> bool:
    return bool(judge(plan(which), protected=criteria).protected)


@pytest.mark.parametrize(
    ("criteria", "which", "protected"),
    [
        ({"namespaces": ["prod", "team-a"]}, pod("a"), True),
        ({"namespaces": ["prod"]}, pod("a"), False),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, pod("a", namespace_labels=(("env", "prod"),)), True),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, pod("a", namespace_labels=(("env", "lab"),)), False),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, pod("a", namespace_labels=()), False),
        # The namespace was not found: it may have the label.
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, pod("a", namespace_labels=None), True),
        ({"podSelector": {"matchLabels": {"keep": "yes"}}}, pod("a", labels=(("keep", "yes"),)), True),
        ({"podSelector": {"matchLabels": {"keep": "yes"}}}, pod("a", labels=(("keep", "no"),)), False),
        (
            {"podSelector": {"matchExpressions": [{"key": "keep", "operator": "Exists"}]}},
            pod("a", labels=(("keep", "no"),)),
            True,
        ),
        ({"priorityClassNames": ["critical"]}, pod("a", priority_class="critical"), True),
        ({"priorityClassNames": ["critical"]}, pod("a"), False),
        ({"minPriority": 1000}, pod("a", priority=1000), True),
        ({"minPriority": 1000}, pod("a", priority=999), False),
        ({"minPriority": 0}, pod("a"), True),
        # One criterion is enough.
        ({"namespaces": ["prod"], "minPriority": 1000}, pod("a", priority=2000), True),
    ],
)
def test_any_criterion_protects(criteria: dict[str, Any], which: PlannedPod, protected: bool) -> None:
    assert protects(which, **criteria) is protected


@pytest.mark.parametrize("effect", [PodEffect.EVICTED, PodEffect.EVICTED_LATER, PodEffect.NOT_REACHED_BY_TAINT])
def test_pods_are_protected_however_they_would_go(effect: PodEffect) -> None:
    assert protects(pod("a", effect), namespaces=["team-a"])


def test_pods_that_stay_or_go_already_need_no_protection() -> None:
    assert not protects(pod("a", PodEffect.TOLERATES), namespaces=["team-a"])
    assert not protects(pod("a", terminating=True), namespaces=["team-a"])


def test_nobody_is_protected_where_the_policy_says_nothing() -> None:
    assert judge(plan(pod("a", priority=2_000_000_000))).allowed


def test_each_criterion_is_said_with_limit_and_actual() -> None:
    given = plan(pod("a", priority=5), pod("b", priority=9), pod("c", namespace="prod"))
    found = judge(given, protected={"namespaces": ["prod", "kube-system"], "minPriority": 5})
    assert not found.allowed
    assert found.blocking == ()
    assert found.protected == (
        Violation(
            check="protected",
            limit="namespaces prod, kube-system",
            actual="1 pod",
            message="The policy protects 1 pod of the plan by namespaces prod, kube-system: prod/c; leave them out of "
            "the target, wait until they have ended, or have a Break approval given.",
            pods=("uid-c",),
        ),
        Violation(
            check="protected",
            limit="minPriority 5",
            actual="2 pods",
            message="The policy protects 2 pods of the plan by minPriority 5: team-a/a, team-a/b; leave them out of "
            "the target, wait until they have ended, or have a Break approval given.",
            pods=("uid-a", "uid-b"),
        ),
    )


def test_other_violations_stand_beside_and_are_not_lifted() -> None:
    found = judge(plan(pod("a")), protected={"namespaces": ["team-a"]}, limits={"maxPods": 0})
    assert [v.check for v in found.violations] == ["maxPods", "protected"]
    assert [v.check for v in found.blocking] == ["maxPods"]


@pytest.mark.parametrize("required", ["Never", "AboveAutoApprove", "Always"])
def test_a_plan_that_hits_protected_pods_is_always_asked_about(required: str) -> None:
    lenient = policy(approval={"required": required, "count": 2}, autoApprove={"maxPods": 100})
    assert people_needed(plan(pod("a")), lenient, protected=True) == 2


# What was approved names the protected pods, so that a Break lets only those go that it was given for.

KEEP = {"podSelector": {"matchLabels": {"keep": "yes"}}}
KEPT = (("keep", "yes"),)
BY = policy(protected=KEEP)


def violations(given: Plan) -> tuple[Violation, ...]:
    return judge(given, protected=KEEP).violations


def test_a_pod_that_becomes_protected_afterwards_is_not_covered() -> None:
    one = plan(pod("a", labels=KEPT), pod("b"))
    both = plan(pod("a", labels=KEPT), pod("b", labels=KEPT))
    approved = compact(one, BY, violations(one), run_uid="run")
    assert covers(approved, one, BY, violations(one), run_uid="run")
    assert not covers(approved, both, BY, violations(both), run_uid="run")
    assert digest(one, BY, violations(one)) != digest(both, BY, violations(both))


def test_a_plan_with_fewer_protected_pods_is_covered() -> None:
    both = plan(pod("a", labels=KEPT), pod("b", labels=KEPT))
    approved = compact(both, BY, violations(both), run_uid="run")
    for less in (plan(pod("a", labels=KEPT)), plan(pod("a"), pod("b", labels=KEPT)), plan(pod("a"), pod("b"))):
        assert covers(approved, less, BY, violations(less), run_uid="run")


def test_a_list_of_protected_pods_that_was_edited_covers_nothing() -> None:
    one = plan(pod("a", labels=KEPT), pod("b"))
    approved = compact(one, BY, violations(one), run_uid="run")
    for edited in ("", "AAAA", "not base64"):
        assert not covers(approved.model_copy(update={"protected": edited}), one, BY, violations(one), run_uid="run")


@pytest.mark.parametrize("packed", ["not base64", "AAAA"])
@pytest.mark.parametrize("field", ["devices", "pods", "protected"])
def test_what_cannot_be_read_covers_nothing_though_its_digest_was_made_to_fit(field: str, packed: str) -> None:
    one = plan(pod("a", labels=KEPT))
    edited = compact(one, BY, violations(one), run_uid="run").model_copy(
        update={field: {"Evicted": packed} if field == "pods" else packed}
    )
    fitting = edited.model_copy(update={"digest": _seal(edited, "run")})
    assert not covers(fitting, one, BY, violations(one), run_uid="run")
    if field != "protected":
        assert uncovered(fitting, one, run_uid="run") == {"uid-a"}


def test_a_policy_minds_other_runs_where_either_of_its_limits_does() -> None:
    assert policy(limits={"maxUnavailable": 0}).minds_other_runs
    assert policy(autoApprove={"maxUnavailable": "10%"}).minds_other_runs
    assert not policy(limits={"maxDevices": "10%"}).minds_other_runs
