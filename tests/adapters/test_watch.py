"""Watches that go on over cut connections, and say so when their place is forgotten."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.status import Expired
from taintctl.adapters.kubernetes.watch import read_event, watch
from taintctl.api.objects import Pod
from taintctl.ports.errors import ClusterError
from tests.adapters.server import PODS, Server, pod

URL = "/api/v1/pods"


class Reader:
    """Reads a watch in the background into `seen`."""

    def __init__(self, client: Client, server: Server, version: str) -> None:
        self.seen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.task = asyncio.create_task(self._read(client, server, version))

    async def _read(self, client: Client, server: Server, version: str) -> None:
        async with aclosing(watch(client, server.clock, URL, Pod, version)) as events:  # type: ignore[type-var]
            async for event in events:
                name = event.object.metadata.name if event.object else ""
                await self.seen.put((event.type, name))

    async def next(self, *, bookmarks: bool = False) -> tuple[str, str]:
        async with asyncio.timeout(40):
            while True:
                found = await self.seen.get()
                if bookmarks or found[0] != "BOOKMARK":
                    return found


@pytest.fixture
def version(server: Server) -> str:
    server.put(PODS, pod("default", "before", "n1"))
    return str(server.store.resource_version)


async def test_every_change_after_the_list_is_seen(server: Server, client: Client, version: str) -> None:
    server.put(PODS, pod("default", "a", "n1"))
    reader = Reader(client, server, version)
    assert [await reader.next(), await reader.next()] == [("ADDED", "a"), ("MODIFIED", "a")]
    server.store.delete(PODS, "default", "before", grace_seconds=0)
    assert await reader.next() == ("DELETED", "before")
    reader.task.cancel()


async def test_a_cut_watch_goes_on_where_it_was(server: Server, client: Client, version: str) -> None:
    reader = Reader(client, server, version)
    server.store.create(PODS, pod("default", "a", "n1"))
    assert await reader.next() == ("ADDED", "a")
    server.faults.go_away()
    server.store.create(PODS, pod("default", "b", "n1"))
    server.store.create(PODS, pod("default", "c", "n1"))
    await asyncio.sleep(0.05)
    server.faults.clear()
    assert [await reader.next(), await reader.next()] == [("ADDED", "b"), ("ADDED", "c")]
    reader.task.cancel()


async def test_a_quiet_watch_hears_bookmarks(server: Server, client: Client, version: str) -> None:
    reader = Reader(client, server, version)
    assert await reader.next(bookmarks=True) == ("BOOKMARK", "")
    reader.task.cancel()


async def test_bookmarks_move_the_place_it_goes_on_from(
    server: Server, client: Client, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    stream = client.stream

    def spy(url: str, params: Any, silence: float) -> Any:
        asked.append(params["resourceVersion"])
        return stream(url, params, silence)

    monkeypatch.setattr(client, "stream", spy)
    reader = Reader(client, server, version)
    server.store.create("configmaps", {"metadata": {"name": "elsewhere"}})
    assert await reader.next(bookmarks=True) == ("BOOKMARK", "")
    server.faults.cut_watches()
    server.store.create(PODS, pod("default", "a", "n1"))
    assert await reader.next() == ("ADDED", "a")
    assert asked[0] == version
    assert int(asked[1]) > int(version)
    reader.task.cancel()


async def test_a_forgotten_place_is_told_from_an_error_event(server: Server, client: Client, version: str) -> None:
    reader = Reader(client, server, version)
    server.store.create(PODS, pod("default", "a", "n1"))
    assert await reader.next() == ("ADDED", "a")
    server.faults.expire_watches()
    with pytest.raises(Expired):
        await reader.task


async def test_a_forgotten_place_is_told_from_the_answer(server: Server, client: Client, version: str) -> None:
    server.faults.fail(410, verbs=["watch"], times=1)
    with pytest.raises(Expired):
        await Reader(client, server, version).task


async def test_a_server_that_ends_each_watch_at_once_is_not_asked_in_a_tight_loop(
    server: Server, client: Client, version: str
) -> None:
    fault = server.faults.drop(verbs=["watch"])
    reader = Reader(client, server, version)
    # 40 s of the server's time: 0.5 + 1 + 2 + 4 + 8 + 16 s of backoff (times 0.5 to 1) are at most 8 tries, and aiohttp
    # asks once more by itself where a kept connection was closed.
    await server.clock.sleep(40)
    assert 4 <= fault.met <= 16
    reader.task.cancel()


def test_events_longer_than_a_network_packet_are_read_whole() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","annotations":{"x":"' + b"y" * 300_000 + b'"}}}}'
    event = read_event(line, Pod, URL)
    assert event.object is not None
    assert event.object.metadata.name == "a"


async def test_a_large_event_comes_through_the_stream(server: Server, client: Client, version: str) -> None:
    reader = Reader(client, server, version)
    large = pod("default", "large", "n1")
    large["metadata"]["annotations"] = {"x": "y" * 200_000}
    server.store.create(PODS, large)
    assert await reader.next() == ("ADDED", "large")
    reader.task.cancel()


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b'{"type":"ADDED","object":null}',
        b'{"type":"ADDED","object":{"metadata":{"name":7}}}',
        b'{"type":"ERROR","object":{"code":500,"message":"x"}}',
        b'{"type":"UNHEARD","object":{}}',
    ],
)
def test_what_can_not_be_read_is_an_error_and_not_a_guess(line: bytes) -> None:
    with pytest.raises(ClusterError):
        read_event(line, Pod, URL)


@pytest.mark.parametrize("cut", [False, True])
async def test_a_server_restored_from_a_backup_is_listed_again(
    server: Server, client: Client, version: str, cut: bool
) -> None:
    """Where the watch stays open its events count from lower; where it is opened again the server refuses the place."""
    reader = Reader(client, server, version)
    server.put(PODS, pod("default", "a", "n1"))
    assert await reader.next() == ("ADDED", "a")
    assert await reader.next() == ("MODIFIED", "a")
    server.store.resource_version = int(version) - 1
    if cut:
        server.faults.cut_watches()
    else:
        server.store.create(PODS, pod("default", "b", "n1"))
    with pytest.raises(Expired):
        async with asyncio.timeout(40):
            await reader.task
