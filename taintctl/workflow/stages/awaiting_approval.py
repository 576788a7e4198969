"""AwaitingApproval: people decide, or policy did already; and eviction never begins before the start."""

from __future__ import annotations

from dataclasses import replace

from taintctl.api.policy import OnExpiry
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.text import moment, some
from taintctl.workflow.follow import follow
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision, Event
from taintctl.workflow.next_step import on_approval
from taintctl.workflow.planning import (
    Refusal,
    Standing,
    ask_again,
    count,
    plan_stands,
    summary,
    with_plan,
    with_tally,
)
from taintctl.workflow.rounds import begin_dry_run
from taintctl.workflow.rules import main_rules
from taintctl.workflow.text import EVENT_MAX, short


def decide(look: Look) -> Decision:
    now = plan_stands(look)
    if isinstance(now, Refusal):
        return follow(look, now)
    look = with_tally(with_plan(look, now), now)
    fresh = look.fresh(look.status.dry_run.read_at)
    if not fresh:
        look = look.with_condition(
            ConditionType.DRY_RUN_FRESH, False, Reason.WAITING_FOR_DRY_RUN, "It is made again before the start."
        )
    if not now.approved:
        return _waiting(look, now)
    if not look.started:
        assert look.start is not None
        return look.stay(
            Reason.WAITING_FOR_START,
            f"{summary(now.plan)} may be evicted from {moment(look.start)} on.",
            requeue=min(look.until(look.start), look.freshness),
        )
    if not fresh:
        return begin_dry_run(look, Reason.WAITING_FOR_DRY_RUN, "The start has come; the dry run is made afresh.")
    rules = tuple(
        rule.model_copy(update={"effect": Effect.NO_SCHEDULE, "effect_since": None}) for rule in main_rules(look.status)
    )
    return look.with_status(rules=rules).go(
        Phase.NOTICE, Reason.NOTICE_GIVEN, "NoSchedule is set: nothing new comes to the devices."
    )


def _waiting(look: Look, now: Standing) -> Decision:
    approval = look.status.approval
    assert approval is not None
    expires = approval.expires_at
    if look.past(expires) and now.policy.spec.approval.on_expiry is OnExpiry.ASK_AGAIN:
        return _again(look, now)
    if look.past(expires):
        message = "Nobody approved in time; start another run, or give the policy a longer approval.expiresAfter."
        look = look.with_condition(ConditionType.APPROVED, False, Reason.APPROVAL_EXPIRED, message)
        return look.roll_back(Reason.APPROVAL_EXPIRED, Phase.CANCELLED, message)
    given = f", {some([g.who for g in approval.given])} approved" if approval.given else ""
    until = f" until {moment(min(expires, look.deadline))}" if expires is not None else ""
    message = f"{now.ask} needed for {summary(now.plan)}{given}; the run waits{until}."
    requeue = look.freshness if expires is None else min(look.until(expires), look.freshness)
    unverified = next((i for i in now.tally.ignored if i.reason is Reason.APPROVERS_UNVERIFIED), None)
    if unverified is not None:
        return look.stay(
            Reason.APPROVERS_UNVERIFIED,
            f"{message} Approval {unverified.approval} does not count: {unverified.message}",
            next_step="kubectl apply -k deploy/",
            requeue=requeue,
        )
    for one in now.tally.ignored:
        if one.reason in (Reason.SELF_APPROVAL, Reason.NOT_AN_APPROVER):
            message = f"{message} MaintenanceApproval {one.approval} does not count: {one.message}"
            break
    return look.stay(
        Reason.WAITING_FOR_APPROVAL, message, next_step=on_approval(now.unbroken, look.name), requeue=requeue
    )


def _again(look: Look, now: Standing) -> Decision:
    look = ask_again(look, now)
    look = with_tally(look, replace(now, tally=count(look, now.policy)))
    approval = look.status.approval
    assert approval is not None
    assert approval.expires_at is not None
    message = (
        f"Nobody approved in time, so it is asked again, until {moment(approval.expires_at)}: {now.ask} needed for "
        f"{summary(now.plan)}."
    )
    said = look.stay(
        Reason.WAITING_FOR_APPROVAL,
        message,
        next_step=on_approval(now.unbroken, look.name),
        requeue=look.until(approval.expires_at),
    )
    return replace(said, events=(Event("Normal", Reason.WAITING_FOR_APPROVAL, short(message, EVENT_MAX)),))
