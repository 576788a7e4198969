"""What pages say of who approved and of who was told."""

from __future__ import annotations

import re
from typing import Any

import pytest

from taintctl.api.approval import ApprovalAuthor, ApprovalDecision, ApprovalSpec
from taintctl.api.check import check
from taintctl.api.policy import EvictionPolicy
from taintctl.cli.commands.approval import _may, _no_self_approval
from taintctl.cli.errors import Failure
from taintctl.cli.views.explain import explain_run
from taintctl.cli.views.run import run_view
from tests.cli.builders import AWAITING, NOW, at, plain, policy, run

FAILING = {
    "kind": "Slack",
    "target": "C0123456789",
    "failingSince": at(120),
    "failures": 4,
    "error": "chat.postMessage: not_in_channel: /invite @taintctl",
}
DELIVERED = {"kind": "Webhook", "target": "https://hooks.example.com", "deliveredAt": at(60)}


def test_a_page_says_who_approved_from_where() -> None:
    given = [
        {"approval": "a1", "approver": "U024BE7LH", "kind": "Slack", "name": "Ann", "at": at(30), "comment": "go"},
        {"approval": "a2", "approver": "bob", "at": at(20)},
    ]
    page = plain(run_view(run(**{**AWAITING, "approval": {"needed": 2, "given": given}}), policy(), NOW))
    assert re.search(r"^  Ann \(U024BE7LH in Slack\) at .*: go$", page, re.MULTILINE)
    assert re.search(r"^  bob at ", page, re.MULTILINE)


def test_a_name_from_slack_does_not_steer_the_terminal() -> None:
    given = [{"approval": "a1", "approver": "U024BE7LH", "kind": "Slack", "name": "A\u001b[2J\nnn\u202e", "at": at(30)}]
    page = plain(run_view(run(**{**AWAITING, "approval": {"needed": 2, "given": given}}), policy(), NOW))
    assert "  A [2J nn (U024BE7LH in Slack) at " in page


def test_a_page_says_where_people_are_told_and_where_that_fails() -> None:
    page = plain(run_view(run(**AWAITING, notifications=[FAILING, DELIVERED]), policy(), NOW))
    assert "Told in Slack: no, since 2026-12-01 21:01:00 UTC" in page
    assert ": chat.postMessage: not_in_channel: /invite @taintctl" in page
    assert "Told in the webhook: https://hooks.example.com, last 2026-12-01 21:02:00 UTC" in page
    assert "Told" not in plain(run_view(run(**AWAITING), policy(), NOW))


def test_explain_says_that_people_are_not_told() -> None:
    page = " ".join(plain(explain_run(run(**AWAITING, notifications=[FAILING, DELIVERED]), policy(), NOW)).split())
    assert "people are not told in Slack: chat.postMessage: not_in_channel: /invite @taintctl" in page
    assert "people are not told in Webhook" not in page


def named(*approvers: dict[str, str], **more: Any) -> EvictionPolicy:
    raw = {"metadata": {"name": "careful"}, "spec": {"approval": {"approvers": approvers, **more}}}
    checked = check(EvictionPolicy, raw)
    assert checked.obj is not None
    return checked.obj


def by(who: str) -> ApprovalSpec:
    author = ApprovalAuthor.model_validate({"name": who})
    return ApprovalSpec(run_name="r", digest="0" * 64, decision=ApprovalDecision.APPROVE, approver=author)


def test_whoever_the_policy_does_not_name_is_told_who_may() -> None:
    slack = {"kind": "Slack", "name": "U024BE7LH", "kubernetesUser": "ann"}
    with pytest.raises(Failure, match="counts what U024BE7LH in Slack decides, and you are ann"):
        _may(named(slack), by("ann"))
    _may(named(slack, {"name": "ann"}), by("ann"))
    _may(named(), by("anybody"))
    _may(None, by("anybody"))


def test_who_asked_is_told_before_anything_is_written() -> None:
    mine = run()
    with pytest.raises(Failure, match="you \\(olga\\) asked for run nightly-1"):
        _no_self_approval(mine, named(), by("olga"))
    _no_self_approval(mine, named(selfApproval=True), by("olga"))
    _no_self_approval(mine, named(), by("alice"))
    _no_self_approval(mine, None, by("olga"))
