"""The gate before NoExecute: one pure function, used by Notice and, after an interruption, by Evicting.

Only what passes it sets NoExecute, in the same decision, on the very rules that were observed, within seconds.
"""

from __future__ import annotations

from taintctl.api.reasons import Agreement, ConditionType, Effect, Reason
from taintctl.api.run import EvictionStatus
from taintctl.workflow.look import Look
from taintctl.workflow.model import SetEffect
from taintctl.workflow.planning import Refusal, stands
from taintctl.workflow.rules import beside, main_rules, selector


def gate(look: Look) -> Refusal | None:
    """None where everything holds, by live reads of moments ago; else the first thing that does not.

    The caller has looked at hands laid on the run before (interrupts); they are asked again here, so that the gate
    alone is enough to prove that nothing is evicted against them.
    """
    obs, run = look.obs, look.obs.run
    if not look.live_now:
        return Refusal(Reason.CLUSTER_UNREADABLE, "The gate takes live reads of moments ago only.")
    stopped = (
        run.spec.paused
        or run.spec.cancelled
        or run.metadata.deletion_timestamp is not None
        or bool(obs.problems)
        or look.edit is not None
    )
    if stopped or not look.started or run.spec.deadline <= look.now:
        return Refusal(Reason.WAITING_FOR_START, "Nothing is evicted now: the run is held, or not within its times.")
    now = stands(look)
    if isinstance(now, Refusal):
        return now
    fresh, rules = beside(look.status), main_rules(look.status)
    standing = {rule.metadata.uid for rule in obs.rules if rule.spec.taint.effect != Effect.NONE}
    agreed = (
        bool(rules)
        and all(rule.uid in standing for rule in rules)
        and {selector(rule) for rule in fresh} == {selector(rule) for rule in rules}
        and all(rule.uid and rule.agreement is Agreement.AGREED for rule in fresh)
        and look.fresh(look.status.dry_run.requested_at)
    )
    if not agreed:
        return Refusal(Reason.SECOND_LOOK, "The second look has not agreed yet.")
    return None


def pass_gate(look: Look) -> tuple[Look, tuple[SetEffect, ...]]:
    """What follows a gate that was passed: the rules of the second look go, the others become NoExecute, each only as
    it was observed and only while the reads are fresh. The plan that passed stays in the status, as it was."""
    obs, plan = look.obs, look.obs.plan
    assert plan is not None
    there = {rule.metadata.name: rule for rule in obs.rules}
    not_after = obs.taken_at + obs.settings.gate_valid
    rules, actions = [], []
    for rule in main_rules(look.status):
        seen = there[rule.name]
        if seen.spec.taint.effect != Effect.NO_EXECUTE:
            meta = seen.metadata
            actions.append(
                SetEffect(meta.name, meta.uid, meta.resource_version, Effect.NO_EXECUTE, not_after=not_after)
            )
            rule = rule.model_copy(update={"effect": Effect.NO_EXECUTE, "effect_since": None})
        rules.append(rule)
    eviction = EvictionStatus(started_at=look.now, pending=len(plan.counted_pods), nodes=plan.nodes)
    look = look.with_status(
        rules=tuple(rules),
        eviction=eviction,
        dry_run=look.status.dry_run.model_copy(update={"read_at": look.now}),
    )
    look = look.with_condition(
        ConditionType.EVICTED, False, Reason.GATE_PASSED, "Eviction has been allowed and is under way."
    )
    return look, tuple(actions)
