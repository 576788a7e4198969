"""May we? An ordered chain of named checks: each a pure function from a plan and a policy to what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from taintctl.api.base import format_duration
from taintctl.api.plan import Budget, Plan, Violation
from taintctl.api.policy import BudgetMode, EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.text import plural, some

LONGEST = 10**10
"""Seconds, some 300 years: tolerationSeconds is any int64, and a timedelta is not."""
MAX_FOUND = 20
"""Violations that one check reports; the last then says how many more there are."""


@dataclass(frozen=True)
class PolicyInput:
    plan: Plan
    policy: EvictionPolicy
    drain_timeout: timedelta
    """How long pods may take to go, as the specification says it."""
    time_left: timedelta
    """From the earliest eviction to the deadline, as long as delays of specifications fit into it: where a sandbox
    divides delays by its speed, the caller has multiplied the time by it."""


class Severity(StrEnum):
    VIOLATION = "violation"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    what: Violation


@dataclass(frozen=True)
class Evaluation:
    """What the chain found, in its order. Violations block; warnings are said."""

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.violations


Check = Callable[[PolicyInput], tuple[Finding, ...]]


def max_pods(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxPods", given.policy.spec.limits.max_pods, len(given.plan.counted_pods), "pod")


def max_namespaces(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxNamespaces", given.policy.spec.limits.max_namespaces, len(given.plan.namespaces), "namespace")


def max_workloads(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxWorkloads", given.policy.spec.limits.max_workloads, len(given.plan.workloads), "workload")


def max_devices(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxDevices", given.policy.spec.limits.max_devices, len(given.plan.devices), "device")


def toleration_seconds(given: PolicyInput) -> tuple[Finding, ...]:
    """A pod that may stay beyond drain.timeout or the deadline would never be gone in time."""
    stays = {
        pod.key: timedelta(seconds=min(pod.toleration_seconds, LONGEST))
        for pod in given.plan.counted_pods
        if pod.effect is PodEffect.EVICTED_LATER and pod.toleration_seconds is not None
    }
    found = []
    for limit, bound, remedy in (
        (f"drain.timeout {format_duration(given.drain_timeout)}", given.drain_timeout, "raise drain.timeout"),
        ("the deadline", given.time_left, "set a later deadline"),
    ):
        late = {key: stay for key, stay in stays.items() if stay > bound}
        if late:
            longest = format_duration(max(late.values()))
            found.append(
                Violation(
                    check="tolerationSeconds",
                    limit=limit,
                    actual=longest,
                    message=f"{some(sorted(late))} may stay up to {longest} under the taint, which is beyond {limit}; "
                    f"{remedy} or shorten tolerationSeconds.",
                )
            )
    return _violations(found)


def budgets(given: PolicyInput) -> tuple[Finding, ...]:
    """NoExecute deletes without asking a PodDisruptionBudget (recording 07): so we ask, before."""
    mode = given.policy.spec.budgets
    if mode is BudgetMode.IGNORE:
        return ()
    broken = [_broken(budget) for budget in given.plan.budgets if budget.needed > budget.allowed]
    found = _bounded(broken, "budgets", "PodDisruptionBudgets")
    return _violations(found) if mode is BudgetMode.RESPECT else tuple(Finding(Severity.WARNING, v) for v in found)


def multiple_budgets(given: PolicyInput) -> tuple[Finding, ...]:
    """Pods that only the Eviction API can take, and that it never will: it answers 500 while two budgets select one.

    No policy can allow what the API cannot do, so this blocks in every mode.
    """
    ours = {pod.key for pod in given.plan.counted_pods if pod.effect is PodEffect.NOT_REACHED_BY_TAINT}
    stuck = sorted(ours.intersection(given.plan.multiple_budgets))
    if not stuck:
        return ()
    return _violations(
        [
            Violation(
                check="multipleBudgets",
                limit="one PodDisruptionBudget a pod",
                actual=plural(len(stuck), "pod"),
                message=f"Several PodDisruptionBudgets select {some(stuck)}, so the Eviction API cannot decide; "
                "leave one budget, or remove the pod by hand.",
            )
        ]
    )


CHECKS: tuple[tuple[str, Check], ...] = (
    ("maxPods", max_pods),
    ("maxNamespaces", max_namespaces),
    ("maxWorkloads", max_workloads),
    ("maxDevices", max_devices),
    ("tolerationSeconds", toleration_seconds),
    ("budgets", budgets),
    ("multipleBudgets", multiple_budgets),
)
"""The chain, in the order in which people read its findings: size first, then time, then the pods' own protection."""


def evaluate(plan: Plan, policy: EvictionPolicy, *, drain_timeout: timedelta, time_left: timedelta) -> Evaluation:
    """Every check of the chain; none hides another. For the two times see PolicyInput."""
    given = PolicyInput(plan=plan, policy=policy, drain_timeout=drain_timeout, time_left=time_left)
    found = [finding for _, check in CHECKS for finding in check(given)]
    return Evaluation(
        violations=tuple(f.what for f in found if f.severity is Severity.VIOLATION),
        warnings=tuple(f.what for f in found if f.severity is Severity.WARNING),
    )


def _limit(check: str, limit: int | None, actual: int, noun: str) -> tuple[Finding, ...]:
    if limit is None or actual <= limit:
        return ()
    message = (
        f"The plan hits {plural(actual, noun)} and {check} is {limit}; narrow the target, or raise limits.{check} "
        "in the EvictionPolicy."
    )
    return _violations([Violation(check=check, limit=str(limit), actual=str(actual), message=message)])


def _broken(budget: Budget) -> Violation:
    name = f"{budget.namespace}/{budget.name}"
    return Violation(
        check="budgets",
        limit=f"{name} allows {budget.allowed}",
        actual=str(budget.needed),
        message=f"PodDisruptionBudget {name} allows {plural(budget.allowed, 'disruption')} and the plan needs "
        f"{budget.needed}; add replicas, or wait until more of them are healthy.",
    )


def _bounded(found: Sequence[Violation], check: str, what: str) -> list[Violation]:
    if len(found) <= MAX_FOUND:
        return list(found)
    more = len(found) - MAX_FOUND + 1
    rest = Violation(
        check=check,
        limit=f"{len(found)} {what}",
        actual=str(more),
        message=f"And {more} more {what} would break; narrow the target.",
    )
    return [*found[: MAX_FOUND - 1], rest]


def _violations(found: Sequence[Violation]) -> tuple[Finding, ...]:
    return tuple(Finding(Severity.VIOLATION, violation) for violation in found)
