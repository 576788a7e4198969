"""What the workflow needs to tell any other receiver of a run's changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Webhook(Protocol):
    async def send(self, url: str, event: Mapping[str, Any]) -> None:
        """Posts the event, signed, once. Raises ports.chat.ChatError, which names neither the path nor the key."""
        ...
