"""The Chat port on Slack: one message a run, updated in place, and its thread."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timedelta
from typing import Any

from taintctl.adapters.slack.client import SlackClient
from taintctl.adapters.slack.limits import Block
from taintctl.adapters.slack.render import message
from taintctl.adapters.slack.status import Status
from taintctl.adapters.slack.text import plain
from taintctl.ports.chat import ChatError, Posted, RunView

EVENT_TYPE = "taintctl_run"
PAGES = 5
PAGE = 100
SKEW = timedelta(minutes=2)
"""How much later than Slack's our clock may be."""
REPLY = 2000
MAY_NOT_LOOK = frozenset(
    {"missing_scope", "not_in_channel", "channel_not_found", "no_permission", "not_allowed_token_type", "access_denied"}
)
CHANNEL_GONE = frozenset({"not_in_channel", "channel_not_found", "is_archived", "restricted_action"})


class SlackChat:
    def __init__(self, client: SlackClient, status: Status) -> None:
        self._client = client
        self._status = status

    def shown(self, view: RunView) -> str:
        said = json.dumps(message(view), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()[:32]

    async def post(self, channel: str, view: RunView, *, nonce: str) -> Posted:
        metadata = {"event_type": EVENT_TYPE, "event_payload": {"nonce": nonce}}
        return await self._post(channel, message(view) | {"metadata": metadata})

    async def find(self, channel: str, *, nonce: str, since: datetime) -> Posted | None:
        me = await self._client.who()
        cursor = ""
        for _ in range(PAGES):
            try:
                data = await self._client.call(
                    "conversations.history",
                    patient=True,
                    channel=channel,
                    oldest=f"{(since - SKEW).timestamp():.6f}",
                    include_all_metadata=True,
                    limit=PAGE,
                    cursor=cursor or None,
                )
            except ChatError as error:
                if error.code in MAY_NOT_LOOK:
                    return None
                raise
            for item in data.get("messages") or ():
                if _is(item, nonce, me.bot_id) and isinstance(ts := item.get("ts"), str):
                    return Posted(channel, ts)
            cursor = str((data.get("response_metadata") or {}).get("next_cursor") or "")
            if not cursor:
                break
        return None

    async def update(self, posted: Posted, view: RunView) -> None:
        await self._channel(
            "chat.update", posted.channel, ts=posted.ts, parse="none", link_names=False, **message(view)
        )

    async def reply(self, posted: Posted, text: str) -> None:
        await self._post(posted.channel, {"text": plain(text, REPLY) or "-", "thread_ts": posted.ts, "mrkdwn": False})

    async def _post(self, channel: str, arguments: Block) -> Posted:
        data = await self._channel(
            "chat.postMessage",
            channel,
            parse="none",
            link_names=False,
            unfurl_links=False,
            unfurl_media=False,
            **arguments,
        )
        where, ts = data.get("channel"), data.get("ts")
        if not isinstance(ts, str) or not ts:
            raise ChatError("Slack took the message and gave it no ts.")
        return Posted(where if isinstance(where, str) and where else channel, ts)

    async def _channel(self, method: str, channel: str, **arguments: Any) -> dict[str, Any]:
        try:
            data = await self._client.call(method, channel=channel, **arguments)
        except ChatError as error:
            if error.code in CHANNEL_GONE:
                self._status.reached(channel, works=False)
            raise
        self._status.reached(channel, works=True)
        return data


def _is(item: Any, nonce: str, bot_id: str) -> bool:
    """Ours, and with the nonce: another app of the channel could copy that."""
    if not isinstance(item, dict) or (bot_id and item.get("bot_id") != bot_id):
        return False
    metadata = item.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    return (
        isinstance(payload, dict)
        and isinstance(metadata, dict)
        and metadata.get("event_type") == EVENT_TYPE
        and payload.get("nonce") == nonce
    )
