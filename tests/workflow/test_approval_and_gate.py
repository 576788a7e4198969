"""AwaitingApproval, Notice and the gate: nothing is evicted that people, policy and a fresh look did not let pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from taintctl.api.base import condition
from taintctl.api.check import FieldProblem
from taintctl.api.plan import PlannedPod, Problem
from taintctl.api.reasons import Effect, Phase, PodEffect, Reason
from taintctl.workflow import decide
from taintctl.workflow.follow import follow
from taintctl.workflow.gate import gate
from taintctl.workflow.look import HandEdit, Look
from taintctl.workflow.model import DeleteRule, Observation, SetEffect
from taintctl.workflow.rounds import new_second_look, read
from taintctl.workflow.rules import observe
from tests.workflow.builders import (
    HOUR,
    NOW,
    World,
    make_plan,
    make_pod,
    make_policy,
    make_run,
    said,
    seconds,
    terminating,
)

LATE = make_pod("late", PodEffect.NOT_REACHED_BY_TAINT)


def asked(count: int = 1, **more: object) -> World:
    """A run that waits for people."""
    policy = make_policy(approval={"required": "Always", "count": count, **more})
    world = World(policy=policy, plan=make_plan(["a", "b"])).until(Phase.AWAITING_APPROVAL)
    world.settle()
    return world


def approved(world: World) -> tuple[str, str]:
    found = condition(world.status.conditions, "Approved")
    assert found is not None
    return found.status, found.reason


def noticed() -> World:
    """A run one decision before the gate: the second look is there."""
    world = World(plan=make_plan(["a", "b"]), policy=make_policy(approval={"required": "Always"}))
    world.until(Phase.AWAITING_APPROVAL).approve().until(Phase.NOTICE)
    while not any(name.endswith("-dry") for name in world.rules):
        decision = world.step()
        world.pass_time(decision.requeue_after or 0)
    return world


# Approval


def test_the_question_names_the_plan_and_how_long_it_stands() -> None:
    world = asked(count=2)
    approval = world.status.approval
    assert approval is not None
    assert approval.asked is not None
    assert world.status.plan is not None
    assert approval.asked.digest == world.status.plan.digest
    assert (approval.needed, approval.asked_at, approval.expires_at) == (2, NOW, NOW + timedelta(minutes=30))
    assert world.status.message == (
        "2 approvals needed for 2 pods in 1 namespace on 2 devices; the run waits until 2026-11-30 21:30:00 UTC."
    )
    assert approved(world) == ("False", "WaitingForApproval")


def test_it_takes_as_many_people_as_the_policy_says() -> None:
    world = asked(count=2)
    world.approve("alice").settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert "alice approved" in world.status.message
    world.approve("bob").settle()
    assert world.phase is Phase.NOTICE
    assert approved(world) == ("True", "Approved")


def test_one_denial_ends_the_run_and_says_whose() -> None:
    world = asked(count=1)
    world.approve("alice").approve("bob", deny=True, comment="not tonight")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Denied")
    assert world.status.message == "bob denied the eviction: not tonight"
    assert world.rules == {}


def test_a_question_that_nobody_answers_ends_the_run() -> None:
    world = asked(expiresAfter="20m")
    world.pass_time(timedelta(minutes=20)).settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "ApprovalExpired")
    assert world.rules == {}


def test_approvals_that_nothing_proves_do_not_count_and_it_is_said_how_to_make_them() -> None:
    world = asked()
    world.verified = False
    world.approve().settle()
    assert (world.phase, world.status.reason) == (Phase.AWAITING_APPROVAL, "ApproversUnverified")
    assert approved(world) == ("Unknown", "ApproversUnverified")
    assert "--allow-unverified-approvals" in world.status.message
    world.settings = replace(world.settings, allow_unverified_approvals=True)
    world.settle()
    assert world.phase is Phase.NOTICE


def test_a_smaller_plan_keeps_the_question_and_the_approvals() -> None:
    world = asked(count=2)
    digest = world.status.approval.asked.digest  # type: ignore[union-attr]
    world.approve("alice")
    world.plan = make_plan(["a"])
    world.settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.status.approval.asked.digest == digest  # type: ignore[union-attr]
    assert world.status.plan.digest != digest  # type: ignore[union-attr]
    world.approve("bob").settle()
    assert world.phase is Phase.NOTICE


@pytest.mark.parametrize(
    "plan",
    [
        make_plan(["a", "b", "c"]),
        make_plan(["a", "b"], uuid="OTHER"),
        make_plan(["a", "b"], pools=["node-1", "node-2"]),
        make_plan(["a", LATE]),
    ],
    ids=["another pod", "other hardware of that name", "another pool", "another pod for one of them"],
)
def test_a_plan_that_is_not_smaller_voids_the_question_and_asks_anew(plan: object) -> None:
    world = asked(count=2)
    old = world.status.approval.asked.digest  # type: ignore[union-attr]
    world.approve("alice")
    world.plan = plan  # type: ignore[assignment]
    world.pass_time(10).settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    approval = world.status.approval
    assert approval is not None
    assert approval.asked is not None
    assert approval.asked.digest != old
    assert approval.given == ()
    assert approval.asked_at == NOW + seconds(10)
    assert "PlanChanged" in world.events


def test_another_generation_of_the_policy_voids_the_question() -> None:
    world = asked()
    old = world.status.approval.asked.digest  # type: ignore[union-attr]
    assert world.policy is not None
    meta = world.policy.metadata.model_copy(update={"generation": 2})
    world.policy = world.policy.model_copy(update={"metadata": meta})
    world.settle()
    assert world.status.approval.asked.digest != old  # type: ignore[union-attr]


def test_a_plan_that_grows_by_a_cache_is_looked_at_live_first() -> None:
    world = asked()
    world.live, world.plan = False, make_plan(["a", "b", "c"])
    decision = world.step()
    assert decision.need_live
    assert decision.status == world.status


def test_a_plan_that_shrinks_to_what_policy_lets_pass_goes_on_without_people() -> None:
    policy = make_policy(approval={"required": "AboveAutoApprove"}, autoApprove={"maxPods": 1})
    world = World(plan=make_plan(["a", "b"]), policy=policy).until(Phase.AWAITING_APPROVAL)
    world.plan = make_plan(["a"])
    world.settle()
    assert world.phase is Phase.NOTICE
    assert approved(world) == ("True", "AutoApproved")


def test_a_policy_that_goes_while_people_are_asked_blocks() -> None:
    world = asked()
    world.policy, world.policy_problem = None, Problem(Reason.POLICY_INVALID, "It is not valid.")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "PolicyInvalid")


def test_devices_that_go_while_people_are_asked_are_planned_anew_and_block() -> None:
    world = asked()
    world.plan, world.plan_problem = None, Problem(Reason.NO_DEVICES, "The target matches nothing.")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "NoDevices")


def test_a_question_that_ran_out_while_blocked_is_asked_anew() -> None:
    world = asked()
    world.plan, world.plan_problem = None, Problem(Reason.NO_DEVICES, "The target matches nothing.")
    world.settle()
    world.pass_time(HOUR)
    world.plan, world.plan_problem = make_plan(["a"]), None
    world.settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.status.approval.expires_at == NOW + HOUR + timedelta(minutes=30)  # type: ignore[union-attr]
    assert world.status.history[-1].reason == "WaitingForApproval", "the plan is a smaller one of the same"


def test_an_approved_run_waits_for_its_start_and_then_makes_the_dry_run_afresh() -> None:
    policy = make_policy(approval={"required": "Always"})
    world = World(run=make_run(startAt=NOW + HOUR), policy=policy).until(Phase.AWAITING_APPROVAL)
    decision = world.approve().settle()
    assert (world.phase, world.status.reason) == (Phase.AWAITING_APPROVAL, "WaitingForStart")
    assert world.status.message == "1 pod in 1 namespace on 2 devices may be evicted from 2026-11-30 22:00:00 UTC on."
    assert decision.requeue_after == seconds(60), "the plan is kept current"
    world.pass_time(HOUR - seconds(1)).settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    found = condition(world.status.conditions, "DryRunFresh")
    assert found is not None
    assert found.status == "False"
    world.pass_time(1).settle()
    assert (world.phase, world.status.dry_run.round) == (Phase.NOTICE, 2)


def test_a_clock_that_was_set_back_makes_no_dry_run_young_again() -> None:
    world = asked()
    world.pass_time(-HOUR)
    world.step()
    found = condition(world.status.conditions, "DryRunFresh")
    assert found is not None
    assert found.status == "False"


def test_a_status_that_lost_its_question_asks_again() -> None:
    world = asked()
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"approval": None})})
    world.settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.status.approval is not None


# Notice


def test_notice_lasts_as_long_as_the_run_says_from_when_the_taint_was_seen() -> None:
    world = World(run=make_run(notice="5m"))
    world.until(Phase.NOTICE).settle()
    assert world.effects == {"NoSchedule"}
    since = world.status.rules[0].effect_since
    world.pass_time(seconds(299)).settle()
    assert not any(name.endswith("-dry") for name in world.rules)
    world.until(Phase.EVICTING)
    assert since is not None
    assert world.now - since >= timedelta(minutes=5)


def test_waits_are_scaled_and_times_are_not() -> None:
    world = World(run=make_run(notice="100s", startAt=NOW + seconds(30)))
    world.settings = replace(world.settings, speed=10)
    world.until(Phase.EVICTING)
    assert seconds(40) <= world.now - NOW < seconds(60)


def test_a_rule_whose_patch_was_lost_is_patched_again() -> None:
    world = World()
    world.until(Phase.AWAITING_APPROVAL)
    decision = decide(world.observe(), world.now)
    assert decision.status.phase is Phase.NOTICE
    world.run = world.run.model_copy(update={"status": decision.status})
    assert world.effects == {"None"}
    world.step()
    assert world.effects == {"NoSchedule"}
    assert world.status.reason == "NoticeGiven"


@pytest.mark.parametrize("withdraw", ["approvals", "policy"])
def test_what_is_withdrawn_during_notice_takes_the_run_back_to_the_dry_run(withdraw: str) -> None:
    world = noticed()
    if withdraw == "approvals":
        world.approvals = ()
    else:
        world.policy = make_policy(approval={"required": "Always"}, limits={"maxPods": 0})
    decision = world.step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "PlanChanged")
    assert any(isinstance(a, DeleteRule) for a in decision.actions)
    world.settle()
    assert world.effects == {"None"}
    assert "NoExecute" not in world.effects


def test_a_denial_during_notice_still_counts() -> None:
    world = noticed()
    world.approve("bob", deny=True).settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Denied")


def test_a_second_look_that_differs_is_asked_again_and_then_blocks_at_no_schedule() -> None:
    world = World(plan=make_plan(["a"]), policy=make_policy(dryRun={"attempts": 1})).until(Phase.NOTICE)
    world.message = lambda rule: said(replace(rule, pods=rule.pods + 1, namespaces=1))
    world.until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"
    assert world.rules[world.name_of()].spec.taint.effect == "NoSchedule"
    assert "NoExecute" not in world.effects
    assert [name for name in world.made if name.endswith("-dry")] == [f"{world.name_of()}-dry"] * 2


def test_a_silent_controller_is_noticed_at_the_second_look_too() -> None:
    world = World().until(Phase.NOTICE)
    world.controller_silent = True
    world.until(Phase.BLOCKED)
    assert world.status.reason == "EvictionControllerSilent"


# The gate


def look_at(observation: Observation) -> Look:
    status, edit = observe(observation, observation.taken_at)
    return Look(observation, observation.taken_at, status, edit)


def at_the_gate() -> Look:
    """The look of the very decision that passes: read from what it decides on."""
    world = noticed()
    look = look_at(world.observe())
    answer = read(look, "dry-run", new_second_look, Reason.SECOND_LOOK, "", follow)
    assert isinstance(answer, Look)
    return answer


def test_the_gate_passes_what_is_live_fresh_allowed_agreed_and_approved() -> None:
    assert gate(at_the_gate()) is None


def changed(**fields: object) -> Callable[[Look], Look]:
    return lambda look: replace(look, obs=replace(look.obs, **fields))  # type: ignore[arg-type]


def spec(**fields: object) -> Callable[[Look], Look]:
    def change(look: Look) -> Look:
        run = look.obs.run.model_copy(update={"spec": look.obs.run.spec.model_copy(update=fields)})
        return replace(look, obs=replace(look.obs, run=run))

    return change


def without_uid(look: Look) -> Look:
    return look.with_status(rules=tuple(r.model_copy(update={"uid": ""}) for r in look.status.rules))


def without_second_look(look: Look) -> Look:
    return look.with_status(rules=tuple(r for r in look.status.rules if r.role == "taint"))


def old_round(look: Look) -> Look:
    dry_run = look.status.dry_run.model_copy(update={"requested_at": look.now - seconds(61)})
    return look.with_status(dry_run=dry_run)


def deleted(look: Look) -> Look:
    meta = look.obs.run.metadata.model_copy(update={"deletion_timestamp": look.now})
    return replace(look, obs=replace(look.obs, run=look.obs.run.model_copy(update={"metadata": meta})))


def edited(look: Look) -> Look:
    return replace(look, edit=HandEdit(Reason.RULE_CHANGED, "By hand.", frozenset()))


def minds_changed(look: Look) -> Look:
    rules = tuple(r.model_copy(update={"agreement": None}) for r in look.status.rules)
    return look.with_status(rules=rules)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (changed(live=False), Reason.CLUSTER_UNREADABLE),
        (lambda look: replace(look, now=look.now + seconds(11)), Reason.CLUSTER_UNREADABLE),
        (changed(plan=None), Reason.CLUSTER_UNREADABLE),
        (changed(plan_problem=Problem(Reason.CLUSTER_UNREADABLE, "No answer.")), Reason.CLUSTER_UNREADABLE),
        (changed(plan_problem=Problem(Reason.NO_DEVICES, "None.")), Reason.PLAN_CHANGED),
        (changed(policy=None), Reason.POLICY_NOT_FOUND),
        (changed(policy=make_policy(limits={"maxPods": 0})), Reason.PLAN_CHANGED),
        (changed(plan=make_plan(["a", "b", "c"])), Reason.PLAN_CHANGED),
        (changed(plan=make_plan(["a", "b"], pools=["node-2"])), Reason.PLAN_CHANGED),
        (changed(approvals=()), Reason.PLAN_CHANGED),
        (changed(approvals_verified=None), Reason.PLAN_CHANGED),
        (changed(problems=(FieldProblem("spec", "no"),)), Reason.WAITING_FOR_START),
        (spec(paused=True), Reason.WAITING_FOR_START),
        (spec(cancelled=True), Reason.WAITING_FOR_START),
        (spec(start_at=NOW + HOUR), Reason.WAITING_FOR_START),
        (spec(deadline=NOW), Reason.WAITING_FOR_START),
        (deleted, Reason.WAITING_FOR_START),
        (edited, Reason.WAITING_FOR_START),
        (without_uid, Reason.SECOND_LOOK),
        (without_second_look, Reason.SECOND_LOOK),
        (old_round, Reason.SECOND_LOOK),
        (minds_changed, Reason.SECOND_LOOK),
    ],
)
def test_the_gate_refuses(change: Callable[[Look], Look], reason: Reason) -> None:
    refused = gate(change(at_the_gate()))
    assert refused is not None
    assert refused.reason is reason


def test_no_execute_is_set_on_the_rules_as_observed_and_only_for_seconds() -> None:
    world = noticed()
    rule = world.rules[world.name_of()]
    decision = world.step()
    assert world.phase is Phase.EVICTING
    assert [a for a in decision.actions if isinstance(a, SetEffect)] == [
        SetEffect(
            rule.metadata.name,
            rule.metadata.uid,
            rule.metadata.resource_version,
            Effect.NO_EXECUTE,
            not_after=world.now + seconds(10),
        )
    ]
    assert isinstance(decision.actions[-1], DeleteRule)
    assert decision.actions[-1].name == f"{rule.metadata.name}-dry"
    assert world.status.eviction is not None
    assert (world.status.eviction.started_at, world.status.eviction.pending) == (world.now, 2)


def test_a_cache_is_never_enough_for_the_gate() -> None:
    world = noticed()
    world.live = False
    decision = world.step()
    assert decision.need_live
    assert world.phase is Phase.NOTICE


def test_reads_that_took_too_long_are_said_and_not_repeated_at_once() -> None:
    world = noticed()
    observation = world.observe()
    decision = decide(observation, world.now + seconds(11))
    assert not decision.need_live
    assert decision.status.reason == "ClusterUnreadable"
    assert decision.requeue_after == seconds(2)
    assert not [a for a in decision.actions if isinstance(a, SetEffect)]


@pytest.mark.parametrize("pod", [make_pod("late"), LATE], ids=["reached by the taint", "not reached"])
def test_a_pod_that_arrives_before_the_gate_stops_it(pod: PlannedPod) -> None:
    world = noticed()
    world.plan = make_plan(["a", "b", pod])
    world.step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "PlanChanged")
    world.settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.effects == {"None"}


def test_a_pod_that_leaves_before_the_gate_only_refreshes_the_second_look() -> None:
    world = noticed()
    world.plan = make_plan(["a", terminating(make_pod("b"))])
    world.until(Phase.EVICTING)
    assert len([name for name in world.made if name.endswith("-dry")]) == 2


def test_a_second_look_at_other_rules_than_those_that_stand_is_begun_again() -> None:
    """A status that lost one of the rules beside: agreement on the rest is not enough."""
    world = World(
        run=make_run(target={"driver": "gpu.example.com", "wholeDriver": True}),
        plan=make_plan(["a"], pools=["node-1", "node-2"]),
    ).until(Phase.NOTICE)
    while len(world.rules) < 4:
        world.pass_time(world.step().requeue_after or 0)
    kept = tuple(r for r in world.status.rules if r.name != f"{world.name_of(1)}-dry")
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": kept})})
    before = world.status.dry_run.round
    world.step()
    assert (world.phase, world.status.reason, world.status.dry_run.round) == (Phase.NOTICE, "SecondLook", before + 1)
    assert "NoExecute" not in world.effects
    world.until(Phase.EVICTING)


def test_a_notice_given_before_the_start_by_whatever_mistake_does_not_evict() -> None:
    world = noticed()
    world.spec(start_at=NOW + HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.NOTICE, "WaitingForStart")
    assert "NoExecute" not in world.effects
