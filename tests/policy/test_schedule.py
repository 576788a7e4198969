"""When a window opens, and what it does about starts that were missed."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from taintctl.api.window import Schedule
from taintctl.policy import Due, due, next_occurrences, run_name, schedule_problem

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def every(cron: str, duration: str = "8h", zone: str | None = None, **more: Any) -> Schedule:
    return Schedule.model_validate({"cron": cron, "timeZone": zone, "duration": duration, **more})


def once(start: str, duration: str = "8h", **more: Any) -> Schedule:
    return Schedule.model_validate({"start": start, "duration": duration, **more})


def what(schedule: Schedule, now: str, *, last: str | None = None, created: datetime = LONG_AGO) -> Due:
    return due(schedule, now=at(now), last_start=at(last) if last else None, created=created)


def start_of(found: Due) -> datetime | None:
    return found.occurrence.start if found.occurrence else None


NIGHTLY = every("0 21 * * *")


# --- occurrences


def test_a_night_over_midnight_belongs_to_the_day_it_starts() -> None:
    (first, second) = next_occurrences(NIGHTLY, at("2026-12-01T12:00"), 2)
    assert (first.start, first.closes) == (at("2026-12-01T21:00"), at("2026-12-02T05:00"))
    assert (first.opens, first.latest) == (first.start, first.closes)
    assert second.start == at("2026-12-02T21:00")


@pytest.mark.parametrize(
    ("zone", "after", "start", "closes", "local_close"),
    [
        # 21:00 plus 8h is 06:00 on the night that loses an hour, 04:00 on the one that gains it.
        (BERLIN, "2026-03-28", "2026-03-28T20:00", "2026-03-29T04:00", "06:00"),
        (BERLIN, "2026-10-24", "2026-10-24T19:00", "2026-10-25T03:00", "04:00"),
        (BERLIN, "2026-10-25", "2026-10-25T20:00", "2026-10-26T04:00", "05:00"),
        (NEW_YORK, "2027-03-13T12:00", "2027-03-14T02:00", "2027-03-14T10:00", "06:00"),
        (NEW_YORK, "2027-11-06T12:00", "2027-11-07T01:00", "2027-11-07T09:00", "04:00"),
    ],
)
def test_durations_are_elapsed_time_on_the_nights_of_the_clock_change(
    zone: str, after: str, start: str, closes: str, local_close: str
) -> None:
    (found,) = next_occurrences(every("0 21 * * *", zone=zone), at(after), 1)
    assert (found.start, found.closes) == (at(start), at(closes))
    assert found.closes.astimezone(ZoneInfo(zone)).strftime("%H:%M") == local_close


def test_plan_ahead_is_elapsed_time_over_a_clock_change() -> None:
    schedule = every("0 21 * * *", zone=BERLIN, planAhead="24h")
    (found,) = next_occurrences(schedule, at("2026-03-29T12:00"), 1)
    # 21:00 CEST on the 29th; 24 hours before it was 20:00 CET on the 28th.
    assert (found.start, found.opens) == (at("2026-03-29T19:00"), at("2026-03-28T19:00"))
    (found,) = next_occurrences(schedule, at("2026-10-25T12:00"), 1)
    assert (found.start, found.opens) == (at("2026-10-25T20:00"), at("2026-10-24T20:00"))


def test_one_date() -> None:
    schedule = once("2026-12-24T22:00:00+01:00", "2h", planAhead="1h", startingDeadline="30m")
    (found,) = next_occurrences(schedule, at("2026-12-01"), 5)
    assert (found.opens, found.start, found.latest, found.closes) == (
        at("2026-12-24T20:00"),
        at("2026-12-24T21:00"),
        at("2026-12-24T21:30"),
        at("2026-12-24T23:00"),
    )
    assert next_occurrences(schedule, at("2026-12-24T21:00"), 5) == ()


def test_a_starting_deadline_never_reaches_beyond_the_close() -> None:
    (found,) = next_occurrences(every("0 21 * * *", "1h", startingDeadline="5h"), at("2026-12-01"), 1)
    assert found.latest == found.closes == at("2026-12-01T22:00")


# --- due


def test_before_the_start_nothing_is_due() -> None:
    found = what(NIGHTLY, "2026-12-01T20:59:59", last="2026-11-30T21:00")
    assert (found.occurrence, found.missed) == (None, ())
    assert found.next is not None
    assert found.next.start == at("2026-12-01T21:00")


def test_at_the_start_it_is_due_once() -> None:
    found = what(NIGHTLY, "2026-12-01T21:00", last="2026-11-30T21:00")
    assert (start_of(found), found.missed) == (at("2026-12-01T21:00"), ())
    assert found.next is not None
    assert found.next.start == at("2026-12-02T21:00")
    again = what(NIGHTLY, "2026-12-01T21:00:01", last="2026-12-01T21:00")
    assert (again.occurrence, again.missed) == (None, ())


@pytest.mark.parametrize(
    ("now", "is_due"),
    [
        ("2026-12-01T21:10:00", True),
        ("2026-12-01T21:30:00", True),
        ("2026-12-01T21:30:01", False),
        ("2026-12-02T04:00:00", False),
    ],
)
def test_a_controller_that_was_down_over_the_start(now: str, is_due: bool) -> None:
    found = what(every("0 21 * * *", startingDeadline="30m"), now, last="2026-11-30T21:00")
    assert start_of(found) == (at("2026-12-01T21:00") if is_due else None)
    assert found.missed == (() if is_due else (at("2026-12-01T21:00"),))


def test_without_a_starting_deadline_it_may_start_until_it_closes() -> None:
    assert start_of(what(NIGHTLY, "2026-12-02T04:59:59", last="2026-11-30T21:00")) == at("2026-12-01T21:00")
    late = what(NIGHTLY, "2026-12-02T05:00", last="2026-11-30T21:00")
    assert (late.occurrence, late.missed) == (None, (at("2026-12-01T21:00"),))


def test_several_missed_starts_make_one_run_and_the_others_are_told() -> None:
    found = what(NIGHTLY, "2026-12-03T23:00", last="2026-11-30T21:00")
    assert start_of(found) == at("2026-12-03T21:00")
    assert found.missed == (at("2026-12-01T21:00"), at("2026-12-02T21:00"))
    # Hourly and open for a day: all could still start, the newest does.
    hourly = what(every("0 * * * *", "24h"), "2026-12-01T12:30", last="2026-12-01T09:00")
    assert start_of(hourly) == at("2026-12-01T12:00")
    assert hourly.missed == (at("2026-12-01T10:00"), at("2026-12-01T11:00"))


def test_starts_from_before_the_window_was_made_were_never_meant() -> None:
    found = what(NIGHTLY, "2026-12-01T23:00", created=at("2026-12-01T22:00"))
    assert (found.occurrence, found.missed) == (None, ())
    assert start_of(what(NIGHTLY, "2026-12-01T23:00", created=at("2026-12-01T20:00"))) == at("2026-12-01T21:00")
    later = what(NIGHTLY, "2026-12-01T23:00", last="2026-11-20T21:00", created=at("2026-12-01T20:00"))
    assert (start_of(later), later.missed) == (at("2026-12-01T21:00"), ())


def test_plan_ahead_makes_it_due_early_and_once() -> None:
    schedule = every("0 21 * * *", planAhead="2h")
    assert what(schedule, "2026-12-01T18:59:59", last="2026-11-30T21:00").occurrence is None
    found = what(schedule, "2026-12-01T19:00", last="2026-11-30T21:00")
    assert start_of(found) == at("2026-12-01T21:00")
    assert found.next is not None
    assert found.next.start == at("2026-12-02T21:00")
    made = what(schedule, "2026-12-01T19:00", last="2026-12-01T21:00")
    assert made.occurrence is None
    assert made.next is not None
    assert made.next.start == at("2026-12-02T21:00")


def test_plan_ahead_longer_than_the_interval_does_not_skip_a_start() -> None:
    schedule = every("0 21 * * *", planAhead="26h")
    # Tonight's comes before tomorrow's, which has opened too.
    assert start_of(what(schedule, "2026-12-01T20:00", last="2026-11-30T21:00")) == at("2026-12-01T21:00")
    assert start_of(what(schedule, "2026-12-01T20:00", last="2026-12-01T21:00")) == at("2026-12-02T21:00")
    # And one that is late comes before one that is planned.
    late = what(schedule, "2026-12-01T22:00", last="2026-11-30T21:00")
    assert start_of(late) == at("2026-12-01T21:00")
    assert late.next is not None
    assert late.next.start == at("2026-12-02T21:00")


def test_plan_ahead_over_a_clock_change() -> None:
    schedule = every("30 2 * * *", zone=BERLIN, planAhead="1h")
    # The skipped 02:30 of 2026-03-29 is 01:00Z.
    assert what(schedule, "2026-03-28T23:59:59", last="2026-03-28T01:30").occurrence is None
    assert start_of(what(schedule, "2026-03-29T00:00", last="2026-03-28T01:30")) == at("2026-03-29T01:00")


def test_one_date_is_due_late_even_where_the_window_was_made_after_it() -> None:
    schedule = once("2026-12-01T21:00:00Z", startingDeadline="30m")
    created = at("2026-12-01T21:05")
    assert start_of(what(schedule, "2026-12-01T21:06", created=created)) == at("2026-12-01T21:00")
    too_late = what(schedule, "2026-12-01T22:00", created=created)
    assert too_late == Due(None, (at("2026-12-01T21:00"),), None)
    assert what(schedule, "2026-12-01T22:00", last="2026-12-01T21:00") == Due(None, (), None)
    before = what(schedule, "2026-12-01T20:00")
    assert before.occurrence is None
    assert before.next is not None
    assert before.next.start == at("2026-12-01T21:00")


def test_one_date_opens_early_with_plan_ahead_and_then_there_is_no_further_start() -> None:
    found = what(once("2026-12-01T21:00:00Z", planAhead="1h"), "2026-12-01T20:30")
    assert start_of(found) == at("2026-12-01T21:00")
    assert found.next is None


def test_an_impossible_date_has_no_further_start() -> None:
    assert what(every("0 0 31 2 *"), "2026-12-01") == Due(None, (), None)
    assert next_occurrences(every("0 0 31 2 *"), at("2026-12-01"), 3) == ()


def test_years_of_downtime_are_looked_at_in_no_time() -> None:
    began = time.perf_counter()
    found = what(every("* * * * *", "1m"), "2036-12-01T12:00:30", last="2026-12-01T00:00")
    assert time.perf_counter() - began < 5
    assert start_of(found) == at("2036-12-01T12:00")
    assert len(found.missed) == 99
    assert found.missed[-1] == at("2036-12-01T11:59")


# --- names and problems


def test_a_run_is_named_after_its_minute_as_cronjob_names_jobs() -> None:
    assert at("2026-12-01T21:00") - datetime(1970, 1, 1, tzinfo=UTC) == timedelta(days=20788, hours=21)
    assert run_name("nightly", at("2026-12-01T21:00")) == f"nightly-{20788 * 1440 + 21 * 60}"
    assert len(run_name("w" * 52, at("2026-12-01T21:00"))) <= 63


def test_a_schedule_that_cannot_be_followed_says_why() -> None:
    assert schedule_problem(NIGHTLY) is None
    assert schedule_problem(once("2026-12-01T21:00:00Z")) is None
    assert schedule_problem(every("0 0 * * 7")) == "7 is out of range for the day of week (0 to 6)"
    assert "'Mars/Olympus' is not an IANA time zone" in str(schedule_problem(every("0 0 * * *", zone="Mars/Olympus")))
    with pytest.raises(ValueError, match="out of range for the day of week"):
        next_occurrences(every("0 0 * * 7"), LONG_AGO, 1)
