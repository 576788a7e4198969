"""Events to any receiver: one signed POST each (docs/webhook.md)."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp

from taintctl.ports.chat import ChatError
from taintctl.ports.clock import Clock

VARIABLE = "TAINTCTL_WEBHOOK_KEY"
TIMESTAMP, SIGNATURE = "X-Taintctl-Timestamp", "X-Taintctl-Signature"
MIN_KEY, MAX_KEY = 16, 4096
TIMEOUT = aiohttp.ClientTimeout(total=10, connect=5)
MAX_BODY = 64 * 1024
MAX_WAIT = timedelta(hours=1)


@dataclass(frozen=True)
class WebhookKey:
    """What events are signed with; never shown."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not MIN_KEY <= len(self.secret) <= MAX_KEY:
            raise ValueError(f"The webhook key has {MIN_KEY} to {MAX_KEY} bytes; make one: openssl rand -hex 32")

    @classmethod
    def from_environment(cls, file: str = "", environment: Mapping[str, str] = os.environ) -> WebhookKey | None:
        """From the file, else TAINTCTL_WEBHOOK_KEY_FILE or TAINTCTL_WEBHOOK_KEY; None where none is given. Raises
        ValueError, which does not name the key."""
        value = environment.get(VARIABLE, "")
        file = file or environment.get(f"{VARIABLE}_FILE", "")
        if value and file:
            raise ValueError(f"{VARIABLE} and a file with the webhook key are both given: keep one of them.")
        if not file:
            return cls(value.strip().encode()) if value else None
        try:
            with Path(file).open("rb") as opened:
                return cls(opened.read(MAX_KEY + 1).strip())
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise ValueError(f"The file with the webhook key can't be read: {why}.") from None

    def sign(self, timestamp: str, body: bytes) -> str:
        return "v1=" + hmac.new(self.secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class HttpWebhook:
    """ports.webhook.Webhook over HTTP. It follows no redirect, and reads nothing of an answer but its status."""

    def __init__(self, key: WebhookKey, clock: Clock) -> None:
        self._key = key
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        # No proxy, cookies or .netrc: nothing but what is said here goes to a URL of a policy.
        self._session = aiohttp.ClientSession(timeout=TIMEOUT, cookie_jar=aiohttp.DummyCookieJar())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, url: str, event: Mapping[str, Any]) -> None:
        assert self._session is not None, "use it as a context manager"
        body = json.dumps(event, separators=(",", ":")).encode()
        if len(body) > MAX_BODY:
            raise ChatError(f"the event is larger than {MAX_BODY} bytes")
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "taintctl",
            TIMESTAMP: timestamp,
            SIGNATURE: self._key.sign(timestamp, body),
        }
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                status, wait = answer.status, answer.headers.get("Retry-After", "")
        except TimeoutError:
            raise ChatError("the receiver did not answer in 10 s; look whether it is up") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # The error's own text may hold the URL, and that a secret.
            raise ChatError(f"the receiver can't be reached ({type(error).__name__}); look at the URL") from None
        if 200 <= status < 300:
            return
        if 300 <= status < 400:
            raise ChatError(
                f"the receiver answered {status}; redirects are not followed, give its final URL", code=str(status)
            )
        after = timedelta(seconds=int(wait)) if wait.isascii() and wait.isdigit() and len(wait) < 6 else None
        raise ChatError(
            f"the receiver answered {status}; its log says why",
            code=str(status),
            retry_after=min(after, MAX_WAIT) if after is not None else None,
        )
