"""What people read: the words, and Slack's limits whatever a plan holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from taintctl.adapters.slack import limits, modals
from taintctl.adapters.slack.render import message, superseded
from taintctl.adapters.slack.value import Subject, loads
from taintctl.ports.chat import Details, RunView
from taintctl.sandbox.slack.blocks import check_message, check_view, mentions
from tests.slack.runs import CLOSES, DIGEST, HOSTILE, OPENS, UID, policy, run, view, whole_plan

SUBJECT = Subject("gpus-29430", UID, DIGEST, "C0123456789", "1.2", "https://hooks.slack.com/actions/x", 0)
LONG = HOSTILE * 40


def words(made: dict[str, Any]) -> str:
    return json.dumps(made, ensure_ascii=False)


def texts(made: Any) -> Iterator[tuple[str, str]]:
    """Every text object: its type and its words."""
    if isinstance(made, dict):
        if isinstance(made.get("text"), str) and "type" in made:
            yield made["type"], made["text"]
            assert made["type"] == "plain_text" or made["verbatim"] is True
        for value in made.values():
            yield from texts(value)
    elif isinstance(made, list):
        for value in made:
            yield from texts(value)


def labels(made: dict[str, Any]) -> list[str]:
    return [b["text"]["text"] for block in made["blocks"] if block["type"] == "actions" for b in block["elements"]]


def everything(pods: int, word: str) -> RunView:
    """A run with all that can be said of one."""
    plan = {
        "violations": [
            {"check": check, "limit": "1", "actual": "2", "message": f"too many{word}"}
            for check in ("maxPods", "protected", "budgets") * 20
        ],
        "budgets": [{"namespace": f"ns{word}", "name": f"b-{n}{word}", "allowed": 0, "needed": 2} for n in range(100)],
        "lostWith": [{"namespace": f"ns{word}", "owner": f"JobSet/j{word}", "hit": 1, "count": 3} for _ in range(50)],
        "multipleBudgets": [f"ns/p{word}"] * 20,
    }
    given = [
        {"approval": f"a-{n}", "approver": f"U{n}", "kind": "Slack", "name": f"dave{word}", "comment": f"ok{word}"}
        for n in range(20)
    ]
    ignored = [{"approval": "a", "reason": "OtherPlan", "message": word}]
    approval = {"given": given, "ignored": ignored, "needed": 20, "breakNeeded": True}
    made = run(pods, word=word, plan=plan, approval=approval, name="g" * 253, nextStep=f"taintctl{word}")
    spec = {"limits": {"maxPods": 1, "maxDevices": "25%", "maxUnavailable": 3}}
    return RunView(made, policy(**spec))


@pytest.mark.parametrize("pods", [0, 1, 10_000])
@pytest.mark.parametrize("word", ["", HOSTILE, LONG, '"\\' * 300], ids=["plain", "markup", "long", "quotes"])
class TestLimits:
    def test_of_messages(self, pods: int, word: str) -> None:
        for shown in (view(pods, word=word), everything(pods, word), RunView(run(pods, word=word), None)):
            made = message(shown)
            assert limits.message_problems(made) == []
            check_message(made["blocks"])
            harmless(made)

    def test_of_windows(self, pods: int, word: str) -> None:
        found = Details(view(pods, word=word), whole_plan(pods, word), same=not word, note=f"differs{word}")
        page, pages = 0, 0
        while True:
            made = modals.details(Subject("gpus-29430", UID, DIGEST, page=page), found)
            if page in (0, 1, 100):
                assert limits.modal_problems(made) == []
                check_view(made)
                harmless(made)
            nexts = [b for block in made["blocks"] if block["type"] == "actions" for b in block["elements"]]
            onward = next((loads(b["value"]) for b in nexts if b["action_id"].endswith("next")), None)
            pages += 1
            if onward is None or pages > 3:
                break
            page = onward.page
        for made in (modals.deny(SUBJECT), modals.loading(SUBJECT), modals.refused(SUBJECT, word or "no")):
            assert limits.modal_problems(made) == []
            check_view(made)
            harmless(made)

    def test_of_what_is_left_of_a_message(self, pods: int, word: str) -> None:
        made = superseded(f"Another stands for it{word}")
        assert limits.message_problems(made) == []
        harmless(made)


def harmless(made: dict[str, Any]) -> None:
    """No outside word is markup, a mention or a link, and nothing that can't be seen is in any text."""
    for kind, text in texts(made["blocks"]):
        assert mentions(text) == []
        markup = outside_code(text) if kind == "mrkdwn" else ""
        assert [part for part in ("*bold*", "_it_", "~no~", "\n>") if part in markup] == []
        assert [part for part in ("@here", "<!channel>", "<@", "\x07", "\u202e") if part in text] == []


def outside_code(text: str) -> str:
    return "".join(text.split("`")[::2])


def test_the_last_of_ten_thousand_pods_is_on_the_last_page() -> None:
    found = Details(view(10_000), whole_plan(10_000), same=True)
    made = modals.details(Subject("gpus-29430", UID, DIGEST, page=99_999), found)
    assert "page 167 of 167" in words(made)  # 10,000 pods, 4 headings, 1 device and its heading: 10,006 lines at 60
    assert labels(made) == ["Previous"]
    assert "node-1/gpu-0" in words(made)


def test_a_window_says_what_is_asked_and_when() -> None:
    made = message(view(3))
    said = words(made)
    opens, closes = (int(datetime.fromisoformat(t).astimezone(UTC).timestamp()) for t in (OPENS, CLOSES))
    assert made["blocks"][0]["text"]["text"] == "🗓️ Planned maintenance: gpus"
    assert f"<!date^{opens}^{{date_short_pretty}} {{time}}|2026-12-01 21:00 UTC>" in said
    assert f"<!date^{closes}^" in said
    expectations = """
        `gpus-29430`
        ✋ *Waiting for approval*
        *Evicted* 1
        does not reach them
        `team-1` `Deployment/web-1`
        no owner: nothing brings it back
        *Approvals* 0 of 1, until <!date^
        taintctl status gpus-29430
        kubectl describe mr gpus-29430
        *Devices*\\n4
        `node-0`
    """
    for expected in (line.strip() for line in expectations.strip().splitlines()):
        assert expected in said
    assert labels(made) == ["Approve", "Deny", "Details"]


def test_tolerating_pods_and_those_the_taint_does_not_reach_are_warned_of() -> None:
    said = words(message(view(4)))
    assert "⚠️ extended resources: the taint does not reach them, taintctl evicts them" in said
    assert "⚠️ they tolerate the taint and stay" in said


def test_counts_stand_against_the_policys_limits() -> None:
    spec = {"limits": {"maxPods": 2, "maxDevices": "25%", "maxUnavailable": 8}}
    said = words(message(RunView(run(3), policy(**spec))))
    assert "❗ *over*: 3 pods of at most 2" in said
    assert "4 devices of at most 4" in said  # 25% of 16 published
    assert "0 devices out of service of at most 8" in said


def test_a_break_is_asked_for_until_somebody_gave_one() -> None:
    protected = {"violations": [{"check": "protected", "limit": "", "actual": "", "message": "2 pods of team-0"}]}
    made = message(view(plan=protected, approval={"breakNeeded": True, "needed": 2}))
    assert labels(made) == ["Approve with Break", "Deny", "Details"]
    assert "🛡️ *Protected pods: a Break is needed.* 2 pods of team-0" in words(made)
    given = [{"approval": "a", "approver": "U0BOB", "kind": "Slack", "name": "bob", "breaks": True}]
    made = message(view(approval={"breakNeeded": True, "needed": 2, "given": given}))
    assert labels(made) == ["Approve", "Deny", "Details"]
    assert "👍 bob (`U0BOB` in Slack) with Break" in words(made)


def test_where_nobody_may_through_slack_there_is_no_button_for_it() -> None:
    made = message(RunView(run(), policy({"kind": "Kubernetes", "name": "alice"})))
    assert labels(made) == ["Details"]
    assert "nobody may approve through Slack" in words(made)
    assert "taintctl approve gpus-29430" in words(made)
    unread = message(RunView(run(), None))
    assert labels(unread) == ["Details"]
    assert "can't be read" in words(unread)


@pytest.mark.parametrize(
    ("kind", "name"), [("Slack", "U024BE7LH"), ("SlackGroup", "S0614TZR7"), ("Email", "ann@example.com")]
)
def test_each_kind_of_approver_in_slack_gives_the_buttons(kind: str, name: str) -> None:
    assert labels(message(RunView(run(), policy({"kind": kind, "name": name})))) == ["Approve", "Deny", "Details"]


@pytest.mark.parametrize(
    "run_",
    [
        run(phase="Notice", reason="NoticeGiven"),
        run(phase="Succeeded", reason="Completed"),
        run(phase="DryRun", reason="PlanChanged"),
        run(approval={"approvedAt": OPENS}),
        run(approval={"needed": 0}),
        run(approval={"asked": None}),
    ],
)
def test_without_a_question_there_are_no_buttons(run_: Any) -> None:
    assert labels(message(RunView(run_, policy()))) == []


def test_expired_denied_and_void_are_three_words() -> None:
    shown = {
        reason: words(message(view(phase=phase, reason=reason)))
        for phase, reason in (
            ("Cancelled", "Denied"),
            ("RollingBack", "ApprovalExpired"),
            ("DryRun", "PlanChanged"),
        )
    }
    assert [("Denied*" in said, "Expired: nobody" in said, "Void: the plan" in said) for said in shown.values()] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    again = message(view(reason="PlanChanged"))
    assert "♻️ *Void: the plan changed*" in words(again)
    assert labels(again) == ["Approve", "Deny", "Details"]


def test_plans_quarantines_and_brakes_differ_at_a_glance() -> None:
    quarantine = run(spec={"trigger": {"type": "Manual"}})
    trigger = quarantine.spec.trigger.model_copy(update={"type": "Quarantine"})
    quarantine = quarantine.model_copy(update={"spec": quarantine.spec.model_copy(update={"trigger": trigger})})
    heads = [
        message(RunView(shown, policy()))["blocks"][0]["text"]["text"]
        for shown in (run(), run(spec={"trigger": {"type": "Manual"}}), quarantine, run(reason="BrakeOn"))
    ]
    assert heads == [
        "🗓️ Planned maintenance: gpus",
        "🔧 Maintenance by hand: gpus-29430",
        "🚨 QUARANTINE: gpus-29430",
        "🛑 BRAKE: gpus",
    ]


def test_a_run_that_has_ended_is_short_and_one_that_waits_for_hands_says_the_next_step() -> None:
    ended = words(message(view(phase="Succeeded", reason="Completed")))
    assert ("*Counts*" in ended, "*Evicted*" in ended) == (True, False)
    blocked = words(message(view(phase="Blocked", reason="PolicyViolated", nextStep="taintctl explain gpus-29430")))
    assert "Next: `taintctl explain gpus-29430`" in blocked


def test_details_of_another_plan_say_so_and_those_of_none_say_why() -> None:
    other = Details(view(), whole_plan(1), same=False, note="The cluster has changed since.")
    said = words(modals.details(SUBJECT, other))
    assert "⚠️ *This is not the plan that is asked about.*\\nThe cluster has changed since." in said
    none = words(modals.details(SUBJECT, Details(view(), None, same=False, note="It can't be read now.")))
    assert ("It can't be read now." in none, "not the plan" in none) == (True, False)


def test_a_button_says_which_plan_and_not_who() -> None:
    button = next(block for block in message(view())["blocks"] if block["type"] == "actions")["elements"][0]
    assert json.loads(button["value"]) == {"r": "gpus-29430", "u": UID, "d": DIGEST}


def test_budgets_that_would_break_are_told_by_how_the_drain_goes() -> None:
    short = {"budgets": [{"namespace": "team-0", "name": "web", "allowed": 1, "needed": 2}]}
    assert "`team-0/web` *would break*: 2 needed, 1 allowed" in words(message(view(plan=short)))
    evict = view(plan=short, spec={"drain": {"mode": "Evict"}})
    assert "`team-0/web` is waited for" in words(message(evict))
    enough = {"budgets": [{"namespace": "team-0", "name": "web", "allowed": 2, "needed": 2}]}
    assert "Budget" not in words(message(view(plan=enough)))


def test_the_checker_finds_what_is_too_long() -> None:
    made = {"text": "x" * 4001, "blocks": [{"type": "header", "text": {"type": "plain_text", "text": "h" * 151}}] * 51}
    found = limits.message_problems(made)
    assert any("51 blocks" in problem for problem in found)
    assert any("header has 151" in problem for problem in found)
    assert any("text has 4001" in problem for problem in found)
    title = {"title": {"type": "plain_text", "text": "t" * 25}, "blocks": [{"type": "divider"}]}
    assert limits.modal_problems(title) == ["title has 25 characters; 1 to 24 are taken"]


def test_times_and_pages_that_are_not_ours_are_nothing() -> None:
    assert loads(SUBJECT.dumps()) == SUBJECT
    for wrong in (
        None,
        "",
        "{",
        "3",
        "[]",
        '{"r": "a", "u": "u", "d": "x"}',
        SUBJECT.dumps().replace('"r":"', '"r":"../'),
    ):
        assert loads(wrong) is None
