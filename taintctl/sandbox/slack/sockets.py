"""Socket Mode's server side: tickets that are good once, hello, envelopes and their acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from typing import Any
from uuid import uuid4

from aiohttp import WSMsgType, web

MAX_SOCKETS = 10
"""As Slack allows an app."""


class Sockets:
    def __init__(self) -> None:
        self.open = asyncio.Event()
        """Whether an app is connected."""
        self.opened = 0
        """How many sockets there were."""
        self.acknowledged: dict[str, int] = {}
        """How often each envelope was."""
        self.silent = False
        """Sockets open and nothing is said, as behind a proxy that swallows frames."""
        self._tickets: set[str] = set()
        self._sockets: list[web.WebSocketResponse] = []
        self._waiting: dict[str, asyncio.Future[dict[str, Any] | None]] = {}

    def ticket(self) -> str:
        ticket = secrets.token_hex(16)
        if len(self._tickets) > 1000:
            self._tickets.clear()
        self._tickets.add(ticket)
        return ticket

    async def serve(self, request: web.Request) -> web.StreamResponse:
        ticket = request.match_info["ticket"]
        if ticket not in self._tickets or len(self._sockets) >= MAX_SOCKETS:
            return web.Response(status=408)
        self._tickets.discard(ticket)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        self.opened += 1
        try:
            if not self.silent:
                await socket.send_json({"type": "hello", "num_connections": len(self._sockets)})
                self.open.set()
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    self._acknowledge(message.data)
        finally:
            if socket in self._sockets:
                self._sockets.remove(socket)
            if not self._sockets:
                self.open.clear()
        return socket

    async def deliver(
        self, payload: dict[str, Any], *, copies: int = 1, patience: float = 3.0
    ) -> dict[str, Any] | None:
        """One envelope to one of the sockets. Raises TimeoutError where it is not acknowledged in time."""
        async with asyncio.timeout(patience):
            await self.open.wait()
        envelope = str(uuid4())
        answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()
        self._waiting[envelope] = answer
        socket = self._sockets[-1]
        try:
            for _ in range(copies):
                await socket.send_json(
                    {
                        "type": "interactive",
                        "envelope_id": envelope,
                        "payload": payload,
                        "accepts_response_payload": payload["type"] == "view_submission",
                    }
                )
            async with asyncio.timeout(patience):
                return await answer
        finally:
            del self._waiting[envelope]

    def _acknowledge(self, text: str) -> None:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            data = json.loads(text)
            envelope = data["envelope_id"]
            self.acknowledged[envelope] = self.acknowledged.get(envelope, 0) + 1
            while len(self.acknowledged) > 2000:
                del self.acknowledged[next(iter(self.acknowledged))]
            waiting = self._waiting.get(envelope)
            if waiting is not None and not waiting.done():
                waiting.set_result(data.get("payload"))

    async def drop(self) -> None:
        """As a network does: no goodbye."""
        self.open.clear()
        for socket in list(self._sockets):
            self._sockets.remove(socket)
            if socket._req is not None and socket._req.transport is not None:
                socket._req.transport.abort()

    async def refresh(self) -> None:
        """As Slack does every few hours."""
        self.open.clear()
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})

    async def close(self) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(2):
                    await socket.close()
