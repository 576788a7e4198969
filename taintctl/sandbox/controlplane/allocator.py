"""Which devices a pod's claims get on one node. Pure: it reads an inventory and writes nothing.

The order and the rules are those of k8s.io/dynamic-resource-allocation/structured: requests in their order, devices
in the order of their slices, depth first with backtracking, within the shared counters of their pools; results carry
the tolerations of their request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from taintctl.cel.environment import CelError, compile_device_selector
from taintctl.sandbox.controlplane.counters import Ledger
from taintctl.sandbox.controlplane.inventory import (
    Inventory,
    PoolID,
    Published,
    device_reaches,
    node_selection,
    pool_id,
)
from taintctl.sandbox.controlplane.objects import Obj, meta
from taintctl.sandbox.controlplane.taints import DeviceID, blocks_allocation, rule_matches

MAX_RESULTS = 32
"""AllocationResultsMaxSize of resource.k8s.io: no claim gets more devices."""
MAX_STEPS = 20_000
"""Tries before the search for one node gives up: a bound, since the problem is exponential."""
MAX_SELECTORS = 1_000
"""Compiled selectors kept."""


class CannotAllocateError(Exception):
    """These claims can never be allocated as they are; the text says why, for the pod's condition."""


@dataclass(frozen=True)
class Request:
    """One request of one claim, with what decides which devices fit."""

    claim: int
    name: str
    selectors: tuple[str, ...]
    count: int | None
    """None asks for all matching devices."""
    admin_access: bool
    tolerations: tuple[Obj, ...]


def requests_of(claim: Mapping[str, Any], index: int, classes: Mapping[str, Obj]) -> list[Request]:
    """The requests of a claim.

    Raises CannotAllocateError for a class that is not there, and for what the sandbox does not allocate: alternatives
    (firstAvailable), constraints and consumable capacity.
    """
    devices = claim["spec"].get("devices") or {}
    name = meta(claim)["name"]
    if devices.get("constraints"):
        raise CannotAllocateError(f"the sandbox does not allocate claims with constraints, as {name} has")
    result = []
    for request in devices.get("requests") or ():
        exactly = request.get("exactly")
        if exactly is None:
            raise CannotAllocateError(f"the sandbox allocates only requests with `exactly`; {name} has another")
        if exactly.get("capacity"):
            raise CannotAllocateError(f"the sandbox does not allocate requests with capacity, as {name} has")
        device_class = classes.get(exactly["deviceClassName"])
        if device_class is None:
            raise CannotAllocateError(
                f"request {request['name']}: device class {exactly['deviceClassName']} does not exist"
            )
        selectors = (device_class["spec"].get("selectors") or []) + (exactly.get("selectors") or [])
        everything = exactly.get("allocationMode") == "All"
        result.append(
            Request(
                claim=index,
                name=request["name"],
                selectors=tuple(s["cel"]["expression"] for s in selectors),
                count=None if everything else int(exactly.get("count") or 1),
                admin_access=bool(exactly.get("adminAccess")),
                tolerations=tuple(exactly.get("tolerations") or ()),
            )
        )
    return result


class Selectors:
    """CEL selectors, each compiled once and evaluated once for each device in a version of its slice."""

    def __init__(self) -> None:
        self._programs: dict[str, Callable[..., bool]] = {}
        self._matches: dict[str, dict[str, tuple[str, dict[str, bool]]]] = {}

    def matching(self, expression: str, resource_slice: Obj, devices: list[Obj]) -> list[Obj]:
        """Those of the slice's devices that match; CannotAllocateError when it cannot be evaluated on one."""
        m = meta(resource_slice)
        known = self._matches.setdefault(expression, {})
        version, matches = known.get(m["name"], ("", {}))
        if version != m["resourceVersion"]:
            matches = {}
            known[m["name"]] = (m["resourceVersion"], matches)
        for device in devices:
            if device["name"] not in matches:
                matches[device["name"]] = self._matches_device(expression, resource_slice["spec"]["driver"], device)
        return [device for device in devices if matches[device["name"]]]

    def forget_slice(self, name: str) -> None:
        for known in self._matches.values():
            known.pop(name, None)

    def _matches_device(self, expression: str, driver: str, device: Mapping[str, Any]) -> bool:
        try:
            program = self._programs.get(expression)
            if program is None:
                if len(self._programs) >= MAX_SELECTORS:
                    self._programs.clear()
                    self._matches.clear()
                program = self._programs[expression] = compile_device_selector(expression)
            return program(
                driver,
                device.get("attributes") or {},
                device.get("capacity") or {},
                bool(device.get("allowMultipleAllocations")),
            )
        except CelError as error:
            raise CannotAllocateError(f"selector {expression!r}: {error}") from error


@dataclass
class _Search:
    """The state of one depth-first search over the requests' device slots."""

    choices: list[tuple[Request, list[Published]]]
    in_use: Collection[DeviceID]
    inventory: Inventory
    steps: int = 0
    ledgers: dict[PoolID, Ledger] = field(default_factory=dict)
    chosen: list[tuple[Request, Published]] = field(default_factory=list)

    def run(self) -> list[tuple[Request, Published]] | None:
        return self.chosen if self._next(0, 0) else None

    def _next(self, position: int, start: int) -> bool:
        if position == len(self.choices):
            return True
        request, devices = self.choices[position]
        # Devices of one request are interchangeable: the next slot of the same request only looks further on.
        for index in range(start, len(devices)):
            self.steps += 1
            if self.steps > MAX_STEPS:
                return False
            device = devices[index]
            if not self._free(request, device) or not self._take_counters(device):
                continue
            same = position + 1 < len(self.choices) and self.choices[position + 1][1] is devices
            self.chosen.append((request, device))
            if self._next(position + 1, index + 1 if same else 0):
                return True
            self.chosen.pop()
            if device.device.get("consumesCounters"):
                self._ledger(device).give_back(device.device)
        return False

    def _free(self, request: Request, device: Published) -> bool:
        if request.admin_access:
            # Beside other holders, but no device twice in one claim.
            return all(other.claim != request.claim or given.id != device.id for other, given in self.chosen)
        taken = any(given.id == device.id and not other.admin_access for other, given in self.chosen)
        return device.id not in self.in_use and not taken

    def _take_counters(self, device: Published) -> bool:
        """Upstream does not except adminAccess from this (kubernetes#140729): it needs the counters a second time."""
        return not device.device.get("consumesCounters") or self._ledger(device).take(device.device)

    def _ledger(self, device: Published) -> Ledger:
        pool = pool_id(device.slice)
        if pool not in self.ledgers:
            slices = self.inventory.newest(pool)
            names = {d["name"] for s in slices for d in s["spec"].get("devices") or ()}
            self.ledgers[pool] = Ledger(slices, {name for name in names if DeviceID(*pool, name) in self.in_use})
        return self.ledgers[pool]


class Allocator:
    """Allocates claims from an inventory, under the taints of drivers and DeviceTaintRules."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.selectors = Selectors()
        self.rules: dict[str, Obj] = {}
        self.classes: dict[str, Obj] = {}

    def allocate(
        self, claims: Sequence[Mapping[str, Any]], node: Mapping[str, Any], in_use: Collection[DeviceID]
    ) -> list[Obj] | None:
        """The `status.allocation` of each claim on this node, without its time; None when the node cannot serve them.

        `in_use` are the devices that other claims hold; a request with adminAccess may have them all the same.
        Raises CannotAllocateError when no node ever could.
        """
        requests = [r for index, claim in enumerate(claims) for r in requests_of(claim, index, self.classes)]
        choices: list[tuple[Request, list[Published]]] = []
        for request in requests:
            devices = self._fitting(request, node)
            if devices is None:
                return None
            if request.count is not None:
                choices += [(request, devices)] * request.count
                continue
            if not devices or any(self._tainted(device, request) for device in devices):
                return None
            choices += [(request, [device]) for device in devices]
        for index in range(len(claims)):
            if sum(request.claim == index for request, _ in choices) > MAX_RESULTS:
                raise CannotAllocateError(
                    f"claim {meta(claims[index])['name']} asks for more than {MAX_RESULTS} devices"
                )
        found = _Search(choices, in_use, self.inventory).run()
        if found is None:
            return None
        return [
            _allocation([(r, device) for r, device in found if r.claim == index], meta(node)["name"])
            for index in range(len(claims))
        ]

    def _fitting(self, request: Request, node: Mapping[str, Any]) -> list[Published] | None:
        """The node's devices that a request may get; None when it needs all of a pool that is not usable now."""
        result = []
        for resource_slice in self.inventory.slices_for(node):
            pool = pool_id(resource_slice)
            matching = self._matching(request.selectors, resource_slice)
            if not self.inventory.usable(pool):
                if request.count is None:
                    return None
                continue
            for device in matching:
                published = Published(DeviceID(*pool, device["name"]), device, resource_slice)
                if device_reaches(published, node) and (request.count is None or not self._tainted(published, request)):
                    result.append(published)
        return result

    def _matching(self, selectors: tuple[str, ...], resource_slice: Obj) -> list[Obj]:
        """A selector is asked only of devices that those before it let pass, as upstream: the class's come first."""
        devices = list(resource_slice["spec"].get("devices") or ())
        for expression in selectors:
            devices = self.selectors.matching(expression, resource_slice, devices)
        return devices

    def _tainted(self, published: Published, request: Request) -> bool:
        taints: Iterable[Obj] = [
            *(published.device.get("taints") or ()),
            *(rule["spec"]["taint"] for rule in self.rules.values() if rule_matches(rule, published.id)),
        ]
        return any(blocks_allocation(taint, request.tolerations) for taint in taints)


def _allocation(found: list[tuple[Request, Published]], node: str) -> Obj:
    results = []
    for request, device in found:
        result: Obj = {
            "request": request.name,
            "driver": device.id.driver,
            "pool": device.id.pool,
            "device": device.id.device,
        }
        if request.admin_access:
            result["adminAccess"] = True
        if request.tolerations:
            result["tolerations"] = [dict(toleration) for toleration in request.tolerations]
        results.append(result)
    allocation: Obj = {"devices": {"results": results}}
    selector = _node_selector([node_selection(device) for _, device in found], node)
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _node_selector(selections: list[Mapping[str, Any]], node: str) -> Obj | None:
    """Where the allocated devices can be used: one node as soon as one is local, all expressions otherwise."""
    term: dict[str, list[Obj]] = {"matchFields": [], "matchExpressions": []}
    for selection in selections:
        if selection.get("nodeName"):
            local = {"key": "metadata.name", "operator": "In", "values": [node]}
            return {"nodeSelectorTerms": [{"matchFields": [local]}]}
        # The API allows one term in the nodeSelector of a slice.
        for one in (selection.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            for kind, requirements in term.items():
                requirements += [r for r in one.get(kind) or () if r not in requirements]
    found = {kind: requirements for kind, requirements in term.items() if requirements}
    return {"nodeSelectorTerms": [found]} if found else None
