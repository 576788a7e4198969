"""Cron lines as CronJob takes them (robfig/cron v3's standard parser), and the times they mean in a time zone.

The grammar is checked and spelled out here; croniter, which takes more than CronJob does, only sees lists of numbers
and does the calendar in naive local time. What that means in UTC is decided here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from croniter import CroniterBadDateError, croniter

_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(
    r"(?:(?P<star>[*?])|(?P<low>[0-9]{1,2}|[a-z]{3})(?:-(?P<high>[0-9]{1,2}|[a-z]{3}))?)(?:/(?P<step>[0-9]{1,3}))?"
)


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, {name: month for month, name in enumerate(_MONTH_NAMES, start=1)}),
    _Field("day of week", 0, 6, {name: day for day, name in enumerate(_DAY_NAMES)}),
)


@dataclass(frozen=True)
class Cron:
    """A checked cron line."""

    text: str
    expression: str
    """The same in plain lists of numbers."""


def parse_cron(text: str) -> Cron:
    """Raises ValueError with one sentence for whatever CronJob does not take, and for `@every`, which has no date."""
    if re.match(r"\s*(CRON_)?TZ=", text):
        raise ValueError("schedule.cron takes no TZ= prefix; put the zone into schedule.timeZone")
    line = text.strip()
    if line.startswith("@"):
        if line not in _DESCRIPTORS:
            raise ValueError(f"{text!r} is none of {', '.join(sorted(_DESCRIPTORS))}")
        line = _DESCRIPTORS[line]
    parts = line.split()
    if len(parts) != len(_FIELDS):
        raise ValueError(
            f"{text!r} has {len(parts)} fields; a cron line has five: minute, hour, day of month, month, day of week"
        )
    values = [_parse_field(part, field) for part, field in zip(parts, _FIELDS, strict=True)]
    day, weekday = values[2], values[4]
    if not day.star and not weekday.star and (day.full(_FIELDS[2]) or weekday.full(_FIELDS[4])):
        # Two restricted day fields are an "or" (robfig's dayMatches): one that lists every day makes it every day.
        # croniter would take such a list for a star, which is an "and".
        values[2], values[4] = _Values(frozenset(), True), _Values(frozenset(), True)
    return Cron(text, " ".join(v.spelled() for v in values))


class _Values(NamedTuple):
    numbers: frozenset[int]
    star: bool
    """A `*` or `?` without a step above 1 stands in the field (robfig's star bit)."""

    def full(self, field: _Field) -> bool:
        return len(self.numbers) == field.high - field.low + 1

    def spelled(self) -> str:
        return "*" if self.star else ",".join(str(n) for n in sorted(self.numbers))


def _parse_field(text: str, field: _Field) -> _Values:
    numbers: set[int] = set()
    star = False
    for item in text.split(","):
        match = _ITEM.fullmatch(item.lower())
        if match is None:
            raise ValueError(f"{item!r} in the {field.name} is not what CronJob takes, such as *, 5, 1-5, */15 or 1,3")
        step = int(match["step"] or 1)
        if step == 0:
            raise ValueError(f"{item!r} in the {field.name} has a step of 0; leave the step out or make it 1 or more")
        if match["star"]:
            low, high = field.low, field.high
            star = star or step == 1
        else:
            low = _number(match["low"], field)
            single_end = field.high if match["step"] else low
            high = _number(match["high"], field) if match["high"] else single_end
            if low > high:
                raise ValueError(f"{item!r} in the {field.name} runs backwards; write two ranges with a comma")
        numbers.update(range(low, high + 1, step))
    return _Values(frozenset(numbers), star)


def _number(text: str, field: _Field) -> int:
    if not text.isdigit():
        if text not in field.names:
            raise ValueError(f"{text!r} is no name for the {field.name}")
        return field.names[text]
    number = int(text)
    if not field.low <= number <= field.high:
        raise ValueError(f"{text} is out of range for the {field.name} ({field.low} to {field.high})")
    return number


@lru_cache(maxsize=64)
def time_zone(name: str | None) -> ZoneInfo:
    """The IANA zone, by default UTC. Raises ValueError with one sentence."""
    key = name or "UTC"
    try:
        if key.lower() in ("local", "localtime"):
            raise ValueError(key)
        return ZoneInfo(key)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{key!r} is not an IANA time zone such as Europe/Berlin") from None


def occurrences(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """The starts after `after`, in UTC and rising; without end, unless none can ever come (31 February).

    A start that a clock change skips is at the first moment after it; of a time that comes twice, the first.
    """
    last = after
    for local in _calendar(cron, _naive(after, zone), forward=True):
        start = _to_utc(local, zone)
        if start > last:
            last = start
            yield start


def occurrences_before(cron: Cron, zone: ZoneInfo, until: datetime) -> Iterator[datetime]:
    """The starts at or before `until`, in UTC and falling."""
    local_now = until.astimezone(zone)
    # In the second pass of a repeated hour, local times that are still ahead have been already, in the first pass.
    shift = (local_now.replace(fold=0).utcoffset() or timedelta(0)) - (local_now.utcoffset() or timedelta(0))
    last: datetime | None = None
    for local in _calendar(cron, _naive(until, zone) + shift + timedelta(minutes=1), forward=False):
        start = _to_utc(local, zone)
        if start <= until and (last is None or start < last):
            last = start
            yield start


def _naive(moment: datetime, zone: ZoneInfo) -> datetime:
    """Local time without zone and fold, down to the minute."""
    return moment.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None, fold=0)


def _calendar(cron: Cron, start: datetime, *, forward: bool) -> Iterator[datetime]:
    """Local times that the line names, without `start` itself, as if no clock ever changed."""
    dates = croniter(cron.expression, start, ret_type=datetime)
    while True:
        try:
            yield dates.get_next(datetime) if forward else dates.get_prev(datetime)
        except (CroniterBadDateError, OverflowError):
            return


def _to_utc(local: datetime, zone: ZoneInfo) -> datetime:
    first = local.replace(tzinfo=zone, fold=0)
    moment = first.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == local:
        return moment
    # Skipped: reckoned with the offset after the change it is before the change, and the reverse. The change itself
    # is where the offset turns between the two.
    low, high = first.replace(fold=1).astimezone(UTC), moment
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == before else (low, middle)
    return high
