"""Which PodDisruptionBudgets a plan touches, and how much of them it needs."""

from __future__ import annotations

from collections.abc import Iterable

from taintctl.api.labels import selects_labels
from taintctl.api.objects import Pod, PodDisruptionBudget
from taintctl.api.plan import Budget


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
