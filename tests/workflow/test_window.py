"""A window makes its runs: each start once, whatever was killed, missed, suspended or in the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.api.base import LABEL_WINDOW, condition
from taintctl.api.check import FieldProblem, check
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import MaintenanceRun, RunStatus
from taintctl.api.window import MaintenanceWindow, WindowStatus
from taintctl.workflow import WindowDecision, WindowObservation, decide_window

MONDAY = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
NINE_PM = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
NAME = f"nightly-{int(NINE_PM.timestamp()) // 60}"


class Windows:
    """A window, its runs, and the API server for both."""

    def __init__(self, schedule: dict[str, Any] | None = None, **spec: Any) -> None:
        self.window = MaintenanceWindow.model_validate(
            {
                "metadata": {"name": "nightly", "uid": "w", "generation": 3, "creationTimestamp": MONDAY},
                "spec": {
                    "target": {"driver": "gpu.example.com", "pool": "node-1"},
                    "schedule": schedule or {"cron": "0 21 * * *", "duration": "8h"},
                    **spec,
                },
            }
        )
        self.runs: list[MaintenanceRun] = []
        self.problems: tuple[FieldProblem, ...] = ()
        self.events: list[str] = []
        self.made: list[str] = []

    def look(self, now: datetime) -> WindowDecision:
        decision = decide_window(WindowObservation(self.window, self.problems, tuple(self.runs)), now)
        if decision.create is not None:
            checked = check(MaintenanceRun, decision.create)
            assert checked.problems == ()
            assert checked.obj is not None
            assert checked.obj.name not in [run.name for run in self.runs], "made twice"
            self.made.append(checked.obj.name)
            self.runs.append(checked.obj)
        self.runs = [
            run.model_copy(update={"spec": run.spec.model_copy(update={"cancelled": True})})
            if run.name in decision.cancel
            else run
            for run in self.runs
            if run.name not in [name for name, _ in decision.delete]
        ]
        self.store(decision)
        return decision

    def store(self, decision: WindowDecision) -> None:
        status = WindowStatus.model_validate(decision.status.dump())
        self.window = self.window.model_copy(update={"status": status})
        self.events += [event.reason for event in decision.events]

    def put(self, phase: Phase, which: int = -1) -> None:
        self.runs[which] = self.runs[which].model_copy(update={"status": RunStatus(phase=phase)})

    def said(self, kind: str = "Ready") -> tuple[str, str]:
        found = condition(self.window.status.conditions, kind)
        assert found is not None
        return found.status, found.reason


def test_a_start_makes_one_run_that_copies_the_template_between_start_and_end() -> None:
    windows = Windows(
        policyName="careful",
        notice="5m",
        drain={"mode": "Evict", "timeout": "10m"},
        work={"mode": "Duration", "duration": "1h"},
        taint={"key": "example.com/night", "value": "on"},
        atDeadline="Extend",
        extendBy="30m",
    )
    decision = windows.look(NINE_PM)
    assert decision.create == {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "MaintenanceRun",
        "metadata": {"name": NAME, "labels": {LABEL_WINDOW: "nightly"}},
        "spec": {
            "target": {
                "driver": "gpu.example.com",
                "pool": "node-1",
                "partitions": "Include",
                "wholeDriver": False,
            },
            "taint": {"key": "example.com/night", "value": "on"},
            "policyName": "careful",
            "notice": "5m",
            "drain": {"mode": "Evict", "timeout": "10m"},
            "work": {"mode": "Duration", "duration": "1h"},
            "atDeadline": "Extend",
            "extendBy": "30m",
            "trigger": {"type": "Schedule", "windowName": "nightly"},
            "startAt": "2026-11-30T21:00:00Z",
            "deadline": "2026-12-01T05:00:00Z",
        },
    }
    assert decision.events[0].message == f"Made run {NAME} for 2026-11-30 21:00:00 UTC."


def test_the_start_is_stored_when_its_run_is_seen_and_not_before() -> None:
    windows = Windows()
    windows.look(NINE_PM)
    assert windows.window.status.last_start is None
    windows.look(NINE_PM)
    assert windows.window.status.last_start == NINE_PM
    assert windows.window.status.active_run == NAME
    assert windows.said() == ("True", "RunActive")
    windows.put(Phase.SUCCEEDED)
    windows.runs.clear()
    windows.look(NINE_PM + HOUR)
    assert windows.made == [NAME], "a run that was deleted is not made again"
    assert windows.said() == ("True", "Scheduled")
    assert windows.window.status.active_run == ""


def test_a_crash_between_creation_and_storing_finds_the_run() -> None:
    windows = Windows()
    decision = decide_window(WindowObservation(windows.window, (), ()), NINE_PM)
    assert decision.create is not None
    made = check(MaintenanceRun, decision.create).obj
    assert made is not None
    windows.runs.append(made)
    assert windows.look(NINE_PM).create is None


def test_before_the_start_it_says_when_and_sleeps_until_then_but_an_hour_at_most() -> None:
    windows = Windows()
    decision = windows.look(MONDAY)
    assert windows.window.status.next_start == NINE_PM
    assert decision.requeue_after == HOUR
    assert windows.look(NINE_PM - timedelta(minutes=10)).requeue_after == timedelta(minutes=10)
    assert windows.said() == ("True", "Scheduled")
    assert windows.said("Accepted") == ("True", "Accepted")
    assert windows.window.status.observed_generation == 3


def test_planning_ahead_makes_the_run_early_and_its_start_stays() -> None:
    windows = Windows({"cron": "0 21 * * *", "duration": "8h", "planAhead": "2h"})
    assert windows.look(NINE_PM - 2 * HOUR - timedelta(seconds=1)).create is None
    decision = windows.look(NINE_PM - 2 * HOUR)
    assert decision.create is not None
    assert decision.create["spec"]["startAt"] == "2026-11-30T21:00:00Z"
    assert windows.window.status.next_start == NINE_PM


def test_a_controller_that_was_down_over_the_start_makes_it_up_inside_the_starting_deadline() -> None:
    windows = Windows({"cron": "0 21 * * *", "duration": "8h", "startingDeadline": "1h"})
    assert windows.look(NINE_PM + timedelta(minutes=59)).create is not None


def test_a_start_missed_beyond_its_deadline_is_told_once() -> None:
    windows = Windows({"cron": "0 21 * * *", "duration": "8h", "startingDeadline": "1h"})
    windows.look(NINE_PM + 2 * HOUR)
    assert windows.made == []
    assert windows.events == ["StartMissed"]
    assert windows.said() == ("True", "StartMissed")
    assert windows.window.status.last_start == NINE_PM
    windows.look(NINE_PM + 3 * HOUR)
    assert windows.events == ["StartMissed"]


def test_several_missed_starts_make_one_run() -> None:
    windows = Windows()
    windows.look(NINE_PM + 3 * DAY + HOUR)
    assert windows.made == [f"nightly-{int((NINE_PM + 3 * DAY).timestamp()) // 60}"]
    assert windows.events == ["StartMissed", "Scheduled"]


def test_a_run_under_way_is_waited_for() -> None:
    windows = Windows()
    windows.look(NINE_PM)
    windows.put(Phase.IN_MAINTENANCE)
    windows.look(NINE_PM + DAY)
    assert windows.made == [NAME]
    assert windows.said() == ("False", "RunActive")
    assert windows.look(NINE_PM + DAY + 7 * HOUR + HOUR / 2).requeue_after == HOUR / 2 + timedelta(seconds=1)
    windows.put(Phase.SUCCEEDED)
    windows.look(NINE_PM + DAY + HOUR)
    assert len(windows.made) == 2


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE])
def test_replace_cancels_a_run_that_has_not_begun_to_evict_and_waits_for_its_end(phase: Phase) -> None:
    windows = Windows(concurrencyPolicy="Replace")
    windows.look(NINE_PM)
    windows.put(phase)
    decision = windows.look(NINE_PM + DAY)
    assert decision.cancel == (NAME,)
    assert decision.create is None
    assert windows.look(NINE_PM + DAY).cancel == (), "once is enough"
    windows.put(Phase.CANCELLED)
    assert windows.look(NINE_PM + DAY).create is not None


@pytest.mark.parametrize("phase", [Phase.EVICTING, Phase.DRAINING, Phase.IN_MAINTENANCE, Phase.ROLLING_BACK])
def test_replace_leaves_a_run_alone_that_has_begun(phase: Phase) -> None:
    windows = Windows(concurrencyPolicy="Replace")
    windows.look(NINE_PM)
    windows.put(phase)
    assert windows.look(NINE_PM + DAY).cancel == ()
    assert windows.said() == ("False", "RunActive")


def test_a_suspended_window_makes_no_run() -> None:
    windows = Windows(suspend=True)
    assert windows.look(NINE_PM).create is None
    assert windows.said() == ("False", "Suspended")
    assert windows.window.status.next_start is None


def test_one_date_makes_one_run_and_then_there_is_no_further_start() -> None:
    windows = Windows({"start": NINE_PM, "duration": "2h"})
    windows.look(MONDAY)
    assert windows.window.status.next_start == NINE_PM
    windows.look(NINE_PM)
    windows.look(NINE_PM)
    windows.put(Phase.SUCCEEDED)
    decision = windows.look(NINE_PM + HOUR)
    assert windows.made == [NAME]
    assert windows.said() in (("True", "Scheduled"), ("False", "NoFurtherStart"))
    assert decision.requeue_after == HOUR
    windows.look(NINE_PM + 3 * HOUR)
    assert windows.said() == ("False", "NoFurtherStart")


def test_ended_runs_beyond_the_history_limit_are_deleted_the_oldest_first() -> None:
    windows = Windows(historyLimit=2)
    for day in range(5):
        windows.look(NINE_PM + day * DAY)
        windows.runs[-1] = windows.runs[-1].model_copy(
            update={"metadata": windows.runs[-1].metadata.model_copy(update={"uid": f"run-{day}"})}
        )
        windows.put(Phase.SUCCEEDED if day % 2 else Phase.FAILED)
        windows.look(NINE_PM + day * DAY)
    assert [run.metadata.uid for run in windows.runs] == ["run-3", "run-4"]


def test_a_run_that_has_not_ended_is_never_deleted() -> None:
    windows = Windows(historyLimit=0)
    windows.look(NINE_PM)
    windows.put(Phase.IN_MAINTENANCE)
    assert windows.look(NINE_PM + HOUR).delete == ()
    windows.put(Phase.SUCCEEDED)
    assert windows.look(NINE_PM + HOUR).delete == ((NAME, ""),)


def test_a_run_that_is_being_deleted_is_not_deleted_twice() -> None:
    windows = Windows(historyLimit=0)
    windows.look(NINE_PM)
    windows.put(Phase.SUCCEEDED)
    leaving = windows.runs[0].metadata.model_copy(update={"deletion_timestamp": NINE_PM})
    windows.runs[0] = windows.runs[0].model_copy(update={"metadata": leaving})
    assert windows.look(NINE_PM + HOUR).delete == ()


@pytest.mark.parametrize(
    ("schedule", "problems", "reason"),
    [
        (None, (FieldProblem("spec.schedule.cronn", "is not a field", Reason.UNKNOWN_FIELD),), "UnknownField"),
        ({"cron": "0 25 * * *", "duration": "8h"}, (), "InvalidSpec"),
        ({"cron": "0 21 * * *", "timeZone": "Mars/Olympus", "duration": "8h"}, (), "InvalidSpec"),
    ],
)
def test_a_window_that_cannot_be_followed_is_not_accepted_and_makes_nothing(
    schedule: dict[str, Any] | None, problems: tuple[FieldProblem, ...], reason: str
) -> None:
    windows = Windows(schedule)
    windows.problems = problems
    assert windows.look(NINE_PM).create is None
    assert windows.said("Accepted") == ("False", reason)
    assert windows.said() == ("False", reason)


def test_a_window_that_is_deleted_touches_no_run() -> None:
    windows = Windows(historyLimit=0)
    windows.look(NINE_PM)
    windows.put(Phase.SUCCEEDED)
    meta = windows.window.metadata.model_copy(update={"deletion_timestamp": NINE_PM})
    windows.window = windows.window.model_copy(update={"metadata": meta})
    decision = windows.look(NINE_PM + DAY)
    assert (decision.create, decision.delete, decision.cancel) == (None, (), ())


def test_a_look_that_finds_nothing_new_stores_nothing_new() -> None:
    windows = Windows()
    windows.look(MONDAY)
    before = windows.window.status
    windows.look(MONDAY + timedelta(minutes=1))
    assert windows.window.status == before
