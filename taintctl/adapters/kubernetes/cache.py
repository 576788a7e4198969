"""The lean cache: the cluster's pods, claims, slices, nodes, budgets, classes, namespaces, with only the fields in use.

One list and one watch a kind, kept for ever. It knows how old it is: since when the watch that was silent longest has
heard neither an event nor a bookmark. Nothing final is decided from it (a snapshot of it is not `live`): its watches
run beside each other, so a claim may name a pod that the other watch has not brought yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.adapters.kubernetes.index import Index
from taintctl.adapters.kubernetes.mirror import Mirror, Packed, Whole
from taintctl.adapters.kubernetes.owners import OwnerReader
from taintctl.adapters.kubernetes.selection import (
    Key,
    Shared,
    assemble,
    chosen_pools,
    has_labels,
    holders,
    involved_nodes,
    kept_slices,
    pools_of,
    slice_nodes,
    unpublished,
)
from taintctl.api.objects import (
    DeviceClass,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PoolSizes,
    ResourceClaim,
    ResourceSlice,
    Snapshot,
)
from taintctl.api.ownership import may_be_in_a_gang
from taintctl.api.pools import PoolKey, pool_key, pool_sizes, published_pools
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import Unavailable

OnChange = Callable[[str, str], None]
"""Called with driver and pool of devices whose slices, claims, pods or nodes changed. Budgets, classes and namespaces
call nobody: a run that is blocked by a budget looks again by itself."""


class LeanCache:
    """Implements ports.cluster.Cache. `run()` keeps it current; `on_change` hears which pools changed."""

    def __init__(self, client: Client, object_version: str, clock: Clock, owners: OwnerReader | None = None) -> None:
        self._clock = clock
        self._owners = owners or OwnerReader(client, clock)
        self.on_change: OnChange | None = None
        resources = path("apis", "resource.k8s.io", object_version)

        def mirror(url: str, kind: type[Any], changed: Callable[[Any, Any], None]) -> Mirror[Any]:
            return Mirror(client, clock, url, Packed(kind), kind, changed)

        # Not packed: a class or an expression asks about every device there is.
        self._slices: Mirror[ResourceSlice] = Mirror(
            client, clock, f"{resources}/resourceslices", Whole(Shared().slice), ResourceSlice, self._slice
        )
        self._claims: Mirror[ResourceClaim] = mirror(f"{resources}/resourceclaims", ResourceClaim, self._claim)
        self._pods: Mirror[Pod] = mirror("/api/v1/pods", Pod, self._pod)
        self._nodes: Mirror[Node] = mirror("/api/v1/nodes", Node, self._node)
        self._budgets: Mirror[PodDisruptionBudget] = mirror(
            "/apis/policy/v1/poddisruptionbudgets", PodDisruptionBudget, lambda _old, _new: None
        )
        self._classes: Mirror[DeviceClass] = mirror(f"{resources}/deviceclasses", DeviceClass, lambda _old, _new: None)
        self._devices_of: dict[PoolKey, int] = {}
        self._published: PoolSizes | None = None
        self._namespaces: Mirror[Namespace] = mirror("/api/v1/namespaces", Namespace, lambda _old, _new: None)
        self._claims_by_pool: Index[PoolKey] = Index()
        self._claims_by_holder: Index[str] = Index()
        self._pods_by_uid: Index[str] = Index()
        self._pods_by_node: Index[str] = Index()
        self._grouped_by_namespace: Index[str] = Index()
        """The pods that may be in a gang."""
        self._slices_by_driver: Index[str] = Index()
        self._slices_by_pool: Index[PoolKey] = Index()
        self._slices_by_node: Index[str] = Index()

    @property
    def _mirrors(self) -> tuple[Mirror[Any], ...]:
        rest = (self._nodes, self._budgets, self._classes, self._namespaces)
        return (self._slices, self._claims, self._pods, *rest)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors:
                group.create_task(mirror.run())

    async def until_filled(self) -> None:
        """Waits until every kind has been listed once."""
        for mirror in self._mirrors:
            await mirror.listed.wait()

    def age(self) -> timedelta | None:
        oldest = self._oldest()
        return None if oldest is None else self._clock.now() - oldest

    def _oldest(self) -> datetime | None:
        heard = [mirror.heard_at for mirror in self._mirrors]
        return None if None in heard else min(h for h in heard if h is not None)

    async def snapshot(self, scope: Scope) -> Snapshot:
        oldest = self._oldest()
        if oldest is None:
            raise Unavailable("The cache is not filled yet; it will be once the API server has answered every list.")
        selected = self._selected_nodes(scope)
        slices = self._in_whole_pools(self._candidates(scope, selected))
        chosen = chosen_pools(scope, published_pools(slices), self._classes.objects.values(), selected)
        kept = kept_slices(slices, chosen, scope)
        if not kept and scope.driver is not None:
            kept = kept_slices([self._slices.objects[k] for k in self._slices_by_driver.get(scope.driver)], (), scope)
        claims = [
            self._claims.objects[k]
            for k in {k for pool in chosen | self._unpublished(scope) for k in self._claims_by_pool.get(pool)}
        ]
        held = {k for uid in holders(claims) for k in self._pods_by_uid.get(uid)}
        local = involved_nodes(kept, chosen, scope)
        around = {k for node in local for k in self._pods_by_node.get(node)}
        pods = [self._pods.objects[k] for k in held | around]
        names = {p.spec.node_name for p in pods} | local
        found = partial(
            assemble,
            scope,
            chosen=chosen,
            slices=kept,
            published=self._sizes(),
            claims=claims,
            pods=pods,
            nodes=[node for name in names if (node := self._nodes.objects.get(("", name or ""))) is not None],
            budgets=list(self._budgets.objects.values()),
            classes=list(self._classes.objects.values()),
            namespaces=[
                namespace
                for name in {p.metadata.namespace for p in pods}
                if (namespace := self._namespaces.objects.get(("", name))) is not None
            ],
            taken_at=oldest,
            live=False,
        )
        if not scope.owners:
            return found()
        # Nothing of the cache is looked at any more while owners are asked for: all of the rest is of one moment.
        ownerships = await self._owners.of([self._pods.objects[k] for k in held], self._pods_in)
        return found(owners=ownerships.owners, gang_pods=ownerships.gang_pods)

    async def _pods_in(self, namespaces: frozenset[str]) -> list[Pod]:
        return [self._pods.objects[k] for name in namespaces for k in self._grouped_by_namespace.get(name)]

    def _selected_nodes(self, scope: Scope) -> frozenset[str] | None:
        if scope.node_selector is None:
            return None
        nodes = self._nodes.objects.values()
        return frozenset(node.metadata.name for node in nodes if has_labels(node, scope.node_selector))

    def _candidates(self, scope: Scope, selected: frozenset[str] | None) -> Iterable[Key]:
        """The slices to look at, by the narrowest index that fits."""
        named = [k for pool in scope.pools for k in self._slices_by_pool.get(pool)]
        if scope.driver is not None and scope.pool is not None:
            return [*named, *self._slices_by_pool.get((scope.driver, scope.pool))]
        if selected is not None:
            return [*named, *(k for name in selected for k in self._slices_by_node.get(name))]
        if scope.driver is not None:
            return [*named, *self._slices_by_driver.get(scope.driver)]
        return list(self._slices.objects.names())

    def _in_whole_pools(self, keys: Iterable[Key]) -> list[ResourceSlice]:
        pools = {pool_key(self._slices.objects[k]) for k in keys}
        return [self._slices.objects[k] for pool in pools for k in self._slices_by_pool.get(pool)]

    def _unpublished(self, scope: Scope) -> frozenset[PoolKey]:
        """Pools that only allocations name."""
        if scope.driver is not None and scope.pool is not None:
            pools: Iterable[PoolKey] = ((scope.driver, scope.pool),)
        else:
            pools = self._claims_by_pool
        return frozenset(pool for pool in pools if unpublished(scope, pool, self._slices_by_pool))

    def _slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        self._slices_by_driver.move(old, new, lambda s: (s.spec.driver,))
        self._slices_by_pool.move(old, new, lambda s: (pool_key(s),))
        for pool in {pool_key(s) for s in (old, new) if s is not None}:
            self._count(pool)
        self._slices_by_node.move(old, new, slice_nodes)
        self._tell((s.spec.driver, s.spec.pool.name) for s in (old, new) if s is not None)

    def _sizes(self) -> PoolSizes:
        """How many devices each pool publishes; the same object until a slice changes."""
        if self._published is None:
            self._published = PoolSizes(self._devices_of)
        return self._published

    def _count(self, pool: PoolKey) -> None:
        """How many devices the pool publishes now."""
        self._published = None
        self._devices_of.pop(pool, None)
        self._devices_of |= pool_sizes(self._slices.objects[k] for k in self._slices_by_pool.get(pool))

    def _claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self._claims_by_pool.move(old, new, pools_of)
        self._claims_by_holder.move(old, new, lambda c: holders((c,)))
        self._tell(pool for c in (old, new) if c is not None for pool in pools_of(c))

    def _pod(self, old: Pod | None, new: Pod | None) -> None:
        self._pods_by_uid.move(old, new, lambda p: (p.metadata.uid,))
        self._pods_by_node.move(old, new, lambda p: (p.spec.node_name,) if p.spec.node_name else ())
        self._grouped_by_namespace.move(old, new, lambda p: (p.metadata.namespace,) if may_be_in_a_gang(p) else ())
        if old is not None and new is not None and _same_use(old, new):
            return
        uids = {p.metadata.uid for p in (old, new) if p is not None}
        claims = {k for uid in uids for k in self._claims_by_holder.get(uid)}
        self._tell(pool for k in claims for pool in pools_of(self._claims.objects[k]))

    def _node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and old.ready == new.ready:
            return
        name = (new or old).metadata.name  # type: ignore[union-attr]
        near = (self._slices.objects[k] for k in self._slices_by_node.get(name))
        self._tell((s.spec.driver, s.spec.pool.name) for s in near)

    def _tell(self, pools: Iterable[PoolKey]) -> None:
        if self.on_change is not None:
            for driver, pool in set(pools):
                self.on_change(driver, pool)


def _same_use(old: Pod, new: Pod) -> bool:
    """Whether a pod that changed still uses what it used: the rest of its status is nobody's concern here."""
    return (
        old.metadata.uid == new.metadata.uid
        and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        and old.metadata.labels == new.metadata.labels
        and old.spec == new.spec
        and old.status == new.status
    )
