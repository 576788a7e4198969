"""A chat in memory that can be broken."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from taintctl.ports.chat import ChatError, Posted, RunView


class FakeChat:
    """Messages with what they show, and their threads. `fails` is raised by every call, or by those named."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[str, Any]] = {}
        self.fails: ChatError | None = None
        self.only: tuple[str, ...] = ()
        self.calls: list[str] = []
        self.answers_lost = False
        """Posts arrive, and their answer does not."""

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails is not None and (not self.only or name in self.only):
            raise self.fails

    def shown(self, view: RunView) -> str:
        approval = view.run.status.approval
        given = len(approval.given) if approval is not None else 0
        return f"{view.run.status.phase} {given}"

    async def post(self, channel: str, view: RunView, *, nonce: str) -> Posted:
        self._call("post")
        ts = f"1764622800.{len(self.messages):06}"
        self.messages[ts] = {"channel": channel, "nonce": nonce, "shown": self.shown(view), "thread": []}
        if self.answers_lost:
            raise ChatError("Slack did not answer")
        return Posted(channel, ts)

    async def find(self, channel: str, *, nonce: str, since: datetime) -> Posted | None:
        self._call("find")
        found = [ts for ts, m in self.messages.items() if (m["channel"], m["nonce"]) == (channel, nonce)]
        return Posted(channel, found[0]) if found else None

    async def update(self, posted: Posted, view: RunView) -> None:
        self._call("update")
        self.messages[posted.ts]["shown"] = self.shown(view)

    async def reply(self, posted: Posted, text: str) -> None:
        self._call("reply")
        self.messages[posted.ts]["thread"].append(text)


class FakeHook:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.fails: ChatError | None = None

    async def send(self, url: str, event: Mapping[str, Any]) -> None:
        self.sent.append((url, event))
        if self.fails is not None:
            raise self.fails
