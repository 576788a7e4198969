"""Deadlines, starts and timeouts: no eviction outside, and in maintenance the taint stays where there is doubt."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.reasons import Phase
from tests.scenarios.stops import (
    BEFORE_MAINTENANCE,
    BEFORE_NO_EXECUTE,
    EVICTION,
    PATIENT,
    bring_to,
    effects_of,
    no_execute_since,
    roomy,
    rules_of,
    warnings,
)
from tests.scenarios.world import LENIENT, MONITOR, NODE, ON_NODE_1, World

pytestmark = pytest.mark.looptime

END = {Phase.EVICTING: Phase.FAILED, Phase.DRAINING: Phase.FAILED}
"""Where the deadline finds it already evicting, the run has failed; before, it has expired."""
AFTER = 45.0


def within(world: World, seconds: float) -> str:
    return format_time(world.clock.now() + timedelta(seconds=seconds))


def deadline_of(world: World) -> datetime:
    return world.run().spec.deadline


async def assert_ended_by_the_deadline(world: World, phase: Phase, already: list[str]) -> None:
    status = world.run().status
    assert (status.phase, status.reason) == (END.get(phase, Phase.EXPIRED), "DeadlinePassed")
    assert rules_of(world) == []
    world.sandbox.manager.resume(EVICTION)
    await world.wait(AFTER)
    assert world.deleted_pods == already
    assert no_execute_since(world, deadline_of(world)) == []


# before maintenance


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_the_deadline_takes_off_what_is_not_in_maintenance(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        already = list(world.deleted_pods)
        await world.patch(deadline=within(world, 5))
        await world.until_phase(END.get(phase, Phase.EXPIRED), seconds=15)
        assert world.clock.now() < deadline_of(world) + timedelta(seconds=5)
        await assert_ended_by_the_deadline(world, phase, already)


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_the_deadline_acts_on_a_paused_run_too(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        await world.patch(paused=True)
        await world.until(lambda: world.run().status.reason == "Paused", 30)
        await world.wait(1)
        already = list(world.deleted_pods)
        await world.patch(deadline=within(world, 60))
        await world.until_phase(END.get(phase, Phase.EXPIRED), seconds=75)
        await assert_ended_by_the_deadline(world, phase, already)


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_a_deadline_that_passed_without_a_controller_is_acted_on_before_anything_else(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        await world.kill()
        await world.patch(deadline=within(world, 600))
        await world.wait(700)
        already = list(world.deleted_pods)
        if phase in BEFORE_NO_EXECUTE or phase is Phase.PENDING:
            assert already == []
        await world.control()
        await world.until_phase(END.get(phase, Phase.EXPIRED), seconds=15)
        await assert_ended_by_the_deadline(world, phase, already)


async def test_the_deadline_cancels_a_deletion_by_the_taint_that_is_still_to_come() -> None:
    """A pod that tolerates the taint for 20 s is not deleted any more when the deadline comes first."""
    async with roomy() as world:
        await bring_to(world, Phase.DRAINING)
        assert PATIENT in world.pods()
        await world.patch(deadline=within(world, 2))
        await world.until_phase(Phase.FAILED, seconds=10)
        await world.wait(60)
        assert PATIENT in world.pods()


async def test_a_run_whose_deadline_has_passed_already_does_nothing() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, -5))
        await world.until_phase(Phase.EXPIRED, seconds=10)
        assert world.rules_made == []
        assert world.deleted_pods == []


# the start


async def test_approved_before_its_start_it_waits_and_looks_at_the_pods_again_at_the_start() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        start = world.clock.now() + timedelta(minutes=20)
        await world.start(policyName="policy", startAt=format_time(start))
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(600)
        assert world.run().status.reason == "WaitingForStart"
        assert effects_of(world) == {"None"}
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=1200)
        told = next(at for at, _, effect in world.effects if effect == "NoSchedule")
        evicted = next(at for at, _, effect in world.effects if effect == "NoExecute")
        assert start <= told <= start + timedelta(seconds=10)
        assert evicted >= told + timedelta(seconds=10)
        # An approval holds until the deadline: nobody is asked again at the start.
        assert world.seen["run"].count("AwaitingApproval") <= 2


async def test_started_while_no_controller_was_there_the_gate_is_passed_first() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", startAt=within(world, 600))
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        await world.wait(1200)
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.until(lambda: "team-b/newcomer" in world.pods_on(NODE))
        moment = world.clock.now()
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert no_execute_since(world, moment)[0][0] >= moment + timedelta(seconds=10)
        plan = world.run().status.plan
        assert plan is not None
        assert "newcomer" in {pod.name for pod in plan.pods} | {p.split("/")[1] for p in world.deleted_pods}


async def test_a_start_too_near_the_deadline_for_the_notice_evicts_nobody() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", startAt=within(world, 60), deadline=within(world, 120), notice="5m")
        await world.until_phase(Phase.EXPIRED, seconds=200)
        world.assert_never_no_execute()
        world.assert_no_rule_left()
        assert world.deleted_pods == []


# approval in time


async def test_an_approval_that_ran_out_while_no_controller_was_there_cancels() -> None:
    async with World() as world:
        world.policy(budgets="Ignore", approval={"expiresAfter": "10m"})
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        await world.wait(900)
        await world.control()
        await world.until_phase(Phase.CANCELLED, seconds=30)
        assert world.run().status.reason == "ApprovalExpired"
        world.assert_no_rule_left()
        world.assert_never_no_execute()
        assert world.deleted_pods == []
        assert alice is not None


async def test_an_approval_given_in_time_while_no_controller_was_there_counts() -> None:
    async with World() as world:
        world.policy(budgets="Ignore", approval={"expiresAfter": "10m"})
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(900)
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)


# the drain timeout


def kept_from_eviction(world: World) -> None:
    """A budget that lets the notebook, which only the Eviction API takes, not go."""
    world.sandbox.apply(
        [
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"namespace": "team-b", "name": "notebook"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook"}}},
            }
        ]
    )


async def test_a_budget_that_forbids_until_the_drain_timeout_rolls_back() -> None:
    async with World() as world:
        world.policy()
        kept_from_eviction(world)
        await world.control()
        await world.start(policyName="policy", drain={"timeout": "5m"})
        await world.until_phase(Phase.DRAINING)
        entered = world.clock.now()
        await world.wait(240)
        assert world.phase() is Phase.DRAINING
        assert world.run().status.reason == "BudgetForbids"
        assert warnings(world, "BudgetForbids")
        await world.until_phase(Phase.FAILED, seconds=120)
        assert world.run().status.reason == "DrainTimeout"
        assert timedelta(minutes=5) <= world.clock.now() - entered + timedelta(seconds=15)
        world.assert_no_rule_left()
        assert "team-b/notebook-0" in world.pods()


async def test_a_budget_that_gives_way_in_time_lets_the_run_go_on() -> None:
    async with World() as world:
        world.policy()
        kept_from_eviction(world)
        await world.control()
        await world.start(policyName="policy", drain={"timeout": "10m"})
        await world.until_phase(Phase.DRAINING)
        await world.wait(120)
        world.store.delete("poddisruptionbudgets.policy", "team-b", "notebook")
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=150)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_where_the_policy_does_not_roll_back_at_the_drain_timeout_the_run_waits_until_the_deadline() -> None:
    async with World() as world:
        world.policy(**{**LENIENT, "rollbackOn": ["Cancelled"]})
        kept_from_eviction(world)
        await world.control()
        await world.start(policyName="policy", drain={"timeout": "2m"}, deadline=within(world, 600))
        await world.until_phase(Phase.DRAINING)
        await world.wait(300)
        assert world.phase() is Phase.DRAINING
        assert "drain.timeout has passed" in world.run().status.message
        await world.until_phase(Phase.FAILED, seconds=400)
        assert world.run().status.reason == "DeadlinePassed"
        world.assert_no_rule_left()


async def test_two_budgets_for_one_pod_that_came_after_the_plan_end_the_run() -> None:
    """The Eviction API answers 500 for ever; the taint is taken off and the sentence says what to do."""
    async with World() as world:
        world.policy()
        kept_from_eviction(world)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.DRAINING)
        world.sandbox.apply(
            [
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"namespace": "team-b", "name": "notebook-too"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook"}}},
                }
            ]
        )
        await world.until_phase(Phase.FAILED, seconds=60)
        status = world.run().status
        assert status.reason == "MultipleBudgets"
        assert "team-b/notebook-0" in status.message
        world.assert_no_rule_left()
        assert "team-b/notebook-0" in world.pods()


NODE_2: dict[str, Any] = {"driver": "gpu.example.com", "pool": "gpu-worker-02"}
"""Where the fleet's pod train-02 tolerates the taint for 20 s."""


async def test_a_pod_that_tolerates_the_taint_for_longer_than_the_drain_may_take_blocks_the_run() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", target=NODE_2, drain={"timeout": "10s"})
        await world.until_phase(Phase.BLOCKED, seconds=60)
        plan = world.run().status.plan
        assert plan is not None
        assert [v.check for v in plan.violations] == ["tolerationSeconds"]
        assert "team-a/train-02" in world.run().status.message
        await world.wait(120)
        world.assert_never_no_execute()


async def test_a_pod_that_no_longer_fits_before_the_deadline_at_the_gate_is_not_evicted() -> None:
    """28 s are enough for its 20 s when it is asked about, and not after the 10 s of NoSchedule."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", target=NODE_2, deadline=within(world, 28))
        await world.until_phase(Phase.EXPIRED, seconds=60)
        assert "Notice" in world.seen["run"]
        world.assert_never_no_execute()
        world.assert_no_rule_left()
        assert world.deleted_pods == []


# in maintenance


async def test_work_that_is_done_is_released_before_the_deadline() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(
            policyName="policy", work={"mode": "Duration", "duration": "5m"}, deadline=within(world, 3600)
        )
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()


@pytest.mark.parametrize("down", [False, True], ids=["controller up", "controller down"])
async def test_work_not_done_at_the_deadline_keeps_the_taint_and_warns(down: bool) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600))
        await world.until_phase(Phase.IN_MAINTENANCE)
        if down:
            await world.kill()
        await world.wait(1200)
        if down:
            await world.control()
            await world.wait(15)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "WorkNotDone")
        assert status.next_step == "taintctl complete run"
        assert len(warnings(world, "WorkNotDone")) == 1
        assert effects_of(world) == {"NoExecute"}
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, seconds=30)
        world.assert_no_rule_left()


async def test_work_done_while_no_controller_was_there_and_the_deadline_passed_is_released() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600))
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.kill()
        await world.patch(workCompleted=True)
        await world.wait(1200)
        assert effects_of(world) == {"NoExecute"}
        await world.control()
        await world.until_phase(Phase.SUCCEEDED, seconds=30)


def tolerating(world: World, name: str = "burn-in") -> None:
    """A pod that tolerates the taint and takes a device that is in maintenance."""
    tolerations = [{"operator": "Exists"}, {"operator": "Exists", "effect": "NoExecute"}]
    world.sandbox.apply(
        [
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"namespace": "team-a", "name": "tolerating"},
                "spec": {
                    "spec": {
                        "devices": {
                            "requests": [
                                {
                                    "name": "gpu",
                                    "exactly": {"deviceClassName": "gpu.example.com", "tolerations": tolerations},
                                }
                            ]
                        }
                    }
                },
            }
        ]
    )
    world.sandbox.start_pod("team-a", name, on=NODE, template="tolerating")


@pytest.mark.parametrize("at_deadline", [{}, {"atDeadline": "Extend", "extendBy": "1m"}])
async def test_devices_in_use_at_the_deadline_keep_the_taint_though_the_work_is_done(
    at_deadline: dict[str, Any],
) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600), **at_deadline)
        await world.until_phase(Phase.IN_MAINTENANCE)
        tolerating(world)
        await world.until(lambda: "team-a/burn-in" in world.pods_on(NODE))
        await world.patch(workCompleted=True)
        await world.wait(900)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "DevicesInUse")
        assert "team-a/burn-in" in status.message
        assert effects_of(world) == {"NoExecute"}
        assert "team-a/burn-in" in world.pods()
        world.store.delete("pods", "team-a", "burn-in")
        await world.until_phase(Phase.SUCCEEDED, seconds=120)
        world.assert_no_rule_left()


async def test_a_node_that_went_silent_keeps_the_taint_at_the_deadline_until_it_is_back() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 900))
        await world.until_phase(Phase.IN_MAINTENANCE)
        world.sandbox.node_silent(NODE)
        await world.wait(120)
        await world.patch(workCompleted=True)
        await world.wait(900)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "NodeNotReady")
        assert warnings(world, "NodeNotReady")
        assert len(rules_of(world)) == 1
        world.sandbox.node_back(NODE)
        await world.until_phase(Phase.SUCCEEDED, seconds=120)


async def test_kept_tainted_at_the_deadline_waits_for_release_though_the_work_is_done() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600), atDeadline="KeepTainted")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(700)
        await world.patch(workCompleted=True)
        await world.wait(60)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "KeptTainted")
        assert warnings(world, "KeptTainted")
        assert effects_of(world) == {"NoExecute"}
        await world.patch(released=True)
        await world.until_phase(Phase.SUCCEEDED, seconds=30)
        world.assert_no_rule_left()


async def test_kept_tainted_is_about_the_deadline_and_work_done_before_is_released() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 900), atDeadline="KeepTainted")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, seconds=60)


async def test_an_extended_deadline_gives_the_work_more_time_and_eviction_none() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        deadline = world.clock.now() + timedelta(seconds=600)
        await world.start(policyName="policy", deadline=format_time(deadline), atDeadline="Extend", extendBy="10m")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(620)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "DeadlineExtended")
        assert f"{deadline + timedelta(minutes=10):%H:%M:%S}" in status.message
        await world.wait(600)
        assert world.run().status.reason == "WorkNotDone"
        assert effects_of(world) == {"NoExecute"}
        assert len(warnings(world, "WorkNotDone")) == 1


async def test_an_extension_is_for_work_only_and_a_draining_run_ends_at_its_deadline() -> None:
    async with World() as world:
        world.policy(**{**LENIENT, "rollbackOn": ["Cancelled"]})
        kept_from_eviction(world)
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 300), atDeadline="Extend", extendBy="1h")
        await world.until_phase(Phase.FAILED, seconds=330)
        assert world.run().status.reason == "DeadlinePassed"
        world.assert_no_rule_left()


async def test_a_deadline_that_passes_in_a_paused_maintenance_keeps_the_taint() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600))
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(paused=True)
        await world.wait(900)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert effects_of(world) == {"NoSchedule"}
        assert world.pods_on(NODE) == {MONITOR}
        await world.patch(paused=False)
        await world.until(lambda: world.run().status.reason == "WorkNotDone", 30)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, seconds=30)


async def test_a_deadline_moved_to_later_in_maintenance_is_the_new_one() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=within(world, 600))
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(deadline=within(world, 3600))
        await world.wait(900)
        assert world.run().status.reason == "WaitingForWork"
        assert warnings(world, "WorkNotDone") == []
