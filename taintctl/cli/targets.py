"""What a command is about: a target from flags, from a window, or from a file; refused where it names nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from taintctl.api.check import Checked, check
from taintctl.api.run import MaintenanceRun, RunTemplate
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.errors import BadFile, Failure
from taintctl.cli.output import manifests
from taintctl.cli.session import Session
from taintctl.policy import schedule_problem


@dataclass(frozen=True)
class Template:
    """A run's template and where it came from."""

    spec: RunTemplate
    raw: dict[str, Any]
    """As JSON holds it, with exactly what was written: defaults are the API server's to fill in."""
    window: MaintenanceWindow | None = None
    lasts: timedelta | None = None
    """How long a run of it may take: a window's duration, a run's deadline minus its start."""


def target_of(driver: str | None, pool: str | None, device: str | None, whole_driver: bool) -> dict[str, Any]:
    """`spec.target` from flags; empty where none was given."""
    given = {"driver": driver, "pool": pool, "device": device, "wholeDriver": True if whole_driver else None}
    return {name: value for name, value in given.items() if value is not None}


def from_flags(target: dict[str, Any], others: str = "--window") -> Template:
    """Raises a usage error that names the flag; `others` are the flags that would do instead."""
    if "driver" not in target:
        raise click.UsageError(f"name the devices: --driver with --pool or --device, or {others}")
    return Template(_checked_spec({"target": target}), {"target": target})


async def from_window(session: Session, name: str) -> Template:
    checked = await session.checked(MaintenanceWindow, name)
    window = _valid(checked)
    if isinstance(window, str):
        raise Failure(f"window {name} is not valid: {window}; correct it: kubectl edit mw {name}")
    return _of_window(window)


def from_file(path: str) -> Template:
    """The one MaintenanceRun or MaintenanceWindow in a file."""
    found = [raw for raw in manifests(path) if raw.get("kind") in (MaintenanceRun.KIND, MaintenanceWindow.KIND)]
    if len(found) != 1:
        raise BadFile(f"{path} holds {len(found)} runs and windows; give a file with one of them")
    raw = found[0]
    if raw["kind"] == MaintenanceWindow.KIND:
        window = _valid(check(MaintenanceWindow, raw))
        if isinstance(window, str):
            raise BadFile(f"{path}: {window}")
        return _of_window(window)
    run = check(MaintenanceRun, raw)
    if run.obj is None or run.problems:
        raise BadFile(f"{path}: {run.problems[0]}")
    spec = run.obj.spec
    return Template(spec, _template_fields(raw["spec"]), lasts=spec.deadline - spec.start_at if spec.start_at else None)


def _valid(checked: Checked[MaintenanceWindow]) -> MaintenanceWindow | str:
    """The window, or what is wrong with it: as the controller says it, the grammar of a cron line too."""
    if checked.obj is None or checked.problems:
        return str(checked.problems[0])
    problem = schedule_problem(checked.obj.spec.schedule)
    return checked.obj if problem is None else f"spec.schedule: {problem}"


def _of_window(window: MaintenanceWindow) -> Template:
    raw = window.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)
    return Template(window.spec, _template_fields(raw), window=window, lasts=window.spec.schedule.duration)


def _template_fields(spec: dict[str, Any]) -> dict[str, Any]:
    known = {info.alias or name for name, info in RunTemplate.model_fields.items()}
    return {name: value for name, value in spec.items() if name in known}


def _checked_spec(spec: dict[str, Any]) -> RunTemplate:
    """Through the same checks as the object that would hold it, so that flags are refused in the same words."""
    raw = {"metadata": {"name": "flags"}, "spec": {**spec, "deadline": "2999-01-01T00:00:00Z"}}
    checked = check(MaintenanceRun, raw)
    if checked.obj is None or checked.problems:
        raise click.UsageError(str(checked.problems[0]))
    return checked.obj.spec
