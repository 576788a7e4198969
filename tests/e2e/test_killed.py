"""SIGKILL at every phase and at every change of a rule: a controller that is started again goes on where it was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.town import RULES, Process, Town, Write, town

pytestmark = pytest.mark.process


class Reaper:
    """Kills the controller inside the first write of each kind that `mark` names, and starts it again."""

    def __init__(self, place: Town, mark: Callable[[Write], str]) -> None:
        self._place = place
        self._mark = mark
        self._living: Process | None = None
        self.deaths: list[str] = []
        place.hooks.append(self._see)

    def _see(self, write: Write) -> None:
        mark = self._mark(write)
        if mark and mark not in self.deaths and self._living is not None:
            self.deaths.append(mark)
            self._living.kill()
            self._living = None

    async def keep_starting(self) -> None:
        while True:
            self._living = process = await self._place.controller()
            assert await process.process.wait() == -9, process.said()
            self._place.forget_lease()


async def live_and_die(place: Town, mark: Callable[[Write], str]) -> list[str]:
    reaper = Reaper(place, mark)
    async with asyncio.TaskGroup() as group:
        lives = group.create_task(reaper.keep_starting())
        await place.hands()
        await place.reaches("Succeeded")
        lives.cancel()
    return reaper.deaths


async def test_killed_in_every_phase_and_at_every_change_of_a_rule(tmp_path: Path) -> None:
    """Killed when the new phase, or the rule's new effect, is stored and the answer is not yet heard."""
    async with town(tmp_path) as place:
        place.policy()
        place.start()

        def mark(write: Write) -> str:
            if write.key == RULES and "taintctl" in write.user:
                kind = "fresh look" if write.name.endswith("-dry") else "rule"
                return f"{kind} {write.type} {write.effect}"
            return write.phase

        deaths = await live_and_die(place, mark)
        assert set(deaths) == {
            "Pending",
            "DryRun",
            "rule ADDED None",
            "AwaitingApproval",
            "Notice",
            "rule MODIFIED NoSchedule",
            "fresh look ADDED None",
            "Evicting",
            "rule MODIFIED NoExecute",
            "Draining",
            "fresh look DELETED None",
            "InMaintenance",
            "Releasing",
            "rule DELETED NoExecute",
            "Succeeded",
        }
        place.assert_ended_well()
        place.assert_nothing_odd_said()


async def test_killed_while_it_takes_the_taint_off_again(tmp_path: Path) -> None:
    """Cancelled under NoSchedule: killed as it begins to roll back, and as it deletes the rule."""
    async with town(tmp_path) as place:
        place.policy()
        place.start(notice="20m")

        def backwards(write: Write) -> str:
            if write.phase == "RollingBack":
                return "RollingBack"
            return "rule DELETED" if write.key == RULES and write.type == "DELETED" else ""

        reaper = Reaper(place, backwards)
        async with asyncio.TaskGroup() as group:
            lives = group.create_task(reaper.keep_starting())
            await place.reaches("AwaitingApproval")
            place.approve()
            await place.reaches("Notice")
            place.patch(cancelled=True)
            await place.reaches("Cancelled")
            lives.cancel()
        assert reaper.deaths == ["RollingBack", "rule DELETED"]
        assert place.sandbox.store.list(RULES) == []
        assert len(place.made_rules()) == 1
        assert place.evicted == []
        place.assert_nothing_odd_said()
