"""Lists of runs and windows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from taintctl.api.base import condition, format_duration
from taintctl.api.check import Checked
from taintctl.api.reasons import ConditionType, Phase
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.text import BAD, GOOD, Cell, Line, heading, line, relative, span, styled, table
from taintctl.cli.views.run import phase_style, target_text


def run_list(runs: Sequence[Checked[MaintenanceRun]], now: datetime, *, wide: bool = False) -> list[Line]:
    """Runs under way first (the newest on top), then the ended ones."""
    if not runs:
        return [line("No runs. Start one: taintctl start --window NAME, or taintctl start --driver D --pool P")]
    ordered = sorted(runs, key=_newest_first)
    ordered.sort(key=lambda c: c.obj is not None and c.obj.status.phase is not None and c.obj.status.phase.ended)
    header = ["RUN", "PHASE", "REASON", "DEVICES", "PODS", "FOR", "AGE"]
    header += ["TARGET", "POLICY", "DEADLINE"] if wide else []
    header += ["NEXT"]
    rows = [_run_row(c, now, wide) for c in ordered]
    return [
        heading("Runs"),
        *table(header, rows, indent=2, whole=("RUN",), optional=("AGE", "FOR", "DEVICES", "PODS", "REASON")),
    ]


def _newest_first(checked: Checked[MaintenanceRun]) -> tuple[float, str]:
    created = checked.metadata.creation_timestamp
    return (-created.timestamp() if created else 0.0, checked.metadata.name)


def _run_row(checked: Checked[MaintenanceRun], now: datetime, wide: bool) -> list[Cell]:
    created = checked.metadata.creation_timestamp
    age = span(now - created) if created else "-"
    run = checked.obj
    if run is None:
        row: list[Cell] = [checked.metadata.name, styled("unreadable", BAD), "", "", "", "", age]
        return [*row, *(["", "", ""] if wide else []), str(checked.problems[0])]
    status = run.status
    phase = status.phase or Phase.PENDING
    plan = status.plan
    row = [
        run.name,
        styled(phase, phase_style(status.phase)),
        status.reason or "-",
        str(plan.counts.devices) if plan else "-",
        str(plan.counts.pods) if plan else "-",
        span(now - status.phase_since) if status.phase_since else "-",
        age,
    ]
    if wide:
        row += [target_text(run.spec.target), run.spec.policy_name or "built in", relative(run.spec.deadline, now)]
    return [*row, status.next_step or "-"]


def window_list(windows: Sequence[Checked[MaintenanceWindow]], now: datetime, *, wide: bool = False) -> list[Line]:
    if not windows:
        return [line("No windows. policies/ has one to start from: kubectl apply -f policies/")]
    header = ["WINDOW", "SCHEDULE", "LASTS", "NEXT START", "ACTIVE RUN", "READY"]
    header += ["TARGET", "POLICY"] if wide else []
    rows = [_window_row(c, now, wide) for c in sorted(windows, key=lambda c: c.metadata.name)]
    names = ("WINDOW", "ACTIVE RUN")
    return [heading("Windows"), *table(header, rows, indent=2, whole=names, optional=("LASTS", "SCHEDULE"))]


def schedule_text(window: MaintenanceWindow) -> str:
    schedule = window.spec.schedule
    if schedule.cron is not None:
        return f"{schedule.cron} {schedule.time_zone or 'UTC'}"
    return f"once, {schedule.start:%Y-%m-%d %H:%M:%S} UTC"


def _window_row(checked: Checked[MaintenanceWindow], now: datetime, wide: bool) -> list[Cell]:
    window = checked.obj
    if window is None:
        row: list[Cell] = [checked.metadata.name, str(checked.problems[0]), "", "", "", styled("no: unreadable", BAD)]
        return [*row, *(["", ""] if wide else [])]
    status = window.status
    accepted = condition(status.conditions, ConditionType.ACCEPTED)
    ready = condition(status.conditions, ConditionType.READY)
    if checked.problems:
        shown: Cell = styled(f"no: {checked.problems[0]}", BAD)
    elif accepted is not None and accepted.status == "False":
        shown = styled(f"no: {accepted.reason}", BAD)
    elif ready is None:
        shown = "?"
    else:
        shown = styled("yes", GOOD) if ready.status == "True" else styled(f"no: {ready.reason}", "yellow")
    row = [
        window.name,
        schedule_text(window),
        format_duration(window.spec.schedule.duration),
        "suspended" if window.spec.suspend else relative(status.next_start, now) if status.next_start else "-",
        status.active_run or "-",
        shown,
    ]
    return [*row, *([target_text(window.spec.target), window.spec.policy_name or "built in"] if wide else [])]
