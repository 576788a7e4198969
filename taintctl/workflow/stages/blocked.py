"""Blocked: nothing is evicted, and every maxAge it is looked at again, until the deadline."""

from __future__ import annotations

from taintctl.api.reasons import Phase, Reason
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.rounds import begin_dry_run
from taintctl.workflow.transitions import POLICY_PROBLEMS


def decide(look: Look) -> Decision:
    status, policy_missing = look.status, look.policy_problem is not None
    policy_came = status.reason in POLICY_PROBLEMS and not policy_missing
    if policy_missing or (look.fresh(status.phase_since) and not policy_came):
        since = status.phase_since or look.now
        again = since + look.freshness - look.now if look.fresh(since) else look.freshness
        return look.stay(status.reason, status.message, next_step=status.next_step, requeue=again)
    if status.dry_run.round == 0:
        return look.go(Phase.PENDING, Reason.CREATED, "What blocked the run is looked at again, from the start.")
    return begin_dry_run(look, Reason.WAITING_FOR_DRY_RUN, "What blocked the run is looked at again.")
