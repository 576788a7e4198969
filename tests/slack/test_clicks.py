"""Clicks through the real client and a websocket: who it was, once, and what the person is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from taintctl.api.approval import ApprovalDecision
from taintctl.ports.chat import Answer, Answered, Person
from tests.slack.conftest import post
from tests.slack.runs import DIGEST, HOSTILE, UID, view


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


async def test_a_break_asks_for_confirmation_and_arrives_as_one(stage: Any) -> None:
    await post(stage, view(approval={"breakNeeded": True}))
    await stage.connect()
    button = stage.message.buttons()[0]
    assert "protects" in button["confirm"]["text"]["text"]
    await stage.click("U0ALICE", "Approve with Break")
    assert stage.desk.clicks[0].decision is ApprovalDecision.BREAK


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


async def test_what_could_not_be_acknowledged_may_come_again(stage: Any) -> None:
    await post(stage)
    payload = stage.slack.payload("U0ALICE", stage.message, "Approve")
    interactions = stage.app._interactions
    interactions.take(payload, "e-1").forget()
    interactions.take(payload, "e-1").start()
    interactions.take(payload, "e-1").start()
    await stage.app.drain()
    assert len(stage.desk.clicks) == 1


async def test_an_answer_is_plain_text_whatever_is_in_it(stage: Any) -> None:
    stage.desk.answer = Answer(Answered.NOT_ALLOWED, f"Not you. {HOSTILE}")
    await post(stage)
    await stage.connect()
    await stage.click("U0ALICE", "Approve")
    (told,) = stage.channel.ephemeral
    (block,) = told.blocks
    assert block["text"]["type"] == "plain_text"
    assert [part for part in ("<!channel>", "<@", "@here") if part in told.text + block["text"]["text"]] == []
