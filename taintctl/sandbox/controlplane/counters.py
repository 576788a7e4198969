"""The shared counters of partitionable devices (KEP-4815). Pure.

As k8s.io/dynamic-resource-allocation/structured keeps them (1.36): counters belong to a pool, in slices of their own; a
device is given away only while every counter it consumes is left over by the devices that are allocated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from taintctl.cel.quantity import parse_quantity
from taintctl.sandbox.controlplane.objects import Obj

CounterID = tuple[str, str]
"""A counter's set and its name in it."""


def consumption(device: Mapping[str, Any]) -> Iterator[tuple[CounterID, Fraction]]:
    """What a device takes from its pool's counters while it is allocated."""
    for consumed in device.get("consumesCounters") or ():
        for name, counter in consumed["counters"].items():
            yield (consumed["counterSet"], name), parse_quantity(counter["value"])


def published(slices: Iterable[Obj]) -> dict[CounterID, Fraction]:
    """The counters of a pool, full."""
    return {
        (one["name"], name): parse_quantity(counter["value"])
        for resource_slice in slices
        for one in resource_slice["spec"].get("sharedCounters") or ()
        for name, counter in one["counters"].items()
    }


def valid(slices: Sequence[Obj]) -> bool:
    """Whether a pool's slices fit together: no device or counter set twice, and no consumption of what is not there.

    The API server sees one slice at a time and can't check this, so it is upstream's allocator that does.
    """
    devices = [device for s in slices for device in s["spec"].get("devices") or ()]
    sets = [one["name"] for s in slices for one in s["spec"].get("sharedCounters") or ()]
    if len({device["name"] for device in devices}) < len(devices) or len(set(sets)) < len(sets):
        return False
    known = published(slices)
    return all(counter in known for device in devices for counter, _ in consumption(device))


class Ledger:
    """What is left of one pool's counters while an arrangement of devices is tried."""

    def __init__(self, slices: Iterable[Obj], allocated: Collection[str]) -> None:
        """`allocated` names the pool's devices that are given away already."""
        pool = list(slices)
        self._left = published(pool)
        for resource_slice in pool:
            for device in resource_slice["spec"].get("devices") or ():
                if device["name"] in allocated:
                    self._book(device, -1)

    def take(self, device: Mapping[str, Any]) -> bool:
        """Books what the device consumes; False, and nothing booked, where that leaves a counter overdrawn.

        Any counter of the pool, as upstream: one that is overdrawn already keeps all partitions of the pool back.
        """
        self._book(device, -1)
        if all(left >= 0 for left in self._left.values()):
            return True
        self.give_back(device)
        return False

    def give_back(self, device: Mapping[str, Any]) -> None:
        self._book(device, 1)

    def _book(self, device: Mapping[str, Any], sign: int) -> None:
        for counter, amount in consumption(device):
            self._left[counter] += sign * amount
