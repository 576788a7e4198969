"""InMaintenance, Releasing and the ends: nothing is released that is not idle by a live look."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from taintctl.api.base import condition
from taintctl.api.plan import Idleness, Problem, Verdict
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import Ending, RunStatus
from taintctl.workflow.model import RemoveFinalizer
from tests.workflow.builders import HOUR, NOW, Killed, World, make_plan, make_run, seconds

BUSY = Idleness(Verdict.FALSE, Reason.DEVICES_IN_USE, "team-a/sneaky holds gpu-0.")
DOUBT = Idleness(Verdict.UNKNOWN, Reason.DEVICE_PLUGIN_POD, "team-a/old may hold gpu-0 through a device plugin.")


def in_maintenance(**spec: Any) -> World:
    world = World(run=make_run(**spec)).until(Phase.DRAINING)
    world.evictions_complete().until(Phase.IN_MAINTENANCE)
    world.settle()
    return world


def state(world: World) -> tuple[Phase | None, str]:
    return world.phase, world.status.reason


def said_of(world: World, kind: str) -> str:
    found = condition(world.status.conditions, kind)
    assert found is not None, kind
    return found.status


def test_manual_work_waits_for_somebody_who_says_it_is_done() -> None:
    world = in_maintenance()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForWork")
    assert world.status.next_step == "taintctl complete night"
    assert said_of(world, "WorkDone") == "False"
    world.spec(work_completed=True).settle()
    assert state(world) == (Phase.SUCCEEDED, "Completed")
    assert said_of(world, "WorkDone") == "True"
    assert said_of(world, "Released") == "True"
    assert world.rules == {}


def test_work_of_a_duration_is_done_by_itself_and_the_next_look_is_then() -> None:
    world = in_maintenance(work={"mode": "Duration", "duration": "15s"})
    begun = world.status.work_started_at
    assert begun is not None
    assert "until 2026-11-30 21:00:" in world.status.message
    decision = world.step()
    assert decision.requeue_after == seconds(10)
    assert world.pass_time(10).step().requeue_after == seconds(5)
    world.pass_time(5).settle()
    assert world.phase is Phase.SUCCEEDED


def test_a_duration_can_be_completed_early() -> None:
    world = in_maintenance(work={"mode": "Duration", "duration": "2h"})
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.SUCCEEDED


def test_release_does_not_wait_for_the_work_but_for_idle_devices() -> None:
    world = in_maintenance()
    world.idle = BUSY
    world.spec(released=True).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "DevicesInUse")
    assert world.status.message == ("The taint stays, for the devices are not proven idle: team-a/sneaky holds gpu-0.")
    assert said_of(world, "DevicesIdle") == "False"
    assert world.effects == {"NoExecute"}
    world.idle = None
    world.settle()
    assert world.phase is Phase.SUCCEEDED
    assert "Released" in world.events


def test_doubt_releases_nothing() -> None:
    world = in_maintenance()
    world.idle = DOUBT
    world.spec(work_completed=True).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "DevicePluginPod")
    assert said_of(world, "DevicesIdle") == "Unknown"


def test_a_cache_releases_nothing() -> None:
    world = in_maintenance()
    world.live = False
    decision = world.spec(work_completed=True).step()
    assert decision.need_live
    assert world.phase is Phase.IN_MAINTENANCE


def test_an_unreadable_cluster_releases_nothing() -> None:
    world = in_maintenance()
    world.live, world.plan, world.plan_problem = False, None, Problem(Reason.CLUSTER_UNREADABLE, "No answer.")
    world.spec(work_completed=True).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "ClusterUnreadable")
    assert world.effects == {"NoExecute"}


def test_devices_are_looked_at_again_every_ten_seconds() -> None:
    world = in_maintenance()
    assert world.step().requeue_after == seconds(10)
    world.idle = BUSY
    world.step()
    assert said_of(world, "DevicesIdle") == "False"


def test_whoever_works_on_the_devices_is_warned_once_of_a_pod_that_came_to_them() -> None:
    world = in_maintenance()
    world.idle = BUSY
    world.settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForWork")
    assert world.status.message.endswith("The devices are in use again: team-a/sneaky holds gpu-0.")
    world.pass_time(10).settle()
    assert world.events.count("DevicesInUse") == 1
    world.idle = None
    world.settle()
    assert "in use" not in world.status.message


def test_devices_whose_slices_are_gone_can_still_be_released() -> None:
    world = in_maintenance()
    world.idle = Idleness(Verdict.TRUE, Reason.DEVICES_IDLE, "No pod holds a device.")
    world.plan, world.plan_problem = None, Problem(Reason.NO_DEVICES, "The target matches nothing.")
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.SUCCEEDED


# At the deadline


def test_at_the_deadline_the_taint_stays_while_the_work_is_not_done() -> None:
    world = in_maintenance()
    world.pass_time(8 * HOUR).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WorkNotDone")
    assert world.events.count("WorkNotDone") == 1
    world.pass_time(HOUR).settle()
    assert world.events.count("WorkNotDone") == 1
    assert world.effects == {"NoExecute"}
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.SUCCEEDED


def test_kept_tainted_stays_so_until_somebody_releases_though_the_work_is_done() -> None:
    world = in_maintenance(atDeadline="KeepTainted")
    world.idle = BUSY
    world.spec(work_completed=True).pass_time(8 * HOUR).settle()
    world.idle = None
    world.settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "KeptTainted")
    assert world.status.next_step == "taintctl release night"
    world.spec(released=True).settle()
    assert world.phase is Phase.SUCCEEDED


def test_kept_tainted_is_for_the_deadline_only() -> None:
    world = in_maintenance(atDeadline="KeepTainted")
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.SUCCEEDED


def test_an_extended_deadline_is_that_much_later() -> None:
    world = in_maintenance(atDeadline="Extend", extendBy="1h")
    world.pass_time(8 * HOUR).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "DeadlineExtended")
    assert "2026-12-01 06:00:00 UTC" in world.status.message
    world.pass_time(HOUR).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WorkNotDone")


def test_a_deadline_at_the_end_of_time_can_be_extended() -> None:
    world = in_maintenance(atDeadline="Extend", extendBy="100h", deadline="9999-12-31T23:00:00Z")
    world.now = datetime(9999, 12, 31, 23, 30, tzinfo=UTC)
    world.step()
    assert state(world) == (Phase.IN_MAINTENANCE, "DeadlineExtended")


def test_a_deadline_may_be_moved_by_hand() -> None:
    world = in_maintenance()
    world.pass_time(8 * HOUR).settle()
    world.spec(deadline=NOW + 12 * HOUR).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForWork")


# Hands


def test_cancelled_in_maintenance_waits_for_release_and_ends_as_cancelled() -> None:
    world = in_maintenance()
    world.spec(cancelled=True, work_completed=True).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForRelease")
    assert world.effects == {"NoExecute"}
    world.spec(released=True).settle()
    assert state(world) == (Phase.CANCELLED, "Cancelled")
    assert world.rules == {}


@pytest.mark.parametrize("permission", ["work_completed", "released"])
def test_deleted_in_maintenance_waits_for_complete_or_release_and_then_goes(permission: str) -> None:
    world = in_maintenance()
    world.delete().settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForRelease")
    assert "taintctl complete night" in world.status.message
    assert world.run.metadata.finalizers
    world.spec(**{permission: True}).settle()
    assert world.phase is Phase.SUCCEEDED
    assert world.rules == {}
    assert world.run.metadata.finalizers == ()


@pytest.mark.parametrize("permission", ["work_completed", "released"])
def test_deleted_and_cancelled_in_maintenance_waits_for_complete_or_release_too(permission: str) -> None:
    world = in_maintenance()
    world.spec(cancelled=True).delete().settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForRelease")
    assert "taintctl complete night" in world.status.message
    world.spec(**{permission: True}).settle()
    assert world.phase is Phase.CANCELLED
    assert world.rules == {}
    assert world.run.metadata.finalizers == ()


@pytest.mark.parametrize("idle", [BUSY, DOUBT])
def test_a_run_whose_rules_were_deleted_by_hand_can_be_let_go_though_its_devices_are_in_use(idle: Idleness) -> None:
    world = in_maintenance()
    world.idle = idle
    world.spec(released=True).settle()
    assert world.phase is Phase.IN_MAINTENANCE
    world.spec(released=False).settle()
    del world.rules[world.name_of()]
    world.settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "RuleDeleted")
    world.spec(released=True).settle()
    assert world.phase is Phase.CANCELLED
    assert "had been done by hand" in world.status.message
    assert said_of(world, "DevicesIdle") != "True"


def test_paused_in_maintenance_goes_back_to_no_schedule_and_stays_there() -> None:
    world = in_maintenance()
    world.spec(paused=True, work_completed=True).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "Paused")
    assert world.effects == {"NoSchedule"}
    world.spec(paused=False, work_completed=False).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "WaitingForWork")
    assert world.effects == {"NoSchedule"}
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.SUCCEEDED


@pytest.mark.parametrize(("how", "reason"), [("changed", "RuleChanged"), ("deleted", "RuleDeleted")])
def test_a_rule_touched_by_hand_in_maintenance_stops_what_happens_by_itself(how: str, reason: str) -> None:
    world = in_maintenance(work={"mode": "Duration", "duration": "1m"})
    if how == "changed":
        world.edit_rule(world.name_of(), effect="NoSchedule")
    else:
        del world.rules[world.name_of()]
    before = dict(world.rules)
    world.pass_time(HOUR).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, reason)
    assert world.events.count(reason) == 1
    assert world.rules == before, "an operator's decision is left alone"
    world.idle = BUSY
    world.spec(work_completed=True).settle()
    assert world.phase is Phase.IN_MAINTENANCE, "and still only when idle"
    world.idle = None
    world.settle()
    assert world.phase is Phase.SUCCEEDED
    assert world.rules == {}


def test_a_pause_leaves_a_rule_that_was_edited_by_hand_alone() -> None:
    world = in_maintenance()
    world.edit_rule(world.name_of(), key="other/key")
    world.spec(paused=True).settle()
    assert world.rules[world.name_of()].spec.taint.effect == "NoExecute"


def test_a_pause_does_not_make_an_edit_by_hand_forgotten() -> None:
    world = in_maintenance()
    world.edit_rule(world.name_of(), effect="NoSchedule").spec(paused=True).settle()
    world.spec(paused=False).settle()
    assert state(world) == (Phase.IN_MAINTENANCE, "RuleChanged")


# Ends


def test_a_release_goes_on_while_rules_are_left() -> None:
    world = in_maintenance()
    world.spec(work_completed=True)
    world.kill_after = world._writes + 1
    with pytest.raises(Killed):
        world.step()
    assert world.phase is Phase.RELEASING
    assert world.rules
    world.idle = BUSY  # somebody may use what was released already
    world.settle()
    assert world.phase is Phase.SUCCEEDED


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.EXPIRED])
def test_a_rule_that_turns_up_after_the_end_is_taken_off_and_the_run_may_go(phase: Phase) -> None:
    world = in_maintenance()
    ended = world.status.model_copy(update={"phase": phase, "rules": ()})
    world.run = world.run.model_copy(update={"status": ended})
    world.delete()
    decision = world.step()
    assert RemoveFinalizer() not in decision.actions
    assert world.rules == {}
    world.settle()
    assert world.run.metadata.finalizers == ()


@pytest.mark.parametrize("phase", [Phase.RELEASING, Phase.ROLLING_BACK])
@pytest.mark.parametrize("ending", [None, Ending(phase=Phase.EXPIRED, reason="Denied", message="What nobody does.")])
def test_an_ending_that_makes_no_sense_still_ends(phase: Phase, ending: Ending | None) -> None:
    world = World(run=make_run(status=RunStatus(phase=phase, ending=ending)))
    world.settle()
    assert world.phase is (Phase.SUCCEEDED if phase is Phase.RELEASING else Phase.CANCELLED)


def test_a_rule_that_takes_its_time_to_go_is_waited_for() -> None:
    """Somebody's finalizer keeps it: the run has not ended while it is there."""
    world = World().until(Phase.NOTICE)
    world.step()
    stuck = {name: _leaving(rule) for name, rule in world.rules.items()}
    world.spec(cancelled=True)
    world.step()
    world.rules = stuck
    world.settle()
    assert world.phase is Phase.ROLLING_BACK
    assert world.status.message == "The run was cancelled. 1 rule still to be deleted."
    world.rules = {}
    world.settle()
    assert world.phase is Phase.CANCELLED


def _leaving(rule: Any) -> Any:
    return msgspec.structs.replace(rule, metadata=msgspec.structs.replace(rule.metadata, deletion_timestamp=NOW))


def test_an_ended_run_asks_for_no_further_look() -> None:
    world = World(plan=make_plan([]), run=make_run(status=RunStatus(phase=Phase.SUCCEEDED)))
    world.settle()
    assert world.run.metadata.finalizers == ()
    decision = world.step()
    assert decision.requeue_after is None
    assert decision.actions == ()
