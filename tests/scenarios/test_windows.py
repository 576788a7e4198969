"""A MaintenanceWindow makes its runs, through nights, edits, and controllers that were not there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.api.base import LABEL_WINDOW, format_time
from taintctl.api.check import check
from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow, WindowStatus
from taintctl.policy import run_name
from tests.scenarios.stops import effects_of, rules_of
from tests.scenarios.world import DRIVER, NODE, ON_NODE_1, RUNS, START, WINDOWS, World

pytestmark = pytest.mark.looptime

MINUTE = timedelta(minutes=1)
SHORT_WORK = {"mode": "Duration", "duration": "1m"}
EVERY_HALF_HOUR = {"cron": "*/30 * * * *", "duration": "20m"}
"""From START (20:00) on, the first start is at 20:30."""


async def window(world: World, name: str = "nightly", *, schedule: dict[str, Any], **spec: Any) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {
            "schedule": schedule,
            "target": {"driver": DRIVER, "pool": NODE},
            "policyName": "policy",
            "work": SHORT_WORK,
            **spec,
        },
    }
    await world.admin.create(MaintenanceWindow, body)


async def edit(world: World, name: str = "nightly", **spec: Any) -> None:
    await world.admin.patch(MaintenanceWindow, name, {"spec": spec})


async def wait_until(world: World, moment: datetime) -> None:
    await world.wait((moment - world.clock.now()).total_seconds())


def at(hour: int, minute: int = 0, day: int = 1) -> datetime:
    return datetime(2026, 12, day, hour, minute, tzinfo=UTC)


def runs(world: World, name: str = "nightly") -> list[MaintenanceRun]:
    found = [r for r in world.store.list(RUNS) if (r["metadata"].get("labels") or {}).get(LABEL_WINDOW) == name]
    checked = [check(MaintenanceRun, raw).obj for raw in found]
    return sorted((r for r in checked if r is not None), key=lambda r: r.spec.deadline)


def status(world: World, name: str = "nightly") -> WindowStatus:
    seen = check(MaintenanceWindow, world.store.get(WINDOWS, None, name)).obj
    assert seen is not None
    return seen.status


def says(world: World, kind: str, name: str = "nightly") -> tuple[str, str]:
    found = next(c for c in status(world, name).conditions if c.type == kind)
    return found.status, found.reason


def told(world: World, reason: str, name: str = "nightly") -> list[str]:
    """Messages of the events with that reason on the window."""
    return [
        event.get("message") or event.get("note") or ""
        for event in world.store.list("events")
        if event.get("reason") == reason
        and (event.get("involvedObject") or event.get("regarding") or {}).get("name") == name
    ]


async def ended(world: World, number: int = 0, seconds: float = 900) -> MaintenanceRun:
    await world.until(
        lambda: len(runs(world)) > number and (runs(world)[number].status.phase or Phase.PENDING).ended, seconds
    )
    return runs(world)[number]


# runs at their time


async def test_a_cron_window_makes_a_run_at_each_start_and_says_so() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await world.wait(60)
        assert runs(world) == []
        assert says(world, "Accepted") == ("True", "Accepted")
        assert status(world).next_start == at(20, 30)
        await wait_until(world, at(20, 30) + timedelta(seconds=5))
        [run] = runs(world)
        assert run.name == run_name("nightly", at(20, 30)) == f"nightly-{int(at(20, 30).timestamp()) // 60}"
        assert (run.spec.start_at, run.spec.deadline) == (at(20, 30), at(20, 50))
        assert run.spec.trigger.window_name == "nightly"
        assert run.metadata.owner_references == () or not run.metadata.owner_references
        assert (status(world).active_run, status(world).last_start) == (run.name, at(20, 30))
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        assert set(world.deleted_pods) == ON_NODE_1
        await world.wait(5)
        assert status(world).active_run == ""
        assert status(world).next_start == at(21, 0)
        second = await ended(world, 1, seconds=2400)
        assert second.status.phase is Phase.SUCCEEDED
        assert second.spec.start_at == at(21, 0)
        world.assert_no_rule_left()


async def test_a_window_with_one_start_makes_one_run() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={"start": format_time(START + 10 * MINUTE), "duration": "20m"})
        run = await ended(world, seconds=1200)
        assert run.status.phase is Phase.SUCCEEDED
        assert all(when >= START + 10 * MINUTE for when, _, effect in world.effects if effect != "None")
        await world.wait(3600)
        assert len(runs(world)) == 1
        assert says(world, "Ready") == ("False", "NoFurtherStart")


async def test_plan_ahead_asks_before_the_start_and_evicts_nobody_before_it() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await window(world, schedule={**EVERY_HALF_HOUR, "planAhead": "20m"})
        await wait_until(world, at(20, 9))
        assert runs(world) == []
        await wait_until(world, at(20, 12))
        [run] = runs(world)
        assert run.status.phase is Phase.AWAITING_APPROVAL
        await world.decide(alice, "alice@example.com", "Approve", run.name)
        await wait_until(world, at(20, 29))
        assert {effect for _, _, effect in world.effects} == {"None"}
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        assert all(when >= at(20, 30) for when, _, effect in world.effects if effect != "None")
        assert set(world.deleted_pods) == ON_NODE_1


async def test_nine_at_night_to_five_in_the_morning_in_berlin_is_one_run_over_midnight() -> None:
    """21:00 to 05:00 Europe/Berlin is 20:00 to 04:00 UTC in winter; the world begins in the second after a start."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.wait(30)
        schedule = {"cron": "0 21 * * *", "timeZone": "Europe/Berlin", "duration": "8h", "planAhead": "1h"}
        await window(world, schedule=schedule, work={"mode": "Manual"})
        await world.wait(10)
        # A start before the window was created was never meant.
        assert runs(world) == []
        assert status(world).next_start == at(20, 0, day=2)
        await world.kill()
        await wait_until(world, at(18, 58, day=2))
        await world.control()
        await wait_until(world, at(19, 2, day=2))
        [run] = runs(world)
        assert (run.spec.start_at, run.spec.deadline) == (at(20, 0, day=2), at(4, 0, day=3))
        assert run.status.phase is Phase.AWAITING_APPROVAL
        assert {effect for _, _, effect in world.effects} == {"None"}
        await wait_until(world, at(20, 5, day=2))
        assert runs(world)[0].status.phase is Phase.IN_MAINTENANCE
        evicted = [when for when, _, effect in world.effects if effect == "NoExecute"]
        assert all(at(20, 0, day=2) <= when < at(20, 1, day=2) for when in evicted)
        await world.kill()
        await wait_until(world, at(23, 30, day=2))
        await world.control()
        await wait_until(world, at(23, 32, day=2))
        # Past midnight in Berlin it is still the same run, and still its window.
        assert [r.name for r in runs(world)] == [run.name]
        assert runs(world)[0].status.reason == "WaitingForWork"
        await world.kill()
        await wait_until(world, at(3, 59, day=3))
        await world.control()
        await wait_until(world, at(4, 1, day=3))
        assert runs(world)[0].status.reason == "WorkNotDone"
        assert effects_of(world, run.name) == {"NoExecute"}
        await world.patch(run.name, workCompleted=True)
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        assert len(runs(world)) == 1
        assert status(world).next_start == at(20, 0, day=3)


# a controller that was down over the start


async def test_down_over_the_start_and_back_within_the_starting_deadline_makes_the_run_late() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={**EVERY_HALF_HOUR, "startingDeadline": "10m"})
        await world.wait(60)
        await world.kill()
        await wait_until(world, at(20, 38))
        await world.control()
        run = await ended(world)
        assert run.status.phase is Phase.SUCCEEDED
        assert (run.spec.start_at, run.spec.deadline) == (at(20, 30), at(20, 50))


async def test_down_over_the_start_and_back_after_the_starting_deadline_waits_for_the_next() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={**EVERY_HALF_HOUR, "startingDeadline": "5m"})
        await world.wait(60)
        await world.kill()
        await wait_until(world, at(20, 36))
        await world.control()
        await world.wait(60)
        assert runs(world) == []
        [message] = told(world, "StartMissed")
        assert "20:30:00" in message
        assert status(world).next_start == at(21, 0)
        await wait_until(world, at(20, 59))
        assert runs(world) == []
        assert (await ended(world)).spec.start_at == at(21, 0)
        assert len(told(world, "StartMissed")) == 1


@pytest.mark.parametrize(("back", "made"), [(at(20, 45), 1), (at(20, 51), 0)])
async def test_without_a_starting_deadline_a_run_may_start_until_the_window_closes(back: datetime, made: int) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await world.wait(60)
        await world.kill()
        await wait_until(world, back)
        await world.control()
        await world.wait(120)
        assert len(runs(world)) == made
        assert len(told(world, "StartMissed")) == 1 - made


async def test_several_missed_starts_make_one_run() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={"cron": "*/10 * * * *", "duration": "30m"})
        await world.wait(60)
        await world.kill()
        await wait_until(world, at(21, 5))
        await world.control()
        await world.wait(60)
        [run] = runs(world)
        assert run.spec.start_at == at(21, 0)
        [message] = told(world, "StartMissed")
        assert message.startswith("Missed 5 starts")
        await wait_until(world, at(21, 9))
        assert len(runs(world)) == 1


async def test_a_controller_that_dies_when_it_has_made_the_run_makes_no_second_one() -> None:
    class DiesAfterTheRun:
        def __init__(self, cluster: Any) -> None:
            self._cluster = cluster
            self.dead = asyncio.Event()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._cluster, name)

        async def create(self, kind: Any, body: dict[str, Any]) -> Any:
            await self._cluster.create(kind, body)
            self.dead.set()
            await asyncio.Event().wait()

    async with World() as world:
        world.policy()
        dying = DiesAfterTheRun(world.cluster)
        await world.control(dying)
        await window(world, schedule=EVERY_HALF_HOUR)
        await dying.dead.wait()
        await world.kill()
        assert status(world).last_start is None
        await world.wait(30)
        await world.control()
        await ended(world)
        await wait_until(world, at(20, 55))
        assert len(runs(world)) == 1
        assert status(world).last_start == at(20, 30)
        assert told(world, "StartMissed") == []


# suspend, concurrency, history


async def test_a_suspended_window_makes_no_run_and_one_that_goes_on_makes_the_one_that_may_still_start() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR, suspend=True)
        await wait_until(world, at(21, 2))
        assert runs(world) == []
        assert says(world, "Ready") == ("False", "Suspended")
        await edit(world, suspend=False)
        run = await ended(world)
        assert run.spec.start_at == at(21, 0)
        assert len(runs(world)) == 1


async def test_suspending_does_not_stop_a_run_that_is_under_way() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await wait_until(world, at(20, 30) + timedelta(seconds=5))
        await edit(world, suspend=True)
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        await wait_until(world, at(21, 5))
        assert len(runs(world)) == 1


async def test_forbid_makes_no_second_run_while_the_first_has_not_ended() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={"cron": "*/10 * * * *", "duration": "8m"}, work={"mode": "Manual"})
        await wait_until(world, at(20, 29))
        [run] = runs(world)
        assert run.status.phase is Phase.IN_MAINTENANCE
        assert says(world, "Ready") == ("True", "RunActive")
        assert told(world, "StartMissed")
        await world.patch(run.name, workCompleted=True)
        await ended(world)
        await wait_until(world, at(20, 31))
        assert [r.spec.start_at for r in runs(world)] == [at(20, 10), at(20, 30)]


async def test_replace_cancels_a_run_that_has_not_begun_to_evict() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        await world.control()
        schedule = {"cron": "*/10 * * * *", "duration": "30m"}
        await window(world, schedule=schedule, concurrencyPolicy="Replace")
        await wait_until(world, at(20, 15))
        assert [r.status.phase for r in runs(world)] == [Phase.AWAITING_APPROVAL]
        await wait_until(world, at(20, 21))
        assert [(r.spec.start_at, r.status.phase) for r in runs(world)] == [
            (at(20, 10), Phase.CANCELLED),
            (at(20, 20), Phase.AWAITING_APPROVAL),
        ]
        assert len(rules_of(world, runs(world)[1].name)) == len(world.rules()) == 1
        world.assert_never_no_execute()


async def test_replace_leaves_a_run_alone_that_has_begun_to_evict() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        schedule = {"cron": "*/10 * * * *", "duration": "30m"}
        await window(world, schedule=schedule, concurrencyPolicy="Replace", work={"mode": "Manual"})
        await wait_until(world, at(20, 25))
        [run] = runs(world)
        assert run.status.phase is Phase.IN_MAINTENANCE
        assert not run.spec.cancelled
        assert says(world, "Ready") == ("False", "RunActive")


async def test_the_history_limit_prunes_ended_runs_and_never_one_that_holds_a_rule() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule={"cron": "*/10 * * * *", "duration": "9m"}, historyLimit=1)
        await wait_until(world, at(20, 28))
        assert [r.spec.start_at for r in runs(world)] == [at(20, 20)]
        await edit(world, work={"mode": "Manual", "duration": None}, historyLimit=0)
        await wait_until(world, at(20, 41))
        [run] = runs(world)
        assert run.spec.start_at == at(20, 30)
        assert (run.status.phase, run.status.reason) == (Phase.IN_MAINTENANCE, "WorkNotDone")
        assert effects_of(world, run.name) == {"NoExecute"}


# deleted, edited, bad


async def test_deleting_a_window_keeps_its_run_and_the_run_ends_as_it_would_have() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await world.until(lambda: any(r.status.phase is Phase.DRAINING for r in runs(world)), 2400)
        uid = world.store.get(WINDOWS, None, "nightly")["metadata"]["uid"]
        await world.admin.delete(MaintenanceWindow, "nightly", uid=uid)
        await world.wait(5)
        assert world.store.find(WINDOWS, None, "nightly") is None
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        await wait_until(world, at(21, 5))
        assert len(runs(world)) == 1
        world.assert_no_rule_left()


async def test_an_edited_window_makes_its_next_run_anew_and_leaves_the_one_under_way_as_it_is() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await world.until(lambda: any(r.status.phase is Phase.NOTICE for r in runs(world)), 2400)
        await edit(
            world,
            target={"pool": "gpu-worker-02"},
            schedule={"cron": "15 * * * *", "duration": "30m"},
        )
        await world.wait(5)
        assert status(world).next_start == at(21, 15)
        first = await ended(world)
        assert (first.status.phase, first.spec.target.pool) == (Phase.SUCCEEDED, NODE)
        await wait_until(world, at(21, 14))
        assert len(runs(world)) == 1
        second = await ended(world, 1)
        assert (second.spec.start_at, second.spec.target.pool) == (at(21, 15), "gpu-worker-02")


@pytest.mark.parametrize(
    ("schedule", "named"),
    [
        ({"cron": "61 * * * *", "duration": "1h"}, "minute"),
        ({"cron": "0 0 * * 7", "duration": "1h"}, "day of week"),
        ({"cron": "*/10 * * * *", "timeZone": "Mars/Olympus", "duration": "1h"}, "Mars/Olympus"),
    ],
)
async def test_a_schedule_that_cannot_be_followed_is_not_accepted_until_it_is_corrected(
    schedule: dict[str, Any], named: str
) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=schedule)
        await world.wait(10)
        assert says(world, "Accepted") == ("False", "InvalidSpec")
        assert says(world, "Ready")[0] == "False"
        message = next(c for c in status(world).conditions if c.type == "Accepted").message
        assert named in message
        await world.wait(1500)
        assert runs(world) == []
        await edit(world, schedule={"cron": "*/30 * * * *", "timeZone": None, "duration": "20m"})
        await world.wait(5)
        assert says(world, "Accepted") == ("True", "Accepted")
        assert (await ended(world, seconds=2400)).status.phase is Phase.SUCCEEDED


async def test_a_misspelt_field_makes_no_run_and_is_named() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR, target={"driver": DRIVER, "pool": NODE, "devcie": "gpu-0"})
        await wait_until(world, at(20, 35))
        assert runs(world) == []
        assert says(world, "Accepted") == ("False", "UnknownField")
        assert "devcie" in next(c for c in status(world).conditions if c.type == "Accepted").message
        world.assert_no_rule_left()


async def test_a_window_spoilt_while_its_run_is_under_way_makes_no_more_and_lets_that_end() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, schedule=EVERY_HALF_HOUR)
        await world.until(lambda: any(r.status.phase is Phase.DRAINING for r in runs(world)), 2400)
        await edit(world, schedule={"cron": "nonsense", "duration": "20m"})
        assert (await ended(world)).status.phase is Phase.SUCCEEDED
        await wait_until(world, at(21, 10))
        assert len(runs(world)) == 1
        assert says(world, "Accepted") == ("False", "InvalidSpec")
        assert status(world).last_start == at(20, 30)


async def test_two_windows_on_one_device_take_turns() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await window(world, "first", schedule=EVERY_HALF_HOUR, work={"mode": "Duration", "duration": "5m"})
        await window(world, "second", schedule=EVERY_HALF_HOUR)
        await wait_until(world, at(20, 33))
        phases = sorted(str(r.status.phase) for n in ("first", "second") for r in runs(world, n))
        assert phases == ["InMaintenance", "Pending"]
        await wait_until(world, at(20, 48))
        assert [r.status.phase for n in ("first", "second") for r in runs(world, n)] == [Phase.SUCCEEDED] * 2
        world.assert_no_rule_left()


async def test_a_start_whose_runs_name_is_taken_says_so_and_asks_once_a_minute() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        taken = run_name("nightly", at(20, 30))
        await world.start(taken, policyName="policy", deadline=format_time(at(20, 40)))
        asked = world.sandbox.faults.slow(0, verbs=["create"], resources=[RUNS])
        await window(world, schedule=EVERY_HALF_HOUR, work={"mode": "Manual"})
        await wait_until(world, at(20, 35))
        assert asked.met < 20
        assert says(world, "Ready") == ("False", "NameTaken")
        assert told(world, "Scheduled") == []


async def test_a_start_beyond_the_calendar_is_refused_in_words() -> None:
    async with World() as world:
        await world.control()
        for start, ahead in (("9999-12-31T23:30:00Z", "0s"), ("0001-01-01T00:00:00Z", "1h")):
            await window(world, schedule={"start": start, "duration": "2h", "planAhead": ahead})
            await world.wait(5)
            assert says(world, "Accepted") == ("False", "InvalidSpec")
            world.store.delete(WINDOWS, None, "nightly")
