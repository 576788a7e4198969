"""Clicks over HTTP: signed, fresh, small; by Slack's own scheme (docs.slack.dev, verifying requests)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp.test_utils import TestClient, TestServer

from tests.slack.conftest import SECRET
from tests.slack.runs import view

CHANNEL = "C0123456789"


@pytest.fixture
async def client(stage: Any) -> AsyncIterator[Any]:
    async with TestClient(TestServer(stage.app.web_app())) as made:
        await stage.app.chat.post(CHANNEL, view(), nonce="n")
        yield made


def signed(body: bytes, *, at: int | None = None, secret: str = SECRET) -> dict[str, str]:
    stamp = str(int(time.time()) if at is None else at)
    digest = hmac.new(secret.encode(), b"v0:" + stamp.encode() + b":" + body, hashlib.sha256).hexdigest()
    return {
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={digest}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def body(payload: Any) -> bytes:
    return urlencode({"payload": json.dumps(payload)}).encode()


async def send(client: Any, data: bytes, headers: dict[str, str]) -> tuple[int, str]:
    async with client.post("/slack/interactions", data=data, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_a_signed_click_is_acknowledged_and_done_once(stage: Any, client: Any) -> None:
    data = body(stage.slack.payload("U0ALICE", stage.message, "Approve"))
    headers = signed(data)
    assert await send(client, data, headers) == (200, "")
    assert await send(client, data, headers) == (200, "")  # replayed within the five minutes
    await stage.app.drain()
    assert [click.person.name for click in stage.desk.clicks] == ["alice"]


async def test_a_denial_without_words_is_answered_in_the_window(stage: Any, client: Any) -> None:
    data = body(stage.slack.payload("U0ALICE", stage.message, "Deny"))
    assert await send(client, data, signed(data)) == (200, "")
    await stage.app.drain()
    (window,) = stage.slack.views.values()
    payload = {
        "type": "view_submission",
        "user": {"id": "U0ALICE"},
        "view": window.view | {"state": {"values": {"comment": {"comment": {"value": None}}}}},
    }
    data = body(payload)
    status, text = await send(client, data, signed(data))
    assert (status, json.loads(text)["response_action"]) == (200, "errors")


@pytest.mark.parametrize(
    "headers",
    [
        lambda data: signed(data, secret="another-secret"),
        lambda data: signed(data, at=int(time.time()) - 301),
        lambda data: signed(data, at=int(time.time()) + 301),
        lambda data: signed(data + b"x"),
        lambda data: signed(data) | {"X-Slack-Request-Timestamp": "soon"},
        lambda data: signed(data) | {"X-Slack-Request-Timestamp": "9" * 40},
        lambda data: signed(data) | {"X-Slack-Signature": "v0=é"},
        lambda data: {"Content-Type": "application/x-www-form-urlencoded"},
    ],
    ids=["secret", "old", "future", "body", "no-number", "huge-number", "not-ascii", "none"],
)
async def test_what_slack_did_not_sign_just_now_is_refused(stage: Any, client: Any, headers: Any) -> None:
    data = body(stage.slack.payload("U0ALICE", stage.message, "Approve"))
    status, _ = await send(client, data, headers(data))
    await stage.app.drain()
    assert (status, stage.desk.clicks) == (401, [])


async def test_a_body_that_is_no_text_is_refused(client: Any) -> None:
    data = b"\xff\xfe"
    headers = signed(b"") | {"X-Slack-Signature": "v0=" + "0" * 64}
    assert (await send(client, data, headers))[0] == 401


@pytest.mark.parametrize("data", [b"", b"payload=", b"payload=%7B", b"other=1", b"&".join([b"a=1"] * 20)])
async def test_a_signed_body_without_a_payload_is_refused(client: Any, data: bytes) -> None:
    assert (await send(client, data, signed(data)))[0] == 400


async def test_a_huge_body_is_refused_unread(client: Any) -> None:
    data = b"payload=" + b"x" * (1024 * 1024)
    assert (await send(client, data, signed(data)))[0] == 413


async def test_a_huge_body_of_unsaid_length_is_refused(client: Any) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65536

    try:
        async with client.post("/slack/interactions", data=endless(), headers=signed(b"")) as answer:
            assert answer.status == 413
    except aiohttp.ClientError:
        pass  # the server may hang up while we still write


async def test_more_clicks_than_can_be_worked_on_are_not_acknowledged(stage: Any, client: Any) -> None:
    gate = asyncio.Event()

    async def slow(_: str) -> list[str]:
        await gate.wait()
        return []

    stage.desk.groups = slow
    for n in range(33):
        payload = stage.slack.payload("U0ALICE", stage.message, "Approve")
        data = body(payload)
        status, _ = await send(client, data, signed(data))
        assert status == (200 if n < 32 else 503)
    gate.set()
    await stage.app.drain()
    assert len(stage.desk.clicks) == 32
