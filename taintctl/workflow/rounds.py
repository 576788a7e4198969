"""Dry runs: rules of effect None are made, and what the control plane says of them is compared with our own plan.

How fresh one is needs no memory: `status.dryRun.round` is bumped and stored before any rule is made, and every rule
carries the round it was made for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from taintctl.api.plan import Plan, PlannedRule
from taintctl.api.policy import BUILT_IN_POLICY
from taintctl.api.reasons import Agreement, ConditionType, Phase, PodEffect, Reason
from taintctl.api.run import DryRunStatus, RuleStatus
from taintctl.api.text import plural, some
from taintctl.workflow.look import AT_ONCE, Look
from taintctl.workflow.mismatch import accepted, agreement, told
from taintctl.workflow.model import Decision
from taintctl.workflow.planning import Refusal, summary
from taintctl.workflow.rules import main_rules, selector, to_be_made, to_be_made_beside

Redo = Callable[[Look, int], Look]
Otherwise = Callable[[Look, Refusal], Decision]
"""Where a dry run leads that did not agree in the end."""


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
    look: Look, role: Literal["taint", "dry-run"], redo: Redo, waiting: Reason, waiting_for: str, otherwise: Otherwise
) -> Look | Decision:
    """Reads the messages of this round: the look with every rule agreed (or our own count to be used by the policy), or
    the decision to wait, to ask again, or `otherwise`.

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
        return otherwise(
            _unknown(look, Reason.EVICTION_CONTROLLER_SILENT, message),
            Refusal(
                Reason.EVICTION_CONTROLLER_SILENT,
                message,
                Phase.BLOCKED,
                f"kubectl describe devicetaintrule {silent[0].name}",
            ),
        )
    if silent or any(not rule.uid for rule in rules):
        return look.stay(waiting, waiting_for)
    plan = look.obs.plan
    assert plan is not None  # both stages look at that before
    look = _compared(look, role, plan)
    rules = [rule for rule in look.status.rules if rule.role == role]
    differ = [rule for rule in rules if rule.agreement is not Agreement.AGREED]
    if differ and not look.obs.live:
        return look.look_live()
    apart = [rule for rule in rules if not accepted(look, rule, plan)]
    if not apart and look.fresh(requested):
        return _said(look, plan, differ)
    if not apart:
        # Agreed, but on a message from before we were away.
        look = redo(look, look.status.dry_run.attempts)
        return look.stay(waiting, waiting_for, requeue=AT_ONCE)
    return _apart(look, plan, apart, redo, waiting, otherwise)


def _apart(
    look: Look, plan: Plan, apart: list[RuleStatus], redo: Redo, waiting: Reason, otherwise: Otherwise
) -> Decision:
    dry_run = look.status.dry_run
    unreadable = [rule for rule in apart if rule.agreement is Agreement.UNREADABLE]
    reason = Reason.MESSAGE_UNREADABLE if unreadable else Reason.MISMATCH
    message = told(unreadable or apart, plan, dry_run.requested_at)
    look = (
        _unknown(look, reason, message)
        if unreadable
        else look.with_condition(ConditionType.DRY_RUN_FRESH, False, reason, message)
    )
    if dry_run.attempts >= (look.obs.policy or BUILT_IN_POLICY).spec.dry_run.attempts:
        message = f"{message} Nothing is evicted on numbers that differ."
        step = f"kubectl describe devicetaintrule {unreadable[0].name}" if unreadable else "taintctl devices"
        return otherwise(look, Refusal(reason, message, Phase.BLOCKED, step))
    if not look.past(dry_run.requested_at, look.obs.settings.poll):
        assert dry_run.requested_at is not None
        again = look.until(dry_run.requested_at, look.obs.settings.poll)
        return look.stay(waiting, f"{message} It is asked for again.", requeue=again)
    look = redo(look, dry_run.attempts + 1)
    return look.stay(waiting, f"{message} It is asked for again.", requeue=AT_ONCE)


def _said(look: Look, plan: Plan, differ: list[RuleStatus]) -> Look:
    if not differ:
        return look.with_condition(ConditionType.DRY_RUN_FRESH, True, Reason.AGREED, _agreement(plan))
    sentence = (
        f"{told(differ, plan, look.status.dry_run.requested_at)} The policy says UseLarger, so the run goes on with "
        f"{summary(plan)}."
    )
    return look.with_condition(ConditionType.DRY_RUN_FRESH, True, Reason.LARGER_USED, sentence)


def _agreement(plan: Plan) -> str:
    """The control plane counts whom the taint reaches; who holds a device through an extended resource is beside it."""
    beyond = sum(pod.effect is PodEffect.NOT_REACHED_BY_TAINT for pod in plan.counted_pods)
    by_taint = plural(len(plan.counted_pods) - beyond, "pod")
    more = f"; {plural(beyond, 'more pod')} the taint does not reach" if beyond else ""
    return f"The control plane's messages say what taintctl predicts: {by_taint} by the taint{more}."


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
