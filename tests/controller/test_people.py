"""How people are told and heard: what is refused at the start, and clicks over HTTP."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from taintctl.controller.people import NOBODY, People, PeopleOptions
from taintctl.ports.clock import SystemClock
from taintctl.workflow.model import Settings

BOT, APP, SECRET = "xoxb-1-abcdef", "xapp-1-abcdef", "8f742231b10e8888abcd99yyyzzz85a5"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET", "TAINTCTL_WEBHOOK_KEY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)


def test_without_tokens_and_keys_nobody_is_told() -> None:
    assert People.from_environment(PeopleOptions()) == NOBODY


@pytest.mark.parametrize(
    ("environment", "port", "why"),
    [
        ({}, 8082, "needs SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET"),
        ({"SLACK_BOT_TOKEN": BOT, "SLACK_APP_TOKEN": APP}, 8082, "needs SLACK_SIGNING_SECRET"),
        ({"SLACK_BOT_TOKEN": BOT, "SLACK_SIGNING_SECRET": SECRET}, None, "No click would arrive"),
        ({"SLACK_BOT_TOKEN": "xoxp-secret-1", "SLACK_APP_TOKEN": APP}, None, "SLACK_BOT_TOKEN is not a bot token"),
        ({"TAINTCTL_WEBHOOK_KEY": "secret"}, None, "has 16 to 4096 bytes"),
    ],
)
def test_what_can_not_work_is_refused_at_the_start_and_no_secret_is_named(
    environment: dict[str, str], port: int | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=why) as refused:
        People.from_environment(PeopleOptions(slack_http_port=port))
    assert "secret" not in str(refused.value)


def test_tokens_and_the_key_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT)
    monkeypatch.setenv("SLACK_APP_TOKEN", APP)
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    people = People.from_environment(PeopleOptions(webhook_key_file=str(key)))
    assert people.tokens is not None
    assert people.key is not None
    for secret in (BOT, APP, "0123456789abcdef"):
        assert secret not in repr(people)


async def test_clicks_over_http_are_served_while_the_controller_works_and_no_longer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, unused_tcp_port: int
) -> None:
    pytest.importorskip("slack_sdk")
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT)
    monkeypatch.setenv("SLACK_SIGNING_SECRET", SECRET)
    caplog.set_level(logging.INFO, "taintctl.controller")
    options = PeopleOptions(slack_http_port=unused_tcp_port, slack_http_host="127.0.0.1")
    people = People.from_environment(options)
    nothing: Any = None
    url = f"http://127.0.0.1:{unused_tcp_port}/slack/interactions"
    async with aiohttp.ClientSession() as session:
        async with people.at_work(nothing, nothing, SystemClock(), Settings()) as (_, work):
            assert [name for name, _ in work] == ["announcer", "slack"]
            assert f"Slack's clicks at port {unused_tcp_port}" in caplog.text
            async with session.post(url, data=b"payload={}") as answer:
                assert answer.status == 401  # nobody signed it
            body, now = b"payload=%7B%7D", str(int(time.time()))
            base = b"v0:" + now.encode() + b":" + body
            signature = "v0=" + hmac.new(SECRET.encode(), base, hashlib.sha256).hexdigest()
            headers = {
                "X-Slack-Request-Timestamp": now,
                "X-Slack-Signature": signature,
                "Content-Type": "application/x-www-form-urlencoded",
            }
            async with session.post(url, data=body, headers=headers) as answer:
                assert answer.status != 401
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.post(url, data=b"payload={}")
