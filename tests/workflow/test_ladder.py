"""The whole ladder, from Pending to Succeeded, and the same with the controller killed after every single write."""

from __future__ import annotations

from datetime import timedelta

import pytest

from taintctl.api.reasons import Phase, PodEffect
from tests.workflow.builders import HOUR, NOW, RUN_UID, Killed, World, make_plan, make_pod, make_policy, make_run

LADDER = [
    "Pending",
    "DryRun",
    "AwaitingApproval",
    "Notice",
    "Evicting",
    "Draining",
    "InMaintenance",
    "Releasing",
    "Succeeded",
]


def walk(world: World, down: timedelta = timedelta(0), limit: int = 200) -> World:
    """To the end, with a person who approves, a control plane that evicts, and a person who does the work. A controller
    that is killed is started again after `down`: nothing but the cluster remembers."""
    for _ in range(limit):
        phase = world.phase
        if phase is not None and phase.ended:
            return world
        if phase is Phase.AWAITING_APPROVAL and not world.approvals:
            world.approve()
        if phase is Phase.DRAINING and world.plan is not None and world.plan.pods:
            world.evictions_complete()
        if phase is Phase.IN_MAINTENANCE and not world.run.spec.work_completed:
            world.spec(work_completed=True)
        try:
            world.pass_time(world.step().requeue_after or 0)
        except Killed:
            world.pass_time(down)
    raise AssertionError(f"not at the end: {world.phase} {world.status.message}")


def asking() -> World:
    return World(
        run=make_run(target={"driver": "gpu.example.com", "wholeDriver": True}),
        plan=make_plan(
            [make_pod("train"), make_pod("web", PodEffect.NOT_REACHED_BY_TAINT)], pools=["node-1", "node-2"]
        ),
        policy=make_policy(approval={"required": "Always"}),
    )


def test_an_approved_run_goes_from_dry_run_to_release() -> None:
    world = asking()
    world.until(Phase.AWAITING_APPROVAL)
    assert world.effects == {"None"}
    assert world.status.next_step == "taintctl approve night"
    assert world.status.plan is not None
    assert (world.status.plan.counts.pods, world.status.plan.counts.devices) == (2, 4)
    world.approve().until(Phase.NOTICE)
    world.step()
    assert world.effects == {"NoSchedule"}
    world.until(Phase.EVICTING)
    assert "NoExecute" in world.effects
    world.until(Phase.DRAINING)
    world.evictions_complete().until(Phase.IN_MAINTENANCE)
    assert world.effects == {"NoExecute"}
    assert world.evicted == ["web"]
    world.spec(work_completed=True).until(Phase.SUCCEEDED)
    assert world.rules == {}
    assert [entry.to for entry in world.status.history] == LADDER


def test_notice_stands_for_ten_seconds_before_anything_is_evicted() -> None:
    world = World().until(Phase.EVICTING)
    given = next(entry.at for entry in world.status.history if entry.to == "Notice")
    started = world.status.eviction
    assert started is not None
    assert started.started_at is not None
    # Of the moves of one moment each is written a microsecond after the one before.
    assert (started.started_at - given.replace(microsecond=0)).total_seconds() >= 10


def test_no_eviction_before_the_start() -> None:
    world = World(run=make_run(startAt=NOW + HOUR)).until(Phase.EVICTING)
    assert world.now >= NOW + HOUR
    assert world.status.history[3].to == "DryRun", "the dry run is made afresh at the start"


def test_every_transition_has_its_event() -> None:
    world = walk(World())
    assert [e for e in world.events if e in {h.reason for h in world.status.history}] == [
        h.reason for h in world.status.history
    ]


WRITES = walk(asking())._writes


@pytest.mark.parametrize("after", range(WRITES))
def test_a_controller_killed_after_any_write_goes_on_to_the_same_end(after: int) -> None:
    world = asking()
    world.kill_after = after
    walk(world)
    assert world.kill_after is None, "it was killed"
    assert world.phase is Phase.SUCCEEDED
    assert world.rules == {}
    assert world.evicted == ["web"]
    assert [name for name in world.made if not name.endswith("-dry")] == [
        f"taintctl-{RUN_UID}-0",
        f"taintctl-{RUN_UID}-1",
    ], "each rule is made once"
    assert [entry.to for entry in world.status.history] == LADDER


@pytest.mark.parametrize("after", range(WRITES))
def test_a_controller_down_for_an_hour_after_any_write_evicts_only_behind_a_gate_passed_anew(after: int) -> None:
    """World itself checks at each NoExecute that the reads are live, and the second look not older than a minute."""
    world = asking()
    world.kill_after = after
    walk(world, down=HOUR)
    assert world.kill_after is None, "it was killed"
    assert world.rules == {}
    assert world.phase in (Phase.SUCCEEDED, Phase.CANCELLED, Phase.FAILED)
    if world.phase is Phase.CANCELLED:
        assert world.status.reason == "ApprovalExpired", "an hour is longer than the half that a question stands"
    if world.phase is Phase.FAILED:
        assert world.status.reason == "DrainTimeout", "an hour is longer than the half that pods may take"
