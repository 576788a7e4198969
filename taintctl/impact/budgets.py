"""Which PodDisruptionBudgets a plan touches, and how much of them it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taintctl.api.objects import LabelSelector, LabelSelectorRequirement, Pod, PodDisruptionBudget
from taintctl.api.plan import Budget


def selects_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """policy/v1: an empty selector selects every pod of the namespace, an absent one none."""
    if selector is None:
        return False
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions or ()
    )


def _meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    # An operator of a later Kubernetes: a budget too many asks once too often, one too few evicts.
    return True


def budgets_of(
    pods: Iterable[Pod], budgets: Iterable[PodDisruptionBudget]
) -> tuple[tuple[Budget, ...], tuple[str, ...]]:
    """The budgets that select any of `pods`, sorted, each with how many it still allows and how many would go; and
    the pods (namespace/name) that more than one selects.

    Pods that the Eviction API lets go without asking a budget (Pending, Succeeded, Failed: canIgnorePDB upstream)
    need none. A status that is behind its spec allows nothing, as the Eviction API answers then.
    """
    by_namespace: dict[str, list[PodDisruptionBudget]] = {}
    for budget in budgets:
        by_namespace.setdefault(budget.metadata.namespace, []).append(budget)
    needed: dict[tuple[str, str], int] = {}
    allowed: dict[tuple[str, str], int] = {}
    multiple = []
    for pod in pods:
        if pod.finished or pod.status.phase == "Pending":
            continue
        selecting = [
            budget
            for budget in by_namespace.get(pod.metadata.namespace, ())
            if selects_labels(budget.spec.selector, pod.metadata.labels or {})
        ]
        if len(selecting) > 1:
            multiple.append(pod.key)
        for budget in selecting:
            key = (budget.metadata.namespace, budget.metadata.name)
            needed[key] = needed.get(key, 0) + 1
            allowed[key] = _allowed(budget)
    found = tuple(
        Budget(namespace, name, allowed[namespace, name], needed[namespace, name]) for namespace, name in needed
    )
    return tuple(sorted(found)), tuple(sorted(multiple))


def _allowed(budget: PodDisruptionBudget) -> int:
    observed = budget.status.observed_generation
    if observed is None or observed < budget.metadata.generation:
        return 0
    return max(0, budget.status.disruptions_allowed)
