"""`taintctl explain`: why nothing happens."""

from __future__ import annotations

import click

from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.errors import Failure
from taintctl.cli.follow import ended
from taintctl.cli.options import on_cluster
from taintctl.cli.session import Session
from taintctl.cli.text import say
from taintctl.cli.views.explain import explain_run, explain_window


@click.command()
@click.argument("name")
@on_cluster
async def explain(session: Session, name: str) -> None:
    """Why a run (or a window) does nothing now: what it waits for, since when, how long still, and what to do."""
    if await session.get(MaintenanceRun, name) is not None:
        run = await session.run(name)
        note = "" if ended(run) else await session.controller_note()
        speed = await session.controller_speed()
        asked = run.status.phase is Phase.AWAITING_APPROVAL
        person = await session.whoami() if asked else ""
        say(explain_run(run, await session.policy_of(run), session.clock.now(), note, speed, person))
        return
    if await session.get(MaintenanceWindow, name) is not None:
        checked = await session.checked(MaintenanceWindow, name)
        if checked.obj is None:
            raise Failure(f"window {name} can't be read: {checked.problems[0]}; correct it: kubectl edit mw {name}")
        say(explain_window(checked.obj, tuple(str(p) for p in checked.problems), session.clock.now()))
        say(await session.controller_note() or [])
        return
    raise Failure(f"there is no run and no window {name}; `taintctl status` lists them")
