"""What an operator does to a run or to its rules, in every phase, does what the API says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.reasons import Phase
from tests.scenarios.stops import (
    BEFORE_MAINTENANCE,
    EVICTION,
    PATIENT,
    SLOW,
    TAKING_OFF,
    WITH_RULES_BEFORE_MAINTENANCE,
    bring_to,
    effects_of,
    gone,
    has_finalizer,
    let_rules_go,
    no_execute_since,
    roomy,
    rules_of,
    warnings,
    when_effect,
)
from tests.scenarios.world import CLAIMS, MONITOR, NODE, ON_NODE_1, RULES, World

pytestmark = pytest.mark.looptime

LEFT_ALONE = 30.0
"""Seconds after which whatever was still to be evicted would have been."""


async def nobody_else_goes(world: World, already: list[str]) -> None:
    """From now on no pod is deleted, with an eviction controller that works."""
    await world.wait(1)  # the decision is stored first, and then the rule is patched
    world.sandbox.manager.resume(EVICTION)
    await world.wait(LEFT_ALONE)
    assert world.deleted_pods == already


# cancel


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_cancelling_before_maintenance_takes_the_rules_off_and_evicts_nobody_more(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        already = list(world.deleted_pods)
        await world.patch(cancelled=True)
        await world.until_phase(Phase.CANCELLED, seconds=30)
        assert world.run().status.reason == "Cancelled"
        assert rules_of(world) == []
        await nobody_else_goes(world, already)
        assert rules_of(world) == []
        await world.delete()
        await world.until(lambda: gone(world), 10)


async def test_cancelled_in_maintenance_keeps_the_taint_until_somebody_releases() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE)
        await world.patch(cancelled=True)
        await world.wait(LEFT_ALONE)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.run().status.reason == "WaitingForRelease"
        assert effects_of(world) == {"NoExecute"}
        await world.patch(released=True)
        await world.until_phase(Phase.CANCELLED, seconds=30)
        world.assert_no_rule_left()


@pytest.mark.parametrize(("phase", "end"), [(Phase.RELEASING, Phase.SUCCEEDED), (Phase.ROLLING_BACK, Phase.CANCELLED)])
@pytest.mark.parametrize("hand", ["cancelled", "paused"])
async def test_taking_off_goes_on_to_its_end_whatever_is_asked_meanwhile(phase: Phase, end: Phase, hand: str) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        already = list(world.deleted_pods)
        await world.patch(**{hand: True})
        await world.wait(LEFT_ALONE)
        assert world.phase() is phase
        assert world.deleted_pods == already
        let_rules_go(world)
        await world.until_phase(end, seconds=30)
        world.assert_no_rule_left()


async def test_a_rule_that_something_else_holds_back_no_longer_evicts_once_it_is_to_go() -> None:
    """Deletion alone does not end a taint: a rule with somebody's finalizer stays in force until that is off."""
    async with roomy() as world:
        await bring_to(world, Phase.ROLLING_BACK)
        assert PATIENT in world.pods()
        await world.until(lambda: effects_of(world) == {"None"}, 10)
        await world.wait(LEFT_ALONE)
        assert PATIENT in world.pods()
        assert len(rules_of(world)) == 1
        let_rules_go(world)
        await world.until_phase(Phase.CANCELLED, seconds=30)


@pytest.mark.parametrize("phase", [Phase.NOTICE, Phase.EVICTING, Phase.DRAINING])
async def test_where_the_policy_keeps_the_taint_a_cancelled_run_stops_at_no_schedule(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase, policy={"rollbackOn": ["DrainTimeout"]})
        already = list(world.deleted_pods)
        await world.patch(cancelled=True)
        await world.until(lambda: world.run().status.reason == "WaitingForRelease", 30)
        await nobody_else_goes(world, already)
        assert world.phase() is phase
        assert effects_of(world) == {"NoSchedule"}
        assert "taintctl release" in world.run().status.next_step
        await world.patch(released=True)
        await world.until_phase(Phase.CANCELLED, seconds=30)
        world.assert_no_rule_left()
        assert world.deleted_pods == already


async def test_a_cancelled_run_that_kept_its_taint_and_is_wanted_after_all_passes_the_gate_again() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.DRAINING, policy={"rollbackOn": []})
        await world.patch(cancelled=True)
        await world.until(lambda: world.run().status.reason == "WaitingForRelease", 30)
        moment = world.clock.now()
        await world.patch(cancelled=False)
        await world.until_phase(Phase.DRY_RUN)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert no_execute_since(world, moment)[0][0] - moment >= timedelta(seconds=10)
        assert PATIENT in world.deleted_pods


# delete


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_deleting_before_maintenance_takes_the_rules_off_and_the_run_goes(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        assert has_finalizer(world)
        already = list(world.deleted_pods)
        await world.delete()
        await world.until(lambda: gone(world), 30)
        assert rules_of(world) == []
        await nobody_else_goes(world, already)
        assert rules_of(world) == []


@pytest.mark.parametrize("word", ["workCompleted", "released"])
async def test_deleting_in_maintenance_waits_for_complete_or_release_and_says_so(word: str) -> None:
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE)
        await world.delete()
        await world.wait(LEFT_ALONE)
        status = world.run().status
        assert (status.phase, status.reason) == (Phase.IN_MAINTENANCE, "WaitingForRelease")
        assert "taintctl complete run" in status.message
        assert "taintctl release" in status.message
        assert effects_of(world) == {"NoExecute"}
        await world.patch(**{word: True})
        await world.until(lambda: gone(world), 30)
        world.assert_no_rule_left()


@pytest.mark.parametrize("word", ["workCompleted", "released"])
@pytest.mark.parametrize("before", ["cancelled", "paused"])
async def test_deleted_in_maintenance_after_another_hand_still_goes_with_one_word(before: str, word: str) -> None:
    """The deletion waits for complete or release, whatever was asked before; and it says so."""
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE)
        await world.patch(**{before: True})
        await world.delete()
        await world.wait(30)
        assert world.phase() is Phase.IN_MAINTENANCE
        if before == "paused":
            await world.patch(paused=False)
        await world.patch(**{word: True})
        await world.until(lambda: gone(world), 30)
        world.assert_no_rule_left()


@pytest.mark.parametrize("phase", TAKING_OFF)
async def test_deleting_while_the_rules_come_off_lets_the_run_go_with_the_last_of_them(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        await world.delete()
        await world.wait(LEFT_ALONE)
        assert not gone(world)
        let_rules_go(world)
        await world.until(lambda: gone(world), 30)
        world.assert_no_rule_left()


async def test_a_run_deleted_while_no_controller_is_there_keeps_its_rules_until_one_comes() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.NOTICE)
        await world.kill()
        await world.delete()
        await world.wait(600)
        assert not gone(world)
        assert effects_of(world) == {"NoSchedule"}
        await world.control()
        await world.until(lambda: gone(world), 30)
        world.assert_no_rule_left()
        world.assert_never_no_execute()


async def test_an_ended_run_goes_when_it_is_deleted() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", work={"mode": "Duration", "duration": "1m"})
        await world.until_phase(Phase.SUCCEEDED)
        await world.delete()
        await world.until(lambda: gone(world), 10)


# pause and resume


@pytest.mark.parametrize("phase", BEFORE_MAINTENANCE)
async def test_a_paused_run_takes_no_further_step_and_nothing_evicts(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        already, rules = list(world.deleted_pods), {r["metadata"]["uid"] for r in rules_of(world)}
        await world.patch(paused=True)
        await world.until(lambda: world.run().status.reason == "Paused", 30)
        if phase is Phase.PENDING:
            await world.patch("earlier", cancelled=True)
        await nobody_else_goes(world, already)
        assert world.phase() is phase
        assert {r["metadata"]["uid"] for r in rules_of(world)} == rules
        expected = {
            Phase.PENDING: set(),
            Phase.DRY_RUN: {"None"},
            Phase.BLOCKED: {"None"},
            Phase.AWAITING_APPROVAL: {"None"},
        }.get(phase, {"NoSchedule"})
        assert effects_of(world) == expected
        assert world.run().status.next_step == "taintctl resume run"


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.DRY_RUN, Phase.NOTICE, Phase.EVICTING, Phase.DRAINING])
async def test_going_on_repeats_the_dry_run_and_then_evicts_who_is_left(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase, **({"notice": "15s"} if phase is Phase.NOTICE else {}))
        await world.patch(paused=True)
        await world.until(lambda: world.run().status.reason == "Paused", 30)
        world.sandbox.manager.resume(EVICTION)
        if phase is Phase.PENDING:
            await world.patch("earlier", cancelled=True)
        await world.wait(LEFT_ALONE)
        rounds, moment = world.run().status.dry_run.round, world.clock.now()
        await world.patch(paused=False)
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=300)
        assert world.run().status.dry_run.round > rounds
        first = no_execute_since(world, moment)[0][0]
        assert first - moment >= timedelta(seconds=10)
        assert world.pods_on(NODE) == {MONITOR}


async def test_an_approval_holds_over_a_pause_where_nothing_changed_and_no_longer_where_a_pod_arrived() -> None:
    for arrives in (False, True):
        async with World() as world:
            world.policy(budgets="Ignore")
            alice = await world.user("alice@example.com", "taintctl-approver")
            await world.control()
            await world.start(policyName="policy", notice="5m")
            await world.until_phase(Phase.AWAITING_APPROVAL)
            await world.decide(alice, "alice@example.com", "Approve")
            await world.until_phase(Phase.NOTICE)
            await world.patch(paused=True)
            await world.wait(30)
            if arrives:
                world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
                await world.until(lambda: "team-b/newcomer" in world.pods_on(NODE))
            await world.patch(paused=False)
            await world.wait(600)
            if arrives:
                assert world.phase() is Phase.AWAITING_APPROVAL
                world.assert_never_no_execute()
                await world.decide(alice, "alice@example.com", "Approve")
                await world.until_phase(Phase.IN_MAINTENANCE)
                assert "team-b/newcomer" in world.deleted_pods
            else:
                assert world.phase() is Phase.IN_MAINTENANCE


async def test_an_approval_given_during_a_pause_evicts_nobody_until_it_goes_on() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.patch(paused=True)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(300)
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert effects_of(world) == {"None"}
        await world.patch(paused=False)
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_paused_in_maintenance_stays_at_no_schedule_and_a_finished_work_waits_for_the_resume() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE)
        await world.patch(paused=True)
        await world.until(lambda: effects_of(world) == {"NoSchedule"}, 30)
        await world.patch(workCompleted=True)
        await world.wait(LEFT_ALONE)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.run().status.reason == "Paused"
        assert len(rules_of(world)) == 1
        await world.patch(paused=False)
        await world.until_phase(Phase.SUCCEEDED, seconds=30)
        world.assert_no_rule_left()


# flags at the wrong time


@pytest.mark.parametrize("phase", [Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.EVICTING, Phase.DRAINING])
@pytest.mark.parametrize("word", ["workCompleted", "released"])
async def test_complete_or_release_too_early_skips_no_gate_and_no_proof(phase: Phase, word: str) -> None:
    async with roomy() as world:
        await bring_to(world, phase, **({"notice": "15s"} if phase is Phase.NOTICE else {}))
        await world.patch(**{word: True})
        if phase is Phase.AWAITING_APPROVAL:
            await world.wait(300)
            assert world.phase() is Phase.AWAITING_APPROVAL
            return
        world.sandbox.manager.resume(EVICTION)
        busy: list[str] = []

        def look(event: Any) -> None:
            if event.type == "DELETED" and not event.obj["metadata"]["name"].endswith("-dry"):
                busy.extend(world.pods_on(NODE) - {MONITOR})

        world.store.subscribe(RULES, look)
        await world.until_phase(Phase.SUCCEEDED, seconds=300)
        assert busy == []
        assert "InMaintenance" in world.seen["run"]
        assert {SLOW, PATIENT, *ON_NODE_1} == set(world.deleted_pods)
        world.assert_no_rule_left()


async def test_no_hand_brings_an_ended_run_back() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.NOTICE)
        await world.patch(cancelled=True)
        await world.until_phase(Phase.CANCELLED)
        await world.patch(cancelled=False, paused=True)
        await world.patch(paused=False, workCompleted=True, released=True)
        await world.patch(deadline=format_time(world.clock.now() + timedelta(days=1)))
        await world.wait(LEFT_ALONE)
        assert world.phase() is Phase.CANCELLED
        world.assert_no_rule_left()
        world.assert_never_no_execute()


# rules edited or deleted by hand


def edit(world: World, what: str) -> None:
    """As `kubectl edit` or `kubectl delete` on the run's own rule."""
    rule = next(r for r in rules_of(world) if not r["metadata"]["name"].endswith("-dry"))
    name = rule["metadata"]["name"]
    if what == "deleted":
        world.store.delete(RULES, None, name)
        return

    def change(obj: dict[str, Any]) -> None:
        spec = obj["spec"]
        if what == "selector":
            spec["deviceSelector"]["pool"] = "gpu-worker-02"
        elif what == "key":
            spec["taint"]["key"] = "example.com/mine"
        elif what == "value":
            spec["taint"]["value"] = "mine"
        else:
            spec["taint"]["effect"] = what

    world.store.mutate(RULES, None, name, change)


EDITS = ("deleted", "selector", "key", "value", "NoSchedule", "None", "NoExecute")
EFFECT_IN = {Phase.NOTICE: "NoSchedule", Phase.EVICTING: "NoExecute", Phase.DRAINING: "NoExecute"}


@pytest.mark.parametrize(
    ("phase", "what"),
    [
        (p, e)
        for p in WITH_RULES_BEFORE_MAINTENANCE
        for e in EDITS
        if e != EFFECT_IN.get(p, "None") and (e not in ("key", "value") or p is Phase.NOTICE)
    ],
)
async def test_a_rule_touched_by_hand_before_maintenance_stops_the_run(phase: Phase, what: str) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        [rule] = rules_of(world)
        edit(world, what)
        moment, already = world.clock.now(), list(world.deleted_pods)
        await world.until_phase(Phase.FAILED, seconds=120)
        status = world.run().status
        assert status.reason == ("RuleDeleted" if what == "deleted" else "RuleChanged")
        assert rule["metadata"]["name"] in status.message
        assert rules_of(world) == []
        if what != "NoExecute":
            await nobody_else_goes(world, already)
        assert no_execute_since(world, moment) == []
        assert warnings(world, status.reason)


@pytest.mark.parametrize("what", ["deleted", "selector", "NoSchedule", "None"])
async def test_a_rule_touched_by_hand_in_maintenance_is_left_alone_until_somebody_releases(what: str) -> None:
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE, work={"mode": "Duration", "duration": "1m"})
        edit(world, what)
        moment = world.clock.now()
        spec = [r["spec"] for r in rules_of(world)]
        await world.wait(75)
        status = world.run().status
        assert (status.phase, status.reason) == (
            Phase.IN_MAINTENANCE,
            "RuleDeleted" if what == "deleted" else "RuleChanged",
        )
        assert warnings(world, status.reason)
        assert [r["spec"] for r in rules_of(world)] == spec
        assert no_execute_since(world, moment) == []
        await world.patch(released=True)
        await world.until_phase(Phase.SUCCEEDED, seconds=30)
        world.assert_no_rule_left()


async def test_devices_that_are_in_use_again_since_the_rule_was_deleted_by_hand_can_be_let_go() -> None:
    """Nothing is left to take off, so release ends the run; it never says that the devices were idle."""
    async with roomy() as world:
        await bring_to(world, Phase.IN_MAINTENANCE)
        edit(world, "deleted")
        world.sandbox.start_pod("team-a", "next", on=NODE, template="one-gpu")
        await world.until(lambda: "team-a/next" in world.pods_on(NODE))
        await world.wait(60)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.condition("DevicesIdle") == "False"
        await world.patch(released=True)
        await world.until(lambda: (world.phase() or Phase.PENDING).ended, 60)
        assert world.condition("DevicesIdle") == "False"
        assert "team-a/next" in world.pods()


async def test_the_rule_of_the_second_look_deleted_by_hand_stops_the_run() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        when_effect(world, "NoSchedule", lambda: world.sandbox.manager.pause(EVICTION))
        await world.start(policyName="policy")
        await world.until(lambda: any(r["metadata"]["name"].endswith("-dry") for r in rules_of(world)))
        await world.wait(5)
        dry = next(r["metadata"]["name"] for r in rules_of(world) if r["metadata"]["name"].endswith("-dry"))
        world.store.delete(RULES, None, dry)
        await world.until_phase(Phase.FAILED, seconds=30)
        assert world.run().status.reason == "RuleDeleted"
        assert dry in world.run().status.message
        world.assert_no_rule_left()
        world.assert_never_no_execute()


@pytest.mark.parametrize("phase", [*WITH_RULES_BEFORE_MAINTENANCE, Phase.IN_MAINTENANCE])
async def test_a_label_and_an_annotation_more_on_our_rule_are_harmless(phase: Phase) -> None:
    async with roomy() as world:
        await bring_to(world, phase)
        for rule in rules_of(world):

            def note(obj: dict[str, Any]) -> None:
                obj["metadata"]["labels"]["example.com/ticket"] = "4711"
                obj["metadata"].setdefault("annotations", {})["example.com/note"] = "looked at by the night shift"

            world.store.mutate(RULES, None, rule["metadata"]["name"], note)
        await world.wait(15)
        assert world.phase() in (phase, Phase.IN_MAINTENANCE)
        assert "RuleChanged" not in {h.reason for h in world.run().status.history}
        await world.patch(cancelled=True, released=True)
        await world.until_phase(Phase.CANCELLED, seconds=60)
        world.assert_no_rule_left()


async def test_a_rule_edited_while_no_controller_was_there_stops_the_run_too() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.NOTICE)
        await world.wait(5)
        await world.kill()
        edit(world, "None")
        edit(world, "NoSchedule")
        await world.wait(600)
        await world.control()
        await world.until_phase(Phase.FAILED, seconds=30)
        assert world.run().status.reason == "RuleChanged"
        world.assert_never_no_execute()
        world.assert_no_rule_left()


# the deadline moved by hand


async def test_a_later_deadline_gives_a_waiting_run_more_time_and_voids_nothing() -> None:
    async with World() as world:
        world.policy(budgets="Ignore", approval={"expiresAfter": "3h"})
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        start = world.clock.now()
        await world.start(
            policyName="policy",
            startAt=format_time(start + timedelta(minutes=40)),
            deadline=format_time(start + timedelta(minutes=45)),
        )
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(60)
        await world.patch(deadline=format_time(start + timedelta(hours=2)))
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=42 * 60)
        await world.wait(5 * 60)
        assert world.phase() is Phase.IN_MAINTENANCE
        assert world.run().status.reason == "WaitingForWork"


async def test_an_earlier_deadline_in_draining_takes_the_rules_off() -> None:
    async with roomy() as world:
        await bring_to(world, Phase.DRAINING)
        already = list(world.deleted_pods)
        await world.patch(deadline=format_time(world.clock.now() + timedelta(seconds=3)))
        await world.until_phase(Phase.FAILED, seconds=10)
        assert world.run().status.reason == "DeadlinePassed"
        world.assert_no_rule_left()
        await nobody_else_goes(world, already)


async def test_the_spec_cannot_be_changed_otherwise() -> None:
    """An API server refuses it; so no run can be made to mean more while it is under way."""
    from taintctl.ports.errors import Invalid

    async with World() as world:
        world.policy(budgets="Ignore")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        for change in (
            {"target": {"pool": "gpu-worker-02"}},
            {"policyName": None},
            {"notice": "1h"},
            {"drain": {"timeout": "1h"}},
            {"startAt": format_time(world.clock.now())},
            {"taint": {"key": "example.com/other"}},
            {"atDeadline": "KeepTainted"},
        ):
            with pytest.raises(Invalid):
                await world.patch(**change)
        assert len(world.store.list(CLAIMS)) > 0
