"""JSON over HTTP: timeouts, bounded retries, chunked lists and watches, with every failure as a ClusterError."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec
from yarl import URL

from taintctl.adapters.kubernetes.config import Connection, Credentials
from taintctl.adapters.kubernetes.status import Expired, Refusal, decode, refusal, to_error
from taintctl.api.objects import ListMeta
from taintctl.api.text import one_line
from taintctl.ports.clock import Clock
from taintctl.ports.errors import ClusterError, Unavailable

T = TypeVar("T")
G = TypeVar("G")

CONNECT_TIMEOUT = 5.0
TOTAL_TIMEOUT = 30.0
ATTEMPTS = 4
"""Tries of one call, the first included."""
FIRST_BACKOFF = 0.25
LAST_BACKOFF = 5.0
RETRY_BUDGET = 30.0
"""Seconds after which a call is not tried again."""
MAX_RETRY_AFTER = 10.0
PAGE = 500
MAX_PAGES = 4000
MAX_RESTARTS = 3
"""How often a list whose continue token grew too old is begun again."""
MAX_BODY = 256 << 20
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One chunk of a list."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] | None = None


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A list or a chunk of one, consistent as of `resource_version`."""

    items: tuple[T, ...]
    resource_version: str


class Answer(msgspec.Struct, frozen=True):
    body: bytes
    refused: Refusal | None


def path(*parts: str) -> str:
    """A URL path of segments, each escaped."""
    return "".join(f"/{quote(part, safe=':')}" for part in parts)


class Client:
    """An API server, asked as one user. Use as an async context manager.

    Reads are retried on 429, 5xx and lost connections; writes only where the server has surely not begun (429, or a
    connection that could not be made), since whether a lost answer was a yes can't be known. Retry delays follow the
    clock's speed; HTTP timeouts do not.

    `fence` is asked right before a write is sent, and raises ClusterError where it must not be.
    """

    def __init__(self, credentials: Credentials, clock: Clock, *, fence: Callable[[], None] = lambda: None) -> None:
        self._credentials = credentials
        self._clock = clock
        self._fence = fence
        self._session: aiohttp.ClientSession | None = None
        self._connection: Connection | None = None
        self._ssl: Any = True

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def where(self) -> str:
        """The API server's host and port."""
        return self._credentials.connection.where

    async def call(
        self,
        method: str,
        url_path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        accept: str = JSON,
        retry: bool = True,
    ) -> Answer:
        """One call, with its bounded retries; a refusal is a value. Raises Unavailable where there is no answer."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        data = msgspec.json.encode(body) if body is not None else None
        what = f"{method} {url_path}"
        attempt = 0
        reloaded = False
        while True:
            attempt += 1
            last = not retry or attempt >= ATTEMPTS or loop.time() - started > RETRY_BUDGET
            try:
                answer = await self._once(method, url_path, params, data, content_type, accept)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                unsent = isinstance(error, aiohttp.ClientConnectorError)
                if last or isinstance(error, aiohttp.ClientSSLError) or not (method == "GET" or unsent):
                    raise Unavailable(self._no_answer(error, what)) from None
                await self._clock.sleep(_backoff(attempt))
                continue
            refused = answer.refused
            if refused is not None and refused.status == 401 and not reloaded:
                reloaded = True
                await self._credentials.reload()
                continue
            again = refused is not None and (refused.status == 429 or (method == "GET" and refused.status >= 500))
            if refused is None or last or not again:
                return answer
            wait = refused.retry_after if refused.retry_after is not None else _backoff(attempt)
            await self._clock.sleep(min(wait, MAX_RETRY_AFTER))

    async def request(
        self,
        method: str,
        url_path: str,
        kind: type[T],
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
    ) -> T:
        """One call and its answer, decoded. Raises ClusterError by what the server said."""
        answer = await self.call(method, url_path, params=params, body=body, content_type=content_type)
        what = f"{method} {url_path}"
        if answer.refused is not None:
            raise to_error(answer.refused, what)
        result: T = decode(answer.body, kind, what)
        return result

    async def get(self, url_path: str, kind: type[T], *, accept: str = JSON) -> T | None:
        """One object; None where there is none."""
        answer = await self.call("GET", url_path, accept=accept)
        if answer.refused is not None:
            if answer.refused.status == 404:
                return None
            raise to_error(answer.refused, f"GET {url_path}")
        result: T = decode(answer.body, kind, f"GET {url_path}")
        return result

    async def list(self, url_path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> Listing[T]:
        """The whole list, read from the server's store in chunks of 500, or an error: never part of it."""
        return await self._whole(url_path, lambda: self.pages(url_path, kind, params=params))

    async def select(self, url_path: str, kind: type[T], glance: type[G], wanted: Callable[[G], bool]) -> Listing[T]:
        """As `list`, but of the whole list only what is `wanted` is kept, and read in full: `glance` is the part of an
        object that decides it. For lists of which a small part is of interest and no selector finds it."""
        what = f"GET {url_path}"

        async def chosen() -> AsyncIterator[Listing[T]]:
            async for page in self.pages(url_path, msgspec.Raw):
                kept = [raw for raw in page.items if wanted(decode(raw, glance, what))]
                yield Listing(tuple(decode(raw, kind, what) for raw in kept), page.resource_version)

        return await self._whole(url_path, chosen)

    async def pages(
        self, url_path: str, kind: type[T], *, params: Mapping[str, str] | None = None
    ) -> AsyncIterator[Listing[T]]:
        """A list, chunk by chunk, all of one moment. Raises ClusterError; Expired where the server has forgotten that
        moment meanwhile: what came so far is not the whole then."""
        token = ""
        for _ in range(MAX_PAGES):
            chunk = {**(params or {}), "limit": str(PAGE), **({"continue": token} if token else {})}
            page = await self.request("GET", url_path, Page[kind], params=chunk)  # type: ignore[valid-type]
            yield Listing(page.items or (), page.metadata.resource_version)
            token = page.metadata.continue_ or ""
            if not token:
                return
        raise ClusterError(f"The list of {url_path} has more than {MAX_PAGES * PAGE} items.")

    async def _whole(self, url_path: str, pages: Callable[[], AsyncIterator[Listing[T]]]) -> Listing[T]:
        for _ in range(MAX_RESTARTS + 1):
            items: list[T] = []
            version = ""
            try:
                async for page in pages():
                    items.extend(page.items)
                    version = page.resource_version
            except Expired as error:
                expired = error
            else:
                return Listing(tuple(items), version)
        raise Unavailable(
            f"The list of {url_path} grew too old {MAX_RESTARTS + 1} times while it was read; the API server is slow.",
            status=expired.status,
        )

    async def stream(self, url_path: str, params: Mapping[str, str], silence: float) -> AsyncIterator[bytes]:
        """The lines of a watch, until the server ends it. Raises ClusterError; `silence` is how many seconds may pass
        without a byte before the connection counts as lost."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=silence)
        what = f"WATCH {url_path}"
        try:
            async with await self._open("GET", url_path, params, None, "", timeout) as response:
                if response.status != 200:
                    body = await response.content.read(1 << 20)
                    refused = refusal(response.status, body, response.headers.get("Retry-After"))
                    if refused.status == 401:
                        await self._credentials.reload()
                    raise to_error(refused, what)
                buffer = bytearray()
                async for chunk in response.content.iter_any():
                    buffer += chunk
                    if len(buffer) > MAX_BODY:
                        raise ClusterError(f"One event of {url_path} is larger than {MAX_BODY >> 20} MiB.")
                    if b"\n" in chunk:
                        *lines, rest = buffer.split(b"\n")
                        buffer = bytearray(rest)
                        for line in lines:
                            if line:
                                yield bytes(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(self._no_answer(error, what)) from None

    async def _once(
        self,
        method: str,
        url_path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        accept: str,
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=TOTAL_TIMEOUT, sock_connect=CONNECT_TIMEOUT)
        async with await self._open(method, url_path, params, data, content_type, timeout, accept) as response:
            if response.content_length is not None and response.content_length > MAX_BODY:
                raise ClusterError(f"The answer to {method} {url_path} is larger than {MAX_BODY >> 20} MiB.")
            body = await response.read()
            if 200 <= response.status < 300:
                return Answer(body, None)
            return Answer(body, refusal(response.status, body, response.headers.get("Retry-After")))

    async def _open(
        self,
        method: str,
        url_path: str,
        params: Mapping[str, str] | None,
        data: bytes | None,
        content_type: str,
        timeout: aiohttp.ClientTimeout,
        accept: str = JSON,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, "User-Agent": "taintctl"}
        if data is not None:
            headers["Content-Type"] = content_type
        authorization = await self._credentials.authorization()
        if authorization:
            headers["Authorization"] = authorization
        connection = self._credentials.connection
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        if connection is not self._connection:
            self._ssl = connection.ssl_context() if connection.server.startswith("https") else True
            self._connection = connection
        if method != "GET":
            self._fence()
        return await self._session.request(
            method,
            URL(connection.server + url_path, encoded=True).update_query(params or {}),
            data=data,
            headers=headers,
            timeout=timeout,
            ssl=self._ssl,
            proxy=connection.proxy,
            server_hostname=connection.tls_server_name,
            allow_redirects=False,
        )

    def _no_answer(self, error: BaseException, what: str) -> str:
        reason = one_line(str(error) or type(error).__name__, 200)
        if isinstance(error, aiohttp.ClientSSLError):
            return f"TLS with the API server at {self.where} failed: {reason}; check its CA certificate."
        if isinstance(error, TimeoutError):
            return f"The API server at {self.where} did not answer in time ({what})."
        return f"The API server at {self.where} can't be reached ({what}): {reason}"


def _backoff(attempt: int) -> float:
    delay: float = min(FIRST_BACKOFF * 2.0 ** (attempt - 1), LAST_BACKOFF)
    return delay * random.uniform(0.5, 1.0)  # noqa: S311 (spreads retries; nothing secret)
