"""Names of approvers, by kind: our own reading and an API server refuse the same ones."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.check import check
from taintctl.api.policy import EvictionPolicy
from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.store import Store
from tests.api.builders import a_policy, an_approval
from tests.api.cases import Case
from tests.api.test_crds import created

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "Slack", "name": "alice"}, "name", "a Slack user's id, such as U024BE7LH"),
    ({"kind": "Slack", "name": "S0614TZR7"}, "name", "a Slack user's id"),
    ({"kind": "Slack", "name": "U024BE7LH\n"}, "name", "a Slack user's id"),
    ({"kind": "SlackGroup", "name": "@oncall"}, "name", "a Slack user group's id, such as S0614TZR7"),
    ({"kind": "Email", "name": "ann"}, "name", "a mail address, such as ann@example.com"),
    ({"kind": "Email", "name": "Ann <ann@example.com>"}, "name", "a mail address"),
    ({"name": "alice", "kubernetesUser": "bob"}, "kubernetesUser", "goes with kind Slack or Email only"),
    ({"kind": "SlackGroup", "name": "S0614TZR7", "kubernetesUser": "bob"}, "kubernetesUser", "Slack or Email only"),
]


@pytest.mark.parametrize(("approver", "field", "why"), WRONG, ids=str)
def test_an_approver_with_a_name_of_another_kind_is_refused(
    store: Store, approver: dict[str, Any], field: str, why: str
) -> None:
    policy = a_policy(approval={"approvers": [approver]})
    (problem,) = check(EvictionPolicy, policy).problems
    assert problem.field == f"spec.approval.approvers[0].{field}"
    assert why in problem.message
    with pytest.raises(ApiError) as refused:
        created(store, Case(EvictionPolicy, policy))
    assert refused.value.status == 422
    assert "spec.approval.approvers[0]: " in refused.value.message
    assert why in refused.value.message


def test_an_approval_in_slack_is_by_a_slack_users_id(store: Store) -> None:
    slack = {"team": "T024BE7LD", "channel": "C0123456789", "ts": "1764622800.000100"}
    approval = an_approval(approver={"kind": "Slack", "name": "alice"}, slack=slack)
    assert check(MaintenanceApproval, approval).problems[0].field == "spec.approver.name"
    with pytest.raises(ApiError, match="with kind Slack it is a Slack user's id"):
        created(store, Case(MaintenanceApproval, approval))
