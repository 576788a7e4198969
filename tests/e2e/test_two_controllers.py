"""Two controllers: one works, the other waits, and a dead, slow or leaving one never writes beside its successor."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from taintctl.cli.lab import CONTROLLER
from tests.e2e.town import LEASES, RULES, VICTIMS, Process, Town, Write, town

pytestmark = pytest.mark.process


def assert_never_both(place: Town, first: str, second: str) -> None:
    """All that the first wrote comes before all that the second wrote."""
    one, other = place.by(first), place.by(second)
    assert one, "the first one wrote nothing"
    assert other, "the second one wrote nothing"
    assert max(one) < min(other), [place.writes[at] for at in one if at > min(other)]
    assert place.writes[min(other)].key == LEASES


async def test_the_second_takes_over_when_the_first_is_killed_and_evicts_nobody_twice(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        place.policy()
        first = await place.controller()
        await first.says("the lease is ours")
        account = place.second_account()
        second = await place.controller(account)
        said = await second.says(r"another controller \((\S+)\) is at work; waiting for its lease")
        assert said[1] == place.holder()
        assert await second.probe("/readyz") == (200, "ok")
        assert await second.probe("/healthz") == (200, "ok")

        def evicting(write: Write) -> None:
            if write.key == RULES and write.effect == "NoExecute":
                first.kill()

        place.hooks.append(evicting)
        place.start()
        await place.hands()
        await place.reaches("Succeeded")
        place.assert_ended_well()
        assert_never_both(place, CONTROLLER, account)
        by = dict(place.evicted)
        assert by["team-b/notebook-0"] == account
        assert await second.stop() == 0
        place.assert_nothing_odd_said()


async def frozen_in(place: Town, phase: str) -> tuple[Process, str]:
    """A controller that stops inside the write of that phase (SIGSTOP, as a frozen container does), and the account of
    another one that waits."""
    first = await place.controller()
    await first.says("the lease is ours")
    account = place.second_account()
    second = await place.controller(account)
    await second.says("waiting for its lease")

    def freeze(write: Write) -> None:
        if write.phase == phase and write.user == CONTROLLER:
            first.signal(signal.SIGSTOP)

    place.hooks.append(freeze)
    return first, account


async def wakes_up_and_ends(place: Town, first: Process, account: str) -> None:
    first.signal(signal.SIGCONT)
    assert await first.ended() == 1
    assert "work has stopped, since the lease is lost" in first.said()
    assert_never_both(place, CONTROLLER, account)
    place.assert_nothing_odd_said()


async def test_one_that_was_frozen_before_it_made_a_rule_makes_none_when_it_wakes_up(tmp_path: Path) -> None:
    """By then the run has ended: the rule would be left behind."""
    async with town(tmp_path) as place:
        place.policy()
        first, account = await frozen_in(place, "DryRun")
        place.start()
        await place.reaches("AwaitingApproval")
        place.patch(cancelled=True)
        await place.reaches("Cancelled")
        await wakes_up_and_ends(place, first, account)
        assert len(place.made_rules()) == 1
        assert place.sandbox.store.list(RULES) == []


async def test_one_that_was_frozen_in_the_middle_of_an_eviction_writes_nothing_more(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        place.policy()
        first, account = await frozen_in(place, "Draining")
        place.start()
        await place.reaches("AwaitingApproval")
        place.approve()
        await place.reaches("InMaintenance")
        await wakes_up_and_ends(place, first, account)
        assert dict(place.evicted)["team-b/notebook-0"] == account
        assert len(place.evicted) == len(VICTIMS)


async def test_one_that_is_told_to_stop_lets_the_other_begin_at_once(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        place.policy()
        first = await place.controller()
        await first.says("the lease is ours")
        account = place.second_account()
        second = await place.controller(account)
        await second.says("waiting for its lease")
        place.start()
        await place.reaches("AwaitingApproval")
        assert await first.stop() == 0
        assert first.said().splitlines()[-1].endswith("the lease is released")
        await second.says("the lease is ours")
        place.approve()
        await place.reaches("Notice")
        assert await second.stop() == 0
        assert_never_both(place, CONTROLLER, account)
        assert len(place.made_rules()) == 1
        assert place.holder() == ""
        place.assert_nothing_odd_said()
