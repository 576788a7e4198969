"""Who is in the workspace, and what was said there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TEAM = "T0SANDBOX"
OTHER_TEAM = "T0ELSEWHERE"
BOT_USER, BOT_ID = "U0TAINTCTL", "B0TAINTCTL"


@dataclass
class User:
    id: str
    name: str
    email: str = ""
    team_id: str = TEAM
    is_bot: bool = False
    deleted: bool = False

    def info(self) -> dict[str, Any]:
        """As users.info has it."""
        return {
            "id": self.id,
            "team_id": self.team_id,
            "name": self.name,
            "deleted": self.deleted,
            "is_bot": self.is_bot,
            "is_stranger": self.team_id != TEAM,
            "is_email_confirmed": True,
            "profile": {"display_name": self.name, "real_name": self.name, "email": self.email},
        }


@dataclass
class Group:
    id: str
    handle: str
    users: list[str] = field(default_factory=list)


@dataclass
class Message:
    channel: str
    ts: str
    text: str
    blocks: list[dict[str, Any]] = field(default_factory=list)
    thread_ts: str = ""
    metadata: dict[str, Any] | None = None
    user: str = BOT_USER
    to: str = ""
    """Of an ephemeral message: who sees it."""
    edits: int = 0

    def buttons(self) -> list[dict[str, Any]]:
        return buttons(self.blocks)

    def as_history(self, *, metadata: bool) -> dict[str, Any]:
        made: dict[str, Any] = {
            "type": "message",
            "ts": self.ts,
            "text": self.text,
            "user": self.user,
            "bot_id": BOT_ID if self.user == BOT_USER else "",
            "blocks": self.blocks,
        }
        if metadata and self.metadata:
            made["metadata"] = self.metadata
        return made


@dataclass
class View:
    id: str
    user: str
    view: dict[str, Any]
    trail: list[dict[str, Any]] = field(default_factory=list)
    """What it showed before."""

    def buttons(self) -> list[dict[str, Any]]:
        return buttons(self.view["blocks"])


def buttons(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for block in blocks if block["type"] == "actions" for one in block["elements"]]


@dataclass
class Channel:
    id: str
    name: str
    member: bool = True
    archived: bool = False
    messages: list[Message] = field(default_factory=list)
    ephemeral: list[Message] = field(default_factory=list)
