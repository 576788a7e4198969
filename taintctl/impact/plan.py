"""The plan: who holds the target devices, what would happen to each, and what the control plane must say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from taintctl.api.base import MAX_NODES
from taintctl.api.objects import DeviceSelector, Pod, Snapshot
from taintctl.api.plan import DeviceID, Plan, PlannedPod, PlannedRule, Problem
from taintctl.api.pools import PoolKey, PublishedPool, published_pools
from taintctl.api.reasons import PodEffect, Reason
from taintctl.api.target import Target
from taintctl.impact.allocations import Allocations, Hold, holds_as_extended, is_pod, selects
from taintctl.impact.budgets import budgets_of
from taintctl.impact.message import DryRunMessage
from taintctl.impact.owners import Owners
from taintctl.impact.targets import out_elsewhere, resolve
from taintctl.impact.tolerations import NOT_REACHED, Fate, fate, worst


@dataclass
class _Use:
    """What is known so far of one pod that holds target devices."""

    pod: Pod
    holds: list[Hold] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)


def build_plan(
    snapshot: Snapshot, target: Target, *, key: str, value: str, others: Sequence[DeviceSelector] = ()
) -> Plan | Problem:
    """What a NoExecute taint `key=value` on the target's devices would do, or why that cannot be said. `others` are the
    selectors of rules with which other runs keep devices out of service.

    Pods that are finished (Succeeded, Failed) and still hold a claim are in it: the control plane counts and deletes
    them like any other (upstream podEvictionTime asks no phase). Pods that are not bound yet are in it too, since
    they go once they are, but in no rule's count. Terminating pods are named, and counted nowhere.
    """
    allocations = Allocations(snapshot)
    resolved = resolve(snapshot, target, allocations)
    if isinstance(resolved, Problem):
        return resolved
    for selector in resolved.selectors:
        for hold in allocations.holds(selector):
            for consumer in hold.consumers:
                if not is_pod(consumer):
                    return Problem(
                        Reason.CONSUMER_UNKNOWN,
                        f"ResourceClaim {hold.namespace}/{hold.claim} is reserved for {consumer.resource} "
                        f"{consumer.name}, and which pods that means cannot be decided; "
                        f"free {hold.device} from it first.",
                    )
    uses = _uses(allocations, resolved.selectors, key=key, value=value)
    owners = Owners(snapshot, [use.pod for use in uses.values()])
    labels = {n.metadata.name: _pairs(n.metadata.labels) for n in snapshot.namespaces}
    pods = tuple(sorted(_planned(use, owners, labels.get(use.pod.metadata.namespace)) for use in uses.values()))
    counted = {pod.uid for pod in pods if pod.counted}
    budgets, multiple = budgets_of((use.pod for uid, use in uses.items() if uid in counted), snapshot.budgets)
    pools = published_pools(snapshot.slices)
    rules = tuple(
        _rule(selector, _predict(pools, allocations, selector, key=key, value=value)) for selector in resolved.selectors
    )
    drivers = {device.id.driver for device in resolved.devices}
    plan = Plan(
        devices=resolved.devices,
        pods=pods,
        rules=rules,
        budgets=budgets,
        multiple_budgets=multiple,
        lost_with=owners.lost_with(counted),
        published=sum(snapshot.devices_of(driver) for driver in drivers),
        elsewhere=out_elsewhere(snapshot, others, (device.id for device in resolved.devices)),
        computed_at=snapshot.taken_at,
    )
    if len(plan.nodes) > MAX_NODES:
        return Problem(
            Reason.TOO_MANY_RULES,
            f"The devices and their pods are on {len(plan.nodes)} nodes, and a run minds at most {MAX_NODES}; "
            "split it into several runs.",
        )
    return plan


def predict(snapshot: Snapshot, selector: DeviceSelector, *, key: str, value: str) -> DryRunMessage:
    """What the message of a rule with this selector must say (upstream countTaintedDevices and countPendingPods)."""
    return _predict(published_pools(snapshot.slices), Allocations(snapshot), selector, key=key, value=value)


def _predict(
    pools: Mapping[PoolKey, PublishedPool],
    allocations: Allocations,
    selector: DeviceSelector,
    *,
    key: str,
    value: str,
) -> DryRunMessage:
    wanted: Iterable[PublishedPool] = pools.values()
    if selector.driver is not None and selector.pool is not None:
        own = pools.get((selector.driver, selector.pool))
        wanted = () if own is None else (own,)
    published = sum(selects(selector, device.id) for pool in wanted for device, _ in pool.devices)
    uses = _uses(allocations, (selector,), key=key, value=value)
    reached = [
        use.pod
        for use in uses.values()
        if use.pod.spec.node_name
        and use.pod.metadata.deletion_timestamp is None
        and any(f.effect in (PodEffect.EVICTED, PodEffect.EVICTED_LATER) for f in use.fates)
    ]
    return DryRunMessage(
        published=published,
        allocated=sum(1 for _ in allocations.holds(selector)),
        pods=len(reached),
        namespaces=len({pod.metadata.namespace for pod in reached}),
    )


def _uses(allocations: Allocations, selectors: Sequence[DeviceSelector], *, key: str, value: str) -> dict[str, _Use]:
    """The pods that hold devices of any of the selectors, by uid: each once, however many rules reach it."""
    uses: dict[str, _Use] = {}
    for selector in selectors:
        for hold in allocations.holds(selector):
            own = fate(hold.tolerations, key=key, value=value)
            for consumer in hold.consumers:
                pod = allocations.pod(consumer)
                if pod is None:
                    continue
                use = uses.setdefault(pod.metadata.uid, _Use(pod))
                use.holds.append(hold)
                use.fates.append(NOT_REACHED if holds_as_extended(hold, pod) else own)
    return uses


def _pairs(labels: dict[str, str] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((labels or {}).items()))


def _planned(use: _Use, owners: Owners, namespace_labels: tuple[tuple[str, str], ...] | None) -> PlannedPod:
    pod, all_in_all = use.pod, worst(use.fates)
    devices: set[DeviceID] = {hold.device for hold in use.holds}
    return PlannedPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        effect=all_in_all.effect,
        node=pod.spec.node_name or "",
        claims=tuple(sorted({hold.claim for hold in use.holds})),
        devices=tuple(sorted(devices)),
        toleration_seconds=all_in_all.seconds,
        terminating=pod.metadata.deletion_timestamp is not None,
        admin_access=all(hold.admin_access for hold in use.holds),
        owner=owners.text(pod),
        owner_unread=owners.unread(pod),
        workload=owners.workload(pod),
        # Admission fills it in; a pod without one has 0 (k8s.io/component-helpers: PodPriority).
        priority=pod.spec.priority or 0,
        priority_class=pod.spec.priority_class_name or "",
        labels=_pairs(pod.metadata.labels),
        namespace_labels=namespace_labels,
        created=pod.metadata.creation_timestamp,
    )


def _rule(selector: DeviceSelector, counts: DryRunMessage) -> PlannedRule:
    assert selector.driver is not None
    assert selector.pool is not None
    return PlannedRule(
        driver=selector.driver,
        pool=selector.pool,
        device=selector.device,
        published=counts.published,
        allocated=counts.allocated,
        pods=counts.pods,
        namespaces=counts.namespaces,
    )
