"""With the lean cache in the loop, as the controller runs: what it has not heard evicts nobody and frees nothing."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from taintctl.adapters.kubernetes.cache import LeanCache
from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.api.objects import Snapshot
from taintctl.api.reasons import Phase
from taintctl.ports.cluster import Scope
from taintctl.reconcile.loop import Reconciler
from tests.scenarios.world import CONTROLLER, DRIVER, NODE, ON_NODE_1, WHOLE_PATH, World

pytestmark = pytest.mark.looptime


class Lagging:
    """A cache that hears bookmarks and, once it is held, no change: as young as can be, and wrong."""

    def __init__(self, cache: LeanCache) -> None:
        self._cache = cache
        self._held: Snapshot | None = None
        self.asked = 0

    async def hold(self, this: Snapshot | None = None) -> None:
        self._held = this or await self._cache.snapshot(Scope(DRIVER, NODE))

    def age(self) -> timedelta | None:
        return timedelta(0) if self._held is not None else self._cache.age()

    async def snapshot(self, scope: Scope) -> Snapshot:
        self.asked += 1
        return self._held if self._held is not None else await self._cache.snapshot(scope)


class CachedWorld(World):
    """A world whose controller has a cache, filled before it begins."""

    async def watch(self) -> Lagging:
        token = self.sandbox.users.service_account(*CONTROLLER).token
        client = await self._stack.enter_async_context(
            Client(Credentials.static(self.sandbox.url, token=token), self.clock)
        )
        self.lean = LeanCache(client, "v1", self.clock)
        filling = asyncio.get_running_loop().create_task(self.lean.run())
        self._stack.callback(filling.cancel)
        await self.until(lambda: self.lean.age() is not None)
        return Lagging(self.lean)

    async def control_with(self, cache: Lagging) -> None:
        await self.kill()
        self._reconciler = Reconciler(self.cluster, cache, self.clock, self.settings)
        self.lean.on_change = self._reconciler.devices_changed
        self._controller = asyncio.get_running_loop().create_task(self._reconciler.run())


async def to_the_end(world: World) -> None:
    await world.until_phase(Phase.IN_MAINTENANCE)
    await world.patch(workCompleted=True)
    await world.until_phase(Phase.SUCCEEDED)
    assert world.seen["run"] == WHOLE_PATH
    assert set(world.deleted_pods) == ON_NODE_1
    world.assert_no_rule_left()


async def test_the_whole_path_while_watches_are_cut_and_expire() -> None:
    async with CachedWorld() as world:
        cache = await world.watch()
        world.policy()
        await world.control_with(cache)
        await world.start(policyName="policy")

        async def weather() -> None:
            while True:
                await world.wait(3)
                world.sandbox.faults.cut_watches()
                await world.wait(3)
                world.sandbox.faults.expire_watches()

        async with asyncio.TaskGroup() as group:
            bad = group.create_task(weather())
            await to_the_end(world)
            bad.cancel()
        assert cache.asked > 0


async def test_a_cache_that_hears_nothing_any_more_holds_nobody_up() -> None:
    """Its watches are refused from before the run on; it ages, and then live reads are taken instead."""
    async with CachedWorld() as world:
        cache = await world.watch()
        world.sandbox.faults.fail(503, verbs=["watch"], resources=["pods", "resourceclaims.resource.k8s.io"])
        world.sandbox.faults.cut_watches()
        world.policy()
        await world.control_with(cache)
        await world.start(policyName="policy")
        await to_the_end(world)


@pytest.mark.parametrize("phase", [Phase.AWAITING_APPROVAL, Phase.NOTICE])
async def test_a_pod_that_the_cache_has_not_heard_of_is_planned_before_anything_is_evicted(phase: Phase) -> None:
    """One joins a shared claim, which NoSchedule lets happen; the cache never tells."""
    async with CachedWorld() as world:
        cache = await world.watch()
        world.policy(limits={}, autoApprove={"maxPods": 5}, budgets="Ignore")
        world.policy("asks", limits={}, budgets="Ignore")
        boss = await world.user("boss@example.com", "taintctl-approver")
        await world.control_with(cache)
        await world.start(policyName="policy" if phase is Phase.NOTICE else "asks", notice="60s")
        await world.until_phase(phase)
        await cache.hold()
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.until(lambda: "team-b/newcomer" in world.pods_on())
        if phase is Phase.AWAITING_APPROVAL:
            await world.decide(boss, "boss@example.com", "Approve")
        await world.wait(600)
        # Six pods now: more than the policy lets pass, and more than was approved.
        world.assert_never_no_execute()
        assert world.deleted_pods == []
        await world.patch(cancelled=True)
        await world.until_phase(Phase.CANCELLED)
        world.assert_no_rule_left()


async def test_a_cache_in_which_the_devices_are_empty_proves_nothing() -> None:
    """Whatever it says, the pods are there; one takes 200 s to stop, far longer than a proof takes."""
    async with CachedWorld(gpus_per_node=6) as world:
        cache = await world.watch()
        world.sandbox.start_pod("team-a", "slow", on=NODE, template="one-gpu", stop_after="200s")
        await world.until(lambda: "team-a/slow" in world.pods_on())
        world.policy()
        await world.control_with(cache)
        await world.start(policyName="policy")
        await world.until_phase(Phase.DRAINING)
        now = await world.lean.snapshot(Scope(DRIVER, NODE))
        await cache.hold(msgspec.structs.replace(now, pods=(), claims=()))
        await world.until(lambda: "team-a/slow" not in world.pods_on(), 300)
        gone_at = world.clock.now()
        eviction = world.run().status.eviction
        assert eviction is not None
        assert eviction.empty_since is None
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert world.clock.now() - gone_at >= timedelta(seconds=60)


async def test_a_cache_in_which_the_devices_are_in_use_for_ever_hangs_nothing() -> None:
    async with CachedWorld() as world:
        cache = await world.watch()
        world.policy()
        await world.control_with(cache)
        await world.start(policyName="policy")
        await world.until_phase(Phase.NOTICE)
        await cache.hold()
        await to_the_end(world)


async def test_after_a_restore_from_a_backup_the_cache_does_not_stay_in_the_past() -> None:
    """The numbers that the server counts changes with begin lower again: a watch from before is refused for ever."""
    async with CachedWorld() as world:
        await world.watch()
        world.store.resource_version -= 50  # what a restored etcd does
        world.sandbox.faults.cut_watches()
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.wait(300)
        found = await world.lean.snapshot(Scope(DRIVER, NODE))
        assert "team-b/newcomer" in {pod.key for pod in found.pods}
