"""Whether people were told of a run, which decides nothing; and who approved or denied, told once."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from taintctl.api.base import condition
from taintctl.api.plan import Problem
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import Notification
from taintctl.workflow import decide
from taintctl.workflow.model import Counted
from tests.workflow.builders import NOW, World, make_approval, make_plan, make_policy

SLACK = {"slack": {"channel": "C0123456789"}}
HOOK = {"webhook": {"url": "https://hooks.example.com/x"}}
DELIVERED = {"delivered_at": NOW}
FAILING = {"failing_since": NOW, "failures": 3, "error": "channel_not_found: invite the app."}


def entry(kind: str = "Slack", **changes: Any) -> Notification:
    target = "C0123456789" if kind == "Slack" else "https://hooks.example.com"
    return Notification.model_validate({"kind": kind, "target": target, **changes})


def asking(notifications: dict[str, Any], *entries: Notification, count: int = 1) -> World:
    policy = make_policy(approval={"required": "Always", "count": count}, notifications=notifications)
    world = World(policy=policy, plan=make_plan(["a", "b"])).until(Phase.AWAITING_APPROVAL)
    noted(world, *entries)
    world.settle()
    return world


def noted(world: World, *entries: Notification) -> None:
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"notifications": entries})})


def notified(world: World) -> tuple[str, str, str] | None:
    found = condition(world.status.conditions, "Notified")
    return (found.status, found.reason, found.message) if found is not None else None


@pytest.mark.parametrize(
    ("notifications", "entries", "said"),
    [
        ({}, (), None),
        ({}, (entry(**DELIVERED),), None),
        (SLACK, (), None),
        (SLACK, (entry(nonce="n"),), None),
        (SLACK, (entry(**DELIVERED),), ("True", "Notified", "Told in Slack (C0123456789).")),
        (SLACK | HOOK, (entry(**DELIVERED),), None),
        (
            SLACK | HOOK,
            (entry("Webhook", **DELIVERED), entry(**DELIVERED)),
            ("True", "Notified", "Told in Slack (C0123456789) and the webhook (https://hooks.example.com)."),
        ),
        (
            SLACK,
            (entry(**DELIVERED, **FAILING),),
            (
                "False",
                "NotifyFailed",
                "Slack: channel_not_found: invite the app; it is tried again, and taintctl approve night works all the "
                "same.",
            ),
        ),
        (
            SLACK | HOOK,
            (entry(**DELIVERED), entry("Webhook", failing_since=NOW, error="the receiver answered 500")),
            ("False", "NotifyFailed", "Webhook: the receiver answered 500; it is tried again."),
        ),
    ],
)
def test_the_condition_says_whether_those_were_told_whom_the_policy_wants_told(
    notifications: dict[str, Any], entries: tuple[Notification, ...], said: tuple[str, str, str] | None
) -> None:
    world = asking(notifications, *entries)
    assert notified(world) == said
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.status.notifications == entries


def test_a_run_that_waits_says_that_nobody_knows_of_it() -> None:
    world = asking(SLACK, entry(**FAILING))
    assert world.status.message.endswith("Nobody could be told in Slack: channel_not_found: invite the app.")
    noted(world, entry(ts="1.2", **FAILING))
    world.settle()
    assert "The message in Slack could not be kept up to date: channel_not_found" in world.status.message
    noted(world, entry(ts="1.2", **DELIVERED))
    world.settle()
    assert "Slack" not in world.status.message


def test_a_chat_that_fails_neither_approves_nor_stops_and_is_remembered_to_the_end() -> None:
    world = asking(SLACK, entry(**FAILING))
    world.approve().until(Phase.DRAINING)
    assert notified(world) == ("False", "NotifyFailed", "Slack: channel_not_found: invite the app; it is tried again.")
    world.spec(cancelled=True).until(Phase.CANCELLED)
    assert world.status.notifications == (entry(**FAILING),)


def test_without_a_policy_what_was_said_stays() -> None:
    world = asking(SLACK, entry(**DELIVERED))
    world.policy, world.policy_problem = None, Problem(Reason.POLICY_NOT_FOUND, "There is no EvictionPolicy.")
    world.settle()
    assert notified(world) == ("True", "Notified", "Told in Slack (C0123456789).")


def digest(world: World) -> str:
    approval = world.status.approval
    assert approval is not None
    assert approval.asked is not None
    return approval.asked.digest


def test_each_approval_is_told_once_when_it_counts() -> None:
    world = asking({}, count=2)
    plan = digest(world)
    world.approvals = (make_approval(plan, who="alice", comment="go on"),)
    (first,) = world.step().counted
    assert first == Counted("night-alice-approve", "Kubernetes", "alice", "alice", "Approve", plan, NOW, "go on")
    assert first.sentence == f"alice approved the plan {plan[:12]}."
    assert decide(world.observe(), world.now).counted == ()
    world.approvals = (*world.approvals, make_approval(plan, who="bob", breaks=True))
    (second,) = world.step().counted
    assert (second.approver, second.decision) == ("bob", "Break")
    assert second.sentence == f"bob approved, with Break, the plan {plan[:12]}."
    world.until(Phase.DRAINING)
    assert world.step().counted == ()


def test_a_denial_is_told_once() -> None:
    world = asking({})
    plan = digest(world)
    world.approvals = (make_approval(plan, who="carol", deny=True, comment="not tonight"),)
    told = [one for _ in range(6) for one in world.step().counted]
    assert [(one.approver, one.decision, one.comment) for one in told] == [("carol", "Deny", "not tonight")]
    assert told[0].sentence == f"carol denied the plan {plan[:12]}."
    assert world.phase is Phase.CANCELLED


def test_an_approval_that_does_not_count_is_not_told_as_one() -> None:
    world = asking({})
    world.approvals = (make_approval("0" * 64, who="alice"),)
    assert world.step().counted == ()


def test_an_end_for_another_reason_is_no_denial() -> None:
    world = asking({})
    world.spec(cancelled=True)
    assert [one for _ in range(6) for one in world.step().counted] == []
    assert world.phase is Phase.CANCELLED


def test_moves_of_one_moment_keep_their_order_in_the_history() -> None:
    world = asking({})
    times = [step.at for step in world.status.history]
    assert all(later - earlier >= timedelta(microseconds=1) for earlier, later in pairwise(times))
