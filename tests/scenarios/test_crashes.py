"""A controller killed anywhere goes on where it was: the same end, each rule made once, none left behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import MONITOR, NODE, ON_NODE_1, WHOLE_PATH, World

pytestmark = pytest.mark.looptime

WRITES = (
    "create",
    "patch",
    "replace_status",
    "delete",
    "create_rule",
    "set_rule_effect",
    "delete_rule",
    "evict",
    "record_event",
)


LONG = 4 * 3600


class Killed(BaseException):
    """SIGKILL: no handler of the controller sees it."""


class Mortal:
    """A cluster whose user dies at one write: before the server has it, or after it and before the answer is heard."""

    def __init__(self, cluster: Any, at: int, *, after: bool, kind: str = "") -> None:
        self._cluster = cluster
        self._left = at
        self._after = after
        self._kinds = (kind,) if kind else WRITES
        self.dead = asyncio.Event()
        self.died_at = ""

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._cluster, name)
        if name not in self._kinds:
            return call

        async def deadly(*args: Any, **kwargs: Any) -> Any:
            if self.dead.is_set():
                raise Killed
            self._left -= 1
            if self._left > 0:
                return await call(*args, **kwargs)
            if self._after:
                await call(*args, **kwargs)
            self.died_at = name
            self.dead.set()
            raise Killed

        return deadly


async def die_and_start_again(world: World, lives: list[tuple[int, bool]]) -> list[str]:
    """Each life ends at its n-th write; the last one is immortal. Says at what kind of write each died."""
    deaths = []
    for at, after in lives:
        mortal = Mortal(world.cluster, at, after=after)
        await world.control(mortal)
        ended = asyncio.ensure_future(mortal.dead.wait())
        done = asyncio.ensure_future(world.until(lambda: finished(world), LONG))
        work = asyncio.ensure_future(finish_work(world))
        await asyncio.wait({ended, done}, return_when=asyncio.FIRST_COMPLETED)
        for task in (ended, done, work):
            task.cancel()
        await world.kill()
        if not mortal.dead.is_set():
            return deaths
        deaths.append(mortal.died_at)
    await world.control()
    await finish_work(world)
    return deaths


def hours(world: World, count: int) -> str:
    return (world.clock.now() + timedelta(hours=count)).isoformat()


def finished(world: World) -> bool:
    phase = world.phase()
    return phase is not None and phase.ended


async def finish_work(world: World) -> None:
    await world.until(lambda: world.phase() is Phase.IN_MAINTENANCE or finished(world), LONG)
    if world.phase() is Phase.IN_MAINTENANCE:
        await world.patch(workCompleted=True)


async def assert_ends_well(world: World, before: set[str], *, made: int = 1) -> None:
    """`made`: how often a rule may have been made; more than once only where a dry run went stale meanwhile."""
    await world.until_phase(Phase.SUCCEEDED, seconds=LONG)
    world.assert_no_rule_left()
    assert world.pods() == before - ON_NODE_1
    assert set(world.deleted_pods) == ON_NODE_1
    assert world.pods_on(NODE) == {MONITOR}
    names = [name for name in world.rules_made if not name.endswith("-dry")]
    assert 1 <= len(names) <= made, f"rules made: {names}"


@pytest.mark.parametrize("after", [False, True], ids=["before it is sent", "before the answer is heard"])
async def test_dying_at_every_single_write_ends_as_if_nothing_had_happened(after: bool) -> None:
    """Each life does one or two writes and dies at the next, so that every kind of write is one to die at."""
    async with World() as world:
        before = world.pods()
        world.policy()
        await world.start(policyName="policy")
        deaths = await die_and_start_again(world, [(2, after), (3, after)] * 60)
        assert {"create_rule", "set_rule_effect", "replace_status"} <= set(deaths), deaths
        await world.until(lambda: finished(world), LONG)
        await assert_ends_well(world, before)


@pytest.mark.parametrize("kind", ["patch", "create_rule", "set_rule_effect", "delete_rule", "evict"])
@pytest.mark.parametrize("after", [False, True], ids=["unsent", "unheard"])
async def test_dying_at_the_first_write_of_a_kind(kind: str, after: bool) -> None:
    async with World() as world:
        before = world.pods()
        world.policy()
        await world.start(policyName="policy")
        mortal = Mortal(world.cluster, 1, after=after, kind=kind)
        await world.control(mortal)
        work = asyncio.ensure_future(finish_work(world))
        await mortal.dead.wait()
        await world.control()
        await work
        await assert_ends_well(world, before)


@pytest.mark.parametrize(
    ("at", "after"),
    # To have died before write n + 1 is to have died unheard after write n, as far as a cluster can tell.
    [(at, False) for at in range(1, 42)] + [(at, True) for at in range(1, 42, 5)],
)
async def test_dying_once_at_the_nth_write(at: int, after: bool) -> None:
    async with World() as world:
        before = world.pods()
        world.policy()
        await world.start(policyName="policy")
        await die_and_start_again(world, [(at, after)])
        await assert_ends_well(world, before)
        assert [p for p in WHOLE_PATH if p not in world.seen["run"]] == []


@pytest.mark.parametrize("phase", [p for p in Phase if not p.ended and p not in (Phase.BLOCKED, Phase.ROLLING_BACK)])
async def test_an_hour_without_a_controller_in_any_phase_changes_nothing_but_the_time(phase: Phase) -> None:
    async with World() as world:
        before = world.pods()
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=hours(world, 8), drain={"timeout": "2h"})
        work = asyncio.ensure_future(finish_work(world))
        await world.until(lambda: phase.value in world.seen.get("run", []))
        await world.kill()
        await world.wait(3600)
        await world.control()
        await work
        await assert_ends_well(world, before, made=2)


async def test_an_hour_in_evicting_before_the_patch_passes_the_gate_again_first() -> None:
    """Killed between the decision to evict and the patch; meanwhile a pod nobody approved takes the device."""
    async with World() as world:
        world.policy(autoApprove={"maxPods": 5}, budgets="Ignore")
        await world.start(policyName="policy", deadline=hours(world, 4))

        class DiesBeforeNoExecute:
            def __init__(self, cluster: Any) -> None:
                self._cluster = cluster
                self.dead = asyncio.Event()

            def __getattr__(self, name: str) -> Any:
                return getattr(self._cluster, name)

            async def set_rule_effect(self, name: str, **kwargs: Any) -> Any:
                if kwargs["effect"] == "NoExecute":
                    self.dead.set()
                    raise Killed
                return await self._cluster.set_rule_effect(name, **kwargs)

        dying = DiesBeforeNoExecute(world.cluster)
        await world.control(dying)
        await dying.dead.wait()
        await world.kill()
        assert world.phase() is Phase.EVICTING
        world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
        await world.wait(3600)
        assert "team-b/newcomer" in world.pods_on(NODE)
        await world.control()
        await world.wait(600)
        world.assert_never_no_execute()
        assert world.deleted_pods == []
        assert world.phase() in (Phase.AWAITING_APPROVAL, Phase.BLOCKED, Phase.DRY_RUN)


async def test_an_hour_in_evicting_after_the_patch_goes_on_and_evicts_no_newcomer_by_our_own_hand() -> None:
    """NoExecute stands while nobody watches: what we evict ourselves is still only what was approved."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", deadline=hours(world, 4), drain={"timeout": "2h"})
        await world.until_phase(Phase.EVICTING)
        await world.until(lambda: any(effect == "NoExecute" for _, _, effect in world.effects))
        await world.kill()
        await world.wait(3600)
        assert "team-b/notebook-0" in world.pods()
        await world.control()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
