"""Which objects a snapshot of a scope holds: the same for a live read and for the cache. Pure."""

from __future__ import annotations

import sys
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from taintctl.api.objects import (
    ConsumerReference,
    DeviceClass,
    KnownOwner,
    Namespace,
    Node,
    Object,
    Pod,
    PodDisruptionBudget,
    PoolSizes,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
    Snapshot,
)
from taintctl.api.pools import PoolKey, PublishedPool, pool_key
from taintctl.ports.cluster import Scope

Kept = ResourceSlice | ResourceClaim | Pod | Node | PodDisruptionBudget | DeviceClass | Namespace
K = TypeVar("K", bound=Kept)
T = TypeVar("T")
Key = tuple[str, str]
"""Namespace and name."""

MAX_SHARED = 4096
"""Values remembered to be shared; most are a device's own (its UUID), and go again."""


def key(obj: Kept) -> Key:
    return (sys.intern(obj.metadata.namespace), obj.metadata.name)


class Shared:
    """One object for all that are equal: the devices of a fleet have few models and many copies of them."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def slice(self, item: ResourceSlice) -> ResourceSlice:
        devices = tuple(self._device(device) for device in item.spec.devices or ())
        return msgspec.structs.replace(item, spec=msgspec.structs.replace(item.spec, devices=devices))

    def _device(self, device: SliceDevice) -> SliceDevice:
        attributes = {sys.intern(name): self._one(value, value) for name, value in (device.attributes or {}).items()}
        capacity = device.capacity or None
        if capacity is not None:  # whole, for it is never changed
            capacity = self._one(tuple(sorted((name, value.value) for name, value in capacity.items())), capacity)
        return msgspec.structs.replace(
            device, name=sys.intern(device.name), attributes=attributes or None, capacity=capacity
        )

    def _one(self, same: Hashable, value: T) -> T:
        """The first of the values for which `same` was this."""
        if len(self._known) >= MAX_SHARED:
            self._known.clear()
        found: T = self._known.setdefault(same, value)
        return found


def lean(obj: K) -> K:
    """Without the annotations, which can be large; only those of a ResourceClaim mean something to a plan."""
    if isinstance(obj, ResourceClaim) or obj.metadata.annotations is None:
        return obj
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, annotations=None))


def slice_nodes(item: ResourceSlice) -> Iterator[str]:
    """The nodes that a slice's devices are local to."""
    if item.spec.node_name:
        yield item.spec.node_name
    for device in item.spec.devices or ():
        if device.node_name:
            yield device.node_name


def on_node(item: ResourceSlice, names: Container[str]) -> bool:
    return any(name in names for name in slice_nodes(item))


class ResultGlance(Object, frozen=True):
    driver: str
    pool: str


class DevicesGlance(Object, frozen=True):
    results: tuple[ResultGlance, ...] | None = None


class AllocationGlance(Object, frozen=True):
    devices: DevicesGlance = DevicesGlance()


class StatusGlance(Object, frozen=True):
    allocation: AllocationGlance | None = None


class ClaimGlance(Object, frozen=True):
    """The part of a ResourceClaim that says which pools it holds devices of: a quarter of the work to read."""

    status: StatusGlance = StatusGlance()


def pools_of(claim: ResourceClaim | ClaimGlance) -> frozenset[PoolKey]:
    """(driver, pool) of every device that is allocated to the claim."""
    if claim.status.allocation is None:
        return frozenset()
    return frozenset((r.driver, r.pool) for r in claim.status.allocation.devices.results or ())


def has_labels(node: Node, wanted: Mapping[str, str]) -> bool:
    labels = node.metadata.labels or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def chosen_pools(
    scope: Scope,
    pools: Mapping[PoolKey, PublishedPool],
    classes: Iterable[DeviceClass],
    nodes: Container[str] | None,
) -> frozenset[PoolKey]:
    """The published pools that the scope means. `nodes` are those that its node selector selects; None: any."""
    met = {
        key: pool
        for key, pool in pools.items()
        if scope.driver in (None, pool.driver)
        and scope.pool in (None, pool.name)
        and (nodes is None or any(on_node(item, nodes) for item in pool.slices))
    }
    return (scope.pick(met, classes) if scope.pick is not None else frozenset(met)) | scope.pools


def unpublished(scope: Scope, pool: PoolKey, published: Container[PoolKey]) -> bool:
    """Whether only allocations name the pool, and the scope can mean it."""
    driver, name = pool
    return pool not in published and scope.driver in (None, driver) and scope.pool in (None, name)


def in_scope(
    claim: ResourceClaim | ClaimGlance, scope: Scope, chosen: Container[PoolKey], published: Container[PoolKey]
) -> bool:
    """Whether it holds a device of the scope. Its whole allocation is kept: a prediction reads all of it."""
    return any(pool in chosen or unpublished(scope, pool, published) for pool in pools_of(claim))


def holders(claims: Iterable[ResourceClaim]) -> dict[str, tuple[str, ConsumerReference]]:
    """The pods that the claims are reserved for, by uid, with their namespace."""
    return {
        consumer.uid: (claim.metadata.namespace, consumer)
        for claim in claims
        for consumer in claim.status.reserved_for or ()
        if consumer.resource == "pods" and not consumer.api_group
    }


def involved_nodes(slices: Iterable[ResourceSlice], chosen: Container[PoolKey], scope: Scope) -> frozenset[str]:
    """Nodes whose every pod is of interest: those of the scope's devices, and those that the caller names."""
    local = {node for item in slices if pool_key(item) in chosen for node in slice_nodes(item)}
    return frozenset(local | set(scope.nodes))


def kept_slices(slices: Iterable[ResourceSlice], chosen: Container[PoolKey], scope: Scope) -> tuple[ResourceSlice, ...]:
    """The slices of the chosen pools; where none is published all of the driver, to say what there is instead."""
    every = [s for s in slices if scope.driver in (None, s.spec.driver) or pool_key(s) in chosen]
    kept = [s for s in every if pool_key(s) in chosen]
    return tuple(sorted(map(lean, kept or (every if scope.driver else [])), key=key))


def assemble(
    scope: Scope,
    *,
    chosen: frozenset[PoolKey],
    slices: tuple[ResourceSlice, ...],
    published: PoolSizes,
    claims: Iterable[ResourceClaim],
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    budgets: Iterable[PodDisruptionBudget],
    classes: Iterable[DeviceClass],
    namespaces: Iterable[Namespace],
    taken_at: datetime,
    live: bool,
    owners: tuple[KnownOwner, ...] = (),
    gang_pods: tuple[Pod, ...] = (),
) -> Snapshot:
    """The snapshot, sorted. `slices` are as `kept_slices` gives them, `published` every pool's size, `claims` those in
    scope."""
    kept_claims = tuple(sorted(claims, key=key))
    reserved = holders(kept_claims)
    everywhere = involved_nodes(slices, chosen, scope)
    kept_pods = tuple(
        sorted((lean(p) for p in pods if p.metadata.uid in reserved or p.spec.node_name in everywhere), key=key)
    )
    wanted_nodes = everywhere | {p.spec.node_name for p in kept_pods if p.spec.node_name}
    of_holders = {p.metadata.namespace for p in kept_pods if p.metadata.uid in reserved}
    return Snapshot(
        slices=slices,
        published=published.of_driver(scope.driver),
        claims=kept_claims,
        pods=kept_pods,
        nodes=tuple(sorted((lean(n) for n in nodes if n.metadata.name in wanted_nodes), key=key)),
        budgets=tuple(sorted((lean(b) for b in budgets if b.metadata.namespace in of_holders), key=key)),
        classes=tuple(sorted(map(lean, classes), key=key)),
        namespaces=tuple(sorted((lean(n) for n in namespaces if n.metadata.name in of_holders), key=key)),
        taken_at=taken_at,
        live=live,
        owners=owners,
        gang_pods=gang_pods,
    )
