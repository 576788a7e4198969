from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from taintctl.adapters.slack.app import SlackApp
from taintctl.adapters.slack.tokens import SlackTokens
from taintctl.ports.chat import Posted, RunView
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.slack.people import OTHER_TEAM, Channel, Message
from taintctl.sandbox.slack.server import FakeSlack
from tests.slack.runs import FakeDesk, view

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"

CHANNEL = "C0123456789"


async def post(stage: Any, shown: RunView | None = None, nonce: str = "n-1") -> Posted:
    return await stage.app.chat.post(CHANNEL, shown or view(), nonce=nonce)


async def until(true: Callable[[], bool]) -> None:
    """Another side's doing, over real sockets."""
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@dataclass
class Stage:
    """The real app against the fake Slack, over loopback sockets."""

    slack: FakeSlack
    app: SlackApp
    desk: FakeDesk
    channel: Channel
    clock: SystemClock
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def connect(self) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(self.app.run()))
        await self.connected()

    async def connected(self) -> None:
        """Both sides know of the socket."""
        await self.slack.connected()
        await until(lambda: self.app.state().connected)

    async def click(self, user: str, text: str, *, copies: int = 1) -> None:
        await self.slack.click(user, self.message, text, copies=copies)
        await self.app.drain()

    @property
    def message(self) -> Message:
        return next(m for m in reversed(self.channel.messages) if not m.thread_ts)

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(message.to, message.text) for message in self.channel.ephemeral]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    slack = FakeSlack()
    await slack.start()
    slack.add_user("U0ALICE", "alice", email="alice@example.com")
    slack.add_user("U0BOB", "bob", email="bob@example.com")
    slack.add_user("U0EVE", "eve", email="alice@example.com", team_id=OTHER_TEAM)
    channel = slack.add_channel(CHANNEL, "gpu-ops")
    desk, clock = FakeDesk(), SystemClock(speed=20)
    tokens = SlackTokens(slack.bot_token, slack.app_token, SECRET)
    app = SlackApp(tokens, desk, clock, base_url=slack.api_url, timeout=timedelta(seconds=5))
    made = Stage(slack, app, desk, channel, clock)
    yield made
    for task in made.tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await slack.stop()
