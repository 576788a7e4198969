"""Evicting and Draining: acknowledged or taken back; whom we evict and whom never; and what proves a device idle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from taintctl.api.base import condition
from taintctl.api.plan import Idleness, Problem, Verdict
from taintctl.api.reasons import Effect, Phase, PodEffect, Reason
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.api.run import Drain
from taintctl.workflow.model import EvictPod, SetEffect, Settings
from tests.workflow.builders import (
    HOUR,
    IDLE,
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

WEB = make_pod("web", PodEffect.NOT_REACHED_BY_TAINT)
LATE = make_pod("late", PodEffect.NOT_REACHED_BY_TAINT)


def draining(*pods: object, **world: object) -> World:
    """A run that has just begun to drain `pods`; a pod that only we can evict is refused by its budget."""
    refused = lambda a: EvictionOutcome(  # noqa: E731
        a.namespace,
        a.name,
        a.uid,
        EvictionResult.BUDGET_FORBIDS,
        "Cannot evict pod as it would violate the budget web.",
    )
    made = World(plan=make_plan(pods or ("a",)), outcome=refused, **world)  # type: ignore[arg-type]
    return made.until(Phase.DRAINING)


def said_of(world: World, kind: str) -> tuple[str, str]:
    found = condition(world.status.conditions, kind)
    assert found is not None, kind
    return found.status, found.reason


# Evicting


def test_an_eviction_controller_that_does_not_follow_in_thirty_seconds_is_silent() -> None:
    world = World().until(Phase.NOTICE)
    while not any(name.endswith("-dry") for name in world.rules):
        world.pass_time(world.step().requeue_after or 0)
    world.controller_silent = True
    world.until(Phase.EVICTING)
    assert world.effects == {"NoExecute"}
    world.settle()
    assert world.status.message == "NoExecute is set; waiting for the eviction controller to take it up."
    world.pass_time(29).settle()
    assert world.phase is Phase.EVICTING
    world.pass_time(1).settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "EvictionControllerSilent")
    assert world.effects == {"NoSchedule"}


def killed_before_the_second_patch() -> World:
    """Two rules; the status says Evicting, one rule is NoExecute and the other not yet."""
    world = World(
        run=make_run(target={"driver": "gpu.example.com", "wholeDriver": True}),
        plan=make_plan(["a"], pools=["node-1", "node-2"]),
    ).until(Phase.NOTICE)
    while not any(name.endswith("-dry") for name in world.rules):
        world.pass_time(world.step().requeue_after or 0)
    world.kill_after = world._writes + 2
    with pytest.raises(Killed):
        world.step()
    assert world.phase is Phase.EVICTING
    assert {r.spec.taint.effect for n, r in world.rules.items() if not n.endswith("-dry")} == {
        "NoExecute",
        "NoSchedule",
    }
    return world


def test_a_controller_killed_between_two_patches_goes_through_second_look_and_gate_again() -> None:
    world = killed_before_the_second_patch()
    before = world.status.dry_run.round
    world.pass_time(HOUR)
    decision = world.step()
    assert not [a for a in decision.actions if isinstance(a, SetEffect)]
    world.until(Phase.DRAINING)
    assert world.status.dry_run.round == before + 1
    assert world.effects == {"NoExecute"}
    assert world.status.eviction is not None
    assert world.status.eviction.started_at is not None
    assert world.status.eviction.started_at >= NOW + HOUR, "the drain timeout counts from the gate that was passed last"


def test_a_pod_that_came_meanwhile_takes_such_a_run_back() -> None:
    world = killed_before_the_second_patch()
    assert world.plan is not None
    world.plan = make_plan(["a", "new"], pools=["node-1", "node-2"])
    world.pass_time(HOUR).step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "PlanChanged")
    world.step()
    assert world.effects == {"None"}


def test_a_status_that_says_evicting_and_has_no_rules_evicts_nothing() -> None:
    world = World().until(Phase.EVICTING)
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": ()})})
    world.step()
    assert world.phase is Phase.DRY_RUN


# Draining


def test_pods_that_the_taint_does_not_reach_are_evicted_by_us_with_what_they_hold() -> None:
    world = World(plan=make_plan(["a", WEB])).until(Phase.DRAINING)
    asked_at = world.now
    decision = world.step()
    # Not after its reads are ten seconds old, as NoExecute.
    assert [a for a in decision.actions if isinstance(a, EvictPod)] == [
        EvictPod("team-a", "web", "uid-web", WEB.claims, WEB.devices, not_after=asked_at + seconds(10))
    ]
    world.step()
    assert world.status.eviction is not None
    assert world.status.eviction.evicted_by_taintctl == 1


def test_we_evict_by_live_reads_only() -> None:
    world = World(plan=make_plan(["a", WEB])).until(Phase.DRAINING)
    world.live = False
    assert world.step().need_live
    assert world.evicted == []


def test_a_budget_that_forbids_is_said_and_tried_again_every_five_seconds() -> None:
    world = draining(WEB)
    assert world.step().requeue_after == seconds(5)
    decision = world.step()
    assert decision.actions == ()
    assert decision.requeue_after == seconds(5)
    assert world.status.reason == "BudgetForbids"
    assert "team-a/web: Cannot evict pod as it would violate the budget web." in world.status.message
    world.pass_time(5).step()
    assert world.evicted == ["web", "web"]


def test_a_refusal_that_no_budget_is_the_cause_of_is_called_another_thing() -> None:
    world = World(plan=make_plan([WEB]))
    world.outcome = lambda a: EvictionOutcome(
        a.namespace, a.name, a.uid, EvictionResult.FAILED, 'pods "web" is forbidden: cannot create pods/eviction'
    )
    world.until(Phase.DRAINING)
    for _ in range(3):
        world.step()
    assert world.status.reason == "EvictionRefused"
    assert "forbidden" in world.status.message
    assert world.status.next_step == "kubectl describe pod --namespace team-a web"
    world.outcome = lambda a: EvictionOutcome(a.namespace, a.name, a.uid, EvictionResult.BUDGET_FORBIDS, "budget web")
    for _ in range(3):
        world.pass_time(5).step()
    assert world.status.reason == "BudgetForbids"


def test_two_budgets_on_one_pod_end_the_run_with_the_taint_off() -> None:
    world = draining(WEB)
    world.outcome = lambda a: EvictionOutcome(a.namespace, a.name, a.uid, EvictionResult.MULTIPLE_BUDGETS, "500")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "MultipleBudgets")
    assert "team-a/web" in world.status.message
    assert world.rules == {}


def test_a_pod_that_nobody_approved_is_never_evicted_by_us_and_holds_the_device() -> None:
    world = draining(WEB)
    world.plan = make_plan([WEB, LATE])
    world.step()
    world.step()
    assert "late" not in world.evicted
    assert world.status.eviction is not None
    assert [ref.name for ref in world.status.eviction.late] == ["late"]
    assert world.status.reason == "DevicesInUse"
    assert "team-a/late came to the devices after the approval" in world.status.message


def test_other_hardware_under_a_devices_name_is_nobodys_approval() -> None:
    world = draining(WEB)
    world.evicted.clear()
    world.plan = make_plan([WEB], uuid="OTHER")
    world.step()
    assert world.evicted == []


def test_a_policy_edited_while_pods_go_makes_no_pod_late() -> None:
    world = draining(WEB)
    assert world.policy is not None
    meta = world.policy.metadata.model_copy(update={"generation": 2})
    world.policy = world.policy.model_copy(update={"metadata": meta})
    world.step()
    assert world.evicted[-1] == "web"


def test_more_pods_than_one_go_takes_are_evicted_in_turn() -> None:
    many = [make_pod(f"web-{n:03}", PodEffect.NOT_REACHED_BY_TAINT) for n in range(120)]
    world = draining(*many)
    for _ in range(60):
        world.pass_time(world.step().requeue_after or 0)
    assert set(world.evicted) == {pod.name for pod in many}


def test_a_device_is_idle_only_ten_seconds_after_the_taint_and_with_the_condition_false() -> None:
    world = draining("a")
    world.evictions_complete().settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "Settling")
    assert said_of(world, "DevicesIdle")[0] == "Unknown"
    assert world.status.eviction is not None
    settled = world.status.eviction.settled_from
    world.until(Phase.IN_MAINTENANCE)
    assert settled is not None
    assert world.now - settled >= seconds(10)
    assert said_of(world, "Evicted") == ("True", "Completed")
    assert said_of(world, "DevicesIdle")[0] == "True"
    assert world.status.eviction.idle_proven_at == world.now
    assert world.status.work_started_at == world.now


def test_false_from_before_the_patch_is_not_the_end_of_an_eviction() -> None:
    """Under None the condition is False already (recording 02): only this generation's counts."""
    world = draining("a")
    world.plan = make_plan([])
    world.condition(world.name_of(), "False", reason="NoEffect", generation=1)
    world.pass_time(15).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")


def test_a_condition_that_stays_true_for_nobody_is_stale_after_twenty_seconds() -> None:
    """Recording 09: a delayed pod that left by itself; 75 s watched, and nothing updated the condition."""
    world = draining("a")
    world.plan = make_plan([])
    world.pass_time(11).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")
    world.pass_time(19).settle()
    assert world.phase is Phase.DRAINING
    world.pass_time(1).settle()
    assert world.phase is Phase.IN_MAINTENANCE
    assert said_of(world, "Evicted") == ("True", "ConditionStale")


def test_a_condition_that_still_means_a_pod_is_not_stale() -> None:
    world = draining("a")
    world.idle = IDLE
    world.pass_time(60).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")
    assert world.status.eviction is not None
    assert world.status.eviction.stale_since is None


def test_a_condition_whose_pods_cannot_be_known_is_not_stale() -> None:
    world = draining("a")
    world.plan, world.plan_problem, world.idle = None, Problem(Reason.POOL_INCOMPLETE, "The pool is incomplete."), IDLE
    world.pass_time(60).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")


def test_deleted_is_not_gone() -> None:
    """Recording 09: False and Completed at 10 s, with the pod there until 25 s."""
    world = draining("a")
    world.evictions_complete()
    world.plan = make_plan([terminating(make_pod("a"))])
    world.pass_time(15).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "PodsTerminating")
    assert world.status.eviction is not None
    assert [ref.name for ref in world.status.eviction.terminating] == ["a"]
    assert said_of(world, "DevicesIdle") == ("False", "PodsTerminating")
    world.plan = make_plan([])
    world.settle()
    assert world.phase is Phase.IN_MAINTENANCE


def wary(*pods: object) -> World:
    """Draining, with the wait for a node that fell silent and reads Ready for a while."""
    return World(plan=make_plan(list(pods)), settings=Settings()).until(Phase.DRAINING)


def test_devices_must_look_idle_for_longer_than_a_silent_node_reads_ready() -> None:
    world = wary("a")
    world.evictions_complete().settle()
    world.pass_time(59).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ProvingIdle")
    assert said_of(world, "DevicesIdle")[0] == "Unknown"
    world.pass_time(1).settle()
    assert world.phase is Phase.IN_MAINTENANCE


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.FALSE])
def test_a_node_or_a_pod_that_shows_up_in_between_starts_that_wait_again(verdict: Verdict) -> None:
    world = wary("a")
    world.evictions_complete().settle()
    world.pass_time(50).settle()
    idle, world.idle = world.idle, Idleness(verdict, Reason.NODE_NOT_READY, "Node node-1 is not Ready.")
    world.pass_time(5).settle()
    world.idle = idle
    world.settle()
    world.pass_time(59).settle()
    assert world.phase is Phase.DRAINING
    world.pass_time(1).settle()
    assert world.phase is Phase.IN_MAINTENANCE


def test_the_drain_timeout_is_for_pods_and_does_not_cut_that_wait_off() -> None:
    world = World(plan=make_plan(["a"]), settings=Settings())
    world.spec(drain=Drain(timeout=seconds(30)))
    world.until(Phase.DRAINING)
    world.evictions_complete().settle()
    world.pass_time(45).settle()
    assert world.phase is Phase.DRAINING
    world.pass_time(15).settle()
    assert world.phase is Phase.IN_MAINTENANCE


def test_doubt_is_not_idle() -> None:
    world = draining("a")
    world.evictions_complete()
    world.idle = Idleness(Verdict.UNKNOWN, Reason.NODE_NOT_READY, "Node node-1 is not Ready.")
    world.pass_time(60).settle()
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "NodeNotReady")
    assert world.status.message == "Node node-1 is not Ready."
    assert said_of(world, "DevicesIdle") == ("Unknown", "NodeNotReady")


def test_a_cache_never_proves_a_device_idle() -> None:
    world = draining("a")
    world.evictions_complete()
    world.live = False
    world.pass_time(15)
    decision = world.step()
    assert decision.need_live
    world.live = True
    world.settle()
    assert world.phase is Phase.IN_MAINTENANCE


def test_somebody_who_holds_a_device_and_is_in_no_list_is_said_by_idleness() -> None:
    world = draining("a")
    world.evictions_complete()
    world.idle = Idleness(Verdict.FALSE, Reason.DEVICES_IN_USE, "Claim x is still allocated.")
    world.settle()
    assert world.status.message == "Claim x is still allocated."


def test_pods_gone_are_told_apart_by_whose_doing_it_was() -> None:
    world = World(plan=make_plan(["a", "b", WEB])).until(Phase.DRAINING)
    world.settle()
    assert world.status.eviction is not None
    assert (world.status.eviction.pending, world.status.reason) == (2, "PodsPending")
    world.evictions_complete().settle()
    assert (world.status.eviction.evicted_by_taint, world.status.eviction.evicted_by_taintctl) == (2, 1)


def test_what_is_unreadable_while_draining_is_said_and_proves_nothing() -> None:
    world = draining("a")
    world.evictions_complete()
    world.plan, world.plan_problem, world.live = None, Problem(Reason.CLUSTER_UNREADABLE, "No answer."), False
    decision = world.pass_time(15).step()
    assert not decision.need_live
    assert (world.phase, world.status.reason) == (Phase.DRAINING, "ClusterUnreadable")
    assert said_of(world, "DevicesIdle") == ("Unknown", "ClusterUnreadable")


def test_pods_that_do_not_go_in_time_end_the_run_with_the_taint_off() -> None:
    world = draining("a", run=make_run(drain={"timeout": "10m"}))
    world.pass_time(timedelta(minutes=10)).settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")
    assert "1 pod still to go: team-a/a" in world.status.message
    assert world.rules == {}


def test_a_timeout_by_a_cache_is_looked_at_live() -> None:
    world = draining("a", run=make_run(drain={"timeout": "10m"}))
    world.live = False
    world.pass_time(timedelta(minutes=10))
    assert world.step().need_live


def test_where_policy_does_not_roll_back_on_it_the_drain_goes_on_until_the_deadline() -> None:
    world = draining("a", policy=make_policy(rollbackOn=["Cancelled"]))
    world.pass_time(HOUR).settle()
    assert world.phase is Phase.DRAINING
    assert "until the deadline 2026-12-01 05:00:00 UTC" in world.status.message
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DeadlinePassed")
    assert world.rules == {}


def test_a_pod_that_is_gone_at_the_timeout_is_gone_in_time() -> None:
    world = draining("a")
    world.evictions_complete().pass_time(HOUR).settle()
    assert world.phase is Phase.IN_MAINTENANCE


def test_rules_that_do_not_evict_while_draining_take_the_run_through_everything_again() -> None:
    world = draining("a")
    rules = tuple(r.model_copy(update={"effect": Effect.NO_SCHEDULE}) for r in world.status.rules)
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": rules})})
    for name, rule in world.rules.items():
        world.edit_rule(name, effect="NoSchedule")
        meta_generation = rule.metadata.generation
        kept = tuple(r.model_copy(update={"generation": meta_generation + 1}) for r in world.status.rules)
        world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"rules": kept})})
    world.step()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "Resumed")


def test_a_status_that_lost_what_was_asked_evicts_nobody() -> None:
    world = draining(WEB)
    world.evicted.clear()
    world.run = world.run.model_copy(
        update={"status": world.status.model_copy(update={"approval": None, "eviction": None, "plan": None})}
    )
    world.step()
    assert world.evicted == []
    assert world.phase is Phase.DRAINING


def test_a_monitor_with_admin_access_is_not_late() -> None:
    world = draining("a")
    monitor = replace(make_pod("monitor", PodEffect.TOLERATES), admin_access=True)
    world.evictions_complete()
    world.plan = make_plan([monitor])
    world.pass_time(15).settle()
    assert world.phase is Phase.IN_MAINTENANCE


def test_of_many_late_pods_a_hundred_are_listed_and_none_is_evicted() -> None:
    late = [make_pod(f"late-{n:04}", PodEffect.NOT_REACHED_BY_TAINT) for n in range(400)]
    world = draining(WEB)
    world.evicted.clear()
    world.plan = make_plan([WEB, *late])
    world.step()
    world.step()
    assert not [name for name in world.evicted if name.startswith("late")]
    assert world.status.eviction is not None
    assert len(world.status.eviction.late) == 100
