"""The workspace of a story: a Slack on loopback, its people, and what they see, retold as plain text."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from taintctl.sandbox.slack.people import Channel, Message, View
from taintctl.sandbox.slack.server import FakeSlack
from taintctl.sandbox.slack.transcript import body

CHANNEL, CHANNEL_NAME = "C0GPUMAINT", "gpu-maintenance"
GROUP, GROUP_NAME = "S0GPUDUTY", "gpu-duty"
OLGA, ADA = "U0OLGAOPS", "U0ADADUTY"
"""The operator and the approver, by their ids in Slack; only Ada is in the group."""
MOST_LINES, MOST_CHARACTERS = 40, 600
"""Of one message, as the story retells it."""
OURS = ("SLACK_", "TAINTCTL_WEBHOOK_")
"""Variables that the demo's controller takes from the demo alone, never from whoever runs it."""


def installed() -> bool:
    """Whether the controller could speak to a Slack here: slack-sdk is an extra."""
    return importlib.util.find_spec("slack_sdk") is not None


@dataclass(frozen=True)
class Workspace:
    """#gpu-maintenance, Olga and Ada."""

    server: FakeSlack
    channel: Channel

    @property
    def message(self) -> Message | None:
        """The one message of the story's run."""
        return next((one for one in self.channel.messages if not one.thread_ts), None)

    @property
    def thread(self) -> list[Message]:
        return [one for one in self.channel.messages if one.thread_ts]

    @property
    def view(self) -> View | None:
        """The window that was opened last."""
        return list(self.server.views.values())[-1] if self.server.views else None

    def only_to(self, user: str) -> list[Message]:
        return [one for one in self.channel.ephemeral if one.to == user]


def seen(message: Message) -> list[str]:
    """The message as its reader sees it, of bounded length, without the marks of bold and code."""
    lines = [line.replace("*", "").replace("`", "")[:MOST_CHARACTERS] for line in body(message) if line.strip()]
    more = len(lines) - MOST_LINES
    return lines if more <= 0 else [*lines[:MOST_LINES], f"… and {more} lines more"]


def surroundings(workspace: Workspace | None) -> dict[str, str]:
    """The environment of the story's controller."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    if workspace is None:
        return kept
    server = workspace.server
    return {**kept, "SLACK_BOT_TOKEN": server.bot_token, "SLACK_APP_TOKEN": server.app_token}


@asynccontextmanager
async def workspace() -> AsyncIterator[Workspace]:
    server = FakeSlack()
    await server.start()
    try:
        server.add_user(OLGA, "Olga", email="olga@example.com")
        server.add_user(ADA, "Ada", email="ada@example.com")
        server.add_group(GROUP, GROUP_NAME, ADA)
        yield Workspace(server, server.add_channel(CHANNEL, CHANNEL_NAME))
    finally:
        await server.stop()
