"""The JSONPath that `additionalPrinterColumns` use: fields, indexes, `[*]` and one-comparison filters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

_TOKEN = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\[\s*'(?P<quoted>[^']+)'\s*\]"
    r'|\[\s*"(?P<double>[^"]+)"\s*\]'
    r"|\[(?P<index>-?\d+)\]"
    r"|(?P<all>\[\*\]|\.\*)"
    r"|\[\?\(\s*@\.(?P<key>[\w.\-]+)\s*(?P<op>==|!=)\s*(?P<value>\"[^\"]*\"|'[^']*'|\w+)\s*\)\]"
)


@lru_cache(maxsize=512)
def _tokens(path: str) -> tuple[dict[str, str | None], ...]:
    found = []
    position = 0
    while position < len(path):
        match = _TOKEN.match(path, position)
        if match is None:
            raise ValueError(f"{path!r} is no JSONPath that the sandbox understands, at position {position}")
        found.append(match.groupdict())
        position = match.end()
    return tuple(found)


def find(obj: Any, path: str) -> list[Any]:
    """The values at a path such as `.status.conditions[?(@.type=="Ready")].status`; ValueError when it is none."""
    values = [obj]
    for token in _tokens(path):
        values = [one for value in values for one in _step(value, token)]
    return values


def _step(value: Any, token: dict[str, str | None]) -> Iterator[Any]:
    name = token["field"] or token["quoted"] or token["double"]
    if name is not None:
        name = name.replace("\\.", ".")
        if isinstance(value, dict) and name in value:
            yield value[name]
    elif token["index"] is not None:
        if isinstance(value, list) and -len(value) <= int(token["index"]) < len(value):
            yield value[int(token["index"])]
    elif token["all"] is not None:
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    else:
        yield from (one for one in value if _kept(one, token)) if isinstance(value, list) else ()


def _kept(item: Any, token: dict[str, str | None]) -> bool:
    for part in (token["key"] or "").split("."):
        item = item.get(part) if isinstance(item, dict) else None
    wanted = token["value"] or ""
    if wanted[:1] in "\"'":
        wanted = wanted[1:-1]
    shown = str(item).lower() if isinstance(item, bool) else "" if item is None else str(item)
    return (shown == wanted) == (token["op"] == "==")
