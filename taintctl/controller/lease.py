"""Leader election: one controller works, the others wait. A coordination.k8s.io Lease, as Kubernetes' own use it.

Whether a lease has run out is told by our own monotonic clock, from when we last saw it change: the clocks of two
machines are never compared.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.api.text import one_line
from taintctl.controller.defaults import LEASE, SPEED_ANNOTATION
from taintctl.ports.clock import Clock
from taintctl.ports.errors import ClusterError, Conflict, NotFound, Unavailable

log = logging.getLogger("taintctl.lease")


@dataclass(frozen=True)
class LeaseTimes:
    """Seconds of real time; the defaults are those of client-go."""

    duration: float = 15.0
    """After so long without a renewal others may take it."""
    renew: float = 10.0
    """After so long without a successful renewal the holder gives up."""
    retry: float = 2.0

    @classmethod
    def at(cls, speed: float) -> LeaseTimes:
        """Scaled for a sandbox, but never so short that a slow machine loses its lease for nothing."""
        return cls(max(15.0 / speed, 3.0), max(10.0 / speed, 2.0), max(2.0 / speed, 0.2))


class _Meta(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"


class LeaderElection:
    """Call `acquire`, then `keep` while working, then `release`."""

    def __init__(self, client: Client, clock: Clock, namespace: str, identity: str, times: LeaseTimes) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._identity = identity
        self._times = times
        self._seen: _Lease | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0
        self.holder = ""
        """Who holds it, as last seen."""

    async def acquire(self) -> None:
        """Returns when the lease is ours; waits, and says so, while another holds it. Raises NotFound where the
        namespace is missing, and ClusterError for what waiting does not mend (Forbidden)."""
        told = ""
        while not await self._try():
            if self.holder != told:
                told = self.holder
                log.info("another controller (%s) is at work; waiting for its lease", told or "unknown")
            await asyncio.sleep(self._times.retry)
        log.info("the lease is ours (%s)", self._identity)

    async def keep(self) -> None:
        """Renews until it fails for too long or somebody else has the lease; then returns: stop all work at once."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._times.retry)
            try:
                async with asyncio.timeout_at(self._renewed_at + self._times.renew):
                    ours = await self._try()
            except (ClusterError, TimeoutError) as error:
                ours = False
                log.warning("the lease could not be renewed: %s", one_line(str(error) or "no answer in time"))
            if not ours and self.holder not in ("", self._identity):
                log.error("the lease was taken by %s", self.holder)
                return
            if loop.time() - self._renewed_at >= self._times.renew:
                log.error("the lease could not be renewed for %.0f s", self._times.renew)
                return

    def require(self) -> None:
        """For every write: raises Unavailable where the last renewal is too long ago. A process that was frozen for
        longer than its lease goes on in the middle of what it did, and another one may be at work by then."""
        late = asyncio.get_running_loop().time() - self._renewed_at
        if self.holder != self._identity or late >= self._times.renew:
            raise Unavailable(
                f"nothing is written, as the lease was last renewed {late:.1f} s ago: another controller may be at work"
            )

    async def release(self) -> None:
        """Lets another controller begin at once. Nothing where it is not ours any more or the server is away."""
        seen = self._seen
        if seen is None or seen.spec.holder_identity != self._identity:
            return
        given = msgspec.structs.replace(seen.spec, holder_identity="", lease_duration_seconds=1, renew_time=self._now())
        try:
            async with asyncio.timeout(self._times.renew):
                await self._put(seen, given)
            log.info("the lease is released")
        except (ClusterError, TimeoutError) as error:
            log.warning("the lease could not be released and will run out: %s", one_line(str(error) or "no answer"))

    async def _try(self) -> bool:
        """One attempt to create, take or renew it. A race that is lost is False; Unavailable too, while waiting."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            found = await self._client.get(self._path(LEASE), _Lease)
            if found is None:
                created = await self._create()
                self._look(created, started)
                self._renewed_at = started
                return True
            self._look(found, started)
            if self.holder not in ("", self._identity) and not self._ran_out(found):
                return False
            stored = await self._put(found, self._renewed(found.spec))
        except Conflict:
            return False
        except Unavailable as error:
            log.warning("the lease can't be read or written: %s", error.message)
            return False
        self._look(stored, loop.time())
        # Counted from before the request: others count from when they see it, which is later.
        self._renewed_at = started
        return True

    def _look(self, lease: _Lease, now: float) -> None:
        if self._seen is None or self._seen.metadata.resource_version != lease.metadata.resource_version:
            self._seen_at = now
        self._seen = lease
        self.holder = one_line(lease.spec.holder_identity or "", 200)

    def _ran_out(self, lease: _Lease) -> bool:
        duration = max(float(lease.spec.lease_duration_seconds or 0), self._times.duration)
        return asyncio.get_running_loop().time() - self._seen_at >= duration

    def _renewed(self, old: _Spec) -> _Spec:
        ours = old.holder_identity == self._identity
        return _Spec(
            holder_identity=self._identity,
            lease_duration_seconds=math.ceil(self._times.duration),
            acquire_time=old.acquire_time if ours else self._now(),
            renew_time=self._now(),
            lease_transitions=(old.lease_transitions or 0) + (0 if ours else 1),
        )

    async def _create(self) -> _Lease:
        meta = _Meta(name=LEASE, namespace=self._namespace, annotations=self._speed())
        lease = _Lease(meta, self._renewed(_Spec(lease_transitions=-1)))
        try:
            return await self._client.request("POST", self._path(), _Lease, body=lease)
        except NotFound as error:
            raise NotFound(
                f"There is no namespace {self._namespace} for the lease; install taintctl with `kubectl apply -k "
                "deploy/`, or create that namespace.",
                status=error.status,
            ) from None

    async def _put(self, old: _Lease, spec: _Spec) -> _Lease:
        return await self._client.request("PUT", self._path(LEASE), _Lease, body=_Lease(self._meta(old.metadata), spec))

    def _meta(self, old: _Meta) -> _Meta:
        """Other annotations stay; the speed is the present holder's."""
        others = {key: value for key, value in (old.annotations or {}).items() if key != SPEED_ANNOTATION}
        return msgspec.structs.replace(old, annotations={**others, **(self._speed() or {})} or None)

    def _speed(self) -> dict[str, str] | None:
        return {SPEED_ANNOTATION: f"{self._clock.speed:g}"} if self._clock.speed != 1 else None

    def _path(self, *name: str) -> str:
        return path("apis", "coordination.k8s.io", "v1", "namespaces", self._namespace, "leases", *name)

    def _now(self) -> str:
        return micro_time(self._clock.now())


def micro_time(value: datetime) -> str:
    """metav1.MicroTime: always six digits, which a Lease's times must have."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
