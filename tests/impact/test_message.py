"""The dry-run message is read exactly, or not at all."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taintctl.impact import DryRunMessage, parse
from tests.impact.fleet import messages

RECORDED = [
    item
    for name in ("02-dry-runs", "03-refresh", "07-partitions-budgets-cancel", "08-tolerations")
    for item in messages(name)
]
TAIL = (
    " if the effect was NoExecute. This information will not be updated again. "
    "Recreate the DeviceTaintRule to trigger an update."
)


def said(published: int, allocated: int, pods: int, namespaces: int) -> str:
    """As upstream's maybeUpdateRuleStatus writes it."""
    return (
        f"{published} published {'device' if published == 1 else 'devices'} selected. "
        f"{allocated} allocated {'device' if allocated == 1 else 'devices'} selected. "
        f"{pods} {'pod' if pods == 1 else 'pods'} would be evicted in "
        f"{namespaces} {'namespace' if namespaces == 1 else 'different namespaces'}" + TAIL
    )


def test_there_are_recordings_to_read() -> None:
    assert len(RECORDED) >= 20


@pytest.mark.parametrize(("case", "selector", "message"), RECORDED)
def test_every_recorded_message_parses_to_its_numbers(case: str, selector: object, message: str) -> None:
    numbers = [int(n) for n in re.findall(r"\d+", message)]
    assert parse(message) == DryRunMessage(*numbers)


def test_what_was_evicted_before_can_follow() -> None:
    assert parse(said(4, 2, 0, 0) + " 1 pod evicted since starting the controller.") == DryRunMessage(4, 2, 0, 0)
    assert parse(said(4, 2, 3, 1) + " 12 pods evicted since starting the controller.") == DryRunMessage(4, 2, 3, 1)


COUNT = st.integers(0, 99_999)


@given(COUNT, COUNT, COUNT, COUNT)
def test_any_counts_are_read_back(published: int, allocated: int, pods: int, namespaces: int) -> None:
    expected = DryRunMessage(published, allocated, pods, namespaces)
    assert parse(said(published, allocated, pods, namespaces)) == expected


@pytest.mark.parametrize(
    "message",
    [
        "",
        "1 pod needs to be evicted in 1 namespace.",
        "Eviction only happens for the NoExecute effect.",
        said(4, 2, 3, 1).replace("3 pods", "3 pod"),
        said(4, 2, 1, 1).replace("1 pod ", "1 pods "),
        said(4, 2, 3, 1).replace("1 namespace", "1 different namespaces"),
        said(4, 2, 3, 2).replace("different ", ""),
        said(4, 2, 3, 1).replace("4 ", "04 "),
        said(4, 2, 3, 1).replace("4 ", "-4 "),
        said(4, 2, 3, 1).replace("4 ", "٤ "),
        said(4, 2, 3, 1).replace("4 ", "99999999999 "),
        said(4, 2, 3, 1) + " ",
        said(4, 2, 3, 1) + "\n",
        said(4, 2, 3, 1).removesuffix("."),
        said(4, 2, 3, 1) + " 0 pod evicted since starting the controller.",
        said(4, 2, 3, 1).replace("published", "Published"),
        "x" + said(4, 2, 3, 1),
        said(4, 2, 3, 1).replace("2 allocated devices selected. ", ""),
    ],
)
def test_any_other_wording_is_a_no_and_never_a_zero(message: str) -> None:
    assert parse(message) is None
