"""The Slack app as the controller holds it: one object for the messages, the clicks and the connection."""

from __future__ import annotations

import logging
from datetime import timedelta

from aiohttp import web

from taintctl.adapters.slack.chat import SlackChat
from taintctl.adapters.slack.client import SLACK_API, TIMEOUT, SlackClient
from taintctl.adapters.slack.http import interactions_app
from taintctl.adapters.slack.identity import Identity
from taintctl.adapters.slack.interactions import Interactions
from taintctl.adapters.slack.socket import SocketMode
from taintctl.adapters.slack.status import Status
from taintctl.adapters.slack.tokens import SlackTokens
from taintctl.ports.chat import ChatError, ChatState, Desk
from taintctl.ports.clock import Clock

log = logging.getLogger(__name__)
CHECK_AGAIN = timedelta(minutes=1)


class SlackApp:
    """`chat` posts and follows; `run` lives as long as the controller; with a signing secret `web_app` takes clicks
    over HTTP. With an app-level token clicks come through a websocket that `run` keeps open (Socket Mode)."""

    def __init__(
        self, tokens: SlackTokens, desk: Desk, clock: Clock, *, base_url: str = SLACK_API, timeout: timedelta = TIMEOUT
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._client = SlackClient(tokens, clock, base_url=base_url, timeout=timeout)
        self._status = Status(clock)
        self.chat = SlackChat(self._client, self._status)
        self._interactions = Interactions(self._client, Identity(self._client), desk)

    def state(self) -> ChatState:
        return self._status.state()

    def web_app(self) -> web.Application:
        """POST /slack/interactions, to be served or mounted. Raises ValueError without a signing secret."""
        if not self._tokens.signing_secret:
            raise ValueError("Slack over HTTP needs SLACK_SIGNING_SECRET.")
        return interactions_app(self._tokens.signing_secret, self._interactions, self._clock)

    async def run(self) -> None:
        """Until it is cancelled: Socket Mode where there is an app-level token; else it only looks whether the bot's
        token works. Never raises for what Slack does."""
        try:
            if self._tokens.app:
                await SocketMode(self._client, self._interactions, self._status, self._clock).run()
            else:
                await self._watch()
        finally:
            await self._interactions.stop()
            self._status.down("stopped")

    async def _watch(self) -> None:
        while True:
            try:
                await self._client.call("auth.test")
                self._status.up()
            except ChatError as error:
                if self._status.down(error.message):
                    log.warning("Slack: %s", error.message)
            await self._clock.sleep(CHECK_AGAIN.total_seconds())

    async def drain(self) -> None:
        """Waits until every click that was taken is dealt with (tests, the demo)."""
        await self._interactions.drain()
