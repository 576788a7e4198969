"""The parts of Slack's interaction payloads that count, read strictly: what has another form is nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from taintctl.adapters.slack import value
from taintctl.adapters.slack.value import Subject, address, channel_id, loads, message_ts

MAX_COMMENT = 1000


@dataclass(frozen=True)
class Act:
    """A button."""

    action: str
    subject: Subject
    user_id: str
    team_id: str
    """The person's workspace, by the envelope."""
    trigger_id: str
    view_id: str = ""
    """The window that the button is in; empty for a message."""


@dataclass(frozen=True)
class Submit:
    """The window that asks why, sent."""

    comment: str
    subject: Subject
    user_id: str
    team_id: str
    trigger_id: str


def read(payload: Any) -> Act | Submit | None:
    user_id = _text(payload, "user", "id")
    if not user_id:
        return None
    team_id = _text(payload, "user", "team_id") or _text(payload, "team", "id")
    trigger_id = _text(payload, "trigger_id")
    match payload.get("type"):
        case "block_actions":
            action = payload.get("actions")
            first = action[0] if isinstance(action, list) and action else None
            subject = loads(_text(first, "value"))
            if subject is None:
                return None
            channel = channel_id(_text(payload, "container", "channel_id"))
            if channel:  # where the message is, by the server; a window's buttons have it from their value
                subject = replace(
                    subject,
                    channel=channel,
                    ts=message_ts(_text(payload, "container", "message_ts")),
                    response_url=address(_text(payload, "response_url")),
                )
            view_id = "" if channel else _text(payload, "container", "view_id") or _text(payload, "view", "id")
            return Act(_text(first, "action_id"), subject, user_id, team_id, trigger_id, view_id)
        case "view_submission" if _text(payload, "view", "callback_id") == value.DENY_VIEW:
            subject = loads(_text(payload, "view", "private_metadata"))
            if subject is None:
                return None
            comment = _text(payload, "view", "state", "values", value.COMMENT, value.COMMENT, "value")
            return Submit(comment[:MAX_COMMENT], subject, user_id, team_id, trigger_id)
    return None


def _text(data: Any, *path: str) -> str:
    """The string at `path`; empty where there is none."""
    for name in path:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""
