"""What a command is about: a target from flags, from a window, or from a file; refused where it names nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from taintctl.api.check import Checked, FieldProblem, check
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun, RunTemplate
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.errors import BadFile, Failure
from taintctl.cli.output import manifests
from taintctl.cli.session import Reading
from taintctl.cli.text import clean
from taintctl.impact import target_problems
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


def target_of(given: dict[str, Any]) -> dict[str, Any]:
    """`spec.target` from the target flags among a command's parameters; empty where none was given."""
    target = {
        "driver": given["driver"],
        "pool": given["pool"],
        "device": given["device"],
        "nodeSelector": _labels(given["node_selector"]) or None,
        "deviceClassName": given["device_class"],
        "selectors": [{"cel": {"expression": text}} for text in given["selector"]] or None,
        "uuids": list(given["uuid"]) or None,
        "partitions": given["partitions"],
        "wholeDriver": True if given["whole_driver"] else None,
    }
    return {name: value for name, value in target.items() if value is not None}


def _labels(given: tuple[str, ...]) -> dict[str, str]:
    """`key=value`, several with commas or by naming the flag again, as kubectl's label selectors."""
    labels: dict[str, str] = {}
    for text in (part for one in given for part in one.split(",")):
        key, equals, value = text.partition("=")
        if not key or not equals or labels.setdefault(key, value) != value:
            raise click.UsageError(f"--node-selector takes key=value, each key once, not {clean(text, 60)!r}")
    return labels


def from_flags(target: dict[str, Any], others: str = "--window") -> Template:
    """Raises a usage error that names the flag; `others` are the flags that would do instead."""
    if not target:
        raise click.UsageError(
            "name the devices: --driver with --pool or --device, --node-selector, --device-class, --selector, --uuid, "
            f"or {others}"
        )
    return Template(_checked_spec({"target": target}), {"target": target})


async def from_window(session: Reading, name: str) -> Template:
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
    problems = all_problems(run)
    if run.obj is None or problems:
        raise BadFile(f"{path}: {problems[0]}")
    spec = run.obj.spec
    return Template(spec, _template_fields(raw["spec"]), lasts=spec.deadline - spec.start_at if spec.start_at else None)


def policy_from_file(path: str) -> EvictionPolicy:
    """The one EvictionPolicy in a file, applied or not."""
    found = [raw for raw in manifests(path) if raw.get("kind") == EvictionPolicy.KIND]
    if len(found) != 1:
        raise BadFile(f"{path} holds {len(found)} EvictionPolicies; give a file with one")
    checked = check(EvictionPolicy, found[0])
    if checked.obj is None or checked.problems:
        raise BadFile(f"{path}: {checked.problems[0]}")
    return checked.obj


def _valid(checked: Checked[MaintenanceWindow]) -> MaintenanceWindow | str:
    """The window, or what is wrong with it: as the controller says it, the grammar of a cron line too."""
    problems = all_problems(checked)
    if checked.obj is None or problems:
        return str(problems[0])
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
    problems = all_problems(checked)
    if checked.obj is None or problems:
        raise click.UsageError(str(problems[0]))
    return checked.obj.spec


def all_problems(checked: Checked[MaintenanceRun] | Checked[MaintenanceWindow]) -> tuple[FieldProblem, ...]:
    """As the controller finds them: the expressions of the target too."""
    return checked.problems + (target_problems(checked.obj.spec.target) if checked.obj is not None else ())
