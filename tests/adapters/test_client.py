"""Retries, lists in chunks, and refusals as errors that people can read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from taintctl.adapters.kubernetes.client import ATTEMPTS, Client, path
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.status import refusal, to_error
from taintctl.api.objects import Pod
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import ClusterError, Conflict, Forbidden, Invalid, NotFound, Unavailable
from tests.adapters.server import PODS, SPEED, Server, pod, recorded

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_read_is_tried_again_when_the_server_has_a_bad_moment(
    server: Server, client: Client, status: int
) -> None:
    fault = server.faults.fail(status, verbs=["list"], resources=[PODS], times=ATTEMPTS - 1, retry_after=1)
    assert (await client.list("/api/v1/pods", Pod)).items == ()
    assert fault.met == ATTEMPTS - 1


async def test_a_read_gives_up_after_a_bounded_number_of_tries(server: Server, client: Client) -> None:
    fault = server.faults.fail(503, verbs=["list"], resources=[PODS])
    with pytest.raises(Unavailable):
        await client.list("/api/v1/pods", Pod)
    assert fault.met == ATTEMPTS


async def test_a_read_survives_a_lost_connection(server: Server, client: Client) -> None:
    server.faults.drop(verbs=["list"], resources=[PODS], times=1)
    assert (await client.list("/api/v1/pods", Pod)).items == ()


@pytest.mark.parametrize("status", [500, 503, 504])
async def test_a_write_is_not_repeated_after_an_error(server: Server, client: Client, status: int) -> None:
    fault = server.faults.fail(status, verbs=["create"], resources=["configmaps"])
    with pytest.raises(Unavailable):
        await client.request("POST", CONFIG_MAPS, dict[str, Any], body=config_map("once"))
    assert fault.met == 1


async def test_a_write_whose_answer_is_lost_is_not_repeated(server: Server, client: Client) -> None:
    fault = server.faults.drop(verbs=["create"], resources=["configmaps"], after=True)
    with pytest.raises(Unavailable):
        await client.request("POST", CONFIG_MAPS, dict[str, Any], body=config_map("lost"))
    assert fault.met == 1
    assert server.store.find("configmaps", "default", "lost") is not None


async def test_a_write_that_the_server_turned_away_before_it_began_is_repeated(server: Server, client: Client) -> None:
    server.faults.fail(429, verbs=["create"], resources=["configmaps"], times=1, retry_after=1)
    made = await client.request("POST", CONFIG_MAPS, dict[str, Any], body=config_map("later"))
    assert made["metadata"]["name"] == "later"


async def test_a_fence_stops_every_write_and_no_read(server: Server) -> None:
    def fence() -> None:
        raise Unavailable("not now")

    server.store.create("configmaps", config_map("there"))
    async with Client(server.credentials(), server.clock, fence=fence) as client:
        assert await client.get(f"{CONFIG_MAPS}/there", dict[str, Any]) is not None
        for method, url in (("POST", CONFIG_MAPS), ("PUT", f"{CONFIG_MAPS}/there"), ("DELETE", f"{CONFIG_MAPS}/there")):
            with pytest.raises(Unavailable, match="not now"):
                await client.request(method, url, dict[str, Any], body=config_map("there"))
    assert [found["metadata"]["name"] for found in server.store.list("configmaps")] == ["there"]


async def test_a_server_that_is_not_there_is_one_sentence_with_its_address() -> None:
    # Port 9 (discard) of loopback: nothing listens there.
    async with Client(Credentials.static("http://127.0.0.1:9/secret-path"), SystemClock(SPEED)) as client:
        with pytest.raises(Unavailable) as caught:
            await client.request("GET", "/version", dict[str, Any])
    assert "127.0.0.1:9 can't be reached" in caught.value.message
    assert "secret-path" not in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.status == 0


async def test_a_list_comes_in_chunks_and_whole(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taintctl.adapters.kubernetes.client.PAGE", 3)
    for number in range(10):
        server.put(PODS, pod("default", f"p{number}", "n1"))
    requests = server.faults.slow(0, verbs=["list"], resources=[PODS])
    listing = await client.list("/api/v1/pods", Pod)
    assert [p.metadata.name for p in listing.items] == [f"p{number}" for number in range(10)]
    assert requests.met == 4
    assert listing.resource_version == str(server.store.resource_version)


async def test_a_list_whose_continue_token_is_too_old_begins_again(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taintctl.adapters.kubernetes.client.PAGE", 3)
    for number in range(4):
        server.put(PODS, pod("default", f"p{number}", "n1"))
    lists: list[str] = []
    call = client.call

    async def spy(method: str, url: str, **kwargs: Any) -> Any:
        lists.append(kwargs["params"].get("continue", ""))
        answer = await call(method, url, **kwargs)
        if len(lists) == 1:
            server.faults.fail(410, verbs=["list"], resources=[PODS], times=1)
        return answer

    monkeypatch.setattr(client, "call", spy)
    assert len((await client.list("/api/v1/pods", Pod)).items) == 4
    # first page, its continuation (410), then both pages from the start
    assert [bool(token) for token in lists] == [False, True, False, True]


async def test_a_list_that_never_holds_still_is_an_error_and_not_a_part(server: Server, client: Client) -> None:
    fault = server.faults.fail(410, verbs=["list"], resources=[PODS])
    with pytest.raises(Unavailable) as caught:
        await client.list("/api/v1/pods", Pod)
    assert fault.met == 4
    assert "grew too old" in caught.value.message


async def test_one_item_that_does_not_fit_fails_the_whole_list(server: Server, client: Client) -> None:
    server.put(PODS, pod("default", "good", "n1"))

    class Strict(Pod, frozen=True, kw_only=True):
        unheard_of: int

    with pytest.raises(ClusterError) as caught:
        await client.list("/api/v1/pods", Strict)
    assert "can't be read" in caught.value.message


async def test_an_unknown_user_is_asked_to_log_in_again(server: Server) -> None:
    async with Client(Credentials.static(server.http.url, token="wrong"), server.clock) as client:
        with pytest.raises(Forbidden) as caught:
            await client.request("GET", "/api/v1/pods", dict[str, Any])
    assert "log in again" in caught.value.message
    assert "wrong" not in caught.value.message


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("create the same name again", Conflict),
        ("patch with a stale resourceVersion", Conflict),
        ("patch with the wrong uid", Conflict),
        ("delete with a wrong uid precondition", Conflict),
        ("JSON patch that tests the resourceVersion (fails)", Invalid),
        ("delete again", NotFound),
    ],
)
def test_recorded_refusals_mean_what_the_caller_can_do(what: str, kind: type[ClusterError]) -> None:
    entry = recorded("04-errors.json", "conflict", what)
    refused = refusal(entry["status"], msgspec.json.encode(entry["response"]))
    error = to_error(refused, "PATCH /x")
    assert type(error) is kind
    assert error.status == entry["status"]
    assert error.message.startswith(entry["response"]["message"][:60])


def test_hostile_text_becomes_one_printable_line() -> None:
    body = b'{"message": "a\\u001b[31mred\\n\\u202eevil\\u0000", "reason": "Bad\\nReason"}'
    error = to_error(refusal(400, body), "GET /x")
    assert error.message == "a [31mred evil (GET /x: HTTP 400)"
    assert error.reason == "Bad Reason"


def test_a_proxys_page_is_cut_to_a_line() -> None:
    error = to_error(refusal(502, b"<html>\n" + b"x" * 100_000), "GET /x")
    assert isinstance(error, Unavailable)
    assert len(error.message) < 600
    assert error.message.startswith("<html> xxx")


def test_path_segments_are_escaped() -> None:
    assert path("api", "v1", "pods", "../nodes?x=1") == "/api/v1/pods/..%2Fnodes%3Fx%3D1"
