"""What a button and a window carry: which run and which plan, and nothing about who clicks."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

APPROVE, BREAK, DENY, DETAILS = "taintctl.approve", "taintctl.break", "taintctl.deny", "taintctl.details"
PREVIOUS, NEXT = "taintctl.previous", "taintctl.next"
DENY_VIEW, DETAILS_VIEW = "taintctl.deny-view", "taintctl.details-view"
COMMENT = "comment"
MAX_PAGE = 100_000
MAX_ADDRESS = 500
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_UID = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHANNEL = re.compile(r"[A-Z0-9]{1,30}", re.ASCII)
_TS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,10})?", re.ASCII)


@dataclass(frozen=True)
class Subject:
    """A plan of a run, and where it was clicked on."""

    run: str
    uid: str
    digest: str
    channel: str = ""
    ts: str = ""
    response_url: str = ""
    page: int = 0

    def dumps(self) -> str:
        named = {
            "r": self.run,
            "u": self.uid,
            "d": self.digest,
            "c": self.channel,
            "t": self.ts,
            "a": self.response_url,
            "p": self.page,
        }
        return json.dumps({name: value for name, value in named.items() if value}, separators=(",", ":"))


def loads(text: Any) -> Subject | None:
    """None: not ours."""
    try:
        data = json.loads(text) if isinstance(text, str) and len(text) <= 3000 else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    words = {name: data.get(name, "") for name in "rudcta"}
    page = data.get("p", 0)
    if not all(isinstance(word, str) for word in words.values()) or isinstance(page, bool) or not isinstance(page, int):
        return None
    if not (_NAME.fullmatch(words["r"]) and _UID.fullmatch(words["u"]) and _DIGEST.fullmatch(words["d"])):
        return None
    return Subject(
        words["r"],
        words["u"],
        words["d"],
        channel_id(words["c"]),
        message_ts(words["t"]),
        address(words["a"]),
        min(max(page, 0), MAX_PAGE),
    )


def address(text: str) -> str:
    """A response_url, which has about a hundred characters; a longer one is none, for it would not fit everywhere."""
    return text if len(text) <= MAX_ADDRESS else ""


def channel_id(text: Any) -> str:
    return text if isinstance(text, str) and _CHANNEL.fullmatch(text) else ""


def message_ts(text: Any) -> str:
    return text if isinstance(text, str) and _TS.fullmatch(text) else ""
