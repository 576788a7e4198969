"""kopf, as the watcher of our own kinds: it says which object changed, and decides and writes nothing.

It has its own thread and event loop, for it cancels every task of its loop when it stops. Whatever ends it (a 410, or
errors that outlast its own retries) starts it again, with backoff; it then lists everything, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import kopf

from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.text import one_line
from taintctl.api.base import GROUP, VERSION
from taintctl.api.check import KINDS, Own

log = logging.getLogger("taintctl.operator")

Enqueue = Callable[[type[Own], str], None]

FIRST_BACKOFF = 1.0
LAST_BACKOFF = 60.0
STOP_TIMEOUT = 15.0


class Operator:
    """Calls `enqueue` in `loop` for every change of an object of ours, from `start` to `stop`."""

    def __init__(self, credentials: Credentials, loop: asyncio.AbstractEventLoop, enqueue: Enqueue) -> None:
        self._credentials = credentials
        self._loop = loop
        self._enqueue = enqueue
        self._stop = threading.Event()
        self._logins = 0
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self.restarts = 0

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Waits for kopf to end; its thread is a daemon, so one that hangs does not keep the process."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        delay = FIRST_BACKOFF
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                asyncio.run(
                    kopf.operator(
                        registry=self._registry(),
                        settings=settings(),
                        clusterwide=True,
                        standalone=True,
                        stop_flag=self._stop,
                    )
                )
            except Exception as error:  # whatever ends it, it begins anew
                log.warning("the watch of our objects ended (%s); it starts again", one_line(repr(error), 200))
            if self._stop.is_set():
                return
            self.restarts += 1
            if time.monotonic() - began > LAST_BACKOFF:
                delay = FIRST_BACKOFF
            self._stop.wait(delay)
            delay = min(delay * 2, LAST_BACKOFF)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5)(self._login)
        for kind in KINDS:
            kopf.on.event(GROUP, VERSION, kind.PLURAL, registry=registry)(self._handler(kind))
        return registry

    def _handler(self, kind: type[Own]) -> Callable[..., Any]:
        async def changed(name: str, **_kwargs: Any) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._enqueue, kind, name)

        return changed

    async def _login(self, **_kwargs: Any) -> kopf.ConnectionInfo:
        self._logins += 1
        fresh = asyncio.run_coroutine_threadsafe(self._current(again=self._logins > 1), self._loop)
        header = await asyncio.wrap_future(fresh)
        connection = self._credentials.connection
        scheme, _, token = (header or "").partition(" ")
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_path=connection.ca_file,
            insecure=not connection.verify,
            certificate_path=connection.cert_file,
            private_key_path=connection.key_file,
            scheme=scheme or None,
            token=token.strip() or None,
            proxy_url=connection.proxy,
        )

    async def _current(self, *, again: bool) -> str | None:
        if again:  # kopf asks again when the server refused what it had
            await self._credentials.reload()
        return await self._credentials.authorization()


def settings() -> kopf.OperatorSettings:
    """kopf posts no events (ours are written by the loop), has no peers (the Lease is ours) and looks for no new
    kinds (ours were there at the start)."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.posting.loggers = False
    chosen.scanning.disabled = True
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.connect_timeout = 5
    chosen.watching.reconnect_backoff = 1.0
    chosen.watching.chunk_size = 500
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 5
    chosen.process.ultimate_exiting_timeout = None  # it would kill the whole process
    return chosen
