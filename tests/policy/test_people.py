"""Who may approve in Slack, who is the same person, and who asked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.approval import ApprovalAuthor, ApprovalDecision, ApprovalSpec, MaintenanceApproval, SlackIdentity
from taintctl.api.base import ObjectMeta
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Reason
from taintctl.policy import Tally, Terms, compact, objection, tally
from tests.policy.plans import NOW, approval, plan, pod, policy

ASKED = compact(plan(pod("a")), policy())
ANN, BEN, GROUP = "U024BE7LH", "U0614BEN1", "S0614TZR7"
TERMS: dict[str, Any] = {
    "verified_since": NOW - timedelta(days=1),
    "allow_unverified": False,
    "asked_at": NOW,
    "expires_at": NOW + timedelta(minutes=30),
}


def said(
    name: str,
    who: str = ANN,
    *,
    mail: str | None = None,
    groups: tuple[str, ...] = (),
    decision: ApprovalDecision = ApprovalDecision.APPROVE,
    display: str | None = "Ann",
) -> MaintenanceApproval:
    """What the controller writes for a click in Slack."""
    slack = SlackIdentity(team="T024BE7LD", display_name=display, email=mail, groups=groups, channel="C1", ts="1.2")
    return MaintenanceApproval(
        metadata=ObjectMeta(name=name, creation_timestamp=NOW),
        spec=ApprovalSpec(
            run_name="run",
            digest=ASKED.digest,
            decision=decision,
            approver=ApprovalAuthor.model_validate({"kind": "Slack", "name": who}),
            slack=slack,
        ),
    )


def by(*approvers: dict[str, str], **more: Any) -> EvictionPolicy:
    return policy(approval={"approvers": list(approvers), **more})


def count(*approvals: MaintenanceApproval, by: EvictionPolicy, requested_by: str | None = None) -> Tally:
    return tally(approvals, Terms(ASKED, by, requested_by=requested_by, **TERMS))


def reasons(found: Tally) -> list[Reason]:
    return [i.reason for i in found.ignored]


SLACK_ANN = {"kind": "Slack", "name": ANN}
MAIL_ANN = {"kind": "Email", "name": "Ann@Example.com"}


@pytest.mark.parametrize(
    ("entry", "click"),
    [
        (SLACK_ANN, said("one")),
        ({"kind": "SlackGroup", "name": GROUP}, said("one", groups=("S0000000A", GROUP))),
        (MAIL_ANN, said("one", mail="ann@example.COM")),
    ],
)
def test_an_approval_in_slack_counts_where_the_policy_names_the_person(
    entry: dict[str, str], click: MaintenanceApproval
) -> None:
    found = count(click, by=by({"name": "bob"}, entry))
    assert [(g.approver, g.kind, g.name, g.who) for g in found.given] == [
        (ANN, "Slack", "Ann", "Ann (U024BE7LH in Slack)")
    ]


@pytest.mark.parametrize(
    ("entry", "click"),
    [
        ({"kind": "Slack", "name": BEN}, said("one")),
        ({"kind": "SlackGroup", "name": GROUP}, said("one", groups=("S0000000A",))),
        (MAIL_ANN, said("one", mail="ann@example.com.evil.example")),
        (MAIL_ANN, said("one")),
        # A Kubernetes user who happens to have the same name is somebody else.
        ({"name": ANN}, said("one")),
    ],
)
def test_whoever_the_policy_does_not_name_decides_nothing(entry: dict[str, str], click: MaintenanceApproval) -> None:
    denial = click.model_copy(update={"spec": click.spec.model_copy(update={"decision": ApprovalDecision.DENY})})
    for one in (click, denial):
        found = count(one, by=by(entry))
        assert (found.given, found.denied, reasons(found)) == ((), None, [Reason.NOT_AN_APPROVER])
        assert found.ignored[0].message.startswith("Ann (U024BE7LH in Slack) is not among the approvers")


def test_where_nobody_is_named_nobody_approves_in_slack() -> None:
    found = count(said("one"), said("two", decision=ApprovalDecision.DENY), approval("k", "bob", ASKED.digest), by=by())
    assert [g.approver for g in found.given] == ["bob"]
    assert found.denied is None
    assert reasons(found) == [Reason.NOT_AN_APPROVER] * 2
    assert "names no approvers, so nobody approves in Slack; use taintctl approve run" in found.ignored[0].message


def test_a_kubernetes_user_with_a_slack_id_for_a_name_is_not_that_person() -> None:
    found = count(approval("k", ANN, ASKED.digest), by=by(SLACK_ANN))
    assert reasons(found) == [Reason.NOT_AN_APPROVER]


def test_a_denial_in_slack_counts() -> None:
    found = count(said("one", decision=ApprovalDecision.DENY), by=by(SLACK_ANN))
    assert found.denied is not None
    assert found.denied.who == "Ann (U024BE7LH in Slack)"


@pytest.mark.parametrize(
    ("policy", "click", "user"),
    [
        (by({"name": "alice"}, {**SLACK_ANN, "kubernetesUser": "alice"}), said("one"), "alice"),
        (by({"name": "ann@example.com"}, SLACK_ANN), said("one", mail="Ann@example.com"), "ann@example.com"),
        (by({"name": "alice"}, {**MAIL_ANN, "kubernetesUser": "alice"}), said("one", mail="ann@example.com"), "alice"),
    ],
)
def test_one_person_counts_once_in_slack_and_in_kubernetes(
    policy: EvictionPolicy, click: MaintenanceApproval, user: str
) -> None:
    found = count(click, approval("two", user, ASKED.digest), by=policy)
    assert len(found.given) == 1
    assert reasons(found) == [Reason.SAME_APPROVER]
    assert found.ignored[0].message == (
        f"{user} has approved already, as Ann (U024BE7LH in Slack); another person has to."
    )


def test_two_that_a_third_shows_to_be_one_person_count_once() -> None:
    """Two Slack accounts, each known as the Kubernetes user alice."""
    two = by({**SLACK_ANN, "kubernetesUser": "alice"}, {"kind": "Slack", "name": BEN, "kubernetesUser": "alice"})
    assert len(count(said("one"), said("two", BEN), by=two).given) == 1
    mails = by(SLACK_ANN, {"name": "a@x.io"}, {"kind": "Slack", "name": BEN, "kubernetesUser": "a@x.io"})
    found = count(said("one", mail="a@x.io"), said("two", BEN), approval("three", "a@x.io", ASKED.digest), by=mails)
    assert len(found.given) == 1


def test_different_people_in_slack_and_in_kubernetes_count_each() -> None:
    both = by(SLACK_ANN, {"kind": "Slack", "name": BEN}, {"name": "bob"})
    assert count(said("one"), said("two", BEN), approval("k", "bob", ASKED.digest), by=both).complete(3)


@pytest.mark.parametrize(
    ("entry", "click", "asked"),
    [
        ({**SLACK_ANN, "kubernetesUser": "alice"}, said("one"), "alice"),
        ({**MAIL_ANN, "kubernetesUser": "alice"}, said("one", mail="ann@example.com"), "alice"),
        (SLACK_ANN, said("one", mail="ann@example.com"), "Ann@Example.com"),
    ],
)
def test_who_asked_does_not_approve_in_slack(entry: dict[str, str], click: MaintenanceApproval, asked: str) -> None:
    found = count(click, by=by(entry), requested_by=asked)
    assert (found.given, reasons(found)) == ((), [Reason.SELF_APPROVAL])
    assert "asked for the run" in found.ignored[0].message
    assert count(click, by=by(entry, selfApproval=True), requested_by=asked).complete(1)


@pytest.mark.parametrize(
    ("entry", "click", "asked"),
    [
        (SLACK_ANN, said("one", mail="ann@example.com"), "alice"),
        ({"kind": "SlackGroup", "name": GROUP}, said("one", groups=(GROUP,)), "alice"),
        # Slack told no address.
        (SLACK_ANN, said("one"), "ann@example.com"),
        (SLACK_ANN, said("one", mail="ann@example.com"), "oidc:ann@example.com"),
    ],
)
def test_who_can_not_be_told_from_the_one_who_asked_does_not_count(
    entry: dict[str, str], click: MaintenanceApproval, asked: str
) -> None:
    found = count(click, by=by(entry), requested_by=asked)
    assert (found.given, reasons(found)) == ((), [Reason.SELF_APPROVAL])
    sentence = found.ignored[0].message
    assert sentence.startswith(f"Nothing tells whether Ann (U024BE7LH in Slack) is {asked}, who asked for the run")
    assert "kubernetesUser" in sentence
    assert "approval.selfApproval: true" in sentence
    assert count(click, by=by(entry, selfApproval=True), requested_by=asked).complete(1)


@pytest.mark.parametrize(
    ("entry", "click", "asked"),
    [
        ({**SLACK_ANN, "kubernetesUser": "alice"}, said("one"), "olga"),
        (SLACK_ANN, said("one", mail="ann@example.com"), "olga@example.com"),
        (SLACK_ANN, said("one"), "system:serviceaccount:ci:nightly"),
        (SLACK_ANN, said("one"), None),
    ],
)
def test_who_is_somebody_else_than_asked_counts(
    entry: dict[str, str], click: MaintenanceApproval, asked: str | None
) -> None:
    assert count(click, by=by(entry), requested_by=asked).complete(1)


def test_a_name_from_slack_is_one_short_line() -> None:
    found = count(said("one", display="Ann\n\u202e" + "n" * 200), by=by(SLACK_ANN))
    assert found.given[0].who == f"Ann {'n' * 60} (U024BE7LH in Slack)"
    nameless = count(said("one", display=None), by=by(SLACK_ANN))
    assert nameless.given[0].who == "U024BE7LH in Slack"


def test_what_would_not_count_is_told_before_it_is_written() -> None:
    named, click = by(SLACK_ANN, {"name": "bob"}), said("one")
    assert objection(click, (), Terms(ASKED, named, **TERMS)) is None
    mine = objection(click, (said("earlier"),), Terms(ASKED, named, **TERMS))
    assert mine is not None
    assert mine.reason is Reason.SAME_APPROVER
    crowd = tuple(approval(f"x{i}", "mallory", ASKED.digest) for i in range(30))
    stranger = objection(said("two", BEN), crowd, Terms(ASKED, named, **TERMS))
    assert stranger is not None
    assert (stranger.approval, stranger.reason) == ("two", Reason.NOT_AN_APPROVER)
