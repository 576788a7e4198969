"""The fake refuses what Slack refuses: a test that passes against it means something."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from taintctl.sandbox.slack.methods import SCOPES
from taintctl.sandbox.slack.server import FakeSlack

CHANNEL = "C0123456789"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    made = FakeSlack()
    await made.start()
    made.add_channel(CHANNEL, "ops")
    made.add_user("U0ALICE", "alice", email="alice@example.com")
    yield made
    await made.stop()


def client(slack: FakeSlack, token: str = "") -> AsyncWebClient:
    made = AsyncWebClient(token or slack.bot_token, base_url=slack.api_url, retry_handlers=[])
    made.proxy = None
    return made


async def refused(call: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([section("x")] * 51, "invalid_blocks"),
        ([section("x" * 3001)], "invalid_blocks"),
        ([section("")], "invalid_blocks"),
        ([section("x" * 2900)] * 5, "msg_blocks_too_long"),
        ([{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "invalid_blocks"),
        ([{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}], "invalid_blocks"),
        ([{"type": "section", "fields": [{"type": "mrkdwn", "text": "x"}] * 11}], "invalid_blocks"),
        ([{"type": "context", "elements": []}], "invalid_blocks"),
        ([{"type": "actions", "elements": []}], "invalid_blocks"),
        ([{"type": "video"}], "invalid_blocks"),
    ],
)
async def test_blocks_beyond_slacks_limits_are_refused(slack: FakeSlack, blocks: list[Any], error: str) -> None:
    assert await refused(client(slack).chat_postMessage(channel=CHANNEL, text="x", blocks=blocks)) == error
    assert slack.channels[CHANNEL].messages == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": {"type": "plain_text", "text": "x" * 76}},
        {"value": "x" * 2001},
        {"action_id": "x" * 256},
        {"style": "green"},
    ],
)
async def test_buttons_beyond_slacks_limits_are_refused(slack: FakeSlack, wrong: dict[str, Any]) -> None:
    button = {"type": "button", "action_id": "a", "text": {"type": "plain_text", "text": "x"}, "value": "v"}
    blocks = [{"type": "actions", "elements": [button | wrong]}]
    assert await refused(client(slack).chat_postMessage(channel=CHANNEL, text="x", blocks=blocks)) == "invalid_blocks"


async def test_tokens_channels_and_scopes_are_looked_at(slack: FakeSlack) -> None:
    assert await refused(client(slack, "xoxb-wrong").auth_test()) == "invalid_auth"
    assert await refused(client(slack, slack.app_token).auth_test()) == "not_allowed_token_type"
    assert await refused(client(slack).apps_connections_open(app_token=slack.bot_token)) == "not_allowed_token_type"
    assert await refused(client(slack).chat_postMessage(channel="C0NOWHERE", text="x")) == "channel_not_found"
    slack.channels[CHANNEL].member = False
    assert await refused(client(slack).chat_postMessage(channel=CHANNEL, text="x")) == "not_in_channel"
    slack.scopes = set()
    assert await refused(client(slack).chat_postMessage(channel=CHANNEL, text="x")) == "missing_scope"
    slack.revoked = True
    assert await refused(client(slack).auth_test()) == "token_revoked"


async def test_a_mail_address_needs_its_scope(slack: FakeSlack) -> None:
    assert (await client(slack).users_info(user="U0ALICE"))["user"]["profile"]["email"] == "alice@example.com"
    slack.scopes.discard("users:read.email")
    assert "email" not in (await client(slack).users_info(user="U0ALICE"))["user"]["profile"]


async def test_a_trigger_is_good_once_and_known(slack: FakeSlack) -> None:
    title = {"type": "plain_text", "text": "t"}
    view = {"type": "modal", "title": title, "blocks": [section("x")]}
    trigger = slack._trigger("U0ALICE")
    assert (await client(slack).views_open(trigger_id=trigger, view=view))["ok"]
    assert await refused(client(slack).views_open(trigger_id=trigger, view=view)) == "exchanged_trigger_id"
    assert await refused(client(slack).views_open(trigger_id="made-up", view=view)) == "invalid_trigger_id"
    long = view | {"title": {"type": "plain_text", "text": "t" * 25}}
    assert await refused(client(slack).views_open(trigger_id=slack._trigger("U0ALICE"), view=long)) == "invalid_blocks"


async def test_a_sockets_address_is_good_once(slack: FakeSlack) -> None:
    url = (await client(slack).apps_connections_open(app_token=slack.app_token))["url"]
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url) as socket:
            assert (await socket.receive_json())["type"] == "hello"
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url)


async def test_a_click_that_nobody_acknowledges_fails(slack: FakeSlack) -> None:
    with pytest.raises(TimeoutError):
        await slack.sockets.deliver({"type": "block_actions"}, patience=0.05)


def test_the_manifest_asks_for_the_scopes_that_are_used_and_no_more() -> None:
    manifest = yaml.safe_load((ROOT / "deploy" / "slack" / "manifest.yaml").read_text())
    # groups:history is channels:history for private channels.
    assert set(manifest["oauth_config"]["scopes"]["bot"]) == {*SCOPES.values(), "users:read.email", "groups:history"}
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert manifest["settings"]["interactivity"]["is_enabled"] is True
