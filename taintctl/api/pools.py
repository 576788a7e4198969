"""What drivers publish: pools, each in its newest generation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from taintctl.api.objects import PoolSizes, ResourceSlice, SliceDevice
from taintctl.api.plan import DeviceID, PlannedDevice

PoolKey = tuple[str, str]
"""Driver and pool name."""
PCI_BUS_ID = "resource.kubernetes.io/pciBusID"


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

    @cached_property
    def devices(self) -> tuple[tuple[PlannedDevice, SliceDevice], ...]:
        return tuple(
            (
                PlannedDevice(
                    id=DeviceID(self.driver, self.name, device.name),
                    uuid=text_attribute(self.driver, device, "uuid"),
                    node=device.node_name or resource_slice.spec.node_name or "",
                    pci_bus_id=text_attribute(self.driver, device, PCI_BUS_ID),
                ),
                device,
            )
            for resource_slice in self.slices
            for device in resource_slice.spec.devices or ()
        )


def pool_key(item: ResourceSlice) -> PoolKey:
    return item.spec.driver, item.spec.pool.name


def published_pools(slices: Iterable[ResourceSlice]) -> dict[PoolKey, PublishedPool]:
    """Every pool with the slices of its newest generation, by driver and pool name."""
    groups: dict[PoolKey, list[ResourceSlice]] = {}
    for item in slices:
        groups.setdefault(pool_key(item), []).append(item)
    pools = {}
    for (driver, name), group in groups.items():
        newest = max(s.spec.pool.generation for s in group)
        current = tuple(s for s in group if s.spec.pool.generation == newest)
        pools[(driver, name)] = PublishedPool(driver, name, newest, current)
    return pools


def pool_sizes(slices: Iterable[ResourceSlice]) -> PoolSizes:
    """How many devices each pool publishes."""
    pools = published_pools(slices)
    return PoolSizes({key: sum(len(s.spec.devices or ()) for s in pool.slices) for key, pool in pools.items()})


def text_attribute(driver: str, device: SliceDevice, name: str) -> str:
    """A string attribute by its qualified name; one without a domain is in the driver's own (resource.k8s.io). Empty
    where the device has none."""
    attributes = device.attributes or {}
    attribute = attributes.get(name) or (attributes.get(f"{driver}/{name}") if "/" not in name else None)
    return attribute.string or "" if attribute is not None else ""
