"""Windows: why somebody says no, and the pages of details."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from taintctl.adapters.slack import limits, modals
from taintctl.adapters.slack.value import Subject, loads
from taintctl.api.approval import ApprovalDecision
from taintctl.ports.chat import Details
from taintctl.sandbox.slack.people import View
from tests.slack.conftest import post
from tests.slack.runs import DIGEST, view, whole_plan


def opened(stage: Any) -> View:
    return list(stage.slack.views.values())[-1]


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


async def test_the_longest_names_and_addresses_fit_a_windows_buttons(stage: Any) -> None:
    subject = Subject("r" * 253, "u" * 64, DIGEST, "C" * 30, "1" * 20, "https://hooks.slack.com/" + "x" * 476, 100_000)
    found = Details(view(), whole_plan(200), same=True)
    assert limits.modal_problems(modals.details(replace(subject, page=1), found)) == []
    assert limits.modal_problems(modals.deny(subject)) == []
    assert loads(subject.dumps()) == subject
