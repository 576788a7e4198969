"""Dry runs: rules of effect None are made, and what the control plane says of them is compared with our own plan.

How fresh one is needs no memory: `status.dryRun.round` is bumped and stored before any rule is made, and every rule
carries the round it was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from taintctl.api.plan import Plan, PlannedRule
from taintctl.api.policy import BUILT_IN_POLICY
from taintctl.api.reasons import Agreement, ConditionType, Phase, Reason
from taintctl.api.run import DryRunStatus, RuleStatus
from taintctl.api.text import plural, some
from taintctl.workflow.look import AT_ONCE, Look
from taintctl.workflow.model import Decision
from taintctl.workflow.rules import main_rules, selector, to_be_made, to_be_made_beside

Redo = Callable[[Look, int], Look]


def new_dry_run(look: Look, attempts: int) -> Look:
    """All rules are to be made again, with effect None, for the devices of the plan (or those of before, where there is
    no plan now)."""
    plan = look.obs.plan if look.obs.plan_problem is None else None
    wanted = plan.rules if plan is not None else main_rules(look.status)
    rules = to_be_made(look.obs.run, [selector(rule) for rule in wanted])
    return _next_round(look, attempts, rules)


def new_second_look(look: Look, attempts: int) -> Look:
    """Beside every rule, which stays as it is, one of effect None is to be made (again)."""
    rules = main_rules(look.status)
    return _next_round(look, attempts, (*rules, *to_be_made_beside(rules)))


def _next_round(look: Look, attempts: int, rules: tuple[RuleStatus, ...]) -> Look:
    dry_run = DryRunStatus(round=look.status.dry_run.round + 1, requested_at=look.now, attempts=attempts)
    return _with_plan_agreement(look.with_status(dry_run=dry_run, rules=rules), None)


def begin_dry_run(look: Look, reason: Reason, message: str) -> Decision:
    """From wherever the run is to a new dry run. Rules that evict are taken away by it: they are made again as None."""
    look = new_dry_run(look.with_status(eviction=None), attempts=0)
    look = look.with_condition(ConditionType.DRY_RUN_FRESH, "Unknown", reason, "A new dry run was asked for.")
    return look.go(Phase.DRY_RUN, reason, message)


def read(
    look: Look, role: Literal["taint", "dry-run"], redo: Redo, waiting: Reason, waiting_for: str
) -> Look | Decision:
    """Reads the messages of this round: the look with every rule Agreed, or the decision to wait, ask again or block.

    A message is read only where the condition speaks of the generation and uid that we made. Messages that do not
    agree with a live plan are asked for again, up to the policy's attempts: they are older than the plan by seconds.
    """
    settings, requested = look.obs.settings, look.status.dry_run.requested_at
    rules = [rule for rule in look.status.rules if rule.role == role]
    silent = [rule for rule in rules if rule.uid and rule.eviction_in_progress is None]
    if any(look.past(rule.effect_since, settings.acknowledge) for rule in silent):
        message = (
            f"The device taint eviction controller said nothing about DeviceTaintRule {some([r.name for r in silent])} "
            f"within {settings.acknowledge.total_seconds():g} s, so nothing is evicted; "
            "check that kube-controller-manager runs with DRADeviceTaints and DRADeviceTaintRules."
        )
        return _unknown(look, Reason.EVICTION_CONTROLLER_SILENT, message).block(
            Reason.EVICTION_CONTROLLER_SILENT, message, next_step=f"kubectl describe devicetaintrule {silent[0].name}"
        )
    if silent or any(not rule.uid for rule in rules):
        return look.stay(waiting, waiting_for)
    plan = look.obs.plan
    assert plan is not None  # both stages look at that before
    look = _compared(look, role, plan)
    apart = [rule for rule in look.status.rules if rule.role == role and rule.agreement is not Agreement.AGREED]
    if not apart and look.fresh(requested):
        return look
    if not apart:
        # Agreed, but on a message from before we were away.
        look = redo(look, look.status.dry_run.attempts)
        return look.stay(waiting, waiting_for, requeue=AT_ONCE)
    return _apart(look, plan, apart, redo, waiting)


def _apart(look: Look, plan: Plan, apart: list[RuleStatus], redo: Redo, waiting: Reason) -> Decision:
    if not look.obs.live:
        return look.look_live()
    dry_run = look.status.dry_run
    unreadable = [rule for rule in apart if rule.agreement is Agreement.UNREADABLE]
    reason = Reason.MESSAGE_UNREADABLE if unreadable else Reason.MISMATCH
    message = " ".join(_numbers(rule, plan) for rule in (unreadable or apart)[:3])
    look = (
        _unknown(look, reason, message)
        if unreadable
        else look.with_condition(ConditionType.DRY_RUN_FRESH, False, reason, message)
    )
    if dry_run.attempts >= (look.obs.policy or BUILT_IN_POLICY).spec.dry_run.attempts:
        return look.block(
            reason,
            f"{message} Nothing is evicted on numbers that differ; it is looked at again.",
            next_step=f"kubectl describe devicetaintrule {unreadable[0].name}" if unreadable else "taintctl devices",
        )
    if not look.past(dry_run.requested_at, look.obs.settings.poll):
        assert dry_run.requested_at is not None
        again = look.until(dry_run.requested_at, look.obs.settings.poll)
        return look.stay(waiting, f"{message} It is asked for again.", requeue=again)
    look = redo(look, dry_run.attempts + 1)
    return look.stay(waiting, f"{message} It is asked for again.", requeue=AT_ONCE)


def _unknown(look: Look, reason: Reason, message: str) -> Look:
    return look.with_condition(ConditionType.DRY_RUN_FRESH, "Unknown", reason, message)


def _compared(look: Look, role: str, plan: Plan) -> Look:
    planned = {selector(rule): rule for rule in plan.rules}
    rules = tuple(
        _with_agreement(rule, planned.get(selector(rule))) if rule.role == role else rule for rule in look.status.rules
    )
    said = {rule.agreement for rule in rules if rule.role == role}
    worst = next((a for a in (Agreement.UNREADABLE, Agreement.MISMATCH, Agreement.AGREED) if a in said), None)
    return _with_plan_agreement(look.with_status(rules=rules), worst)


def _with_plan_agreement(look: Look, agreed: Agreement | None) -> Look:
    """The plan agrees when every rule does."""
    plan = look.status.plan
    return look if plan is None else look.with_status(plan=plan.model_copy(update={"agreement": agreed}))


def _with_agreement(rule: RuleStatus, planned: PlannedRule | None) -> RuleStatus:
    predicted = planned.pods if planned is not None else None
    return rule.model_copy(update={"predicted": predicted, "agreement": agreement(rule, planned)})


def agreement(rule: RuleStatus, planned: PlannedRule | None) -> Agreement:
    """All four numbers of the message equal the plan's, or it is a mismatch; what did not parse is no number."""
    said = (rule.published, rule.allocated, rule.pods, rule.namespaces)
    if None in said:
        return Agreement.UNREADABLE
    if planned is None or said != (planned.published, planned.allocated, planned.pods, planned.namespaces):
        return Agreement.MISMATCH
    return Agreement.AGREED


def _numbers(rule: RuleStatus, plan: Plan) -> str:
    if rule.agreement is Agreement.UNREADABLE:
        return f"The dry-run message of DeviceTaintRule {rule.name} does not read as expected: {rule.message!r}."
    planned = next((p for p in plan.rules if selector(p) == selector(rule)), None)
    where = "/".join(part for part in selector(rule) if part)
    ours = (
        f"{planned.published}, {planned.allocated} and {plural(planned.pods, 'pod')} in "
        f"{plural(planned.namespaces, 'namespace')}"
        if planned is not None
        else "no such devices"
    )
    return (
        f"For {where} the control plane counts {plural(rule.published or 0, 'published device')}, {rule.allocated} "
        f"allocated and {plural(rule.pods or 0, 'pod')} in {plural(rule.namespaces or 0, 'namespace')}, "
        f"and taintctl {ours}."
    )
