"""What controllers of workloads have in common: their children, and pods from a template.

Children are those that name the workload as their controller; pods without one are not adopted.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar

from taintctl.sandbox.apiserver.meta import copied
from taintctl.sandbox.controlplane.objects import PODS, Obj, Ref, deleting, is_true, meta, node_name, ref, terminal
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import Event

BURST = 500
"""Pods that one step of a controller starts at most."""
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
"""What upstream writes hashes with: no vowels, so no words."""


class WorkloadController(Controller):
    """Keeps one kind of workload, by its objects of another kind; a deleted workload is the garbage collector's."""

    key: ClassVar[str]
    child_key: ClassVar[str] = PODS

    def reset(self) -> None:
        self._children: dict[str, set[Ref]] = defaultdict(set)

    def sync(self) -> None:
        for child in self.store.list(self.child_key):
            self._take(child)
        for workload in self.store.list(self.key):
            self.queue.add(ref(workload))

    def on_event(self, event: Event) -> None:
        if event.key == self.key:
            if event.type != "DELETED":
                self.queue.add(ref(event.obj))
            return
        for child in (event.old, event.obj):
            if child is not None:
                self._take(child, gone=event.type == "DELETED" or child is not event.obj)

    def _take(self, child: Obj, *, gone: bool = False) -> None:
        owner = controller(child)
        if owner is None:
            return
        children = self._children[owner["uid"]]
        children.discard(ref(child)) if gone else children.add(ref(child))
        if not children:
            del self._children[owner["uid"]]
        self.queue.add(Ref(meta(child)["namespace"], owner["name"], owner["uid"]))

    async def handle(self, item: Hashable) -> float | None:
        assert isinstance(item, Ref)
        workload = self.store.find(self.key, item.namespace, item.name)
        if workload is None or ref(workload) != item or deleting(workload):
            return None
        found = (self.store.find(self.child_key, c.namespace, c.name) for c in self._children.get(item.uid, ()))
        children = [child for child in found if child is not None and (controller(child) or {}).get("uid") == item.uid]
        return self.reconcile(workload, sorted(children, key=lambda child: str(meta(child)["name"])))

    def reconcile(self, workload: Obj, children: list[Obj]) -> float | None:
        """One step towards what the workload asks for; the result says in how many seconds again."""
        raise NotImplementedError

    def tell(self, workload: Obj, status: Mapping[str, Any], change: Callable[[Obj], None] | None = None) -> None:
        """Writes the status of that very object: what is given, over what is there; a None takes a field away."""

        def write(current: Obj) -> None:
            if meta(current)["uid"] != meta(workload)["uid"]:
                return
            merged = {**(current.get("status") or {}), **status, "observedGeneration": meta(workload)["generation"]}
            current["status"] = {name: value for name, value in merged.items() if value is not None}
            if change is not None:
                change(current)

        self.store.mutate(self.key, meta(workload)["namespace"], meta(workload)["name"], write, subresource="status")

    def remove(self, child: Obj) -> None:
        self.store.delete(self.child_key, meta(child)["namespace"], meta(child)["name"], uid=meta(child)["uid"])

    def start_pod(self, workload: Obj, *, labels: Mapping[str, str] | None = None, **named: Any) -> None:
        """A pod of the workload's template; `named` are its name or generateName, and other metadata."""
        template = copied(workload["spec"]["template"])
        given = template.get("metadata") or {}
        metadata = {
            "namespace": meta(workload)["namespace"],
            "labels": {**(given.get("labels") or {}), **(labels or {})},
            "annotations": {**(given.get("annotations") or {}), **named.pop("annotations", {})},
            "ownerReferences": [reference(workload)],
            **named,
        }
        self.store.create(PODS, {"metadata": metadata, "spec": template.get("spec") or {}})


def controller(child: Mapping[str, Any]) -> Obj | None:
    """The reference to what controls an object."""
    return next((r for r in meta(child).get("ownerReferences") or () if r.get("controller")), None)


def reference(workload: Mapping[str, Any]) -> Obj:
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "name": meta(workload)["name"],
        "uid": meta(workload)["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def active(pod: Mapping[str, Any]) -> bool:
    """It counts towards the replicas: it has not ended, and is not marked for deletion."""
    return not terminal(pod) and not deleting(pod)


def ready(pod: Mapping[str, Any]) -> bool:
    return active(pod) and is_true(pod, "Ready")


def dearest_last(pod: Mapping[str, Any]) -> tuple[bool, bool, str]:
    """Which pods go first where there are too many: not bound, then not ready, then the oldest stay (upstream's
    ActivePods, newest first)."""
    return bool(node_name(pod)), ready(pod), _inverse(str(meta(pod)["creationTimestamp"]))


def _inverse(text: str) -> str:
    """A text that sorts the other way round."""
    return "".join(chr(0x10FFF - ord(c)) for c in text)


def template_hash(template: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()
    return "".join(_SAFE[byte % len(_SAFE)] for byte in digest[:10])
