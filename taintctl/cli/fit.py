"""Lines that keep their columns on a narrow terminal. Pure: nothing here knows how wide it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

GAP = 3
MIN_COLUMN = 8
"""No column becomes narrower than this where nothing else is said of it."""
SPACES = re.compile(r" ")
PIECES = re.compile(r"(?<=[-/.,=:])| ")
HUMPS = re.compile(r"(?<=[-/.,=:])| |(?<=[a-z])(?=[A-Z])")
"""Where a text may be broken: between words; in a word after a mark; before a capital too."""


@dataclass(frozen=True)
class Shape:
    """How the columns of one table give way on a narrow terminal; the same for all of its rows."""

    steps: tuple[tuple[int, ...], ...]
    """How narrow each column may become, from what reads best to what is still bearable."""
    optional: tuple[int, ...] = ()
    """Columns that are left out, in this order, before a word is broken."""
    spare: tuple[int, ...] = ()
    """Columns that say nothing that the others do not: left out before any cell takes two lines."""

    @classmethod
    def of(
        cls,
        cells: Sequence[Sequence[str]],
        whole: Iterable[int],
        optional: Iterable[int],
        spare: Iterable[int] = (),
    ) -> Shape:
        """Of a table whose first row is its header. A word of the header is never broken, nor is a column `whole`."""
        columns = range(len(cells[0]))
        kept = {column: max(cell_len(row[column]) for row in cells) for column in whole}
        heads = [kept.get(column, longest(cells[0][column], SPACES)) for column in columns]
        steps = [
            tuple(
                max(heads[column], kept.get(column) or max(longest(row[column], breaks) for row in cells))
                for column in columns
            )
            for breaks in (SPACES, PIECES, HUMPS)
        ]
        last = tuple(kept.get(column) or max(heads[column], min(MIN_COLUMN, steps[-1][column])) for column in columns)
        return cls((*steps, last), tuple(optional), tuple(spare))


class Row(Text):
    """A line of a table: printed as it is where it fits, else each cell is wrapped within its column."""

    def __init__(
        self,
        cells: Sequence[Text],
        widths: Sequence[int],
        indent: int,
        gap: int = GAP,
        shape: Shape | None = None,
    ) -> None:
        super().__init__(" " * indent)
        self.row_cells, self.widths, self.row_indent, self.gap = tuple(cells), tuple(widths), indent, gap
        self.shape = shape or Shape(((MIN_COLUMN,) * len(self.widths),))
        for column, value in enumerate(cells):
            self.append_text(value)
            if column < len(cells) - 1:
                self.append(" " * (widths[column] - cell_len(value.plain) + gap))
        self.rstrip()

    def moved(self, by: int) -> Row:
        return Row(self.row_cells, self.widths, self.row_indent + by, self.gap, self.shape)

    @property
    def whole(self) -> int:
        """How wide the table is: all of its rows are narrowed, or none."""
        return self.row_indent + sum(self.widths) + self.gap * (len(self.widths) - 1)


class Command(Text):
    """Something to copy: never wrapped here, since a shell would take the break for the end of the command."""


def moved(line: Text, by: int) -> Text:
    """The line `by` columns further to the right."""
    if isinstance(line, Row):
        return line.moved(by)
    out = Command(" " * by) if isinstance(line, Command) else Text(" " * by)
    out.append_text(line)
    return out


def fit(line: Text, width: int) -> list[Text]:
    """The line as lines of at most `width` columns, where its words allow that; with what it means in every one:
    a continuation begins where the cell, or the line's own text, begins."""
    if isinstance(line, Row) and line.whole > width:
        return _fit_row(line, width)
    if cell_len(line.plain) <= width or isinstance(line, Command):
        return [line]
    indent = len(line.plain) - len(line.plain.lstrip(" "))
    body = line[indent:]
    return [_indented(part, indent) for part in wrap(body, max(width - indent, MIN_COLUMN))]


def _indented(part: Text, indent: int) -> Text:
    out = Text(" " * indent)
    out.append_text(part)
    return out


def _fit_row(row: Row, width: int) -> list[Text]:
    columns, widths = column_widths(row, width)
    cells = [wrap(row.row_cells[column], now) for column, now in zip(columns, widths, strict=True)]
    height = max(len(parts) for parts in cells)
    filled = [[parts[i] if i < len(parts) else Text("") for parts in cells] for i in range(height)]
    return [Text("").append_text(Row(parts, widths, row.row_indent, row.gap)) for parts in filled]


def column_widths(row: Row, width: int) -> tuple[list[int], list[int]]:
    """The columns that are shown and how wide, the same for every row of a table. Words stay whole while they can:
    optional columns go before one is broken. The widest column gives way first."""
    shown = [column for column in range(len(row.widths)) if column not in row.shape.spare]
    tries = [(shown, 1)]
    for column in row.shape.optional:
        shown = [other for other in shown if other != column]
        tries.append((shown, 1))
    tries += [(shown, steps) for steps in range(2, len(row.shape.steps) + 1)]
    for columns, steps in tries:
        widths = _narrowed(row, columns, row.shape.steps[:steps], width)
        if widths is not None:
            return columns, widths
    return shown, [min(row.widths[column], row.shape.steps[-1][column]) for column in shown]


def _narrowed(row: Row, columns: Sequence[int], steps: Sequence[tuple[int, ...]], width: int) -> list[int] | None:
    """The widths at which these columns fit; None where they do not at the last of the steps."""
    widths = [row.widths[column] for column in columns]
    room = width - row.row_indent - row.gap * (len(widths) - 1)
    for least in steps:
        while sum(widths) > room:
            free = [at for at, column in enumerate(columns) if widths[at] > least[column]]
            if not free:
                break
            widths[max(free, key=lambda at: widths[at])] -= 1
    return widths if sum(widths) <= room else None


def longest(text: str, breaks: re.Pattern[str]) -> int:
    """The widest piece of a text that is broken only there."""
    return max((cell_len(piece) for piece in breaks.split(text)), default=0)


def wrap(text: Text, width: int) -> list[Text]:
    """Broken between words; a word that is longer than the line is broken after a mark such as `-`, else before a
    capital, else anywhere."""
    plain, parts, start = text.plain, [], 0
    while cell_len(plain[start:]) > width:
        end = _cut(plain, start, width)
        part = text[start:end]
        part.rstrip()
        parts.append(part)
        start = end + len(plain[end:]) - len(plain[end:].lstrip(" "))
    if start < len(plain) or not parts:
        parts.append(text[start:])
    return parts


def _cut(plain: str, start: int, width: int) -> int:
    end = start + 1
    while end < len(plain) and cell_len(plain[start : end + 1]) <= width:
        end += 1
    for at in range(end, start, -1):
        if plain[at : at + 1] == " " and not _is_mark(plain[start:at]) and plain[at - 1 : at + 2] != "[ ]":
            return at
    for at in range(end, start + 1, -1):
        if plain[at - 1] in "-/.,=:":
            return at
    for at in range(end, start + 1, -1):
        if plain[at : at + 1].isupper() and plain[at - 1].islower():
            return at
    return end


def _is_mark(before: str) -> bool:
    """`[x]` stays with its word."""
    return before[-3:-2] == "[" and before[-1:] == "]"
