"""Sentences of bounded length."""

from __future__ import annotations

MESSAGE_MAX = 2048
"""status.message."""
SENTENCE_MAX = 1024
"""A condition's or an ending's message."""
EVENT_MAX = 1000
"""An event's message; the API server takes 1024 bytes (core/v1 Event)."""


def short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
