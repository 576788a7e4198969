"""Slack's Web API over slack-sdk: every call with a time limit, every failure a ChatError without a token in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp

from taintctl.adapters.slack.errors import UNREACHABLE, sentence
from taintctl.adapters.slack.text import redact
from taintctl.adapters.slack.tokens import SlackMissing, SlackTokens
from taintctl.ports.chat import ChatError
from taintctl.ports.clock import Clock

try:
    from slack_sdk.errors import SlackClientError
    from slack_sdk.web.async_client import AsyncWebClient
    from slack_sdk.webhook.async_client import AsyncWebhookClient
except ImportError:
    raise SlackMissing("Slack needs the package slack-sdk, which is missing: pip install 'taintctl[slack]'.") from None

SLACK_API = "https://slack.com/api/"
HOOKS = "https://hooks.slack.com/"
TIMEOUT = timedelta(seconds=10)
MAX_WAIT = timedelta(minutes=10)
"""Of what Slack asks to wait, the most that is believed."""
SHORT_WAIT = timedelta(seconds=5)
"""What is waited for inside a click."""
READS = frozenset(
    {"auth.test", "users.info", "usergroups.list", "usergroups.users.list", "conversations.history"}
)  # these take no JSON


UNSURE = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""By Slack's documentation part of the call may have been done all the same: as if there had been no answer."""


class _Silent(logging.Filter):
    """The library logs bodies and addresses; what went wrong comes as an exception, and is told by us."""

    def filter(self, record: logging.LogRecord) -> bool:
        return False


def silent_logger() -> logging.Logger:
    logger = logging.Logger("slack_sdk", logging.CRITICAL)
    logger.addFilter(_Silent())
    return logger


@dataclass(frozen=True)
class Self:
    """Who the app is (auth.test)."""

    team_id: str
    user_id: str
    bot_id: str = ""
    enterprise_id: str = ""


class SlackClient:
    def __init__(
        self, tokens: SlackTokens, clock: Clock, *, base_url: str = SLACK_API, timeout: timedelta = TIMEOUT
    ) -> None:
        self._clock = clock
        self.base_url = base_url if base_url.endswith("/") else f"{base_url}/"
        self._timeout = timeout
        self._app_token = tokens.app
        # No retries of the library's own: a message whose answer was lost would be posted twice.
        self.web = AsyncWebClient(
            tokens.bot,
            base_url=self.base_url,
            timeout=max(1, round(timeout.total_seconds())),
            logger=silent_logger(),
            retry_handlers=[],
        )
        if self.base_url != SLACK_API:
            self.web.proxy = None  # HTTPS_PROXY is for slack.com; the library knows no NO_PROXY
        self._self: Self | None = None

    async def call(self, method: str, *, patient: bool = False, **arguments: Any) -> dict[str, Any]:
        """Raises ChatError. `patient`: where Slack asks for a short wait, once more after it."""
        try:
            return await self._once(method, arguments)
        except ChatError as error:
            if not patient or error.retry_after is None or error.retry_after > SHORT_WAIT:
                raise
            await self._clock.sleep(error.retry_after.total_seconds())
            return await self._once(method, arguments)

    async def who(self) -> Self:
        """Asked once: a token belongs to one app in one workspace."""
        if self._self is None:
            data = await self.call("auth.test", patient=True)
            team, user = data.get("team_id"), data.get("user_id")
            if not isinstance(team, str) or not isinstance(user, str) or not team:
                raise ChatError("Slack's auth.test names no workspace.", code="invalid_auth")
            self._self = Self(team, user, str(data.get("bot_id") or ""), str(data.get("enterprise_id") or ""))
        return self._self

    async def open_socket(self) -> str:
        """The address of a websocket for Socket Mode."""
        data = await self._once("apps.connections.open", {}, token=self._app_token)
        url = data.get("url")
        if not isinstance(url, str) or not url.startswith(("wss://", "ws://")):
            raise ChatError("Slack's apps.connections.open names no address.", code="invalid_auth")
        if url.startswith("ws://") and self.base_url == SLACK_API:
            raise ChatError("Slack's apps.connections.open names an address without TLS.", code="invalid_auth")
        return url

    async def respond(self, response_url: str, text: str) -> None:
        """To the person who clicked, by the address that came with the click."""
        origin = self.base_url.removesuffix("api/")
        if not response_url.startswith((HOOKS, origin) if self.base_url != SLACK_API else HOOKS):
            raise ChatError("The click names no address of Slack's to answer to.")
        hook = AsyncWebhookClient(
            response_url, timeout=self.web.timeout, logger=silent_logger(), retry_handlers=[], proxy=self.web.proxy
        )
        hook.proxy = self.web.proxy
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                answer = await hook.send(text=text, response_type="ephemeral", replace_original=False)
        except (SlackClientError, aiohttp.ClientError, OSError, TimeoutError, ValueError):
            raise ChatError(UNREACHABLE) from None
        if answer.status_code != 200:
            raise ChatError(f"Slack answers {answer.status_code} to a response_url.")

    async def _once(self, method: str, arguments: Mapping[str, Any], *, token: str = "") -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            async with asyncio.timeout(self._timeout.total_seconds()):
                if method in READS:
                    answer = await self.web.api_call(method, http_verb="GET", params=given, headers=headers)
                else:
                    answer = await self.web.api_call(method, json=given, headers=headers)
        except SlackClientError as error:
            raise _said(method, getattr(error, "response", None)) from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            kind = "" if isinstance(error, TimeoutError) else f" ({redact(type(error).__name__)})"
            raise ChatError(f"{method}: {UNREACHABLE}{kind}") from None
        data = answer.data
        return data if isinstance(data, dict) else {}


def _said(method: str, response: Any) -> ChatError:
    """What a refusal says. A body that is no JSON comes as aiohttp's response."""
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    data = getattr(response, "data", None)
    code = data.get("error", "") if isinstance(data, dict) else ""
    code = code if isinstance(code, str) else ""
    if status == 429 or code in ("ratelimited", "rate_limited"):
        return ChatError(sentence(method, "ratelimited"), code="ratelimited", retry_after=_wait(response))
    if not code:
        return ChatError(f"{method}: Slack answers with HTTP {status} and no reason; it is tried again.", code="")
    return ChatError(sentence(method, code), code="" if code in UNSURE else redact(code)[:80])


def _wait(response: Any) -> timedelta:
    given = str((getattr(response, "headers", None) or {}).get("Retry-After", "30"))
    seconds = int(given) if given.isascii() and given.isdigit() and len(given) < 7 else 30
    return min(timedelta(seconds=max(1, seconds)), MAX_WAIT)
