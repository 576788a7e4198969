"""drain.mode Evict: pods are asked to go under NoSchedule, budgets honoured; the taint comes to it only at the timeout,
only where the policy forces it, and only through the gate once more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.plan import Budget, Plan, Problem
from taintctl.api.reasons import Effect, Phase, PodEffect, Reason
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.workflow.model import EvictPod, SetEffect, Settings
from tests.workflow.builders import (
    HOUR,
    NOW,
    Killed,
    World,
    make_plan,
    make_pod,
    make_policy,
    make_run,
    seconds,
    terminating,
)

TEN = timedelta(minutes=10)
LATER, NOT_REACHED = PodEffect.EVICTED_LATER, PodEffect.NOT_REACHED_BY_TAINT
FORCED: dict[str, Any] = {"drain": {"forceAtTimeout": True}}


def refused(*names: str, result: EvictionResult = EvictionResult.BUDGET_FORBIDS) -> Callable[[EvictPod], Any]:
    """What the Eviction API answers for these pods; the others go."""

    def answer(action: EvictPod) -> EvictionOutcome | None:
        if action.name not in names:
            return None
        words = "Cannot evict pod as it would violate the pod's disruption budget."
        return EvictionOutcome(action.namespace, action.name, action.uid, result, words)

    return answer


def evicting(*pods: object, policy: dict[str, Any] | None = None, stays: tuple[str, ...] = (), **more: Any) -> World:
    """A run that has just begun to ask these pods to go; those of `stays` are refused by a budget."""
    made = World(
        plan=make_plan(pods or ("a",)),  # type: ignore[arg-type]
        run=make_run(drain={"mode": "Evict", "timeout": "10m"}),
        policy=make_policy(**(policy or {})),
        outcome=refused(*stays),
        **more,
    )
    return made.until(Phase.DRAINING)


def at_the_timeout(*pods: object, policy: dict[str, Any] | None = None, **more: Any) -> World:
    """The same, ten minutes later, with every pod still there."""
    names = tuple(pod if isinstance(pod, str) else pod.name for pod in pods or ("a",))  # type: ignore[attr-defined]
    world = evicting(*pods, policy=policy or FORCED, stays=names, **more)
    world.settle()
    world.pass_time(TEN)
    return world


def no_execute(world: World) -> list[str]:
    return [name for name, rule in world.rules.items() if rule.spec.taint.effect == "NoExecute"]


# asking


def test_after_the_gate_pods_are_asked_to_go_and_the_rules_stay_at_no_schedule() -> None:
    world = evicting("a", make_pod("b", NOT_REACHED))
    assert [(e.from_, e.to, e.reason) for e in world.status.history][-1] == ("Notice", "Draining", "GatePassed")
    decision = world.step()
    asked = [action for action in decision.actions if isinstance(action, EvictPod)]
    assert [action.name for action in asked] == ["a", "b"]
    assert {action.not_after for action in asked} == {world.now + seconds(10)}, "on reads of moments ago only"
    assert world.effects == {"NoSchedule"}
    world.until(Phase.IN_MAINTENANCE)
    assert world.effects == {"NoSchedule"}
    assert world.status.eviction is not None
    assert (world.status.eviction.evicted_by_taintctl, world.status.eviction.evicted_by_taint) == (2, 0)


def test_a_pod_that_leaves_by_itself_was_evicted_by_nobody() -> None:
    world = evicting("a", stays=("a",))
    world.settle()
    world.plan = make_plan([])
    world.settle()
    assert world.status.eviction is not None
    assert (world.status.eviction.evicted_by_taintctl, world.status.eviction.evicted_by_taint) == (0, 0)


def test_the_gate_is_the_same_one_and_a_pod_that_came_meanwhile_is_not_asked_to_go() -> None:
    world = World(plan=make_plan(["a"]), run=make_run(drain={"mode": "Evict"})).until(Phase.NOTICE)
    while not any(name.endswith("-dry") for name in world.rules):
        world.pass_time(world.step().requeue_after or 0)
    world.plan = make_plan(["a", "new"])
    world.step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "PlanChanged")
    assert world.evicted == []


def test_a_budget_that_forbids_is_asked_again_every_five_seconds_until_the_timeout() -> None:
    world = evicting("a", "b", stays=("b",))
    world.settle()
    assert world.evicted == ["a", "b"]
    assert world.status.reason == "BudgetForbids"
    world.pass_time(5).settle()
    assert world.evicted == ["a", "b", "b"]
    world.outcome = None
    world.pass_time(5).until(Phase.IN_MAINTENANCE)
    assert world.effects == {"NoSchedule"}


def test_a_pod_that_tolerates_the_taint_for_a_time_is_asked_when_that_time_is_over() -> None:
    """What was approved for it is that it may end by itself for so long."""
    world = evicting("a", make_pod("patient", LATER, toleration_seconds=120))
    begun = world.now
    world.settle()
    assert world.evicted == ["a"]
    while "patient" not in world.evicted:
        world.pass_time(world.step().requeue_after or 0)
    assert seconds(120) <= world.now - begun <= seconds(135)


def test_who_tolerates_the_taint_is_not_asked_to_go() -> None:
    world = evicting("a", make_pod("mon", PodEffect.TOLERATES))
    world.settle()
    world.pass_time(60).settle()
    assert world.evicted == ["a"]


def test_who_came_after_the_approval_is_never_asked_to_go_and_holds_the_run() -> None:
    world = evicting("a", stays=("a",))
    world.plan = make_plan(["a", "late"])
    world.settle()
    assert "late" not in world.evicted
    assert "team-a/late came to the devices after the approval" in world.status.message


def test_a_pod_that_is_going_already_is_not_asked_again() -> None:
    world = evicting("a")
    world.plan = make_plan([terminating(make_pod("a"))])
    world.settle()
    assert world.evicted == []
    assert world.status.reason == "PodsTerminating"


def test_two_budgets_on_one_pod_end_the_run() -> None:
    world = evicting("a")
    world.outcome = refused("a", result=EvictionResult.MULTIPLE_BUDGETS)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "MultipleBudgets")
    assert world.rules == {}


# what stops it


def test_a_pause_stops_it_and_going_on_begins_with_a_dry_run() -> None:
    world = evicting("a", "b", stays=("b",))
    world.settle()
    world.evicted.clear()
    world.spec(paused=True).settle()
    world.pass_time(HOUR).settle()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRAINING, "Paused", [])
    assert world.effects == {"NoSchedule"}
    world.spec(paused=False).step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "Resumed")
    assert world.status.eviction is None


@pytest.mark.parametrize(
    ("stop", "end", "reason"),
    [
        (lambda w: w.spec(cancelled=True), Phase.CANCELLED, "Cancelled"),
        (lambda w: w.delete(), Phase.CANCELLED, "Deleted"),
        (lambda w: w.pass_time(9 * HOUR), Phase.FAILED, "DeadlinePassed"),
        (lambda w: w.approve("bob", deny=True), Phase.CANCELLED, "Denied"),
        (lambda w: w.edit_rule(w.name_of(), effect="NoExecute"), Phase.FAILED, "RuleChanged"),
        (lambda w: w.rules.clear(), Phase.FAILED, "RuleDeleted"),
    ],
    ids=["cancelled", "deleted", "deadline", "denied", "rule edited", "rule deleted"],
)
def test_what_ends_the_run_takes_the_rules_off_and_asks_nobody_more(
    stop: Callable[[World], Any], end: Phase, reason: str
) -> None:
    world = evicting("a", stays=("a",))
    world.settle()
    world.evicted.clear()
    stop(world)
    world.settle()
    assert (world.phase, world.status.reason, world.evicted) == (end, reason, [])
    assert world.rules == {}


def test_an_approval_that_was_taken_back_stops_it_and_people_are_asked_anew() -> None:
    world = World(
        plan=make_plan(["a"]),
        run=make_run(drain={"mode": "Evict"}),
        policy=make_policy(approval={"required": "Always"}),
        outcome=refused("a"),
    ).until(Phase.AWAITING_APPROVAL)
    world.approve().until(Phase.DRAINING)
    world.settle()
    world.evicted.clear()
    world.approvals = ()
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "PlanChanged", [])


def test_a_policy_that_is_gone_or_cannot_be_read_stops_it() -> None:
    world = evicting("a", stays=("a",))
    world.settle()
    world.evicted.clear()
    world.policy, world.policy_problem = None, Problem(Reason.CLUSTER_UNREADABLE, "No answer.")
    world.pass_time(60).settle()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRAINING, "ClusterUnreadable", [])
    world.policy_problem = Problem(Reason.POLICY_NOT_FOUND, "There is none.")
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.BLOCKED, "PolicyNotFound", [])


def test_by_a_cache_nobody_is_asked_to_go() -> None:
    world = evicting("a")
    world.live = False
    assert world.step().need_live
    assert world.evicted == []


def test_a_phase_written_by_hand_asks_nobody_to_go() -> None:
    """No gate was passed: nothing in the status says so."""
    world = World(run=make_run(drain={"mode": "Evict"}, notice="1h")).until(Phase.NOTICE)
    world.settle()
    assert world.effects == {"NoSchedule"}
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"phase": Phase.DRAINING})})
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "Resumed", [])


def test_a_status_that_lost_what_was_approved_asks_nobody_to_go() -> None:
    world = evicting("a")
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"approval": None})})
    world.step()
    assert (world.phase, world.evicted) == (Phase.DRY_RUN, [])


KEEP = {"namespaces": ["kept"]}


def of_kept(*stays: str) -> World:
    """A run with a protected pod and another, both let go by a Break, the pods of `stays` held back by a budget."""
    world = World(
        plan=make_plan(["kept/a", "b"]),
        run=make_run(drain={"mode": "Evict"}),
        policy=make_policy(protected=KEEP),
        outcome=refused(*stays),
    ).until(Phase.AWAITING_APPROVAL)
    world.approve(breaks=True).until(Phase.DRAINING)
    return world


def test_protected_pods_are_asked_to_go_where_a_break_was_given() -> None:
    assert of_kept().until(Phase.IN_MAINTENANCE).evicted == ["a", "b"]


def test_a_break_that_was_taken_back_stops_it() -> None:
    world = of_kept("a", "b")
    world.settle()
    world.evicted.clear()
    world.approvals = ()
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "PlanChanged", [])


def test_a_pod_that_the_policy_protects_by_now_is_not_asked_to_go() -> None:
    world = evicting("kept/a", "b", stays=("a", "b"))
    world.settle()
    world.evicted.clear()
    world.policy = make_policy(protected=KEEP)
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "PlanChanged", [])
    assert "a pod of the plan is protected now that was not" in world.status.message


def test_a_protected_pod_that_came_late_changes_nothing_for_the_others() -> None:
    """It is not asked to go in any case."""
    world = World(
        plan=make_plan(["a"]),
        run=make_run(drain={"mode": "Evict"}),
        policy=make_policy(protected=KEEP),
        outcome=refused("a"),
    ).until(Phase.DRAINING)
    world.plan = make_plan(["a", "kept/late"])
    world.settle()
    assert (world.phase, set(world.evicted)) == (Phase.DRAINING, {"a"})


# the idle proof


def test_idle_is_proven_as_strictly_as_under_no_execute() -> None:
    """No pod left, and then the 60 s in which a silent node still reads Ready."""
    world = World(plan=make_plan(["a"]), run=make_run(drain={"mode": "Evict"}), settings=Settings())
    world.until(Phase.DRAINING)
    assert world.status.eviction is not None
    tainted = max(rule.effect_since for rule in world.status.rules if rule.effect_since is not None)
    assert world.status.eviction.settled_from == tainted, "the taint stands since the notice"
    assert world.now - tainted >= seconds(10)
    world.settle()
    assert world.plan == make_plan([])
    empty = world.now
    world.pass_time(59).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")
    world.pass_time(1).settle()
    assert world.phase is Phase.IN_MAINTENANCE
    assert world.now - empty == seconds(60)
    assert world.effects == {"NoSchedule"}


def test_devices_in_maintenance_are_released_like_any_others() -> None:
    world = evicting("a").until(Phase.IN_MAINTENANCE)
    world.spec(work_completed=True).until(Phase.SUCCEEDED)
    assert world.rules == {}


# the timeout


def test_without_force_the_timeout_takes_the_taint_off() -> None:
    world = at_the_timeout("a", policy={"limits": {}})
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")
    assert "Eviction is tried again: team-a/a: Cannot evict pod" in world.status.message
    assert world.rules == {}


def test_with_force_what_is_left_gets_no_execute_through_a_second_look_and_the_gate() -> None:
    world = evicting("a", "b", policy=FORCED, stays=("b",))
    world.settle()
    world.pass_time(TEN)
    rounds = world.status.dry_run.round
    world.step()
    assert (world.phase, world.status.reason, no_execute(world)) == (Phase.DRAINING, "SecondLook", [])
    assert world.status.dry_run.round == rounds + 1
    world.until(Phase.EVICTING)
    assert world.status.history[-1].reason == "GatePassed"
    assert no_execute(world) == [world.name_of()]
    eviction = world.status.eviction
    assert eviction is not None
    assert eviction.forced_at == world.now
    assert (eviction.started_at, eviction.pending, eviction.evicted_by_taintctl) == (world.now - TEN, 1, 1)
    assert eviction.settled_from is None, "idle counts from this taint"
    world.until(Phase.DRAINING)
    world.settle()
    world.evictions_complete().until(Phase.IN_MAINTENANCE)
    assert world.status.eviction is not None
    assert (world.status.eviction.evicted_by_taint, world.status.eviction.evicted_by_taintctl) == (1, 1)
    assert world.effects == {"NoExecute"}


def test_nodes_of_pods_that_went_before_the_force_are_still_minded() -> None:
    world = evicting(make_pod("a", node="node-9"), "b", policy=FORCED, stays=("b",))
    world.settle()
    world.pass_time(TEN).until(Phase.EVICTING)
    assert world.status.eviction is not None
    assert "node-9" in world.status.eviction.nodes


def test_what_was_forced_has_the_timeout_once_more() -> None:
    world = at_the_timeout("a")
    world.until(Phase.EVICTING)
    world.until(Phase.DRAINING)
    world.pass_time(TEN - seconds(1)).settle()
    assert world.phase is Phase.DRAINING
    world.pass_time(2).settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")


def late(plan: Plan) -> Plan:
    return make_plan([*plan.pods, make_pod("late")])


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda w: setattr(w, "plan", late(w.plan)), "PlanChanged"),
        (lambda w: setattr(w, "plan", make_plan(w.plan.pods, budgets=(Budget("team-a", "a", 0, 1),))), "PlanChanged"),
        (lambda w: setattr(w, "message", lambda _: "Other words."), "MessageUnreadable"),
        (lambda w: setattr(w, "controller_silent", True), "EvictionControllerSilent"),
    ],
    ids=["a late pod", "a budget that would break", "unreadable", "silent"],
)
def test_what_the_gate_refuses_at_the_timeout_is_not_forced(spoil: Callable[[World], Any], why: str) -> None:
    world = at_the_timeout("a")
    spoil(world)
    world.until(Phase.FAILED)
    assert world.status.reason == "DrainTimeout"
    assert f"NoExecute was not set for what is left ({why})" in world.status.message
    assert world.rules == {}
    assert "Evicting" not in [entry.to for entry in world.status.history]


def test_pods_on_other_hardware_under_the_devices_name_are_nobodys_approval() -> None:
    world = at_the_timeout("a")
    world.evicted.clear()
    world.plan = make_plan(["a"], uuid="OTHER")
    world.until(Phase.FAILED)
    assert (world.status.reason, world.evicted) == ("DrainTimeout", [])
    assert "Evicting" not in [entry.to for entry in world.status.history]


def test_where_the_policy_goes_on_after_the_timeout_the_gate_is_asked_again_every_max_age() -> None:
    world = at_the_timeout("a", policy={**FORCED, "rollbackOn": []})
    world.plan = make_plan(["a", "late"])
    while world.status.eviction is not None and not world.status.eviction.not_forced:
        world.pass_time(world.step().requeue_after or 0)
    assert world.status.eviction is not None
    refused_at = world.status.eviction.not_forced_at
    world.settle()
    assert "(PlanChanged)" in world.status.message
    assert "until the deadline" in world.status.message
    assert not [name for name in world.rules if name.endswith("-dry")], "the second look is over"
    made = len(world.made)
    world.pass_time(30).settle()
    assert len(world.made) == made
    world.plan = make_plan(["a"])
    assert world.evicted.count("a") >= 2, "the Eviction API is asked all the while"
    world.until(Phase.EVICTING)
    assert refused_at is not None
    assert world.now - refused_at >= seconds(60)


def test_a_denial_at_the_timeout_is_a_denial() -> None:
    world = at_the_timeout("a")
    world.step()
    world.approve("bob", deny=True)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.CANCELLED, "Denied")


def test_only_pods_that_the_taint_reaches_are_worth_forcing() -> None:
    world = at_the_timeout(make_pod("web", NOT_REACHED))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")
    assert "Evicting" not in [entry.to for entry in world.status.history]


def test_two_budgets_on_a_pod_that_the_taint_may_have_at_the_timeout_wait_until_then() -> None:
    world = evicting("a", policy=FORCED)
    world.outcome = refused("a", result=EvictionResult.MULTIPLE_BUDGETS)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "BudgetForbids")
    world.pass_time(TEN).until(Phase.EVICTING)


def test_devices_that_become_empty_during_the_second_look_are_not_forced() -> None:
    world = at_the_timeout("a")
    world.step()
    world.plan = make_plan([])
    world.until(Phase.IN_MAINTENANCE)
    assert world.effects == {"NoSchedule"}
    assert [rule.role for rule in world.status.rules] == ["taint"]
    world.settle()
    assert list(world.rules) == [world.name_of()]


def test_a_controller_killed_before_the_patch_of_a_force_passes_the_gate_again() -> None:
    world = at_the_timeout("a")
    while not any(name.endswith("-dry") for name in world.rules):
        world.step()
    world.kill_after = world._writes + 1
    with pytest.raises(Killed):
        world.until(Phase.EVICTING)
    assert (world.phase, no_execute(world)) == (Phase.EVICTING, [])
    begun = world.status.eviction.started_at if world.status.eviction else None
    rounds = world.status.dry_run.round
    decision = world.pass_time(HOUR).step()
    assert not [a for a in decision.actions if isinstance(a, SetEffect)]
    world.until(Phase.DRAINING)
    assert world.status.dry_run.round == rounds + 1
    assert world.effects == {"NoExecute"}
    assert world.status.eviction is not None
    assert world.status.eviction.started_at == begun, "its nodes must have stayed Ready since the first eviction"
    assert world.status.eviction.forced_at is not None
    assert world.status.eviction.forced_at >= NOW + HOUR


def test_a_pause_after_the_force_goes_back_to_no_schedule_and_begins_anew() -> None:
    world = at_the_timeout("a")
    world.until(Phase.EVICTING)
    world.until(Phase.DRAINING)
    world.spec(paused=True).settle()
    assert world.effects == {"NoSchedule"}
    world.evicted.clear()
    world.pass_time(60).settle()
    assert world.evicted == []
    world.spec(paused=False).step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "Resumed")


def test_mode_taint_is_never_read_as_evict() -> None:
    """Rules at NoSchedule in Draining, with all that a passed gate leaves behind: only the mode is another."""
    world = evicting("a")
    world.spec(drain=make_run().spec.drain)
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "Resumed", [])


def test_rules_below_no_schedule_ask_nobody_to_go() -> None:
    world = evicting("a")
    rules = tuple(replace_effect(rule) for rule in world.status.rules)
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": rules})})
    for name in world.rules:
        world.edit_rule(name, effect="None")
    kept = tuple(r.model_copy(update={"generation": world.rules[r.name].metadata.generation}) for r in rules)
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": kept})})
    world.step()
    assert (world.phase, world.status.reason, world.evicted) == (Phase.DRY_RUN, "Resumed", [])


def replace_effect(rule: Any) -> Any:
    return rule.model_copy(update={"effect": Effect.NONE})


def test_many_pods_are_asked_fifty_at_a_time() -> None:
    world = evicting(*(f"p{n:03}" for n in range(120)))
    assert len([a for a in world.step().actions if isinstance(a, EvictPod)]) == 50
    world.until(Phase.IN_MAINTENANCE)
    assert len(set(world.evicted)) == 120
