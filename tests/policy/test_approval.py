"""How many must approve, and whose approvals count."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from taintctl.api.approval import ApprovalDecision, MaintenanceApproval
from taintctl.api.policy import BUILT_IN_POLICY, EvictionPolicy
from taintctl.api.reasons import PodEffect, Reason
from taintctl.policy import Tally, Terms, compact, people_needed, tally
from tests.policy.plans import NOW, approval, device, plan, pod, policy

PLAN = plan(pod("a"), pod("b", namespace="team-b"), pod("t", PodEffect.TOLERATES, namespace="team-t"), published=4)
ASKED = compact(PLAN, policy())
OTHER = "0" * 64
DENY = ApprovalDecision.DENY
BREAK = ApprovalDecision.BREAK


@pytest.mark.parametrize(
    ("spec", "people"),
    [
        ({}, 1),
        ({"approval": {"count": 3}}, 3),
        ({"approval": {"required": "Never", "count": 3}}, 0),
        ({"approval": {"required": "Always", "count": 2}, "autoApprove": {"maxPods": 100}}, 2),
        ({"autoApprove": {"maxPods": 2}}, 0),
        ({"autoApprove": {"maxPods": 1}}, 1),
        ({"autoApprove": {"maxPods": 2, "maxNamespaces": 2, "maxDevices": 1}}, 0),
        ({"autoApprove": {"maxPods": 2, "maxNamespaces": 1, "maxDevices": 1}}, 1),
        ({"autoApprove": {"maxNamespaces": 2}}, 0),
        ({"autoApprove": {"maxDevices": 0}}, 1),
        ({"autoApprove": {"maxWorkloads": 2}}, 0),
        ({"autoApprove": {"maxPods": 2, "maxWorkloads": 1}}, 1),
        ({"autoApprove": {"maxPods": 1}, "approval": {"count": 2}}, 2),
        # One of the four published devices, and none is out elsewhere: 25% of 4 is 1, and 10% comes to min.
        ({"autoApprove": {"maxDevices": "25%", "maxUnavailable": "25%"}}, 0),
        ({"autoApprove": {"maxDevices": "10%"}}, 0),
        ({"autoApprove": {"maxDevices": "10%", "min": 0}}, 1),
        ({"autoApprove": {"maxUnavailable": 0}}, 1),
        ({"autoApprove": {"min": 5}}, 1),
    ],
)
def test_how_many_people_must_approve(spec: dict[str, Any], people: int) -> None:
    assert people_needed(PLAN, policy(**spec)) == people


def test_the_built_in_policy_asks_even_for_a_plan_that_hits_nobody() -> None:
    assert people_needed(plan(devices=()), BUILT_IN_POLICY) == 1
    assert people_needed(plan(devices=(device("gpu-0"),)), BUILT_IN_POLICY) == 1
    assert people_needed(plan(devices=()), policy(autoApprove={"maxPods": 0})) == 0


EVER = NOW - timedelta(days=1)


def count(
    *approvals: MaintenanceApproval,
    by: EvictionPolicy | None = None,
    verified: bool = True,
    allow: bool = False,
    requested_by: str | None = None,
) -> Tally:
    return tally(
        approvals,
        Terms(
            ASKED,
            by or policy(),
            verified_since=EVER if verified else None,
            allow_unverified=allow,
            asked_at=NOW,
            expires_at=NOW + timedelta(minutes=30),
            requested_by=requested_by,
        ),
    )


def ok(name: str, who: str, **how: Any) -> MaintenanceApproval:
    return approval(name, who, ASKED.digest, **how)


def reasons(found: Tally) -> list[tuple[str, Reason]]:
    return [(i.approval, i.reason) for i in found.ignored]


def test_an_approval_of_the_asked_plan_counts() -> None:
    found = count(ok("one", "alice", comment="go on"))
    assert [(g.approval, g.approver, g.at, g.comment) for g in found.given] == [("one", "alice", NOW, "go on")]
    assert (found.denied, found.ignored) == (None, ())
    assert found.complete(1)
    assert not found.complete(2)


def test_nobody_is_needed_where_none_is() -> None:
    assert count().complete(0)
    assert not count().complete(1)


def test_it_takes_different_people() -> None:
    found = count(ok("one", "alice"), ok("two", "alice"), ok("three", "bob"))
    assert [g.approver for g in found.given] == ["alice", "bob"]
    assert reasons(found) == [("two", Reason.SAME_APPROVER)]
    assert found.complete(2)


def test_an_approval_of_another_plan_does_not_count() -> None:
    found = count(approval("one", "alice", OTHER))
    assert (found.given, reasons(found)) == ((), [("one", Reason.OTHER_PLAN)])


def test_an_approval_from_before_the_asking_is_of_an_earlier_run() -> None:
    found = count(ok("one", "alice", at=NOW - timedelta(minutes=1)))
    assert (found.given, reasons(found)) == ((), [("one", Reason.OTHER_PLAN)])
    assert count(ok("one", "alice", at=NOW - timedelta(seconds=5))).complete(1)
    assert count(ok("one", "alice", at=None)).complete(1)
    never_asked = tally(
        [ok("one", "alice")],
        Terms(
            ASKED,
            policy(),
            verified_since=EVER,
            allow_unverified=False,
            asked_at=None,
            expires_at=None,
        ),
    )
    assert never_asked.complete(1)


def test_an_approval_that_came_after_the_expiry_does_not_count_and_a_denial_does() -> None:
    late = NOW + timedelta(minutes=30, seconds=6)
    found = count(ok("one", "alice", at=late))
    assert (found.given, reasons(found)) == ((), [("one", Reason.APPROVAL_EXPIRED)])
    assert count(ok("one", "alice", at=NOW + timedelta(minutes=30))).complete(1)
    assert count(ok("one", "alice", at=late, decision=DENY)).denied is not None


def test_what_other_runs_keep_out_is_asked_about() -> None:
    given = plan(pod("a"), published=8, elsewhere=2)
    assert people_needed(given, policy(autoApprove={"maxUnavailable": 3})) == 0
    assert people_needed(given, policy(autoApprove={"maxUnavailable": "25%"})) == 1  # 2 of 8, and 3 are out with it


def test_who_asked_for_the_run_does_not_approve_it_unless_the_policy_lets_them() -> None:
    for decision in (ApprovalDecision.APPROVE, BREAK):
        found = count(ok("one", "olga", decision=decision), ok("two", "alice"), requested_by="olga")
        assert [g.approver for g in found.given] == ["alice"]
        assert reasons(found) == [("one", Reason.SELF_APPROVAL)]
        assert "olga asked for the run and EvictionPolicy gpus has no approval.selfApproval" in found.ignored[0].message
    alone = policy(approval={"selfApproval": True})
    assert count(ok("one", "olga"), by=alone, requested_by="olga").complete(1)
    assert count(ok("one", "olga"), requested_by=None).complete(1)


def test_who_asked_for_the_run_may_deny_it() -> None:
    assert count(ok("one", "olga", decision=DENY), requested_by="olga").denied is not None


def test_a_break_is_an_approval_and_lets_protected_pods_go() -> None:
    found = count(ok("one", "alice"), ok("two", "bob", decision=BREAK))
    assert found.complete(2)
    assert found.broken == ("bob",)
    assert count(ok("one", "alice")).broken == ()


def test_of_one_person_s_approve_and_break_the_break_counts() -> None:
    for first, second in ((ApprovalDecision.APPROVE, BREAK), (BREAK, ApprovalDecision.APPROVE)):
        found = count(
            ok("one", "alice", decision=first), ok("two", "alice", decision=second, at=NOW + timedelta(minutes=1))
        )
        assert (found.broken, found.complete(1), found.complete(2)) == (("alice",), True, False)


def test_a_break_counts_by_the_same_rules_as_an_approval() -> None:
    named = policy(approval={"approvers": [{"name": "alice"}]})
    for found, reason in (
        (count(ok("one", "mallory", decision=BREAK), by=named), Reason.NOT_AN_APPROVER),
        (count(ok("one", "alice", decision=BREAK), verified=False), Reason.APPROVERS_UNVERIFIED),
        (count(approval("one", "alice", OTHER, decision=BREAK)), Reason.OTHER_PLAN),
        (count(ok("one", "alice", decision=BREAK, at=NOW - timedelta(minutes=1))), Reason.OTHER_PLAN),
        (count(ok("one", "alice", decision=BREAK, at=NOW + timedelta(hours=1))), Reason.APPROVAL_EXPIRED),
    ):
        assert (found.given, found.broken) == ((), ())
        assert reasons(found) == [("one", reason)]


def test_only_approvers_count_where_the_policy_names_them() -> None:
    named = policy(approval={"approvers": [{"name": "alice"}, {"name": "bob"}]})
    found = count(ok("one", "mallory"), ok("two", "bob"), by=named)
    assert [g.approver for g in found.given] == ["bob"]
    assert reasons(found) == [("one", Reason.NOT_AN_APPROVER)]
    assert "mallory is not among the approvers of EvictionPolicy gpus" in found.ignored[0].message


def test_unverified_approvals_count_only_where_that_was_waived() -> None:
    found = count(ok("one", "alice"), verified=False)
    assert (found.given, reasons(found)) == ((), [("one", Reason.APPROVERS_UNVERIFIED)])
    assert count(ok("one", "alice"), verified=False, allow=True).complete(1)


def test_an_approval_that_was_written_before_the_cluster_proved_who_writes_does_not_count() -> None:
    """Whoever forged one while the admission policy was not there must not have it count once it is."""
    early = ok("one", "alice")

    def since(moment: datetime) -> Tally:
        return tally(
            [early],
            Terms(
                ASKED,
                policy(),
                verified_since=moment,
                allow_unverified=False,
                asked_at=NOW,
                expires_at=None,
            ),
        )

    assert reasons(since(NOW + timedelta(seconds=1))) == [("one", Reason.APPROVERS_UNVERIFIED)]
    assert since(NOW).complete(1)


def test_one_deny_wins_over_any_number_of_approvals() -> None:
    found = count(ok("one", "alice"), ok("two", "bob"), ok("three", "carol", decision=DENY, comment="not tonight"))
    assert found.denied is not None
    assert (found.denied.approver, found.denied.comment) == ("carol", "not tonight")
    assert not found.complete(1)
    assert not found.complete(0)


def test_the_first_deny_is_told() -> None:
    found = count(
        ok("b", "bob", decision=DENY, at=NOW + timedelta(seconds=2)),
        ok("a", "alice", decision=DENY, at=NOW + timedelta(seconds=1)),
    )
    assert found.denied is not None
    assert found.denied.approver == "alice"


def test_a_deny_counts_unverified_and_for_a_plan_that_changed_while_it_was_read() -> None:
    assert count(ok("one", "alice", decision=DENY), verified=False).denied is not None
    assert count(approval("one", "alice", OTHER, decision=DENY)).denied is not None


def test_a_deny_by_somebody_who_may_not_or_of_an_earlier_run_stops_nothing() -> None:
    named = policy(approval={"approvers": [{"name": "alice"}]})
    outsider = count(ok("one", "mallory", decision=DENY), by=named)
    assert (outsider.denied, reasons(outsider)) == (None, [("one", Reason.NOT_AN_APPROVER)])
    earlier = count(ok("one", "alice", decision=DENY, at=NOW - timedelta(hours=1)))
    assert (earlier.denied, reasons(earlier)) == (None, [("one", Reason.OTHER_PLAN)])


def test_what_does_not_count_is_bounded() -> None:
    assert len(count(*(approval(f"a{i:03}", "alice", OTHER) for i in range(100))).ignored) == 20


def test_the_order_in_which_approvals_come_does_not_matter() -> None:
    late, early = ok("a", "alice", at=NOW + timedelta(seconds=9)), ok("z", "alice", at=NOW)
    assert count(late, early) == count(early, late)
    assert [g.approval for g in count(late, early).given] == ["z"]
