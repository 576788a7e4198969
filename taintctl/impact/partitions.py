"""Which devices of a pool are the same hardware: partitionable devices (KEP-4815).

Devices that draw on one counter set share what it counts, and a partition names its physical device by `parentUUID`
(recording 07). A taint on one does not reach the other, although a reset of the hardware does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from taintctl.api.objects import SliceDevice
from taintctl.api.plan import DeviceID, PlannedDevice
from taintctl.api.pools import PublishedPool, text_attribute
from taintctl.cel.quantity import parse_quantity

_Group = tuple[str, str]
_Counter = tuple[str, str]
"""Counter set and counter."""


def same_hardware(pool: PublishedPool, of: Iterable[DeviceID]) -> dict[DeviceID, PlannedDevice]:
    """The devices of the pool that share hardware with one of `of`, itself included, over any number of steps: a
    partition brings its physical device, and that all its partitions."""
    members: dict[_Group, list[DeviceID]] = defaultdict(list)
    groups: dict[DeviceID, list[_Group]] = {}
    devices: dict[DeviceID, PlannedDevice] = {}
    for planned, device in pool.devices:
        devices[planned.id], groups[planned.id] = planned, _groups(pool, planned, device)
        for group in groups[planned.id]:
            members[group].append(planned.id)
    found: dict[DeviceID, PlannedDevice] = {}
    reached = [id_ for id_ in of if id_ in devices]
    while reached:
        id_ = reached.pop()
        if id_ not in found:
            found[id_] = devices[id_]
            reached += [other for group in groups[id_] for other in members.pop(group, ())]
    return found


def overlapping(pool: PublishedPool, of: frozenset[DeviceID]) -> dict[DeviceID, DeviceID]:
    """The other devices of the pool that cannot be in use while one of `of` is idle hardware, each with that one: its
    physical device, its partitions, and any that the shared counters do not allow beside it. Partitions that can be in
    use side by side do not overlap."""
    totals = {
        (counters.name, name): _amount(counter.value)
        for item in pool.slices
        for counters in item.spec.shared_counters or ()
        for name, counter in (counters.counters or {}).items()
    }
    others: dict[_Group, list[tuple[PlannedDevice, SliceDevice]]] = defaultdict(list)
    for planned, device in pool.devices:
        for group in _groups(pool, planned, device) if planned.id not in of else ():
            others[group].append((planned, device))
    found: dict[DeviceID, DeviceID] = {}
    for target, target_device in pool.devices if others else ():
        for group in _groups(pool, target, target_device) if target.id in of else ():
            for other, device in others.get(group, ()):
                related = group in (("uuid", target.uuid), ("uuid", other.uuid))
                if other.id not in found and (related or _exceed(totals, target_device, device)):
                    found[other.id] = target.id
    return found


def _groups(pool: PublishedPool, planned: PlannedDevice, device: SliceDevice) -> list[_Group]:
    """What the device may have in common with others: its counter sets, its own UUID and that of its parent."""
    own = [("counters", consumption.counter_set) for consumption in device.consumes_counters or ()]
    return own + [("uuid", uuid) for uuid in (planned.uuid, _parent(pool, device)) if uuid]


def _parent(pool: PublishedPool, device: SliceDevice) -> str:
    return text_attribute(pool.driver, device, "parentUUID")


def _consumed(device: SliceDevice) -> dict[_Counter, Fraction | None]:
    return {
        (consumption.counter_set, name): _amount(counter.value)
        for consumption in device.consumes_counters or ()
        for name, counter in (consumption.counters or {}).items()
    }


def _exceed(totals: Mapping[_Counter, Fraction | None], one_device: SliceDevice, other_device: SliceDevice) -> bool:
    """Whether two devices need more of a counter than there is. What cannot be read does: then both may be in use."""
    one, other = _consumed(one_device), _consumed(other_device)
    for counter in one.keys() & other.keys():
        total, mine, its = totals.get(counter), one[counter], other[counter]
        if total is None or mine is None or its is None or mine + its > total:
            return True
    return False


def _amount(text: str) -> Fraction | None:
    try:
        return parse_quantity(text)
    except ValueError:
        return None
