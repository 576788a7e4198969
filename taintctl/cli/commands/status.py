"""`taintctl status`: where runs and windows are."""

from __future__ import annotations

from functools import partial

import click

from taintctl.api.check import Checked
from taintctl.api.reasons import Phase
from taintctl.api.rule import run_uid_of
from taintctl.api.run import MaintenanceRun
from taintctl.api.text import plural
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.follow import Gone, ended, follow, outcome
from taintctl.cli.options import on_cluster, output_option
from taintctl.cli.output import emit
from taintctl.cli.session import Session
from taintctl.cli.text import Line, command, line, say, styled
from taintctl.cli.views.lists import run_list, window_list
from taintctl.cli.views.run import run_view
from taintctl.ports.errors import ClusterError

MOST_NAMED = 20
"""Forgotten rules that are named."""


def _usage(*, run: str | None, watch: bool, output: str) -> None:
    if watch and output in ("json", "yaml"):
        raise click.UsageError("--watch shows a page or lines; for scripts use `kubectl get mr NAME -o json -w`")
    if watch and run is None:
        raise click.UsageError("--watch follows one run: name it")


@click.command()
@click.argument("run", required=False)
@click.option("-w", "--watch", is_flag=True, help="Follow RUN until it ends; exit status 1 unless it Succeeded.")
@output_option
@partial(on_cluster, usage=_usage)
async def status(session: Session, run: str | None, watch: bool, output: str) -> int | None:
    """Where runs and windows are; with RUN, everything about one.

    \b
      taintctl status
      taintctl status nightly-29567890 --watch
      taintctl status -o json | jq '.items[].status.phase'
    """
    if run is None:
        await _list(session, output)
        return None
    if watch:
        try:
            last = await follow(session, run, ended, from_start=True)
        except Gone:
            say(f"Run {run} has ended and is gone; none of its rules is left.")
            return None
        if last.status.phase is not Phase.SUCCEEDED:
            say(line(f"Run {run} ended as {last.status.phase}: {last.status.message}"), stderr=True)
        return outcome(last, Phase.SUCCEEDED)
    if output in ("json", "yaml"):
        await session.checked(MaintenanceRun, run)
        emit(await session.get(MaintenanceRun, run) or {}, output)
        return None
    found = await session.run(run)
    note = "" if ended(found) else await session.controller_note()
    say(run_view(found, await session.policy_of(found), session.clock.now(), wide=output == "wide", note=note))
    _say_note(note)
    return None


async def _list(session: Session, output: str) -> None:
    if output in ("json", "yaml"):
        raw = [*await session.cluster.list(MaintenanceWindow), *await session.cluster.list(MaintenanceRun)]
        emit({"apiVersion": "v1", "kind": "List", "items": [{**_typed(item), **item} for item in raw]}, output)
        say(await _forgotten(session), stderr=True)
        return
    windows: list[Checked[MaintenanceWindow]] = await session.all(MaintenanceWindow)
    runs = await session.all(MaintenanceRun)
    now, wide = session.clock.now(), output == "wide"
    say([*window_list(windows, now, wide=wide), line(""), *run_list(runs, now, wide=wide)])
    forgotten = await _forgotten(session)
    say([line(""), *forgotten] if forgotten else [])
    _say_note(await session.controller_note())


async def _forgotten(session: Session) -> list[Line]:
    """Rules that a run made and that no run owns any more: nobody will take those taints off."""
    try:
        rules = await session.cluster.own_rules()
    except ClusterError:
        return []  # who may not read rules is not told of them
    # After the rules, so that a run that is made meanwhile is known.
    known = {run.metadata.uid for run in await session.all(MaintenanceRun)} if rules else set()
    left = sorted(rule.metadata.name for rule in rules if run_uid_of(rule) not in known)
    if not left:
        return []
    said = f"{plural(len(left), 'DeviceTaintRule')} of runs that are gone may still taint devices; take them off"
    said += f" (the first {MOST_NAMED} of them): " if len(left) > MOST_NAMED else ": "
    return [line(styled(said, "yellow"), command(f"kubectl delete devicetaintrule {' '.join(left[:MOST_NAMED])}"))]


def _say_note(note: str) -> None:
    if note:
        say([line(""), line(styled(note, "yellow"))])


def _typed(item: dict[str, object]) -> dict[str, object]:
    """A list's items may come without apiVersion and kind; scripts want them."""
    kind = MaintenanceWindow if "schedule" in (item.get("spec") or ()) else MaintenanceRun  # type: ignore[operator]
    return {"apiVersion": "taintctl.dev/v1alpha1", "kind": kind.KIND}
