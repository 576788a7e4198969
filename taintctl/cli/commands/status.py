"""`taintctl status`: where runs and windows are."""

from __future__ import annotations

from functools import partial

import click

from taintctl.api.check import Checked
from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.follow import ended, follow, outcome
from taintctl.cli.options import on_cluster, output_option
from taintctl.cli.output import emit
from taintctl.cli.session import Session
from taintctl.cli.text import line, say, styled
from taintctl.cli.views.lists import run_list, window_list
from taintctl.cli.views.run import run_view


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
        last = await follow(session, run, ended, from_start=True)
        if last.status.phase is not Phase.SUCCEEDED:
            say(line(f"Run {run} ended as {last.status.phase}: {last.status.message}"), stderr=True)
        return outcome(last, Phase.SUCCEEDED)
    if output in ("json", "yaml"):
        await session.checked(MaintenanceRun, run)
        emit(await session.get(MaintenanceRun, run) or {}, output)
        return None
    found = await session.run(run)
    say(run_view(found, await session.policy_of(found), session.clock.now(), wide=output == "wide"))
    if not ended(found):
        await _say_note(session)
    return None


async def _list(session: Session, output: str) -> None:
    if output in ("json", "yaml"):
        raw = [*await session.cluster.list(MaintenanceWindow), *await session.cluster.list(MaintenanceRun)]
        emit({"apiVersion": "v1", "kind": "List", "items": [{**_typed(item), **item} for item in raw]}, output)
        return
    windows: list[Checked[MaintenanceWindow]] = await session.all(MaintenanceWindow)
    runs = await session.all(MaintenanceRun)
    now, wide = session.clock.now(), output == "wide"
    say([*window_list(windows, now, wide=wide), line(""), *run_list(runs, now, wide=wide)])
    await _say_note(session)


async def _say_note(session: Session) -> None:
    note = await session.controller_note()
    if note:
        say([line(""), line(styled(note, "yellow"))])


def _typed(item: dict[str, object]) -> dict[str, object]:
    """A list's items may come without apiVersion and kind; scripts want them."""
    kind = MaintenanceWindow if "schedule" in (item.get("spec") or ()) else MaintenanceRun  # type: ignore[operator]
    return {"apiVersion": "taintctl.dev/v1alpha1", "kind": kind.KIND}
