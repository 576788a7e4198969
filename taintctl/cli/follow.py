"""Following a run until something is reached: a live page on a terminal, appended lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.console import Group
from rich.live import Live

from taintctl.api.reasons import Phase
from taintctl.api.run import HistoryEntry, MaintenanceRun
from taintctl.cli.errors import DONE, FAILED, Failure
from taintctl.cli.session import Session
from taintctl.cli.text import Line, console, fitted, line, say, styled
from taintctl.cli.views.run import live_view, phase_style
from taintctl.ports.errors import Unavailable

POLL = 0.5
BLOCKED = str(Phase.BLOCKED)
NOTE_EVERY = 10
"""Looks between two questions whether a controller is at work."""
MAX_SILENCE = timedelta(minutes=5)
"""How long an API server may not answer before following ends; each try has the client's own retries within."""


class Gone(Exception):
    """A run that was being deleted is gone, here as it was last seen: it has ended, and none of its rules is left."""

    def __init__(self, last: MaintenanceRun) -> None:
        super().__init__(last.name)
        self.last = last


Reached = Callable[[MaintenanceRun], bool]


def ended(run: MaintenanceRun) -> bool:
    return run.status.phase is not None and run.status.phase.ended


def in_maintenance(run: MaintenanceRun) -> bool:
    return run.status.phase is Phase.IN_MAINTENANCE or ended(run)


def outcome(run: MaintenanceRun, *good: Phase) -> int:
    """The exit status for where a run is."""
    return DONE if run.status.phase in good else FAILED


async def follow(session: Session, name: str, reached: Reached, *, from_start: bool = False) -> MaintenanceRun:
    """Follows until `reached`; without a terminal `from_start` tells what came before, too. Raises Failure where the
    run is deleted meanwhile or the API server stays away."""
    if sys.stdout.isatty():
        return await _live(session, name, reached)
    news = News()
    if not from_start:
        news.of(await session.run(name), "", session.clock.now())
    return await _lines(session, name, reached, news)


async def _live(session: Session, name: str, reached: Reached) -> MaintenanceRun:
    out = console()
    with Live(console=out, auto_refresh=False, vertical_overflow="crop") as live:
        async for run, problem, note in _states(session, name):
            top = fitted([line(styled(text, "yellow")) for text in (problem or note,) if text], out)
            page = live_view(
                run,
                await session.policy_of(run),
                session.clock.now(),
                height=out.height - len(top) - 1,
                fitted=lambda lines: fitted(lines, out),
                note=note,
            )
            live.update(Group(*top, *page), refresh=True)
            if not problem and reached(run):
                return run
    raise AssertionError("states never end")


async def _lines(session: Session, name: str, reached: Reached, news: News) -> MaintenanceRun:
    async for run, problem, note in _states(session, name):
        say(news.of(run, problem, session.clock.now(), note))
        if not problem and reached(run):
            return run
    raise AssertionError("states never end")


async def _states(session: Session, name: str) -> AsyncIterator[tuple[MaintenanceRun, str, str]]:
    """(run, "", note) again and again, with a note where no controller seems to be at work; (last run, problem, "")
    while the API server does not answer."""
    last: MaintenanceRun | None = None
    heard = session.clock.now()
    looks, note = 0, ""
    while True:
        try:
            last = await session.run(name)
            heard = session.clock.now()
            if looks % NOTE_EVERY == 0:
                note = "" if ended(last) else await session.controller_note()
            looks += 1
            yield last, "", note
        except Unavailable as error:
            if last is None or session.clock.now() - heard > MAX_SILENCE:
                raise
            yield last, f"{error.message} Trying again.", ""
        except Failure:
            if last is None:
                raise
            if last.metadata.deletion_timestamp is not None:
                # Its finalizer went last: no rule of it is left.
                raise Gone(last) from None
            raise Failure(f"run {name} was deleted meanwhile; its last phase was {last.status.phase}") from None
        await session.clock.sleep(POLL)


@dataclass
class News:
    """What changed since the last look, as lines to append."""

    _seen: set[HistoryEntry] = field(default_factory=set)
    _rounds: set[tuple[str, str, str]] = field(default_factory=set)
    _said: tuple[object, ...] = ()
    _problem: str = ""
    _note: str = ""

    def of(self, run: MaintenanceRun, problem: str, now: datetime, note: str = "") -> list[Line]:
        if problem:
            lines = [line(f"{now:%H:%M:%S}  ", styled(problem, "yellow"))] if problem != self._problem else []
            self._problem = problem
            return lines
        self._problem = ""
        status = run.status
        lines = []
        for entry in status.history:
            if entry not in self._seen:
                self._seen.add(entry)
                if (move := (entry.from_, entry.to, entry.reason)) in self._rounds and BLOCKED in move:
                    continue  # looked at again and again, with the same answer each time
                self._rounds.add(move)
                style = phase_style(Phase(entry.to)) if entry.to in list(Phase) else ""
                before = f"{entry.from_} -> " if entry.from_ else ""
                lines.append(
                    line(f"{entry.at:%H:%M:%S}  {before}", styled(entry.to, style or "bold"), f" ({entry.reason})")
                )
        said = (status.phase, status.reason, status.message)
        again = status.phase is Phase.DRY_RUN and self._said[:1] == (Phase.BLOCKED,)
        if said != self._said and status.message and not again:
            self._said = said
            lines.append(line(f"{now:%H:%M:%S}  ", status.message))
        if note and not self._note:
            lines.append(line(f"{now:%H:%M:%S}  ", styled(note, "yellow")))
        self._note = note
        return lines
