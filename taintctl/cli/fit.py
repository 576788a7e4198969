"""Lines that keep their columns on a narrow terminal. Pure: nothing here knows how wide it is."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

GAP = 3
MIN_COLUMN = 8
"""No column of a table becomes narrower than this for the others' sake."""


class Row(Text):
    """A line of a table: printed as it is where it fits, else each cell is wrapped within its column."""

    def __init__(
        self, cells: Sequence[Text], widths: Sequence[int], indent: int, gap: int = GAP, least: Sequence[int] = ()
    ) -> None:
        """`least`: how narrow each column of the table may become without a word of it being cut."""
        super().__init__(" " * indent)
        self.row_cells, self.widths, self.row_indent, self.gap = tuple(cells), tuple(widths), indent, gap
        self.least = tuple(least) or (MIN_COLUMN,) * len(self.widths)
        for column, value in enumerate(cells):
            self.append_text(value)
            if column < len(cells) - 1:
                self.append(" " * (widths[column] - cell_len(value.plain) + gap))
        self.rstrip()

    def moved(self, by: int) -> Row:
        return Row(self.row_cells, self.widths, self.row_indent + by, self.gap, self.least)

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
    widths = column_widths(row, width)
    cells = [wrap(cell, widths[column]) for column, cell in enumerate(row.row_cells)]
    height = max(len(parts) for parts in cells)
    filled = [[parts[i] if i < len(parts) else Text("") for parts in cells] for i in range(height)]
    return [Text("").append_text(Row(parts, widths, row.row_indent, row.gap)) for parts in filled]


def column_widths(row: Row, width: int) -> list[int]:
    """The same for every row of a table: the widest column gives way first, as long as no word of it is cut; where
    that is not enough, words are."""
    widths = list(row.widths)
    room = width - row.row_indent - row.gap * (len(widths) - 1)
    for least in (row.least, (MIN_COLUMN,) * len(widths)):
        while sum(widths) > room:
            free = [column for column, now in enumerate(widths) if now > least[column]]
            if not free:
                break
            widths[max(free, key=lambda column: widths[column])] -= 1
    return widths


def longest_word(text: str) -> int:
    """The widest piece that `wrap` does not break."""
    return max((cell_len(piece) for piece in re.split(r"(?<=[-/.,])| ", text)), default=0)


def wrap(text: Text, width: int) -> list[Text]:
    """Broken between words; a word that is longer than the line is broken after `-`, `/`, `.` or `,`, else anywhere."""
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
        if plain[at - 1] in "-/.,":
            return at
    for at in range(end, start + 1, -1):
        if plain[at : at + 1].isupper() and plain[at - 1].islower():
            return at
    return end


def _is_mark(before: str) -> bool:
    """`[x]` stays with its word."""
    return before[-3:-2] == "[" and before[-1:] == "]"
