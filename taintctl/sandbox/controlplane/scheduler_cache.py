"""What the scheduler knows: nodes and their pods, devices in use, and decisions that are not written yet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from taintctl.sandbox.controlplane.allocator import Allocator
from taintctl.sandbox.controlplane.binder import Decision
from taintctl.sandbox.controlplane.objects import (
    CLAIMS,
    CLASSES,
    NODES,
    RULES,
    SLICES,
    Obj,
    Ref,
    meta,
    node_name,
    ref,
    terminal,
)
from taintctl.sandbox.controlplane.podclaims import allocation_results
from taintctl.sandbox.controlplane.taints import DeviceID


class SchedulerCache:
    """Follows the store's events; every question is answered without looking at all pods or claims."""

    def __init__(self) -> None:
        self.allocator = Allocator()
        self.nodes: dict[str, Obj] = {}
        self.assumed: dict[Ref, Decision] = {}
        self.in_use: Counter[DeviceID] = Counter()
        """Holders of each device, without adminAccess: of stored allocations and of assumed ones."""
        self.allocating: Counter[Ref] = Counter()
        """Claims whose allocation is decided and not written."""
        self._pods_on: dict[str, dict[Ref, Obj]] = defaultdict(dict)
        self._coming: dict[str, dict[Ref, Obj]] = defaultdict(dict)
        self._load: Counter[str] = Counter()
        self._names: list[str] | None = None

    def take(self, key: str, old: Obj | None, new: Obj | None) -> bool:
        """Takes a change of anything but pods; says whether a pod that waits may have a chance now."""
        if key == CLAIMS:
            return self._take_claim(old, new)
        if key == RULES:
            _put(self.allocator.rules, old, new)
            return old is None or new is None or old["spec"] != new["spec"]
        if key == CLASSES:
            _put(self.allocator.classes, old, new)
        elif key == NODES:
            _put(self.nodes, old, new)
            self._names = None
        elif key == SLICES:
            self.allocator.inventory.change(old, new)
            if new is None and old is not None:
                self.allocator.selectors.forget_slice(meta(old)["name"])
        return True

    def _take_claim(self, old: Obj | None, new: Obj | None) -> bool:
        for claim, step in ((old, -1), (new, 1)):
            for result in allocation_results(claim) if claim is not None else ():
                if not result.get("adminAccess"):
                    self._use(DeviceID(result["driver"], result["pool"], result["device"]), step)
        freed = old is not None and allocation_results(old) and not (new is not None and allocation_results(new))
        return old is None or bool(freed)

    def take_pod(self, old: Obj | None, new: Obj | None) -> bool:
        """Takes a change of a pod; says whether its node has room again."""
        pod = new or old
        on = node_name(pod) if pod is not None else ""
        if pod is None or not on:
            return False
        if new is not None and not terminal(new):
            if ref(new) not in self._pods_on[on]:
                self._load[on] += 1
            self._pods_on[on][ref(new)] = new
            return False
        if self._pods_on[on].pop(ref(pod), None) is None:
            return False
        self._load[on] -= 1
        return True

    def assume(self, decision: Decision, pod: Obj) -> None:
        """Counts a decision as done for those that follow."""
        self.assumed[decision.pod] = decision
        self._coming[decision.node][decision.pod] = pod
        self._load[decision.node] += 1
        self.allocating.update(list(decision.allocated))
        for device in decision.devices:
            self._use(device, 1)

    def forget(self, decision: Decision) -> None:
        """The decision is written, or given up."""
        if self.assumed.pop(decision.pod, None) is None:
            return
        self._coming[decision.node].pop(decision.pod, None)
        self._load[decision.node] -= 1
        for claim in decision.allocated:
            self.allocating[claim] -= 1
            if self.allocating[claim] <= 0:
                del self.allocating[claim]
        for device in decision.devices:
            self._use(device, -1)

    def nodes_by_load(self) -> Iterator[Obj]:
        """The nodes with the fewest pods first, then by name."""
        if self._names is None:
            self._names = sorted(self.nodes)
        for name in sorted(self._names, key=self._load.__getitem__):
            node = self.nodes.get(name)
            if node is not None:
                yield node

    def pods_on(self, node: str) -> list[Obj]:
        """The node's pods, and those that are being bound to it."""
        there, coming = self._pods_on.get(node, {}), self._coming.get(node, {})
        return [*there.values(), *(pod for key, pod in coming.items() if key not in there)]

    def _use(self, device: DeviceID, step: int) -> None:
        self.in_use[device] += step
        if self.in_use[device] <= 0:
            del self.in_use[device]


def _put(into: dict[str, Obj], old: Obj | None, new: Obj | None) -> None:
    if new is not None:
        into[meta(new)["name"]] = new
    elif old is not None:
        into.pop(meta(old)["name"], None)
