"""Draining: the pods of the approved plan go, and then idle is proven. By the taint, and through the Eviction API whom
it does not reach; or with drain.mode Evict all through the Eviction API, under NoSchedule, and by the taint only what
is left at the timeout, if the policy forces that and the gate is passed once more."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from taintctl.api.base import MAX_LISTED, MAX_NODES
from taintctl.api.plan import Plan, PlannedPod, PodRef, Verdict
from taintctl.api.policy import BUILT_IN_POLICY, RollbackFailure, ToleratingPods
from taintctl.api.reasons import ConditionType, Effect, Phase, PodEffect, Reason
from taintctl.api.rule import EvictionResult
from taintctl.api.run import EvictionStatus
from taintctl.api.text import moment, plural, some
from taintctl.policy import uncovered
from taintctl.policy.checks import LONGEST
from taintctl.workflow.follow import follow, second_look
from taintctl.workflow.gate import may_force
from taintctl.workflow.look import Look
from taintctl.workflow.model import Action, Decision, EvictPod
from taintctl.workflow.next_step import on_use
from taintctl.workflow.planning import Refusal, word_stands
from taintctl.workflow.proof import not_idle, proven, unproven, with_staleness
from taintctl.workflow.rounds import begin_dry_run
from taintctl.workflow.rules import main_rules
from taintctl.workflow.text import SENTENCE_MAX, short

MAX_EVICTIONS = 50
"""Pods asked to be evicted in one go; who could not be is asked again in turn."""


@dataclass(frozen=True)
class Pods:
    """The pods that hold target devices, by what is to become of them."""

    pending: tuple[PlannedPod, ...] = ()
    """Of the approved plan, there and not marked for deletion."""
    by_us: tuple[PlannedPod, ...] = ()
    """Those of them that taintctl is to evict: whom the taint does not reach, or with drain.mode Evict everybody whose
    tolerationSeconds are over."""
    terminating: tuple[PlannedPod, ...] = ()
    late: tuple[PlannedPod, ...] = ()
    """Not of the approved plan: never evicted by us."""


def decide(look: Look) -> Decision:
    rules = main_rules(look.status)
    by_taint = bool(rules) and all(r.effect is Effect.NO_EXECUTE and r.effect_since is not None for r in rules)
    if not by_taint and not look.by_api:
        return begin_dry_run(look, Reason.RESUMED, "The rules do not evict (any more); everything is looked at again.")
    if (unreadable := look.unreadable) is not None:
        return look.say_unreadable(unreadable)
    if not look.obs.live:
        # Since when the devices look empty, and who came late, is not to rest on what a cache has not heard yet.
        return look.look_live()
    if look.by_api and (refused := word_stands(look)) is not None:
        return follow(look, refused)
    plan = look.obs.plan if look.obs.plan_problem is None else None
    pods = _sorted_out(look, plan)
    look, broken = _with_outcomes(with_staleness(look, plan), plan, pods)
    if broken:
        return look.roll_back(Reason.MULTIPLE_BUDGETS, Phase.FAILED, broken)
    if pods.by_us and not look.obs.outcomes and not look.live_now:
        return look.look_live()
    waiting = unproven(look, plan, _in_use(look, pods))
    if waiting is None and not look.live_now:
        return look.look_live()
    if waiting is None:
        return proven(look)
    eviction = look.status.eviction
    assert eviction is not None
    since = eviction.forced_at or eviction.started_at
    # The timeout is for pods: where all are gone, the rest of the proof is not cut off by it.
    if eviction.empty_since is None and look.past(since, look.obs.run.spec.drain.timeout):
        if _forces(look, pods):
            return second_look(look, _not_forced)
        if look.rolls_back_on(RollbackFailure.DRAIN_TIMEOUT) and not _ignored(look, plan):
            return look.roll_back(
                Reason.DRAIN_TIMEOUT, Phase.FAILED, f"The devices were not empty within drain.timeout: {waiting[1]}"
            )
        waiting = (waiting[0], f"{waiting[1]} {_goes_on(look)}{eviction.not_forced and f' {eviction.not_forced}'}")
    look = look.with_status(rules=main_rules(look.status))  # a second look that is not wanted any more goes
    look = look.with_condition(ConditionType.DEVICES_IDLE, not_idle(look), waiting[0], waiting[1])
    actions = () if look.obs.outcomes else _evictions(look, pods)
    retry = _patience(look)
    if pods.by_us:
        retry = max(retry, look.scaled(look.obs.settings.eviction_retry))
    return look.stay(*waiting, next_step=on_use(look, waiting[0]), actions=actions, requeue=retry)


def _forces(look: Look, pods: Pods) -> bool:
    """Whether NoExecute is to be set for what is left: the policy says so, the taint would reach any of them, and the
    gate has not just refused."""
    eviction = look.status.eviction
    return (
        look.by_api
        and may_force(look)
        and any(pod.effect is not PodEffect.NOT_REACHED_BY_TAINT for pod in pods.pending)
        and eviction is not None
        and not look.fresh(eviction.not_forced_at)
    )


def _not_forced(look: Look, refused: Refusal) -> Decision:
    """The second look or the gate said no to NoExecute: the drain has timed out, and no pod is hit by the taint."""
    if refused.to is None or refused.to is Phase.ROLLING_BACK:
        return follow(look, refused)
    why = short(f"NoExecute was not set for what is left ({refused.reason}): {refused.message}", SENTENCE_MAX)
    if look.rolls_back_on(RollbackFailure.DRAIN_TIMEOUT):
        message = f"The devices were not empty within drain.timeout. {why}"
        return look.roll_back(Reason.DRAIN_TIMEOUT, Phase.FAILED, message)
    eviction = look.status.eviction
    assert eviction is not None
    eviction = eviction.model_copy(update={"not_forced_at": look.now, "not_forced": why})
    look = look.with_status(eviction=eviction, rules=main_rules(look.status))
    return look.stay(Reason.PODS_PENDING, f"{_goes_on(look)} {why}")


def _goes_on(look: Look) -> str:
    deadline = moment(look.obs.run.spec.deadline)
    return f"drain.timeout has passed; the policy lets the run go on until the deadline {deadline}."


def _ignored(look: Look, plan: Plan | None) -> bool:
    """Whether only pods that tolerate the taint still hold the devices, and the policy does not fail the run for them.
    The devices are not idle while they do: the run waits, at most until its deadline."""
    policy, idle = look.obs.policy or BUILT_IN_POLICY, look.obs.idleness
    staying = {pod.uid for pod in plan.pods if pod.keeps_device} if plan is not None else set()
    holders = {pod.uid for pod in idle.holders}
    return policy.spec.tolerating_pods is ToleratingPods.IGNORE and bool(holders) and holders <= staying


def _patience(look: Look) -> timedelta:
    """Often at first, since most pods go soon; what takes long is looked at less often: every look is a live one."""
    settings, since = look.obs.settings, look.status.phase_since or look.now
    return min(max(look.poll, (look.now - since) / 10), look.scaled(settings.idle_check))


def _sorted_out(look: Look, plan: Plan | None) -> Pods:
    approval = look.status.approval
    if plan is None or approval is None or approval.asked is None:
        return Pods()
    late = uncovered(approval.asked, plan, run_uid=look.obs.run.metadata.uid)
    ours = [pod for pod in plan.pods if pod.uid not in late]
    pending = tuple(pod for pod in ours if pod.counted)
    return Pods(
        pending=pending,
        by_us=tuple(pod for pod in pending if _is_ours(look, pod)),
        terminating=tuple(pod for pod in ours if pod.terminating),
        late=tuple(
            pod for pod in plan.pods if pod.uid in late and not (pod.admin_access and pod.effect is PodEffect.TOLERATES)
        ),
    )


def _is_ours(look: Look, pod: PlannedPod) -> bool:
    if pod.effect is PodEffect.NOT_REACHED_BY_TAINT or not look.by_api:
        return pod.effect is PodEffect.NOT_REACHED_BY_TAINT
    eviction = look.status.eviction
    assert eviction is not None  # by_api looks at that
    assert eviction.started_at is not None
    # What was approved for an EvictedLater is that it has that long to end by itself, counted here from the gate.
    stays = timedelta(seconds=min(pod.toleration_seconds or 0, LONGEST))
    return look.now - eviction.started_at >= look.scaled(stays)


def _with_outcomes(look: Look, plan: Plan | None, pods: Pods) -> tuple[Look, str]:
    """What came of our evictions, in the status; and a sentence where the API can never decide."""
    outcomes = look.obs.outcomes
    old = look.status.eviction or EvictionStatus(started_at=look.status.phase_since)
    by_us = sum(o.result is EvictionResult.EVICTED for o in outcomes)
    refused = (EvictionResult.BUDGET_FORBIDS, EvictionResult.MULTIPLE_BUDGETS, EvictionResult.FAILED)
    blocked_by = old.blocked_by
    if outcomes:
        blocked_by = tuple(short(f"{o.namespace}/{o.name}: {o.message}", 256) for o in outcomes if o.result in refused)[
            :MAX_LISTED
        ]
    if plan is not None and not pods.by_us:
        blocked_by = ()
    # Who went since the last look, and not by us, went by the taint: where one evicts.
    gone = max(0, old.pending - len(pods.pending) - by_us) if plan is not None and not look.by_api else 0
    empty = look.obs.idleness.verdict is Verdict.TRUE
    eviction = old.model_copy(
        update={
            "settled_from": old.settled_from or look.now,
            "empty_since": (old.empty_since or look.now) if empty else None,
            "nodes": _nodes(old, look.obs.plan),
            "pending": len(pods.pending) if plan is not None else old.pending,
            "terminating": _refs(pods.terminating),
            "late": _refs(pods.late),
            "evicted_by_taint": old.evicted_by_taint + gone,
            "evicted_by_taintctl": old.evicted_by_taintctl + by_us,
            "blocked_by": blocked_by,
        }
    )
    policy = look.obs.policy or BUILT_IN_POLICY
    # Whom the taint may have at the timeout is not lost to the API's indecision.
    later = look.by_api and policy.spec.drain.force_at_timeout
    patient = {pod.uid for pod in pods.pending if later and pod.effect is not PodEffect.NOT_REACHED_BY_TAINT}
    twice = next((o for o in outcomes if o.result is EvictionResult.MULTIPLE_BUDGETS and o.uid not in patient), None)
    sentence = (
        f"More than one PodDisruptionBudget selects {twice.namespace}/{twice.name}, so the Eviction API cannot decide; "
        "leave it to one, then start another run."
        if twice is not None
        else ""
    )
    return look.with_status(eviction=eviction), sentence


def _nodes(old: EvictionStatus, plan: Plan | None) -> tuple[str, ...]:
    """Those of pods that came late are remembered too; where there are more than can be, the first stay."""
    new = [node for node in (plan.nodes if plan is not None else ()) if node not in old.nodes]
    return (*old.nodes, *new)[:MAX_NODES]


def _refs(pods: tuple[PlannedPod, ...]) -> tuple[PodRef, ...]:
    return tuple(PodRef(namespace=p.namespace, name=p.name, uid=p.uid) for p in pods[:MAX_LISTED])


def _evictions(look: Look, pods: Pods) -> tuple[Action, ...]:
    """At most 50 at a time, others each time, so that pods whose budget forbids do not keep the rest waiting."""
    waiting, eviction = pods.by_us, look.status.eviction
    if not waiting:
        return ()
    assert eviction is not None
    retry = max(look.scaled(look.obs.settings.eviction_retry), timedelta(milliseconds=1))
    turn = (look.now - eviction.started_at) // retry if eviction.started_at is not None else 0
    first = turn * MAX_EVICTIONS % len(waiting) if len(waiting) > MAX_EVICTIONS else 0
    chosen = (waiting[first:] + waiting[:first])[:MAX_EVICTIONS]
    not_after = look.obs.taken_at + look.obs.settings.gate_valid
    return tuple(EvictPod(p.namespace, p.name, p.uid, p.claims, p.devices, not_after) for p in chosen)


def _in_use(look: Look, pods: Pods) -> tuple[str, str]:
    eviction, idle = look.status.eviction, look.obs.idleness
    if pods.late:
        names = some([pod.key for pod in pods.late])
        return (
            Reason.DEVICES_IN_USE,
            f"{names} came to the devices after the approval and is not in the plan, so taintctl does not evict it; "
            "the run waits until it is gone, or drain.timeout.",
        )
    if eviction is not None and eviction.blocked_by:
        return _refusal(look), f"Eviction is tried again: {some(eviction.blocked_by, 1)}"
    if pods.pending:
        names = some([pod.key for pod in pods.pending])
        return Reason.PODS_PENDING, f"{plural(len(pods.pending), 'pod')} still to go: {names}."
    if pods.terminating:
        names = some([pod.key for pod in pods.terminating])
        return Reason.PODS_TERMINATING, f"{plural(len(pods.terminating), 'pod')} still stopping: {names}."
    return idle.reason, idle.message


def _refusal(look: Look) -> Reason:
    """Whether budgets say no for now, or the API for another reason (a missing right, a webhook); between two tries it
    is what the last one said."""
    results = {outcome.result for outcome in look.obs.outcomes}
    if not results:
        return Reason.EVICTION_REFUSED if look.status.reason == Reason.EVICTION_REFUSED else Reason.BUDGET_FORBIDS
    return Reason.EVICTION_REFUSED if EvictionResult.FAILED in results else Reason.BUDGET_FORBIDS
