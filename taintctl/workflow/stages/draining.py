"""Draining: the taint deletes what it reaches, taintctl evicts the rest of the approved plan; then idle is proven."""

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
from taintctl.workflow.look import Look
from taintctl.workflow.model import Action, Decision, EvictPod
from taintctl.workflow.next_step import on_use
from taintctl.workflow.rounds import begin_dry_run
from taintctl.workflow.rules import main_rules, selector
from taintctl.workflow.text import short

MAX_EVICTIONS = 50
"""Pods asked to be evicted in one go; who could not be is asked again in turn."""


@dataclass(frozen=True)
class Pods:
    """The pods that hold target devices, by what is to become of them."""

    pending: tuple[PlannedPod, ...] = ()
    """Of the approved plan, there and not marked for deletion."""
    by_us: tuple[PlannedPod, ...] = ()
    """Those of them that the taint does not reach."""
    terminating: tuple[PlannedPod, ...] = ()
    late: tuple[PlannedPod, ...] = ()
    """Not of the approved plan: never evicted by us."""


def decide(look: Look) -> Decision:
    rules = main_rules(look.status)
    if not rules or any(rule.effect is not Effect.NO_EXECUTE or rule.effect_since is None for rule in rules):
        return begin_dry_run(look, Reason.RESUMED, "The rules do not evict (any more); everything is looked at again.")
    if (unreadable := look.unreadable) is not None:
        return look.say_unreadable(unreadable)
    if not look.obs.live:
        # Since when the devices look empty, and who came late, is not to rest on what a cache has not heard yet.
        return look.look_live()
    plan = look.obs.plan if look.obs.plan_problem is None else None
    pods = _sorted_out(look, plan)
    look, broken = _with_outcomes(_with_staleness(look, plan), pods)
    if broken:
        return look.roll_back(Reason.MULTIPLE_BUDGETS, Phase.FAILED, broken)
    if pods.by_us and not look.obs.outcomes and not look.live_now:
        return look.look_live()
    unproven = _unproven(look, plan, pods)
    if unproven is None and not look.live_now:
        return look.look_live()
    if unproven is None:
        return _idle(look)
    eviction = look.status.eviction
    assert eviction is not None
    # The timeout is for pods: where all are gone, the rest of the proof is not cut off by it.
    if eviction.empty_since is None and look.past(eviction.started_at, look.obs.run.spec.drain.timeout):
        if look.rolls_back_on(RollbackFailure.DRAIN_TIMEOUT) and not _ignored(look, plan):
            return look.roll_back(
                Reason.DRAIN_TIMEOUT, Phase.FAILED, f"The devices were not empty within drain.timeout: {unproven[1]}"
            )
        unproven = (
            unproven[0],
            f"{unproven[1]} drain.timeout has passed; the policy lets the run go on until the deadline "
            f"{moment(look.obs.run.spec.deadline)}.",
        )
    look = look.with_condition(ConditionType.DEVICES_IDLE, _not_idle(look), unproven[0], unproven[1])
    actions = () if look.obs.outcomes else _evictions(look, pods)
    retry = _patience(look)
    if pods.by_us:
        retry = max(retry, look.scaled(look.obs.settings.eviction_retry))
    return look.stay(*unproven, next_step=on_use(look, unproven[0]), actions=actions, requeue=retry)


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
        by_us=tuple(pod for pod in pending if pod.effect is PodEffect.NOT_REACHED_BY_TAINT),
        terminating=tuple(pod for pod in ours if pod.terminating),
        late=tuple(
            pod for pod in plan.pods if pod.uid in late and not (pod.admin_access and pod.effect is PodEffect.TOLERATES)
        ),
    )


def _with_outcomes(look: Look, pods: Pods) -> tuple[Look, str]:
    """What came of our evictions, in the status; and a sentence where the API can never decide."""
    outcomes = look.obs.outcomes
    old = look.status.eviction or EvictionStatus(started_at=look.status.phase_since)
    by_us = old.evicted_by_taintctl + sum(o.result is EvictionResult.EVICTED for o in outcomes)
    refused = (EvictionResult.BUDGET_FORBIDS, EvictionResult.FAILED)
    blocked_by = old.blocked_by
    if outcomes:
        blocked_by = tuple(short(f"{o.namespace}/{o.name}: {o.message}", 256) for o in outcomes if o.result in refused)[
            :MAX_LISTED
        ]
    if look.obs.plan is not None and look.obs.plan_problem is None and not pods.by_us:
        blocked_by = ()
    planned = look.status.plan.counts.pods if look.status.plan is not None else 0
    gone = max(0, planned - len(pods.pending) - by_us) if look.obs.plan is not None else old.evicted_by_taint
    empty = look.obs.idleness.verdict is Verdict.TRUE
    eviction = old.model_copy(
        update={
            "settled_from": old.settled_from or look.now,
            "empty_since": (old.empty_since or look.now) if empty else None,
            "nodes": _nodes(old, look.obs.plan),
            "pending": len(pods.pending),
            "terminating": _refs(pods.terminating),
            "late": _refs(pods.late),
            "evicted_by_taint": max(old.evicted_by_taint, gone),
            "evicted_by_taintctl": by_us,
            "blocked_by": blocked_by,
        }
    )
    twice = next((o for o in outcomes if o.result is EvictionResult.MULTIPLE_BUDGETS), None)
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


def _not_idle(look: Look) -> str:
    """DevicesIdle while it is not proven: what the objects say, but never True before the waits are over."""
    return "False" if look.obs.idleness.verdict is Verdict.FALSE else "Unknown"


def _unproven(look: Look, plan: Plan | None, pods: Pods) -> tuple[str, str] | None:
    """Why the devices are not proven idle yet; None where they are (as far as this look can say)."""
    idle, settings, eviction = look.obs.idleness, look.obs.settings, look.status.eviction
    assert eviction is not None
    if idle.verdict is Verdict.FALSE:
        return _in_use(look, pods)
    if idle.verdict is Verdict.UNKNOWN:
        return idle.reason, idle.message
    if not look.past(eviction.settled_from, settings.settle):
        return (
            Reason.SETTLING,
            f"The devices look idle; until {settings.settle.total_seconds():g} s after the taint "
            "a pod may come that was scheduled before it.",
        )
    return _condition_pending(look, plan) or _silence_possible(look)


def _silence_possible(look: Look) -> tuple[str, str] | None:
    """A pod force-deleted from a node that fell silent is gone from the API and still runs, and the node reads Ready
    for a while: so the devices must have looked idle, their nodes Ready, for longer than that: by the times in the
    status, and by a clock of this process, since a wall clock can be set."""
    silence, eviction = look.obs.settings.node_silence, look.status.eviction
    assert eviction is not None
    if eviction.empty_since is None:
        return None
    left = max(look.until(eviction.empty_since, silence), look.scaled(silence) - look.obs.idle_for)
    if left <= timedelta(0):
        return None
    return (
        Reason.PROVING_IDLE,
        "No pod holds the devices any more; a node that fell silent reads Ready for a while, so the proof waits until "
        f"{moment(look.now + left)}.",
    )


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


def _condition_pending(look: Look, plan: Plan | None) -> tuple[str, str] | None:
    """EvictionInProgress False for this generation on every rule; or on those where it is not, it has been so for 20 s
    with no pod left that it could mean (recording 09: nothing updates it then)."""
    waiting = [rule for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    if not waiting:
        return None
    names = some([rule.name for rule in waiting])
    if plan is None or not _means_nobody(look, plan):
        return Reason.PROVING_IDLE, f"EvictionInProgress of DeviceTaintRule {names} is not False yet."
    eviction = look.status.eviction
    if eviction is not None and look.past(eviction.stale_since, look.obs.settings.stale_condition):
        return None
    return (
        Reason.PROVING_IDLE,
        f"EvictionInProgress of DeviceTaintRule {names} is not False, though no pod is left that it could mean; "
        f"after {look.obs.settings.stale_condition.total_seconds():g} s it counts as stale.",
    )


def _with_staleness(look: Look, plan: Plan | None) -> Look:
    """Since when a condition has not been False although no pod is left that it could mean."""
    old = look.status.eviction or EvictionStatus(started_at=look.status.phase_since)
    since = (old.stale_since or look.now) if plan is not None and _means_nobody(look, plan) else None
    return look.with_status(eviction=old.model_copy(update={"stale_since": since}))


def _means_nobody(look: Look, plan: Plan) -> bool:
    planned = {selector(rule): rule.pods for rule in plan.rules}
    waiting = [rule for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    return bool(waiting) and not any(planned.get(selector(rule), 0) for rule in waiting)


def _idle(look: Look) -> Decision:
    eviction = look.status.eviction
    assert eviction is not None
    stale = [rule.name for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    message = "Every pod is gone, and the devices are proven idle."
    reason = Reason.COMPLETED
    if stale:
        reason = Reason.CONDITION_STALE
        message += f" EvictionInProgress of DeviceTaintRule {some(stale)} is stale: it means no pod any more."
    eviction = eviction.model_copy(update={"idle_proven_at": look.now, "pending": 0, "terminating": ()})
    look = look.with_status(eviction=eviction, work_started_at=look.now)
    look = look.with_condition(ConditionType.EVICTED, True, reason, message)
    look = look.with_condition(ConditionType.DEVICES_IDLE, True, Reason.DEVICES_IDLE, look.obs.idleness.message)
    look = look.with_condition(ConditionType.WORK_DONE, False, Reason.WAITING_FOR_WORK, "The work may begin.")
    return look.go(Phase.IN_MAINTENANCE, Reason.DEVICES_IDLE, message)
