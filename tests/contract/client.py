"""A plain HTTP client of a Kubernetes API: what a kubeconfig says, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp

Obj = dict[str, Any]
MERGE = "application/merge-patch+json"


class Answer(NamedTuple):
    status: int
    body: Obj


class Api:
    """Requests with the current context of a kubeconfig (token or client certificate; exec plugins are not run)."""

    def __init__(self, kubeconfig: Obj) -> None:
        by_name = {
            kind: {e["name"]: e for e in kubeconfig.get(kind) or ()} for kind in ("clusters", "users", "contexts")
        }
        context = by_name["contexts"][kubeconfig["current-context"]]["context"]
        cluster = by_name["clusters"][context["cluster"]]["cluster"]
        user = by_name["users"][context["user"]].get("user") or {}
        if "exec" in user:
            raise ValueError(
                "the contract suite runs no credential plugin: give a kubeconfig with a token or certificate"
            )
        self._server = cluster["server"].rstrip("/")
        self._headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        self._tls = _tls(cluster, user) if self._server.startswith("https") else None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._tls) if self._tls is not None else aiohttp.TCPConnector()
        timeout = aiohttp.ClientTimeout(total=60)
        self._session = aiohttp.ClientSession(headers=self._headers, connector=connector, timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, **query: str) -> Answer:
        return await self._ask("GET", path, query)

    async def post(self, path: str, body: Obj, **query: str) -> Answer:
        return await self._ask("POST", path, query, body)

    async def put(self, path: str, body: Obj, **query: str) -> Answer:
        return await self._ask("PUT", path, query, body)

    async def patch(self, path: str, body: Any, kind: str = MERGE, **query: str) -> Answer:
        return await self._ask("PATCH", path, query, body, kind)

    async def delete(self, path: str, body: Obj | None = None, **query: str) -> Answer:
        return await self._ask("DELETE", path, query, body)

    async def must(self, asked: Any) -> Obj:
        """The body of an answer that has to be a success."""
        answer: Answer = await asked
        assert answer.status in (200, 201, 202), answer
        return answer.body

    async def _ask(
        self, method: str, path: str, query: dict[str, str], body: Any = None, kind: str = "application/json"
    ) -> Answer:
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": kind, "Accept": "application/json"}
        async with self._session.request(method, self._server + path, params=query, data=data, headers=headers) as r:
            return Answer(r.status, json.loads(await r.text() or "{}"))

    @asynccontextmanager
    async def watch(self, path: str, **query: str) -> AsyncIterator[Watch]:
        assert self._session is not None
        params, endless = {"watch": "true", **query}, aiohttp.ClientTimeout(total=None)
        async with self._session.get(self._server + path, params=params, timeout=endless) as response:
            yield Watch(response)


class Watch:
    """The lines of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self._response = response

    async def next(self, seconds: float = 20) -> Obj:
        """The next event; TimeoutError when none comes, EOFError at the end."""
        line = await asyncio.wait_for(self._response.content.readline(), seconds)
        if not line:
            raise EOFError("the watch has ended")
        found: Obj = json.loads(line)
        return found


def _tls(cluster: Obj, user: Obj) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority := _text(cluster, "certificate-authority"):
        context.load_verify_locations(cadata=authority)
    certificate, key = _text(user, "client-certificate"), _text(user, "client-key")
    if certificate and key:
        # The standard library loads certificates from files only.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{certificate}\n{key}\n")
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _text(of: Obj, name: str) -> str:
    if of.get(f"{name}-data"):
        return base64.b64decode(of[f"{name}-data"]).decode()
    return Path(of[name]).read_text() if of.get(name) else ""
