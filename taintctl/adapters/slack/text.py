"""Outside words made harmless for Slack: no markup, no mention, no control character, no token; and bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from taintctl.api.text import one_line

MAX_WORD = 120
"""Characters of one outside name that are shown."""
_TOKEN = re.compile(r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]+|(?<=ticket=)[^&\s]+|(?<=hooks\.slack\.com/)\S+")
_MARKUP = str.maketrans({"*": "∗", "_": "＿", "~": "∼", "`": "ˋ"})
"""Look-alikes: a character that Slack does not take for markup can't become it, wherever it stands."""
_CALL = re.compile(r"@(?=(?:here|channel|everyone|group)\b)", re.IGNORECASE)


def redact(text: str) -> str:
    """`text` without tokens and what stands for one (a socket's ticket, the path of a hook)."""
    return _TOKEN.sub("[redacted]", text)


_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
"""As Slack asks: the three characters that begin a link, a mention or an entity."""


def plain(text: str, limit: int = MAX_WORD) -> str:
    """For a plain_text object, and for a reply whose markup is off: at most `limit` characters, escapes included."""
    out: list[str] = []
    size = 0
    for character in _CALL.sub("＠", redact(one_line(text, limit))):
        piece = _ENTITIES.get(character, character)
        size += len(piece)
        if size > limit:
            while out and size - len(piece) + 1 > limit:
                size -= len(out.pop())
            return "".join(out) + "…"
        out.append(piece)
    return "".join(out)


def prose(text: str, limit: int = MAX_WORD) -> str:
    """Outside words in mrkdwn."""
    return plain(text, limit).translate(_MARKUP)


def code(text: str, limit: int = MAX_WORD) -> str:
    """An outside name in mrkdwn, as code: to be copied, so only the character that would end it is another one."""
    inside = plain(text, max(1, limit - 2)).replace("`", "ˋ")
    return f"`{inside or '-'}`"


def when(at: datetime) -> str:
    """A moment, in the zone of whoever reads it; a client that can't shows UTC."""
    fallback = f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"<!date^{int(at.timestamp())}^{{date_short_pretty}} {{time}}|{fallback}>"


def listed(lines: Sequence[str], limit: int, *, total: int | None = None, noun: str = "more") -> str:
    """As many whole lines as fit into `limit` characters, and how many (of `total`) were left out."""
    total = len(lines) if total is None else total
    shown: list[str] = []
    size = 0
    for line in lines:
        if size + len(line) + 1 > limit - 40:
            break
        shown.append(line)
        size += len(line) + 1
    left = total - len(shown)
    if left > 0:
        shown.append(f"and {left} {noun}")
    return "\n".join(shown)


def joined(parts: Iterable[str]) -> str:
    return "\n".join(part for part in parts if part)
