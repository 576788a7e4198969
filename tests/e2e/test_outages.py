"""An API server that goes away or has a bad day: the run ends right all the same, and meanwhile it is said why."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from taintctl.cli.lab import CONTROLLER
from tests.e2e.town import APPROVALS, RULES, RUNS, Write, town

pytestmark = pytest.mark.process

CLAIMS = "resourceclaims.resource.k8s.io"


async def test_away_for_longer_than_the_lease_once_before_eviction_and_once_in_it(tmp_path: Path) -> None:
    """A controller that can't renew its lease ends; as the kubelet does, it is started again, and waits."""
    async with town(tmp_path) as place:
        place.policy()
        place.start()
        faults = place.sandbox.faults
        away_in: list[str] = []
        gone = asyncio.Event()

        def go(write: Write) -> None:
            if write.phase in ("Notice", "Draining") and write.phase not in away_in:
                away_in.append(write.phase)
                faults.go_away()
                gone.set()

        async def outages() -> None:
            process = await place.controller()
            while True:
                await gone.wait()
                assert await process.ended() == 1
                assert "work has stopped, since the lease is lost; start again" in process.said()
                process = await place.controller()
                await process.says(r"The API server at 127\.0\.0\.1:\d+ can't be reached")
                assert await process.probe("/readyz") == (503, "waiting for the API server")
                assert await process.probe("/healthz") == (200, "ok")
                place.forget_lease()  # it has run out long ago
                gone.clear()
                faults.clear()
                await process.probes("/readyz", 200)

        place.hooks.append(go)
        async with asyncio.TaskGroup() as group:
            weather = group.create_task(outages())
            await place.hands()
            await place.reaches("Succeeded")
            await place.until(lambda: not faults.away, "the end of the outage")
            weather.cancel()
        assert away_in == ["Notice", "Draining"]
        place.assert_ended_well()
        place.assert_nothing_odd_said()


async def test_a_bad_day_at_the_api_server(tmp_path: Path) -> None:
    """One controller lives through refused lists, lost answers, expired watches and a kopf that has to begin anew."""
    async with town(tmp_path) as place:
        place.policy()
        faults = place.sandbox.faults
        controller = await place.controller()
        await controller.says("the lease is ours")

        # The rules can't be read: nothing is done, and the run says so.
        unreadable = faults.fail(500, verbs=["list"], resources=[RULES], users=[CONTROLLER])
        place.start()
        await place.until(lambda: "the cluster can't be read" in place.status().get("message", ""), "the sentence")
        assert "devicetaintrules" in place.status()["message"]
        await controller.says(r"MaintenanceRun run: .*devicetaintrules.*; trying again")
        assert place.made_rules() == []
        faults.clear(unreadable)
        await place.reaches("AwaitingApproval")

        # Every watch of ours is refused with a 410, so that kopf begins again; the answer to NoSchedule gets lost.
        expired = faults.fail(410, verbs=["watch"], resources=[RUNS, APPROVALS], users=[CONTROLLER], times=2)
        lost = [faults.drop(verbs=["patch"], resources=[RULES], times=1, after=True)]
        faults.expire_watches()
        await place.until(lambda: expired.remaining == 0, "watches that are refused")
        place.approve()

        # Claims can't be read: the gate does not open.
        def unreadable_claims(write: Write) -> None:
            if write.phase == "Notice":
                place.hooks.clear()
                faults.fail(503, verbs=["list"], resources=[CLAIMS], users=[CONTROLLER])

        place.hooks.append(unreadable_claims)
        await place.until(lambda: "can't be read" in place.status().get("message", ""), "a gate that does not open")
        assert "NoExecute" not in [write.effect for write in place.writes]
        faults.clear()
        await place.reaches("Draining")

        # Answers get lost where it matters: an eviction, and the rule that is deleted.
        lost.append(faults.drop(verbs=["create"], resources=["pods/eviction"], times=1, after=True))
        lost.append(faults.drop(verbs=["delete"], resources=[RULES], times=1, after=True))
        faults.fail(500, users=[CONTROLLER], times=10)
        faults.cut_watches()
        await place.reaches("InMaintenance")
        place.patch(workCompleted=True)
        await place.reaches("Succeeded")
        place.assert_ended_well()
        place.assert_nothing_odd_said()
        assert [answer.met for answer in lost] == [1, 1, 1]
        assert len(place.started) == 1
        assert await controller.stop() == 0
