"""Text for a terminal: harmless whatever the objects say, lined up, and the same words with colour or without."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from taintctl.cli.fit import MIN_COLUMN, Command, Row, Shape, fit

Line = Text
Cell = str | Text
MAX_CELL = 512
GOOD, BAD, WARN, DIM, HEAD, STRONG = "green", "bold red", "yellow", "dim", "bold", "bold"


def clean(value: object, limit: int = MAX_CELL) -> str:
    """One printable line of at most `limit` characters.

    What an object says must not move the cursor, change colours, fake a line or turn the reading direction: control
    and format characters (Unicode Cc, Cf, Cs, Co, Zl, Zp) are shown by their code.
    """
    text = str(value)
    shown = []
    for character in text[: limit + 1]:
        if character in "\n\r\t":
            shown.append(" ")
        elif unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp"):
            shown.append(f"\\x{ord(character):02x}")
        else:
            shown.append(character)
    return "".join(shown) if len(text) <= limit else "".join(shown[:limit]) + "…"


def line(*parts: Cell) -> Line:
    """One line from plain strings (made harmless) and styled parts."""
    out = Command() if any(isinstance(part, Command) for part in parts) else Text()
    for part in parts:
        out.append_text(part if isinstance(part, Text) else Text(clean(part, 4096)))
    return out


def styled(value: object, style: str) -> Text:
    return Text(clean(value), style=style)


def command(text: object) -> Command:
    """Something to copy into a shell: in one piece however narrow the terminal is."""
    return Command(clean(text, 4096))


def heading(title: str) -> Line:
    return Text(title, style=HEAD)


def table(
    header: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    indent: int = 0,
    whole: Sequence[str] = (),
    optional: Sequence[str] = (),
    spare: Sequence[str] = (),
) -> list[Line]:
    """Columns as kubectl prints them: as wide as their widest cell, three blanks between, the last one open. On a
    narrow terminal cells are wrapped, but for the columns `whole` (names to copy); the columns `optional` are left out
    there, in this order, before a word is broken, and those in `spare` (said by the others) first of all."""
    cells = [[Text(title, style=HEAD) for title in header]]
    cells += [[value if isinstance(value, Text) else Text(clean(value)) for value in row] for row in rows]
    widths = [max(cell_len(row[column].plain) for row in cells) for column in range(len(header))]
    at = {title: column for column, title in enumerate(header)}
    plain = [[cell.plain for cell in row] for row in cells]
    shape = Shape.of(plain, *([at[title] for title in titles] for titles in (whole, optional, spare)))
    return [Row(row, widths, indent, shape=shape) for row in cells]


def fields(pairs: Iterable[tuple[str, Cell]], *, indent: int = 0) -> list[Line]:
    """`Name:  value` lines with the values in one column."""
    names, values = [], []
    for name, value in pairs:
        names.append(Text(f"{name}:", style=DIM))
        values.append(value if isinstance(value, Text) else Text(clean(value, 4096)))
    width = max((cell_len(name.plain) for name in names), default=0)
    widest = max((cell_len(value.plain) for value in values), default=0)
    shape = Shape(((width, MIN_COLUMN),))
    return [
        Command("").append_text(row) if isinstance(row.row_cells[1], Command) else row
        for row in (Row(both, (width, widest), indent, 2, shape) for both in zip(names, values, strict=True))
    ]


def span(delta: timedelta) -> str:
    """A length of time as kubectl prints ages: `42s`, `5m12s`, `3h4m`, `2d3h`; never negative."""
    seconds = max(0, int(delta.total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{seconds}s" if seconds else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if hours and days < 8 else f"{days}d"


def moment(at: datetime, zone: tzinfo = UTC) -> str:
    """`2026-12-01 21:00:05 UTC`."""
    local = at.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {local.tzname()}"


def relative(at: datetime, now: datetime) -> str:
    """`in 3m` or `3m ago`."""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def when(at: datetime | None, now: datetime) -> str:
    """A moment and how far it is; `-` where there is none."""
    return "-" if at is None else f"{moment(at)} ({relative(at, now)})"


def console(*, stderr: bool = False) -> Console:
    """A console for the stream as it is now: no colour when it is no terminal or NO_COLOR is set, no markup, no
    wrapping that would break a table when piped."""
    return Console(
        file=sys.stderr if stderr else sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True
    )


def fitted(lines: Iterable[Line], out: Console) -> list[Line]:
    """Lines as a terminal of this width shows them whole; elsewhere (a pipe, a file) as they are."""
    if not out.is_terminal:
        return list(lines)
    return [part for item in lines for part in fit(item, out.width)]


def say(lines: Iterable[Line] | Line | str, *, stderr: bool = False) -> None:
    """Prints lines; what the stream's encoding cannot show is replaced, not raised."""
    out = console(stderr=stderr)
    if isinstance(lines, str):
        lines = line(lines)
    encoding = getattr(out.file, "encoding", None) or "utf-8"
    for item in fitted([lines] if isinstance(lines, Text) else lines, out):
        try:
            item.plain.encode(encoding)
        except UnicodeEncodeError:
            item = Text(item.plain.encode(encoding, "replace").decode(encoding))
        out.print(item, soft_wrap=True)
