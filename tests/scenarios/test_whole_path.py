"""From dry run to release, and what must hold on the way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import MONITOR, NODE, ON_NODE_1, WHOLE_PATH, World

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_a_run_inside_auto_approve_goes_from_dry_run_to_release(kubernetes: str) -> None:
    async with World(kubernetes=kubernetes) as world:
        before = world.pods()
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert world.pods() == before - ON_NODE_1
        assert set(world.deleted_pods) == ON_NODE_1
        assert world.pods_on(NODE) == {MONITOR}
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()
        assert world.seen["run"] == WHOLE_PATH


async def test_no_schedule_stands_ten_seconds_before_no_execute_and_the_notice_where_it_is_longer() -> None:
    for notice, at_least in (("0s", 10), ("90s", 90)):
        async with World() as world:
            world.policy()
            await world.control()
            await world.start(policyName="policy", notice=notice)
            await world.until_phase(Phase.DRAINING)
            told = next(at for at, _, effect in world.effects if effect == "NoSchedule")
            evicted = next(at for at, _, effect in world.effects if effect == "NoExecute")
            assert timedelta(seconds=at_least) <= evicted - told < timedelta(seconds=at_least + 15)


async def test_work_of_a_duration_is_done_when_it_is_over() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", work={"mode": "Duration", "duration": "5m"})
        await world.until_phase(Phase.IN_MAINTENANCE)
        entered = world.clock.now()
        await world.until_phase(Phase.SUCCEEDED)
        assert timedelta(minutes=5) <= world.clock.now() - entered < timedelta(minutes=6)
        world.assert_no_rule_left()


async def test_without_a_policy_an_approval_is_asked_and_a_denied_one_evicts_nobody() -> None:
    async with World() as world:
        world.without_budgets()
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Deny")
        await world.until_phase(Phase.CANCELLED)
        assert world.run().status.reason == "Denied"
        world.assert_never_no_execute()
        world.assert_no_rule_left()


async def test_an_approved_run_evicts_and_says_who_approved() -> None:
    async with World() as world:
        world.policy(budgets="Warn")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.wait(120)
        assert world.phase() is Phase.AWAITING_APPROVAL
        await world.decide(alice, "alice@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
        approval = world.run().status.approval
        assert approval is not None
        assert [g.approver for g in approval.given] == ["alice@example.com"]


async def test_nobody_can_approve_in_somebody_elses_name() -> None:
    from taintctl.ports.errors import ClusterError

    async with World() as world:
        world.without_budgets()
        mallory = await world.user("mallory@example.com", "taintctl-approver")
        await world.control()
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        with pytest.raises(ClusterError, match="approver"):
            await world.decide(mallory, "alice@example.com", "Approve")
        await world.wait(60)
        assert world.phase() is Phase.AWAITING_APPROVAL


async def test_two_approvals_are_two_people() -> None:
    async with World() as world:
        world.policy(approval={"count": 2}, budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        bob = await world.user("bob@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(60)
        assert world.phase() is Phase.AWAITING_APPROVAL
        await world.decide(bob, "bob@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_approval_not_given_in_time_cancels() -> None:
    async with World() as world:
        world.policy(approval={"expiresAfter": "10m"}, budgets="Ignore")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.CANCELLED, seconds=900)
        assert world.run().status.reason == "ApprovalExpired"
        world.assert_never_no_execute()
        world.assert_no_rule_left()


async def test_where_nothing_proves_who_approves_no_approval_counts() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        world.store.delete("validatingadmissionpolicybindings.admissionregistration.k8s.io", None, "taintctl-approvals")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(world.admin, "admin", "Approve")
        await world.wait(300)
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert "ApproversUnverified" in {c.reason for c in world.run().status.conditions}


async def test_it_waits_for_its_start() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        start = world.clock.now() + timedelta(minutes=30)
        await world.start(policyName="policy", startAt=start.isoformat())
        await world.wait(29 * 60)
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert {e for _, _, e in world.effects} == {"None"}
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert all(at >= start for at, _, effect in world.effects if effect != "None")


async def test_a_device_in_another_run_is_waited_for() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start("first", policyName="policy")
        await world.start(
            "second", policyName="policy", target={"driver": "gpu.example.com", "pool": NODE, "device": "gpu-0"}
        )
        await world.start(
            "elsewhere", policyName="policy", target={"driver": "gpu.example.com", "pool": "gpu-worker-02"}
        )
        await world.until_phase(Phase.IN_MAINTENANCE, name="first")
        assert world.phase("second") is Phase.PENDING
        assert world.run("second").status.reason == "DeviceInOtherRun"
        assert "first" in world.run("second").status.message
        await world.until_phase(Phase.IN_MAINTENANCE, name="elsewhere")
        await world.patch("first", workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, name="first")
        await world.until_phase(Phase.IN_MAINTENANCE, name="second")


async def test_rules_that_are_not_ours_are_never_changed() -> None:
    async with World() as world:
        foreign = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {
                "name": "foreign",
                "labels": {"taintctl.dev/run": "run", "app.kubernetes.io/managed-by": "taintctl"},
            },
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": NODE},
                "taint": {"key": "example.com/other", "value": "x", "effect": "NoSchedule"},
            },
        }
        world.sandbox.apply([foreign])
        before = world.store.get("devicetaintrules.resource.k8s.io", None, "foreign")["spec"]
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        assert [r["metadata"]["name"] for r in world.rules()] == ["foreign"]
        assert world.rules()[0]["spec"] == before


async def test_an_earlier_run_that_found_no_device_holds_nobody_up() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start("typo", policyName="policy", target={"driver": "gpu.example.com", "device": "gpu-77"})
        await world.until_phase(Phase.BLOCKED, name="typo")
        assert world.run("typo").status.reason == "NoDevices"
        await world.start("run", policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
