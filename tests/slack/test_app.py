"""The real slack-sdk client against the fake Slack, over loopback: messages, the connection, and their failures."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from taintctl.adapters.slack.app import SlackApp
from taintctl.adapters.slack.tokens import SlackTokens
from taintctl.ports.chat import ChatError, RunView
from tests.slack.conftest import CHANNEL, post, until
from tests.slack.runs import run, view


async def test_a_message_is_updated_in_place_and_its_thread_is_plain(stage: Any) -> None:
    posted = await post(stage)
    done = RunView(run(phase="Succeeded", reason="Completed"), view().policy)
    await stage.app.chat.update(posted, done)
    await stage.app.chat.reply(posted, "evicting <!channel> now")
    message, reply = stage.channel.messages
    assert (message.edits, message.buttons()) == (1, [])
    assert (reply.thread_ts, reply.text) == (posted.ts, "evicting &lt;!channel&gt; now")
    assert "<!channel>" in stage.slack.transcript()  # as its readers see it: as words
    assert stage.app.state().channels == {CHANNEL}


async def test_a_message_is_found_by_its_nonce_beyond_the_first_page(stage: Any) -> None:
    since = stage.clock.now()
    posted = await post(stage, nonce="mine")
    for n in range(120):
        await post(stage, nonce=f"other-{n}")
    assert await stage.app.chat.find(CHANNEL, nonce="mine", since=since) == posted
    assert await stage.app.chat.find(CHANNEL, nonce="never", since=since) is None
    assert await stage.app.chat.find(CHANNEL, nonce="mine", since=since + timedelta(hours=1)) is None
    stage.slack.scopes.discard("channels:history")
    assert await stage.app.chat.find(CHANNEL, nonce="mine", since=since) is None


async def test_a_message_of_another_app_with_the_nonce_is_not_ours(stage: Any) -> None:
    await post(stage, nonce="mine")
    stage.channel.messages[0].user = "U0BOB"
    assert await stage.app.chat.find(CHANNEL, nonce="mine", since=stage.clock.now() - timedelta(minutes=1)) is None


@pytest.mark.parametrize(
    ("error", "step"),
    [
        ("not_in_channel", "/invite @taintctl"),
        ("channel_not_found", "notifications.slack.channel"),
        ("is_archived", "archived"),
        ("invalid_auth", "SLACK_BOT_TOKEN"),
        ("token_revoked", "install the app again"),
        ("account_inactive", "install it again"),
        ("missing_scope", "manifest.yaml"),
        ("msg_too_long", "taintctl status"),
        ("something_new", "docs.slack.dev"),
    ],
)
async def test_every_refusal_says_the_next_step(stage: Any, error: str, step: str) -> None:
    stage.slack.fail("chat.postMessage", error)
    with pytest.raises(ChatError) as caught:
        await post(stage)
    assert caught.value.code == error
    assert step in caught.value.message
    assert stage.slack.bot_token not in caught.value.message


@pytest.mark.parametrize("error", ["internal_error", "fatal_error", "service_unavailable", "request_timeout"])
async def test_where_slack_may_have_posted_all_the_same_there_is_no_code(stage: Any, error: str) -> None:
    """docs.slack.dev on fatal_error: some aspect may have succeeded before the error was raised."""
    stage.slack.fail("chat.postMessage", error)
    with pytest.raises(ChatError) as caught:
        await post(stage)
    assert (caught.value.code, "tried again" in caught.value.message) == ("", True)


async def test_a_rate_limit_says_how_long_slack_asks_to_wait_and_the_wait_is_bounded(stage: Any) -> None:
    stage.slack.fail("chat.postMessage", "ratelimited", retry_after=30)
    with pytest.raises(ChatError) as caught:
        await post(stage)
    assert (caught.value.code, caught.value.retry_after) == ("ratelimited", timedelta(seconds=30))
    stage.slack.fail("chat.postMessage", "ratelimited", retry_after=86400)
    with pytest.raises(ChatError) as caught:
        await post(stage)
    assert caught.value.retry_after == timedelta(minutes=10)
    assert stage.slack.count["chat.postMessage"] == 2  # never again by itself: it could post twice


async def test_a_dropped_socket_is_opened_again(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    assert stage.app.state().connected
    await stage.slack.sockets.drop()
    await stage.slack.connected()
    await stage.connected()
    await stage.click("U0ALICE", "Approve")
    assert (len(stage.desk.clicks), stage.slack.sockets.opened) == (1, 2)
    assert stage.app.state().connected


async def test_slacks_own_refresh_is_followed(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    await stage.slack.sockets.refresh()
    await stage.slack.connected()
    await stage.click("U0ALICE", "Approve")
    assert len(stage.desk.clicks) == 1


async def test_a_revoked_token_shows_in_the_state_and_it_is_tried_again(stage: Any) -> None:
    stage.slack.revoked = True
    stage.tasks.append(asyncio.get_running_loop().create_task(stage.app.run()))
    await until(lambda: stage.slack.count["auth.test"] >= 2)
    state = stage.app.state()
    assert (state.connected, "token was revoked" in state.error) == (False, True)
    stage.slack.revoked = False
    await stage.connected()
    assert stage.app.state().error == ""


async def test_a_slack_that_does_not_answer_is_an_error_in_time(stage: Any) -> None:
    await stage.slack.stop()
    with pytest.raises(ChatError, match="does not answer") as caught:
        await post(stage)
    assert caught.value.code == ""


async def test_without_an_app_token_run_only_watches_the_bots_token(stage: Any) -> None:
    app = SlackApp(
        SlackTokens(stage.slack.bot_token, "", "a" * 32), stage.desk, stage.clock, base_url=stage.slack.api_url
    )
    task = asyncio.get_running_loop().create_task(app.run())
    await until(lambda: app.state().connected)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (app.state().connected, stage.slack.sockets.opened) == (False, 0)


async def test_a_socket_that_says_nothing_is_given_up_and_another_opened(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taintctl.adapters.slack.socket.OPENING", 0.2)
    stage.slack.sockets.silent = True
    stage.tasks.append(asyncio.get_running_loop().create_task(stage.app.run()))
    await until(lambda: stage.slack.sockets.opened >= 2)
    assert "socket can't be opened" in stage.app.state().error
    stage.slack.sockets.silent = False
    await stage.connected()
