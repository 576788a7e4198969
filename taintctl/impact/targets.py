"""What a target comes to: devices, and the selectors of the DeviceTaintRules that taint them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from taintctl.api.base import MAX_RULES
from taintctl.api.objects import DeviceSelector, ResourceSlice, SliceDevice, Snapshot
from taintctl.api.plan import DeviceID, PlannedDevice, Problem
from taintctl.api.reasons import Reason
from taintctl.api.target import Target
from taintctl.api.text import plural, some
from taintctl.impact.allocations import Allocations, selects

MAX_NAMED = 5
"""How many drivers, pools or devices a sentence names."""


@dataclass(frozen=True)
class PublishedPool:
    """The newest generation of one pool; older slices are on their way out and count nowhere."""

    driver: str
    name: str
    generation: int
    slices: tuple[ResourceSlice, ...]

    @property
    def expected(self) -> int:
        """How many slices this generation has once all are published."""
        return max(s.spec.pool.resource_slice_count for s in self.slices)

    @property
    def complete(self) -> bool:
        return len(self.slices) == self.expected

    def devices(self) -> Iterable[tuple[PlannedDevice, SliceDevice]]:
        for resource_slice in self.slices:
            for device in resource_slice.spec.devices or ():
                yield (
                    PlannedDevice(
                        id=DeviceID(self.driver, self.name, device.name),
                        uuid=_uuid(self.driver, device),
                        node=device.node_name or resource_slice.spec.node_name or "",
                    ),
                    device,
                )


@dataclass(frozen=True)
class Resolved:
    devices: tuple[PlannedDevice, ...]
    """Sorted; with those that only allocations still name."""
    selectors: tuple[DeviceSelector, ...]
    """Sorted; every one names driver and pool, so that no rule of ours can ever mean more."""


def published_pools(snapshot: Snapshot) -> dict[tuple[str, str], PublishedPool]:
    """Every pool with the slices of its newest generation, by driver and pool name."""
    groups: dict[tuple[str, str], list[ResourceSlice]] = {}
    for item in snapshot.slices:
        groups.setdefault((item.spec.driver, item.spec.pool.name), []).append(item)
    pools = {}
    for (driver, name), slices in groups.items():
        newest = max(s.spec.pool.generation for s in slices)
        current = tuple(s for s in slices if s.spec.pool.generation == newest)
        pools[(driver, name)] = PublishedPool(driver, name, newest, current)
    return pools


def resolve(snapshot: Snapshot, target: Target, allocations: Allocations) -> Resolved | Problem:
    """The devices of `target` and the rules for them, or why it cannot be said or must not be done.

    The snapshot must hold every slice of the target's driver, for else one pool could look like all of it.
    """
    pools = published_pools(snapshot)
    selector = DeviceSelector(driver=target.driver, pool=target.pool, device=target.device)
    for pool in sorted(pools.values(), key=lambda p: (p.driver, p.name)):
        if pool.driver == target.driver and target.pool in (None, pool.name) and not pool.complete:
            return Problem(
                Reason.POOL_INCOMPLETE,
                f"Pool {pool.name} of driver {pool.driver} has {len(pool.slices)} of {pool.expected} ResourceSlices "
                f"of generation {pool.generation}; wait until the driver has published all, or look at its logs.",
            )
    of_driver: dict[DeviceID, PlannedDevice] = {}
    for pool in pools.values():
        if pool.driver == target.driver:
            for device, _ in pool.devices():
                of_driver.setdefault(device.id, device)
    found = {id_: device for id_, device in of_driver.items() if selects(selector, id_)}
    whole = len(found) == len(of_driver) > 0 or (target.pool is None and target.device is None)
    for hold in allocations.holds(selector):
        found.setdefault(hold.device, PlannedDevice(id=hold.device, published=False))
    if not found:
        return _no_devices(target, pools)
    if whole and not target.whole_driver:
        return Problem(
            Reason.WHOLE_DRIVER,
            f"The target comes to every device of driver {target.driver} ({plural(len(found), 'device')}); "
            "narrow it with pool or device, or set target.wholeDriver: true if that is meant.",
        )
    selectors = sorted({(id_.driver, id_.pool) for id_ in found})
    if len(selectors) > MAX_RULES:
        return Problem(
            Reason.TOO_MANY_RULES,
            f"The target needs {len(selectors)} DeviceTaintRules, one a pool, and a run makes at most {MAX_RULES}; "
            "split it into several runs.",
        )
    return Resolved(
        devices=tuple(sorted(found.values())),
        selectors=tuple(DeviceSelector(driver=d, pool=p, device=target.device) for d, p in selectors),
    )


def _uuid(driver: str, device: SliceDevice) -> str:
    """The attribute `uuid` of the driver's own domain; a name without a domain is in it too (resource.k8s.io)."""
    attributes = device.attributes or {}
    attribute = attributes.get("uuid") or attributes.get(f"{driver}/uuid")
    return attribute.string or "" if attribute is not None else ""


def _no_devices(target: Target, pools: dict[tuple[str, str], PublishedPool]) -> Problem:
    """Says what exists at the first place where the target and the cluster part."""
    drivers = {driver for driver, _ in pools}
    of_driver = {name for driver, name in pools if driver == target.driver}
    if target.driver not in drivers:
        # A snapshot of a cluster holds this driver's slices alone: what others there are it cannot say.
        others = (
            _there_are(drivers, "driver") if drivers else "is it running? kubectl get resourceslices shows them all."
        )
        said = f"No ResourceSlice is of driver {target.driver}; {others}"
    elif target.pool is not None and target.pool not in of_driver:
        said = f"Driver {target.driver} has no pool {target.pool}; {_there_are(of_driver, 'pool')}"
    else:
        in_pool = {
            device.id.device
            for (driver, name), pool in pools.items()
            if driver == target.driver and target.pool in (None, name)
            for device, _ in pool.devices()
        }
        where = f"pool {target.pool}" if target.pool else f"driver {target.driver}"
        wanted = f"device {target.device}" if target.device else "device"
        said = f"There is no {wanted} in {where}; {_there_are(in_pool, 'device')}"
    return Problem(Reason.NO_DEVICES, said)


def _there_are(names: set[str], what: str) -> str:
    if not names:
        return f"there is no {what} at all."
    return f"there {'is' if len(names) == 1 else 'are'} {some(sorted(names), MAX_NAMED)}."
