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
from taintctl.api.base import GROUP, VERSION
from taintctl.api.check import KINDS, Own
from taintctl.api.text import one_line

log = logging.getLogger("taintctl.operator")

Enqueue = Callable[[type[Own], str], None]

FIRST_BACKOFF = 1.0
LAST_BACKOFF = 60.0
END_TIMEOUT = 1.0
"""Seconds that kopf may take to end when it is told to."""
CANCELLATIONS = 10
"""How often a task of kopf's is cancelled: some swallow the first."""
JOIN_TIMEOUT = 10.0
AGAIN_AFTER = 1.0
"""Seconds before credentials are read again that the server has refused."""
LOOK_EVERY = 0.2
BEGIN_TIMEOUT = 60.0
"""Seconds that kopf may take until it watches every kind."""
LOST_AFTER = 2.0
"""Seconds that kopf may go on without one of its watches."""


class WatchLost(Exception):
    """kopf watches no more, and has not ended."""


class Operator:
    """Calls `enqueue` in `loop` for every change of an object of ours, from `start` to `stop`."""

    def __init__(self, credentials: Credentials, loop: asyncio.AbstractEventLoop, enqueue: Enqueue) -> None:
        self._credentials = credentials
        self._loop = loop
        self._enqueue = enqueue
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._end: Callable[[], object] | None = None
        """Tells the kopf that runs now to end."""
        self._logins = 0
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)
        self.restarts = 0
        self.watches = 0
        """How many kinds are watched, as last seen."""

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Waits for kopf to end; its thread is a daemon, so one that hangs does not keep the process."""
        self._stop.set()
        with self._lock:
            if self._end is not None:
                self._end()
        await asyncio.to_thread(self._thread.join, JOIN_TIMEOUT)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        delay = FIRST_BACKOFF
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._one_loop()
            except Exception as error:  # whatever ends it, it begins anew
                said = self._credentials.connection.redact(f"{type(error).__name__}: {error}")
                log.warning("the watch of our objects ended (%s); it starts again", one_line(said, 300))
            if time.monotonic() - began > LAST_BACKOFF:
                delay = FIRST_BACKOFF
            self.restarts += 1
            self._stop.wait(delay)
            delay = min(delay * 2, LAST_BACKOFF)

    def _one_loop(self) -> None:
        """One kopf in one event loop, which is closed whether or not kopf's tasks let themselves be cancelled."""
        loop = asyncio.new_event_loop()
        # kopf leaves tasks behind whose errors were told already
        loop.set_exception_handler(lambda _loop, context: log.debug("in kopf's loop: %s", context.get("message")))
        try:
            loop.run_until_complete(self._once())
        finally:
            for _ in range(CANCELLATIONS):
                if not (left := asyncio.all_tasks(loop)):
                    break
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(left, timeout=0.1))
            loop.close()

    async def _once(self) -> None:
        """kopf until it fails, loses a watch or is told to stop; it decides and writes nothing, so that it may be
        left at any moment."""
        loop = asyncio.get_running_loop()
        # An event of this loop: for a threading.Event kopf waits in a thread, and the loop could not be closed.
        flag = asyncio.Event()
        with self._lock:
            self._end = lambda: loop.call_soon_threadsafe(flag.set)
        # Made before kopf begins: it ends by cancelling every task that came after it began.
        lost = asyncio.create_task(self._until_lost())
        told = asyncio.create_task(flag.wait())
        running = asyncio.create_task(
            kopf.operator(
                registry=self._registry(), settings=settings(), clusterwide=True, standalone=True, stop_flag=flag
            )
        )
        try:
            if not self._stop.is_set():
                await asyncio.wait([running, lost, told], return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                await asyncio.wait([running], timeout=END_TIMEOUT)
            if running.done():
                await running
            elif not self._stop.is_set():
                why = lost.result()
                raise WatchLost(
                    f"one of its watches has ended: {why.args[0] if why and why.args else 'no reason given'}"
                )
        finally:
            with self._lock:
                self._end = None

    async def _until_lost(self) -> BaseException | None:
        """Returns, with what ended it, when a watch of kopf's has ended and kopf has not: its shutdown can hang for
        ever on a request that it means to cancel and does not (1.45.2, clients/api.py, request_cancel_callback), and
        then nobody watches."""
        begun = False
        missing = 0.0
        seen: set[asyncio.Task[Any]] = set()
        while missing < (LOST_AFTER if begun else BEGIN_TIMEOUT):
            await asyncio.sleep(LOOK_EVERY)
            watchers = {task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")}
            seen |= watchers
            self.watches = len(watchers)
            begun = begun or self.watches >= len(KINDS) or any(task.done() for task in seen)
            missing = missing + LOOK_EVERY if self.watches < len(KINDS) else 0.0
        ended = (task for task in seen if task.done() and not task.cancelled())
        return next((error for task in ended if (error := task.exception()) is not None), None)

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
            # kopf gives up on credentials that equal refused ones, although a server can be wrong for a moment.
            priority=self._logins,
        )

    async def _current(self, *, again: bool) -> str | None:
        if again:  # kopf asks again when the server refused what it had: not in a tight loop
            await asyncio.sleep(AGAIN_AFTER)
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
    # Its default tries for 54 s without a word of ours: better to end soon, say why (a right is missing), begin anew.
    chosen.networking.error_backoffs = (1.0, 2.0)
    chosen.process.ultimate_exiting_timeout = None  # it would kill the whole process
    return chosen
