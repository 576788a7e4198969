"""What Slack takes (docs.slack.dev, Block Kit reference and the methods' pages), and a check of what we render."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Block = dict[str, Any]

MESSAGE_BLOCKS = 50
MODAL_BLOCKS = 100
MESSAGE_SIZE = 12_000
"""Of all blocks as JSON. Slack says nothing of a sum and answers msg_blocks_too_long from about 13,000 on."""
MESSAGE_TEXT = 4000
SECTION_TEXT = 3000
FIELDS = 10
FIELD_TEXT = 2000
HEADER_TEXT = 150
CONTEXT_ELEMENTS = 10
ACTIONS = 25
BUTTON_TEXT = 75
BUTTON_VALUE = 2000
ACTION_ID = 255
BLOCK_ID = 255
CONFIRM_TITLE = 100
CONFIRM_TEXT = 300
CONFIRM_BUTTON = 30
MODAL_TITLE = 24
MODAL_BUTTON = 24
CALLBACK_ID = 255
PRIVATE_METADATA = 3000
LABEL = 2000
HINT = 2000
PLACEHOLDER = 150
INPUT = 3000


def size(blocks: list[Block]) -> int:
    return len(json.dumps(blocks, ensure_ascii=False))


def message_problems(message: Block) -> list[str]:
    """What Slack would refuse of the arguments of chat.postMessage; empty where nothing."""
    blocks = message["blocks"]
    found = list(_blocks(blocks, MESSAGE_BLOCKS))
    if size(blocks) > MESSAGE_SIZE:
        found.append(f"the blocks have {size(blocks)} characters")
    return found + list(_long("text", message["text"], MESSAGE_TEXT))


def modal_problems(view: Block) -> list[str]:
    """What Slack would refuse of a view."""
    found = list(_blocks(view["blocks"], MODAL_BLOCKS))
    for name, limit in (("title", MODAL_TITLE), ("submit", MODAL_BUTTON), ("close", MODAL_BUTTON)):
        found += _long(name, view.get(name, {"text": "-"})["text"], limit)
    found += _long("private_metadata", view.get("private_metadata") or "-", PRIVATE_METADATA)
    found += _long("callback_id", view.get("callback_id") or "-", CALLBACK_ID)
    if any(block["type"] == "input" for block in view["blocks"]) and "submit" not in view:
        found.append("a modal with an input has no submit")
    return found


def _blocks(blocks: list[Block], most: int) -> Iterator[str]:
    if not 0 < len(blocks) <= most:
        yield f"{len(blocks)} blocks"
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    if len(ids) != len(set(ids)):
        yield "a block_id twice"
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    yield from _long("block_id", block.get("block_id", "-"), BLOCK_ID)
    match block["type"]:
        case "header":
            yield from _long("header", block["text"]["text"], HEADER_TEXT)
        case "section":
            if "text" in block:
                yield from _long("section", block["text"]["text"], SECTION_TEXT)
            elif not 0 < len(block.get("fields", ())) <= FIELDS:
                yield "a section with neither text nor 1 to 10 fields"
            for one in block.get("fields", ()):
                yield from _long("field", one["text"], FIELD_TEXT)
        case "context":
            if not 0 < len(block["elements"]) <= CONTEXT_ELEMENTS:
                yield "context elements"
            for one in block["elements"]:
                yield from _long("context", one["text"], SECTION_TEXT)
        case "actions":
            if not 0 < len(block["elements"]) <= ACTIONS:
                yield "actions"
            ids = [one["action_id"] for one in block["elements"]]
            if len(ids) != len(set(ids)):
                yield "an action_id twice"
            for one in block["elements"]:
                yield from _button(one)
        case "input":
            yield from _long("label", block["label"]["text"], LABEL)
            yield from _long("hint", block.get("hint", {"text": "-"})["text"], HINT)
            yield from _long("placeholder", block["element"].get("placeholder", {"text": "-"})["text"], PLACEHOLDER)
            if not 0 < block["element"].get("max_length", INPUT) <= INPUT:
                yield "max_length"
        case "divider":
            pass
        case other:
            yield f"a block of type {other}"


def _button(button: Block) -> Iterator[str]:
    yield from _long("button", button["text"]["text"], BUTTON_TEXT)
    yield from _long("value", button.get("value", "-"), BUTTON_VALUE)
    yield from _long("action_id", button["action_id"], ACTION_ID)
    if button.get("style", "primary") not in ("primary", "danger"):
        yield f"style {button['style']}"
    if confirm := button.get("confirm"):
        yield from _long("confirm.title", confirm["title"]["text"], CONFIRM_TITLE)
        yield from _long("confirm.text", confirm["text"]["text"], CONFIRM_TEXT)
        yield from _long("confirm.confirm", confirm["confirm"]["text"], CONFIRM_BUTTON)
        yield from _long("confirm.deny", confirm["deny"]["text"], CONFIRM_BUTTON)


def _long(what: str, text: str, most: int) -> Iterator[str]:
    if not 0 < len(text) <= most:
        yield f"{what} has {len(text)} characters; 1 to {most} are taken"
