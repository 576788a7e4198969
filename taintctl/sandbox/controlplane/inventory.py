"""The devices that drivers publish: pools, their newest generation, and which node can reach what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from taintctl.sandbox.controlplane import counters
from taintctl.sandbox.controlplane.objects import Obj, meta, node_selector_matches
from taintctl.sandbox.controlplane.taints import DeviceID

PoolID = tuple[str, str]


@dataclass(frozen=True)
class Published:
    """A device as one slice publishes it."""

    id: DeviceID
    device: Obj
    slice: Obj


def pool_id(resource_slice: Mapping[str, Any]) -> PoolID:
    spec = resource_slice["spec"]
    return spec["driver"], spec["pool"]["name"]


def reaches(resource_slice: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether a node may use devices of a slice: by nodeName, nodeSelector or allNodes of the slice or of a device."""
    spec = resource_slice["spec"]
    if spec.get("perDeviceNodeSelection"):
        return any(_matches(device, node) for device in spec.get("devices") or ())
    return _matches(spec, node)


def device_reaches(published: Published, node: Mapping[str, Any]) -> bool:
    """Whether a node that the slice reaches may use this device of it."""
    return not published.slice["spec"].get("perDeviceNodeSelection") or _matches(published.device, node)


def node_selection(published: Published) -> Mapping[str, Any]:
    """What carries the nodeName, nodeSelector or allNodes of a device: itself, or its slice."""
    spec: Mapping[str, Any] = published.slice["spec"]
    return published.device if spec.get("perDeviceNodeSelection") else spec


def _matches(selection: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    if selection.get("nodeName"):
        return bool(selection["nodeName"] == meta(node)["name"])
    if selection.get("allNodes"):
        return True
    return selection.get("nodeSelector") is not None and node_selector_matches(selection["nodeSelector"], node)


class Inventory:
    """Every ResourceSlice, indexed by pool and by the node it belongs to."""

    def __init__(self) -> None:
        self._pools: dict[PoolID, dict[str, Obj]] = defaultdict(dict)
        self._by_node: dict[str, dict[str, Obj]] = defaultdict(dict)
        self._anywhere: dict[str, Obj] = {}
        self._usable: dict[PoolID, bool] = {}

    def add(self, resource_slice: Obj) -> None:
        name = meta(resource_slice)["name"]
        self._pools[pool_id(resource_slice)][name] = resource_slice
        self._usable.pop(pool_id(resource_slice), None)
        node = resource_slice["spec"].get("nodeName")
        (self._by_node[node] if node else self._anywhere)[name] = resource_slice

    def remove(self, resource_slice: Obj) -> None:
        name, pool = meta(resource_slice)["name"], pool_id(resource_slice)
        self._pools[pool].pop(name, None)
        self._usable.pop(pool, None)
        if not self._pools[pool]:
            del self._pools[pool]
        node = resource_slice["spec"].get("nodeName")
        (self._by_node[node] if node else self._anywhere).pop(name, None)

    def change(self, old: Obj | None, new: Obj | None) -> None:
        if old is not None:
            self.remove(old)
        if new is not None:
            self.add(new)

    def newest(self, pool: PoolID) -> list[Obj]:
        """The slices of the pool's newest generation; only these count."""
        slices = self._pools.get(pool)
        if not slices:
            return []
        generation = max(s["spec"]["pool"]["generation"] for s in slices.values())
        return [s for _, s in sorted(slices.items()) if s["spec"]["pool"]["generation"] == generation]

    def usable(self, pool: PoolID) -> bool:
        """All slices of the newest generation are there and fit together; no other pool's devices are allocated."""
        if pool not in self._usable:
            newest = self.newest(pool)
            complete = bool(newest) and len(newest) == newest[0]["spec"]["pool"]["resourceSliceCount"]
            self._usable[pool] = complete and counters.valid(newest)
        return self._usable[pool]

    def device(self, device: DeviceID) -> Obj | None:
        """The device as published now, None when it is not."""
        for resource_slice in self.newest((device.driver, device.pool)):
            for found in resource_slice["spec"].get("devices") or ():
                if found["name"] == device.device:
                    result: Obj = found
                    return result
        return None

    def devices(self) -> Iterator[DeviceID]:
        """Every published device of a newest generation."""
        for pool in self._pools:
            for resource_slice in self.newest(pool):
                for device in resource_slice["spec"].get("devices") or ():
                    yield DeviceID(*pool, device["name"])

    def slices_for(self, node: Mapping[str, Any]) -> list[Obj]:
        """The newest slices that a node can reach, by name; those of incomplete pools too."""
        near = [*self._by_node.get(meta(node)["name"], {}).items(), *self._anywhere.items()]
        result = []
        for _, resource_slice in sorted(near):
            if not reaches(resource_slice, node):
                continue
            generation = resource_slice["spec"]["pool"]["generation"]
            others = self._pools[pool_id(resource_slice)].values()
            if all(other["spec"]["pool"]["generation"] <= generation for other in others):
                result.append(resource_slice)
        return result
