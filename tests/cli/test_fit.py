"""What a narrow terminal shows: words whole, columns kept, commands in one piece."""

from __future__ import annotations

import io
import sys

import pytest
from rich.text import Text

from taintctl.cli.fit import fit, moved, wrap
from taintctl.cli.text import command, fields, line, say, styled, table


def plain(lines: list[Text]) -> list[str]:
    return [item.plain for item in lines]


def test_what_fits_stays_as_it_is() -> None:
    assert plain(fit(line("twelve chars"), 12)) == ["twelve chars"]


def test_words_stay_whole_and_a_continuation_begins_where_the_text_does() -> None:
    assert plain(fit(line("  one two three four"), 11)) == ["  one two", "  three", "  four"]


def test_a_long_word_breaks_after_a_dash_or_slash_else_anywhere() -> None:
    assert plain(wrap(Text("team-a/newcomer"), 10)) == ["team-a/", "newcomer"]
    assert plain(wrap(Text("abcdefghijkl"), 5)) == ["abcde", "fghij", "kl"]


def test_wide_characters_count_as_two_columns() -> None:
    assert plain(wrap(Text("檻檻檻檻"), 4)) == ["檻檻", "檻檻"]


def test_a_mark_stays_with_its_word() -> None:
    assert plain(wrap(Text("[x] DryRun  [>] AwaitingApproval"), 20)) == ["[x] DryRun", "[>] AwaitingApproval"]


def test_an_empty_mark_is_not_broken_inside() -> None:
    assert plain(wrap(Text("[>] Draining  [ ] InMaintenance"), 17)) == ["[>] Draining", "[ ] InMaintenance"]


def test_a_word_of_words_is_broken_before_a_capital_rather_than_anywhere() -> None:
    assert plain(wrap(Text("EvictionAcknowledged"), 14)) == ["Eviction", "Acknowledged"]


def test_all_rows_of_a_table_are_narrowed_or_none() -> None:
    rows = table(("AT", "TO"), [("2026-12-01 21:00:00 UTC", "DryRun"), ("-", "Pending and more words")])
    assert [text for row in rows for text in plain(fit(row, 40))] == [
        "AT                   TO",
        "2026-12-01           DryRun",
        "21:00:00 UTC",
        "-                    Pending and more",
        "                     words",
    ]


def test_headers_and_words_stay_whole_and_names_to_copy_too() -> None:
    rows = table(
        ("RUN", "EFFECT", "PUBLISHED", "MESSAGE"),
        [("nightly-29567890-abc", "NoExecute", "12", "a sentence of several words that is long")],
        whole=("RUN",),
    )
    assert [text for row in rows for text in plain(fit(row, 62))] == [
        "RUN                    EFFECT      PUBLISHED   MESSAGE",
        "nightly-29567890-abc   NoExecute   12          a sentence of",
        "                                               several words",
        "                                               that is long",
    ]


def test_a_column_goes_before_a_word_is_broken() -> None:
    rows = table(
        ("RUN", "FOR", "PHASE", "NEXT"),
        [("nightly-29567890", "12s", "AwaitingApproval", "taintctl approve nightly-29567890")],
        whole=("RUN",),
        optional=("FOR",),
    )
    assert [row.plain for row in rows][1] == (
        "nightly-29567890   12s   AwaitingApproval   taintctl approve nightly-29567890"
    )
    # 16, 3, 16 and 16, with three gaps of 3: 60.
    assert [text for row in rows for text in plain(fit(row, 60))] == [
        "RUN                FOR   PHASE              NEXT",
        "nightly-29567890   12s   AwaitingApproval   taintctl approve",
        "                                            nightly-29567890",
    ]
    assert [text for row in rows for text in plain(fit(row, 59))] == [
        "RUN                PHASE              NEXT",
        "nightly-29567890   AwaitingApproval   taintctl approve",
        "                                      nightly-29567890",
    ]
    # 16, 16 and 16 need 54; then after a dash, and before a capital only where that is not enough.
    assert [text for row in rows for text in plain(fit(row, 50))] == [
        "RUN                PHASE              NEXT",
        "nightly-29567890   AwaitingApproval   taintctl",
        "                                      approve",
        "                                      nightly-",
        "                                      29567890",
    ]
    assert [text for row in rows for text in plain(fit(row, 40))] == [
        "RUN                PHASE        NEXT",
        "nightly-29567890   Awaiting     taintctl",
        "                   Approval     approve",
        "                                nightly-",
        "                                29567890",
    ]


def test_however_narrow_it_is_headers_and_names_to_copy_stay_whole() -> None:
    rows = table(("RUN", "PREDICTED"), [("nightly-29567890", "NoExecute")], whole=("RUN",))
    assert [text for row in rows for text in plain(fit(row, 20))] == [
        "RUN                PREDICTED",
        "nightly-29567890   NoExecute",
    ]


def test_styles_survive_the_break() -> None:
    first, second = wrap(Text("one ").append_text(styled("two", "red")), 4)
    assert (first.plain, second.plain) == ("one", "two")
    assert [span.style for span in second.spans] == ["red"]


def test_every_row_of_a_table_keeps_the_same_columns() -> None:
    rows = table(("NODE", "USED BY", "TAINTS"), [("node-1", "pod one, pod two, pod three", "-"), ("node-2", "-", "-")])
    assert [text for row in rows for text in plain(fit(row, 34))] == [
        "NODE     USED BY            TAINTS",
        "node-1   pod one, pod       -",
        "         two, pod three",
        "node-2   -                  -",
    ]


def test_fields_wrap_beside_their_name() -> None:
    rows = fields([("Why", "a b c d e f g h"), ("Next", "x")], indent=2)
    assert [text for row in rows for text in plain(fit(row, 19))] == [
        "  Why:   a b c d e",
        "         f g h",
        "  Next:  x",
    ]


def test_a_command_is_never_broken() -> None:
    long = 'kubectl patch mw nightly --type merge -p \'{"spec":{"suspend":false}}\''
    assert plain(fit(command(long), 20)) == [long]
    assert plain(fit(line("Next: ", command(long)), 20)) == [f"Next: {long}"]
    assert plain(fit(fields([("Next", command(long))])[0], 20)) == [f"Next:  {long}"]
    assert plain(fit(moved(command(long), 3), 20)) == [f"   {long}"]


def test_a_moved_row_is_still_a_row() -> None:
    (_, row) = table(("A", "B"), [("name", "one two three")])
    assert plain(fit(moved(row, 2), 17)) == ["  name   one two", "         three"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("where", "lines"), [(Terminal, 2), (io.StringIO, 1)])
def test_only_a_terminal_wraps(monkeypatch: pytest.MonkeyPatch, where: type[io.StringIO], lines: int) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    out = where()
    monkeypatch.setattr(sys, "stdout", out)
    say("a sentence that is longer than thirty columns")
    assert len(out.getvalue().splitlines()) == lines
