"""kopf says which objects of ours changed, in whatever weather, and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import kopf
import pytest
import pytest_asyncio

from taintctl.api.check import KINDS, Own
from taintctl.api.policy import EvictionPolicy
from taintctl.api.window import MaintenanceWindow
from taintctl.controller import operator as module
from taintctl.controller.operator import Operator
from tests.adapters.server import Server

POLICIES = "evictionpolicies.taintctl.dev"
WINDOWS = "maintenancewindows.taintctl.dev"


class Heard:
    """What an operator that runs against the server said."""

    def __init__(self, server: Server, user: str) -> None:
        self.keys: list[tuple[type[Own], str]] = []
        self.operator = Operator(
            server.credentials(user), asyncio.get_running_loop(), lambda kind, name: self.keys.append((kind, name))
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(80):
            while not condition():  # noqa: ASYNC110 (kopf has no event to wait for)
                await asyncio.sleep(0.01)

    async def hears(self, kind: type[Own], name: str) -> None:
        await self.until(lambda: (kind, name) in self.keys)


@pytest_asyncio.fixture
async def heard(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heard]:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.05)
    account = server.users.service_account("taintctl-system", "taintctl")
    made = Heard(server, account.name)
    made.operator.start()
    yield made
    await made.operator.stop()
    assert not made.operator.alive


def window(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "target": {"driver": "gpu.example.com", "pool": "n1"},
            "schedule": {"cron": "0 21 * * *", "duration": "8h"},
        },
    }


async def test_it_tells_of_what_is_there_and_of_what_comes_changes_and_goes(server: Server, heard: Heard) -> None:
    server.store.create(POLICIES, {"metadata": {"name": "old"}, "spec": {}})
    await heard.hears(EvictionPolicy, "old")
    made = server.store.create(WINDOWS, window("new"))
    await heard.hears(MaintenanceWindow, "new")
    heard.keys.clear()
    server.store.mutate(WINDOWS, None, "new", lambda o: o["spec"].update(suspend=True))
    await heard.hears(MaintenanceWindow, "new")
    heard.keys.clear()
    server.store.delete(WINDOWS, None, "new")
    await heard.hears(MaintenanceWindow, "new")
    # nothing of kopf's is left on the objects
    assert made["metadata"].get("annotations") is None
    assert "annotations" not in server.store.get(POLICIES, None, "old")["metadata"]
    assert server.store.list("events") == []


async def test_it_starts_again_after_a_410_and_misses_nothing(server: Server, heard: Heard) -> None:
    server.store.create(POLICIES, {"metadata": {"name": "before"}, "spec": {}})
    await heard.hears(EvictionPolicy, "before")
    await heard.until(lambda: heard.operator.watches == len(KINDS))
    fault = server.faults.fail(410, resources=[POLICIES], times=1)
    server.faults.cut_watches()
    server.store.create(POLICIES, {"metadata": {"name": "meanwhile"}, "spec": {}})
    await heard.hears(EvictionPolicy, "meanwhile")
    assert fault.met == 1
    assert heard.operator.restarts == 1
    server.store.create(WINDOWS, window("after"))
    await heard.hears(MaintenanceWindow, "after")


async def test_it_logs_in_again_when_its_token_is_no_longer_known(server: Server, heard: Heard) -> None:
    server.store.create(POLICIES, {"metadata": {"name": "before"}, "spec": {}})
    await heard.hears(EvictionPolicy, "before")
    await heard.until(lambda: heard.operator.watches == len(KINDS))
    fault = server.faults.fail(401, resources=[POLICIES, WINDOWS], times=2)
    server.faults.cut_watches()
    server.store.create(POLICIES, {"metadata": {"name": "after"}, "spec": {}})
    await heard.hears(EvictionPolicy, "after")
    await heard.until(lambda: fault.met == 2 and heard.operator.watches == len(KINDS))


async def test_a_place_that_is_forgotten_costs_no_restart(server: Server, heard: Heard) -> None:
    server.store.create(POLICIES, {"metadata": {"name": "before"}, "spec": {}})
    await heard.hears(EvictionPolicy, "before")
    server.faults.expire_watches()
    server.store.create(POLICIES, {"metadata": {"name": "after"}, "spec": {}})
    await heard.hears(EvictionPolicy, "after")
    assert heard.operator.restarts == 0


async def test_every_kind_is_watched(heard: Heard) -> None:
    """The name by which a lost watch is noticed is kopf's own."""
    await heard.until(lambda: heard.operator.watches == len(KINDS))


async def test_a_kopf_that_lost_a_watch_and_hangs_is_started_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_BACKOFF", 0.05)
    monkeypatch.setattr(module, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(module, "LOST_AFTER", 0.2)
    real = kopf.operator

    async def hangs(**_kwargs: Any) -> None:
        """Watches every kind, loses one watch, and stays."""
        monkeypatch.setattr(kopf, "operator", real)
        tasks = [asyncio.create_task(asyncio.sleep(3600), name=f"watcher for {kind.PLURAL}") for kind in KINDS]
        await asyncio.sleep(0.2)
        tasks[0].cancel()
        await asyncio.gather(*tasks[1:])

    monkeypatch.setattr(kopf, "operator", hangs)
    heard = Heard(server, "admin")
    heard.operator.start()
    server.store.create(POLICIES, {"metadata": {"name": "after"}, "spec": {}})
    await heard.hears(EvictionPolicy, "after")
    assert heard.operator.restarts == 1
    await heard.operator.stop()
    assert not heard.operator.alive
