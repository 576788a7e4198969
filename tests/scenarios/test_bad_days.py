"""An API server that fails, forgets to answer, or is away: nothing is evicted on what could not be read."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import MONITOR, NODE, ON_NODE_1, World

pytestmark = pytest.mark.looptime

CONTROLLER = "system:serviceaccount:taintctl-system:taintctl"
UNDER_WAY = [
    Phase.PENDING,
    Phase.DRY_RUN,
    Phase.AWAITING_APPROVAL,
    Phase.NOTICE,
    Phase.EVICTING,
    Phase.DRAINING,
    Phase.IN_MAINTENANCE,
    Phase.RELEASING,
]


async def begin(world: World) -> asyncio.Future[None]:
    """A run under way, and somebody who says that the work is done when it can be done."""
    world.policy()
    await world.control()
    deadline = (world.clock.now() + timedelta(hours=6)).isoformat()
    await world.start(policyName="policy", deadline=deadline, drain={"timeout": "2h"})

    async def work() -> None:
        await world.until(lambda: "InMaintenance" in world.seen.get("run", []), 6 * 3600)
        while world.sandbox.faults.away:
            await world.wait(5)
        world.store.mutate("maintenanceruns.taintctl.dev", None, "run", lambda r: r["spec"].update(workCompleted=True))

    return asyncio.ensure_future(work())


async def ends_well(world: World, before: set[str], work: asyncio.Future[None]) -> None:
    await world.until_phase(Phase.SUCCEEDED, seconds=6 * 3600)
    await work
    world.assert_no_rule_left()
    assert set(world.deleted_pods) == ON_NODE_1
    assert world.pods() == before - ON_NODE_1
    assert world.pods_on(NODE) == {MONITOR}


@pytest.mark.parametrize("phase", UNDER_WAY)
async def test_an_api_server_that_is_away_for_ten_minutes_in_any_phase_delays_and_changes_nothing(phase: Phase) -> None:
    async with World() as world:
        before = world.pods()
        work = await begin(world)
        await world.until(lambda: phase.value in world.seen.get("run", []))
        world.sandbox.faults.go_away()
        await world.wait(600)
        world.sandbox.faults.clear()
        await ends_well(world, before, work)


@pytest.mark.parametrize("seed", range(12))
async def test_random_failures_and_lost_answers_change_nothing_but_the_time(seed: int) -> None:
    chance = random.Random(seed)
    async with World() as world:
        before = world.pods()
        work = await begin(world)
        faults = world.sandbox.faults

        async def weather() -> None:
            while True:
                await world.wait(chance.uniform(0.5, 15))
                faults.clear()
                kind = chance.choice(["500", "503", "429", "409", "drop", "lose", "slow", "calm"])
                verbs = chance.choice([(), ("get", "list"), ("create", "patch", "update", "delete")])
                times = chance.randint(1, 6)
                if kind.isdigit():
                    faults.fail(int(kind), users=[CONTROLLER], verbs=verbs, times=times)
                elif kind in ("drop", "lose"):
                    faults.drop(users=[CONTROLLER], verbs=verbs, times=times, after=kind == "lose")
                elif kind == "slow":
                    faults.slow(chance.uniform(1, 20), users=[CONTROLLER], verbs=verbs, times=times)

        storm = asyncio.ensure_future(weather())
        await world.wait(600)
        storm.cancel()
        faults.clear()
        await ends_well(world, before, work)


@pytest.mark.parametrize(
    "resource",
    [
        "pods",
        "nodes",
        "resourceclaims.resource.k8s.io",
        "resourceslices.resource.k8s.io",
        "deviceclasses.resource.k8s.io",
        "poddisruptionbudgets.policy",
        "devicetaintrules.resource.k8s.io",
        "evictionpolicies.taintctl.dev",
        "maintenanceapprovals.taintctl.dev",
    ],
)
async def test_what_cannot_be_read_stops_before_no_execute_and_is_said(resource: str) -> None:
    """From the notice on, so that everything was allowed already, one kind of object can't be read any more."""
    async with World() as world:
        before = world.pods()
        work = await begin(world)
        await world.until_phase(Phase.NOTICE)
        fault = world.sandbox.faults.fail(500, verbs=["get", "list"], resources=[resource], users=[CONTROLLER])
        await world.wait(900)
        world.assert_never_no_execute()
        assert world.deleted_pods == []
        assert "read" in world.run().status.message, world.describe()
        world.sandbox.faults.clear(fault)
        await ends_well(world, before, work)


async def test_a_right_that_is_missing_is_named() -> None:
    async with World() as world:
        world.policy()

        def forbid(role: dict[str, object]) -> None:
            rules = role["rules"]
            assert isinstance(rules, list)
            role["rules"] = [r for r in rules if "resourceclaims" not in r.get("resources", ())]

        world.store.mutate("clusterroles.rbac.authorization.k8s.io", None, "taintctl-controller", forbid)
        await world.control()
        await world.start(policyName="policy")
        await world.wait(120)
        assert "resourceclaims" in world.run().status.message
        assert "forbidden" in world.run().status.message
        world.assert_never_no_execute()


async def test_reads_that_take_too_long_are_not_acted_on() -> None:
    """The gate's reads must be moments old when NoExecute is set."""
    async with World() as world:
        before = world.pods()
        work = await begin(world)
        await world.until_phase(Phase.NOTICE)
        fault = world.sandbox.faults.slow(12, verbs=["list"], resources=["pods"], users=[CONTROLLER])
        await world.wait(900)
        world.assert_never_no_execute()
        world.sandbox.faults.clear(fault)
        await ends_well(world, before, work)
