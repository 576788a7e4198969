"""May we? An ordered chain of named checks: each a pure function from a plan and a policy to what it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from taintctl.api.base import format_duration
from taintctl.api.plan import PROTECTED, Budget, Plan, Violation
from taintctl.api.policy import BudgetMode, EvictionPolicy, ToleratingPods
from taintctl.api.reasons import PodEffect
from taintctl.api.run import DrainMode
from taintctl.api.text import plural, some
from taintctl.policy.protection import protection

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
    drain_mode: DrainMode

    @property
    def by_api_alone(self) -> bool:
        """Every pod goes through the Eviction API or not at all: so no PodDisruptionBudget can break."""
        return self.drain_mode is DrainMode.EVICT and not self.policy.spec.drain.force_at_timeout


class Severity(StrEnum):
    VIOLATION = "violation"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    severity: Severity
    what: Violation


@dataclass(frozen=True)
class Evaluation:
    """What the chain found, in its order. Violations block (of protected pods: until a Break); warnings are said."""

    violations: tuple[Violation, ...]
    warnings: tuple[Violation, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.violations

    @property
    def protected(self) -> tuple[Violation, ...]:
        """Those that a Break approval lifts."""
        return tuple(v for v in self.violations if v.breakable)

    @property
    def blocking(self) -> tuple[Violation, ...]:
        """Those that nobody's approval lifts."""
        return tuple(v for v in self.violations if not v.breakable)


Check = Callable[[PolicyInput], tuple[Finding, ...]]


def max_pods(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxPods", given.policy.spec.limits.max_pods, len(given.plan.counted_pods), "pod")


def max_namespaces(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxNamespaces", given.policy.spec.limits.max_namespaces, len(given.plan.namespaces), "namespace")


def max_workloads(given: PolicyInput) -> tuple[Finding, ...]:
    return _limit("maxWorkloads", given.policy.spec.limits.max_workloads, len(given.plan.workloads), "workload")


def max_devices(given: PolicyInput) -> tuple[Finding, ...]:
    return _device_limit("maxDevices", given.policy.spec.limits.max_devices, len(given.plan.devices), given)


def max_unavailable(given: PolicyInput) -> tuple[Finding, ...]:
    """Over all runs: what others keep out of service, and this plan."""
    return _device_limit("maxUnavailable", given.policy.spec.limits.max_unavailable, given.plan.unavailable, given)


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


def protected(given: PolicyInput) -> tuple[Finding, ...]:
    return _violations(protection(given.plan, given.policy.spec.protected))


def tolerating_pods(given: PolicyInput) -> tuple[Finding, ...]:
    """They are not evicted and keep their devices busy, so the run can only wait for them."""
    mode = given.policy.spec.tolerating_pods
    keep = [pod.key for pod in given.plan.pods if pod.keeps_device]
    if mode is ToleratingPods.IGNORE or not keep:
        return ()
    remedy = "end them first" if mode is ToleratingPods.BLOCK else "the run waits for them until drain.timeout"
    found = Violation(
        check="toleratingPods",
        limit="none" if mode is ToleratingPods.BLOCK else "none at drain.timeout",
        actual=plural(len(keep), "pod"),
        message=f"{some(keep)} {'tolerates' if len(keep) == 1 else 'tolerate'} the taint without adminAccess and "
        f"{'keeps' if len(keep) == 1 else 'keep'} devices busy; {remedy}.",
    )
    return (Finding(Severity.VIOLATION if mode is ToleratingPods.BLOCK else Severity.WARNING, found),)


def budgets(given: PolicyInput) -> tuple[Finding, ...]:
    """NoExecute deletes without asking a PodDisruptionBudget (recording 07): so we ask, before.

    With drain.mode Evict the Eviction API asks, and a pod whose budget forbids waits: that breaks nothing, and is said.
    But not with drain.forceAtTimeout, for NoExecute on what is left would break the budget after all.
    """
    mode = given.policy.spec.budgets
    if mode is BudgetMode.IGNORE:
        return ()
    short = [budget for budget in given.plan.budgets if budget.needed > budget.allowed]
    if given.by_api_alone:
        found = _bounded(
            [_awaited(budget) for budget in short], "budgets", "PodDisruptionBudgets have to be waited for"
        )
    else:
        found = _bounded([_broken(budget) for budget in short], "budgets", "PodDisruptionBudgets would break")
    blocks = mode is BudgetMode.RESPECT and not given.by_api_alone
    return _violations(found) if blocks else tuple(Finding(Severity.WARNING, v) for v in found)


def multiple_budgets(given: PolicyInput) -> tuple[Finding, ...]:
    """Pods that only the Eviction API can take, and that it never will: it answers 500 while two budgets select one.
    With drain.mode Evict that is every pod, unless drain.forceAtTimeout lets NoExecute have those that it reaches.

    No policy can allow what the API cannot do, so this blocks in every mode.
    """
    ours = {
        pod.key for pod in given.plan.counted_pods if given.by_api_alone or pod.effect is PodEffect.NOT_REACHED_BY_TAINT
    }
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
    ("maxUnavailable", max_unavailable),
    ("tolerationSeconds", toleration_seconds),
    (PROTECTED, protected),
    ("toleratingPods", tolerating_pods),
    ("budgets", budgets),
    ("multipleBudgets", multiple_budgets),
)
"""The chain, in the order in which people read its findings: size first, then time, then the pods' own protection."""


def evaluate(
    plan: Plan,
    policy: EvictionPolicy,
    *,
    drain_timeout: timedelta,
    time_left: timedelta,
    drain_mode: DrainMode = DrainMode.TAINT,
) -> Evaluation:
    """Every check of the chain; none hides another. For the two times see PolicyInput."""
    given = PolicyInput(
        plan=plan, policy=policy, drain_timeout=drain_timeout, time_left=time_left, drain_mode=drain_mode
    )
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


def _device_limit(check: str, amount: int | str | None, actual: int, given: PolicyInput) -> tuple[Finding, ...]:
    if amount is None:
        return ()
    published = given.plan.published
    limit = given.policy.spec.limits.devices(amount, published)
    if actual <= limit:
        return ()
    said = str(amount) if isinstance(amount, int) else f"{amount} ({limit} of {published})"
    elsewhere = actual - len(given.plan.devices)
    if check == "maxDevices":
        does, remedy = f"The plan hits {plural(actual, 'device')}", "narrow the target"
    else:
        does = f"With the plan {plural(actual, 'device')} would be out of service, {elsewhere} of them by other runs,"
        remedy = "wait until other runs release theirs" if elsewhere else "narrow the target"
    message = f"{does} and {check} is {said}; {remedy}, or raise limits.{check} in the EvictionPolicy."
    return _violations([Violation(check=check, limit=said, actual=str(actual), message=message)])


def _broken(budget: Budget) -> Violation:
    name = f"{budget.namespace}/{budget.name}"
    return Violation(
        check="budgets",
        limit=f"{name} allows {budget.allowed}",
        actual=str(budget.needed),
        message=f"PodDisruptionBudget {name} allows {plural(budget.allowed, 'disruption')} and the plan needs "
        f"{budget.needed}; add replicas, or wait until more of them are healthy.",
    )


def _awaited(budget: Budget) -> Violation:
    name = f"{budget.namespace}/{budget.name}"
    return Violation(
        check="budgets",
        limit=f"{name} allows {budget.allowed}",
        actual=str(budget.needed),
        message=f"PodDisruptionBudget {name} allows {plural(budget.allowed, 'disruption')} and the plan needs "
        f"{budget.needed}, so the eviction waits for it until drain.timeout; add replicas, or give it more time.",
    )


def _bounded(found: Sequence[Violation], check: str, what: str) -> list[Violation]:
    if len(found) <= MAX_FOUND:
        return list(found)
    more = len(found) - MAX_FOUND + 1
    rest = Violation(
        check=check,
        limit=f"{len(found)} PodDisruptionBudgets",
        actual=str(more),
        message=f"And {more} more {what}; narrow the target.",
    )
    return [*found[: MAX_FOUND - 1], rest]


def _violations(found: Sequence[Violation]) -> tuple[Finding, ...]:
    return tuple(Finding(Severity.VIOLATION, violation) for violation in found)
