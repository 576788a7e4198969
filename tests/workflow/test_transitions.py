"""What the table alone proves, and what a move does."""

from __future__ import annotations

import re
from collections import deque
from datetime import timedelta
from pathlib import Path

import pytest

from taintctl.api.reasons import ENDED, Phase, Reason
from taintctl.api.run import RunStatus
from taintctl.workflow import TRANSITIONS, ImpossibleTransition, mermaid, move
from taintctl.workflow.transitions import BEFORE_MAINTENANCE, PLAN_PROBLEMS
from tests.workflow.builders import NOW

ROOT = Path(__file__).parents[2]


def reachable(start: Phase | None, without: frozenset[Phase] = frozenset()) -> set[Phase | None]:
    """Every phase that a path from `start` comes to, never through one of `without`."""
    found: set[Phase | None] = {start}
    queue = deque(found)
    while queue:
        at = queue.popleft()
        for origin, _, to in TRANSITIONS:
            if origin == at and to not in found and to not in without:
                found.add(to)
                queue.append(to)
    return found


@pytest.mark.parametrize("step", [Phase.DRY_RUN, Phase.AWAITING_APPROVAL, Phase.NOTICE])
@pytest.mark.parametrize("evicts", [Phase.EVICTING, Phase.DRAINING])
def test_no_path_to_eviction_misses_the_dry_run_the_approval_or_the_notice(evicts: Phase, step: Phase) -> None:
    assert evicts in reachable(None)
    assert evicts not in reachable(None, frozenset({step}))


def test_eviction_begins_only_with_a_passed_gate() -> None:
    """By the taint, or through the Eviction API; and from the one to the other with the gate passed once more."""
    into = {(a, r, to) for a, r, to in TRANSITIONS if to in (Phase.EVICTING, Phase.DRAINING)}
    assert into == {
        (Phase.NOTICE, Reason.GATE_PASSED, Phase.EVICTING),
        (Phase.NOTICE, Reason.GATE_PASSED, Phase.DRAINING),
        (Phase.DRAINING, Reason.GATE_PASSED, Phase.EVICTING),
        (Phase.EVICTING, Reason.EVICTION_ACKNOWLEDGED, Phase.DRAINING),
    }


def test_awaiting_approval_is_reached_from_a_dry_run_alone_and_notice_from_it_alone() -> None:
    assert {a for a, _, to in TRANSITIONS if to is Phase.AWAITING_APPROVAL} == {Phase.DRY_RUN}
    assert {a for a, _, to in TRANSITIONS if to is Phase.NOTICE} == {Phase.AWAITING_APPROVAL}


@pytest.mark.parametrize("back", [Phase.BLOCKED, Phase.EVICTING, Phase.DRAINING, Phase.NOTICE])
def test_whoever_leaves_the_ladder_comes_to_eviction_again_only_through_a_dry_run(back: Phase) -> None:
    rest = {to for a, _, to in TRANSITIONS if a is back} - {Phase.EVICTING, Phase.DRAINING}
    for to in rest:
        assert Phase.EVICTING not in reachable(to, frozenset({Phase.DRY_RUN})) or to is Phase.DRY_RUN


@pytest.mark.parametrize("end", [Phase.RELEASING, Phase.SUCCEEDED])
def test_no_path_to_release_misses_the_idle_proof(end: Phase) -> None:
    assert end in reachable(None)
    assert end not in reachable(None, frozenset({Phase.IN_MAINTENANCE}))
    assert {a for a, _, to in TRANSITIONS if to is Phase.IN_MAINTENANCE} == {Phase.DRAINING}


def test_out_of_maintenance_there_is_no_way_but_release_or_rules_that_are_gone_already() -> None:
    out = {(reason, to) for a, reason, to in TRANSITIONS if a is Phase.IN_MAINTENANCE}
    assert {to for reason, to in out if reason is not Reason.RULE_DELETED} == {Phase.RELEASING}
    assert {to for reason, to in out if reason is Reason.RULE_DELETED} == {Phase.ROLLING_BACK}


@pytest.mark.parametrize("phase", [None, *sorted(set(Phase) - ENDED)])
def test_every_phase_can_come_to_an_end(phase: Phase | None) -> None:
    assert reachable(phase) & ENDED


def test_an_ended_phase_is_reached_only_where_no_rule_of_ours_is_left() -> None:
    assert {a for a, _, to in TRANSITIONS if to in ENDED} == {Phase.PENDING, Phase.RELEASING, Phase.ROLLING_BACK}
    assert not [t for t in TRANSITIONS if t[0] in ENDED], "an end is an end"


@pytest.mark.parametrize("phase", sorted(BEFORE_MAINTENANCE))
@pytest.mark.parametrize(
    "reason", [Reason.DELETED, Reason.CANCELLED, Reason.DEADLINE_PASSED, Reason.RULE_CHANGED, Reason.RULE_DELETED]
)
def test_every_phase_before_maintenance_can_be_interrupted(phase: Phase, reason: Reason) -> None:
    assert (phase, reason, Phase.ROLLING_BACK) in TRANSITIONS


def test_every_problem_of_a_plan_that_impact_knows_has_its_way_to_blocked() -> None:
    source = "".join(path.read_text() for path in (ROOT / "taintctl" / "impact").glob("*.py"))
    named = {Reason[name] for name in re.findall(r"Problem\(\s*(?:reason=)?Reason\.([A-Z_]+)", source)}
    assert named, "impact names its problems"
    assert named <= PLAN_PROBLEMS


def test_a_move_that_is_not_in_the_table_is_a_mistake() -> None:
    with pytest.raises(ImpossibleTransition, match="InMaintenance -> Succeeded"):
        move(RunStatus(phase=Phase.IN_MAINTENANCE), Phase.SUCCEEDED, Reason.COMPLETED, "no", NOW)


def test_a_move_tells_what_where_and_when() -> None:
    status, event = move(RunStatus(phase=Phase.DRY_RUN), Phase.BLOCKED, Reason.MISMATCH, "They differ.", NOW, "look")
    assert (status.phase, status.phase_since, status.reason) == (Phase.BLOCKED, NOW, "Mismatch")
    assert (status.message, status.next_step) == ("They differ.", "look")
    assert status.history[0].dump() == {
        "at": "2026-11-30T21:00:00Z",
        "from": "DryRun",
        "to": "Blocked",
        "reason": "Mismatch",
    }
    assert (event.type, event.reason, event.message) == ("Warning", "Mismatch", "Blocked: They differ.")


def test_the_history_keeps_the_last_fifty() -> None:
    status = RunStatus(phase=Phase.PENDING)
    ways = [
        (Phase.DRY_RUN, Reason.WAITING_FOR_DRY_RUN),
        (Phase.AWAITING_APPROVAL, Reason.WAITING_FOR_APPROVAL),
        (Phase.NOTICE, Reason.NOTICE_GIVEN),
        (Phase.BLOCKED, Reason.MISMATCH),
    ]
    for number in range(80):
        to, reason = ways[number % len(ways)]
        status, _ = move(status, to, reason, "", NOW + timedelta(minutes=number))
    assert len(status.history) == 50
    assert status.history[-1].at == NOW + timedelta(minutes=79)


def test_a_run_that_is_blocked_again_and_again_keeps_how_it_came_there() -> None:
    status = RunStatus(phase=Phase.PENDING)
    status, _ = move(status, Phase.DRY_RUN, Reason.WAITING_FOR_DRY_RUN, "", NOW)
    for minute in range(200):
        at = NOW + timedelta(minutes=minute)
        status, _ = move(status, Phase.BLOCKED, Reason.POLICY_VIOLATED, "", at)
        status, _ = move(status, Phase.DRY_RUN, Reason.WAITING_FOR_DRY_RUN, "", at)
    assert [(e.from_, e.to) for e in status.history] == [
        ("Pending", "DryRun"),
        ("DryRun", "Blocked"),
        ("Blocked", "DryRun"),
    ]
    # The second move of a moment comes after the first.
    assert status.history[-1].at == NOW + timedelta(minutes=199, microseconds=1)


def test_long_messages_are_cut_to_what_the_api_takes() -> None:
    status, event = move(RunStatus(phase=Phase.DRY_RUN), Phase.BLOCKED, Reason.MISMATCH, "x" * 5000, NOW)
    assert len(status.message) == 2048
    assert len(event.message.encode()) <= 1024


def test_the_diagram_in_the_documentation_is_the_table() -> None:
    page = (ROOT / "docs" / "design" / "workflow.md").read_text()
    assert f"```mermaid\n{mermaid()}```" in page, "paste what `taintctl.workflow.mermaid()` returns"
