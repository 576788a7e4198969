"""The methods of the Web API that an app for approvals needs, as Slack answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taintctl.sandbox.slack.blocks import Refused, check_message, check_view
from taintctl.sandbox.slack.people import BOT_ID, BOT_USER, TEAM, Channel, Message

if TYPE_CHECKING:
    from taintctl.sandbox.slack.server import FakeSlack

Arguments = dict[str, Any]
Method = Callable[["FakeSlack", Arguments], Arguments]
MAX_MESSAGES = 10_000
SCOPES = {
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.postEphemeral": "chat:write",
    "users.info": "users:read",
    "usergroups.list": "usergroups:read",
    "usergroups.users.list": "usergroups:read",
    "conversations.history": "channels:history",
}


def auth_test(_: FakeSlack, __: Arguments) -> Arguments:
    return {"team_id": TEAM, "team": "Sandbox", "user_id": BOT_USER, "bot_id": BOT_ID, "user": "taintctl"}


def connections_open(slack: FakeSlack, _: Arguments) -> Arguments:
    return {"url": slack.socket_url()}


def post_message(slack: FakeSlack, given: Arguments) -> Arguments:
    channel = _channel(slack, given)
    message = _message(channel, slack.next_ts(), given)
    if len(channel.messages) >= MAX_MESSAGES:
        raise Refused("message_limit_exceeded")
    channel.messages.append(message)
    slack.record("posted", channel, message)
    return {"channel": channel.id, "ts": message.ts}


def update(slack: FakeSlack, given: Arguments) -> Arguments:
    channel = _channel(slack, given)
    old = next((m for m in channel.messages if m.ts == given.get("ts")), None)
    if old is None:
        raise Refused("message_not_found")
    new = _message(channel, old.ts, given)
    old.text, old.blocks, old.edits = new.text, new.blocks, old.edits + 1
    slack.record("updated", channel, old)
    return {"channel": channel.id, "ts": old.ts}


def post_ephemeral(slack: FakeSlack, given: Arguments) -> Arguments:
    channel = _channel(slack, given)
    if given.get("user") not in slack.users:
        raise Refused("user_not_in_channel")
    message = _message(channel, slack.next_ts(), given)
    message.to = given["user"]
    channel.ephemeral.append(message)
    del channel.ephemeral[:-MAX_MESSAGES]
    slack.record("told", channel, message)
    return {"message_ts": message.ts}


def views_open(slack: FakeSlack, given: Arguments) -> Arguments:
    check_view(given.get("view"))
    user = slack.use_trigger(str(given.get("trigger_id", "")))
    view = slack.add_view(user, given["view"])
    return {"view": {"id": view.id, **view.view}}


def views_update(slack: FakeSlack, given: Arguments) -> Arguments:
    check_view(given.get("view"))
    view = slack.views.get(str(given.get("view_id", "")))
    if view is None:
        raise Refused("not_found")
    view.trail.append(view.view)
    view.view = given["view"]
    return {"view": {"id": view.id, **view.view}}


def users_info(slack: FakeSlack, given: Arguments) -> Arguments:
    user = slack.users.get(str(given.get("user", "")))
    if user is None:
        raise Refused("user_not_found")
    info = user.info()
    if "users:read.email" not in slack.scopes:
        del info["profile"]["email"]
    return {"user": info}


def usergroups_list(slack: FakeSlack, _: Arguments) -> Arguments:
    return {"usergroups": [{"id": g.id, "handle": g.handle, "team_id": TEAM} for g in slack.groups.values()]}


def usergroups_users(slack: FakeSlack, given: Arguments) -> Arguments:
    group = slack.groups.get(str(given.get("usergroup", "")))
    if group is None:
        raise Refused("no_such_subteam")
    return {"users": list(group.users)}


def history(slack: FakeSlack, given: Arguments) -> Arguments:
    """Newest first, in pages."""
    channel = _channel(slack, given)
    found = [m for m in reversed(channel.messages) if float(m.ts) > float(given.get("oldest", 0)) and not m.thread_ts]
    start, limit = int(given.get("cursor") or 0), min(int(given.get("limit", 100)), 999)
    page = found[start : start + limit]
    more = str(start + limit) if start + limit < len(found) else ""
    metadata = str(given.get("include_all_metadata", "")) in ("1", "true", "True")
    return {
        "messages": [m.as_history(metadata=metadata) for m in page],
        "has_more": bool(more),
        "response_metadata": {"next_cursor": more},
    }


def _channel(slack: FakeSlack, given: Arguments) -> Channel:
    channel = slack.channels.get(str(given.get("channel", "")))
    if channel is None:
        raise Refused("channel_not_found")
    if not channel.member:
        raise Refused("not_in_channel")
    if channel.archived:
        raise Refused("is_archived")
    return channel


def _message(channel: Channel, ts: str, given: Arguments) -> Message:
    text, blocks = given.get("text", ""), given.get("blocks", [])
    if not text and not blocks:
        raise Refused("no_text")
    if len(text) > 40_000:
        raise Refused("msg_too_long")
    if blocks:
        check_message(blocks)
    thread = given.get("thread_ts", "")
    if thread and all(m.ts != thread for m in channel.messages):
        raise Refused("thread_not_found")
    return Message(channel.id, ts, text, blocks, thread, given.get("metadata"))


METHODS: dict[str, Method] = {
    "auth.test": auth_test,
    "apps.connections.open": connections_open,
    "chat.postMessage": post_message,
    "chat.update": update,
    "chat.postEphemeral": post_ephemeral,
    "views.open": views_open,
    "views.update": views_update,
    "users.info": users_info,
    "usergroups.list": usergroups_list,
    "usergroups.users.list": usergroups_users,
    "conversations.history": history,
}
