"""An API server on loopback, and a client that asks it as different users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from taintctl.ports.clock import SystemClock
from taintctl.sandbox.apiserver.server import ApiServer
from taintctl.sandbox.faults import Faults
from taintctl.sandbox.store import Store
from taintctl.sandbox.users import User, Users

RECORDINGS = Path(__file__).parents[2] / "recordings"


class Api:
    """A server with its parts, and requests to it."""

    def __init__(self, kubernetes: str = "1.37", *, speed: float = 1.0, history: int = 10_000) -> None:
        clock = SystemClock(speed)
        self.store = Store(clock, history=history)
        self.users = Users()
        self.faults = Faults()
        self.server = ApiServer(self.store, self.users, self.faults, clock, kubernetes=kubernetes)
        self.session: aiohttp.ClientSession

    async def __aenter__(self) -> Api:
        await self.server.start()
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.session.close()
        await self.server.stop()

    async def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: User | None = None,
        token: str | None = None,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of one request."""
        sent = {"Content-Type": content_type, **(headers or {})}
        secret = token if token is not None else (user or self.users.admin).token
        if secret:
            sent["Authorization"] = f"Bearer {secret}"
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        async with self.session.request(method, self.server.url + path, data=data, headers=sent) as response:
            return response.status, await response.read(), dict(response.headers)

    async def ask(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Status and JSON of one request."""
        status, content, _ = await self.raw(method, path, body, **options)
        return status, json.loads(content)

    async def ok(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        """The JSON of a request that must succeed."""
        status, answer = await self.ask(method, path, body, **options)
        assert status < 300, answer
        return answer

    async def refused(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """Status and message of a request that must fail."""
        status, answer = await self.ask(method, path, body, **options)
        assert status >= 400, answer
        assert answer["code"] == status
        return status, answer["message"]

    async def watch(self, path: str, **options: Any) -> Watch:
        """An open watch."""
        response = await self.session.get(
            f"{self.server.url}{path}",
            headers={"Authorization": f"Bearer {self.users.admin.token}", **options.get("headers", {})},
        )
        assert response.status == 200, await response.text()
        return Watch(response)


class Watch:
    """The events of one watch, one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(40):
            line = await self.response.content.readline()
        if not line:
            raise EOFError
        event: dict[str, Any] = json.loads(line)
        return event

    async def types_and_names(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"]["name"]) for event in events]

    def close(self) -> None:
        self.response.close()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with Api() as running:
        yield running


@pytest.fixture
def make_api() -> Callable[..., Api]:
    """For tests that need another release, speed or history."""
    return Api


@pytest.fixture
def recording() -> Callable[[str], list[dict[str, Any]]]:
    """The cases of one of the recordings of a real control plane."""

    def load(name: str) -> list[dict[str, Any]]:
        cases: list[dict[str, Any]] = json.loads((RECORDINGS / name).read_text())
        return cases

    return load
