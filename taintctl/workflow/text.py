"""Sentences of bounded length."""

from __future__ import annotations

from collections.abc import Sequence

from taintctl.api.text import some

MESSAGE_MAX = 2048
"""status.message."""
SENTENCE_MAX = 1024
"""A condition's or an ending's message."""
EVENT_MAX = 1000
"""An event's message; the API server takes 1024 bytes (core/v1 Event)."""


def short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def others_first(runs: Sequence[str]) -> str:
    """Why a run waits for other runs."""
    have, they = ("has", "that one has") if len(runs) == 1 else ("have", "those have")
    return f"{some(runs)} {have} a device of this run's target; this run waits until {they} ended."
