"""Cron lines as CronJob takes them, and what they mean where clocks change.

Clock changes used here: Europe/Berlin skips 02:00-03:00 at 01:00Z on 2026-03-29 and 2027-03-28, and has it twice on
2026-10-25 and 2027-10-31 (02:00 CET is 01:00Z). America/New_York skips 02:00-03:00 at 07:00Z on 2026-03-08 and
2027-03-14, and has 01:00-02:00 twice on 2026-11-01 and 2027-11-07 (01:00 EST is 06:00Z).
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taintctl.policy.cron import Cron, occurrences, occurrences_before, parse_cron, time_zone

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def starts(line: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(occurrences(parse_cron(line), time_zone(zone), at(after)), count)
    return [start.strftime("%Y-%m-%dT%H:%M") for start in found]


# --- the grammar


@pytest.mark.parametrize(
    ("line", "spelled"),
    [
        ("0 21 * * *", "0 21 * * *"),
        ("  0\t21 *  * * ", "0 21 * * *"),
        ("05 21 * * *", "5 21 * * *"),
        ("*/15 0-5 ? * ?", "0,15,30,45 0,1,2,3,4,5 * * *"),
        ("5/20 * * * *", "5,25,45 * * * *"),
        ("10-30/10 * * * *", "10,20,30 * * * *"),
        ("1,3,5-7 * * * *", "1,3,5,6,7 * * * *"),
        ("0 0 1 jan,DEC *", "0 0 1 1,12 *"),
        ("0 0 * * mon-Fri", "0 0 * * 1,2,3,4,5"),
        ("0 0 * * sun", "0 0 * * 0"),
        ("0 0 1,15 * 1", "0 0 1,15 * 1"),
        ("0 0 */2 * 1", "0 0 " + ",".join(str(d) for d in range(1, 32, 2)) + " * 1"),
        ("0 0 */1 * 1", "0 0 * * 1"),
        ("0 0 *,5 * 1", "0 0 * * 1"),
        ("*/100 * * * *", "0 * * * *"),
        # Both day fields restricted is an "or": with one that lists every day it is every day.
        ("0 0 1-31 * 1", "0 0 * * *"),
        ("0 0 5 * 0-6", "0 0 * * *"),
        ("0 0 5 * sun-sat", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_what_cronjob_takes(line: str, spelled: str) -> None:
    assert parse_cron(line) == Cron(line, spelled)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "has 0 fields"),
        ("0 21 * *", "has 4 fields"),
        ("0 0 21 * * *", "has 6 fields"),
        ("60 * * * *", "60 is out of range for the minute (0 to 59)"),
        ("* 24 * * *", "24 is out of range for the hour (0 to 23)"),
        ("* * 0 * *", "0 is out of range for the day of month (1 to 31)"),
        ("* * 32 * *", "32 is out of range for the day of month"),
        ("* * * 0 *", "0 is out of range for the month"),
        ("* * * 13 *", "13 is out of range for the month"),
        ("0 0 * * 7", "7 is out of range for the day of week (0 to 6)"),
        ("0 0 * * 5-7", "7 is out of range for the day of week"),
        ("0 0 L * *", "'L' in the day of month is not what CronJob takes"),
        ("0 0 15W * *", "'15W' in the day of month"),
        ("0 0 * * 1#2", "'1#2' in the day of week"),
        ("0 0 * * fri-mon", "'fri-mon' in the day of week runs backwards"),
        ("0 22-5 * * *", "'22-5' in the hour runs backwards"),
        ("*/0 * * * *", "has a step of 0"),
        ("1-2-3 * * * *", "'1-2-3' in the minute"),
        ("1/2/3 * * * *", "'1/2/3' in the minute"),
        ("*-5 * * * *", "'*-5' in the minute"),
        ("1, * * * *", "'' in the minute"),
        ("-5 * * * *", "'-5' in the minute"),
        ("+5 * * * *", "'+5' in the minute"),
        ("٥ * * * *", "in the minute is not what CronJob takes"),
        ("H * * * *", "'H' in the minute"),
        ("jan * * * *", "'jan' is no name for the minute"),
        ("0 0 * mon *", "'mon' is no name for the month"),
        ("0 0 * * jan", "'jan' is no name for the day of week"),
        ("0 0 * january *", "'january' in the month"),
        ("@every 1h", "'@every 1h' is none of @annually, @daily"),
        ("@reboot", "'@reboot' is none of"),
        ("TZ=UTC 0 21 * * *", "takes no TZ= prefix; put the zone into schedule.timeZone"),
        ("CRON_TZ=Europe/Berlin 0 21 * * *", "takes no TZ= prefix"),
    ],
)
def test_what_is_refused_says_what_and_where(line: str, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_cron(line)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC", "America/New_York", "Asia/Kolkata"])
def test_a_time_zone_by_its_iana_name(zone: str) -> None:
    assert time_zone(zone) == ZoneInfo(zone)


def test_without_a_zone_it_is_utc() -> None:
    assert time_zone(None) == ZoneInfo("UTC")


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "Local", "localtime", "../etc/passwd", "/etc/localtime", "Europe", "a\0b"]
)
def test_what_is_no_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not an IANA time zone such as Europe/Berlin"):
        time_zone(zone)


# --- the calendar


def test_months_without_a_31st_have_no_start() -> None:
    assert starts("0 21 31 * *", "UTC", "2026-01-01", 7) == [
        f"2026-{month}-31T21:00" for month in ("01", "03", "05", "07", "08", "10", "12")
    ]


def test_29_february_is_waited_for_and_31_february_never_comes() -> None:
    assert starts("0 0 29 2 *", "UTC", "2026-01-01", 2) == ["2028-02-29T00:00", "2032-02-29T00:00"]
    assert starts("0 0 29 2 *", "UTC", "2096-03-01", 1) == ["2104-02-29T00:00"]
    assert starts("0 0 31 2 *", "UTC", "2026-01-01", 1) == []
    assert list(occurrences_before(parse_cron("0 0 31 2 *"), time_zone(None), at("2026-01-01"))) == []


def test_two_restricted_day_fields_are_an_or_and_a_star_makes_it_an_and() -> None:
    # November 2026 begins on a Sunday: Mondays are 2, 9, 16, 23, 30.
    assert [s[8:10] for s in starts("0 0 1,15 11 1", "UTC", "2026-10-31", 7)] == [
        "01",
        "02",
        "09",
        "15",
        "16",
        "23",
        "30",
    ]
    assert [s[8:10] for s in starts("0 0 * 11 1", "UTC", "2026-10-31", 5)] == ["02", "09", "16", "23", "30"]
    assert [s[8:10] for s in starts("0 0 29/2 11 1", "UTC", "2026-10-31", 6)] == ["02", "09", "16", "23", "29", "30"]
    assert [s[5:10] for s in starts("0 0 1-31 11 1", "UTC", "2026-11-01", 3)] == ["11-02", "11-03", "11-04"]


def test_the_moment_itself_is_not_after_it_but_up_to_it() -> None:
    assert starts("0 21 * * *", "UTC", "2026-12-01T21:00", 1) == ["2026-12-02T21:00"]
    assert starts("0 21 * * *", "UTC", "2026-12-01T20:59:59", 1) == ["2026-12-01T21:00"]
    line = parse_cron("0 21 * * *")
    assert next(occurrences_before(line, time_zone(None), at("2026-12-01T21:00"))) == at("2026-12-01T21:00")
    assert next(occurrences_before(line, time_zone(None), at("2026-12-01T20:59:59"))) == at("2026-11-30T21:00")


# --- clock changes, by hand


@pytest.mark.parametrize(
    ("line", "zone", "after", "expected"),
    [
        # Skipped: the first moment after it, 03:00 CEST.
        ("30 2 * * *", BERLIN, "2026-03-28", ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", BERLIN, "2027-03-27", ["2027-03-27T01:30", "2027-03-28T01:00", "2027-03-29T00:30"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07", ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"]),
        ("30 2 * * *", NEW_YORK, "2027-03-13", ["2027-03-13T07:30", "2027-03-14T07:00", "2027-03-15T06:30"]),
        # Twice: the first.
        ("30 2 * * *", BERLIN, "2026-10-24", ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
        ("30 2 * * *", BERLIN, "2027-10-30", ["2027-10-30T00:30", "2027-10-31T00:30", "2027-11-01T01:30"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31", ["2026-10-31T05:30", "2026-11-01T05:30", "2026-11-02T06:30"]),
        ("30 1 * * *", NEW_YORK, "2027-11-06", ["2027-11-06T05:30", "2027-11-07T05:30", "2027-11-08T06:30"]),
        # The edges of the skipped and of the repeated hour.
        ("0 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        ("0 3 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T01:00"]),
        ("0 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T00:00", "2026-10-26T01:00"]),
        ("0 3 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T02:00", "2026-10-26T02:00"]),
        # Several skipped at once are one start; of a repeated hour none is repeated.
        ("*/30 * * * *", BERLIN, "2026-03-29T00:00", ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]),
        ("0 * * * *", BERLIN, "2026-10-24T23:00", ["2026-10-25T00:00", "2026-10-25T02:00", "2026-10-25T03:00"]),
        # Asked in the middle of the second pass.
        ("30 2 * * *", BERLIN, "2026-10-25T01:10", ["2026-10-26T01:30"]),
        # Half an hour is skipped at Lord Howe: 02:00+10:30 is 02:30+11:00 at 2026-10-03T15:30Z.
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["2026-10-03T15:30", "2026-10-04T15:15"]),
    ],
)
def test_a_start_on_the_night_of_a_clock_change(line: str, zone: str, after: str, expected: list[str]) -> None:
    assert starts(line, zone, after, len(expected)) == expected


def test_going_back_in_the_second_pass_of_a_repeated_hour_finds_the_first_pass() -> None:
    line, zone = parse_cron("30 2 * * *"), time_zone(BERLIN)
    assert list(islice(occurrences_before(line, zone, at("2026-10-25T01:10")), 2)) == [
        at("2026-10-25T00:30"),
        at("2026-10-24T00:30"),
    ]


# --- against a reckoning that shares nothing with it


def brute_force(minutes: set[int], hours: set[int], zone: str, day: date) -> list[datetime]:
    """Walks UTC minute by minute over a day and its neighbours: the first minute that shows a local time is that
    time's; a local time that no minute shows is at the first minute that shows a later one."""
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=2)
    shown: dict[datetime, datetime] = {}
    for offset in range(5 * 24 * 60):
        moment = begin + timedelta(minutes=offset)
        shown.setdefault(moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None), moment)
    found = set()
    first = datetime(day.year, day.month, day.day) - timedelta(days=1)
    for offset in range(3 * 24 * 60):
        local = first + timedelta(minutes=offset)
        if local.minute in minutes and local.hour in hours:
            found.add(shown[local] if local in shown else min(at_ for here, at_ in shown.items() if here > local))
    return sorted(found)


CHANGES = [
    (BERLIN, date(2026, 3, 29)),
    (BERLIN, date(2026, 10, 25)),
    (NEW_YORK, date(2027, 3, 14)),
    (NEW_YORK, date(2027, 11, 7)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Australia/Lord_Howe", date(2027, 4, 4)),
    ("UTC", date(2026, 12, 1)),
]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.integers(0, 59), min_size=1, max_size=3),
    st.sets(st.integers(0, 4), min_size=1, max_size=3),
    st.sampled_from(CHANGES),
    st.integers(0, 6 * 60),
)
def test_forth_and_back_agree_with_a_walk_over_every_minute(
    minutes: set[int], hours: set[int], change: tuple[str, date], late: int
) -> None:
    zone, day = change
    expected = brute_force(minutes, hours, zone, day)
    line = parse_cron(f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *")
    forth = list(islice(occurrences(line, time_zone(zone), expected[0] - timedelta(seconds=1)), len(expected)))
    assert forth == expected
    until = expected[len(expected) // 2] + timedelta(minutes=late)
    back = [s for s in islice(occurrences_before(line, time_zone(zone), until), len(expected)) if s >= expected[0]]
    assert back == sorted((s for s in expected if s <= until), reverse=True)
