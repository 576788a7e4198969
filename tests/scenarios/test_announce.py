"""People are told of a run by one message that follows it; a chat that fails holds no run up and approves none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from taintctl.api.run import Notification
from taintctl.ports.chat import ChatError
from tests.scenarios.chat import FakeChat, FakeHook
from tests.scenarios.world import LENIENT, ON_NODE_1, RUNS, World

pytestmark = pytest.mark.looptime

CHANNEL = "C0123456789"
SLACK = {"slack": {"channel": CHANNEL}}
URL = "https://hooks.example.com:8443/t/secret-path?key=secret"
ALICE = "alice@example.com"
NO_CHANNEL = ChatError("channel_not_found: invite the app", code="channel_not_found")


def asks(world: World, notifications: dict[str, Any]) -> None:
    world.policy(**{**LENIENT, "autoApprove": {}}, notifications=notifications)


def slack(world: World, kind: str = "Slack") -> Notification:
    return next(one for one in world.run().status.notifications if one.kind == kind)


def notified(world: World) -> tuple[str, str, str] | None:
    found = [c for c in world.run().status.conditions if c.type == "Notified"]
    return (found[0].status, found[0].reason, found[0].message) if found else None


async def test_one_message_follows_a_run_to_its_end() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control(chat=chat)
        await world.start(policyName="policy", work={"mode": "Duration", "duration": "1m"})
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.wait(60)
        (message,) = chat.messages.values()
        assert (message["channel"], message["shown"], message["thread"]) == (CHANNEL, "AwaitingApproval 0", [])
        assert slack(world).nonce == message["nonce"]
        assert notified(world) == ("True", "Notified", f"Told in Slack ({CHANNEL}).")
        await world.decide(alice, ALICE, "Approve")
        await world.until_phase(Phase.SUCCEEDED)
        await world.wait(60)
        (message,) = chat.messages.values()
        assert message["shown"] == "Succeeded 1"
        told = [line.split(" ")[0] for line in message["thread"]]
        assert told == ["Notice", "Evicting", "Draining", "InMaintenance", "Releasing", "Succeeded"]
        assert message["thread"][-1].startswith("Succeeded (Completed): ")
        calls = len(chat.calls)
        await world.wait(900)
        assert len(chat.calls) == calls


async def test_a_run_that_asks_nobody_is_told_of_too() -> None:
    async with World() as world:
        world.policy(**LENIENT, notifications=SLACK)
        chat = FakeChat()
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(30)
        (message,) = chat.messages.values()
        assert message["shown"] == "InMaintenance 0"


async def test_where_the_policy_wants_nobody_told_nobody_is() -> None:
    async with World() as world:
        asks(world, {})
        chat = FakeChat()
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.wait(400)
        assert (chat.calls, world.run().status.notifications, notified(world)) == ([], (), None)


async def test_a_chat_that_fails_is_said_and_the_run_is_approved_all_the_same() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        chat.fails = NO_CHANNEL
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.until(lambda: notified(world) is not None)
        assert notified(world) == (
            "False",
            "NotifyFailed",
            "Slack: channel_not_found: invite the app; it is tried again, and taintctl approve run works all the same.",
        )
        assert "Nobody could be told in Slack: channel_not_found" in world.run().status.message
        await world.wait(1200)
        assert world.phase() is Phase.AWAITING_APPROVAL
        # 2, 4, 8 ... 256 s, then every 5 minutes: not a storm.
        assert 8 <= len(chat.calls) <= 12
        assert slack(world).failures == len(chat.calls)
        await world.decide(alice, ALICE, "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        # Once it works again it is told of.
        chat.fails = None
        await world.wait(600)
        (message,) = chat.messages.values()
        assert message["shown"] == "InMaintenance 1"
        assert notified(world) == ("True", "Notified", f"Told in Slack ({CHANNEL}).")
        assert slack(world).failing_since is None


async def test_a_chat_that_asks_to_wait_is_left_alone_for_so_long() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        chat.fails = ChatError("rate limited", code="ratelimited", retry_after=timedelta(seconds=500))
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until(lambda: bool(chat.calls))
        await world.wait(490)
        assert chat.calls == ["post"]
        await world.wait(20)
        assert chat.calls == ["post", "post"]


async def test_a_restart_goes_on_with_the_same_message() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until(lambda: notified(world) is not None)
        await world.control(chat=chat)
        await world.decide(alice, ALICE, "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(30)
        (message,) = chat.messages.values()
        assert message["shown"] == "InMaintenance 1"


async def test_a_message_whose_answer_was_lost_is_found_again() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        chat.answers_lost = True
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until(lambda: bool(chat.messages))
        await world.control(chat=chat)
        await world.until(lambda: notified(world) is not None and notified(world)[0] == "True")  # type: ignore[index]
        assert len(chat.messages) == 1
        assert slack(world).ts == next(iter(chat.messages))


async def test_a_controller_killed_between_nonce_and_post_posts_once() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.kill()
        chat.messages.clear()
        entry = {
            "kind": "Slack",
            "target": CHANNEL,
            "channel": CHANNEL,
            "nonce": "0" * 32,
            "postingSince": "2026-12-01T20:00:00Z",
        }
        world.store.mutate(RUNS, None, "run", lambda r: r["status"].update(notifications=[entry]), subresource="status")
        await world.control(chat=chat)
        await world.until(lambda: slack(world).ts != "")
        (message,) = chat.messages.values()
        assert message["nonce"] == slack(world).nonce != "0" * 32


async def test_a_message_that_somebody_deleted_is_posted_again() -> None:
    async with World() as world:
        asks(world, SLACK)
        chat = FakeChat()
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control(chat=chat)
        await world.start(policyName="policy")
        await world.until(lambda: notified(world) is not None)
        chat.fails, chat.only = ChatError("the message is gone", code="message_not_found"), ("update", "reply")
        await world.decide(alice, ALICE, "Approve")
        await world.until(lambda: len(chat.messages) == 2)
        chat.fails = None
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(60)
        assert chat.messages[slack(world).ts]["shown"] == "InMaintenance 1"


async def test_a_controller_without_tokens_says_so() -> None:
    async with World() as world:
        asks(world, SLACK)
        await world.control()
        await world.start(policyName="policy")
        await world.until(lambda: notified(world) is not None)
        assert "the controller has no Slack tokens" in notified(world)[2]  # type: ignore[index]
        assert world.phase() is Phase.AWAITING_APPROVAL


async def test_a_webhook_gets_each_change_once_and_a_retry_has_the_same_id() -> None:
    async with World() as world:
        world.policy(**LENIENT, notifications={"webhook": {"url": URL}})
        hook = FakeHook()
        hook.fails = ChatError("the receiver answered 500")
        await world.control(webhook=hook)
        await world.start(policyName="policy", notice="5m")
        await world.until_phase(Phase.NOTICE)
        await world.wait(60)
        assert len(hook.sent) > 2
        assert notified(world) == ("False", "NotifyFailed", "Webhook: the receiver answered 500; it is tried again.")
        first = hook.sent[-1][1]
        hook.fails = None
        await world.wait(120)
        again = hook.sent[-1][1]
        assert (again["id"], again["phase"], again["run"]["name"]) == (first["id"], "Notice", "run")
        assert {url for url, _ in hook.sent} == {URL}
        assert slack(world, "Webhook").target == "https://hooks.example.com:8443"
        assert "secret" not in str(world.raw())
        sent = len(hook.sent)
        await world.wait(30)
        assert len(hook.sent) == sent
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.wait(30)
        assert hook.sent[-1][1]["phase"] == "InMaintenance"
        assert hook.sent[-1][1]["counts"]["pods"] == 5


async def test_a_controller_without_a_key_sends_nothing_and_says_so() -> None:
    async with World() as world:
        asks(world, {"webhook": {"url": URL}})
        await world.control()
        await world.start(policyName="policy")
        await world.until(lambda: notified(world) is not None)
        assert "the controller has no webhook key" in notified(world)[2]  # type: ignore[index]
