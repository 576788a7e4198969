"""Events over HTTP: signed, bounded, and without a word of the URL in an error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from taintctl.adapters import webhook
from taintctl.adapters.webhook import HttpWebhook, WebhookKey
from taintctl.ports.chat import ChatError

KEY = WebhookKey(b"0123456789abcdef")
# printf '1764622800.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
SIGNED = "15b972f1b0a36028e98942ca83beff75065e41d841adf72422ed85f5ea0f9e9b"


class Clock:
    speed = 1.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(1764622800.9, UTC)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")

    def scaled(self, delay: timedelta) -> timedelta:
        return delay


class Receiver:
    def __init__(self) -> None:
        self.status, self.headers = 204, dict[str, str]()
        self.silent = False
        self.got: list[tuple[str, str, dict[str, str], bytes]] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        self.got.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        if self.silent:
            await asyncio.Event().wait()
        return web.Response(status=self.status, headers=self.headers, text="x" * 100_000 if self.status != 204 else "")


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[Receiver, HttpWebhook]]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook/secret?key=secret"
    try:
        async with HttpWebhook(KEY, Clock()) as hook:
            yield receiver, hook
    finally:
        await runner.cleanup()


async def test_an_event_is_one_signed_post() -> None:
    async with receiving() as (receiver, hook):
        await hook.send(receiver.url, {"a": 1})
        ((method, where, headers, body),) = receiver.got
        assert (method, where, body) == ("POST", "/hook/secret?key=secret", b'{"a":1}')
        assert headers["Content-Type"] == "application/json"
        assert headers["X-Taintctl-Timestamp"] == "1764622800"
        assert headers["X-Taintctl-Signature"] == f"v1={SIGNED}"


@pytest.mark.parametrize("status", [301, 307, 400, 404, 429, 500])
async def test_what_is_not_taken_is_an_error_that_names_no_secret(status: int) -> None:
    async with receiving() as (receiver, hook):
        receiver.status, receiver.headers = status, {"Location": "http://127.0.0.1:1/", "Retry-After": "30"}
        with pytest.raises(ChatError) as failed:
            await hook.send(receiver.url, {"a": 1})
        assert str(status) in failed.value.message
        assert "secret" not in failed.value.message
        assert len(receiver.got) == 1  # no redirect followed, nothing tried again here
        if status >= 400:
            assert failed.value.retry_after == timedelta(seconds=30)


@pytest.mark.parametrize("said", ["soon", "-1", "999999", "Wed, 21 Oct 2026 07:28:00 GMT"])
async def test_a_wait_that_is_no_number_of_seconds_is_not_believed(said: str) -> None:
    async with receiving() as (receiver, hook):
        receiver.status, receiver.headers = 503, {"Retry-After": said}
        with pytest.raises(ChatError) as failed:
            await hook.send(receiver.url, {})
        assert failed.value.retry_after is None


async def test_a_receiver_that_is_silent_or_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    async with receiving() as (receiver, hook):
        receiver.silent = True
        with pytest.raises(ChatError, match="did not answer"):
            await hook.send(receiver.url, {})
    with pytest.raises(ChatError, match="can't be reached") as failed:
        async with HttpWebhook(KEY, Clock()) as hook:
            await hook.send(receiver.url, {})
    assert "secret" not in failed.value.message


async def test_an_event_that_is_too_large_is_not_sent() -> None:
    async with receiving() as (receiver, hook):
        with pytest.raises(ChatError, match="larger than"):
            await hook.send(receiver.url, {"a": "x" * 100_000})
        assert receiver.got == []


def test_the_key_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n")
    variable = "TAINTCTL_WEBHOOK_KEY"
    for given, environment in (
        (str(file), {}),
        ("", {f"{variable}_FILE": str(file)}),
        ("", {variable: "0123456789abcdef"}),
    ):
        assert WebhookKey.from_environment(given, environment) == KEY
    assert WebhookKey.from_environment("", {}) is None
    assert "0123" not in repr(KEY)


@pytest.mark.parametrize(
    ("file", "environment", "why"),
    [
        ("", {"TAINTCTL_WEBHOOK_KEY": "short-secret"}, "has 16 to 4096 bytes"),
        ("nowhere", {}, "can't be read: No such file or directory"),
        ("nowhere", {"TAINTCTL_WEBHOOK_KEY": "short-secret"}, "keep one of them"),
    ],
)
def test_a_key_that_can_not_be_used_is_refused_without_being_named(
    file: str, environment: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        WebhookKey.from_environment(file, environment)
    assert "short-secret" not in str(refused.value)
