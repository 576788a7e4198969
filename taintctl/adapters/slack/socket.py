"""Socket Mode: a websocket to Slack, opened anew whenever it is lost, with growing waits while that fails."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from datetime import timedelta
from typing import Any

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from taintctl.adapters.slack.client import SlackClient, silent_logger
from taintctl.adapters.slack.interactions import Busy, Interactions
from taintctl.adapters.slack.status import Status
from taintctl.ports.chat import ChatError
from taintctl.ports.clock import Clock

log = logging.getLogger(__name__)
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
OPENING = 20.0
"""Seconds in which a socket must be open and have said hello."""
CLOSING = 5.0
PING = 5.0
SETTLED = timedelta(seconds=30)
LOST = "Slack's socket was lost; it is opened again."


class _Socket(SocketModeClient):
    """The library notices that a socket is lost or to be replaced; a new one is made by us, since the library tries one
    address for ever, without growing waits, and that address is good once."""

    def __init__(self, client: SlackClient, ping: float) -> None:
        super().__init__("", logger=silent_logger(), web_client=client.web, ping_interval=ping)
        self.proxy = client.web.proxy
        self.hello = asyncio.Event()
        self.lost = asyncio.Event()
        self.message_listeners.append(self._listen)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        self.lost.set()

    async def _listen(self, _: AsyncBaseSocketModeClient, message: dict[str, Any], __: str | None = None) -> None:
        if message.get("type") == "hello":
            self.hello.set()


class SocketMode:
    def __init__(self, client: SlackClient, interactions: Interactions, status: Status, clock: Clock) -> None:
        self._client = client
        self._interactions = interactions
        self._status = status
        self._clock = clock

    async def run(self) -> None:
        wait = FIRST_WAIT
        while True:
            try:
                await self._client.who()
                opened = self._clock.now()
                await self._session(await self._client.open_socket())
                if self._clock.now() - opened > self._clock.scaled(SETTLED):
                    wait = FIRST_WAIT
                    continue  # Slack replaces sockets every few hours: no wait
                asked = 0.0  # one that is closed as soon as it is open is no better than none
            except ChatError as error:
                if self._status.down(error.message):
                    log.warning("Slack: %s", error.message)
                asked = error.retry_after.total_seconds() if error.retry_after else 0.0
            await self._clock.sleep(max(asked, wait * random.uniform(0.8, 1.2)))  # noqa: S311 (spreads, hides nothing)
            wait = min(wait * 2, LONGEST_WAIT)

    async def _session(self, url: str) -> None:
        """From one socket's hello to its end. Raises ChatError where it said no hello."""
        socket = _Socket(self._client, max(1.0, PING / self._clock.speed))
        socket.socket_mode_request_listeners.append(self._take)
        socket.wss_uri = url
        try:
            try:
                async with asyncio.timeout(OPENING):
                    await socket.connect()  # type: ignore[no-untyped-call]
                    await socket.hello.wait()
            except TimeoutError:
                raise ChatError("Slack's socket can't be opened: check the network to wss-primary.slack.com.") from None
            if self._status.up():
                log.info("Slack: connected.")
            await socket.lost.wait()
            self._status.down(LOST)
        finally:
            with contextlib.suppress(aiohttp.ClientError, SlackClientError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await socket.close()  # type: ignore[no-untyped-call]

    async def _take(self, socket: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Acknowledged first; what could not be acknowledged is not done, and may be delivered again."""
        try:
            if request.type != "interactive":
                await socket.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
                return
            taken = self._interactions.take(request.payload, request.envelope_id)
        except (Busy, aiohttp.ClientError, OSError):
            return
        try:
            await socket.send_socket_mode_response(SocketModeResponse(request.envelope_id, taken.ack))
        except (aiohttp.ClientError, OSError):
            taken.forget()
            return
        taken.start()
