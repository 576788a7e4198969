"""The gate before anything is evicted: one pure function, used by Notice, after an interruption by Evicting, and with
drain.mode Evict by Draining, before NoExecute for what is left at the timeout.

Only what passes it sets NoExecute, in the same decision, on the very rules that were observed, within seconds.
"""

from __future__ import annotations

from taintctl.api.base import MAX_NODES
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.run import DrainMode, EvictionStatus
from taintctl.workflow.look import Look
from taintctl.workflow.mismatch import accepted
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
    if run.spec.drain.mode is DrainMode.EVICT and look.phase is not Phase.NOTICE and not may_force(look):
        why = "drain.mode is Evict, and NoExecute is for what is left at drain.timeout where the policy forces that."
        return Refusal(Reason.PLAN_CHANGED, why, Phase.DRY_RUN)
    fresh, rules = beside(look.status), main_rules(look.status)
    standing = {rule.metadata.uid for rule in obs.rules if rule.spec.taint.effect != Effect.NONE}
    agreed = (
        bool(rules)
        and all(rule.uid in standing for rule in rules)
        and {selector(rule) for rule in fresh} == {selector(rule) for rule in rules}
        and all(rule.uid and accepted(look, rule, now.plan) for rule in fresh)
        and look.fresh(look.status.dry_run.requested_at)
    )
    if not agreed:
        return Refusal(Reason.SECOND_LOOK, "The second look has not agreed yet.")
    return None


def may_force(look: Look) -> bool:
    """With drain.mode Evict: whether what is left may get NoExecute, as far as policy and time go."""
    eviction, policy = look.status.eviction, look.obs.policy
    return (
        policy is not None
        and policy.spec.drain.force_at_timeout
        and eviction is not None
        and look.past(eviction.started_at, look.obs.run.spec.drain.timeout)
    )


def pass_gate(look: Look) -> tuple[Look, tuple[SetEffect, ...]]:
    """What follows a gate that was passed: the rules of the second look go, the others become NoExecute, each only as
    it was observed and only while the reads are fresh. The plan that passed stays in the status, as it was.

    Where taintctl has evicted before (drain.mode Evict), what is known of that stays: whom, on which nodes, since when.
    """
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
    old = look.status.eviction
    eviction = EvictionStatus(started_at=look.now, pending=len(plan.counted_pods), nodes=plan.nodes)
    if old is not None and (look.by_api or old.forced_at is not None):
        eviction = EvictionStatus(
            started_at=old.started_at,
            forced_at=look.now,
            pending=len(plan.counted_pods),
            nodes=tuple(dict.fromkeys((*old.nodes, *plan.nodes)))[:MAX_NODES],
            evicted_by_taint=old.evicted_by_taint,
            evicted_by_taintctl=old.evicted_by_taintctl,
        )
    look = look.with_status(
        rules=tuple(rules),
        eviction=eviction,
        dry_run=look.status.dry_run.model_copy(update={"read_at": look.now}),
    )
    look = look.with_condition(
        ConditionType.EVICTED, False, Reason.GATE_PASSED, "Eviction has been allowed and is under way."
    )
    return look, tuple(actions)


def pass_gate_by_api(look: Look) -> Look:
    """The same gate passed with drain.mode Evict: the rules stay at NoSchedule, and taintctl asks the pods to go. A
    taint stands already, so the 10 s before idle count from when the last rule was seen with it."""
    plan, rules = look.obs.plan, main_rules(look.status)
    assert plan is not None
    since = [rule.effect_since for rule in rules if rule.effect_since is not None]
    eviction = EvictionStatus(
        started_at=look.now, settled_from=max(since), pending=len(plan.counted_pods), nodes=plan.nodes
    )
    read = look.status.dry_run.model_copy(update={"read_at": look.now})
    look = look.with_status(rules=rules, eviction=eviction, dry_run=read)
    return look.with_condition(
        ConditionType.EVICTED, False, Reason.GATE_PASSED, "Eviction has been allowed and is under way."
    )
