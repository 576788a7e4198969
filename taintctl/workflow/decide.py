"""What happens next: one decision on one run, from one observation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from taintctl.api.base import FINALIZER
from taintctl.api.reasons import Phase
from taintctl.workflow.audit import counted
from taintctl.workflow.interrupts import hold_of, interrupt
from taintctl.workflow.look import Look, without_no_execute
from taintctl.workflow.model import Action, AddFinalizer, Decision, Observation
from taintctl.workflow.notified import with_notified
from taintctl.workflow.rules import bring_about, observe
from taintctl.workflow.stages import (
    awaiting_approval,
    blocked,
    draining,
    dry_run,
    ended,
    evicting,
    in_maintenance,
    notice,
    pending,
    releasing,
    rolling_back,
)
from taintctl.workflow.text import MESSAGE_MAX, short
from taintctl.workflow.transitions import BEFORE_EVICTION

Stage = Callable[[Look], Decision]

STAGES: Mapping[Phase, Stage] = MappingProxyType(
    {
        Phase.PENDING: pending.decide,
        Phase.DRY_RUN: dry_run.decide,
        Phase.BLOCKED: blocked.decide,
        Phase.AWAITING_APPROVAL: awaiting_approval.decide,
        Phase.NOTICE: notice.decide,
        Phase.EVICTING: evicting.decide,
        Phase.DRAINING: draining.decide,
        Phase.IN_MAINTENANCE: in_maintenance.decide,
        Phase.RELEASING: releasing.decide,
        Phase.ROLLING_BACK: rolling_back.decide,
        Phase.SUCCEEDED: ended.decide,
        Phase.FAILED: ended.decide,
        Phase.CANCELLED: ended.decide,
        Phase.EXPIRED: ended.decide,
    }
)


def decide(observation: Observation, now: datetime) -> Decision:
    """One step at most: interrupts first, then the stage of the phase; then the rules follow what the status asks for.

    Never raises for what a cluster can hold. The same observation gives the same decision, and a decision that was
    carried out in part is found so by the next observation: nothing rests on memory.
    """
    status, edit = observe(observation, now)
    look = Look(observation, now, status, edit)
    if look.phase in BEFORE_EVICTION:
        # Whatever the status says: behind a gate only, and none of these phases is.
        look = without_no_execute(look)
    if look.phase is Phase.PENDING and not observation.rules:
        look = look.with_status(rules=())  # whatever the status says: none was made yet
    decision = interrupt(look)
    if decision is None:
        assert look.phase is not None  # interrupt() gives a new run its first phase
        decision = STAGES[look.phase](look)
    if decision.need_live:
        return decision
    return _finish(look, decision)


def _finish(look: Look, decision: Decision) -> Decision:
    """The status is stored first; then what makes things safer, then what the stage wants, then the other rules."""
    obs, now = look.obs, look.now
    meta = obs.run.metadata
    status = decision.status.model_copy(update={"observed_generation": meta.generation})
    if obs.undone:
        message = short(
            f"{status.message} Not all of it could be done, and it is tried again: {obs.undone}", MESSAGE_MAX
        )
        status = status.model_copy(update={"message": message})
    status = with_notified(look, status)
    work = bring_about(obs, status, look.edit, held=hold_of(look) is not None)
    phase = status.phase
    assert phase is not None
    guard: tuple[Action, ...] = ()
    has_rules = phase is not Phase.PENDING and not phase.ended
    if has_rules and FINALIZER not in meta.finalizers and meta.deletion_timestamp is None:
        guard = (AddFinalizer(),)
    requeue = decision.requeue_after
    if requeue is not None and now < obs.run.spec.deadline:
        requeue = min(requeue, obs.run.spec.deadline - now)
    return replace(
        decision,
        status=status,
        actions=(*work.first, *guard, *decision.actions, *work.then),
        requeue_after=requeue,
        counted=counted(look, status),
    )
