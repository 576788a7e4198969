"""What a target comes to: devices, and the selectors of the DeviceTaintRules that taint them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from taintctl.api.base import MAX_RULES
from taintctl.api.objects import DeviceSelector, Snapshot
from taintctl.api.plan import DeviceID, PlannedDevice, Problem
from taintctl.api.pools import PoolKey, PublishedPool, published_pools
from taintctl.api.reasons import Reason
from taintctl.api.target import Partitions, Target
from taintctl.api.text import plural, some
from taintctl.impact.allocations import Allocations, selects
from taintctl.impact.criteria import SelectorFailed, criteria
from taintctl.impact.partitions import same_hardware

MAX_NAMED = 5
"""How many drivers, pools or devices a sentence names."""


@dataclass(frozen=True)
class Resolved:
    devices: tuple[PlannedDevice, ...]
    """Sorted; with those that only allocations still name."""
    selectors: tuple[DeviceSelector, ...]
    """Sorted; every one names driver and pool, so that no rule of ours can ever mean more."""


def resolve(snapshot: Snapshot, target: Target, allocations: Allocations) -> Resolved | Problem:
    """The devices of `target` and the rules for them, or why it cannot be said or must not be done."""
    asked = criteria(target, snapshot.classes, snapshot.nodes)
    if isinstance(asked, Problem):
        return asked
    pools = published_pools(snapshot.slices)
    found: dict[DeviceID, PlannedDevice] = {}
    published: set[DeviceID] = set()
    for pool in sorted(pools.values(), key=lambda p: (p.driver, p.name)):
        if not asked.names_pool(pool.driver, pool.name):
            continue
        if not pool.complete:
            return Problem(
                Reason.POOL_INCOMPLETE,
                f"Pool {pool.name} of driver {pool.driver} has {len(pool.slices)} of {pool.expected} ResourceSlices "
                f"of generation {pool.generation}; wait until the driver has published all, or look at its logs.",
            )
        try:
            matched = {planned.id: planned for planned, device in pool.devices if asked.mean(planned, device)}
        except SelectorFailed as error:
            return Problem(Reason.SELECTOR_FAILED, f"{error}; guard it, as in `has(…) && …`, or narrow the target.")
        published.update(planned.id for planned, _ in pool.devices)
        if target.partitions is Partitions.INCLUDE:
            along = same_hardware(pool, matched)
            matched = {id_: matched.get(id_) or replace(device, along=True) for id_, device in along.items()}
        found |= matched
    whole = _whole(target, found, snapshot)
    # A device that nothing publishes any more has a name, and perhaps a node, but no attributes.
    for hold in () if target.by_attribute else allocations.holds(_by_names(target)):
        if hold.device not in published and asked.names(hold.device) and asked.on_node(hold.node):
            found.setdefault(hold.device, PlannedDevice(id=hold.device, published=False))
    if not found:
        return no_devices(target, snapshot)
    missing = sorted(set(target.uuids or ()) - {device.uuid for device in found.values()})
    if missing:
        return Problem(
            Reason.NO_DEVICES,
            f"No device that the target can mean has the UUID {some(missing, MAX_NAMED)}; "
            "`taintctl devices -o wide` shows the UUIDs.",
        )
    if whole and not target.whole_driver:
        return Problem(
            Reason.WHOLE_DRIVER,
            f"The target comes to every device of driver {whole} "
            f"({plural(sum(id_.driver == whole for id_ in found), 'device')}); "
            "narrow it, or set target.wholeDriver: true if that is meant.",
        )
    selectors = _selectors(target, found, pools, allocations)
    if len(selectors) > MAX_RULES:
        return Problem(
            Reason.TOO_MANY_RULES,
            f"The target needs {len(selectors)} DeviceTaintRules and a run makes at most {MAX_RULES}; "
            "split it into several runs.",
        )
    return Resolved(devices=tuple(sorted(found.values())), selectors=selectors)


def _by_names(target: Target) -> DeviceSelector:
    return DeviceSelector(driver=target.driver, pool=target.pool, device=target.device)


def _whole(target: Target, found: Iterable[DeviceID], snapshot: Snapshot) -> str | None:
    """A driver of which the target means every device, if there is one."""
    if target.driver and not (target.pool or target.device or target.node_selector or target.by_attribute):
        return target.driver
    count = Counter(id_.driver for id_ in found)
    return next((driver for driver, of_it in sorted(count.items()) if of_it >= snapshot.devices_of(driver)), None)


def _selectors(
    target: Target,
    found: Mapping[DeviceID, PlannedDevice],
    pools: Mapping[PoolKey, PublishedPool],
    allocations: Allocations,
) -> tuple[DeviceSelector, ...]:
    """The smallest set of rules that select exactly `found`: one for a pool where all of it is meant, published or only
    still allocated, else one a device. Devices that were named are never widened to their pool."""
    by_pool: dict[PoolKey, set[DeviceID]] = {}
    for id_ in found:
        by_pool.setdefault((id_.driver, id_.pool), set()).add(id_)
    selectors = []
    for (driver, name), devices in sorted(by_pool.items()):
        pool = pools.get((driver, name))
        in_pool = {planned.id for planned, _ in pool.devices} if pool is not None else set()
        in_pool |= {hold.device for hold in allocations.holds(DeviceSelector(driver=driver, pool=name))}
        if target.device is None and target.uuids is None and in_pool <= devices:
            selectors.append(DeviceSelector(driver=driver, pool=name))
        else:
            selectors += [DeviceSelector(driver=driver, pool=name, device=id_.device) for id_ in sorted(devices)]
    return tuple(selectors)


def out_elsewhere(snapshot: Snapshot, selectors: Iterable[DeviceSelector], planned: Iterable[DeviceID]) -> int:
    """How many devices of the plan's drivers, other than the plan's own, the selectors (of other runs' rules) match.

    By the sizes of their pools, since a snapshot holds the slices of the plan's pools alone; there the devices
    themselves are counted."""
    own = frozenset(planned)
    drivers = {id_.driver for id_ in own}
    pools = published_pools(snapshot.slices)
    by_pool: dict[tuple[str | None, str | None], list[DeviceSelector]] = {}
    for chosen in selectors:
        by_pool.setdefault((chosen.driver, chosen.pool), []).append(chosen)
    count = 0
    for (driver, name), size in snapshot.published.items() if by_pool else ():
        places = ((d, n) for d in (driver, None) for n in (name, None))
        asked = [chosen for place in places for chosen in by_pool.get(place, ())]
        pool = pools.get((driver, name))
        if not asked or driver not in drivers:
            continue
        if pool is not None:
            count += sum(
                planned_.id not in own and any(selects(chosen, planned_.id) for chosen in asked)
                for planned_, _ in pool.devices
            )
        else:
            devices = {chosen.device for chosen in asked}
            count += size if None in devices else min(size, len(devices))
    return count


def may_mean(snapshot: Snapshot, target: Target, devices: Iterable[PlannedDevice]) -> bool:
    """Whether `target` means one of `devices`, or the hardware of one. What cannot be decided may be."""
    asked = criteria(target, snapshot.classes, snapshot.nodes)
    if isinstance(asked, Problem):
        return False
    pools = published_pools(snapshot.slices)
    left = {device.id: device for device in devices}
    for pool in pools.values():
        mine = [id_ for id_ in left if (id_.driver, id_.pool) == (pool.driver, pool.name)]
        hardware = same_hardware(pool, mine) if mine else {}
        for id_ in hardware:
            left.pop(id_, None)
        try:
            if any(asked.mean(planned, device) for planned, device in pool.devices if planned.id in hardware):
                return True
        except SelectorFailed:
            return True
    return not target.by_attribute and any(asked.names(id_) for id_ in left)


def no_devices(target: Target, snapshot: Snapshot) -> Problem:
    """Says what exists at the first place where the target and the cluster part."""
    pools = published_pools(snapshot.slices)
    drivers = {driver for driver, _ in snapshot.published}
    of_driver = {name for driver, name in pools if driver == target.driver}
    if target.driver is not None and target.driver not in drivers:
        # A snapshot of a cluster holds this driver's slices alone: what others there are it cannot say.
        others = (
            _there_are(drivers, "driver") if drivers else "is it running? kubectl get resourceslices shows them all."
        )
        said = f"No ResourceSlice is of driver {target.driver}; {others}"
    elif target.pool is not None and target.pool not in of_driver:
        said = f"Driver {target.driver} has no pool {target.pool}; {_there_are(of_driver, 'pool')}"
    elif target.node_selector or target.by_attribute:
        said = _none_matches(target, snapshot)
    else:
        in_pool = {
            device.id.device
            for (driver, name), pool in pools.items()
            if driver == target.driver and target.pool in (None, name)
            for device, _ in pool.devices
        }
        where = f"pool {target.pool}" if target.pool else f"driver {target.driver}"
        wanted = f"device {target.device}" if target.device else "device"
        said = f"There is no {wanted} in {where}; {_there_are(in_pool, 'device')}"
    return Problem(Reason.NO_DEVICES, said)


def _none_matches(target: Target, snapshot: Snapshot) -> str:
    count = snapshot.devices_of(target.driver)
    of = f" of driver {target.driver}" if target.driver else ""
    wanted = [
        name
        for name, given in (
            ("nodeSelector", target.node_selector),
            ("deviceClassName", target.device_class_name),
            ("selectors", target.selectors),
            ("uuids", target.uuids),
        )
        if given
    ]
    return (
        f"None of the {plural(count, 'device')}{of} matches the target's {some(wanted)}; "
        "`taintctl devices -o wide` shows what there is."
    )


def _there_are(names: set[str], what: str) -> str:
    if not names:
        return f"there is no {what} at all."
    return f"there {'is' if len(names) == 1 else 'are'} {some(sorted(names), MAX_NAMED)}."
