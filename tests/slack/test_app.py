"""The real slack-sdk client against the fake Slack, over loopback: post, click, update, windows, failures."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taintctl.adapters.slack import limits, modals
from taintctl.adapters.slack.app import SlackApp
from taintctl.adapters.slack.tokens import SlackTokens
from taintctl.adapters.slack.value import Subject, loads
from taintctl.api.approval import ApprovalDecision
from taintctl.ports.chat import Answer, Answered, ChatError, Details, Person, Posted, RunView
from taintctl.sandbox.slack.people import View
from tests.slack.conftest import until
from tests.slack.runs import DIGEST, HOSTILE, UID, run, view, whole_plan

CHANNEL = "C0123456789"


async def post(stage: Any, shown: RunView | None = None, nonce: str = "n-1") -> Posted:
    return await stage.app.chat.post(CHANNEL, shown or view(), nonce=nonce)


def opened(stage: Any) -> View:
    return list(stage.slack.views.values())[-1]


async def test_an_approval_reaches_the_desk_with_the_identity_by_slacks_word(stage: Any) -> None:
    stage.slack.add_group("S0614TZR7", "gpu-leads", "U0ALICE")
    stage.slack.add_group("S0614TZR8", "others", "U0BOB")
    stage.desk.wanted = ["S0614TZR7", "S0614TZR8"]
    posted = await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    (click,) = stage.desk.clicks
    assert (click.run_name, click.run_uid, click.digest) == ("gpus-29430", UID, DIGEST)
    assert (click.decision, click.message) == (ApprovalDecision.APPROVE, posted)
    assert click.person == Person(
        "U0ALICE", "T0SANDBOX", "alice", "alice@example.com", frozenset({"S0614TZR7"}), is_bot=False, deleted=False
    )
    assert stage.told == [("U0ALICE", "Your approval is recorded.")]


async def test_a_policy_may_name_a_group_by_its_handle(stage: Any) -> None:
    stage.slack.add_group("S0614TZR7", "gpu-leads", "U0ALICE")
    stage.desk.wanted = ["@gpu-leads", "no-such-handle"]
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    assert stage.desk.clicks[0].person.groups == {"@gpu-leads", "S0614TZR7"}


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


async def test_a_short_rate_limit_inside_a_click_is_waited_for(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    stage.slack.fail("users.info", "ratelimited", retry_after=2)
    await stage.click("U0ALICE", "Approve")
    assert len(stage.desk.clicks) == 1


@pytest.mark.parametrize("method", ["users.info", "usergroups.users.list", "usergroups.list"])
async def test_who_cannot_be_checked_changes_nothing(stage: Any, method: str) -> None:
    stage.desk.wanted = ["S0614TZR7", "gpu-leads"]
    await post(stage)
    await stage.connect()
    stage.slack.fail(method, "internal_error", times=None)
    await stage.click("U0ALICE", "Approve")
    assert stage.desk.clicks == []
    assert "could not be checked" in stage.told[0][1]


async def test_an_unknown_user_changes_nothing(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0BOB", stage.message, "Approve")
    payload["user"]["id"] = "U0NOBODY"
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert stage.desk.clicks == []
    assert stage.slack.responded[0]["response_type"] == "ephemeral"  # no channel member: by the click's own address


@pytest.mark.parametrize("claims", ["T0ELSEWHERE", "T0SANDBOX", ""])
async def test_people_of_another_workspace_are_refused_whatever_the_payload_says(stage: Any, claims: str) -> None:
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0EVE", stage.message, "Approve")
    payload["user"]["team_id"] = claims
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert stage.desk.clicks == []
    assert "another workspace" in stage.told[0][1]


async def test_the_names_in_a_payload_decide_nothing(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0BOB", stage.message, "Approve")
    payload["user"] |= {"name": "alice", "username": "alice", "email": "alice@example.com"}
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert (stage.desk.clicks[0].person.name, stage.desk.clicks[0].person.email) == ("bob", "bob@example.com")


async def test_a_repeated_delivery_is_acknowledged_and_does_nothing(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    payload = await stage.slack.click("U0ALICE", stage.message, "Approve", copies=3)
    await stage.slack.sockets.deliver(payload)  # in another envelope, with the same trigger
    await stage.app.drain()
    assert len(stage.desk.clicks) == 1
    assert sorted(stage.slack.sockets.acknowledged.values()) == [1, 3]


async def test_a_denial_needs_a_comment(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Deny")
    window = opened(stage)
    assert stage.desk.clicks == []
    refused = await stage.slack.submit("U0ALICE", window, {"comment": "  "})
    assert refused == {"response_action": "errors", "errors": {"comment": "Say why, in a few words."}}
    assert await stage.slack.submit("U0ALICE", window, {"comment": " not on release day "}) is None
    await stage.app.drain()
    (click,) = stage.desk.clicks
    assert (click.decision, click.comment) == (ApprovalDecision.DENY, "not on release day")
    assert (click.digest, click.message.ts) == (DIGEST, stage.message.ts)
    assert stage.told == [("U0ALICE", "Your approval is recorded.")]


async def test_a_break_asks_for_confirmation_and_arrives_as_one(stage: Any) -> None:
    await post(stage, view(approval={"breakNeeded": True}))
    await stage.connect()
    button = stage.message.buttons()[0]
    assert "protects" in button["confirm"]["text"]["text"]
    await stage.click("U0ALICE", "Approve with Break")
    assert stage.desk.clicks[0].decision is ApprovalDecision.BREAK


async def test_details_open_at_once_and_are_paged(stage: Any) -> None:
    stage.desk.found = Details(view(), whole_plan(200), same=True)
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Details")
    window = opened(stage)
    assert "Looking at" in json.dumps(window.trail[0], ensure_ascii=False)
    assert "page 1 of 4" in json.dumps(window.view)  # 200 pods, 4 headings, 1 device, its heading: 206 lines, 60 a page
    assert [button["text"]["text"] for button in window.buttons()] == ["Next"]
    for page in (2, 3, 4):
        await stage.slack.click("U0ALICE", window, "Next")
        await stage.app.drain()
        assert f"page {page} of 4" in json.dumps(window.view)
    assert [button["text"]["text"] for button in window.buttons()] == ["Previous"]
    await stage.slack.click("U0ALICE", window, "Previous")
    await stage.app.drain()
    assert "page 3 of 4" in json.dumps(window.view)
    shown = json.dumps([old["blocks"] for old in [*window.trail, window.view]])
    assert all(f"pod-{n:05d}" in shown for n in range(200))


async def test_details_of_a_run_that_is_gone_say_so(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Details")
    assert "is gone" in json.dumps(opened(stage).view)


async def test_strangers_see_no_details(stage: Any) -> None:
    stage.desk.found = Details(view(), whole_plan(3), same=True)
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0EVE", stage.message, "Details")
    payload["user"]["team_id"] = ""
    payload["team"] = {}
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert "another workspace" in json.dumps(opened(stage).view)
    assert "pod-0" not in json.dumps(opened(stage).view)


async def test_a_trigger_that_is_too_old_is_told(stage: Any) -> None:
    stage.slack.speed = 1000  # the trigger is good for 3 ms
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0ALICE", stage.message, "Deny")
    await asyncio.sleep(0.02)
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert "click once more" in stage.told[0][1]


async def test_a_superseded_message_loses_its_buttons(stage: Any) -> None:
    stage.desk.answer = Answer(Answered.SUPERSEDED, f"Another message stands for the run. {HOSTILE}")
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    assert stage.message.buttons() == []
    assert "no longer counts" in stage.message.blocks[0]["text"]["text"]


async def test_the_answer_goes_by_the_clicks_address_where_the_channel_takes_none(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    stage.slack.fail("chat.postEphemeral", "channel_not_found")
    await stage.click("U0ALICE", "Approve")
    assert stage.slack.responded == [
        {"text": "Your approval is recorded.", "response_type": "ephemeral", "replace_original": False}
    ]


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


async def test_buttons_of_no_form_of_ours_are_acknowledged_and_nothing_else(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    for wrong in ("", "[]", "{}", '{"r":1}', json.dumps({"r": "x/../y", "u": UID, "d": DIGEST}), "[" * 2900):
        payload = stage.slack.payload("U0ALICE", stage.message, "Approve")
        payload["actions"][0]["value"] = wrong
        await stage.slack.sockets.deliver(payload)
    for payload in ({"type": "block_actions"}, {"type": "view_submission", "user": {"id": "U0ALICE"}, "view": 3}):
        await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert (stage.desk.clicks, stage.told) == ([], [])


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


async def test_a_slow_cluster_is_told_and_the_click_is_not_forgotten(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(click: Any) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("taintctl.adapters.slack.interactions.DECIDING", 0.05)
    stage.desk.decide = never
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    assert stage.told == [("U0ALICE", "The cluster is slow. Whether this counts, taintctl status gpus-29430 says.")]


async def test_a_click_that_takes_for_ever_is_given_up(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def never(run_name: str) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr("taintctl.adapters.slack.interactions.PATIENCE", 0.05)
    stage.desk.groups = never
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    assert "given up" in caplog.text


async def test_an_error_of_ours_takes_nothing_else_down(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def wrong(click: Any) -> Answer:
        raise RuntimeError(f"with {stage.slack.bot_token}")

    right, stage.desk.decide = stage.desk.decide, wrong
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    assert "RuntimeError: with [redacted]" in caplog.text
    stage.desk.decide = right
    await stage.click("U0ALICE", "Approve")
    assert len(stage.desk.clicks) == 1


async def test_people_of_an_organisation_count_where_they_are_members_of_the_apps_workspace(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from taintctl.sandbox.slack import methods

    def auth(slack: Any, given: Any) -> dict[str, Any]:
        return methods.auth_test(slack, given) | {"enterprise_id": "E0ORG"}

    def info(teams: list[str], organisation: str) -> Any:
        def answer(slack: Any, given: Any) -> dict[str, Any]:
            user = methods.users_info(slack, given)["user"]
            return {
                "user": user
                | {"is_stranger": False, "enterprise_user": {"enterprise_id": organisation, "teams": teams}}
            }

        return answer

    monkeypatch.setitem(methods.METHODS, "auth.test", auth)
    await post(stage)
    await stage.connect()
    for teams, organisation, clicks in (
        (["T0ELSEWHERE"], "E0ORG", 0),
        (["T0SANDBOX"], "E0OTHER", 0),
        (["T0ELSEWHERE", "T0SANDBOX"], "E0ORG", 1),
    ):
        monkeypatch.setitem(methods.METHODS, "users.info", info(teams, organisation))
        await stage.click("U0EVE", "Approve")
        assert len(stage.desk.clicks) == clicks
    assert stage.desk.clicks[0].person.team_id == "T0SANDBOX"


@pytest.mark.parametrize("more", [{"is_bot": True}, {"deleted": True}])
async def test_bots_and_deactivated_accounts_are_handed_on_as_such(stage: Any, more: dict[str, bool]) -> None:
    stage.slack.add_user("U0ROBOT", "robot", **more)
    await post(stage)
    await stage.connect()
    await stage.click("U0ROBOT", "Approve")
    person = stage.desk.clicks[0].person
    assert {"is_bot": person.is_bot, "deleted": person.deleted} == {"is_bot": False, "deleted": False} | more


async def test_an_address_to_answer_to_that_is_not_slacks_is_not_called(stage: Any) -> None:
    await post(stage)
    await stage.connect()
    payload = stage.slack.payload("U0ALICE", stage.message, "Approve")
    payload["response_url"] = "http://metadata.internal/latest"
    stage.slack.fail("chat.postEphemeral", "channel_not_found")
    await stage.slack.sockets.deliver(payload)
    await stage.app.drain()
    assert (len(stage.desk.clicks), stage.slack.responded) == (1, [])


async def test_two_people_page_through_details_each_in_their_own_window(stage: Any) -> None:
    stage.desk.found = Details(view(), whole_plan(100), same=True)
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Details")
    await stage.click("U0BOB", "Details")
    first, second = stage.slack.views.values()
    await stage.slack.click("U0BOB", second, "Next")
    await stage.app.drain()
    assert "page 1 of 2" in json.dumps(first.view)
    assert "page 2 of 2" in json.dumps(second.view)


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


async def test_what_could_not_be_acknowledged_may_come_again(stage: Any) -> None:
    await post(stage)
    payload = stage.slack.payload("U0ALICE", stage.message, "Approve")
    interactions = stage.app._interactions
    interactions.take(payload, "e-1").forget()
    interactions.take(payload, "e-1").start()
    interactions.take(payload, "e-1").start()
    await stage.app.drain()
    assert len(stage.desk.clicks) == 1


async def test_the_longest_names_and_addresses_fit_a_windows_buttons(stage: Any) -> None:
    subject = Subject("r" * 253, "u" * 64, DIGEST, "C" * 30, "1" * 20, "https://hooks.slack.com/" + "x" * 476, 100_000)
    found = Details(view(), whole_plan(200), same=True)
    assert limits.modal_problems(modals.details(replace(subject, page=1), found)) == []
    assert limits.modal_problems(modals.deny(subject)) == []
    assert loads(subject.dumps()) == subject
