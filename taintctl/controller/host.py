"""`taintctl run`: the lease, the cache, the reconcile loop, kopf and the probes, from start to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from taintctl.adapters.kubernetes.cache import LeanCache
from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import ConfigError, Credentials
from taintctl.adapters.kubernetes.discovery import Discovery, discover
from taintctl.adapters.kubernetes.owners import OwnerReader
from taintctl.controller.defaults import NAMESPACE, PROBES_PORT
from taintctl.controller.lease import LeaderElection, LeaseTimes
from taintctl.controller.logs import LogFormat, set_up
from taintctl.controller.operator import Operator
from taintctl.controller.people import NOBODY, People, PeopleOptions
from taintctl.controller.probes import Probes
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import ClusterError, Unavailable
from taintctl.reconcile.loop import Reconciler
from taintctl.workflow.model import Settings

log = logging.getLogger("taintctl.controller")

STALE = timedelta(minutes=3)
"""A cache that heard nothing for so long is not ready (bookmarks come every minute)."""
START_RETRY = 5.0


@dataclass(frozen=True)
class ControllerOptions:
    """How to run the controller. `speed` divides delays, for a sandbox of the same speed."""

    kubeconfig: str | None = None
    context: str | None = None
    speed: float = 1.0
    allow_unverified_approvals: bool = False
    lease_namespace: str = NAMESPACE
    """The same for every controller of a cluster: it is what keeps a second one from working too."""
    probes_host: str = "0.0.0.0"  # noqa: S104 (the kubelet asks from outside the pod)
    probes_port: int | None = PROBES_PORT
    """None: no probes; 0: any free port, named in the log."""
    workers: int = 4
    people: PeopleOptions | None = None
    """None: nobody is told of runs, whatever tokens are in the environment."""
    log_format: LogFormat = "text"
    log_level: int = logging.INFO


async def run_controller(options: ControllerOptions, stop: asyncio.Event | None = None) -> int:
    """Works until SIGTERM or SIGINT, or until `stop` is set. Returns the exit status: 0 when it was asked to stop, 1
    when it can't work here or lost its lease (one line on stderr says why)."""
    set_up(options.log_format, options.log_level)
    asked_to_stop = stop or asyncio.Event()
    with _signals(asked_to_stop):
        try:
            clock = SystemClock(options.speed)
            credentials = Credentials.from_environment(options.kubeconfig, options.context)
            if credentials.connection.tls_server_name:
                raise ConfigError(
                    "The controller can't use a kubeconfig with tls-server-name (kopf has no such setting); give the "
                    "API server by the name in its certificate."
                )
            async with Client(credentials, clock) as client:
                people = People.from_environment(options.people) if options.people is not None else NOBODY
                return await _Host(options, credentials, client, clock, asked_to_stop, people).run()
        except ClusterError as error:
            log.error("%s", error.message)
        except (OSError, ValueError, ImportError) as error:
            log.error("%s", error)
    return 1


class _Host:
    def __init__(
        self,
        options: ControllerOptions,
        credentials: Credentials,
        client: Client,
        clock: SystemClock,
        stop: asyncio.Event,
        people: People,
    ) -> None:
        self._people = people
        self._options = options
        self._credentials = credentials
        self._client = client
        self._clock = clock
        self._stop = stop
        self._waiting_for = "the API server"
        """What it waits for before it works; empty once it does."""
        self._cache: LeanCache | None = None
        self._operator: Operator | None = None

    async def run(self) -> int:
        async with self._probes():
            discovery = await self._until_stop(self._discover())
            if discovery is None:
                return 0
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            times = LeaseTimes.at(self._options.speed)
            lease = LeaderElection(self._client, self._clock, self._options.lease_namespace, identity, times)
            self._waiting_for = "the lease"
            if await self._until_stop(_acquired(lease)) is None:
                return 0
            self._waiting_for = ""
            try:
                async with Client(self._credentials, self._clock, fence=lease.require) as client:
                    return await self._work(discovery, lease, client)
            finally:
                await lease.release()

    async def _discover(self) -> Discovery:
        """What the server offers, once it answers. Raises Unsupported or NotFound where we can't work with it."""
        while True:
            try:
                discovery = await discover(self._client)
                break
            except Unavailable as error:
                log.warning("%s", error.message)
                await asyncio.sleep(START_RETRY / self._options.speed)
        version = discovery.require_rules()
        discovery.require_objects()
        discovery.require_kinds()
        log.info("Kubernetes %s at %s, rules at %s", discovery.server_version, self._client.where, version)
        return discovery

    async def _work(self, discovery: Discovery, lease: LeaderElection, client: Client) -> int:
        """Everything that the holder of the lease does; when one part ends, all end, before the lease is released.
        `client` writes only while the lease is fresh."""
        settings = Settings(
            speed=self._options.speed, allow_unverified_approvals=self._options.allow_unverified_approvals
        )
        owners = OwnerReader(client, self._clock)
        cache = LeanCache(client, discovery.require_objects(), self._clock, owners)
        cluster = KubernetesCluster(client, discovery, self._clock, owners)
        reconciler = Reconciler(cluster, cache, self._clock, settings)
        cache.on_change = reconciler.devices_changed
        operator = Operator(self._credentials, asyncio.get_running_loop(), reconciler.enqueue)
        self._cache, self._operator = cache, operator
        async with self._people.at_work(cluster, cache, self._clock, settings) as (announcer, more):
            reconciler.on_run = announcer.tell
            lost = asyncio.create_task(lease.keep(), name="lease")
            stop = asyncio.create_task(self._stop.wait(), name="stop")
            work = [
                asyncio.create_task(cache.run(), name="cache"),
                asyncio.create_task(reconciler.run(self._options.workers), name="reconcile"),
                *(asyncio.create_task(job(), name=name) for name, job in more),
            ]
            spared = asyncio.create_task(_spare_once_filled(cache), name="collector")
            operator.start()
            try:
                done, _ = await asyncio.wait([lost, stop, *work], return_when=asyncio.FIRST_COMPLETED)
            finally:
                await _cancel([*work, stop, spared])
                await operator.stop()
                # The lease is kept until all work has stopped.
                await _cancel([lost])
        if stop in done:
            log.info("stopped")
            return 0
        for task in done - {lost, stop}:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("the %s task ended", task.get_name(), exc_info=error)
        if lost in done:
            log.error("work has stopped, since the lease is lost; start again")
        return 1

    async def _until_stop(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The result, or None when we are asked to stop first."""
        task = asyncio.ensure_future(work)
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            await _cancel([task, stop])

    @asynccontextmanager
    async def _probes(self) -> AsyncIterator[None]:
        if self._options.probes_port is None:
            yield
            return
        probes = Probes(self._options.probes_host, self._options.probes_port, alive=self._alive, ready=self._ready)
        await probes.start()
        log.info("probes at port %d", probes.port)
        try:
            yield
        finally:
            await probes.stop()

    def _alive(self) -> str | None:
        """That it answers at all says that the loop runs; kopf's thread runs beside it."""
        if self._operator is not None and not self._operator.alive and not self._stop.is_set():
            return "the watch of our objects has ended"
        return None

    def _ready(self) -> str | None:
        """A controller that waits for the lease is ready: it is all that a second one has to do."""
        if self._waiting_for == "the lease":
            return None
        if self._waiting_for:
            return f"waiting for {self._waiting_for}"
        age = self._cache.age() if self._cache is not None else None
        if age is None:
            return "the cache is not filled yet"
        if age > self._clock.scaled(STALE):
            return f"the API server has been silent for {age.total_seconds():.0f} s"
        return None


def spare_collector() -> None:
    """Takes what the process holds now, the whole fleet, out of the garbage collector's sight: looking through it again
    and again took half of the time of a large plan. Call it once the cache is filled."""
    gc.collect()
    gc.freeze()


async def _spare_once_filled(cache: LeanCache) -> None:
    await cache.until_filled()
    spare_collector()


async def _acquired(lease: LeaderElection) -> bool:
    await lease.acquire()
    return True


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class _signals:
    """SIGTERM and SIGINT set the event; only where this is the main thread."""

    def __init__(self, event: asyncio.Event) -> None:
        self._event = event
        self._loop = asyncio.get_running_loop()
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> None:
        if self._main:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(number, self._event.set)

    def __exit__(self, *_: object) -> None:
        if self._main:
            for number in (signal.SIGTERM, signal.SIGINT):
                self._loop.remove_signal_handler(number)
