"""Text that came from elsewhere, made fit for a terminal, a log line and an object's status."""

from __future__ import annotations

MAX_MESSAGE = 500
"""Characters of a message of the API server's that are passed on."""


def one_line(text: str, limit: int = MAX_MESSAGE) -> str:
    """`text` in one line: what can't be printed (control and direction characters) becomes a space, and it is cut."""
    printable = "".join(c if c.isprintable() else " " for c in text[: limit * 4])
    line = " ".join(printable.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
