"""Bad input is refused where it enters, and the sentence names the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taintctl.api.check import KINDS, MAX_PROBLEMS, check
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Reason
from taintctl.api.run import MaintenanceRun
from tests.api.builders import a_policy, a_run
from tests.api.cases import BAD, GOOD, UNKNOWN_FIELDS, Case


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_a_good_object_has_no_problem(case: Case) -> None:
    checked = check(case.kind, case.obj)
    assert checked.problems == ()
    assert checked.obj is not None


@pytest.mark.parametrize("case", BAD, ids=str)
def test_a_bad_object_is_refused_by_the_field(case: Case) -> None:
    checked = check(case.kind, case.obj)
    assert case.field in [problem.field for problem in checked.problems]
    for problem in checked.problems:
        assert problem.reason is Reason.INVALID_SPEC
        assert problem.message
        assert "\n" not in str(problem)


@pytest.mark.parametrize("case", UNKNOWN_FIELDS, ids=str)
def test_an_unknown_field_is_named_at_every_level_and_the_object_is_read_all_the_same(case: Case) -> None:
    checked = check(case.kind, case.obj)
    assert [(p.field, p.reason) for p in checked.problems] == [(case.field, Reason.UNKNOWN_FIELD)]
    assert checked.obj is not None


def test_a_misspelt_field_is_named_beside_what_makes_the_object_unreadable() -> None:
    run = a_run(target={"drvier": "gpu.example.com"}, notcie="5m")
    fields = [problem.field for problem in check(MaintenanceRun, run).problems]
    assert "spec.target" in fields
    assert "spec.notcie" in fields


def test_another_kind_or_version_is_refused() -> None:
    fields = [p.field for p in check(EvictionPolicy, {**a_run(), "apiVersion": "taintctl.dev/v2"}).problems]
    assert fields[:2] == ["kind", "apiVersion"]


def test_problems_are_bounded() -> None:
    run = a_run(**{f"field{number}": number for number in range(100)})
    assert len(check(MaintenanceRun, run).problems) == MAX_PROBLEMS


def test_what_is_left_out_has_its_default() -> None:
    # From the tables of the API's description.
    run = check(MaintenanceRun, a_run()).obj
    assert run is not None
    spec = run.spec.dump()
    assert spec["notice"] == "0s"
    assert spec["drain"] == {"mode": "Taint", "timeout": "30m"}
    assert spec["work"] == {"mode": "Manual"}
    assert spec["atDeadline"] == "Release"
    assert spec["taint"] == {"key": "taintctl.dev/maintenance"}
    policy = check(EvictionPolicy, a_policy()).obj
    assert policy is not None
    assert policy.spec.dump() == {
        "limits": {"min": 1},
        "autoApprove": {"min": 1},
        "budgets": "Respect",
        "toleratingPods": "Wait",
        "onMismatch": "Block",
        "dryRun": {"maxAge": "1m", "attempts": 3},
        "approval": {
            "required": "AboveAutoApprove",
            "count": 1,
            "approvers": [],
            "expiresAfter": "30m",
            "onExpiry": "Cancel",
            "selfApproval": False,
        },
        "drain": {"forceAtTimeout": False},
        "notifications": {},
        "rollbackOn": ["DrainTimeout", "Cancelled"],
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["target", "deadline", "schedule", "approval", "limits", "approver", "trigger", "work", "x"])


@given(st.sampled_from(KINDS), JSON, st.dictionaries(FIELDS, JSON, max_size=4) | JSON, JSON)
def test_whatever_comes_in_is_read_or_refused_in_sentences(kind: Any, metadata: Any, spec: Any, status: Any) -> None:
    checked = check(kind, {"metadata": metadata, "spec": spec, "status": status})
    assert checked.obj is not None or checked.problems
    for problem in checked.problems:
        assert problem.field
        assert problem.message
