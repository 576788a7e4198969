"""A cluster as kubectl wrote it down: a folder with the JSON of `kubectl get RESOURCE --all-namespaces -o json`.

Each resource has its file, named after it; a list that kubectl found empty does not say of what it is. Whatever is
missing, cut off or does not fit together is refused: a plan from part of a cluster would hit more than it says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from taintctl.adapters.kubernetes.owners import OwnerFollower, PodsIn, has_gang_spec, plain_reference
from taintctl.adapters.kubernetes.selection import (
    Kept,
    assemble,
    chosen_pools,
    has_labels,
    holders,
    in_scope,
    involved_nodes,
    kept_slices,
)
from taintctl.api.check import Own
from taintctl.api.objects import (
    DeviceClass,
    DeviceTaintRule,
    KnownOwner,
    Meta,
    Namespace,
    Node,
    Owner,
    OwnerSpec,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    Snapshot,
    Unread,
)
from taintctl.api.ownership import controller_of, is_pod_group
from taintctl.api.pools import pool_sizes, published_pools
from taintctl.api.rule import run_uid_of
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import Invalid

K = TypeVar("K", bound=Kept | DeviceTaintRule)

MAX_FILE = 4 << 30
"""Bytes of one file."""
NEEDED: Mapping[type[Any], str] = {
    ResourceSlice: "resourceslices",
    ResourceClaim: "resourceclaims",
    DeviceClass: "deviceclasses",
    Pod: "pods",
    Node: "nodes",
    Namespace: "namespaces",
    PodDisruptionBudget: "poddisruptionbudgets",
}
RULES = "devicetaintrules"
"""Only asked for where a policy counts what other runs keep out of service."""


class _Meta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    metadata: _Meta = _Meta()
    items: tuple[msgspec.Raw, ...] | None = None


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""


class _Owner(_Kind, frozen=True, rename="camel"):
    metadata: Meta = Meta()


class _Whole(_Owner, frozen=True, rename="camel"):
    spec: OwnerSpec = OwnerSpec()


@dataclass(frozen=True)
class Dump:
    """Raises Invalid, with one sentence that names the file, for what it can't stand for."""

    folder: Path
    clock: Clock

    async def snapshot(self, scope: Scope) -> Snapshot:
        """As of when the oldest of the files was written; never live."""
        slices = self._all(ResourceSlice)
        claims = self._all(ResourceClaim)
        pods = {pod.metadata.uid: pod for pod in self._all(Pod)}
        nodes = self._all(Node)
        classes = self._all(DeviceClass)
        pools = published_pools(slices)
        wanted = scope.node_selector
        selected = None if wanted is None else {node.metadata.name for node in nodes if has_labels(node, wanted)}
        chosen = chosen_pools(scope, pools, classes, selected)
        in_reach = [claim for claim in claims if in_scope(claim, scope, chosen, pools)]
        held, reserved = self._held(in_reach, pods), holders(in_reach)
        kept = kept_slices(slices, chosen, scope)
        local = involved_nodes(kept, chosen, scope)
        owners = await _Owners(self, pods.values()).of(held, _pods_in(pods.values()))
        return assemble(
            scope,
            chosen=chosen,
            slices=kept,
            published=pool_sizes(slices),
            claims=in_reach,
            pods=(p for p in pods.values() if p.metadata.uid in reserved or p.spec.node_name in local),
            nodes=nodes,
            budgets=self._all(PodDisruptionBudget),
            classes=classes,
            namespaces=self._all(Namespace),
            taken_at=min(self._written(name) for name in NEEDED.values()),
            live=False,
            owners=owners.owners,
            gang_pods=owners.gang_pods,
        )

    async def own_rules(self) -> tuple[DeviceTaintRule, ...]:
        return tuple(rule for rule in self._all(DeviceTaintRule) if run_uid_of(rule) is not None)

    async def get(self, kind: type[Own], name: str) -> dict[str, Any] | None:
        """An object of ours, from the file of its kind; that file need not be there."""
        found = [raw for raw in self._ours(kind) if (raw.get("metadata") or {}).get("name") == name]
        return found[0] if found else None

    async def list(self, kind: type[Own], *, label_selector: str = "") -> tuple[dict[str, Any], ...]:
        return self._ours(kind)

    def owners(self) -> Iterator[KnownOwner]:
        """Every object that may own a pod, with its own controller: all that other files hold."""
        known = {*NEEDED.values(), RULES}
        for file in sorted(self.folder.glob("*.json")):
            for item in self._items(file.stem) if file.stem not in known else ():
                try:
                    found = msgspec.json.decode(item, type=_Owner, strict=False)
                    owner = Owner(found.api_version, found.kind, found.metadata.name, found.metadata.uid)
                    spec = OwnerSpec()
                    if has_gang_spec(owner):
                        spec = msgspec.json.decode(item, type=_Whole, strict=False).spec
                except msgspec.MsgspecError as error:
                    raise self._bad(file.stem, f"holds something that can't be read: {error}") from None
                yield _known(owner, found.metadata, spec)

    def _ours(self, kind: type[Own]) -> tuple[dict[str, Any], ...]:
        if not (self.folder / f"{kind.PLURAL}.json").exists():
            return ()
        raws = (msgspec.json.decode(item) for item in self._items(kind.PLURAL))
        return tuple(raw for raw in raws if isinstance(raw, dict))

    def _held(self, claims: Iterable[ResourceClaim], pods: Mapping[str, Pod]) -> tuple[Pod, ...]:
        found = []
        for uid, (namespace, consumer) in holders(claims).items():
            if uid not in pods:
                raise self._bad(
                    "pods",
                    f"does not hold pod {namespace}/{consumer.name}, for which resourceclaims.json has a claim "
                    "reserved; it may have gone between the two: write them again",
                )
            found.append(pods[uid])
        return tuple(found)

    def _all(self, kind: type[K]) -> tuple[K, ...]:
        name = NEEDED.get(kind, RULES)
        found = []
        for item in self._items(name):
            try:
                says = msgspec.json.decode(item, type=_Kind).kind
                if says != kind.__name__:
                    raise self._bad(name, f"holds a {says or 'thing without a kind'}, where {kind.__name__}s belong")
                found.append(msgspec.json.decode(item, type=kind, strict=False))
            except msgspec.MsgspecError as error:
                raise self._bad(name, f"holds a {kind.__name__} that can't be read: {error}") from None
        return tuple(found)

    def _items(self, name: str) -> tuple[msgspec.Raw, ...]:
        file = self.folder / f"{name}.json"
        try:
            if file.stat().st_size > MAX_FILE:
                raise self._bad(name, "is larger than 4 GiB")
            text = file.read_bytes()
        except FileNotFoundError:
            where = os.fspath(self.folder)
            write = f"kubectl get {name} --all-namespaces -o json > {where}/{name}.json"
            raise Invalid(f"{where} has no {name}.json; write it: {write}") from None
        except OSError as error:
            raise self._bad(name, f"can't be read: {error.strerror}") from None
        try:
            found = msgspec.json.decode(text, type=_List)
        except msgspec.MsgspecError as error:
            raise self._bad(name, f"is cut off, or no JSON of kubectl's: {error}") from None
        if not found.kind.endswith("List"):
            raise self._bad(name, f"holds one {found.kind or 'object'}, and a list is wanted")
        if found.metadata.continue_:
            raise self._bad(name, "is a part of a list (metadata.continue); write all of it")
        if found.items is None:
            raise self._bad(name, "is a list without items")
        return found.items

    def _written(self, name: str) -> datetime:
        return datetime.fromtimestamp((self.folder / f"{name}.json").stat().st_mtime, tz=UTC)

    def _bad(self, name: str, what: str) -> Invalid:
        return Invalid(f"{os.fspath(self.folder / name)}.json {what}")


def _pods_in(pods: Iterable[Pod]) -> PodsIn:
    async def pods_in(namespaces: frozenset[str]) -> list[Pod]:
        return [pod for pod in pods if pod.metadata.namespace in namespaces]

    return pods_in


def _known(owner: Owner, metadata: Meta, spec: OwnerSpec) -> KnownOwner:
    controller = None if is_pod_group(owner) else controller_of(metadata)
    above = plain_reference(controller) if controller is not None else None
    return KnownOwner(owner=owner, namespace=metadata.namespace, controller=above, spec=spec)


class _Owners(OwnerFollower):
    """Follows owners through the files of a dump; what is in none of them is not known."""

    def __init__(self, dump: Dump, pods: Iterable[Pod]) -> None:
        super().__init__(dump.clock)
        leaders = (_known(Owner("v1", "Pod", p.metadata.name, p.metadata.uid), p.metadata, OwnerSpec()) for p in pods)
        self._there = {_place(found.namespace, found.owner): found for found in (*dump.owners(), *leaders)}
        self._kinds = {(found.owner.api_version, found.owner.kind) for found in self._there.values()}

    async def read(self, namespace: str, owner: Owner) -> KnownOwner:
        found = self._there.get(_place(namespace, owner)) or self._there.get(_place("", owner))
        if found is None or (owner.uid and found.owner.uid != owner.uid):
            there = (owner.api_version, owner.kind) in self._kinds
            unread = Unread.NOT_FOUND if there else Unread.UNKNOWN_KIND
            return KnownOwner(owner=owner, namespace=namespace, unread=unread)
        return KnownOwner(owner=owner, namespace=namespace, controller=found.controller, spec=found.spec)


def _place(namespace: str, owner: Owner) -> tuple[str, ...]:
    return namespace, owner.api_version, owner.kind, owner.name
