"""Sentences of bounded length."""

from __future__ import annotations

from collections.abc import Sequence

MESSAGE_MAX = 2048
"""status.message."""
SENTENCE_MAX = 1024
"""A condition's or an ending's message."""
EVENT_MAX = 1000
"""An event's message; the API server takes 1024 bytes (core/v1 Event)."""
NAMED = 3


def short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def some(names: Sequence[str], limit: int = NAMED) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def plural(count: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
