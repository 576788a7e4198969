"""Clicks in a chat, against a whole cluster: what counts, what comes too late, and what is never written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from taintctl.api.approval import ApprovalDecision
from taintctl.api.reasons import Phase
from taintctl.ports.chat import Answer, Answered, Click, Person, Posted
from taintctl.ports.errors import Unavailable
from taintctl.reconcile.desk import ApprovalDesk
from taintctl.reconcile.gather import Reader
from tests.scenarios.chat import FakeChat
from tests.scenarios.world import APPROVALS, LENIENT, ON_NODE_1, POLICIES, RUNS, World

pytestmark = pytest.mark.looptime

ANN = Person(user_id="U024BE7LH", team_id="T024BE7LD", name="Ann", email="ann@example.com")
BEN = Person(user_id="U0614BEN1", team_id="T024BE7LD", name="Ben", groups=frozenset({"S0614TZR7", "S0000000X"}))
EVE = Person(user_id="U0000000E", team_id="T024BE7LD", name="Eve")
APPROVERS = [
    {"kind": "Slack", "name": ANN.user_id, "kubernetesUser": "ann"},
    {"kind": "SlackGroup", "name": "S0614TZR7"},
    {"name": "alice@example.com"},
]
MESSAGE = Posted("C0123456789", "1764622800.000000")
ENTRY = {"kind": "Slack", "target": MESSAGE.channel, "channel": MESSAGE.channel, "ts": MESSAGE.ts, "nonce": "n1"}


def desk(world: World, cluster: Any = None) -> ApprovalDesk:
    cluster = cluster or world.cluster
    return ApprovalDesk(cluster, Reader(cluster, None, world.clock, world.settings), world.clock, world.settings)


async def asking(world: World, *, count: int = 1, requested_by: str | None = None, **policy: Any) -> Click:
    """A run that asks, with its message; Ann's click on it."""
    approval = {"approvers": APPROVERS, "count": count, **policy}
    slack = {"slack": {"channel": MESSAGE.channel}}
    world.policy(**{**LENIENT, "autoApprove": {}, "approval": approval, "notifications": slack})
    await world.control(chat=FakeChat())
    who = world.admin
    if requested_by is not None:
        who = await world.user(requested_by, "taintctl-operator")
    await world.start(policyName="policy", by=who, **({"requestedBy": requested_by} if requested_by else {}))
    await world.until_phase(Phase.AWAITING_APPROVAL)
    await world.until(lambda: [n.ts for n in world.run().status.notifications] == [MESSAGE.ts])
    asked = world.run().status.approval
    assert asked is not None
    assert asked.asked is not None
    return Click("run", world.run().metadata.uid, asked.asked.digest, ApprovalDecision.APPROVE, ANN, MESSAGE)


def noted(world: World, **changes: str) -> None:
    world.store.mutate(
        RUNS, None, "run", lambda r: r["status"].update(notifications=[{**ENTRY, **changes}]), subresource="status"
    )


def approvals(world: World) -> list[dict[str, Any]]:
    return [a["spec"] for a in world.store.list(APPROVALS)]


async def test_a_click_becomes_one_approval_and_the_run_goes_on() -> None:
    async with World() as world:
        click = await asking(world)
        answer = await desk(world).decide(replace(click, comment=" go \n"))
        assert answer == Answer(
            Answered.RECORDED, "You approved run run for the plan shown. It goes on now, after one more look."
        )
        (spec,) = approvals(world)
        assert spec["approver"] == {"kind": "Slack", "name": "U024BE7LH"}
        assert spec["slack"] == {
            "team": "T024BE7LD",
            "displayName": "Ann",
            "email": "ann@example.com",
            "groups": [],
            "channel": "C0123456789",
            "ts": "1764622800.000000",
        }
        assert spec["comment"] == "go"
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        given = world.run().status.approval.given  # type: ignore[union-attr]
        assert [(g.approver, g.kind, g.name) for g in given] == [("U024BE7LH", "Slack", "Ann")]


async def test_clicks_twice_and_by_two_people_count_as_people() -> None:
    async with World() as world:
        click = await asking(world, count=2)
        first = await desk(world).decide(click)
        assert first.text.endswith("1 more person must approve.")
        assert (await desk(world).decide(click)).result is Answered.REPEATED
        await world.wait(30)
        assert (await desk(world).decide(click)).result is Answered.REPEATED
        assert len(approvals(world)) == 1
        assert world.phase() is Phase.AWAITING_APPROVAL
        # Ben is in the group; of his groups the policy's one is written down.
        assert (await desk(world).decide(replace(click, person=BEN))).result is Answered.RECORDED
        (ben,) = [a for a in approvals(world) if a["approver"]["name"] == BEN.user_id]
        assert ben["slack"]["groups"] == ["S0614TZR7"]
        await world.until_phase(Phase.NOTICE)
        late = await desk(world).decide(replace(click, person=replace(BEN, user_id="U0000BEN2")))
        assert late.result is Answered.DECIDED
        assert "taintctl cancel run" in late.text


async def test_a_denial_with_its_comment_ends_the_run_and_is_called_that() -> None:
    async with World() as world:
        click = await asking(world)
        answer = await desk(world).decide(replace(click, decision=ApprovalDecision.DENY, comment="not tonight"))
        assert answer.text == "You denied run run: it is cancelled, and nothing is evicted by it."
        await world.until_phase(Phase.CANCELLED)
        assert world.run().status.reason == "Denied"
        assert world.run().status.message == "Ann (U024BE7LH in Slack) denied the eviction: not tonight"
        after = await desk(world).decide(click)
        assert after == Answer(Answered.DECIDED, "Run run was denied already; nothing is evicted by it.")
        world.assert_never_no_execute()
        assert len(approvals(world)) == 1


@pytest.mark.parametrize(
    ("person", "why"),
    [
        (EVE, "Eve (U0000000E in Slack) is not among the approvers of EvictionPolicy policy"),
        (replace(EVE, email="ann@example.com"), "is not among the approvers"),
        (replace(ANN, is_bot=True), "An app can't decide"),
        (replace(ANN, deleted=True), "A deactivated account can't decide"),
        (replace(BEN, groups=frozenset({"S0000000X"})), "is not among the approvers"),
    ],
)
async def test_whoever_may_not_is_told_so_and_nothing_is_written(person: Person, why: str) -> None:
    async with World() as world:
        click = replace(await asking(world), person=person)
        for decision in (ApprovalDecision.APPROVE, ApprovalDecision.DENY, ApprovalDecision.BREAK):
            answer = await desk(world).decide(replace(click, decision=decision))
            assert answer.result is Answered.NOT_ALLOWED
            assert why in answer.text
        assert approvals(world) == []


async def test_who_asked_for_the_run_does_not_approve_it_in_slack() -> None:
    async with World() as world:
        click = await asking(world, requested_by="ann")
        answer = await desk(world).decide(click)
        assert answer.result is Answered.NOT_ALLOWED
        assert "Ann (U024BE7LH in Slack) asked for the run" in answer.text
        assert (await desk(world).decide(replace(click, person=BEN))).text.startswith("Nothing tells whether Ben")
        assert approvals(world) == []


async def test_a_click_on_another_plan_message_or_run_decides_nothing() -> None:
    async with World() as world:
        click = await asking(world)
        for wrong, result in (
            (replace(click, digest="0" * 64), Answered.OTHER_PLAN),
            (replace(click, message=Posted("C0123456789", "1.2")), Answered.SUPERSEDED),
            (replace(click, message=Posted("C9999999999", MESSAGE.ts)), Answered.SUPERSEDED),
            (replace(click, run_uid="other"), Answered.GONE),
            (replace(click, run_name="nobody"), Answered.GONE),
        ):
            answer = await desk(world).decide(wrong)
            assert (answer.result, answer.text.count(". ") <= 2) == (result, True)
        noted(world, ts="")
        assert (await desk(world).decide(click)).result is Answered.FAILED
        assert approvals(world) == []
        assert world.phase() is Phase.AWAITING_APPROVAL


async def test_a_plan_that_changed_since_the_click_s_message_is_not_approved_by_it() -> None:
    async with World() as world:
        click = await asking(world)
        world.store.mutate(POLICIES, None, "policy", lambda p: p["spec"].update(budgets="Warn"))
        await world.until(lambda: world.run().status.approval.asked.digest != click.digest)  # type: ignore[union-attr]
        await world.until_phase(Phase.AWAITING_APPROVAL)
        answer = await desk(world).decide(click)
        assert answer.result is Answered.OTHER_PLAN
        assert approvals(world) == []


async def test_a_click_after_the_time_ran_out_is_expired_and_not_denied() -> None:
    async with World() as world:
        click = await asking(world, expiresAfter="10m")
        await world.kill()
        await world.wait(601)
        answer = await desk(world).decide(click)
        assert answer.result is Answered.EXPIRED
        assert answer.text == ("The time to approve run run has run out; nothing was changed. Start another run.")
        await world.control(chat=FakeChat())
        await world.until_phase(Phase.CANCELLED)
        assert world.run().status.reason == "ApprovalExpired"
        assert (await desk(world).decide(click)).result is Answered.EXPIRED
        assert approvals(world) == []


async def test_a_question_that_is_asked_again_can_be_answered_again() -> None:
    async with World() as world:
        click = await asking(world, count=2, expiresAfter="10m", onExpiry="AskAgain")
        assert (await desk(world).decide(click)).result is Answered.RECORDED
        await world.wait(700)
        assert world.run().status.approval.given == ()  # type: ignore[union-attr]
        assert (await desk(world).decide(click)).result is Answered.RECORDED
        assert len(approvals(world)) == 2


async def test_without_the_admission_policy_a_click_counts_for_nothing() -> None:
    async with World() as world:
        click = await asking(world)
        bindings = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
        world.store.delete(bindings, None, "taintctl-approvals")
        answer = await desk(world).decide(click)
        assert answer.result is Answered.NOT_ALLOWED
        assert "ValidatingAdmissionPolicy" in answer.text
        assert approvals(world) == []


class _Broken:
    """The cluster, with one call that fails."""

    def __init__(self, cluster: Any, call: str, error: Exception) -> None:
        self._cluster, self._call, self._error = cluster, call, error

    def __getattr__(self, name: str) -> Any:
        if name == self._call:
            raise self._error
        return getattr(self._cluster, name)


@pytest.mark.parametrize("error", [Unavailable("the API server did not answer"), RuntimeError("boom")])
@pytest.mark.parametrize("call", ["get", "list", "create", "approvals_verified"])
async def test_what_can_not_be_read_or_written_is_no_approval(call: str, error: Exception) -> None:
    async with World() as world:
        click = await asking(world)
        broken = desk(world, _Broken(world.cluster, call, error))
        answer = await broken.decide(click)
        assert answer.result is Answered.FAILED
        assert answer.text.endswith("Nothing was decided; try again, or use: taintctl approve run")
        assert "boom" not in answer.text
        if call == "get":
            assert await broken.groups("run") == ()
            details = await broken.details("run", click.run_uid)
            assert details is not None
            assert (details.plan, details.same) == (None, False)
        assert approvals(world) == []


async def test_details_are_the_plan_as_it_is_now_and_say_whether_it_is_the_one_asked_about() -> None:
    async with World() as world:
        click = await asking(world)
        details = await desk(world).details("run", click.run_uid)
        assert details is not None
        assert details.plan is not None
        assert details.same
        assert {f"{p.namespace}/{p.name}" for p in details.plan.counted_pods} == ON_NODE_1
        assert await desk(world).details("run", "other") is None
        assert await desk(world).groups("run") == ("S0614TZR7",)
        assert await desk(world).groups("nobody") == ()
        await world.kill()
        world.store.delete("pods", "team-a", "train-01")
        await world.until(lambda: "team-a/train-01" not in world.pods())
        changed = await desk(world).details("run", click.run_uid)
        assert changed is not None
        assert not changed.same
        assert changed.note.startswith("The cluster has changed since")
