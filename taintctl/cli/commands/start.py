"""`taintctl start`: a run now, from a window or a target."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import click

from taintctl.api.base import API_VERSION, format_duration, format_time
from taintctl.api.check import check
from taintctl.api.plan import Problem
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import DrainMode, MaintenanceRun
from taintctl.cli.commands.hand import say_next
from taintctl.cli.commands.plan import DEFAULT_TIME, NO_RUN_YET, problem_text
from taintctl.cli.errors import Failure
from taintctl.cli.follow import Gone, follow, in_maintenance, outcome
from taintctl.cli.options import DURATION, TIME, on_cluster, target_options
from taintctl.cli.session import NAME, Session
from taintctl.cli.targets import Template, from_flags, from_window, target_of
from taintctl.cli.text import clean, moment, say
from taintctl.impact import build_plan
from taintctl.ports.errors import ClusterError, Conflict
from taintctl.reconcile.gather import scope_of


def _usage(**given: Any) -> None:
    target = target_of(given)
    if given["window"] and target:
        raise click.UsageError("give target flags or --window, not both")
    if given["duration"] and given["deadline"]:
        raise click.UsageError("give --duration or --deadline, not both")
    if not given["window"]:
        from_flags(target)
    if given["name"] is not None and not NAME.fullmatch(given["name"]):
        raise click.UsageError(
            f"--name {clean(given['name'], 60)!r} is no Kubernetes name: lower case letters, digits, '-' and '.', "
            "253 at most, with a letter or digit at both ends"
        )
    if given["duration"] == timedelta(0):
        raise click.UsageError("--duration 0s leaves no time to evict in")


@click.command()
@target_options
@click.option("--window", help="What this MaintenanceWindow would start, but now.")
@click.option("--policy", help="The EvictionPolicy; default: the window's, else every eviction needs an approval.")
@click.option("--notice", type=DURATION, help="How long NoSchedule stands before eviction.")
@click.option(
    "--drain-mode",
    type=click.Choice([str(mode) for mode in DrainMode]),
    help="Taint: NoExecute deletes the pods. Evict: the Eviction API first, which honours budgets.",
)
@click.option("--drain-timeout", type=DURATION, help="How long pods may take to go.")
@click.option("--work-duration", type=DURATION, help="The work takes this long; default: until `taintctl complete`.")
@click.option("--start-at", type=TIME, help="No eviction before this time; default: now.")
@click.option("--duration", type=DURATION, help="Deadline this long after the start; default: the window's, else 1h.")
@click.option("--deadline", type=TIME, help="No eviction after this time, instead of --duration.")
@click.option("--reason", help="Why, for whoever is asked to approve.")
@click.option("--name", help="The run's name; default: made from the window or the target.")
@click.option("--wait", is_flag=True, help="Follow it until its devices are in maintenance, or it ends.")
@partial(on_cluster, usage=_usage)
async def start(
    session: Session,
    window: str | None,
    name: str | None,
    wait: bool,
    **given: Any,
) -> int | None:
    """Starts a MaintenanceRun: a dry run first, then policy, approval where asked, notice, and only then eviction.

    \b
      taintctl start --window nightly --reason "firmware"
      taintctl start --driver gpu.nvidia.com --pool node-7 --duration 2h --wait
    """
    target = target_of(given)
    template = await from_window(session, window) if window else from_flags(target)
    now = session.clock.now()
    spec = run_spec(template, given, now, await session.whoami())
    metadata = {"name": name} if name else {"generateName": f"{slug(template)}-"}
    body = {"apiVersion": API_VERSION, "kind": MaintenanceRun.KIND, "metadata": metadata, "spec": spec}
    checked = check(MaintenanceRun, {**body, "metadata": {"name": name or "generated"}})
    if checked.obj is None or checked.problems:
        raise click.UsageError(str(checked.problems[0]))
    _require_time(checked.obj, now)
    await _require_plan(session, checked.obj)
    try:
        created = await session.cluster.create(MaintenanceRun, body)
    except Conflict:
        raise Failure(f"there is a run {name} already; choose another --name, or see: taintctl status {name}") from None
    run = str(created["metadata"]["name"])
    say(
        f"Run {run} is made; nothing is evicted before {_before(checked.obj)}, and nothing after the deadline, "
        f"{moment(checked.obj.spec.deadline)}."
    )
    if not wait:
        await say_next(session, f"taintctl status {run} --watch")
        return None
    note = await session.controller_note()
    if note:
        say(note, stderr=True)
    try:
        return outcome(
            await follow(session, run, in_maintenance, from_start=True), Phase.IN_MAINTENANCE, Phase.SUCCEEDED
        )
    except Gone:
        raise Failure(f"run {run} was deleted before its devices were in maintenance") from None


def _require_time(run: MaintenanceRun, now: datetime) -> None:
    """A run that could only expire is not made."""
    deadline = run.spec.deadline
    if deadline <= now:
        raise click.UsageError(f"the deadline {moment(deadline)} has passed (it is {moment(now)}); give a later one")


async def _require_plan(session: Session, run: MaintenanceRun) -> None:
    """A run that can come to no plan however long it waits is not made; where devices may still come, it is said."""
    target, taint = run.spec.target, run.spec.taint
    try:
        snapshot = await session.cluster.snapshot(replace(scope_of(target), owners=False))
    except ClusterError:
        return  # who may not read it all leaves it to the controller
    found = build_plan(snapshot, target, key=taint.key, value=taint.value or NO_RUN_YET)
    if not isinstance(found, Problem):
        return
    if found.reason in (Reason.WHOLE_DRIVER, Reason.TOO_MANY_RULES):
        raise Failure(problem_text(found))
    say(f"{problem_text(found)} The run is made and looks again until its deadline.", stderr=True)


def _before(run: MaintenanceRun) -> str:
    start_at = run.spec.start_at
    steps = "its dry run, policy and approval"
    return f"{moment(start_at)} and {steps}" if start_at else steps


def run_spec(template: Template, given: dict[str, Any], now: datetime, caller: str) -> dict[str, Any]:
    """The spec: the template's fields, what was given instead, and when."""
    spec: dict[str, Any] = dict(template.raw)
    begins: datetime = given["start_at"] or now
    lasts: timedelta = given["duration"] or template.lasts or DEFAULT_TIME
    # Whole seconds, as people write them and kubectl's columns have room for.
    try:
        ends: datetime = given["deadline"] or (begins + lasts).replace(microsecond=0)
    except OverflowError:
        raise click.UsageError("--start-at and --duration end beyond the year 9999; give --deadline") from None
    spec["deadline"] = format_time(ends)
    if given["start_at"]:
        spec["startAt"] = format_time(given["start_at"])
    if given["policy"]:
        spec["policyName"] = given["policy"]
    if given["notice"] is not None:
        spec["notice"] = format_duration(given["notice"])
    drain = {
        "mode": given["drain_mode"],
        "timeout": format_duration(given["drain_timeout"]) if given["drain_timeout"] is not None else None,
    }
    if any(drain.values()):
        # Beside what a window says: another timeout makes no Taint of an Evict.
        spec["drain"] = {**spec.get("drain", {}), **{name: value for name, value in drain.items() if value is not None}}
    if given["work_duration"] is not None:
        spec["work"] = {"mode": "Duration", "duration": format_duration(given["work_duration"])}
    trigger = {"type": "Manual", "reason": given["reason"]}
    trigger["windowName"] = template.window.name if template.window else None
    spec["trigger"] = {key: value for key, value in trigger.items() if value is not None}
    spec["requestedBy"] = caller
    return spec


def slug(template: Template) -> str:
    """The beginning of a name, from the window or the target: lower case letters, digits and dashes."""
    target = template.spec.target
    text = (
        template.window.name if template.window else target.pool or target.driver or target.device_class_name or "run"
    )
    if not template.window and target.device:
        text += f"-{target.device}"
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].rstrip("-") or "run"
