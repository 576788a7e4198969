"""Who owns pods: controllers of any kind, followed by their owner references, and the pods elsewhere of their gangs.

Of an owner only the metadata is asked for (of a batch/v1 Job and a PodGroup a few fields more, which say whether their
pods are a gang). What can't be read ends its chain and is a value: a plan then names the owner as far as it is known,
and counts it as a workload of its own, so that there are never fewer. Each owner is asked for once, a few at a time,
and remembered for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.adapters.kubernetes.memo import Memo
from taintctl.adapters.kubernetes.selection import key, lean
from taintctl.api.objects import KnownOwner, Meta, Owner, OwnerSpec, Pod, Unread
from taintctl.api.ownership import (
    BATCH,
    MAX_DEPTH,
    POD_GROUP,
    SCHEDULING,
    Ownership,
    controller_of,
    is_pod_group,
    key_of,
    may_be_in_a_gang,
    pod_group_of,
)
from taintctl.ports.clock import Clock
from taintctl.ports.errors import ClusterError, Forbidden, NotFound

MAX_OWNERS = 1000
"""Owners of the holders that one look follows, and as many of the pods that may be in a gang with them."""
PARALLEL = 5
LONGEST = 10.0
"""Seconds that are spent on following some pods; what was not asked for by then is not known."""
REMEMBERED = 60.0
"""Seconds for which an answer holds: no longer than a dry run does."""
MAX_REMEMBERED = 20_000
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
POD_GROUP_VERSIONS = ("v1", "v1beta1", "v1alpha3", "v1alpha2")
"""Newest first: 1.37 serves v1beta1, 1.36 v1alpha2."""

_VERSION = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?v[a-z0-9]{1,62}", re.ASCII)
_KIND = re.compile(r"[A-Z][A-Za-z0-9]{0,62}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9.:]{0,252}", re.ASCII)
_PLURAL = re.compile(r"[a-z][-a-z0-9]{0,62}", re.ASCII)

_LASTING = frozenset({None, Unread.FORBIDDEN, Unread.NOT_FOUND, Unread.UNKNOWN_KIND})
"""Answers that are remembered; other failures are tried again in the next look."""

PodsIn = Callable[[frozenset[str]], Awaitable[Iterable[Pod]]]
"""All pods of these namespaces."""


class Ownerships(NamedTuple):
    owners: tuple[KnownOwner, ...]
    gang_pods: tuple[Pod, ...]


class _Resource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool = True


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    metadata: Meta


class _Whole(msgspec.Struct, frozen=True):
    metadata: Meta
    spec: OwnerSpec = OwnerSpec()


Wanted = tuple[str, Owner]
"""A namespace, and an owner that something in it refers to."""


class OwnerFollower:
    """Follows owners, wherever they are read from, and remembers them for all looks of a process."""

    def __init__(self, clock: Clock) -> None:
        self._owners: Memo[tuple[str, Owner], KnownOwner] = Memo(MAX_REMEMBERED, REMEMBERED / clock.speed)

    async def read(self, namespace: str, owner: Owner) -> KnownOwner:
        """One owner as it is now; what can't be read is a value."""
        raise NotImplementedError

    async def of(self, holders: Iterable[Pod], pods_in: PodsIn) -> Ownerships:
        """The owners of `holders`, and the pods that are in a gang with one of them. Raises ClusterError only where
        `pods_in` does."""
        held = list(holders)
        owners = await self.follow(held)
        known = Ownership(owners)
        gangs = {gang.key: gang for pod in held if (gang := known.gang(pod)) is not None}
        if not gangs:
            return Ownerships(owners, ())
        uids = {pod.metadata.uid for pod in held}
        there = await pods_in(frozenset(gang.namespace for gang in gangs.values()))
        others = [lean(pod) for pod in there if pod.metadata.uid not in uids and may_be_in_a_gang(pod)]
        theirs = await self.follow(others)
        known = Ownership((*owners, *theirs))
        mates = [pod for pod in others if (gang := known.gang(pod)) is not None and gang.key in gangs]
        links = {key_of(pod.metadata.namespace, owner) for pod in mates for owner in known.chain(pod)}
        named = {(pod.metadata.namespace, pod_group_of(pod)) for pod in mates}
        more = [o for o in theirs if key_of(o.namespace, o.owner) in links or (o.namespace, o.owner.name) in named]
        all_known = {(o.namespace, o.owner): o for o in (*more, *owners)}
        return Ownerships(_sorted(all_known.values()), tuple(sorted(mates, key=key)))

    async def follow(self, pods: Iterable[Pod]) -> tuple[KnownOwner, ...]:
        """The chains above `pods`, at most MAX_OWNERS links in all; never raises ClusterError."""
        found: dict[Wanted, KnownOwner] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LONGEST):
                await self._follow(list(pods), found)
        return _sorted(found.values())

    async def _follow(self, pods: list[Pod], found: dict[Wanted, KnownOwner]) -> None:
        wanted: set[Wanted] = set()
        for pod in pods:
            namespace, controller, group = pod.metadata.namespace, controller_of(pod.metadata), pod_group_of(pod)
            if controller is not None:
                wanted.add((namespace, plain_reference(controller)))
            if group:
                wanted.add((namespace, Owner(api_version=SCHEDULING, kind=POD_GROUP, name=group)))
        for _ in range(MAX_DEPTH):
            fresh = sorted(wanted - found.keys(), key=_order)[: MAX_OWNERS - len(found)]
            if not fresh:
                return
            await self._ask(fresh, found)
            wanted = {
                (namespace, plain_reference(found[namespace, owner].controller))
                for namespace, owner in fresh
                if found[namespace, owner].controller is not None
            }

    async def _ask(self, wanted: list[Wanted], found: dict[Wanted, KnownOwner]) -> None:
        gate = asyncio.Semaphore(PARALLEL)

        async def one(namespace: str, owner: Owner) -> None:
            async with gate:
                found[namespace, owner] = await self._owner(namespace, owner)

        unknown = []
        for namespace, owner in wanted:
            remembered = self._owners.get((namespace, owner))
            if remembered is None:
                unknown.append((namespace, owner))
            else:
                found[namespace, owner] = remembered
        async with asyncio.TaskGroup() as group:
            for namespace, owner in unknown:
                group.create_task(one(namespace, owner))

    async def _owner(self, namespace: str, owner: Owner) -> KnownOwner:
        named = owner.api_version == SCHEDULING  # a PodGroup, by its name alone
        known = await (self._pod_group(namespace, owner.name) if named else self.read(namespace, owner))
        if known.unread in _LASTING:
            self._owners.put((namespace, owner), known)
        return known

    async def _pod_group(self, namespace: str, name: str) -> KnownOwner:
        asked = Owner(api_version=f"{SCHEDULING}/{POD_GROUP_VERSIONS[0]}", kind=POD_GROUP, name=name)
        for version in POD_GROUP_VERSIONS:
            asked = Owner(api_version=f"{SCHEDULING}/{version}", kind=POD_GROUP, name=name)
            known = await self.read(namespace, asked)
            if known.unread is not Unread.UNKNOWN_KIND:
                return known
        return KnownOwner(owner=asked, namespace=namespace, unread=Unread.UNKNOWN_KIND)


class OwnerReader(OwnerFollower):
    """Reads owners from the API server: metadata only, but for kinds whose spec says whether their pods are a gang."""

    def __init__(self, client: Client, clock: Clock) -> None:
        super().__init__(clock)
        self._client = client
        self._kinds: Memo[str, Mapping[str, _Resource]] = Memo(MAX_REMEMBERED, REMEMBERED / clock.speed)

    async def read(self, namespace: str, owner: Owner) -> KnownOwner:
        def unread(why: Unread) -> KnownOwner:
            return KnownOwner(owner=owner, namespace=namespace, unread=why)

        if not (_VERSION.fullmatch(owner.api_version) and _KIND.fullmatch(owner.kind) and _NAME.fullmatch(owner.name)):
            return unread(Unread.UNREADABLE)
        try:
            resource = (await self._served(owner.api_version)).get(owner.kind)
            if resource is None or not _PLURAL.fullmatch(resource.name):
                return unread(Unread.UNKNOWN_KIND)
            where = ("namespaces", namespace) if resource.namespaced else ()
            url = path(*_root(owner.api_version), *where, resource.name, owner.name)
            if has_gang_spec(owner):
                whole = await self._client.get(url, _Whole)
                metadata, spec = (whole.metadata, whole.spec) if whole is not None else (None, OwnerSpec())
            else:
                partial = await self._client.get(url, _Metadata, accept=METADATA)
                metadata, spec = (partial.metadata if partial is not None else None), OwnerSpec()
        except Forbidden:
            return unread(Unread.FORBIDDEN)
        except NotFound:
            return unread(Unread.NOT_FOUND)
        except ClusterError:
            return unread(Unread.UNREADABLE)
        if metadata is None or (owner.uid and metadata.uid != owner.uid):
            return unread(Unread.NOT_FOUND)
        controller = None if is_pod_group(owner) else controller_of(metadata)
        return KnownOwner(
            owner=owner, namespace=namespace, controller=plain_reference(controller) if controller else None, spec=spec
        )

    async def _served(self, api_version: str) -> Mapping[str, _Resource]:
        """The kinds of a group version, by name; none where it is not served."""
        known = self._kinds.get(api_version)
        if known is None:
            listed = await self._client.get(path(*_root(api_version)), _Resources)
            resources = (listed.resources or ()) if listed is not None else ()
            known = {r.kind: r for r in reversed(resources) if "/" not in r.name}
            self._kinds.put(api_version, known)
        return known


def has_gang_spec(owner: Owner) -> bool:
    """Whether a few fields of its spec say if its pods are a gang."""
    return is_pod_group(owner) or (owner.group, owner.kind) == (BATCH, "Job")


def _root(api_version: str) -> tuple[str, ...]:
    group, _, version = api_version.rpartition("/")
    return ("apis", group, version) if group else ("api", version)


def plain_reference(owner: Owner | None) -> Owner:
    """The reference as a key: who refers to it as its controller or not makes no difference."""
    assert owner is not None
    return Owner(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)


def _order(wanted: Wanted) -> tuple[str, ...]:
    namespace, owner = wanted
    return namespace, owner.api_version, owner.kind, owner.name, owner.uid


def _sorted(owners: Iterable[KnownOwner]) -> tuple[KnownOwner, ...]:
    return tuple(sorted(owners, key=lambda known: _order((known.namespace, known.owner))))
