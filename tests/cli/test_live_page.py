"""The page that `taintctl status --watch` shows on a terminal: what moves first, never more than there is room for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rich.text import Text

from taintctl.api.run import MaintenanceRun
from taintctl.cli.fit import fit
from taintctl.cli.views.run import live_view, run_view
from tests.cli.builders import AWAITING, NOW, at, plain, policy, run

EVICTS: dict[str, Any] = {"drain": {"mode": "Evict"}}


def _draining() -> MaintenanceRun:
    """Sixty pods, fifteen rules and fifteen moves: more than any terminal shows."""
    pods = [{"namespace": "a", "name": f"p{n:02d}", "uid": f"u{n}", "effect": "Evicted"} for n in range(60)]
    rules = [{**AWAITING["rules"][0], "name": f"r{n}", "device": f"gpu-{n}"} for n in range(15)]
    moves = [{"at": at(90 - n), "from": "DryRun", "to": "Blocked", "reason": "PolicyViolated"} for n in range(15)]
    eviction = {"startedAt": at(60), "pending": 3, "terminating": [{"namespace": "a", "name": "p1", "uid": "u1"}]}
    plan = {**AWAITING["plan"], "pods": pods}
    status = {**AWAITING, "phase": "Draining", "plan": plan, "eviction": eviction, "rules": rules, "history": moves}
    return run(**status)


def eighty(lines: list[Text]) -> list[Text]:
    return [part for item in lines for part in fit(item, 80)]


@pytest.mark.parametrize(
    ("height", "cut", "out"),
    [
        (24, [], ["Rules", "Pods", "History"]),
        # Ten more lines than what moves and the counts take.
        (40, [r"^  and \d+ more \(-o wide shows them\)$"], ["History"]),
        (70, [r"^  and \d+ more \(-o wide shows them\)$", r"^History \(\d+ earlier: -o wide\)$"], ["Target:"]),
    ],
)
def test_a_live_page_has_what_moves_and_the_next_step_and_as_much_as_fits(
    height: int, cut: list[str], out: list[str]
) -> None:
    page = live_view(_draining(), policy(), NOW, height=height, fitted=eighty)
    assert len(page) <= height
    assert max(len(item.plain) for item in page) <= 80
    text = plain(page)
    for moving in (
        "Next: taintctl approve nightly-1",
        "Still there:  3 to go, 1 terminating",
        "Approval: 1 of 2 given",
    ):
        assert moving in text
    assert "  Accepted   True" in text
    assert text.endswith("\ntaintctl status nightly-1 shows all of it.")
    for pattern in cut:
        assert re.search(pattern, text, re.MULTILINE), text
    for title in out:
        assert f"\n{title}" not in text


def test_a_live_page_on_a_high_terminal_leaves_nothing_out() -> None:
    everything = plain(live_view(run(**AWAITING), policy(), NOW, height=500, fitted=eighty))
    assert "shows all of it." not in everything
    assert "Target:" in everything


def test_a_live_page_says_of_pods_what_their_drain_mode_does() -> None:
    page = plain(live_view(run(**AWAITING, spec=EVICTS), policy(), NOW, height=500, fitted=eighty))
    assert "Evicted (1): taintctl evicts them through the Eviction API" in page


def test_on_eighty_columns_the_history_keeps_its_times_whole() -> None:
    entries = [{"at": at(1), "from": "AwaitingApproval", "to": "InMaintenance", "reason": "EvictionAcknowledged"}]
    page = plain(eighty(run_view(run(phase="Draining", history=entries), policy(), NOW)))
    assert "  2026-12-01 21:02:59 UTC   InMaintenance   EvictionAcknowledged\n" in page
