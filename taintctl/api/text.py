"""Counts and names in sentences, the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

MAX_LINE = 500
"""Characters of outside words that are passed on, where nothing else is said."""


def plural(count: int, noun: str, many: str = "") -> str:
    """`1 pod`, `2 pods`; `many` where it is not the noun and an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def some(names: Sequence[str], limit: int = 3) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def moment(at: datetime) -> str:
    """`2026-12-01 21:00:05 UTC`: seconds are enough in a sentence."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Outside words in one line, fit for a terminal, a log and an object's status: what can't be printed (control and
    direction characters) becomes a blank, and it is cut."""
    printable = "".join(c if c.isprintable() else " " for c in text[: limit * 4])
    line = " ".join(printable.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
