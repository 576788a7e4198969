"""drain.mode Evict on a whole cluster: budgets hold, NoSchedule stands, and NoExecute comes only where allowed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from taintctl.sandbox.fleet import budget
from tests.scenarios.stops import rules_of
from tests.scenarios.test_crashes import LONG, Mortal, die_and_start_again
from tests.scenarios.world import LENIENT, MONITOR, NODE, ON_NODE_1, POD_KEY, World

pytestmark = pytest.mark.looptime

INFERENCE = {f"team-b/inference-{n}" for n in range(3)}
"""Three pods whose budget keeps two: the fleet's PodDisruptionBudget team-b/inference has minAvailable 2."""
EVICT = {"mode": "Evict", "timeout": "5m"}
FORCED = {**LENIENT, "drain": {"forceAtTimeout": True}}


def keep_count(world: World) -> list[int]:
    """How many pods of team-b/inference were healthy and not marked for deletion, after each write to a pod."""
    seen: list[int] = []

    def count(_: Any) -> None:
        pods = world.store.list(POD_KEY, "team-b")
        alive = [p for p in pods if (p["metadata"].get("labels") or {}).get("app") == "inference"]
        seen.append(sum(not p["metadata"].get("deletionTimestamp") for p in alive))

    world.store.subscribe(POD_KEY, count)
    return seen


def replica(world: World, name: str) -> None:
    """One more pod of the inference application, elsewhere and without a GPU."""
    world.sandbox.start_pod("team-b", name, on="gpu-worker-02", app="inference")


async def draining(world: World, **policy: Any) -> None:
    world.policy(**(policy or LENIENT))
    await world.control()
    await world.start(policyName="policy", drain=EVICT)
    await world.until_phase(Phase.DRAINING)


async def test_all_go_through_the_eviction_api_and_the_devices_are_proven_idle_under_no_schedule() -> None:
    async with World() as world:
        world.without_budgets()
        await draining(world)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        assert world.pods_on(NODE) == {MONITOR}
        eviction = world.run().status.eviction
        assert eviction is not None
        assert (eviction.evicted_by_taintctl, eviction.evicted_by_taint) == (5, 0)
        world.assert_never_no_execute()
        assert [rule["spec"]["taint"]["effect"] for rule in world.rules()] == ["NoSchedule"]
        conditions = rules_of(world)[0]["status"]["conditions"]
        assert [c["reason"] for c in conditions] == ["OtherEffect"], "the eviction controller has no part in it"
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()
        assert "Evicting" not in world.seen["run"]


async def test_a_budget_that_allows_fewer_blocks_nothing_and_never_breaks() -> None:
    """Three pods, one may go: the plan is allowed with a warning, one goes, and the rest is waited for until the
    timeout. A budget that was Respected under NoExecute would have blocked the run."""
    async with World() as world:
        alive = keep_count(world)
        await draining(world, limits={}, autoApprove={"maxPods": 20}, budgets="Respect")
        within = next(c for c in world.run().status.conditions if c.type == "WithinPolicy")
        assert "team-b/inference allows 1 disruption and the plan needs 3" in within.message
        await world.wait(240)
        assert world.phase() is Phase.DRAINING
        assert world.run().status.reason == "BudgetForbids"
        assert len(set(world.deleted_pods) & INFERENCE) == 1
        await world.until_phase(Phase.FAILED, seconds=120)
        assert world.run().status.reason == "DrainTimeout"
        assert min(alive) == 2
        world.assert_never_no_execute()
        world.assert_no_rule_left()


async def test_replicas_that_come_elsewhere_let_the_rest_go() -> None:
    async with World() as world:
        alive = keep_count(world)
        await draining(world)
        await world.wait(60)
        assert len(set(world.deleted_pods) & INFERENCE) == 1
        for name in ("inference-new-0", "inference-new-1"):
            replica(world, name)
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=230)
        assert set(world.deleted_pods) == ON_NODE_1
        assert min(alive) == 2
        world.assert_never_no_execute()


async def test_what_is_left_at_the_timeout_gets_no_execute_where_the_policy_forces_it() -> None:
    async with World() as world:
        await draining(world, **FORCED)
        entered = world.clock.now()
        await world.until_phase(Phase.EVICTING, seconds=400)
        forced = world.clock.now()
        assert timedelta(minutes=5) <= forced - entered <= timedelta(minutes=6)
        assert len(set(world.deleted_pods) & INFERENCE) == 1
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        eviction = world.run().status.eviction
        assert eviction is not None
        assert (eviction.evicted_by_taintctl, eviction.evicted_by_taint) == (3, 2)
        first = next(at for at, _, effect in world.effects if effect == "NoExecute")
        assert first >= entered + timedelta(minutes=5)
        looks = [name for name in world.rules_made if name.endswith("-dry")]
        assert len(looks) == 2, "one before the Eviction API was asked, and another before NoExecute"


async def test_a_budget_that_force_would_break_blocks_the_run_before_anything() -> None:
    async with World() as world:
        world.policy(autoApprove={"maxPods": 20}, drain={"forceAtTimeout": True})
        await world.control()
        await world.start(policyName="policy", drain=EVICT)
        await world.until_phase(Phase.BLOCKED)
        assert world.run().status.reason == "PolicyViolated"
        assert "team-b/inference allows 1 disruption and the plan needs 3" in world.run().status.message
        assert world.deleted_pods == []


async def test_a_pod_that_joins_the_claim_meanwhile_is_evicted_by_nobody_and_not_forced() -> None:
    """NoSchedule does not keep a pod from a claim that is allocated (recording 09)."""
    async with World() as world:
        await draining(world, **FORCED)
        await world.until(lambda: len(set(world.deleted_pods) & INFERENCE) == 1)
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.until(lambda: "team-b/newcomer" in world.pods_on(NODE))
        await world.until_phase(Phase.FAILED)
        assert world.run().status.reason == "DrainTimeout"
        assert "(PlanChanged)" in world.run().status.message
        assert "team-b/newcomer" in world.pods()
        world.assert_never_no_execute()
        world.assert_no_rule_left()


async def test_a_paused_run_evicts_nobody_though_the_budget_gives_way() -> None:
    async with World() as world:
        await draining(world)
        await world.until(lambda: world.run().status.reason == "BudgetForbids")
        await world.patch(paused=True)
        await world.until(lambda: world.run().status.reason == "Paused")
        before = list(world.deleted_pods)
        world.without_budgets()
        await world.wait(1200)
        assert world.deleted_pods == before
        await world.patch(paused=False)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        world.assert_never_no_execute()


async def test_a_denial_while_pods_are_asked_to_go_ends_it() -> None:
    async with World() as world:
        boss = await world.user("boss@example.com", "taintctl-approver")
        await draining(world)
        await world.until(lambda: world.run().status.reason == "BudgetForbids")
        await world.decide(boss, "boss@example.com", "Deny")
        await world.until_phase(Phase.CANCELLED, seconds=60)
        assert world.run().status.reason == "Denied"
        world.assert_no_rule_left()
        assert len(INFERENCE & world.pods()) == 2


async def test_two_budgets_on_one_pod_are_found_at_planning_time() -> None:
    """Under the taint they would matter for pods that it does not reach alone; train-01 is an ordinary one."""
    async with World() as world:
        world.sandbox.apply([budget("team-a", name, "train", 0) for name in ("one", "two")])
        world.policy()
        await world.control()
        await world.start(policyName="policy", drain=EVICT)
        await world.until_phase(Phase.BLOCKED)
        assert "Several PodDisruptionBudgets select team-a/train-01" in world.run().status.message
        plan = world.run().status.plan
        assert plan is not None
        assert plan.multiple_budgets == ("team-a/train-01",)
        assert world.deleted_pods == []


# a controller that is killed


@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unheard"])
async def test_dying_at_every_single_write_ends_as_if_nothing_had_happened(after: bool) -> None:
    async with World() as world:
        world.without_budgets()
        world.policy()
        await world.start(policyName="policy", drain={"mode": "Evict"})
        deaths = await die_and_start_again(world, [(2, after), (3, after)] * 60)
        assert {"create_rule", "set_rule_effect", "replace_status", "evict"} <= set(deaths), deaths
        await assert_ends_well(world)
        world.assert_never_no_execute()


@pytest.mark.parametrize("at", range(18, 48, 2))
async def test_dying_once_on_the_way_to_a_force_ends_as_if_nothing_had_happened(at: int) -> None:
    """The patch to NoExecute among them: the gate is passed again before it is done."""
    async with World() as world:
        world.policy(**FORCED)
        await world.start(policyName="policy", drain={"mode": "Evict", "timeout": "1m"})
        await die_and_start_again(world, [(at, bool(at % 4))])
        await assert_ends_well(world)


async def test_an_hour_without_a_controller_evicts_nobody_and_then_only_who_was_approved() -> None:
    """Unlike NoExecute, NoSchedule hits nobody while no controller is there."""
    async with World() as world:
        world.policy()
        await world.control()
        deadline = (world.clock.now() + timedelta(hours=8)).isoformat()
        await world.start(policyName="policy", deadline=deadline, drain={"mode": "Evict", "timeout": "2h"})
        await world.until(lambda: len(set(world.deleted_pods) & INFERENCE) == 1)
        await world.kill()
        before = list(world.deleted_pods)
        world.without_budgets()
        await world.wait(3600)
        assert world.deleted_pods == before
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        world.assert_never_no_execute()


async def test_killed_right_before_the_patch_of_a_force_and_a_pod_comes_meanwhile() -> None:
    async with World() as world:
        world.policy(**FORCED)
        await world.start(policyName="policy", drain={"mode": "Evict", "timeout": "1m"})
        # The first effect that is set is NoSchedule, the second NoExecute.
        mortal = Mortal(world.cluster, 2, after=False, kind="set_rule_effect")
        await world.control(mortal)
        await asyncio.wait_for(mortal.dead.wait(), 600)
        await world.kill()
        assert world.phase() is Phase.EVICTING
        world.policy(**{**FORCED, "autoApprove": {"maxPods": 1}})
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.until(lambda: "team-b/newcomer" in world.pods_on(NODE))
        gone = list(world.deleted_pods)
        await world.control()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        world.assert_never_no_execute()
        assert world.deleted_pods == gone


async def assert_ends_well(world: World) -> None:
    await world.until_phase(Phase.SUCCEEDED, seconds=LONG)
    world.assert_no_rule_left()
    assert set(world.deleted_pods) == ON_NODE_1
    assert world.pods_on(NODE) == {MONITOR}
