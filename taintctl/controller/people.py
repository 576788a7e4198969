"""Slack and the webhook as the controller runs them: beside its work, and only while it holds the lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from taintctl.adapters.webhook import HttpWebhook, WebhookKey
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cache, Cluster
from taintctl.reconcile.announce import Announcer
from taintctl.reconcile.desk import ApprovalDesk
from taintctl.reconcile.gather import Reader
from taintctl.workflow.model import Settings

if TYPE_CHECKING:
    from taintctl.adapters.slack.app import SlackApp
    from taintctl.adapters.slack.tokens import SlackTokens

log = logging.getLogger("taintctl.controller")

Job = tuple[str, Callable[[], Coroutine[Any, Any, None]]]
"""Its name, and what starts it."""
AGAIN = 60.0
"""Seconds after an error of our own in what speaks to Slack."""


@dataclass(frozen=True)
class PeopleOptions:
    """How people are told and heard. Tokens and keys come from the environment or files, never from here."""

    slack_http_port: int | None = None
    """Where Slack posts clicks to; None: they come through a websocket that we open (Socket Mode)."""
    slack_http_host: str = "0.0.0.0"  # noqa: S104 (Slack asks from outside the pod)
    slack_api_url: str = ""
    """Empty: Slack's own."""
    webhook_key_file: str = ""


@dataclass(frozen=True)
class People:
    """What is known before the controller works: bad tokens and keys end it at its start."""

    options: PeopleOptions
    tokens: SlackTokens | None
    key: WebhookKey | None

    @classmethod
    def from_environment(cls, options: PeopleOptions) -> People:
        """Raises ValueError for tokens and keys that can't be used; SlackMissing (ImportError) without slack-sdk."""
        from taintctl.adapters.slack.tokens import SlackTokens

        tokens = SlackTokens.from_environment()
        port = options.slack_http_port
        if tokens is None and port is not None:
            raise ValueError("--slack-http-port needs SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET in the environment.")
        if tokens is not None and port is not None and not tokens.signing_secret:
            raise ValueError("--slack-http-port needs SLACK_SIGNING_SECRET (of the app's Basic Information page).")
        if tokens is not None and port is None and not tokens.app:
            raise ValueError(
                "No click would arrive: set SLACK_APP_TOKEN (Socket Mode), or give --slack-http-port a port."
            )
        return cls(options, tokens, WebhookKey.from_environment(options.webhook_key_file))

    @asynccontextmanager
    async def at_work(
        self, cluster: Cluster, cache: Cache, clock: Clock, settings: Settings
    ) -> AsyncIterator[tuple[Announcer, list[Job]]]:
        """The announcer, and what has to run while it works, by name."""
        reader = Reader(cluster, cache, clock, settings)
        async with AsyncExitStack() as stack:
            slack = self._slack(ApprovalDesk(cluster, reader, clock, settings), clock)
            hook = await stack.enter_async_context(HttpWebhook(self.key, clock)) if self.key is not None else None
            announcer = Announcer(
                cluster, reader, clock, settings, chat=slack.chat if slack is not None else None, webhook=hook
            )
            work: list[Job] = [("announcer", announcer.run)]
            if slack is not None:
                work.append(("slack", partial(_again_and_again, slack)))
                if self.options.slack_http_port is not None:
                    await stack.enter_async_context(self._served(slack, self.options.slack_http_port))
            yield announcer, work

    def _slack(self, desk: ApprovalDesk, clock: Clock) -> SlackApp | None:
        if self.tokens is None:
            return None
        from taintctl.adapters.slack.app import SlackApp

        if self.options.slack_api_url:
            return SlackApp(self.tokens, desk, clock, base_url=self.options.slack_api_url)
        return SlackApp(self.tokens, desk, clock)

    @asynccontextmanager
    async def _served(self, slack: SlackApp, port: int) -> AsyncIterator[None]:
        runner = web.AppRunner(slack.web_app(), access_log=None, shutdown_timeout=5)
        await runner.setup()
        try:
            await web.TCPSite(runner, self.options.slack_http_host, port).start()
            log.info("Slack's clicks at port %d", runner.addresses[0][1])
            yield
        finally:
            await runner.cleanup()


NOBODY = People(PeopleOptions(), None, None)


async def _again_and_again(slack: SlackApp) -> None:
    """Whatever goes wrong in speaking to Slack stops no run."""
    while True:
        try:
            await slack.run()
        except Exception:
            log.exception("an error of ours in speaking to Slack; trying again in %.0f s", AGAIN)
        await asyncio.sleep(AGAIN)
