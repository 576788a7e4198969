"""One controller at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from taintctl.adapters.kubernetes.client import Client
from taintctl.controller.lease import LeaderElection, LeaseTimes
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import Forbidden, NotFound, Unavailable
from tests.adapters.server import Server

LEASES = "leases.coordination.k8s.io"
TIMES = LeaseTimes(duration=0.6, renew=0.4, retry=0.05)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as made:
        made.store.create("namespaces", {"metadata": {"name": "taintctl-system"}})
        yield made


def election(client: Client, server: Server, identity: str, times: LeaseTimes = TIMES) -> LeaderElection:
    return LeaderElection(client, server.clock, "taintctl-system", identity, times)


def stored(server: Server) -> dict[str, Any]:
    return dict(server.store.get(LEASES, "taintctl-system", "taintctl")["spec"])


async def test_the_first_one_has_it_at_once_and_writes_what_others_can_read(server: Server) -> None:
    async with server.client() as client:
        await asyncio.wait_for(election(client, server, "one").acquire(), 5)
    spec = stored(server)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 1)
    assert spec.get("leaseTransitions", 0) == 0
    assert spec["acquireTime"].endswith("Z")
    assert len(spec["renewTime"].partition(".")[2]) == len("123456Z")


async def test_a_second_one_waits_says_so_once_and_takes_over_a_released_lease(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with server.client() as client, server.client() as other:
        first, second = election(client, server, "one"), election(other, server, "two")
        await first.acquire()
        keeping = asyncio.create_task(first.keep())
        with caplog.at_level(logging.INFO, "taintctl.lease"):
            waiting = asyncio.create_task(second.acquire())
            await asyncio.sleep(TIMES.duration * 2)
            assert not waiting.done()
            assert not keeping.done()
        said = [r.getMessage() for r in caplog.records if "at work" in r.getMessage()]
        assert said == ["another controller (one) is at work; waiting for its lease"]
        keeping.cancel()
        await first.release()
        await asyncio.wait_for(waiting, 5)
    spec = stored(server)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)


async def test_the_lease_of_one_that_died_is_taken_after_it_has_run_out_and_not_before(server: Server) -> None:
    async with server.client() as client:
        await election(client, server, "dead").acquire()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait_for(election(client, server, "heir").acquire(), 5)
        # leaseDurationSeconds is whole seconds, 1 here; the clock of the dead one plays no part
        assert loop.time() - began >= 1.0
    assert stored(server)["holderIdentity"] == "heir"


async def test_a_holder_that_can_not_renew_gives_up_before_others_may_take_it(server: Server) -> None:
    async with server.client() as client:
        lease = election(client, server, "one")
        await lease.acquire()
        loop = asyncio.get_running_loop()
        server.faults.go_away()
        began = loop.time()
        await asyncio.wait_for(lease.keep(), 5)
        assert loop.time() - began < TIMES.duration
        await lease.release()
        server.faults.clear()
    assert stored(server)["holderIdentity"] == "one"


async def test_a_short_outage_costs_nobody_the_lease(server: Server) -> None:
    async with server.client() as client:
        lease = election(client, server, "one")
        await lease.acquire()
        keeping = asyncio.create_task(lease.keep())
        for _ in range(3):
            server.faults.go_away()
            await asyncio.sleep(TIMES.renew / 4)
            server.faults.clear()
            await asyncio.sleep(TIMES.renew)
        assert not keeping.done()
        keeping.cancel()


async def test_a_holder_whose_lease_was_taken_stops_at_once(server: Server) -> None:
    async with server.client() as client:
        lease = election(client, server, "one")
        await lease.acquire()

        def steal(current: dict[str, Any]) -> None:
            current["spec"]["holderIdentity"] = "thief"

        server.store.mutate(LEASES, "taintctl-system", "taintctl", steal)
        await asyncio.wait_for(lease.keep(), 5)
        await lease.release()
    assert stored(server)["holderIdentity"] == "thief"


async def test_nothing_may_be_written_before_the_lease_is_ours_nor_when_it_was_not_renewed(server: Server) -> None:
    async with server.client() as client:
        lease = election(client, server, "one")
        with pytest.raises(Unavailable, match="nothing is written"):
            lease.require()
        await lease.acquire()
        lease.require()
        await asyncio.sleep(TIMES.renew)
        with pytest.raises(Unavailable, match=r"was last renewed 0\.[4-9] s ago"):
            lease.require()
        await lease.acquire()
        lease.require()


async def test_of_two_that_run_for_it_at_once_one_has_it(server: Server) -> None:
    async with server.client() as client:
        running = [asyncio.create_task(election(client, server, f"c{n}").acquire()) for n in range(5)]
        await asyncio.sleep(0.3)
        assert sum(task.done() for task in running) == 1
        for task in running:
            task.cancel()


async def test_a_missing_namespace_is_one_sentence(server: Server) -> None:
    async with server.client() as client:
        with pytest.raises(NotFound, match="There is no namespace nowhere for the lease; install"):
            await LeaderElection(client, server.clock, "nowhere", "one", TIMES).acquire()


async def test_missing_rights_are_said_and_not_waited_for(server: Server) -> None:
    server.users.add("nobody")
    async with server.client("nobody") as client:
        with pytest.raises(Forbidden):
            await asyncio.wait_for(election(client, server, "one").acquire(), 5)


def test_times_are_scaled_but_never_too_short_for_a_slow_machine() -> None:
    assert LeaseTimes.at(1) == LeaseTimes(15, 10, 2)
    assert LeaseTimes.at(1000) == LeaseTimes(3, 2, 0.2)


async def test_the_lease_says_how_fast_its_holder_is_and_keeps_what_others_wrote(server: Server) -> None:
    async with server.client() as client:
        await asyncio.wait_for(election(client, server, "one").acquire(), 5)
        annotations = server.store.get(LEASES, "taintctl-system", "taintctl")["metadata"]["annotations"]
        assert annotations == {"taintctl.dev/speed": f"{server.clock.speed:g}"}
        changed = {"metadata": {"annotations": {"note": "ours", "taintctl.dev/speed": "999"}}}
        url = "/apis/coordination.k8s.io/v1/namespaces/taintctl-system/leases/taintctl"
        merge = "application/merge-patch+json"
        await client.request("PATCH", url, dict, body=changed, content_type=merge)
        slow = SystemClock()
        other = LeaderElection(client, slow, "taintctl-system", "two", TIMES)
        await asyncio.wait_for(other.acquire(), 5)
        assert server.store.get(LEASES, "taintctl-system", "taintctl")["metadata"]["annotations"] == {"note": "ours"}
