"""What happened in a channel, as plain text: for a demo to show and a test to read."""

from __future__ import annotations

from taintctl.sandbox.slack.blocks import shown, unescaped
from taintctl.sandbox.slack.people import Channel, Message

WORDS = {"posted": "", "updated": " (edited)", "told": ""}


def entry(what: str, channel: Channel, message: Message, *, to: str = "") -> str:
    """One thing that somebody in the channel sees."""
    head = f"#{channel.name}  taintctl{WORDS[what]}"
    if message.thread_ts:
        head += " in the thread"
    if to:
        head += f", only to {to}"
    return "\n".join([head, *(f"    {line}" for line in body(message))])


def body(message: Message) -> list[str]:
    if not message.blocks:
        return unescaped(message.text).splitlines()
    lines: list[str] = []
    for block in message.blocks:
        match block["type"]:
            case "header" | "section" if "text" in block:
                lines += shown(block["text"]).splitlines()
            case "section":
                lines += [": ".join(shown(field).split("\n", 1)) for field in block["fields"]]
            case "context":
                lines += [shown(one) for one in block["elements"]]
            case "actions":
                lines.append("  ".join(f"[ {shown(one['text'])} ]" for one in block["elements"]))
            case "divider":
                lines.append("---")
    return lines
