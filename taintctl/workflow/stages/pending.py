"""Pending: is this a run at all, is there a policy, and are the devices free of other runs?"""

from __future__ import annotations

from taintctl.api.base import FINALIZER
from taintctl.api.reasons import ConditionType, Reason
from taintctl.api.text import some
from taintctl.workflow.look import AT_ONCE, Look
from taintctl.workflow.model import AddFinalizer, Decision
from taintctl.workflow.next_step import on_plan, on_policy
from taintctl.workflow.rounds import begin_dry_run
from taintctl.workflow.text import others_first


def decide(look: Look) -> Decision:
    obs = look.obs
    look = look.with_condition(ConditionType.ACCEPTED, True, Reason.ACCEPTED, "The specification is valid.")
    if obs.rules:
        # A status that was lost: what the rules hold nobody knows any more, so they are left as they are.
        names = some([rule.metadata.name for rule in obs.rules])
        return look.stay(
            Reason.RULE_CHANGED,
            f"DeviceTaintRule {names} belongs to this run, whose status knows nothing of it; see whether its devices "
            "are in maintenance, then cancel the run, which takes the rules off.",
            next_step=f"taintctl cancel {look.name}",
        )
    if FINALIZER not in obs.run.metadata.finalizers:
        return look.stay(Reason.CREATED, "The run is being prepared.", actions=(AddFinalizer(),), requeue=AT_ONCE)
    if (unreadable := look.unreadable) is not None:
        return look.say_unreadable(unreadable)
    if (problem := look.policy_problem) is not None:
        step = on_policy(problem.reason, obs.run.spec.policy_name, look.name)
        return look.block(Reason(problem.reason), problem.message, next_step=step)
    if obs.earlier_runs and obs.plan_problem is not None:
        # What is wrong with its target is said now, and not when the others have ended.
        step = on_plan(obs.plan_problem.reason, look.name)
        return look.block(Reason(obs.plan_problem.reason), obs.plan_problem.message, next_step=step)
    if obs.earlier_runs:
        return look.stay(
            Reason.DEVICE_IN_OTHER_RUN,
            others_first(obs.earlier_runs),
            next_step=f"taintctl status {obs.earlier_runs[0]}",
            requeue=look.scaled(obs.settings.idle_check),
        )
    return begin_dry_run(look, Reason.WAITING_FOR_DRY_RUN, "The control plane is asked whom an eviction would hit.")
