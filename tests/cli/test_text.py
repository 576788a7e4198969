from __future__ import annotations

import io
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from taintctl.cli.text import clean, fields, line, moment, relative, say, span, styled, table, when


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2J\x1b[31mred", "\\x1b[2J\\x1b[31mred"),
        ("two\nlines\tand\rback", "two lines and back"),
        ("\u202eesrever", "\\x202eesrever"),
        ("zero\u200bwidth", "zero\\x200bwidth"),
        ("\x9b31m", "\\x9b31m"),
        ("[bold red]markup[/]", "[bold red]markup[/]"),
        ("lone \ud800", "lone \\xd800"),
        ("Käfig 檻", "Käfig 檻"),
    ],
)
def test_what_an_object_says_cannot_act_on_the_terminal(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_long_text_is_cut_and_says_so() -> None:
    assert clean("x" * 600) == "x" * 512 + "…"
    assert clean("x" * 512) == "x" * 512


def test_markup_and_escapes_are_printed_as_they_are_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    say(line("name: ", styled("[bold]\x1b[1mpod[/bold]", "bold red")))
    assert capsys.readouterr().out == "name: [bold]\\x1b[1mpod[/bold]\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_on_a_terminal_and_none_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    say(line("", styled("True", "green")))
    assert screen.getvalue() == "\x1b[32mTrue\x1b[0m\n"
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    say(line("", styled("True", "green")))
    assert "[32m" not in screen.getvalue()
    assert "True" in screen.getvalue()


def test_a_stream_that_cannot_show_a_character_gets_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    say("Käfig → 2")
    sys.stdout.flush()
    assert raw.getvalue() == b"K?fig ? 2\n"


def test_columns_line_up_also_with_wide_characters() -> None:
    rows = table(("NAME", "N"), [("檻", "1"), ("abc", styled("22", "red"))], indent=1)
    assert [row.plain for row in rows] == [" NAME   N", " 檻     1", " abc    22"]


def test_fields_line_up() -> None:
    assert [f.plain for f in fields([("A", "1"), ("Long", "2")])] == ["A:     1", "Long:  2"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (312, "5m12s"),
        (3599, "59m"),
        (10800, "3h"),
        (11100, "3h5m"),
        (172800, "2d"),
        (183600, "2d3h"),
        (864000, "10d"),
    ],
)
def test_lengths_of_time_read_as_in_kubectl(seconds: int, shown: str) -> None:
    assert span(timedelta(seconds=seconds)) == shown


def test_moments_name_their_zone_and_their_distance() -> None:
    start = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
    assert moment(start, ZoneInfo("Europe/Berlin")) == "2026-12-01 21:00:00 CET"
    assert relative(start, start - timedelta(hours=2)) == "in 120m"
    assert when(start, start + timedelta(minutes=3)) == "2026-12-01 20:00:00 UTC (3m ago)"
    assert when(None, start) == "-"
