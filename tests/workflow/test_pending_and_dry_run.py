"""Pending, DryRun and Blocked: nothing goes on that is not agreed, allowed and readable."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taintctl.api.base import condition
from taintctl.api.check import FieldProblem
from taintctl.api.plan import Budget, PlannedRule, Problem
from taintctl.api.reasons import Agreement, Effect, Phase, PodEffect, Reason
from taintctl.api.rule import RuleManifest
from taintctl.api.run import RuleStatus
from taintctl.workflow.mismatch import agreement
from taintctl.workflow.model import AddFinalizer, CreateRule, DeleteRule
from tests.workflow.builders import (
    DRIVER,
    HOUR,
    RUN_UID,
    Killed,
    World,
    make_plan,
    make_pod,
    make_policy,
    make_rule,
    make_run,
    said,
)

NO_ANSWER = Problem(Reason.CLUSTER_UNREADABLE, "The cluster can't be read: no answer.")


def said_of(world: World, kind: str) -> tuple[str, str]:
    found = condition(world.status.conditions, kind)
    assert found is not None, kind
    return found.status, found.reason


def test_a_new_run_gets_its_finalizer_before_any_rule() -> None:
    world = World(run=make_run(meta={"finalizers": ()}))
    world.step()
    assert world.phase is Phase.PENDING
    assert world.step().actions == (AddFinalizer(),)
    assert world.made == []
    world.until(Phase.DRY_RUN)


def test_a_finalizer_that_somebody_took_away_is_put_back() -> None:
    world = World().until(Phase.NOTICE)
    world.run = world.run.model_copy(update={"metadata": world.run.metadata.model_copy(update={"finalizers": ()})})
    assert AddFinalizer() in world.step().actions


@pytest.mark.parametrize("reason", [Reason.INVALID_SPEC, Reason.UNKNOWN_FIELD])
def test_a_bad_spec_ends_the_run_before_any_rule(reason: Reason) -> None:
    world = World(problems=(FieldProblem("spec.target.devcie", "is not a field of this API", reason),))
    world.settle()
    assert world.phase is Phase.FAILED
    assert world.status.reason == reason
    assert "spec.target.devcie: is not a field of this API" in world.status.message
    assert world.made == []
    assert said_of(world, "Accepted") == ("False", reason)


def test_a_missing_policy_blocks_and_its_coming_starts_the_run_anew() -> None:
    world = World(policy=None, policy_problem=Problem(Reason.POLICY_NOT_FOUND, "There is no EvictionPolicy careful."))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "PolicyNotFound")
    assert world.status.next_step == "kubectl get evictionpolicies"
    world.pass_time(HOUR).settle()
    assert world.phase is Phase.BLOCKED
    world.policy, world.policy_problem = make_policy(), None
    world.earlier_runs = ("earlier",)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "DeviceInOtherRun")


def test_a_run_waits_for_earlier_runs_on_its_devices_and_names_them() -> None:
    world = World(earlier_runs=("monday", "tuesday"))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "DeviceInOtherRun")
    assert "monday, tuesday have a device of this run's target" in world.status.message
    assert world.status.next_step == "taintctl status monday"
    world.earlier_runs = ("tuesday",)
    world.step()
    assert "tuesday has a device of this run's target; this run waits until that one has ended" in world.status.message
    world.earlier_runs = ()
    world.until(Phase.DRY_RUN)


def test_a_pending_run_after_its_deadline_expires_without_a_rule() -> None:
    world = World(earlier_runs=("monday",))
    world.settle()
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.EXPIRED, "DeadlinePassed")
    assert world.made == []


def test_a_run_whose_status_was_lost_leaves_its_rules_until_it_is_cancelled() -> None:
    world = World()
    manifest = RuleManifest(
        world.name_of(), "taint", 1, "night", RUN_UID, DRIVER, "node-1", None, "taintctl.dev/maintenance", "night",
        effect=Effect.NO_EXECUTE,
    )  # fmt: skip
    world.rules[manifest.name] = make_rule(manifest)
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "RuleChanged")
    assert world.status.next_step == "taintctl cancel night"
    assert list(world.rules) == [manifest.name]
    world.spec(cancelled=True).settle()
    assert world.phase is Phase.CANCELLED
    assert world.rules == {}


@pytest.mark.parametrize("unreadable", ["plan", "policy"])
def test_what_cannot_be_read_stops_the_run_where_it_is(unreadable: str) -> None:
    world = World()
    world.step()
    if unreadable == "plan":
        world.plan_problem = NO_ANSWER
    else:
        world.policy, world.policy_problem = None, NO_ANSWER
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "ClusterUnreadable")
    assert said_of(world, "WithinPolicy") == ("Unknown", "ClusterUnreadable")
    assert world.events.count("ClusterUnreadable") == 1
    assert world.made == []
    world.plan_problem, world.policy, world.policy_problem = None, make_policy(), None
    world.until(Phase.AWAITING_APPROVAL)


def test_a_policy_that_cannot_be_read_or_goes_during_the_dry_run_stops_or_blocks_it() -> None:
    world = World().until(Phase.DRY_RUN)
    world.policy, world.policy_problem = None, NO_ANSWER
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.DRY_RUN, "ClusterUnreadable")
    world.policy_problem = Problem(Reason.POLICY_NOT_FOUND, "There is no EvictionPolicy careful.")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "PolicyNotFound")


def test_a_problem_that_nobody_foresaw_counts_as_unreadable() -> None:
    world = World(plan_problem=Problem("SomethingNew", "Something new."))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.PENDING, "ClusterUnreadable")


def test_nothing_read_yet_is_unreadable_too() -> None:
    world = World(plan=None)
    world.settle()
    assert world.status.message == "Nothing is done, for the cluster has not been read yet."


@pytest.mark.parametrize(
    "reason",
    [Reason.NO_DEVICES, Reason.WHOLE_DRIVER, Reason.POOL_INCOMPLETE, Reason.TOO_MANY_RULES, Reason.CONSUMER_UNKNOWN],
)
def test_a_target_that_makes_no_plan_blocks(reason: Reason) -> None:
    world = World(plan=None, plan_problem=Problem(reason, "The target matches nothing."))
    world.settle()
    assert (world.phase, world.status.reason, world.status.message) == (
        Phase.BLOCKED,
        reason,
        "The target matches nothing.",
    )
    assert world.made == []


def test_a_rule_names_driver_pool_round_and_run() -> None:
    world = World()
    world.until(Phase.DRY_RUN)
    decision = world.step()
    rule = world.rules[world.name_of()]
    assert world.name_of() == f"taintctl-{RUN_UID}-0"
    assert rule.spec.device_selector is not None
    assert (rule.spec.device_selector.driver, rule.spec.device_selector.pool) == (DRIVER, "node-1")
    assert (rule.spec.taint.key, rule.spec.taint.value, rule.spec.taint.effect) == (
        "taintctl.dev/maintenance",
        "night",
        "None",
    )
    assert rule.metadata.labels == {
        "taintctl.dev/run": "night",
        "taintctl.dev/role": "taint",
        "app.kubernetes.io/managed-by": "taintctl",
    }
    assert rule.metadata.annotations == {"taintctl.dev/dry-run-round": "1"}
    assert decision.status.dry_run.round == 1


def test_a_message_that_agrees_is_recorded_number_by_number() -> None:
    world = World(plan=make_plan(["a", "b/c", make_pod("going", terminating=True)]))
    world.until(Phase.AWAITING_APPROVAL)
    rule = world.status.rules[0]
    assert (rule.published, rule.allocated, rule.pods, rule.namespaces, rule.predicted) == (2, 3, 2, 2, 2)
    assert rule.agreement is Agreement.AGREED
    assert world.status.plan is not None
    assert world.status.plan.agreement is Agreement.AGREED
    assert said_of(world, "DryRunFresh") == ("True", "Agreed")


@pytest.mark.parametrize("field", ["published", "allocated", "pods", "namespaces"])
@pytest.mark.parametrize("by", [-1, 1])
def test_any_number_that_differs_blocks_after_the_policys_attempts_and_says_both(field: str, by: int) -> None:
    world = World(plan=make_plan(["a", "b"]), policy=make_policy(dryRun={"attempts": 2}))
    world.message = lambda rule: said(replace(rule, **{field: getattr(rule, field) + by}))
    world.until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"
    assert "the control plane counts" in world.status.message
    assert "and taintctl 2, 2 and 2 pods in 1 namespace" in world.status.message
    assert len(world.made) == 3, "once, and two attempts more"
    assert world.status.rules[0].agreement is Agreement.MISMATCH
    assert said_of(world, "DryRunFresh") == ("False", "Mismatch")


def test_a_message_that_does_not_parse_is_a_no_and_never_a_zero() -> None:
    world = World(plan=make_plan([]), policy=make_policy(dryRun={"attempts": 1}))
    world.message = lambda rule: "Nothing would be evicted."
    world.until(Phase.BLOCKED)
    assert world.status.reason == "MessageUnreadable"
    assert "'Nothing would be evicted.'" in world.status.message
    assert said_of(world, "DryRunFresh") == ("Unknown", "MessageUnreadable")


def test_a_mismatch_that_passes_is_only_a_refresh() -> None:
    world = World()
    world.message = lambda rule: said(replace(rule, pods=rule.pods + 1))
    world.until(Phase.DRY_RUN).step()
    world.message = said
    world.until(Phase.AWAITING_APPROVAL)
    assert world.status.dry_run.attempts == 1


def test_a_mismatch_with_a_cache_is_looked_at_live_before_anything_else() -> None:
    world = World(live=False)
    world.message = lambda rule: said(replace(rule, pods=rule.pods + 1))
    world.until(Phase.DRY_RUN).step()
    decision = world.step()
    assert decision.need_live
    assert decision.actions == ()


def test_a_message_for_another_generation_is_not_read() -> None:
    world = World(controller_silent=True)
    world.until(Phase.DRY_RUN).step()
    text = said(make_plan().rules[0])
    world.condition(world.name_of(), "False", text, reason="NoEffect", generation=0).settle()
    assert world.phase is Phase.DRY_RUN
    world.condition(world.name_of(), "False", text, reason="NoEffect").settle()
    assert world.phase is Phase.NOTICE


def test_a_silent_eviction_controller_blocks_after_thirty_seconds() -> None:
    world = World(controller_silent=True)
    world.settle()
    assert world.phase is Phase.DRY_RUN
    world.pass_time(29).settle()
    assert world.phase is Phase.DRY_RUN
    world.pass_time(1).settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "EvictionControllerSilent")
    assert world.status.next_step == f"kubectl describe devicetaintrule {world.name_of()}"
    assert world.effects == {"None"}


def test_a_rule_of_an_older_round_is_deleted_with_its_uid_and_made_again() -> None:
    world = World(controller_silent=True).until(Phase.DRY_RUN)
    world.step()
    old = world.rules[world.name_of()].metadata.uid
    world.spec(paused=True).settle()
    decision = world.spec(paused=False).step()
    assert DeleteRule(world.name_of(), old) in decision.actions
    assert [a.manifest.round for a in decision.actions if isinstance(a, CreateRule)] == [2]
    assert "Resumed" in world.events


def test_a_rule_of_an_older_round_that_a_killed_controller_left_is_not_taken_for_a_fresh_one() -> None:
    world = World().until(Phase.AWAITING_APPROVAL)
    world.spec(paused=True).settle()
    world.spec(paused=False)
    world.kill_after = world._writes + 1
    with pytest.raises(Killed):
        world.step()
    assert (world.phase, world.status.dry_run.round) == (Phase.DRY_RUN, 2)
    old = world.rules[world.name_of()].metadata.uid
    world.step()
    assert world.phase is Phase.DRY_RUN
    assert world.rules[world.name_of()].metadata.uid != old
    assert world.rules[world.name_of()].metadata.annotations == {"taintctl.dev/dry-run-round": "2"}


def test_messages_from_before_an_outage_are_asked_for_again() -> None:
    world = World().until(Phase.DRY_RUN)
    assert world.made == [world.name_of()]
    world.pass_time(HOUR).settle()
    assert world.phase is Phase.NOTICE
    assert world.made == [world.name_of(), world.name_of()]
    assert world.status.dry_run.attempts == 0, "nothing disagreed"


def test_pools_that_come_and_go_are_followed_and_then_block() -> None:
    world = World(
        run=make_run(target={"driver": DRIVER, "wholeDriver": True}), policy=make_policy(dryRun={"attempts": 2})
    )
    world.controller_silent = True
    world.until(Phase.DRY_RUN).step()
    for pools in (["node-1", "node-2"], ["node-1"]):
        world.plan = make_plan(pools=pools)
        world.step()
        assert sorted(rule.pool for rule in world.status.rules) == pools
    world.plan = make_plan(pools=["node-2"])
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "Mismatch")
    assert "keep changing" in world.status.message


def test_other_pools_by_a_cache_are_looked_at_live() -> None:
    world = World().until(Phase.DRY_RUN)
    world.live, world.plan = False, make_plan(pools=["node-1", "node-2"])
    assert world.step().need_live


def test_a_plan_beyond_policy_is_blocked_with_every_violation() -> None:
    world = World(plan=make_plan(["a", "x/b"]), policy=make_policy(limits={"maxPods": 1, "maxNamespaces": 1}))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "PolicyViolated")
    assert "maxPods is 1" in world.status.message
    assert "maxNamespaces is 1" in world.status.message
    assert world.status.plan is not None
    assert [v.check for v in world.status.plan.violations] == ["maxPods", "maxNamespaces"]
    assert said_of(world, "WithinPolicy") == ("False", "PolicyViolated")


def test_blocked_is_looked_at_again_every_max_age_until_the_deadline() -> None:
    world = World(plan=make_plan(["a", "b"]), policy=make_policy(limits={"maxPods": 1}, dryRun={"maxAge": "90s"}))
    decision = world.settle()
    assert decision.requeue_after is not None
    assert decision.requeue_after.total_seconds() == 90
    world.pass_time(89).settle()
    assert world.status.dry_run.round == 1
    world.pass_time(1).settle()
    assert (world.phase, world.status.dry_run.round) == (Phase.BLOCKED, 2)
    world.plan = make_plan(["a"])
    world.until(Phase.NOTICE)


def test_blocked_at_the_deadline_expires_with_no_rule_left() -> None:
    world = World(plan=make_plan(["a", "b"]), policy=make_policy(limits={"maxPods": 1}))
    world.settle()
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.EXPIRED, "DeadlinePassed")
    assert world.rules == {}


def test_warnings_of_the_policy_are_said_and_block_nothing() -> None:
    plan = make_plan(["a"], budgets=(Budget("team-a", "web", allowed=0, needed=1),))
    world = World(plan=plan, policy=make_policy(budgets="Warn")).until(Phase.AWAITING_APPROVAL)
    found = condition(world.status.conditions, "WithinPolicy")
    assert found is not None
    assert found.status == "True"
    assert "team-a/web" in found.message


def test_a_planned_rule_that_the_message_does_not_know_is_a_mismatch() -> None:
    said_zero = RuleStatus(name="x", published=0, allocated=0, pods=0, namespaces=0)
    assert agreement(said_zero, None) is Agreement.MISMATCH
    assert agreement(said_zero, PlannedRule(DRIVER, "node-1", None, 0, 0, 0, 0)) is Agreement.AGREED
    assert agreement(said_zero.model_copy(update={"pods": None}), None) is Agreement.UNREADABLE


def test_a_toleration_of_any_length_is_a_violation_and_no_crash() -> None:
    pod = make_pod("a", PodEffect.EVICTED_LATER, toleration_seconds=2**63 - 1)
    world = World(plan=make_plan([pod]))
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.BLOCKED, "PolicyViolated")
    assert "drain.timeout" in world.status.message
