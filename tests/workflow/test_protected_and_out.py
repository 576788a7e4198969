"""Protected pods and the Break, who may not approve, questions that are asked again, tolerating pods, and devices that
other runs keep out of service."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from taintctl.api.base import condition
from taintctl.api.plan import Plan
from taintctl.api.reasons import Phase, PodEffect, Reason
from tests.workflow.builders import HOUR, NOW, World, make_plan, make_pod, make_policy, make_run, seconds

KEEP = {"podSelector": {"matchLabels": {"keep": "yes"}}}
KEPT = make_pod("kept", labels=(("keep", "yes"),))


def saying(world: World, kind: str) -> tuple[str, str]:
    found = condition(world.status.conditions, kind)
    assert found is not None
    return found.status, found.reason


def protecting(count: int = 1, **more: object) -> World:
    """A run that would evict a protected pod, under a policy that asks nobody about others."""
    policy = make_policy(approval={"required": "Never", "count": count}, protected=KEEP, **more)
    world = World(policy=policy, plan=make_plan([KEPT, "b"])).until(Phase.AWAITING_APPROVAL)
    world.settle()
    return world


# protected pods and the Break


def test_a_plan_with_protected_pods_asks_for_a_break_whatever_else_lets_it_pass() -> None:
    world = protecting(autoApprove={"maxPods": 100})
    approval, plan = world.status.approval, world.status.plan
    assert approval is not None
    assert (approval.needed, approval.break_needed) == (1, True)
    assert approval.expires_at is not None
    assert plan is not None
    assert [(v.check, v.limit, v.actual) for v in plan.violations] == [("protected", "podSelector", "1 pod")]
    assert saying(world, "WithinPolicy") == ("False", "PolicyViolated")
    assert world.status.message.startswith("1 approval, with Break needed for 2 pods in 1 namespace on 2 devices")
    assert world.status.next_step == "taintctl approve night --break"


def test_an_approval_alone_lets_no_protected_pod_go() -> None:
    world = protecting().approve()
    world.settle()
    world.pass_time(seconds(20)).settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert world.effects == {"None"}
    assert saying(world, "Approved") == ("False", "WaitingForApproval")


def test_a_break_lets_the_protected_pods_of_the_plan_go() -> None:
    world = protecting().approve(breaks=True)
    world.until(Phase.EVICTING)
    assert saying(world, "WithinPolicy") == ("True", "WithinPolicy")
    assert world.status.approval is not None
    assert [(g.approver, g.breaks) for g in world.status.approval.given] == [("alice", True)]


def test_of_two_people_one_must_break_and_either_may() -> None:
    for order in ((True, False), (False, True)):
        world = protecting(count=2)
        world.approve("alice", breaks=order[0]).settle()
        assert world.phase is Phase.AWAITING_APPROVAL
        assert "2 approvals (at least one with Break) needed" in world.status.message
        world.approve("bob", breaks=order[1]).until(Phase.EVICTING)
    nobody = protecting(count=2).approve("alice").approve("bob")
    nobody.settle()
    assert nobody.phase is Phase.AWAITING_APPROVAL


def test_who_approved_may_still_break() -> None:
    world = protecting().approve("alice")
    world.settle()
    world.approve("alice", breaks=True).until(Phase.EVICTING)


def test_a_break_lifts_no_other_limit() -> None:
    world = protecting().approve(breaks=True)
    world.until(Phase.NOTICE)
    assert world.policy is not None
    world.policy = make_policy(approval={"required": "Never"}, protected=KEEP, limits={"maxPods": 1})
    world.until(Phase.BLOCKED)
    assert world.status.reason == Reason.POLICY_VIOLATED
    assert "maxPods" in world.status.message
    assert "podSelector" in world.status.message, "people see all that is in the way"
    assert "NoExecute" not in world.effects


def test_beside_another_violation_nobody_is_asked_for_a_break() -> None:
    policy = make_policy(protected=KEEP, limits={"maxDevices": "25%"})
    world = World(policy=policy, plan=replace(make_plan([KEPT]), published=4)).until(Phase.BLOCKED)
    assert world.status.plan is not None
    # 2 devices, and a quarter of 4 is 1.
    assert [(v.check, v.limit, v.actual) for v in world.status.plan.violations] == [
        ("maxDevices", "25% (1 of 4)", "2"),
        ("protected", "podSelector", "1 pod"),
    ]
    assert world.status.approval is None


def test_a_pod_that_becomes_protected_after_the_break_stops_the_run_before_no_execute() -> None:
    world = protecting().approve(breaks=True)
    world.until(Phase.NOTICE)
    now_kept = make_pod("b", labels=(("keep", "yes"),))
    world.plan = make_plan([KEPT, now_kept])
    world.until(Phase.AWAITING_APPROVAL).settle()
    assert "NoExecute" not in world.effects
    assert world.status.approval is not None
    assert world.status.approval.given == ()
    world.approve("bob", breaks=True).until(Phase.EVICTING)


def test_a_policy_that_begins_to_protect_takes_an_approved_run_back() -> None:
    world = World(plan=make_plan([KEPT])).until(Phase.NOTICE)
    world.policy = make_policy(protected=KEEP)
    world.until(Phase.AWAITING_APPROVAL)
    assert "NoExecute" not in world.effects
    assert world.status.approval is not None
    assert world.status.approval.break_needed


def test_where_the_protected_pods_end_by_themselves_nobody_is_asked_any_more() -> None:
    world = protecting()
    world.plan = make_plan(["b"])
    world.until(Phase.NOTICE)
    assert saying(world, "WithinPolicy") == ("True", "WithinPolicy")


def test_a_break_that_was_taken_back_before_the_gate_stops_it() -> None:
    world = protecting().approve(breaks=True)
    world.until(Phase.NOTICE)
    world.approvals = ()
    world.until(Phase.DRY_RUN)
    assert "NoExecute" not in world.effects


# who asked for the run


def test_who_asked_for_the_run_waits_for_somebody_else() -> None:
    policy = make_policy(approval={"required": "Always"})
    world = World(run=make_run(requestedBy="olga"), policy=policy).until(Phase.AWAITING_APPROVAL)
    world.approve("olga").settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    assert "olga asked for the run" in world.status.message
    world.approve("alice").until(Phase.NOTICE)


def test_where_the_policy_says_so_one_person_is_enough() -> None:
    policy = make_policy(approval={"required": "Always", "selfApproval": True})
    world = World(run=make_run(requestedBy="olga"), policy=policy).until(Phase.AWAITING_APPROVAL)
    world.approve("olga").until(Phase.NOTICE)


# a question that nobody answered


def again(count: int = 1, expires: str = "30m") -> World:
    policy = make_policy(
        approval={"required": "Always", "count": count, "onExpiry": "AskAgain", "expiresAfter": expires}
    )
    world = World(policy=policy, plan=make_plan(["a"])).until(Phase.AWAITING_APPROVAL)
    world.settle()
    return world


def test_a_question_that_ran_out_is_asked_again_with_as_much_time() -> None:
    world = again()
    said = world.pass_time(timedelta(minutes=30)).step()
    assert "Nobody approved in time, so it is asked again, until 2026-11-30 22:00" in said.status.message
    world.settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    approval = world.status.approval
    assert approval is not None
    assert approval.asked_at == world.now
    assert approval.expires_at == world.now + timedelta(minutes=30)
    assert world.events.count("WaitingForApproval") == 2, "the question, and the question again"
    world.approve().until(Phase.NOTICE)


def test_what_was_approved_for_the_question_before_does_not_count_for_this_one() -> None:
    world = again(count=2).approve("alice")
    world.settle()
    world.pass_time(timedelta(minutes=30)).settle()
    approval = world.status.approval
    assert approval is not None
    assert approval.given == ()
    world.approve("bob").settle()
    assert world.phase is Phase.AWAITING_APPROVAL
    world.approve("carol").until(Phase.NOTICE)


def test_a_question_without_any_time_is_asked_every_so_often_and_no_more() -> None:
    world = again(expires="0s")
    asked = set()
    for _ in range(180):
        world.pass_time(seconds(1)).settle()
        assert world.status.approval is not None
        asked.add(world.status.approval.asked_at)
    # Once when it ran out at once, and then every dryRun.maxAge of 60 s.
    assert len(asked) in (3, 4)


def test_asking_again_ends_with_the_deadline() -> None:
    world = again()
    for _ in range(20):
        world.pass_time(timedelta(minutes=30)).settle()
    assert world.now > NOW + 8 * HOUR
    assert (world.phase, world.status.reason) == (Phase.EXPIRED, "DeadlinePassed")
    assert "NoExecute" not in world.effects


# pods that tolerate the taint


def tolerated(mode: str) -> World:
    stays = make_pod("stays", PodEffect.TOLERATES)
    return World(policy=make_policy(toleratingPods=mode), plan=make_plan([stays, "goes"]))


def test_a_tolerating_pod_blocks_where_the_policy_says_so() -> None:
    world = tolerated("Block").until(Phase.BLOCKED)
    assert world.status.reason == Reason.POLICY_VIOLATED
    assert "team-a/stays tolerates the taint" in world.status.message


@pytest.mark.parametrize(("mode", "warned"), [("Wait", True), ("Ignore", False)])
def test_a_tolerating_pod_is_warned_of_unless_it_is_to_be_ignored(mode: str, warned: bool) -> None:
    world = tolerated(mode).until(Phase.NOTICE)
    found = condition(world.status.conditions, "WithinPolicy")
    assert found is not None
    assert ("team-a/stays tolerates the taint" in found.message) is warned


def drained(mode: str) -> World:
    world = tolerated(mode).until(Phase.DRAINING)
    assert world.plan is not None
    world.plan = make_plan([p for p in world.plan.pods if p.effect is PodEffect.TOLERATES])
    for name in world.rules:
        world.condition(name, "False", "1 pod evicted since starting the controller.", reason="Completed")
    world.pass_time(timedelta(minutes=31))
    return world


def test_a_run_that_waits_for_a_tolerating_pod_fails_at_the_drain_timeout() -> None:
    world = drained("Wait")
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")


def test_with_ignore_it_goes_on_waiting_and_the_device_is_never_called_idle() -> None:
    world = drained("Ignore")
    for _ in range(10):
        world.settle()
        assert world.phase is Phase.DRAINING
        assert saying(world, "DevicesIdle")[0] == "False"
        world.pass_time(timedelta(minutes=5))
    world.plan = make_plan([])
    world.until(Phase.IN_MAINTENANCE)


def test_with_ignore_the_taint_comes_off_at_the_deadline() -> None:
    world = drained("Ignore")
    world.pass_time(8 * HOUR).settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DeadlinePassed")
    assert world.rules == {}


def test_with_ignore_any_other_pod_still_fails_the_run_at_the_drain_timeout() -> None:
    for pods in (["goes"], [make_pod("stays", PodEffect.TOLERATES), "goes"]):
        world = drained("Ignore")
        world.plan = make_plan(pods)
        world.settle()
        assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")


def test_with_ignore_a_plan_that_cannot_be_made_ignores_nobody() -> None:
    world = drained("Ignore")
    world.idle = replace(world.observe().idleness)
    world.plan = make_plan([])
    world.settle()
    assert (world.phase, world.status.reason) == (Phase.FAILED, "DrainTimeout")


# devices that other runs keep out


def elsewhere(count: int) -> Plan:
    """Two devices of eight, and so many more that other runs keep out of service."""
    return replace(make_plan(["a"]), published=8, elsewhere=count)


def test_devices_that_others_keep_out_block_and_the_run_goes_on_when_they_are_back() -> None:
    world = World(policy=make_policy(limits={"maxUnavailable": "50%"}), plan=elsewhere(3)).until(Phase.BLOCKED)
    plan = world.status.plan
    assert plan is not None
    assert [(v.check, v.limit, v.actual) for v in plan.violations] == [("maxUnavailable", "50% (4 of 8)", "5")]
    assert (plan.counts.unavailable, plan.counts.published) == (5, 8)
    assert world.status.next_step == "taintctl status", "whose devices are out"
    world.plan = elsewhere(2)
    world.until(Phase.EVICTING)


def test_devices_that_others_take_out_during_notice_stop_the_run_before_no_execute() -> None:
    world = World(policy=make_policy(limits={"maxUnavailable": 4}), plan=elsewhere(2)).until(Phase.NOTICE)
    world.plan = elsewhere(3)
    world.until(Phase.BLOCKED)
    assert "NoExecute" not in world.effects


def test_what_others_take_out_beyond_auto_approve_is_asked_about() -> None:
    policy = make_policy(approval={}, autoApprove={"maxUnavailable": 4})
    world = World(policy=policy, plan=elsewhere(2)).until(Phase.NOTICE)
    world.plan = elsewhere(3)
    world.until(Phase.DRY_RUN).until(Phase.AWAITING_APPROVAL)
    approval = world.status.approval
    assert approval is not None
    assert approval.needed == 1
    assert approval.expires_at is not None


def test_a_run_that_waits_for_its_start_and_is_to_be_asked_about_after_all_is_asked_with_a_time_limit() -> None:
    policy = make_policy(approval={"expiresAfter": "30m"}, autoApprove={"maxUnavailable": 4})
    world = World(run=make_run(startAt=NOW + HOUR), policy=policy, plan=elsewhere(2)).until(Phase.AWAITING_APPROVAL)
    world.settle()
    assert world.status.reason == Reason.WAITING_FOR_START
    world.plan = elsewhere(3)
    world.settle()
    approval = world.status.approval
    assert (world.phase, world.status.reason) == (Phase.AWAITING_APPROVAL, Reason.WAITING_FOR_APPROVAL)
    assert approval is not None
    assert (approval.needed, approval.expires_at) == (1, world.now + timedelta(minutes=30))
