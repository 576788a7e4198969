"""Block Kit's pieces. Every text object is made here: mrkdwn is verbatim, so that Slack links and mentions nothing by
itself."""

from __future__ import annotations

from collections.abc import Sequence

from taintctl.adapters.slack.limits import Block


def plain_text(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


def mrkdwn(text: str) -> Block:
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def header(text: str) -> Block:
    return {"type": "header", "text": plain_text(text)}


def section(text: str) -> Block:
    return {"type": "section", "text": mrkdwn(text)}


def fields(texts: Sequence[str]) -> Block:
    return {"type": "section", "fields": [mrkdwn(text) for text in texts]}


def context(text: str) -> Block:
    return {"type": "context", "elements": [mrkdwn(text)]}


def actions(buttons: Sequence[Block]) -> Block:
    return {"type": "actions", "block_id": "taintctl", "elements": list(buttons)}


def button(action: str, text: str, value: str, *, style: str = "", confirm: Block | None = None) -> Block:
    made: Block = {"type": "button", "action_id": action, "text": plain_text(text), "value": value}
    if style:
        made["style"] = style
    if confirm is not None:
        made["confirm"] = confirm
    return made


def confirmation(title: str, text: str, yes: str, no: str) -> Block:
    return {
        "title": plain_text(title),
        "text": plain_text(text),
        "confirm": plain_text(yes),
        "deny": plain_text(no),
        "style": "danger",
    }
