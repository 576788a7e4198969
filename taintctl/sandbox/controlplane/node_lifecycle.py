"""The node lifecycle: a node that is silent for 40 s becomes Unknown and tainted, and NoExecute taints evict pods.

Sources: pkg/controller/nodelifecycle and pkg/controller/tainteviction of Kubernetes 1.36, with their default periods.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver.meta import parse_time, timestamp
from taintctl.sandbox.controlplane.events import Recorder
from taintctl.sandbox.controlplane.node_health import NodeHealth
from taintctl.sandbox.controlplane.objects import (
    NODES,
    PODS,
    Obj,
    Ref,
    condition,
    deleting,
    meta,
    node_name,
    ref,
    set_condition,
    terminal,
)
from taintctl.sandbox.controlplane.taints import NO_EXECUTE, NO_SCHEDULE, pod_tolerated_seconds
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event, Store

GRACE_PERIOD = 40.0
"""Seconds without a word from a kubelet until its node is Unknown (node-monitor-grace-period of the recordings)."""
UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"


class NodeLifecycle(Controller):
    """See the module's text. Deletes only mark pods: what a silent kubelet does not finalise stays Terminating."""

    name = "node-lifecycle"
    watches = frozenset({NODES, PODS})

    def __init__(self, store: Store, clock: Clock, health: NodeHealth) -> None:
        super().__init__(store, clock)
        self._health = health
        self._events = Recorder(store, "taint-eviction-controller")

    def reset(self) -> None:
        self._tainted: dict[str, list[Obj]] = {}
        self._on: dict[str, set[Ref]] = {}
        self._first_seen: dict[tuple[str, str], datetime] = {}

    async def start(self) -> None:
        starting = not self.running
        await super().start()
        if starting:
            self._unsubscribe.append(self._health.listen(self.queue.add))

    def sync(self) -> None:
        for node in self.store.list(NODES):
            self._take_node(node)
        for pod in self.store.list(PODS):
            self._take_pod(pod)

    def on_event(self, event: Event) -> None:
        if event.key == NODES:
            if event.type == "DELETED":
                self._tainted.pop(meta(event.obj)["name"], None)
            else:
                self._take_node(event.obj)
        elif event.type == "DELETED":
            self._on.get(node_name(event.obj), set()).discard(ref(event.obj))
        else:
            self._take_pod(event.obj, event.old)

    def _take_node(self, node: Obj) -> None:
        name = meta(node)["name"]
        self.queue.add(name)
        taints = [t for t in node["spec"].get("taints") or () if t.get("effect") == NO_EXECUTE]
        if self._tainted.get(name, []) == taints:
            return
        self._tainted[name] = taints
        now = self.clock.now()
        kept = {taint["key"] for taint in taints}
        for gone in [seen for seen in self._first_seen if seen[0] == name and seen[1] not in kept]:
            del self._first_seen[gone]
        for taint_key in kept:
            self._first_seen.setdefault((name, taint_key), now)
        for key in sorted(self._on.get(name, ())):
            self.queue.add(key)

    def _take_pod(self, pod: Obj, old: Obj | None = None) -> None:
        on = node_name(pod)
        if not on or (old is not None and node_name(old) == on):
            return
        self._on.setdefault(on, set()).add(ref(pod))
        if self._tainted.get(on):
            self.queue.add(ref(pod))

    async def handle(self, item: Hashable) -> float | None:
        if isinstance(item, Ref):
            return self._evict(item)
        assert isinstance(item, str)
        return self._look_at(item)

    def _look_at(self, name: str) -> float | None:
        node = self.store.find(NODES, None, name)
        if node is None or deleting(node):
            return None
        since = self._health.silent_since(name)
        ready = condition(node, "Ready")
        status = ready["status"] if ready is not None else ""
        if since is not None and status != "Unknown":
            silent = (self.clock.now() - since).total_seconds() * self.clock.speed
            if silent < GRACE_PERIOD:
                return GRACE_PERIOD - silent
            self._lose_sight(name)
            status = "Unknown"
        if status:
            self._taint(name, {"Unknown": UNREACHABLE, "False": NOT_READY}.get(status))
        return None

    def _lose_sight(self, name: str) -> None:
        now = self.clock.now()

        def unknown(node: Obj) -> None:
            message = "Kubelet stopped posting node status."
            new = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": message}
            set_condition(node, new, now)

        def not_ready(pod: Obj) -> None:
            set_condition(pod, {"type": "Ready", "status": "False", "lastProbeTime": None}, now)

        self.store.mutate(NODES, None, name, unknown, subresource="status")
        for key in sorted(self._on.get(name, ())):
            pod = self.store.find(PODS, key.namespace, key.name)
            if pod is not None and ref(pod) == key and condition(pod, "Ready") is not None and not terminal(pod):
                self.store.mutate(PODS, key.namespace, key.name, not_ready, subresource="status")

    def _taint(self, name: str, wanted: str | None) -> None:
        """Sets the one of the two taints that fits the node's condition, and takes the other off."""
        now = timestamp(self.clock.now())

        def write(node: Obj) -> None:
            taints = [
                t
                for t in node["spec"].get("taints") or ()
                if t["key"] not in (UNREACHABLE, NOT_READY) or t["key"] == wanted
            ]
            for effect in (NO_SCHEDULE, NO_EXECUTE) if wanted else ():
                if not any(t["key"] == wanted and t["effect"] == effect for t in taints):
                    taints.append({"key": wanted, "effect": effect, "timeAdded": now})
            if taints:
                node["spec"]["taints"] = taints
            else:
                node["spec"].pop("taints", None)

        self.store.mutate(NODES, None, name, write)

    def _evict(self, key: Ref) -> float | None:
        pod = self.store.find(PODS, key.namespace, key.name)
        if pod is None or ref(pod) != key or deleting(pod):
            return None
        taints = self._tainted.get(node_name(pod), [])
        if not taints:
            self._recover(pod)
            return None
        seconds = pod_tolerated_seconds(taints, pod)
        if seconds is None:
            return None
        start = min(self._since(node_name(pod), taint) for taint in taints)
        left = (start + self.clock.scaled(timedelta(seconds=seconds)) - self.clock.now()).total_seconds()
        if left > 0:
            return left * self.clock.speed
        now = self.clock.now()
        what = f"Marking for deletion Pod {key.namespace}/{key.name}"
        self._events.pod(pod, "Normal", "TaintManagerEviction", what, now)

        def disrupt(current: Obj) -> None:
            message = "Taint manager: deleting due to NoExecute taint"
            target = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
            set_condition(current, {**target, "message": message}, now)

        try:
            self.store.mutate(PODS, key.namespace, key.name, disrupt, subresource="status")
            self.store.delete(PODS, key.namespace, key.name, uid=key.uid)
        except ApiError as error:
            if error.status != 404:
                raise
        return None

    def _recover(self, pod: Obj) -> None:
        """The node is back: what ran all the while is ready again, as its kubelet reports."""
        ready = condition(pod, "Ready")
        if ready is None or ready["status"] == "True" or (pod.get("status") or {}).get("phase") != "Running":
            return
        now = self.clock.now()

        def write(current: Obj) -> None:
            set_condition(current, {"type": "Ready", "status": "True", "lastProbeTime": None}, now)

        self.store.mutate(PODS, meta(pod)["namespace"], meta(pod)["name"], write, subresource="status")

    def _since(self, node: str, taint: Obj) -> datetime:
        seen = self._first_seen.get((node, taint["key"]), self.clock.now())
        if taint.get("timeAdded") and self.clock.speed <= 1:
            return parse_time(taint["timeAdded"])
        return seen
