"""When a MaintenanceWindow starts its runs. Durations are elapsed time: everything is counted in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile

from taintctl.api.window import Schedule
from taintctl.policy.cron import occurrences, occurrences_before, parse_cron, time_zone

MAX_MISSED = 100
"""Missed starts are counted up to here, as CronJob does: a controller that was down for years need not know more."""


@dataclass(frozen=True)
class Occurrence:
    """One time that a window is open."""

    start: datetime
    opens: datetime
    """When planning may begin: `planAhead` before the start."""
    closes: datetime
    latest: datetime
    """The last moment at which a run may still start; never after it closes."""

    def open_for_a_run(self, now: datetime) -> bool:
        return self.opens <= now <= self.latest and now < self.closes


@dataclass(frozen=True)
class Due:
    """What a window has to do now."""

    occurrence: Occurrence | None
    """The one to make a run for; None: nothing now."""
    missed: tuple[datetime, ...]
    """Starts since the last one that no run was made for and none will be, rising; the newest 100 at most."""
    next: Occurrence | None
    """The first one after it (after now, where nothing is due); None: there is no further start."""


def schedule_problem(schedule: Schedule) -> str | None:
    """Why the schedule cannot be followed, in one sentence; None where it can."""
    try:
        if schedule.cron is not None:
            parse_cron(schedule.cron)
        time_zone(schedule.time_zone)
    except ValueError as error:
        return str(error)
    if schedule.start is not None:
        try:
            _occurrence(schedule, schedule.start)
        except OverflowError:
            return "start, with planAhead before it and duration after it, is beyond the years 1 to 9999"
    return None


def next_occurrences(schedule: Schedule, after: datetime, count: int) -> tuple[Occurrence, ...]:
    """The first `count` that start after `after`. Raises ValueError where `schedule_problem` says why."""
    return tuple(_occurrence(schedule, start) for start in islice(_starts(schedule, after), count))


def due(schedule: Schedule, *, now: datetime, last_start: datetime | None, created: datetime) -> Due:
    """What to do now, where `last_start` is the start that a run was last made for or that was last found missed, and
    `created` the window's creation: starts of a cron line before it were never meant.

    Of several starts since then, the newest that may still start makes the one run; those before it are missed, and so
    is one that no run may start for any more. A start that planAhead has opened is due when no earlier one is.
    Raises ValueError where `schedule_problem` says why.
    """
    since = last_start
    if schedule.cron is not None:
        since = max(last_start, created) if last_start is not None else created
    past = tuple(islice(_starts_back(schedule, since, now), MAX_MISSED))
    late = next((o for start in past if (o := _occurrence(schedule, start)).open_for_a_run(now)), None)
    missed = tuple(sorted(start for start in past if late is None or start < late.start))
    following = _starts(schedule, max(now, since) if since is not None else now)
    ahead = next(following, None)
    upcoming = _occurrence(schedule, ahead) if ahead is not None else None
    if late is not None:
        return Due(late, missed, upcoming)
    if upcoming is not None and upcoming.open_for_a_run(now):
        after = next(following, None)
        return Due(upcoming, missed, _occurrence(schedule, after) if after is not None else None)
    return Due(None, missed, upcoming)


def run_name(window: str, start: datetime) -> str:
    """The name of the run for a start: minutes since 1970 behind the window's name, as CronJob names its Jobs, so
    that no start ever makes two."""
    return f"{window}-{int(start.timestamp()) // 60}"


def _starts(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    if schedule.cron is not None:
        yield from occurrences(parse_cron(schedule.cron), time_zone(schedule.time_zone), after)
    elif schedule.start is not None and schedule.start > after:
        yield schedule.start.astimezone(UTC)


def _starts_back(schedule: Schedule, since: datetime | None, now: datetime) -> Iterator[datetime]:
    """The starts after `since` up to `now`, the newest first."""
    if schedule.cron is not None:
        back = occurrences_before(parse_cron(schedule.cron), time_zone(schedule.time_zone), now)
        yield from takewhile(lambda start: since is None or start > since, back)
    elif schedule.start is not None and schedule.start <= now and (since is None or schedule.start > since):
        yield schedule.start.astimezone(UTC)


def _occurrence(schedule: Schedule, start: datetime) -> Occurrence:
    closes = start + schedule.duration
    deadline = schedule.starting_deadline
    return Occurrence(
        start=start,
        opens=start - (schedule.plan_ahead or timedelta(0)),
        closes=closes,
        latest=closes if deadline is None else min(closes, start + deadline),
    )
