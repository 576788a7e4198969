"""Watches: resuming, bookmarks, selectors, 410."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from taintctl.ports.clock import LoopClock
from taintctl.sandbox.apiserver import watches
from taintctl.sandbox.apiserver.views import View
from taintctl.sandbox.store import Store

PATH = "/api/v1/namespaces/default/configmaps"


def add(api: Any, name: str, **labels: str) -> None:
    api.store.create("configmaps", {"metadata": {"name": name, "labels": labels}})


def change(api: Any, name: str, **labels: str) -> None:
    api.store.mutate("configmaps", "default", name, lambda draft: draft["metadata"].update(labels=labels))


async def test_a_watch_without_a_revision_starts_with_what_there_is(api: Any) -> None:
    add(api, "a")
    watch = await api.watch(f"{PATH}?watch=1")
    assert await watch.types_and_names(1) == [("ADDED", "a")]
    add(api, "b")
    change(api, "a", x="1")
    api.store.delete("configmaps", "default", "b")
    api.store.create("configmaps", {"metadata": {"name": "elsewhere", "namespace": "kube-system"}})
    add(api, "c")
    assert await watch.types_and_names(4) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("ADDED", "c")]


async def test_a_watch_resumes_where_it_was(api: Any) -> None:
    add(api, "a")
    revision = (await api.ok("GET", PATH))["metadata"]["resourceVersion"]
    add(api, "b")
    api.store.delete("configmaps", "default", "a")
    watch = await api.watch(f"{PATH}?watch=1&resourceVersion={revision}")
    events = [await watch.next(), await watch.next()]
    assert [(one["type"], one["object"]["metadata"]["name"]) for one in events] == [("ADDED", "b"), ("DELETED", "a")]
    assert (events[0]["object"]["kind"], events[0]["object"]["apiVersion"]) == ("ConfigMap", "v1")
    # A deleted object carries the revision of its deletion.
    assert int(events[1]["object"]["metadata"]["resourceVersion"]) == api.store.resource_version


async def test_a_watch_that_resumes_too_early_gets_410(make_api: Any) -> None:
    async with make_api(history=2) as api:
        first = api.store.resource_version
        for name in "abcd":
            add(api, name)
        watch = await api.watch(f"{PATH}?watch=1&resourceVersion={first}")
        event = await watch.next()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert event["object"]["message"].startswith(f"too old resource version: {first} (")
        with pytest.raises(EOFError):
            await watch.next()


async def test_a_watch_from_the_future_is_an_error(api: Any) -> None:
    watch = await api.watch(f"{PATH}?watch=1&resourceVersion=999999")
    event = await watch.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 504)


async def test_objects_come_and_go_with_the_selector(api: Any) -> None:
    add(api, "a", app="web")
    watch = await api.watch(f"{PATH}?watch=1&labelSelector=app%3Dweb")
    assert await watch.types_and_names(1) == [("ADDED", "a")]
    add(api, "b", app="db")
    change(api, "b", app="web")
    change(api, "a", app="db")
    api.store.delete("configmaps", "default", "a")
    api.store.delete("configmaps", "default", "b")
    assert await watch.types_and_names(3) == [("ADDED", "b"), ("DELETED", "a"), ("DELETED", "b")]


async def test_one_object_by_field_selector(api: Any) -> None:
    watch = await api.watch(f"{PATH}?watch=1&fieldSelector=metadata.name%3Db")
    add(api, "a")
    add(api, "b")
    assert await watch.types_and_names(1) == [("ADDED", "b")]


async def test_bookmarks_come_with_the_speed_of_the_clock(make_api: Any) -> None:
    # Every 60 s, 600 times as fast.
    async with make_api(speed=600) as api:
        watch = await api.watch(f"{PATH}?watch=1&allowWatchBookmarks=true&resourceVersion={api.store.resource_version}")
        event = await watch.next()
        assert event["type"] == "BOOKMARK"
        assert event["object"]["metadata"]["resourceVersion"] == str(api.store.resource_version)
        assert event["object"]["kind"] == "ConfigMap"


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("timeout", "bookmarks", "expected"),
    [
        # k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go: every minute, and 2 s before the time is over.
        (150, True, [60, 120, 148]),
        (30, True, [28]),
        (1, True, []),
        (150, False, []),
    ],
)
async def test_a_watch_gets_a_bookmark_before_its_time_is_over(
    timeout: int, bookmarks: bool, expected: list[float]
) -> None:
    loop = asyncio.get_running_loop()
    clock = LoopClock(datetime(2026, 11, 30, tzinfo=UTC))
    store = Store(clock)
    broadcaster = watches.Broadcaster(store, clock)
    view = View(store.resources.get("configmaps"), "v1")
    watcher = broadcaster.open("configmaps", view, namespace="", name="", wanted=None, since=1, initial=False)
    began, seen = loop.time(), []

    def write(batch: bytes) -> None:
        assert json.loads(batch)["type"] == "BOOKMARK"
        seen.append(loop.time() - began)

    await broadcaster.serve(watcher, write, view, timeout=timeout, bookmarks=bookmarks)
    assert seen == pytest.approx(expected)
    assert loop.time() - began == pytest.approx(timeout)


async def test_initial_events_end_with_a_bookmark(api: Any) -> None:
    add(api, "a")
    add(api, "b")
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    watch = await api.watch(f"{PATH}?{query}")
    assert await watch.types_and_names(2) == [("ADDED", "a"), ("ADDED", "b")]
    end = await watch.next()
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (await api.refused("GET", f"{PATH}?watch=1&sendInitialEvents=true"))[0] == 400


async def test_a_watch_ends_when_its_time_is_over(api: Any) -> None:
    watch = await api.watch(f"{PATH}?watch=1&timeoutSeconds=1")
    with pytest.raises(EOFError):
        await watch.next()


async def test_a_watcher_that_does_not_read_is_dropped_with_410(monkeypatch: pytest.MonkeyPatch, api: Any) -> None:
    monkeypatch.setattr(watches, "MAX_PENDING", 10)
    watch = await api.watch(f"{PATH}?watch=1&resourceVersion={api.store.resource_version}")
    # All in one go: the server has no chance to send any of it.
    for index in range(12):
        add(api, f"c{index:02}")
    event = await watch.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert "list again" in event["object"]["message"]
    with pytest.raises(EOFError):
        await watch.next()


async def test_every_watcher_gets_the_same_bytes(api: Any) -> None:
    seen: list[Any] = []
    api.store.subscribe("configmaps", seen.append)
    open_watches = [await api.watch(f"{PATH}?watch=1&resourceVersion={api.store.resource_version}") for _ in range(3)]
    add(api, "a")
    assert [await one.types_and_names(1) for one in open_watches] == [[("ADDED", "a")]] * 3
    assert len(seen[0].lines) == 1


async def test_a_table_watch_says_its_columns_once(api: Any) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    watch = await api.watch(f"{PATH}?watch=1&resourceVersion={api.store.resource_version}", headers=accept)
    add(api, "a")
    add(api, "b")
    tables = [(await watch.next())["object"] for _ in range(2)]
    assert [[one["name"] for one in table["columnDefinitions"]] for table in tables] == [["Name", "Data", "Age"], []]
    assert [table["rows"][0]["cells"][0] for table in tables] == ["a", "b"]
