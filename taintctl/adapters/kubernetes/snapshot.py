"""A live snapshot, read in an order that loses nothing.

"A reserved pod that is not in the snapshot does not exist" is what plans and the idle proof rely on. So the last read
of the claims comes before the last read of any pod: a pod that a claim names and that is not found afterwards is
gone. And since a pod may join a claim while pods are read, the claims are read again afterwards: if none of those in
scope changed, claims and pods were true together at one moment; if one did, the pods that it now names are looked up
and the claims are read once more, a bounded number of times. Pods that went meanwhile may still be shown, which errs
towards "in use". Nodes come last: a node that went silent before its pods vanished is seen as silent. Whatever comes
after `taken_at` is the next look's. Owners, and the pods of their gangs, change nothing of this and are read on the
side (owners.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.adapters.kubernetes.owners import OwnerReader, Ownerships
from taintctl.adapters.kubernetes.selection import (
    ClaimGlance,
    assemble,
    chosen_pools,
    holders,
    in_scope,
    involved_nodes,
    kept_slices,
)
from taintctl.api.objects import (
    ConsumerReference,
    DeviceClass,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    ResourceClaim,
    ResourceSlice,
    Snapshot,
)
from taintctl.api.pools import pool_sizes, published_pools
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import ClusterError, Invalid

K = TypeVar("K")
R = TypeVar("R")

MAX_SINGLE = 20
"""Up to so many nodes, namespaces or pods are asked for one by one; beyond, one chunked list is cheaper."""
PARALLEL = 5
ROUNDS = 3
"""How often claims are read again while they keep changing."""


async def read_snapshot(
    client: Client, clock: Clock, version: str, scope: Scope, owners: OwnerReader | None = None
) -> Snapshot:
    """Raises ClusterError; never returns part of a list. `version` is that of resource.k8s.io."""
    resources = path("apis", "resource.k8s.io", version)
    taken_at = clock.now()
    slices = await _slices(client, resources, scope.driver)
    classes = (await client.list(resources + "/deviceclasses", DeviceClass)).items
    pools = published_pools(slices)
    chosen = chosen_pools(scope, pools, classes, await _selected_nodes(client, scope.node_selector))

    async def in_reach() -> tuple[ResourceClaim, ...]:
        def wanted(claim: ClaimGlance) -> bool:
            return in_scope(claim, scope, chosen, pools)

        return (await client.select(resources + "/resourceclaims", ResourceClaim, ClaimGlance, wanted)).items

    claims = await in_reach()
    nodes = involved_nodes(slices, chosen, scope)
    pods = {p.metadata.uid: p for p in await _pods_on(client, nodes)}
    await _add_holders(client, pods, claims)
    reader = (owners or OwnerReader(client, clock)) if scope.owners else None
    # Before the claims are read again, so that nothing more is asked for once claims and pods are true together.
    owned = _held(pods, claims)
    ownerships = await _ownerships(reader, client, owned)
    for _ in range(ROUNDS):
        again = await in_reach()
        if _versions(again) == _versions(claims):
            break
        claims = again
        await _add_holders(client, pods, claims)
    held = _held(pods, claims)
    if held.keys() != owned.keys():
        ownerships = await _ownerships(reader, client, held)
    namespaces = {pod.metadata.namespace for pod in held.values()}
    return assemble(
        scope,
        chosen=chosen,
        slices=kept_slices(slices, chosen, scope),
        published=pool_sizes(slices),
        claims=claims,
        pods=pods.values(),
        nodes=await _nodes(client, nodes | {p.spec.node_name for p in pods.values() if p.spec.node_name}),
        budgets=await _budgets(client, namespaces),
        namespaces=await _namespaces(client, namespaces),
        classes=classes,
        taken_at=taken_at,
        live=True,
        owners=ownerships.owners,
        gang_pods=ownerships.gang_pods,
    )


async def _slices(client: Client, resources: str, driver: str | None) -> tuple[ResourceSlice, ...]:
    url = resources + "/resourceslices"
    if driver is None:
        return (await client.list(url, ResourceSlice)).items
    try:
        found = (await client.list(url, ResourceSlice, params={"fieldSelector": f"spec.driver={driver}"})).items
    except Invalid:  # a server that does not select by this field
        found = (await client.list(url, ResourceSlice)).items
    return tuple(item for item in found if item.spec.driver == driver)


async def _selected_nodes(client: Client, wanted: Mapping[str, str] | None) -> frozenset[str] | None:
    if wanted is None:
        return None
    selector = ",".join(f"{name}={value}" for name, value in sorted(wanted.items()))
    found = await client.list("/api/v1/nodes", Node, params={"labelSelector": selector})
    return frozenset(node.metadata.name for node in found.items)


def _versions(claims: Iterable[ResourceClaim]) -> frozenset[tuple[str, str]]:
    return frozenset((c.metadata.uid, c.metadata.resource_version) for c in claims)


async def _pods_on(client: Client, nodes: frozenset[str]) -> list[Pod]:
    if len(nodes) > MAX_SINGLE:
        return [p for p in (await client.list("/api/v1/pods", Pod)).items if p.spec.node_name in nodes]

    async def on_node(name: str) -> tuple[Pod, ...]:
        return (await client.list("/api/v1/pods", Pod, params={"fieldSelector": f"spec.nodeName={name}"})).items

    return [pod for found in await _each(on_node, nodes) for pod in found]


def _held(pods: dict[str, Pod], claims: Iterable[ResourceClaim]) -> dict[str, Pod]:
    """The pods that the claims are reserved for, by uid."""
    return {uid: pods[uid] for uid in holders(claims) if uid in pods}


async def _ownerships(reader: OwnerReader | None, client: Client, held: dict[str, Pod]) -> Ownerships:
    if reader is None:
        return Ownerships((), ())
    return await reader.of(held.values(), partial(_pods_in, client))


async def _pods_in(client: Client, namespaces: frozenset[str]) -> list[Pod]:
    if len(namespaces) > MAX_SINGLE:
        return [p for p in (await client.list("/api/v1/pods", Pod)).items if p.metadata.namespace in namespaces]

    async def of(namespace: str) -> tuple[Pod, ...]:
        return (await client.list(path("api", "v1", "namespaces", namespace, "pods"), Pod)).items

    return [pod for found in await _each(of, namespaces) for pod in found]


async def _add_holders(client: Client, pods: dict[str, Pod], claims: Iterable[ResourceClaim]) -> None:
    """Adds the pods that the claims name and that are not known yet, where they exist."""
    missing = {uid: found for uid, found in holders(claims).items() if uid not in pods}
    if len(missing) > MAX_SINGLE:
        for pod in (await client.list("/api/v1/pods", Pod)).items:
            if pod.metadata.uid in missing:
                pods[pod.metadata.uid] = pod
        return

    async def one(wanted: tuple[str, ConsumerReference]) -> Pod | None:
        namespace, consumer = wanted
        return await client.get(path("api", "v1", "namespaces", namespace, "pods", consumer.name), Pod)

    for found in await _each(one, missing.values()):
        if found is not None:
            pods[found.metadata.uid] = found


async def _nodes(client: Client, names: frozenset[str]) -> list[Node]:
    if len(names) > MAX_SINGLE:
        return [n for n in (await client.list("/api/v1/nodes", Node)).items if n.metadata.name in names]

    async def one(name: str) -> Node | None:
        return await client.get(path("api", "v1", "nodes", name), Node)

    return [node for node in await _each(one, names) if node is not None]


async def _budgets(client: Client, namespaces: set[str]) -> list[PodDisruptionBudget]:
    if len(namespaces) > MAX_SINGLE:
        return list((await client.list("/apis/policy/v1/poddisruptionbudgets", PodDisruptionBudget)).items)

    async def of(namespace: str) -> tuple[PodDisruptionBudget, ...]:
        url = path("apis", "policy", "v1", "namespaces", namespace, "poddisruptionbudgets")
        return (await client.list(url, PodDisruptionBudget)).items

    return [budget for found in await _each(of, namespaces) for budget in found]


async def _namespaces(client: Client, names: set[str]) -> list[Namespace]:
    """For their labels, which policies protect pods by; after the pods, so that each pod's is looked for."""
    if len(names) > MAX_SINGLE:
        return [n for n in (await client.list("/api/v1/namespaces", Namespace)).items if n.metadata.name in names]

    async def one(name: str) -> Namespace | None:
        return await client.get(path("api", "v1", "namespaces", name), Namespace)

    return [namespace for namespace in await _each(one, names) if namespace is not None]


async def _each(ask: Callable[[K], Awaitable[R]], items: Iterable[K]) -> list[R]:
    """Asks for each item, a few at a time; the first error ends it."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(item: K) -> R:
        async with gate:
            return await ask(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except* ClusterError as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        failure = first
    else:
        return [task.result() for task in tasks]
    raise failure
