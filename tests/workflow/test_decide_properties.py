"""What holds for every decision, whatever the phase and the observation: driven by Hypothesis."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from taintctl.api.base import ANNOTATION_ROUND, FINALIZER
from taintctl.api.check import FieldProblem
from taintctl.api.objects import DeviceTaintRule
from taintctl.api.plan import Idleness, Problem, Verdict
from taintctl.api.policy import OnMismatch, RollbackFailure
from taintctl.api.reasons import Agreement, Effect, Phase, PodEffect, Reason
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.api.run import AtDeadline, Drain, DrainMode, Ending, RunStatus
from taintctl.impact import parse
from taintctl.policy import Terms, covers, evaluate, people_needed, tally, uncovered
from taintctl.workflow import TRANSITIONS, decide
from taintctl.workflow.model import (
    CreateRule,
    Decision,
    DeleteRule,
    EvictPod,
    Observation,
    RemoveFinalizer,
    SetEffect,
)
from taintctl.workflow.transitions import BEFORE_EVICTION, BEFORE_MAINTENANCE, PLAN_PROBLEMS
from tests.workflow.builders import (
    DRIVER,
    HOUR,
    IDLE,
    NOW,
    Killed,
    World,
    make_approval,
    make_plan,
    make_pod,
    make_policy,
    make_run,
    said,
    seconds,
    terminating,
)

Change = Callable[[Observation], Observation]

MANY = [make_pod("train"), make_pod("web", PodEffect.NOT_REACHED_BY_TAINT), make_pod("mon", PodEffect.TOLERATES)]
PLANS = [
    make_plan(MANY, pools=["node-1", "node-2"]),
    make_plan([], pools=["node-1", "node-2"]),
    make_plan(["train"], pools=["node-1"]),
    make_plan([*MANY, make_pod("late", PodEffect.NOT_REACHED_BY_TAINT)], pools=["node-1", "node-2"]),
    make_plan(MANY, pools=["node-1", "node-2"], uuid="OTHER"),
    make_plan([terminating(p) for p in MANY], pools=["node-1", "node-2"]),
    make_plan([make_pod("train", PodEffect.EVICTED_LATER, toleration_seconds=7200)], pools=["node-1", "node-2"]),
]
PROBLEMS = [*PLAN_PROBLEMS, Reason.CLUSTER_UNREADABLE, "SomethingNew"]


def seen_on_the_way(
    auto: bool, keep: bool, mode: DrainMode = DrainMode.TAINT, force: bool = False, fewer: int = 0
) -> list[Observation]:
    """The observations of a whole run, with a kill in the middle of the patches. With `force` the Eviction API lets
    nobody go before the timeout. The control plane counts so many published devices `fewer` than the plan."""
    rollback = () if keep else (RollbackFailure.DRAIN_TIMEOUT, RollbackFailure.CANCELLED)
    policy = make_policy(
        approval={"required": "Never" if auto else "Always"},
        rollbackOn=rollback,
        drain={"forceAtTimeout": force},
        onMismatch="UseLarger" if fewer else "Block",
    )
    world = World(
        run=make_run(
            target={"driver": DRIVER, "wholeDriver": True},
            meta={"finalizers": ()},
            drain={"mode": mode, "timeout": "1m"},
        ),
        plan=PLANS[0],
        policy=policy,
        outcome=(lambda a: EvictionOutcome(a.namespace, a.name, a.uid, EvictionResult.BUDGET_FORBIDS, "No."))
        if force
        else None,
        message=lambda rule: said(replace(rule, published=rule.published - fewer)),
    )
    found: list[Observation] = []
    killed = False
    for _ in range(150):
        found.append(world.observe())
        if world.phase is not None and world.phase.ended:
            break
        if world.phase is Phase.AWAITING_APPROVAL and not auto and not world.approvals:
            world.approve()
        forced = world.status.eviction is not None and world.status.eviction.forced_at is not None
        if world.phase is Phase.DRAINING and (forced if force else world.evicted):
            world.evictions_complete()
            world.plan = make_plan([], pools=["node-1", "node-2"])
        if world.phase is Phase.IN_MAINTENANCE and not world.run.spec.work_completed:
            world.spec(work_completed=True)
        by_api = mode is DrainMode.EVICT
        patching = Phase.DRAINING if by_api else Phase.NOTICE
        if world.phase is patching and len(world.rules) == 4 and not killed:
            killed, world.kill_after = True, world._writes + 2
        try:
            world.pass_time(world.step().requeue_after or 0)
        except Killed:
            world.pass_time(120)
    return found


WAY = [o for auto in (True, False) for keep in (True, False) for o in seen_on_the_way(auto, keep)]
WAY_BY_API = [
    o for auto in (True, False) for force in (True, False) for o in seen_on_the_way(auto, False, DrainMode.EVICT, force)
]


def run_changed(**spec: Any) -> Change:
    return lambda o: replace(o, run=o.run.model_copy(update={"spec": o.run.spec.model_copy(update=spec)}))


def status_changed(**changes: Any) -> Change:
    return lambda o: replace(o, run=o.run.model_copy(update={"status": o.run.status.model_copy(update=changes)}))


def meta_changed(**changes: Any) -> Change:
    return lambda o: replace(o, run=o.run.model_copy(update={"metadata": o.run.metadata.model_copy(update=changes)}))


def observed(**changes: Any) -> Change:
    return lambda o: replace(o, **changes)


def rules_changed(change: Callable[[DeviceTaintRule], DeviceTaintRule | None], which: int) -> Change:
    def apply(o: Observation) -> Observation:
        if not o.rules:
            return o
        rules = list(o.rules)
        new = change(rules[which % len(rules)])
        rules[which % len(rules)] = new  # type: ignore[call-overload]
        return replace(o, rules=tuple(r for r in rules if r is not None))

    return apply


def entries_changed(which: int, **changes: Any) -> Change:
    def apply(o: Observation) -> Observation:
        if not o.run.status.rules:
            return o
        rules = list(o.run.status.rules)
        rules[which % len(rules)] = rules[which % len(rules)].model_copy(update=changes)
        return status_changed(rules=tuple(rules))(o)

    return apply


def taint(effect: str) -> Callable[[DeviceTaintRule], DeviceTaintRule]:
    def change(rule: DeviceTaintRule) -> DeviceTaintRule:
        new = msgspec.structs.replace(rule.spec.taint, effect=effect)
        return msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, taint=new))

    return change


def meta_of_rule(**changes: Any) -> Callable[[DeviceTaintRule], DeviceTaintRule]:
    return lambda rule: msgspec.structs.replace(rule, metadata=msgspec.structs.replace(rule.metadata, **changes))


def message(text: str) -> Callable[[DeviceTaintRule], DeviceTaintRule]:
    def change(rule: DeviceTaintRule) -> DeviceTaintRule:
        if rule.eviction is None:
            return rule
        new = msgspec.structs.replace(rule.eviction, message=text)
        return msgspec.structs.replace(rule, status=msgspec.structs.replace(rule.status, conditions=(new,)))

    return change


def no_condition(rule: DeviceTaintRule) -> DeviceTaintRule:
    return msgspec.structs.replace(rule, status=msgspec.structs.replace(rule.status, conditions=None))


def without_selector(rule: DeviceTaintRule) -> DeviceTaintRule:
    return msgspec.structs.replace(rule, spec=msgspec.structs.replace(rule.spec, device_selector=None))


def approvals(deny: bool, mine: bool) -> Change:
    def apply(o: Observation) -> Observation:
        asked = o.run.status.approval.asked if o.run.status.approval else None
        digest = asked.digest if asked is not None and mine else "0" * 64
        return replace(o, approvals=(*o.approvals, make_approval(digest, who="bob", deny=deny, at=NOW + 20 * HOUR)))

    return apply


def put_phase(phase: Phase | None) -> Change:
    return status_changed(phase=phase)


OUTCOMES = [(EvictionOutcome("team-a", "web", "uid-web", result, "the server's words"),) for result in EvictionResult]
WAY_OF_THE_LARGER = seen_on_the_way(True, False, fewer=1) + seen_on_the_way(True, False, DrainMode.EVICT, True, fewer=1)
which = st.integers(0, 5)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.sampled_from([None, *Phase]).map(put_phase),
    st.builds(lambda plan: observed(plan=plan), st.sampled_from([None, *PLANS])),
    st.builds(
        lambda r, keep: lambda o: replace(o, plan_problem=Problem(r, "Why not."), plan=o.plan if keep else None),
        st.sampled_from(PROBLEMS),
        st.booleans(),
    ),
    st.builds(lambda live: observed(live=live), st.booleans()),
    st.sampled_from(
        [
            observed(approvals=()),
            observed(approvals_verified=None),
            observed(earlier_runs=("other",)),
            observed(problems=(FieldProblem("spec.devcie", "is not a field", Reason.UNKNOWN_FIELD),)),
            observed(policy=None, policy_problem=Problem(Reason.POLICY_NOT_FOUND, "There is no policy.")),
            observed(policy=None, policy_problem=Problem(Reason.CLUSTER_UNREADABLE, "No answer.")),
            observed(policy=None),
            observed(policy=make_policy(limits={"maxPods": 0})),
            observed(policy=make_policy(approval={"required": "Always", "count": 3})),
            observed(policy=make_policy(drain={"forceAtTimeout": True})),
            observed(policy=make_policy(onMismatch="UseLarger")),
            observed(policy=make_policy(onMismatch="UseLarger", dryRun={"attempts": 1})),
            observed(policy=make_policy(drain={"forceAtTimeout": False})),
            run_changed(drain=Drain(mode=DrainMode.TAINT)),
            run_changed(drain=Drain(mode=DrainMode.EVICT)),
            run_changed(drain=Drain(mode=DrainMode.EVICT, timeout=seconds(1))),
            observed(rules=()),
            run_changed(paused=True),
            run_changed(cancelled=True),
            run_changed(released=True),
            run_changed(work_completed=True),
            run_changed(start_at=NOW + 2 * HOUR),
            run_changed(deadline=NOW - HOUR),
            run_changed(deadline=NOW - HOUR, at_deadline=AtDeadline.KEEP_TAINTED),
            run_changed(deadline=NOW - HOUR, at_deadline=AtDeadline.EXTEND, extend_by=20 * HOUR),
            meta_changed(deletion_timestamp=NOW),
            meta_changed(finalizers=()),
            meta_changed(finalizers=(FINALIZER,)),
            status_changed(approval=None),
            status_changed(eviction=None),
            status_changed(plan=None),
            status_changed(rules=()),
            status_changed(ending=Ending(phase=Phase.FAILED, reason="DrainTimeout", message="Too slow.")),
            status_changed(reason="Paused"),
            status_changed(reason="PolicyNotFound"),
            status_changed(phase_since=None),
            approvals(deny=True, mine=True),
            approvals(deny=False, mine=True),
            approvals(deny=False, mine=False),
        ]
    ),
    st.builds(
        lambda v: observed(idleness=Idleness(v, Reason.DEVICES_IN_USE, "As it was made up.")), st.sampled_from(Verdict)
    ),
    st.builds(lambda out: observed(outcomes=out), st.sampled_from(OUTCOMES)),
    st.builds(lambda age: lambda o: replace(o, taken_at=o.taken_at - seconds(age)), st.sampled_from([1, 9, 11])),
    st.builds(lambda w: rules_changed(lambda _: None, w), which),
    st.builds(lambda w, e: rules_changed(taint(e), w), which, st.sampled_from(Effect)),
    st.builds(lambda w: rules_changed(meta_of_rule(deletion_timestamp=NOW), w), which),
    st.builds(lambda w: rules_changed(meta_of_rule(uid="another"), w), which),
    st.builds(lambda w: rules_changed(meta_of_rule(generation=7), w), which),
    st.builds(lambda w: rules_changed(meta_of_rule(labels=None), w), which),
    st.builds(lambda w: rules_changed(meta_of_rule(annotations={ANNOTATION_ROUND: "x"}), w), which),
    st.builds(lambda w: rules_changed(message("12 things happened."), w), which),
    st.builds(lambda w: rules_changed(no_condition, w), which),
    st.builds(lambda w: rules_changed(without_selector, w), which),
    st.builds(lambda w: entries_changed(w, uid=""), which),
    st.builds(lambda w, e: entries_changed(w, effect=e), which, st.sampled_from(Effect)),
    st.builds(lambda w: entries_changed(w, effect_since=None), which),
    st.builds(lambda w: entries_changed(w, agreement=Agreement.MISMATCH), which),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Observation, timedelta]:
    observation = draw(st.sampled_from(WAY) | st.sampled_from(WAY_BY_API) | st.sampled_from(WAY_OF_THE_LARGER))
    for change in draw(st.lists(CHANGES, max_size=3)):
        observation = change(observation)
    late = draw(st.sampled_from([seconds(0), seconds(0), seconds(5), seconds(61), HOUR]))
    return replace(observation, taken_at=observation.taken_at + late), late


def clock(observation: Observation) -> Any:
    return observation.taken_at


@settings(max_examples=1500, deadline=None)
@given(cases(), st.sampled_from([0, 0, 0, 3, 15]))
def test_every_decision_keeps_the_promises(case: tuple[Observation, timedelta], slow: int) -> None:
    observation, _ = case
    now = observation.taken_at + seconds(slow)
    decision = decide(observation, now)
    before, after = observation.run.status, decision.status
    check_shape(observation, decision)
    if decision.need_live:
        return
    if before.phase != after.phase:
        assert (before.phase, Reason(after.reason), after.phase) in TRANSITIONS
        assert len(decision.events) == 1
    if after.phase is not None and after.phase.ended and before.phase != after.phase:
        assert observation.rules == (), "it ended with a rule of ours left"
        assert after.rules == ()
    if after.phase is Phase.RELEASING and before.phase is not Phase.RELEASING:
        assert before.phase is Phase.IN_MAINTENANCE
        assert observation.live
        assert observation.idleness.verdict is Verdict.TRUE
    if before.phase is Phase.IN_MAINTENANCE and after.phase is Phase.ROLLING_BACK:
        assert observation.run.spec.released
        assert observation.rules == (), "a device in maintenance was freed without a proof"
    if after.phase is Phase.IN_MAINTENANCE and before.phase is not Phase.IN_MAINTENANCE:
        assert observation.live
        assert observation.idleness.verdict is Verdict.TRUE
        effects = {rule.effect for rule in after.rules}
        by_api = observation.run.spec.drain.mode is DrainMode.EVICT
        assert effects == {Effect.NO_EXECUTE} or (by_api and effects == {Effect.NO_SCHEDULE})
    if after.phase is Phase.DRAINING and before.phase is Phase.NOTICE:
        assert observation.run.spec.drain.mode is DrainMode.EVICT
        check_passed(observation, now)
    if after.phase in BEFORE_EVICTION:
        assert all(rule.effect is not Effect.NO_EXECUTE for rule in after.rules)
    for action in decision.actions:
        check_action(observation, decision, action, now)


def check_shape(observation: Observation, decision: Decision) -> None:
    if decision.need_live:
        assert not observation.live, "live reads were asked for, and were there"
        assert decision.actions == ()
        assert decision.status == observation.run.status
    before, after, name = observation.run.status, decision.status, observation.run.name
    assert not after.next_step.startswith((f"taintctl explain {name}", f"taintctl status {name}")), "that led here"
    if after.phase is Phase.BLOCKED and before.phase is not Phase.BLOCKED:
        assert after.next_step, f"{after.reason}: what now?"
    dumped = decision.status.dump()
    assert RunStatus.model_validate(dumped) == decision.status, "what is stored is what was meant"
    assert len(json.dumps(dumped)) < 100_000
    assert len(decision.status.history) <= 50


def check_action(observation: Observation, decision: Decision, action: Any, now: Any) -> None:
    run, after = observation.run, decision.status
    there = {(rule.metadata.name, rule.metadata.uid): rule for rule in observation.rules}
    match action:
        case SetEffect(effect=Effect.NO_EXECUTE):
            check_gate(observation, decision, action, now)
        case SetEffect():
            rule = there[action.name, action.uid]
            assert action.resource_version == rule.metadata.resource_version
            if rule.metadata.deletion_timestamp is not None:
                # Its deletion is held up by somebody's finalizer: it goes on tainting until the effect is taken off.
                assert action.effect is Effect.NONE
            elif run.spec.paused or observation.problems:
                assert rule.spec.taint.effect == "NoExecute"
                assert action.effect is Effect.NO_SCHEDULE
        case CreateRule(manifest):
            assert manifest.effect is Effect.NONE
            assert manifest.pool
            assert not run.spec.paused
            assert not run.spec.cancelled
            assert run.metadata.deletion_timestamp is None
        case DeleteRule():
            assert (action.name, action.uid) in there
            if run.status.phase is after.phase is Phase.IN_MAINTENANCE:
                kept = {entry.name for entry in run.status.rules if entry.uid}
                assert action.name not in kept, "a device in maintenance was freed"
        case EvictPod():
            check_eviction(observation, action, now)
        case RemoveFinalizer():
            assert observation.rules == ()
            assert after.phase is not None
            assert after.phase.ended


def check_gate(observation: Observation, decision: Decision, action: SetEffect, now: Any) -> None:
    run = observation.run
    assert decision.status.phase is Phase.EVICTING
    assert run.status.phase in (Phase.NOTICE, Phase.EVICTING, Phase.DRAINING)
    if run.spec.drain.mode is DrainMode.EVICT:
        eviction, policy = run.status.eviction, observation.policy
        assert policy is not None
        assert policy.spec.drain.force_at_timeout, "budgets were to be honoured"
        assert eviction is not None
        assert eviction.started_at is not None
        assert now - eviction.started_at >= run.spec.drain.timeout
    else:
        assert run.status.phase is not Phase.DRAINING
    assert action.not_after == observation.taken_at + seconds(10)
    check_passed(observation, now)


def check_passed(observation: Observation, now: Any) -> None:
    """The gate's promises, counted again."""
    run, plan, policy = observation.run, observation.plan, observation.policy
    assert observation.live
    assert now - observation.taken_at <= seconds(10)
    assert not any((run.spec.paused, run.spec.cancelled, observation.problems, run.metadata.deletion_timestamp))
    assert run.spec.start_at is None or run.spec.start_at <= now
    assert now < run.spec.deadline
    assert plan is not None
    assert policy is not None
    assert observation.plan_problem is None
    left = run.spec.deadline - now
    drain = run.spec.drain
    assert evaluate(plan, policy, drain_timeout=drain.timeout, time_left=left, drain_mode=drain.mode).allowed
    approval = run.status.approval
    assert approval is not None
    assert approval.asked is not None
    assert covers(approval.asked, plan, policy, run_uid=run.metadata.uid)
    counted = tally(
        observation.approvals,
        Terms(
            approval.asked,
            policy,
            verified_since=observation.approvals_verified,
            allow_unverified=False,
            asked_at=approval.asked_at,
            expires_at=approval.expires_at,
        ),
    )
    assert counted.complete(people_needed(plan, policy))
    by_name = {rule.metadata.name: rule for rule in observation.rules}
    for planned in plan.rules:
        main = next(r for r in run.status.rules if r.role == "taint" and r.pool == planned.pool)
        beside = by_name[f"{main.name}-dry"]
        assert (beside.metadata.annotations or {})[ANNOTATION_ROUND] == str(run.status.dry_run.round)
        assert beside.eviction is not None
        assert beside.eviction.observed_generation == beside.metadata.generation
        message = parse(beside.eviction.message or "")
        assert message is not None
        theirs = (message.published, message.allocated, message.pods, message.namespaces)
        ours = (planned.published, planned.allocated, planned.pods, planned.namespaces)
        if policy.spec.on_mismatch is OnMismatch.USE_LARGER and theirs != ours:
            assert run.status.dry_run.attempts >= policy.spec.dry_run.attempts
            assert all(a <= b for a, b in zip(theirs, ours, strict=True)), "somebody whom we cannot name"
        else:
            assert theirs == ours


def check_eviction(observation: Observation, action: EvictPod, now: Any) -> None:
    run, plan, approval = observation.run, observation.plan, observation.run.status.approval
    assert run.status.phase is Phase.DRAINING
    assert observation.live
    assert now - observation.taken_at <= seconds(10)
    assert action.not_after == min(observation.taken_at + seconds(10), run.spec.deadline)
    assert not any((run.spec.paused, run.spec.cancelled, observation.problems, run.metadata.deletion_timestamp))
    assert now < run.spec.deadline
    assert plan is not None
    pod = next(p for p in plan.pods if p.uid == action.uid)
    assert not pod.terminating
    assert pod.name != "late", "a pod that nobody approved"
    assert approval is not None
    assert approval.asked is not None
    assert pod.uid not in uncovered(approval.asked, plan, run_uid=run.metadata.uid)
    effects = {rule.spec.taint.effect for rule in observation.rules if not rule.metadata.name.endswith("-dry")}
    if effects == {"NoExecute"}:
        assert pod.effect is PodEffect.NOT_REACHED_BY_TAINT, "the taint deletes the others"
        return
    eviction, policy = run.status.eviction, observation.policy
    assert effects == {"NoSchedule"}
    assert run.spec.drain.mode is DrainMode.EVICT
    assert eviction is not None, "no gate was passed"
    assert eviction.started_at is not None
    assert eviction.forced_at is None
    assert pod.effect is not PodEffect.TOLERATES
    if pod.toleration_seconds is not None:
        assert now - eviction.started_at >= seconds(pod.toleration_seconds)
    assert policy is not None
    counted = tally(
        observation.approvals,
        Terms(
            approval.asked,
            policy,
            verified_since=observation.approvals_verified,
            allow_unverified=False,
            asked_at=approval.asked_at,
            expires_at=approval.expires_at,
        ),
    )
    assert counted.complete(approval.needed)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_a_look_that_finds_nothing_new_stores_nothing_new(case: tuple[Observation, timedelta]) -> None:
    """Else every store would wake the next look, for ever."""
    observation, _ = case
    now = observation.taken_at
    first = decide(observation, now)
    run = observation.run.model_copy(update={"status": first.status})
    second = decide(replace(observation, run=run, outcomes=()), now)
    third_run = run.model_copy(update={"status": second.status})
    third = decide(replace(observation, run=third_run, outcomes=()), now)
    if first.requeue_after != timedelta(0) and second.requeue_after != timedelta(0):
        assert third.status == second.status


def test_a_held_run_never_evicts_before_maintenance() -> None:
    for observation in [*WAY, *WAY_BY_API]:
        if observation.run.status.phase in BEFORE_MAINTENANCE:
            paused = run_changed(paused=True)(observation)
            decision = decide(paused, paused.taken_at)
            assert all(rule.effect is not Effect.NO_EXECUTE for rule in decision.status.rules)
            assert not [action for action in decision.actions if isinstance(action, EvictPod)]


def test_the_way_passes_every_phase_that_a_good_run_has() -> None:
    both = [{o.run.status.phase for o in way} for way in (WAY, WAY_BY_API, WAY_OF_THE_LARGER)]
    assert set.intersection(*both) >= {
        None,
        Phase.PENDING,
        Phase.DRY_RUN,
        Phase.AWAITING_APPROVAL,
        Phase.NOTICE,
        Phase.EVICTING,
        Phase.DRAINING,
        Phase.IN_MAINTENANCE,
        Phase.RELEASING,
        Phase.SUCCEEDED,
    }
    assert IDLE.verdict is Verdict.TRUE
