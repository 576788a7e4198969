"""Slack's error words as sentences with the next step."""

from __future__ import annotations

from taintctl.adapters.slack.text import redact
from taintctl.api.text import one_line

NEXT = {
    "not_in_channel": "The app is not in the channel: write /invite @taintctl in it.",
    "channel_not_found": "Slack knows no such channel, or the app is not in it (private channels): check the id in the "
    "policy's notifications.slack.channel and write /invite @taintctl in the channel.",
    "is_archived": "The channel is archived: name another one in the policy's notifications.slack.channel.",
    "invalid_auth": "Slack does not know the token: put the app's present token into SLACK_BOT_TOKEN (or "
    "SLACK_APP_TOKEN) and restart the controller.",
    "not_authed": "Slack got no token: set SLACK_BOT_TOKEN and restart the controller.",
    "token_revoked": "The token was revoked: install the app again and put its new token into SLACK_BOT_TOKEN.",
    "token_expired": "The token has expired: put a new one into SLACK_BOT_TOKEN, and turn token rotation off.",
    "account_inactive": "The app was removed from the workspace: install it again and put its new token into "
    "SLACK_BOT_TOKEN.",
    "missing_scope": "The app lacks a scope: compare its scopes with deploy/slack/manifest.yaml and install it again.",
    "msg_too_long": "Slack finds the message too long; look at the run with taintctl status.",
    "msg_blocks_too_long": "Slack finds the message too long; look at the run with taintctl status.",
    "invalid_blocks": "Slack refuses the message's form; look at the run with taintctl status, and report this.",
    "internal_error": "Slack has an error of its own; it is tried again.",
    "fatal_error": "Slack has an error of its own; it is tried again.",
    "service_unavailable": "Slack is out of order; it is tried again.",
    "request_timeout": "Slack got only part of the call; it is tried again.",
    "ratelimited": "Slack asks to wait.",
    "message_not_found": "The message is gone from the channel.",
    "cant_update_message": "The message is not this app's: another token wrote it.",
    "restricted_action": "The workspace's settings do not let the app post in the channel: ask its administrators.",
    "not_allowed_token_type": "Slack refuses this kind of token: SLACK_APP_TOKEN is an app-level token with "
    "connections:write, SLACK_BOT_TOKEN a bot token.",
    "expired_trigger_id": "The click was too long ago for a window to open: click once more.",
}
UNREACHABLE = "Slack does not answer: check the network from the controller to slack.com, or a proxy."


def sentence(method: str, code: str) -> str:
    """One sentence on what Slack said to `method`, with the next step."""
    word = redact(one_line(code, 80)) or "nothing"
    known = NEXT.get(code, "Its meaning is on the method's page at docs.slack.dev.")
    return f"Slack answers {word} to {method}. {known}"
