"""The kubelets of all nodes: they start pods, stop deleted ones and say that their node is ready."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.controlplane.node_health import NodeHealth
from taintctl.sandbox.controlplane.objects import (
    COMPLETE_AFTER,
    NODES,
    PODS,
    STOP_AFTER,
    Obj,
    Ref,
    condition,
    deleting,
    duration_annotation,
    meta,
    node_name,
    phase,
    ref,
    set_condition,
    terminal,
)
from taintctl.sandbox.controlplane.podclaims import reserved_for, used_claims
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import Event, Store

KILL_MARGIN = 2.0
"""Seconds from the end of the grace period until a killed pod is gone: nothing runs longer than grace and this."""


class Do(NamedTuple):
    """Something a kubelet has to do to a pod."""

    what: str
    pod: Ref


class Kubelet(Controller):
    """One worker stands for the kubelets of all nodes; a silent node's part of the work waits until it is back."""

    name = "kubelet"
    watches = frozenset({PODS, NODES})

    def __init__(
        self, store: Store, clock: Clock, health: NodeHealth, *, start_after: float = 0.3, stop_after: float = 3.0
    ) -> None:
        super().__init__(store, clock)
        self.health = health
        self.start_after = start_after
        """Seconds from the binding of a pod until it is Running and Ready."""
        self.stop_after = stop_after
        """Seconds from the deletion of a pod until it is gone (3 s in the recordings), unless the annotation
        `sandbox.taintctl.dev/stop-after` says otherwise; never longer than the grace period and `KILL_MARGIN`."""

    def reset(self) -> None:
        self._on: dict[str, set[Ref]] = defaultdict(set)

    async def start(self) -> None:
        starting = not self.running
        await super().start()
        if starting:
            self._unsubscribe.append(self.health.listen(self._health_changed))

    def sync(self) -> None:
        for node in self.store.list(NODES):
            self.queue.add(meta(node)["name"])
        for pod in self.store.list(PODS):
            self._take_pod(pod, afresh=True)

    def on_event(self, event: Event) -> None:
        if event.key == NODES:
            if event.type != "DELETED":
                self.queue.add(meta(event.obj)["name"])
        elif event.type == "DELETED":
            self._on[node_name(event.obj)].discard(ref(event.obj))
        else:
            before = event.old
            self._take_pod(event.obj, afresh=before is None or _matters(before) != _matters(event.obj))

    def _take_pod(self, pod: Obj, *, afresh: bool) -> None:
        on = node_name(pod)
        if not on:
            return
        self._on[on].add(ref(pod))
        if afresh:
            self._plan(pod)

    def _plan(self, pod: Obj) -> None:
        """What the kubelet does next to a pod on its node, and when."""
        key = ref(pod)
        if self.health.silent_since(node_name(pod)) is not None:
            return
        if deleting(pod):
            self.queue.add_after(Do("stop", key), 0 if terminal(pod) else self._stopping(pod))
        elif phase(pod) == "Pending":
            self.queue.add_after(Do("start", key), self.start_after)
        elif phase(pod) == "Running":
            seconds = duration_annotation(pod, COMPLETE_AFTER)
            if seconds is not None:
                self.queue.add_after(Do("complete", key), seconds)

    def _stopping(self, pod: Obj) -> float:
        asked = duration_annotation(pod, STOP_AFTER)
        grace = float(meta(pod).get("deletionGracePeriodSeconds") or 0)
        return min(self.stop_after if asked is None else asked, grace + KILL_MARGIN)

    def _health_changed(self, node: str) -> None:
        self.queue.add(node)
        for key in sorted(self._on.get(node, ())):
            pod = self.store.find(PODS, key.namespace, key.name)
            if pod is not None and ref(pod) == key:
                self._plan(pod)

    async def handle(self, item: Hashable) -> float | None:
        if isinstance(item, str):
            self._report(item)
            return None
        assert isinstance(item, Do)
        pod = self.store.find(PODS, item.pod.namespace, item.pod.name)
        if pod is None or ref(pod) != item.pod or self.health.silent_since(node_name(pod)) is not None:
            return None
        match item.what:
            case "stop":
                if deleting(pod):
                    self.store.delete(PODS, item.pod.namespace, item.pod.name, uid=item.pod.uid, grace_seconds=0)
            case "start":
                if phase(pod) == "Pending" and not deleting(pod):
                    if not self._prepared(pod):
                        return self.start_after
                    self._run(item.pod)
            case "complete":
                if phase(pod) == "Running" and not deleting(pod):
                    self._complete(item.pod)
        return None

    def _prepared(self, pod: Obj) -> bool:
        """A kubelet starts no pod before its claims are there, allocated and reserved for it."""
        for used in used_claims(pod):
            claim = self.store.find("resourceclaims.resource.k8s.io", meta(pod)["namespace"], used.name or "")
            if claim is None or not reserved_for(claim, pod) or not (claim.get("status") or {}).get("allocation"):
                return False
        return True

    def _run(self, key: Ref) -> None:
        now = self.clock.now()

        def write(pod: Obj) -> None:
            status = pod.setdefault("status", {})
            status["phase"] = "Running"
            status["startTime"] = timestamp(now)
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"):
                set_condition(pod, {"type": kind, "status": "True", "lastProbeTime": None}, now)
            status["containerStatuses"] = [
                {
                    "name": container["name"],
                    "state": {"running": {"startedAt": timestamp(now)}},
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "image": container.get("image", ""),
                    "imageID": "",
                    "started": True,
                }
                for container in pod["spec"]["containers"]
            ]

        self.store.mutate(PODS, key.namespace, key.name, write, subresource="status")

    def _complete(self, key: Ref) -> None:
        now = self.clock.now()

        def write(pod: Obj) -> None:
            status = pod.setdefault("status", {})
            status["phase"] = "Succeeded"
            for kind in ("Ready", "ContainersReady"):
                set_condition(pod, {"type": kind, "status": "False", "reason": "PodCompleted"}, now)
            for container in status.get("containerStatuses") or ():
                ended = {"exitCode": 0, "reason": "Completed", "finishedAt": timestamp(now)}
                container.update(ready=False, started=False, state={"terminated": ended})

        self.store.mutate(PODS, key.namespace, key.name, write, subresource="status")

    def _report(self, name: str) -> None:
        """Says that the node is ready, where nobody has said anything or the node lifecycle lost sight of it.

        A Ready=False that somebody wrote stays: it stands for what the kubelet itself would report.
        """
        node = self.store.find(NODES, None, name)
        if node is None or deleting(node) or self.health.silent_since(name) is not None:
            return
        ready = condition(node, "Ready")
        if ready is not None and ready.get("status") != "Unknown":
            return
        now = self.clock.now()

        def write(current: Obj) -> None:
            heartbeat = {"lastHeartbeatTime": timestamp(now), "reason": "KubeletReady"}
            message = "kubelet is posting ready status"
            set_condition(current, {"type": "Ready", "status": "True", "message": message, **heartbeat}, now)

        self.store.mutate(NODES, None, name, write, subresource="status")


def _matters(pod: Obj) -> tuple[object, ...]:
    """What of a pod makes its kubelet plan anew."""
    m = meta(pod)
    return node_name(pod), phase(pod), m.get("deletionTimestamp"), m.get("deletionGracePeriodSeconds")
