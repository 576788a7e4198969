"""What Slack's server refuses of blocks and views, by its documentation (docs.slack.dev, Block Kit reference)."""

from __future__ import annotations

import json
import re
from typing import Any

MESSAGE, MODAL = 50, 100
MESSAGE_CHARACTERS = 13_000
"""Of all blocks of a message: msg_blocks_too_long beyond."""
_LINK = re.compile(r"<([^<>]*)>")


class Refused(Exception):
    """Slack's word, and what is wrong, as response_metadata.messages has it."""

    def __init__(self, code: str, *messages: str) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages


def check_message(blocks: Any) -> None:
    _check(blocks, MESSAGE)
    if len(json.dumps(blocks, ensure_ascii=False)) > MESSAGE_CHARACTERS:
        raise Refused("msg_blocks_too_long")


def check_view(view: Any) -> None:
    if not isinstance(view, dict) or view.get("type") != "modal":
        raise Refused("invalid_arguments", "view")
    _text(view.get("title"), 24, "title", kind="plain_text")
    for name in ("submit", "close"):
        if name in view:
            _text(view[name], 24, name, kind="plain_text")
    for name, most in (("private_metadata", 3000), ("callback_id", 255)):
        if len(view.get(name, "")) > most:
            raise Refused("invalid_arguments", f"{name} must be at most {most} characters")
    _check(view.get("blocks"), MODAL)
    if any(block["type"] == "input" for block in view["blocks"]) and "submit" not in view:
        raise Refused("invalid_arguments", "submit is needed with an input")


def _check(blocks: Any, most: int) -> None:
    if not isinstance(blocks, list) or not 0 < len(blocks) <= most:
        raise Refused("invalid_blocks", f"1 to {most} blocks")
    ids: set[str] = set()
    for place, block in enumerate(blocks):
        name = block.get("block_id", f"#{place}")
        if name in ids or len(name) > 255:
            raise Refused("invalid_blocks", f"/{place}/block_id")
        ids.add(name)
        _block(block, f"/{place}")


def _block(block: dict[str, Any], at: str) -> None:
    match block.get("type"):
        case "header":
            _text(block.get("text"), 150, at, kind="plain_text")
        case "section":
            if "text" in block:
                _text(block["text"], 3000, at)
            fields = block.get("fields", [])
            if len(fields) > 10 or not ("text" in block or fields):
                raise Refused("invalid_blocks", f"{at}/fields")
            for one in fields:
                _text(one, 2000, f"{at}/fields")
        case "context":
            if not 0 < len(block.get("elements", ())) <= 10:
                raise Refused("invalid_blocks", f"{at}/elements")
            for one in block["elements"]:
                _text(one, 3000, f"{at}/elements")
        case "actions":
            elements = block.get("elements", [])
            if not 0 < len(elements) <= 25 or len({one.get("action_id") for one in elements}) < len(elements):
                raise Refused("invalid_blocks", f"{at}/elements")
            for one in elements:
                _button(one, f"{at}/elements")
        case "input":
            _text(block.get("label"), 2000, f"{at}/label", kind="plain_text")
            if "hint" in block:
                _text(block["hint"], 2000, f"{at}/hint", kind="plain_text")
            element = block.get("element", {})
            if element.get("type") != "plain_text_input" or not 0 < element.get("max_length", 3000) <= 3000:
                raise Refused("invalid_blocks", f"{at}/element")
            if "placeholder" in element:
                _text(element["placeholder"], 150, f"{at}/placeholder", kind="plain_text")
        case "divider":
            pass
        case _:
            raise Refused("invalid_blocks", f"{at}/type")


def _button(button: dict[str, Any], at: str) -> None:
    if button.get("type") != "button" or not 0 < len(button.get("action_id", "-")) <= 255:
        raise Refused("invalid_blocks", at)
    _text(button.get("text"), 75, f"{at}/text", kind="plain_text")
    if len(button.get("value", "")) > 2000 or button.get("style", "primary") not in ("primary", "danger"):
        raise Refused("invalid_blocks", f"{at}/value")
    if "confirm" in button:
        for name, most in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
            _text(button["confirm"].get(name), most, f"{at}/confirm/{name}")


def _text(text: Any, most: int, at: str, *, kind: str = "") -> None:
    if not isinstance(text, dict) or text.get("type") not in ((kind,) if kind else ("plain_text", "mrkdwn")):
        raise Refused("invalid_blocks", f"{at}: no text object")
    words = text.get("text")
    if not isinstance(words, str) or not 0 < len(words) <= most:
        raise Refused("invalid_blocks", f"{at}: must be 1 to {most} characters")


def shown(text: dict[str, Any]) -> str:
    """As somebody reads it: dates as their fallback, entities as characters."""
    words = str(text.get("text", ""))
    if text.get("type") == "mrkdwn":
        words = _LINK.sub(lambda link: link[1].rpartition("|")[2], words)
    return unescaped(words)


def unescaped(words: str) -> str:
    return words.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def mentions(words: str) -> list[str]:
    """What of a mrkdwn text Slack would make a mention or a link (dates left out)."""
    return [inside for inside in _LINK.findall(words) if not inside.startswith("!date^")]
