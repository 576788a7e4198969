"""Durations, times and conditions as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from taintctl.api.base import (
    MAX_DURATION,
    Condition,
    Duration,
    Model,
    Time,
    condition,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
    set_condition,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0s", timedelta(0)),
        ("45s", timedelta(seconds=45)),
        ("1.5s", timedelta(milliseconds=1500)),
        ("90m", timedelta(minutes=90)),
        ("1h30m", timedelta(minutes=90)),
        ("8h", timedelta(hours=8)),
        ("1h0m1s", timedelta(seconds=3601)),
        ("8784h", timedelta(days=366)),
    ],
)
def test_a_duration_is_read(text: str, value: timedelta) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "h", "8", "1d", "1h 30m", "30m1h", "-5m", "1.5h", "1.0001s", "５m", "5m\n"])
def test_what_is_no_duration_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 1h30m or 45s"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["8785h", "9999999999h", "8784h1s"])
def test_a_duration_beyond_a_year_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="longer than a year"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(minutes=90), "1h30m"),
        (timedelta(seconds=60), "1m"),
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(days=1, seconds=1), "24h1s"),
        (timedelta(seconds=-1), "0s"),
    ],
)
def test_a_duration_is_written_without_parts_that_are_zero(value: timedelta, text: str) -> None:
    assert format_duration(value) == text


@given(st.integers(0, int(MAX_DURATION.total_seconds()) * 1000))
def test_a_duration_that_was_written_is_read_back(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-12-01T21:00:00Z", datetime(2026, 12, 1, 21, tzinfo=UTC)),
        ("2026-12-01T22:00:00+01:00", datetime(2026, 12, 1, 21, tzinfo=UTC)),
        ("2026-12-01T21:00:00.250000Z", datetime(2026, 12, 1, 21, 0, 0, 250_000, tzinfo=UTC)),
    ],
)
def test_a_time_is_read_into_utc(text: str, value: datetime) -> None:
    read = parse_time(text)
    assert read == value
    assert read.tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tomorrow", "is not an RFC 3339 time"),
        ("2026-02-30T00:00:00Z", "is not an RFC 3339 time"),
        ("2026-12-01T21:00:00", "has no time zone"),
        ("2026-12-01", "has no time zone"),
        # ISO 8601, but not RFC 3339: an API server refuses them.
        ("2026-12-01 21:00:00Z", "is not an RFC 3339 time"),
        ("20261201T210000Z", "is not an RFC 3339 time"),
        ("2026-12-01T21:00Z", "is not an RFC 3339 time"),
        ("2026-12-01T21:00:00+0100", "is not an RFC 3339 time"),
        ("2026-12-01T21:00:00,5Z", "is not an RFC 3339 time"),
        ("2026-W49-2T21:00:00Z", "is not an RFC 3339 time"),
        # Before the year 1 in UTC.
        ("0001-01-01T00:00:00+05:00", "is not an RFC 3339 time"),
    ],
)
def test_what_is_no_time_is_refused_in_one_sentence(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_time(text)


def test_a_time_is_written_in_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert format_time(datetime(2026, 12, 1, 23, tzinfo=east)) == "2026-12-01T21:00:00Z"
    assert format_time(datetime(2026, 12, 1, 23, 0, 0, 5, tzinfo=east)) == "2026-12-01T21:00:00.000005Z"


FIRST = datetime(2026, 12, 1, 21, tzinfo=UTC)
LATER = FIRST + timedelta(minutes=1)


def test_a_new_condition_carries_the_time_it_was_set() -> None:
    (stored,) = set_condition((), Condition(type="Accepted", status="True", reason="Accepted"), FIRST)
    assert stored.last_transition_time == FIRST


def test_the_transition_time_moves_only_with_the_status() -> None:
    conditions = set_condition((), Condition(type="Accepted", status="True", reason="Accepted"), FIRST)
    conditions = set_condition(conditions, Condition(type="Accepted", status="True", reason="Other"), LATER)
    assert [(c.reason, c.last_transition_time) for c in conditions] == [("Other", FIRST)]
    conditions = set_condition(conditions, Condition(type="Accepted", status="False", reason="Other"), LATER)
    assert [(c.status, c.last_transition_time) for c in conditions] == [("False", LATER)]


def test_a_condition_takes_the_place_of_the_one_of_its_type() -> None:
    conditions = (Condition(type="Ready", status="True"), Condition(type="Accepted", status="True"))
    conditions = set_condition(conditions, Condition(type="Ready", status="Unknown"), FIRST)
    assert [(c.type, c.status) for c in conditions] == [("Ready", "Unknown"), ("Accepted", "True")]
    found = condition(conditions, "Ready")
    assert found is not None
    assert found.status == "Unknown"
    assert condition(conditions, "Approved") is None


class Times(Model):
    at: Time | None = None
    wait: Duration | None = None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"wait": 30}, "30 is not a duration such as 1h30m or 45s"),
        ({"wait": "soon"}, "'soon' is not a duration such as 1h30m or 45s"),
        ({"at": 1_700_000_000}, "1700000000 is not an RFC 3339 time"),
        ({"at": datetime(2026, 12, 1)}, "2026-12-01T00:00:00 has no time zone"),
    ],
)
def test_a_field_refuses_what_kubernetes_would_not_write(given: dict[str, object], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Times.model_validate(given)
    assert why in refused.value.errors()[0]["msg"]


def test_a_field_takes_and_gives_kubernetes_words() -> None:
    read = Times.model_validate({"at": "2026-12-01T22:00:00+01:00", "wait": "90m"})
    assert read == Times(at=datetime(2026, 12, 1, 21, tzinfo=UTC), wait=timedelta(minutes=90))
    assert read.dump() == {"at": "2026-12-01T21:00:00Z", "wait": "1h30m"}
