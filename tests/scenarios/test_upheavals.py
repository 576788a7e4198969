"""What is turned over under a run: nodes, namespaces, clocks, the API server's numbers, the status by hand."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from taintctl.ports.clock import LoopClock
from tests.scenarios.stops import BEFORE_MAINTENANCE, EVERY_PHASE, bring_to, let_rules_go, roomy
from tests.scenarios.test_chaos import Witness
from tests.scenarios.world import DRIVER, NODE, ON_NODE_1, RUNS, START, World

pytestmark = pytest.mark.looptime

LATER = (Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.EVICTING, Phase.DRAINING, Phase.IN_MAINTENANCE)


def errors_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR]


async def ended_by_hand(world: World) -> None:
    """Somebody cancels and releases; whatever holds on then must say so."""
    world.sandbox.manager.resume("taint-eviction")
    let_rules_go(world)
    for run in world.store.list(RUNS):
        await world.patch(run["metadata"]["name"], cancelled=True, released=True)
    await world.until(
        lambda: all(
            (r.get("status") or {}).get("phase") in ("Succeeded", "Failed", "Cancelled", "Expired")
            for r in world.store.list(RUNS)
        ),
        900,
    )
    world.assert_no_rule_left()


async def test_an_approval_given_after_its_time_while_the_controller_was_down_evicts_nobody() -> None:
    async with World() as world:
        world.policy(limits={}, budgets="Ignore", approval={"expiresAfter": "10m"})
        boss = await world.user("boss@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        await world.wait(660)
        await world.decide(boss, "boss@example.com", "Approve")
        await world.wait(60)
        await world.control()
        await world.until_phase(Phase.CANCELLED)
        assert world.run().status.reason == "ApprovalExpired"
        world.assert_never_no_execute()
        world.assert_no_rule_left()


async def test_an_approval_given_in_time_while_the_controller_was_down_counts() -> None:
    async with World() as world:
        world.policy(limits={}, budgets="Ignore", approval={"expiresAfter": "10m"})
        boss = await world.user("boss@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        await world.wait(500)
        await world.decide(boss, "boss@example.com", "Approve")
        await world.wait(600)
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)


@pytest.mark.parametrize("to", list(Phase))
@pytest.mark.parametrize("phase", [Phase.AWAITING_APPROVAL, Phase.DRAINING])
async def test_a_phase_written_by_hand_evicts_nobody_who_was_not_approved_and_leaves_no_rule(
    phase: Phase, to: Phase, caplog: pytest.LogCaptureFixture
) -> None:
    async with roomy() as world:
        await bring_to(world, phase)

        def forge(run: dict[str, Any]) -> None:
            run["status"]["phase"] = str(to)

        world.store.mutate(RUNS, None, "run", forge, subresource="status")
        await world.wait(300)
        if phase is Phase.AWAITING_APPROVAL:
            world.assert_never_no_execute()
            assert world.deleted_pods == []
        if (phase, to) == (Phase.AWAITING_APPROVAL, Phase.IN_MAINTENANCE):
            # What is in use is not let go, whoever says that it is in maintenance.
            await world.patch(released=True, workCompleted=True)
            await world.wait(300)
            assert world.phase() is Phase.IN_MAINTENANCE
            assert world.condition("DevicesIdle") == "False"
            return
        await ended_by_hand(world)
        assert errors_in(caplog) == []


@pytest.mark.parametrize("phase", LATER)
async def test_a_namespace_that_is_deleted_meanwhile(phase: Phase, caplog: pytest.LogCaptureFixture) -> None:
    async with roomy() as world:
        witness = Witness(world)
        await bring_to(world, phase)
        world.store.delete("namespaces", None, "team-b")
        await world.wait(300)
        await ended_by_hand(world)
        assert witness.broken == []
        assert errors_in(caplog) == []


@pytest.mark.parametrize("phase", EVERY_PHASE)
async def test_a_node_that_is_deleted_and_registers_again_under_its_name(
    phase: Phase, caplog: pytest.LogCaptureFixture
) -> None:
    async with roomy() as world:
        witness = Witness(world)
        await bring_to(world, phase)
        world.store.delete("nodes", None, NODE)
        world.sandbox.remove_slice(NODE)
        await world.wait(5)
        world.sandbox.add_node(NODE, 6)
        await world.wait(200)
        await ended_by_hand(world)
        assert witness.broken == []
        assert errors_in(caplog) == []


async def test_a_pod_of_a_device_plugin_that_appears_while_draining_keeps_the_devices() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.DRAINING)
        world.store.create(
            "pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"namespace": "team-a", "name": "classic"},
                "spec": {
                    "nodeName": NODE,
                    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "1"}}}],
                },
            },
        )
        await world.wait(300)
        assert world.phase() is Phase.DRAINING
        assert world.run().status.reason == "DevicePluginPod"
        world.store.delete("pods", "team-a", "classic")
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_a_run_whose_devices_come_back_lets_the_run_go_first_that_took_them_meanwhile() -> None:
    """The first found none and held nobody up; when it looks again another is at work on them."""
    async with World() as world:
        world.policy()
        world.policy("asks", budgets="Ignore")
        target = {"driver": DRIVER, "pool": "gpu-worker-03"}
        await world.control()
        await world.start("first", policyName="policy", target=target)
        await world.until(lambda: world.run("first").status.reason == "NoDevices")
        world.sandbox.add_node("gpu-worker-03", 4)
        await world.start("second", policyName="asks", target=target)
        await world.until_phase(Phase.AWAITING_APPROVAL, name="second")
        await world.wait(300)
        assert world.phase("first") is Phase.BLOCKED
        assert world.run("first").status.reason == "DeviceInOtherRun"
        world.assert_never_no_execute()
        await world.patch("second", cancelled=True)
        await world.until_phase(Phase.IN_MAINTENANCE, name="first")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
async def test_of_two_runs_that_begin_their_dry_run_at_once_one_goes_on(names: tuple[str, str]) -> None:
    """Both were created in one second, and both passed Pending: no rule can be made yet, so neither sees the other."""
    async with World() as world:
        world.policy()
        for name in names:
            await world.start(name, policyName="policy")
        assert len({run["metadata"]["creationTimestamp"] for run in world.store.list(RUNS)}) == 1

        def both_in_dry_run(run: Any) -> None:
            run["status"] = {"phase": "DryRun", "reason": "WaitingForDryRun"}

        for name in names:
            world.store.mutate(RUNS, None, name, both_in_dry_run, subresource="status")
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE, name="a")
        assert world.phase("b") is Phase.BLOCKED
        assert world.run("b").status.reason == "DeviceInOtherRun"
        await world.patch("a", workCompleted=True)
        await world.until_phase(Phase.IN_MAINTENANCE, name="b")


class JumpingClock(LoopClock):
    ahead = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.ahead


@pytest.mark.parametrize("jump", [timedelta(hours=1), -timedelta(hours=1), timedelta(seconds=30)])
@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_the_controllers_clock_jumps(phase: Phase, jump: timedelta, caplog: pytest.LogCaptureFixture) -> None:
    async with roomy() as world:
        clock = JumpingClock(START)
        world.clock = clock
        witness = Witness(world)
        await bring_to(world, phase)
        clock.ahead = jump
        await world.wait(300)
        assert witness.broken == []
        world.sandbox.manager.resume("taint-eviction")
        await ended_by_hand(world)
        assert witness.broken == []
        assert errors_in(caplog) == []


async def test_an_api_server_that_takes_nine_seconds_for_everything_evicts_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A dry run is older than a minute before it can be compared, so it is asked for again and again."""
    async with World() as world:
        world.policy()
        await world.control()
        world.sandbox.faults.slow(9, users=["system:serviceaccount:taintctl-system:taintctl"])
        await world.start(policyName="policy")
        await world.wait(1200)
        assert world.seen["run"] == ["Pending", "DryRun"]
        assert world.run().status.dry_run.round > 2
        world.assert_never_no_execute()
        assert errors_in(caplog) == []
        world.sandbox.faults.clear()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_an_api_server_that_slows_down_under_the_notice_evicts_nobody_and_says_why() -> None:
    async with World() as world:
        world.policy(dryRun={"maxAge": "1h"}, limits={}, autoApprove={"maxPods": 20}, budgets="Ignore")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.NOTICE)
        slow = world.sandbox.faults.slow(9, users=["system:serviceaccount:taintctl-system:taintctl"])
        await world.wait(1200)
        assert slow.met > 20
        assert world.phase() is Phase.NOTICE
        assert "took longer than 10 s" in world.run().status.message
        world.assert_never_no_execute()
        world.sandbox.faults.clear()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_257_pools_are_too_many_for_one_run() -> None:
    async with World(nodes=257, gpus_per_node=1) as world:
        world.policy(limits={}, approval={"required": "Never"}, budgets="Ignore")
        await world.control()
        await world.start(policyName="policy", target={"driver": DRIVER, "wholeDriver": True})
        await world.until(lambda: world.run().status.reason == "TooManyRules")
        assert world.rules_made == []


async def test_a_whole_driver_of_256_pools_goes_from_dry_run_to_release() -> None:
    """Each rule is made once, and once more beside for the second look."""
    async with World(nodes=256, gpus_per_node=1) as world:
        world.policy(limits={}, approval={"required": "Never"}, budgets="Ignore")
        await world.control()
        await world.start(policyName="policy", target={"driver": DRIVER, "wholeDriver": True})
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert {r["spec"]["taint"]["effect"] for r in world.rules()} == {"NoExecute"}
        assert len(world.rules()) == 256
        assert len(world.rules_made) == len(set(world.rules_made)) == 512
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        world.assert_no_rule_left()
