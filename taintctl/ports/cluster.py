"""What the workflow needs of a Kubernetes cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from taintctl.api.check import Own
from taintctl.api.objects import DeviceClass, DeviceTaintRule, ResourceClaim, Snapshot
from taintctl.api.pools import PoolKey, PublishedPool
from taintctl.api.reasons import Effect
from taintctl.api.rule import EvictionOutcome, RuleManifest

Pick = Callable[[Mapping[PoolKey, PublishedPool], Iterable[DeviceClass]], frozenset[PoolKey]]
"""Which of these pools are of interest, where more than driver, pool and node decide it."""


@dataclass(frozen=True)
class Scope:
    """What part of a cluster a snapshot must hold whole: pools with their devices, claims, pods and nodes.

    The pools are those that meet all of `driver`, `pool`, `node_selector` (with a device local to such a node) and
    `pick`, each None for any; and `pools`, whatever the others say. Pools that only allocations name are in it by
    driver and pool. `nodes` are read although no slice names them (any more).
    """

    driver: str | None = None
    pool: str | None = None
    node_selector: Mapping[str, str] | None = None
    pick: Pick | None = None
    pools: frozenset[PoolKey] = frozenset()
    nodes: tuple[str, ...] = ()
    owners: bool = True
    """Whether who owns the holders is wanted too, and the pods of their gangs."""


class SnapshotSource(Protocol):
    """A live read, or a cache that knows how old it is."""

    async def snapshot(self, scope: Scope) -> Snapshot:
        """Slices, claims, pods, nodes and budgets for `scope`. Raises ClusterError; never returns part of a list."""
        ...


class Cache(SnapshotSource, Protocol):
    def age(self) -> timedelta | None:
        """Since when the oldest watch has heard nothing (no event, no bookmark); None: not filled yet."""
        ...


class Cluster(SnapshotSource, Protocol):
    """Live reads and writes. Every call has a timeout and bounded retries, and raises ClusterError."""

    async def get(self, kind: type[Own], name: str) -> dict[str, Any] | None:
        """One object of ours as the server holds it; None where there is none."""
        ...

    async def list(self, kind: type[Own], *, label_selector: str = "") -> tuple[dict[str, Any], ...]: ...

    async def create(self, kind: type[Own], body: dict[str, Any]) -> dict[str, Any]:
        """Raises Conflict where the name is taken."""
        ...

    async def patch(
        self, kind: type[Own], name: str, body: dict[str, Any], *, uid: str = "", resource_version: str = ""
    ) -> dict[str, Any]:
        """A JSON merge patch. With `uid` or `resource_version` it raises Conflict where they are not the object's."""
        ...

    async def replace_status(
        self, kind: type[Own], name: str, *, uid: str, resource_version: str, status: dict[str, Any]
    ) -> dict[str, Any]:
        """The whole status, only if nothing changed since `resource_version` (else Conflict)."""
        ...

    async def delete(self, kind: type[Own], name: str, *, uid: str) -> None:
        """With a uid precondition; nothing where it is gone already."""
        ...

    async def rules_of(self, run_uid: str) -> tuple[DeviceTaintRule, ...]:
        """Live: the rules that this run made, also those whose labels somebody took off."""
        ...

    async def own_rules(self) -> tuple[DeviceTaintRule, ...]:
        """Live: every rule that a run made, whether that run is still there or not."""
        ...

    async def create_rule(self, rule: RuleManifest) -> DeviceTaintRule: ...

    async def set_rule_effect(self, name: str, *, uid: str, resource_version: str, effect: Effect) -> DeviceTaintRule:
        """Patches the effect alone, only of that very rule as it was read (else Conflict or NotFound)."""
        ...

    async def delete_rule(self, name: str, *, uid: str) -> None:
        """With a uid precondition; nothing where it is gone already."""
        ...

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None: ...

    async def evict(self, namespace: str, name: str, *, uid: str) -> EvictionOutcome:
        """The Eviction API with `preconditions.uid`; one try, its answer as a value. Raises only Unavailable."""
        ...

    async def approvals_verified(self) -> datetime | None:
        """Since when the admission policy that holds `approver` to the caller's name has been there and bound with
        Deny; None where it is not. What was written before proves nothing."""
        ...

    async def record_event(self, involved: dict[str, Any], *, event_type: str, reason: str, message: str) -> None:
        """A Kubernetes event on one of our objects (kind, name, uid, apiVersion in `involved`).

        Never raises ClusterError: an event that can't be written must not stop a run.
        """
        ...
