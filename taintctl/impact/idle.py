"""Whether anything still uses the devices, by the objects alone. The waits are the workflow's to add."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from taintctl.api.objects import DeviceSelector, Node, Pod, Snapshot
from taintctl.api.plan import DeviceID, Idleness, PlannedDevice, PodRef, Verdict
from taintctl.api.pools import PoolKey, PublishedPool, published_pools
from taintctl.api.reasons import PodEffect, Reason
from taintctl.api.text import some
from taintctl.impact.allocations import Allocations, Hold, holds_as_extended, selects
from taintctl.impact.partitions import overlapping
from taintctl.impact.tolerations import fate

RESOLUTION = timedelta(seconds=1)
"""metav1.Time is cut to whole seconds: what says 12:00:00 may have been at 12:00:00.999."""


def idleness(
    snapshot: Snapshot,
    selectors: Sequence[tuple[str, str, str | None]],
    *,
    key: str,
    value: str,
    nodes: frozenset[str],
    evicting_since: datetime | None,
    proven_at: datetime | None,
) -> Idleness:
    """Whether nothing uses the devices under `selectors` (driver, pool, device), which our taint `key=value` covers.

    False: an allocation of one, or of another device on its hardware, is reserved for a pod, other than through
    adminAccess with a toleration for ever (monitors). A pod marked for deletion still runs, and a claim reserved for a
    pod that is gone is not released yet.
    Unknown: a node of a device, or one of `nodes` (where the plan's pods were), is missing or not Ready; or it became
    Ready after `evicting_since`, so that a pod force-deleted from it may still run; or a pod on it may hold the same
    hardware through a device plugin. Once idleness was proven (`proven_at`), Ready now is enough, and so is a node that
    is no longer in the cluster: nodes reboot in maintenance, and are replaced. Before anything was evicted
    (`evicting_since` None) Ready now is enough too.
    False beats Unknown, Unknown beats True.
    """
    allocations = Allocations(snapshot)
    wanted = [DeviceSelector(driver=driver, pool=pool, device=device) for driver, pool, device in selectors]
    under, beside = _devices(published_pools(snapshot.slices), wanted)
    found = _busy(allocations, [*wanted, *beside], key=key, value=value)
    if found is None:
        involved = nodes | {device.node for device in under if device.node}
        doubt = _node_doubt(
            snapshot.nodes, involved, evicting_since=evicting_since, proven=proven_at is not None
        ) or _plugin_doubt(snapshot, involved, drivers={driver for driver, _, _ in selectors})
        found = (
            Idleness(Verdict.UNKNOWN, *doubt)
            if doubt is not None
            else Idleness(Verdict.TRUE, Reason.DEVICES_IDLE, "No pod holds a target device.")
        )
    return replace(found, devices=tuple(sorted(under)))


def _devices(
    pools: Mapping[PoolKey, PublishedPool], selectors: Sequence[DeviceSelector]
) -> tuple[list[PlannedDevice], list[DeviceSelector]]:
    """What is published under the selectors, and selectors for what else is on that hardware: a GPU whose partition
    runs a pod is not idle, whatever `target.partitions` says (recording 07: the taint on the one does not reach the
    other)."""
    under: dict[DeviceID, PlannedDevice] = {}
    beside: list[DeviceSelector] = []
    for key in {(selector.driver or "", selector.pool or "") for selector in selectors}:
        pool, own = pools.get(key), [s for s in selectors if (s.driver, s.pool) == key]
        if pool is None:
            continue
        tainted = {planned.id: planned for planned, _ in pool.devices if any(selects(s, planned.id) for s in own)}
        under |= tainted
        beside += [
            DeviceSelector(driver=id_.driver, pool=id_.pool, device=id_.device)
            for id_ in sorted(overlapping(pool, frozenset(tainted)))
        ]
    return list(under.values()), beside


def _busy(allocations: Allocations, selectors: Sequence[DeviceSelector], *, key: str, value: str) -> Idleness | None:
    holders: dict[str, Pod] = {}
    unreleased: set[str] = set()
    for selector in selectors:
        for hold in allocations.holds(selector):
            for consumer in hold.consumers:
                pod = allocations.pod(consumer)
                if _monitors(hold, pod, key=key, value=value):
                    continue
                if pod is not None:
                    holders[pod.metadata.uid] = pod
                else:
                    unreleased.add(
                        f"ResourceClaim {hold.namespace}/{hold.claim} is still reserved for "
                        f"{consumer.resource.removesuffix('s')} {consumer.name}"
                    )
    if not holders and not unreleased:
        return None
    here = sorted(holders.values(), key=lambda pod: (pod.key, pod.metadata.uid))
    going = [pod for pod in here if pod.metadata.deletion_timestamp is not None]
    if not here:
        message = f"{some(sorted(unreleased))}; the control plane has to release it."
        return Idleness(Verdict.FALSE, Reason.DEVICES_IN_USE, message)
    names = [pod.key for pod in here]
    if len(going) == len(here):
        reason, message = Reason.PODS_TERMINATING, f"Still terminating: {some(names)}."
    else:
        staying = [pod.key for pod in here if pod.metadata.deletion_timestamp is None]
        ending = f"; {len(going)} more terminating" if going else ""
        reason, message = Reason.DEVICES_IN_USE, f"Target devices are held by {some(staying)}{ending}."
    return Idleness(Verdict.FALSE, reason, message, holders=_refs(here), terminating=_refs(going))


def _monitors(hold: Hold, pod: Pod | None, *, key: str, value: str) -> bool:
    """A monitor holds the device with adminAccess and tolerates the taint: it does not keep the device busy."""
    return (
        hold.admin_access
        and not (pod is not None and holds_as_extended(hold, pod))
        and fate(hold.tolerations, key=key, value=value).effect is PodEffect.TOLERATES
    )


def _node_doubt(
    nodes: Iterable[Node], involved: frozenset[str], *, evicting_since: datetime | None, proven: bool
) -> tuple[Reason, str] | None:
    by_name = {node.metadata.name: node for node in nodes}
    doubts = []
    for name in sorted(involved):
        node = by_name.get(name)
        if node is None and proven:
            # Taken out of the cluster in maintenance, after it was proven empty: no kubelet is there to start a pod.
            continue
        if node is None:
            doubts.append(f"node {name} is not in the cluster")
            continue
        ready = node.ready
        if ready is None or ready.status != "True":
            doubts.append(f"node {name} is not Ready")
        elif (
            not proven
            and evicting_since is not None
            and (ready.last_transition_time is None or ready.last_transition_time + RESOLUTION > evicting_since)
        ):
            doubts.append(f"node {name} was not Ready at some time since the eviction began")
    if not doubts:
        return None
    return Reason.NODE_NOT_READY, (
        f"{_sentence(some(doubts))}: a pod that was deleted there may still run; make sure that none does."
    )


def _plugin_doubt(snapshot: Snapshot, involved: frozenset[str], *, drivers: set[str]) -> tuple[Reason, str] | None:
    by_class = {c.spec.extended_resource_name for c in snapshot.classes if c.spec.extended_resource_name}
    found = sorted(
        f"pod {pod.key} on node {pod.spec.node_name} uses {resource}"
        for pod in snapshot.pods
        if pod.spec.node_name in involved and not pod.finished
        for resource in _plugin_resources(pod)
        if resource in by_class or any(_domain_fits(resource, driver) for driver in drivers)
    )
    if not found:
        return None
    return Reason.DEVICE_PLUGIN_POD, (
        f"{_sentence(some(found))} through a device plugin, which device taints do not reach, "
        "and which device that is cannot be seen; remove it from there."
    )


def _plugin_resources(pod: Pod) -> set[str]:
    """The extended resources of a pod that no ResourceClaim stands for."""
    status = pod.status.extended_resource_claim_status
    backed = (
        {(m.container_name, m.resource_name) for m in status.request_mappings or ()} if status is not None else set()
    )
    if status is not None and not backed:
        return set()
    return {
        resource
        for container in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
        for amounts in (container.resources.requests, container.resources.limits)
        for resource, amount in (amounts or {}).items()
        if "/" in resource and str(amount) != "0" and (container.name, resource) not in backed
    }


def _domain_fits(resource: str, driver: str) -> bool:
    """nvidia.com/gpu may be hardware of gpu.nvidia.com, and of nvidia.com; not of example.com."""
    domain = resource.partition("/")[0]
    return driver == domain or driver.endswith(f".{domain}")


def _refs(pods: Iterable[Pod]) -> tuple[PodRef, ...]:
    return tuple(PodRef(namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid) for pod in pods)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
