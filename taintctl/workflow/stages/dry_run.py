"""DryRun: rules of effect None; their messages must say what our own plan says, and policy must allow it."""

from __future__ import annotations

from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Phase, Reason
from taintctl.workflow.follow import follow
from taintctl.workflow.look import AT_ONCE, Look
from taintctl.workflow.model import Decision
from taintctl.workflow.next_step import on_approval, on_plan, on_policy, on_violation
from taintctl.workflow.planning import Standing, ask, standing, summary, violated, with_plan, with_tally
from taintctl.workflow.rounds import new_dry_run, read
from taintctl.workflow.rules import main_rules, selector
from taintctl.workflow.text import others_first

_WAITING = "Waiting for the control plane's dry-run messages."


def decide(look: Look) -> Decision:
    obs = look.obs
    if (unreadable := look.unreadable) is not None:
        return look.say_unreadable(unreadable)
    if (problem := look.policy_problem) is not None:
        step = on_policy(problem.reason, obs.run.spec.policy_name, look.name)
        return look.block(Reason(problem.reason), problem.message, next_step=step)
    if obs.plan_problem is not None:
        step = on_plan(obs.plan_problem.reason, look.name)
        return look.block(Reason(obs.plan_problem.reason), obs.plan_problem.message, next_step=step)
    if obs.earlier_runs:
        return look.block(
            Reason.DEVICE_IN_OTHER_RUN,
            others_first(obs.earlier_runs),
            next_step=f"taintctl status {obs.earlier_runs[0]}",
        )
    assert obs.plan is not None  # else unreadable
    assert obs.policy is not None  # else a policy problem
    now = standing(look, obs.plan, obs.policy)
    look = with_plan(look, now)
    if [selector(rule) for rule in now.plan.rules] != [selector(rule) for rule in main_rules(look.status)]:
        return _other_devices(look, now.policy)
    answer = read(look, "taint", new_dry_run, Reason.WAITING_FOR_DRY_RUN, _WAITING, follow)
    return answer if isinstance(answer, Decision) else _agreed(answer, now)


def _other_devices(look: Look, policy: EvictionPolicy) -> Decision:
    """The plan asks for other rules than were made: pools came or went."""
    if not look.obs.live:
        return look.look_live()
    attempts = look.status.dry_run.attempts + (1 if main_rules(look.status) else 0)
    if attempts > policy.spec.dry_run.attempts:
        message = "The devices of the target keep changing, so no dry run can be compared; it is looked at again."
        return look.block(Reason.MISMATCH, message, next_step="taintctl devices")
    look = new_dry_run(look, attempts)
    return look.stay(Reason.WAITING_FOR_DRY_RUN, _WAITING, requeue=AT_ONCE)


def _agreed(look: Look, now: Standing) -> Decision:
    plan, policy = now.plan, now.policy
    look = look.with_status(dry_run=look.status.dry_run.model_copy(update={"read_at": look.now}))
    if now.evaluation.blocking:
        # Of all violations, those that a Break could lift too: people see what they would have to deal with.
        return look.block(
            Reason.POLICY_VIOLATED,
            f"EvictionPolicy {policy.name} does not allow it: {violated(now.violations)}",
            next_step=on_violation(now.evaluation.blocking[0], plan, look.obs.run.spec.policy_name, look.name),
        )
    look, reason = ask(look, now)
    look = with_tally(look, standing(look, plan, policy))
    if reason is Reason.AUTO_APPROVED:
        message = f"{summary(plan)}: EvictionPolicy {policy.name} lets that pass without an approval."
        return look.go(Phase.AWAITING_APPROVAL, reason, message)
    again = "The plan has changed; " if reason is Reason.PLAN_CHANGED else ""
    message = f"{again}{summary(plan)} would go; {now.ask} needed."
    return look.go(Phase.AWAITING_APPROVAL, reason, message, next_step=on_approval(now.unbroken, look.name))
