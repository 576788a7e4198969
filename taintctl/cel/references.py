"""What of a device an expression can read, where that can be told from its text: most devices of a fleet differ in
their UUID alone, and an expression that does not read it need not be evaluated for each of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LITERAL = r"'[^'\\]*'|\"[^\"\\]*\""
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<string>[bBrR]*(?:'''|\"\"\"|'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"))|(?P<name>{_NAME})|(?P<mark>.))",
    re.DOTALL,
)
_PLAIN = re.compile(_LITERAL)
_WHOLE = {"driver", "allowMultipleAllocations"}
_PARTS = {"attributes", "capacity"}


@dataclass(frozen=True)
class References:
    """Each is (domain, name), as the expression writes them."""

    attributes: frozenset[tuple[str, str]]
    capacity: frozenset[tuple[str, str]]


def references(expression: str) -> References | None:
    """The attributes and capacities that the expression reads, beside the driver and allowMultipleAllocations.

    None where the text does not tell: `device` stands anywhere but in `device.driver`,
    `device.allowMultipleAllocations`, `device.attributes['domain'].name`, `…['domain']['name']`, `….?name` or the same
    of `capacity`; or there are comments or strings over several lines.
    """
    tokens = _tokens(expression)
    if tokens is None:
        return None
    found: dict[str, set[tuple[str, str]]] = {part: set() for part in _PARTS}
    at = 0
    while at < len(tokens):
        if tokens[at] != "device":
            at += 1
            continue
        # `x.device` and `x.?device` would be a field of something else, and `.device` the variable all the same.
        field = tokens[max(at - 1, 0) : at] == ["."] or tokens[max(at - 2, 0) : at] == [".", "?"]
        if field or tokens[at + 1 : at + 2] != ["."]:
            return None
        part = tokens[at + 2] if at + 2 < len(tokens) else ""
        if part in _WHOLE:
            at += 3
            continue
        read = _read(tokens[at + 3 : at + 9]) if part in _PARTS else None
        if read is None:
            return None
        domain, name, length = read
        if tokens[at + 3 + length : at + 4 + length] == ["("]:
            return None  # a macro over the whole map, such as exists
        found[part].add((domain, name))
        at += 3 + length
    return References(frozenset(found["attributes"]), frozenset(found["capacity"]))


def _read(tokens: list[str]) -> tuple[str, str, int] | None:
    """Domain, name and the number of tokens of `['domain'].name`, `['domain']['name']` or `['domain'].?name`."""
    domain = _index(tokens)
    if domain is None:
        return None
    rest = tokens[3:]
    if rest[:1] == ["."]:
        optional = rest[1:2] == ["?"]
        name = rest[2:3] if optional else rest[1:2]
        if name and re.fullmatch(_NAME, name[0]):
            return domain, name[0], 6 if optional else 5
        return None
    other = _index(rest)
    return None if other is None else (domain, other, 6)


def _index(tokens: list[str]) -> str | None:
    """The text of `['text']`; None for anything else, and for a string with escapes."""
    if len(tokens) >= 3 and tokens[0] == "[" and tokens[2] == "]" and _PLAIN.fullmatch(tokens[1]):
        return tokens[1][1:-1]
    return None


def _tokens(expression: str) -> list[str] | None:
    if "//" in expression or "'''" in expression or '"""' in expression:
        return None
    return [match[match.lastgroup] for match in _TOKEN.finditer(expression) if match.lastgroup]
