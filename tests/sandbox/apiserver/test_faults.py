"""What can be made to go wrong."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import aiohttp
import pytest

from taintctl.sandbox.faults import MAX_FAULTS, Faults

PATH = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (500, "InternalError"),
        (503, "ServiceUnavailable"),
        (429, "TooManyRequests"),
        (410, "Expired"),
        (409, "Conflict"),
    ],
)
async def test_requests_fail_so_many_times(api: Any, status: int, reason: str) -> None:
    fault = api.faults.fail(status, verbs=["list"], resources=["configmaps"], times=2)
    for _ in range(2):
        got, answer = await api.ask("GET", PATH)
        assert (got, answer["reason"]) == (status, reason)
    await api.ok("GET", PATH)
    assert fault.met == 2


async def test_only_what_matches_fails(api: Any) -> None:
    bob = api.users.add("bob", groups=("system:masters",))
    api.faults.fail(503, verbs=["create"], resources=["configmaps"], users=["bob"])
    await api.ok("POST", PATH, {"metadata": {"name": "a"}})
    assert (await api.refused("POST", PATH, {"metadata": {"name": "b"}}, user=bob))[0] == 503
    await api.ok("GET", PATH, user=bob)
    api.faults.clear()
    await api.ok("POST", PATH, {"metadata": {"name": "b"}}, user=bob)


async def test_a_subresource_and_a_name(api: Any) -> None:
    api.faults.fail(500, resources=["pods/eviction"], names=["p"])
    path = "/api/v1/namespaces/default/pods"
    assert (await api.refused("POST", f"{path}/p/eviction", {"metadata": {"name": "p"}}))[0] == 500
    assert (await api.refused("POST", f"{path}/q/eviction", {"metadata": {"name": "q"}}))[0] == 404
    assert (await api.refused("GET", f"{path}/p"))[0] == 404


async def test_too_many_requests_say_when_to_come_back(api: Any) -> None:
    api.faults.fail(429, times=1, retry_after=7)
    status, content, headers = await api.raw("GET", PATH)
    assert (status, headers["Retry-After"]) == (429, "7")
    assert b'"retryAfterSeconds":7' in content


async def test_delays_are_divided_by_the_speed(make_api: Any) -> None:
    async with make_api(speed=100) as api:
        api.faults.slow(30, times=1)
        started = time.monotonic()
        await api.ok("GET", PATH)
        assert 0.3 <= time.monotonic() - started < 10


async def test_a_dropped_connection_before_and_after_the_write(api: Any) -> None:
    before = api.faults.drop(verbs=["create"])
    with pytest.raises(aiohttp.ClientError):
        await api.ask("POST", PATH, {"metadata": {"name": "never"}})
    api.faults.clear(before)
    api.faults.drop(verbs=["create"], times=1, after=True)
    with pytest.raises(aiohttp.ClientError):
        await api.ask("POST", PATH, {"metadata": {"name": "lost-answer"}})
    assert [one["metadata"]["name"] for one in api.store.list("configmaps")] == ["lost-answer"]


async def test_watches_are_cut_or_expire(api: Any) -> None:
    watch = await api.watch(f"{PATH}?watch=1")
    api.faults.cut_watches()
    with pytest.raises(EOFError):
        await watch.next()
    watch = await api.watch(f"{PATH}?watch=1")
    api.faults.expire_watches()
    event = await watch.next()
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(EOFError):
        await watch.next()


async def test_a_watch_that_is_refused_with_410(api: Any) -> None:
    api.faults.fail(410, verbs=["watch"], times=1)
    assert (await api.refused("GET", f"{PATH}?watch=1&resourceVersion=1"))[0] == 410


async def test_the_server_goes_away_and_comes_back(api: Any) -> None:
    watch = await api.watch(f"{PATH}?watch=1")
    api.faults.go_away()
    with pytest.raises(EOFError):
        await watch.next()
    for path in (PATH, "/healthz", "/version"):
        with pytest.raises(aiohttp.ClientError):
            await api.ask("GET", path)
    api.faults.clear()
    await api.ok("GET", PATH)


def test_faults_are_bounded_and_checked() -> None:
    faults = Faults()
    with pytest.raises(ValueError, match="status: 200 is not an HTTP error"):
        faults.fail(200)
    for _ in range(MAX_FAULTS):
        faults.fail(500)
    with pytest.raises(ValueError, match="at most 100 faults at a time"):
        faults.drop()


async def test_a_client_that_goes_away_in_the_middle_of_a_request_is_no_error(
    api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fault = api.faults.slow(0.3, verbs=["create"])
    host, port = api.server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.users.admin.token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{{".encode())
    await asyncio.sleep(0.1)
    assert fault.met == 1
    writer.close()
    await writer.wait_closed()
    await asyncio.sleep(0.4)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
