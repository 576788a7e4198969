"""What is looked at before the stage: hands laid on the run or its rules, and the deadline."""

from __future__ import annotations

from dataclasses import dataclass

from taintctl.api.policy import RollbackFailure
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.text import moment, plural, some
from taintctl.workflow.look import AT_ONCE, Look, without_no_execute
from taintctl.workflow.model import Decision, Event
from taintctl.workflow.rounds import begin_dry_run, new_dry_run
from taintctl.workflow.rules import TAKING_OFF, main_rules

HELD = frozenset({Reason.PAUSED, Reason.WAITING_FOR_RELEASE, Reason.INVALID_SPEC, Reason.UNKNOWN_FIELD})
"""Reasons with which a run is held before maintenance; when they are gone it goes on with a new dry run."""


@dataclass(frozen=True)
class Hold:
    """No further step, and nothing evicts."""

    reason: Reason
    held: str
    """One sentence on why."""
    then: str
    """What that means, once no rule evicts any more."""
    next_step: str

    @property
    def message(self) -> str:
        return f"{self.held} {self.then}".strip()


def interrupt(look: Look) -> Decision | None:
    """None: the stage decides. In this order: deletion, cancellation, edits by hand, the deadline, a bad spec, a pause,
    and the end of one. In maintenance only the holds are here; the stage answers to the rest."""
    phase, run = look.phase, look.obs.run
    if phase is None:
        return look.go(Phase.PENDING, Reason.CREATED, "The run has been seen.")
    if phase in TAKING_OFF:
        return None
    if phase is not Phase.IN_MAINTENANCE:
        if run.metadata.deletion_timestamp is not None:
            return _end(look, Reason.DELETED, Phase.CANCELLED, "The run is deleted.")
        if run.spec.cancelled:
            return _cancelled(look)
        if look.edit is not None and phase is not Phase.PENDING:
            return _end(look, look.edit.reason, Phase.FAILED, look.edit.message)
        if run.spec.deadline <= look.now:
            return _deadline(look)
        if look.obs.problems and phase is Phase.PENDING:
            return _refused(look)
    hold = hold_of(look)
    if hold is not None:
        return _held(look, hold)
    if look.status.reason in HELD and phase not in (Phase.PENDING, Phase.IN_MAINTENANCE):
        return _resume(look)
    return None


def hold_of(look: Look) -> Hold | None:
    """Why the run is held, if it is."""
    run, problems = look.obs.run, look.obs.problems
    if look.phase is None or look.phase in TAKING_OFF:
        return None
    if problems:
        return Hold(
            problems[0].reason,
            f"The run can't be trusted as it is, so it is held: {some([str(p) for p in problems])}.",
            "",
            f"kubectl edit maintenancerun {look.name}",
        )
    if run.spec.cancelled and look.phase is not Phase.IN_MAINTENANCE:
        return Hold(
            Reason.WAITING_FOR_RELEASE,
            "The run was cancelled and its policy keeps the taint (rollbackOn has no Cancelled).",
            "Nothing is evicted, and NoSchedule stays until somebody releases.",
            f"taintctl release {look.name}",
        )
    if run.spec.paused:
        return Hold(Reason.PAUSED, "The run is paused.", "Nothing is evicted.", f"taintctl resume {look.name}")
    return None


def _held(look: Look, hold: Hold) -> Decision:
    """ "Nothing is evicted" is said once no rule evicts any more."""
    evicting = [r.metadata.name for r in look.obs.rules if r.spec.taint.effect == Effect.NO_EXECUTE]
    message, requeue = hold.message, look.scaled(look.obs.settings.idle_check)
    if evicting and look.phase is not Phase.IN_MAINTENANCE:
        message = f"{hold.held} {plural(len(evicting), 'rule')} that evict{'s' if len(evicting) == 1 else ''} "
        message += f"{'is' if len(evicting) == 1 else 'are'} being taken back: {some(evicting)}."
        requeue = look.poll
    return without_no_execute(look).stay(hold.reason, message, next_step=hold.next_step, requeue=requeue)


def _end(look: Look, reason: Reason, end: Phase, message: str) -> Decision:
    """Straight to the end where no rule was ever made, else the rules come off first."""
    if look.phase is Phase.PENDING and not look.obs.rules:
        return look.go(end, reason, message)
    return look.roll_back(reason, end, message)


def _cancelled(look: Look) -> Decision | None:
    tainted = any(rule.effect is not Effect.NONE for rule in main_rules(look.status))
    unsure = look.obs.policy is None and look.unreadable is not None
    if not tainted or (look.rolls_back_on(RollbackFailure.CANCELLED) and not unsure):
        return _end(look, Reason.CANCELLED, Phase.CANCELLED, "The run was cancelled.")
    if look.obs.run.spec.released:
        message = "The run was cancelled, and released by hand."
        return look.roll_back(Reason.RELEASED, Phase.CANCELLED, message, ending=Reason.CANCELLED)
    hold = hold_of(look)
    assert hold is not None
    return _held(look, hold)


def _deadline(look: Look) -> Decision:
    begun = look.phase in (Phase.EVICTING, Phase.DRAINING)
    message = f"The deadline {moment(look.obs.run.spec.deadline)} passed before the devices were in maintenance."
    return _end(look, Reason.DEADLINE_PASSED, Phase.FAILED if begun else Phase.EXPIRED, message)


def _refused(look: Look) -> Decision:
    problems = look.obs.problems
    message = f"{some([str(p) for p in problems])}. Nothing was done; start a corrected run."
    look = look.with_condition(ConditionType.ACCEPTED, False, problems[0].reason, message)
    return _end(look, problems[0].reason, Phase.FAILED, message)


def _resume(look: Look) -> Decision:
    message = "The run goes on: dry run, policy and approval are looked at again."
    if look.phase is not Phase.DRY_RUN:
        return begin_dry_run(look, Reason.RESUMED, message)
    decision = new_dry_run(look, attempts=0).stay(Reason.WAITING_FOR_DRY_RUN, message, requeue=AT_ONCE)
    event = Event("Normal", Reason.RESUMED, message)
    return Decision(decision.status, decision.actions, (event,), decision.requeue_after)
