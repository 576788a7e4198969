"""Which objects a snapshot of a scope holds: the same for a live read and for the cache. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeVar

import msgspec

from taintctl.api.objects import (
    ConsumerReference,
    DeviceClass,
    KnownOwner,
    Node,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    Snapshot,
)
from taintctl.ports.cluster import Scope

Kept = ResourceSlice | ResourceClaim | Pod | Node | PodDisruptionBudget | DeviceClass
K = TypeVar("K", bound=Kept)


def key(obj: Kept) -> tuple[str, str]:
    return (obj.metadata.namespace, obj.metadata.name)


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


def pools_of(claim: ResourceClaim) -> frozenset[tuple[str, str]]:
    """(driver, pool) of every device that is allocated to the claim."""
    if claim.status.allocation is None:
        return frozenset()
    return frozenset((r.driver, r.pool) for r in claim.status.allocation.devices.results or ())


def in_scope(claim: ResourceClaim, scope: Scope) -> bool:
    """Whether it holds a device of the scope. Its whole allocation is kept: a prediction reads all of it."""
    return any(d == scope.driver and scope.pool in (None, p) for d, p in pools_of(claim))


def holders(claims: Iterable[ResourceClaim]) -> dict[str, tuple[str, ConsumerReference]]:
    """The pods that the claims are reserved for, by uid, with their namespace."""
    return {
        consumer.uid: (claim.metadata.namespace, consumer)
        for claim in claims
        for consumer in claim.status.reserved_for or ()
        if consumer.resource == "pods" and not consumer.api_group
    }


def involved_nodes(slices: Iterable[ResourceSlice], scope: Scope) -> frozenset[str]:
    """Nodes whose every pod is of interest: those of the scope's devices, and those that the caller names."""
    local = {
        node
        for item in slices
        if item.spec.driver == scope.driver and scope.pool in (None, item.spec.pool.name)
        for node in slice_nodes(item)
    }
    return frozenset(local | set(scope.nodes))


def assemble(
    scope: Scope,
    *,
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    pods: Iterable[Pod],
    nodes: Iterable[Node],
    budgets: Iterable[PodDisruptionBudget],
    classes: Iterable[DeviceClass],
    taken_at: datetime,
    live: bool,
    owners: tuple[KnownOwner, ...] = (),
    gang_pods: tuple[Pod, ...] = (),
) -> Snapshot:
    """The snapshot, sorted. Slices are those of the whole driver: whether a target is all of it needs them."""
    kept_slices = tuple(sorted((lean(s) for s in slices if s.spec.driver == scope.driver), key=key))
    kept_claims = tuple(sorted((c for c in claims if in_scope(c, scope)), key=key))
    reserved = holders(kept_claims)
    everywhere = involved_nodes(kept_slices, scope)
    kept_pods = tuple(
        sorted((lean(p) for p in pods if p.metadata.uid in reserved or p.spec.node_name in everywhere), key=key)
    )
    wanted_nodes = everywhere | {p.spec.node_name for p in kept_pods if p.spec.node_name}
    namespaces = {p.metadata.namespace for p in kept_pods if p.metadata.uid in reserved}
    return Snapshot(
        slices=kept_slices,
        claims=kept_claims,
        pods=kept_pods,
        nodes=tuple(sorted((lean(n) for n in nodes if n.metadata.name in wanted_nodes), key=key)),
        budgets=tuple(sorted((lean(b) for b in budgets if b.metadata.namespace in namespaces), key=key)),
        classes=tuple(sorted(map(lean, classes), key=key)),
        taken_at=taken_at,
        live=live,
        owners=owners,
        gang_pods=gang_pods,
    )
