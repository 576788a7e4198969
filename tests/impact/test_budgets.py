"""PodDisruptionBudgets: whom they select, and what they allow."""

from __future__ import annotations

import pytest

from taintctl.api.labels import selects_labels
from taintctl.api.objects import LabelSelector, LabelSelectorRequirement
from taintctl.api.plan import Budget
from taintctl.impact.budgets import budgets_of
from tests.impact.fleet import budget, pod

WEB = {"app": "web", "tier": "front"}


def needs(key: str, operator: str, *values: str) -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key, operator, values or None),))


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"app": "web"}), True),
        (LabelSelector(match_labels={"app": "db"}), False),
        (LabelSelector(match_labels={"app": "web", "zone": "a"}), False),
        (needs("app", "In", "db", "web"), True),
        (needs("app", "In", "db"), False),
        (needs("zone", "In", "a"), False),
        (needs("app", "NotIn", "db"), True),
        (needs("app", "NotIn", "web"), False),
        (needs("zone", "NotIn", "a"), True),
        (needs("app", "Exists"), True),
        (needs("zone", "Exists"), False),
        (needs("zone", "DoesNotExist"), True),
        (needs("app", "DoesNotExist"), False),
        (needs("app", "Gt", "3"), True),
        (
            LabelSelector(
                match_labels={"app": "web"}, match_expressions=(LabelSelectorRequirement("tier", "In", ("back",)),)
            ),
            False,
        ),
    ],
)
def test_a_selector_selects(selector: LabelSelector | None, selected: bool) -> None:
    assert selects_labels(selector, WEB) is selected


def test_a_budget_counts_its_own_namespace_only() -> None:
    pods = (pod("a"), pod("b"), pod("c", namespace="team-b"))
    assert budgets_of(pods, (budget("all", LabelSelector(), allowed=1), budget("none", None))) == (
        (Budget("team-a", "all", 1, 2),),
        (),
    )


@pytest.mark.parametrize(
    ("generation", "observed", "allowed", "expected"),
    [(1, 1, 2, 2), (2, 1, 2, 0), (1, None, 2, 0), (1, 2, 2, 2), (1, 1, -1, 0)],
)
def test_a_status_that_is_behind_allows_nothing(
    generation: int, observed: int | None, allowed: int, expected: int
) -> None:
    stale = budget("b", LabelSelector(), allowed=allowed, generation=generation, observed=observed)
    ((found,), _) = budgets_of((pod("a"),), (stale,))
    assert found.allowed == expected


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_the_eviction_api_lets_go_need_no_budget(phase: str) -> None:
    both = (budget("a", LabelSelector()), budget("b", LabelSelector()))
    assert budgets_of((pod("p", phase=phase),), both) == ((), ())


def test_a_pod_of_two_budgets_is_named() -> None:
    both = (budget("b", LabelSelector()), budget("a", LabelSelector()))
    assert budgets_of((pod("q"), pod("p")), both) == (
        (Budget("team-a", "a", 0, 2), Budget("team-a", "b", 0, 2)),
        ("team-a/p", "team-a/q"),
    )
