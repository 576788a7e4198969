"""What becomes of a click in a chat: looked at against the live run, policy and approvals, and written as one
MaintenanceApproval. It counts nothing itself: the run's own gate tallies the approvals again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taintctl.api.approval import ApprovalDecision, MaintenanceApproval
from taintctl.api.base import API_VERSION, ObjectMeta
from taintctl.api.check import check
from taintctl.api.policy import ApproverKind, EvictionPolicy
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import ApprovalStatus, MaintenanceRun, RunSpec
from taintctl.api.target import Target
from taintctl.api.text import plural
from taintctl.impact import target_problems
from taintctl.policy import Tally, Terms, digest, objection, tally
from taintctl.ports.chat import Answer, Answered, Click, Details, RunView
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cluster
from taintctl.ports.errors import ClusterError, Conflict
from taintctl.reconcile.gather import Reader
from taintctl.workflow.model import Settings
from taintctl.workflow.planning import judged

log = logging.getLogger("taintctl.approval")

MAX_COMMENT = 1024
MAX_GROUPS = 100
BEFORE_THE_QUESTION = frozenset({None, Phase.PENDING, Phase.DRY_RUN, Phase.BLOCKED})
_ANSWERS = {
    Reason.SAME_APPROVER: Answered.REPEATED,
    Reason.APPROVAL_EXPIRED: Answered.EXPIRED,
    Reason.OTHER_PLAN: Answered.OTHER_PLAN,
}
"""What an approval that would not count is answered; else NOT_ALLOWED."""


class _Refused(Exception):
    def __init__(self, result: Answered, text: str) -> None:
        super().__init__(text)
        self.answer = Answer(result, text)


@dataclass(frozen=True)
class _Asked:
    """A question that is open now."""

    run: MaintenanceRun
    approval: ApprovalStatus
    approvals: tuple[MaintenanceApproval, ...]
    terms: Terms


@dataclass(frozen=True)
class ApprovalDesk:
    """ports.chat.Desk, on a cluster."""

    cluster: Cluster
    reader: Reader
    clock: Clock
    settings: Settings

    async def groups(self, run_name: str) -> Sequence[str]:
        try:
            run = await self._run(run_name)
            policy, _ = await self.reader.policy(run) if run is not None else (None, None)
        except Exception as error:  # a click is answered all the same: then as nobody's member
            log.warning("run %s: its policy's Slack groups can't be read: %s", run_name, _said(error))
            return ()
        approvers = policy.spec.approval.approvers if policy is not None else ()
        return tuple(dict.fromkeys(a.name for a in approvers if a.kind is ApproverKind.SLACK_GROUP))

    async def decide(self, click: Click) -> Answer:
        try:
            return await self._decide(click)
        except _Refused as refused:
            answer = refused.answer
        except ClusterError as error:
            answer = _failed(click, f"The cluster did not take or answer it ({error.message}).").answer
        except Exception:  # a chat must never take a run down, nor the other way round
            log.exception("run %s: an error of ours; a click is not counted", click.run_name)
            answer = _failed(click, "taintctl made an error of its own; its log says which.").answer
        log.info("run %s: a click of %s is not counted: %s", click.run_name, click.person.user_id, answer.text)
        return answer

    async def details(self, run_name: str, run_uid: str) -> Details | None:
        # Of a run that can't be read nothing is known but its name.
        metadata = ObjectMeta(name=run_name, uid=run_uid)
        spec = RunSpec(target=Target(driver="unknown"), deadline=self.clock.now())
        view = RunView(MaintenanceRun(metadata=metadata, spec=spec), None)
        try:
            run = await self._run(run_name)
            if run is None or run.metadata.uid != run_uid:
                return None
            view = RunView(run, None)
            return await self._details(run)
        except Exception as error:
            if not isinstance(error, ClusterError):
                log.exception("run %s: an error of ours; its plan is not shown", run_name)
            return Details(view, None, False, f"The plan can't be read now: {_said(error)}"[:500])

    async def _details(self, run: MaintenanceRun) -> Details:
        seen = await self.reader.observe(run, target_problems(run.spec.target), live=False)
        view = RunView(run, seen.policy)
        if seen.plan is None or seen.policy is None:
            problem = seen.plan_problem or seen.policy_problem
            return Details(view, None, False, problem.message if problem is not None else "There is no plan now.")
        found = judged(run, seen.plan, seen.policy, self.clock.now(), speed=self.settings.speed)
        now = digest(seen.plan, seen.policy, found.violations, run_uid=run.metadata.uid)
        approval = run.status.approval
        asked = approval.asked.digest if approval is not None and approval.asked is not None else ""
        if not asked:
            return Details(view, seen.plan, False, f"Run {run.name} asks about no plan now.")
        if now != asked:
            note = "The cluster has changed since: this is not to the last pod the plan that is asked about."
            return Details(view, seen.plan, False, note)
        return Details(view, seen.plan, True)

    async def _run(self, name: str) -> MaintenanceRun | None:
        raw = await self.cluster.get(MaintenanceRun, name)
        return check(MaintenanceRun, raw).obj if raw is not None else None

    async def _decide(self, click: Click) -> Answer:
        person = click.person
        if person.is_bot or person.deleted:
            who = "An app" if person.is_bot else "A deactivated account"
            raise _Refused(Answered.NOT_ALLOWED, f"{who} can't decide; a person has to.")
        asked = await self._asked(click)
        body = approval_of(click, asked.terms.policy, asked.approval.asked_at)
        checked = check(MaintenanceApproval, body)
        if checked.obj is None or checked.problems:
            raise _failed(click, f"Slack's answer about you can't be used ({checked.problems[0]}).")
        now = self.clock.now()
        approval = checked.obj.model_copy(
            update={"metadata": checked.obj.metadata.model_copy(update={"creation_timestamp": now})}
        )
        if any(one.name == approval.name for one in asked.approvals):
            raise _repeated(click)
        before = tally(asked.approvals, asked.terms)
        against = objection(approval, asked.approvals, asked.terms)
        # Of those who may not, nobody is told how the question stands.
        if against is not None and against.reason is not Reason.SAME_APPROVER:
            raise _Refused(_ANSWERS.get(against.reason, Answered.NOT_ALLOWED), against.message)
        _still_open(click, asked, before)
        if against is not None:
            raise _Refused(Answered.REPEATED, against.message)
        try:
            await self.cluster.create(MaintenanceApproval, body)
        except Conflict:
            raise _repeated(click) from None
        after = tally((*asked.approvals, approval), asked.terms)
        return Answer(Answered.RECORDED, _recorded(click, asked, after))

    async def _asked(self, click: Click) -> _Asked:
        """The open question that the click answers. Raises _Refused where it answers none."""
        name, now = click.run_name, self.clock.now()
        run = await self._run(name)
        if run is None or run.metadata.uid != click.run_uid:
            raise _Refused(Answered.GONE, f"Run {name} is gone; nothing was changed. See: taintctl status")
        _refuse_ended(run)
        _refuse_other_message(run, click)
        approval = run.status.approval
        if run.status.phase in BEFORE_THE_QUESTION or approval is None or approval.asked is None:
            raise _Refused(
                Answered.OTHER_PLAN,
                f"Run {name} is making its plan anew ({run.status.phase}), so this one is not asked about any more; "
                "wait for the message to change.",
            )
        if run.status.phase is not Phase.AWAITING_APPROVAL:
            raise _Refused(
                Answered.DECIDED,
                f"Run {name} is past the question ({run.status.phase}); to stop it: taintctl cancel {name}",
            )
        if approval.needed == 0:
            raise _Refused(Answered.DECIDED, f"Run {name} needs no approval; to stop it: taintctl cancel {name}")
        if min(approval.expires_at or run.spec.deadline, run.spec.deadline) <= now:
            raise _Refused(
                Answered.EXPIRED, f"The time to approve run {name} has run out; nothing was changed. Start another run."
            )
        if click.digest != approval.asked.digest:
            raise _Refused(
                Answered.OTHER_PLAN,
                f"The plan of run {name} has changed since that message, and nothing was decided; look at the plan as "
                "it is now and decide again.",
            )
        policy, problem = await self.reader.policy(run)
        if policy is None:
            raise _failed(click, problem.message if problem is not None else "There is no policy.")
        approvals, verified, unread = await self.reader.approvals(run)
        if unread is not None:
            raise _failed(click, unread.message)
        terms = Terms(
            approval.asked,
            policy,
            verified_since=verified,
            allow_unverified=self.settings.allow_unverified_approvals,
            asked_at=approval.asked_at,
            expires_at=approval.expires_at,
            requested_by=run.spec.requested_by,
        )
        return _Asked(run, approval, approvals, terms)


def approval_of(click: Click, policy: EvictionPolicy, asked_at: datetime | None) -> dict[str, Any]:
    """The MaintenanceApproval. Its name follows from what it says and when that was asked: saying it twice is saying it
    once, and a question that is asked again can be answered again."""
    person, asked = click.person, asked_at.isoformat() if asked_at is not None else ""
    parts = (click.run_uid, person.team_id, person.user_id, str(click.decision), click.digest, asked)
    said = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    wanted = {a.name for a in policy.spec.approval.approvers if a.kind is ApproverKind.SLACK_GROUP}
    slack: dict[str, Any] = {
        "team": person.team_id,
        "groups": sorted(wanted & person.groups)[:MAX_GROUPS],
        "channel": click.message.channel,
        "ts": click.message.ts,
    }
    if person.name:
        slack["displayName"] = person.name[:256]
    if person.email and len(person.email) <= 256:
        slack["email"] = person.email
    spec: dict[str, Any] = {
        "runName": click.run_name,
        "digest": click.digest,
        "decision": str(click.decision),
        "approver": {"kind": str(ApproverKind.SLACK), "name": person.user_id},
        "slack": slack,
    }
    if click.comment.strip():
        spec["comment"] = click.comment.strip()[:MAX_COMMENT]
    name = f"{click.run_name[:215].rstrip('-.')}-{click.decision.lower()}-slack-{said}"
    return {"apiVersion": API_VERSION, "kind": MaintenanceApproval.KIND, "metadata": {"name": name}, "spec": spec}


def _refuse_ended(run: MaintenanceRun) -> None:
    status = run.status
    leaving = status.phase in (Phase.ROLLING_BACK, Phase.RELEASING)
    if not (leaving or (status.phase is not None and status.phase.ended)):
        return
    reason = status.ending.reason if status.ending is not None else status.reason
    if reason == Reason.DENIED:
        raise _Refused(Answered.DECIDED, f"Run {run.name} was denied already; nothing is evicted by it.")
    if reason in (Reason.APPROVAL_EXPIRED, Reason.DEADLINE_PASSED):
        text = f"The time to approve run {run.name} has run out, and it has ended; start another run."
        raise _Refused(Answered.EXPIRED, text)
    raise _Refused(
        Answered.DECIDED, f"Run {run.name} has ended ({status.phase}, {reason}); there is nothing to decide."
    )


def _refuse_other_message(run: MaintenanceRun, click: Click) -> None:
    entry = next((one for one in run.status.notifications if one.kind == "Slack"), None)
    if entry is not None and entry.ts == "" and entry.nonce:
        text = f"taintctl is still finding its messages of run {run.name}; click again in a minute."
        raise _Refused(Answered.FAILED, text)
    if entry is None or (entry.channel, entry.ts) != (click.message.channel, click.message.ts):
        text = f"Another message stands for run {run.name} now, and this one decides nothing; use that one."
        raise _Refused(Answered.SUPERSEDED, text)


def _still_open(click: Click, asked: _Asked, before: Tally) -> None:
    if before.denied is not None:
        raise _Refused(Answered.DECIDED, f"{before.denied.who} has denied run {click.run_name} already.")
    unbroken = asked.approval.break_needed and not before.broken
    if click.decision is not ApprovalDecision.DENY and before.complete(asked.approval.needed) and not unbroken:
        raise _Refused(
            Answered.DECIDED, f"Run {click.run_name} has its approvals; to stop it, deny it or cancel it with taintctl."
        )


def _recorded(click: Click, asked: _Asked, after: Tally) -> str:
    if click.decision is ApprovalDecision.DENY:
        return f"You denied run {click.run_name}: it is cancelled, and nothing is evicted by it."
    missing = asked.approval.needed - len(after.given)
    said = f"You approved run {click.run_name} for the plan shown."
    if missing > 0:
        return f"{said} {plural(missing, 'more person', 'more people')} must approve."
    if asked.approval.break_needed and not after.broken:
        return f"{said} The policy protects pods of this plan: somebody has to give a Break."
    start = asked.run.spec.start_at
    return f"{said} It goes on " + ("at its start." if start is not None else "now, after one more look.")


def _repeated(click: Click) -> _Refused:
    return _Refused(Answered.REPEATED, f"You said that already of run {click.run_name}; once is enough.")


def _failed(click: Click, why: str) -> _Refused:
    verb = "deny" if click.decision is ApprovalDecision.DENY else "approve"
    text = f"{why} Nothing was decided; try again, or use: taintctl {verb} {click.run_name}"
    return _Refused(Answered.FAILED, text)


def _said(error: Exception) -> str:
    return error.message if isinstance(error, ClusterError) else "an error of taintctl's own; its log says which"
