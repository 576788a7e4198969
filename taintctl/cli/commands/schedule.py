"""`taintctl schedule`: the next starts of a window."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import click

from taintctl.api.base import API_VERSION, format_duration, format_time
from taintctl.api.check import Checked, check
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.errors import BadFile, Failure
from taintctl.cli.options import connection_of, connection_options, output_option
from taintctl.cli.output import emit, manifests
from taintctl.cli.text import heading, line, moment, relative, say, styled, table
from taintctl.cli.views.lists import schedule_text
from taintctl.policy import Occurrence, next_occurrences
from taintctl.ports.clock import SystemClock

MAX_STARTS = 1000


@click.command()
@click.argument("window", required=False)
@click.option("-n", "--number", type=click.IntRange(1, MAX_STARTS), default=5, show_default=True)
@click.option("-f", "--filename", help="Read the window from a file instead of the cluster; - is stdin.")
@output_option
@connection_options
@click.pass_context
def schedule(
    ctx: click.Context,
    window: str | None,
    number: int,
    filename: str | None,
    output: str,
    kubeconfig: str | None,
    context_name: str | None,
) -> None:
    """The next starts of WINDOW: in its own time zone, in UTC, and how long until then."""
    if filename is not None:
        checked = _from_file(filename, window)
    elif window is None:
        raise click.UsageError("name a window, or give a file with -f")
    else:
        checked = asyncio.run(_from_cluster(window, *connection_of(ctx, kubeconfig, context_name)))
    wrong = Failure if filename is None else BadFile
    if checked.obj is None or checked.problems:
        raise wrong(f"window {checked.metadata.name}: {checked.problems[0]}")
    found = checked.obj
    now = SystemClock().now()
    try:
        starts = next_occurrences(found.spec.schedule, now, number)
    except ValueError as error:
        raise wrong(f"window {found.name}: spec.schedule: {error}") from None
    if output in ("json", "yaml"):
        emit(_document(found, starts), output)
        return
    _show(found, starts, now, wide=output == "wide")


def _from_file(filename: str, name: str | None) -> Checked[MaintenanceWindow]:
    found = [raw for raw in manifests(filename) if raw.get("kind") == MaintenanceWindow.KIND]
    named = [raw for raw in found if name is None or (raw.get("metadata") or {}).get("name") == name]
    if len(named) != 1:
        what = "several windows; name one of them" if named else f"no MaintenanceWindow{f' {name}' if name else ''}"
        raise BadFile(f"{filename} holds {what}")
    return check(MaintenanceWindow, named[0])


async def _from_cluster(name: str, kubeconfig: str | None, context: str | None) -> Checked[MaintenanceWindow]:
    from taintctl.cli.session import Session

    async with Session.open(kubeconfig, context) as session:
        return await session.checked(MaintenanceWindow, name)


def _zone(window: MaintenanceWindow) -> tzinfo:
    name = window.spec.schedule.time_zone
    return ZoneInfo(name) if name else UTC


def _show(window: MaintenanceWindow, starts: tuple[Occurrence, ...], now: datetime, *, wide: bool) -> None:
    zone = _zone(window)
    lasts = format_duration(window.spec.schedule.duration)
    say(line(heading(f"Window {window.name}"), f": {schedule_text(window)}, for {lasts}"))
    if window.spec.suspend:
        say(line(styled("It is suspended: none of these starts makes a run.", "yellow")))
    if not starts:
        say("It has no further start.")
        return
    header = ["START", "UTC", "UNTIL THEN", "CLOSES"] + (["RUNS FROM", "LATEST START"] if wide else [])
    rows = []
    for found in starts:
        row = [
            moment(found.start, zone),
            f"{found.start:%a %H:%M}",
            relative(found.start, now),
            moment(found.closes, zone),
        ]
        rows.append([*row, *([moment(found.opens, zone), moment(found.latest, zone)] if wide else [])])
    say(table(header, rows, indent=2))
    offsets = {found.start.astimezone(zone).utcoffset() or timedelta(0) for found in starts}
    if len(offsets) > 1:
        say(line("The clock changes in between: the same local time is another one in UTC."))


def _document(window: MaintenanceWindow, starts: tuple[Occurrence, ...]) -> dict[str, object]:
    return {
        "apiVersion": API_VERSION,
        "kind": "Schedule",
        "window": window.name,
        "timeZone": window.spec.schedule.time_zone or "UTC",
        "suspended": window.spec.suspend,
        "starts": [
            {
                "opens": format_time(found.opens),
                "start": format_time(found.start),
                "latest": format_time(found.latest),
                "closes": format_time(found.closes),
            }
            for found in starts
        ],
    }
