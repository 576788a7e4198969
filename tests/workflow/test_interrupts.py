"""Hands laid on a run, in every phase: deletion, cancellation, a pause, a bad spec, edited rules; and the deadline."""

from __future__ import annotations

import msgspec
import pytest

from taintctl.api.check import FieldProblem
from taintctl.api.objects import DeviceSelector
from taintctl.api.plan import Problem
from taintctl.api.reasons import Phase, PodEffect, Reason
from taintctl.workflow.model import CreateRule, SetEffect
from tests.workflow.builders import HOUR, Killed, World, make_plan, make_pod, make_policy, make_run

BEFORE_EVICTION = [Phase.DRY_RUN, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE]
BEGUN = [Phase.EVICTING, Phase.DRAINING]
KEEP = ["DrainTimeout"]


def at(phase: Phase, **policy: object) -> World:
    """A run that is in `phase` and has its rules there."""
    policy.setdefault("approval", {"required": "Always"})
    world = World(policy=make_policy(**policy), plan=make_plan(["a", make_pod("web", PodEffect.NOT_REACHED_BY_TAINT)]))
    if phase is Phase.PENDING:
        world.step()
        return world
    if phase is Phase.BLOCKED:
        world.until(Phase.AWAITING_APPROVAL).approve().until(Phase.NOTICE)
        world.settle()
        world.policy, world.policy_problem = None, Problem(Reason.POLICY_NOT_FOUND, "There is no EvictionPolicy.")
        world.settle()
        world.policy, world.policy_problem = make_policy(**policy), None
        assert world.effects == {"NoSchedule"}
        assert world.phase is Phase.BLOCKED
        return world
    if phase is Phase.DRY_RUN:
        world.controller_silent = True
        world.until(Phase.DRY_RUN).step()
        return world
    world.until(Phase.AWAITING_APPROVAL)
    if phase is not Phase.AWAITING_APPROVAL:
        world.approve().until(phase)
    if phase is Phase.NOTICE:
        world.step()
    return world


@pytest.mark.parametrize("phase", [Phase.PENDING, *BEFORE_EVICTION, *BEGUN])
def test_deleting_before_maintenance_takes_the_taint_off_first(phase: Phase) -> None:
    world = at(phase).delete()
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Deleted")
    assert world.rules == {}
    assert world.run.metadata.finalizers == ()


@pytest.mark.parametrize("phase", [Phase.PENDING, *BEFORE_EVICTION, *BEGUN])
def test_cancelling_before_maintenance_takes_the_taint_off(phase: Phase) -> None:
    world = at(phase).spec(cancelled=True)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Cancelled")
    assert world.rules == {}
    assert world.run.metadata.finalizers == (), "whoever deletes an ended run needs no controller"


@pytest.mark.parametrize("phase", [Phase.BLOCKED, Phase.NOTICE, *BEGUN])
def test_where_policy_keeps_the_taint_of_a_cancelled_run_it_waits_at_no_schedule_for_release(phase: Phase) -> None:
    world = at(phase, rollbackOn=KEEP).spec(cancelled=True)
    world.settle()
    assert (world.phase, world.status.reason) == (phase, "WaitingForRelease")
    assert world.effects <= {"NoSchedule", "None"}
    assert "NoSchedule" in world.effects
    assert world.status.next_step == "taintctl release night"
    world.pass_time(9 * HOUR).settle()
    assert world.phase is phase, "the deadline takes nothing off that the policy keeps"
    world.spec(released=True).settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Cancelled")
    assert world.rules == {}


def test_a_cancelled_run_without_a_taint_has_nothing_to_keep() -> None:
    world = at(Phase.AWAITING_APPROVAL, rollbackOn=KEEP).spec(cancelled=True)
    world.settle()
    assert world.phase is Phase.CANCELLED


def test_a_cancelled_run_that_is_wanted_after_all_begins_with_a_new_dry_run() -> None:
    world = at(Phase.DRAINING, rollbackOn=KEEP).spec(cancelled=True)
    world.settle()
    world.spec(cancelled=False).step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "Resumed")


def test_a_cancelled_run_whose_policy_cannot_be_read_stops_evicting_and_keeps_the_taint() -> None:
    world = at(Phase.DRAINING).spec(cancelled=True)
    world.policy, world.policy_problem = None, Problem(Reason.CLUSTER_UNREADABLE, "No answer.")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "WaitingForRelease")
    assert world.effects == {"NoSchedule"}
    world.policy, world.policy_problem = make_policy(approval={"required": "Always"}), None
    world.settle()
    assert world.phase is Phase.CANCELLED


@pytest.mark.parametrize("phase", [*BEFORE_EVICTION, *BEGUN])
def test_a_paused_run_evicts_nothing_and_takes_no_step(phase: Phase) -> None:
    world = at(phase).spec(paused=True)
    made, evicted = len(world.made), len(world.evicted)
    world.settle()
    world.pass_time(HOUR).settle()
    assert (world.phase, world.status.reason) == (phase, "Paused")
    assert "NoExecute" not in world.effects
    assert (len(world.made), len(world.evicted)) == (made, evicted)
    assert world.status.next_step == "taintctl resume night"


@pytest.mark.parametrize("phase", [*BEFORE_EVICTION, *BEGUN])
def test_going_on_repeats_dry_run_and_approval_check_and_approvals_hold(phase: Phase) -> None:
    world = at(phase).spec(paused=True)
    world.settle()
    before, asked = world.status.dry_run.round, world.status.approval
    world.controller_silent = False
    world.spec(paused=False).step()
    world.until(Phase.AWAITING_APPROVAL)
    assert world.status.dry_run.round > before
    if asked is not None and asked.given:
        assert world.status.approval is not None
        assert world.status.approval.asked == asked.asked
        world.until(Phase.DRAINING)


def test_a_pause_before_the_first_rule_makes_none_and_goes_on_from_there() -> None:
    world = at(Phase.PENDING).spec(paused=True)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "Paused")
    assert world.made == []
    world.spec(paused=False).until(Phase.AWAITING_APPROVAL)


def test_a_pause_during_the_patch_of_notice_adds_no_taint() -> None:
    world = at(Phase.AWAITING_APPROVAL).approve()
    world.kill_after = world._writes + 1
    with pytest.raises(Killed):
        world.settle()
    assert world.phase is Phase.NOTICE
    assert world.effects == {"None"}
    decision = world.spec(paused=True).step()
    assert not [a for a in decision.actions if isinstance(a, SetEffect | CreateRule)]
    assert world.effects == {"None"}


def test_a_pause_leaves_the_second_look_where_it_is() -> None:
    world = at(Phase.NOTICE)
    while not any(name.endswith("-dry") for name in world.rules):
        world.pass_time(world.step().requeue_after or 0)
    names = set(world.rules)
    meta = {name: (rule.metadata.annotations or {}) for name, rule in world.rules.items()}
    world.spec(paused=True).settle()
    assert set(world.rules) == names
    assert meta == {name: (rule.metadata.annotations or {}) for name, rule in world.rules.items()}
    world.spec(paused=False).step()
    world.step()
    assert set(world.rules) == {world.name_of()}, "a dry run begins without it"


def test_a_pause_right_after_a_kill_changes_no_rule() -> None:
    world = at(Phase.AWAITING_APPROVAL).spec(paused=True)
    world.settle()
    world.spec(paused=False)
    world.kill_after = world._writes + 1
    with pytest.raises(Killed):
        world.step()
    before = dict(world.rules)
    world.spec(paused=True).settle()
    assert (world.phase, world.rules) == (Phase.DRY_RUN, before)


@pytest.mark.parametrize("phase", BEFORE_EVICTION)
def test_the_deadline_before_eviction_expires_the_run(phase: Phase) -> None:
    world = at(phase)
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.EXPIRED, "DeadlinePassed")
    assert world.rules == {}


@pytest.mark.parametrize("phase", BEGUN)
def test_the_deadline_after_eviction_began_takes_the_taint_off_and_fails_the_run(phase: Phase) -> None:
    world = at(phase)
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DeadlinePassed")
    assert world.rules == {}


@pytest.mark.parametrize("hand", ["deadline", "cancel", "delete"])
def test_deadline_cancellation_and_deletion_act_on_a_paused_run_too(hand: str) -> None:
    world = at(Phase.DRAINING).spec(paused=True)
    world.settle()
    if hand == "deadline":
        world.pass_time(8 * HOUR)
    elif hand == "cancel":
        world.spec(cancelled=True)
    else:
        world.delete()
    world.settle()
    assert world.phase is (Phase.FAILED if hand == "deadline" else Phase.CANCELLED)
    assert world.rules == {}


@pytest.mark.parametrize("phase", [*BEFORE_EVICTION, *BEGUN])
def test_a_spec_gone_bad_in_flight_holds_the_run(phase: Phase) -> None:
    world = at(phase)
    world.problems = (FieldProblem("spec.pausd", "is not a field of this API", Reason.UNKNOWN_FIELD),)
    world.settle()
    assert (world.phase, world.status.reason) == (phase, "UnknownField")
    assert "spec.pausd: is not a field of this API" in world.status.message
    assert "NoExecute" not in world.effects
    world.problems, world.controller_silent = (), False
    world.until(Phase.AWAITING_APPROVAL)


EDITS = {
    "effect": {"effect": "NoExecute"},
    "no effect": {"effect": "Nothing"},
    "key": {"key": "other/key"},
    "value": {"value": "other"},
}


def seen(phase: Phase) -> World:
    """A run in `phase` whose rules have been seen as they are."""
    world = at(phase)
    if phase is not Phase.BLOCKED:
        world.step()
    assert world.phase is phase or phase is Phase.EVICTING
    return world


@pytest.mark.parametrize(
    ("phase", "edit"),
    [(p, e) for p in [*BEFORE_EVICTION, *BEGUN] for e in EDITS if not (e == "effect" and p in BEGUN)],
)
def test_a_taint_edited_by_hand_before_maintenance_ends_the_run(phase: Phase, edit: str) -> None:
    world = seen(phase)
    world.edit_rule(world.name_of(), **EDITS[edit])
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "RuleChanged")
    assert world.name_of() in world.status.message
    assert world.rules == {}


@pytest.mark.parametrize("phase", [*BEFORE_EVICTION, *BEGUN])
def test_a_rule_deleted_by_hand_before_maintenance_ends_the_run(phase: Phase) -> None:
    world = seen(phase)
    del world.rules[world.name_of()]
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "RuleDeleted")
    assert world.made.count(world.name_of()) == 1, "it is not put back"


@pytest.mark.parametrize("change", ["selector", "label", "generation", "another of that name", "being deleted"])
def test_every_other_edit_by_hand_is_seen_too(change: str) -> None:
    world = at(Phase.NOTICE)
    world.settle()
    rule = world.rules[world.name_of()]
    meta, spec = rule.metadata, rule.spec
    if change == "selector":
        spec = msgspec.structs.replace(spec, device_selector=DeviceSelector(driver="gpu.example.com"))
    elif change == "label":
        meta = msgspec.structs.replace(meta, labels={})
    elif change == "generation":
        meta = msgspec.structs.replace(meta, generation=meta.generation + 2)  # edited, and edited back
    elif change == "another of that name":
        meta = msgspec.structs.replace(meta, uid="another")
    else:
        meta = msgspec.structs.replace(meta, deletion_timestamp=world.now)
    world.rules[world.name_of()] = msgspec.structs.replace(rule, metadata=meta, spec=spec)
    world.step()
    gone = change in ("another of that name", "being deleted")
    assert (world.phase, world.status.reason) == (Phase.ROLLING_BACK, "RuleDeleted" if gone else "RuleChanged")


def test_a_rule_edited_before_we_saw_it_made_is_not_taken_for_ours() -> None:
    world = World().until(Phase.DRY_RUN)
    world.step()
    world.edit_rule(world.name_of(), effect="NoExecute")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "RuleChanged")


def test_the_next_look_is_at_the_deadline_at_the_latest() -> None:
    world = World(run=make_run(startAt=None, deadline="2026-11-30T21:00:01Z"), earlier_runs=("monday",))
    decision = world.settle()
    assert decision.requeue_after is not None
    assert decision.requeue_after.total_seconds() == 1
