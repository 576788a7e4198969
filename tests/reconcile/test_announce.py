"""The announcer's own bounds; what it tells is in tests/scenarios/test_announce.py."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.api.base import ObjectMeta
from taintctl.api.run import HistoryEntry, MaintenanceRun, Notification, RunSpec, RunStatus
from taintctl.api.target import Target
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import Unavailable
from taintctl.reconcile import announce
from taintctl.reconcile.announce import Announcer
from taintctl.reconcile.news import event_id, lines, origin, steps
from taintctl.workflow.model import Settings

NOW = datetime(2026, 12, 1, 21, 0, tzinfo=UTC)


class Cluster:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}

    async def get(self, kind: Any, name: str) -> None:
        self.asked.append(name)
        if name in self.fails:
            raise self.fails.pop(name)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.looptime
async def test_so_many_runs_wait_at_a_time_and_the_rest_is_found_by_a_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announce, "MAX_RUNS", 2)
    cluster: Any = Cluster()
    announcer = Announcer(cluster, cluster, SystemClock(), Settings())
    for name in ("a", "b", "c", "a"):
        announcer.tell(name)
    task = asyncio.ensure_future(announcer.run())
    await settled()
    assert cluster.asked == ["a", "b"]
    announcer.tell("c")
    await settled()
    assert cluster.asked == ["a", "b", "c"]
    task.cancel()


@pytest.mark.looptime
@pytest.mark.parametrize("error", [Unavailable("no answer"), RuntimeError("boom")])
async def test_a_run_that_can_not_be_read_is_tried_again_and_holds_no_other_up(error: Exception) -> None:
    cluster: Any = Cluster()
    cluster.fails["a"] = error
    announcer = Announcer(cluster, cluster, SystemClock(), Settings())
    announcer.tell("a")
    announcer.tell("b")
    task = asyncio.ensure_future(announcer.run(workers=1))
    await settled()
    assert cluster.asked == ["a", "b"]
    await asyncio.sleep(3)
    assert cluster.asked == ["a", "b", "a"]
    task.cancel()


def run(*history: tuple[str, str], **status: Any) -> MaintenanceRun:
    entries = tuple(
        HistoryEntry(at=NOW + timedelta(seconds=n), from_=from_, to=to, reason="R")
        for n, (from_, to) in enumerate(history)
    )
    return MaintenanceRun(
        metadata=ObjectMeta(name="night", uid="u"),
        spec=RunSpec(target=Target(driver="d"), deadline=NOW),
        status=RunStatus(history=entries, **status),
    )


def test_the_thread_has_the_steps_after_the_approval_and_a_way_back() -> None:
    found = run(
        ("Pending", "DryRun"), ("DryRun", "AwaitingApproval"), ("AwaitingApproval", "Notice"), ("Notice", "DryRun")
    )
    entry = Notification(kind="Slack", target="C1")
    assert [step.to for step in steps(found, entry)] == ["Notice", "DryRun"]
    later = entry.model_copy(update={"told": NOW + timedelta(seconds=2)})
    assert [step.to for step in steps(found, later)] == ["DryRun"]


def test_what_is_told_in_one_go_is_bounded() -> None:
    many = run(*[("Notice", "DryRun"), ("AwaitingApproval", "Notice")] * 20, phase="Notice", message="m" * 2000)
    told = lines(many, steps(many, Notification(kind="Slack", target="C1")))
    assert len(told) == 10
    assert told[0] == "31 steps: DryRun to DryRun"
    assert told[1] == "Notice (R)"
    assert len(told[-1]) == 600
    assert told[-1].startswith("Notice (R): mmm")
    assert lines(many, ()) == ()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example.com/secret?key=secret", "https://hooks.example.com"),
        ("http://[2001:db8::1]:8080/secret", "http://[2001:db8::1]:8080"),
    ],
)
def test_of_a_url_only_scheme_host_and_port_are_shown(url: str, shown: str) -> None:
    assert origin(url) == shown


def test_an_event_s_id_is_that_of_the_change() -> None:
    one = run(phase="Notice", phase_since=NOW, reason="NoticeGiven", message="said so")
    assert event_id(one) == event_id(run(phase="Notice", phase_since=NOW, reason="NoticeGiven", message="said again"))
    assert event_id(one) != event_id(run(phase="Notice", phase_since=NOW, reason="SecondLook"))
    assert len(event_id(one)) == 32
