"""Owner references: dependents go with their owners, in the background, in the foreground, or are orphaned.

Source: pkg/controller/garbagecollector of Kubernetes 1.36.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from taintctl.sandbox.controlplane.objects import Obj, deleting, meta
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Node(NamedTuple):
    """One object in the graph of owners."""

    key: str
    namespace: str
    name: str
    uid: str


class GarbageCollector(Controller):
    """Follows every kind; an owner of a kind that is not served counts as there, since nobody can tell."""

    name = "garbage-collector"
    watches = frozenset()

    def reset(self) -> None:
        self._dependents: dict[str, set[Node]] = defaultdict(set)
        self._owners: dict[str, set[str]] = {}
        self._waiting: dict[str, Node] = {}
        """Owners deleted in the foreground that wait for dependents, by uid."""

    def sync(self) -> None:
        for info in self.store.resources:
            for obj in self.store.list(info.key):
                self._take(_node(info.storage_key, obj), obj)

    def on_event(self, event: Event) -> None:
        node = _node(event.key, event.obj)
        if event.type != "DELETED":
            self._take(node, event.obj)
            return
        for owner in self._owners.pop(node.uid, set()):
            self._dependents[owner].discard(node)
            # An owner that is deleted in the foreground may be waiting for this one.
            self._look_again(owner)
            if not self._dependents[owner]:
                del self._dependents[owner]
        for dependent in self._dependents.get(node.uid, ()):
            self.queue.add(dependent)

    def _take(self, node: Node, obj: Obj) -> None:
        owners = {reference["uid"] for reference in meta(obj).get("ownerReferences") or ()}
        before = self._owners.get(node.uid, set())
        if owners != before:
            for uid in before - owners:
                self._dependents[uid].discard(node)
                self._look_again(uid)
            for uid in owners:
                self._dependents[uid].add(node)
            self._owners[node.uid] = owners
            self.queue.add(node)
        if deleting(obj) and {FOREGROUND, ORPHAN} & set(meta(obj).get("finalizers") or ()):
            self.queue.add(node)

    def _look_again(self, uid: str) -> None:
        """Puts an owner into the queue again; it is found among the waiting ones by its uid."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            self.queue.add(waiting)

    async def handle(self, item: Hashable) -> float | None:
        assert isinstance(item, Node)
        obj = self._find(item)
        if obj is None:
            self._waiting.pop(item.uid, None)
            return None
        finalizers = meta(obj).get("finalizers") or ()
        if deleting(obj):
            if ORPHAN in finalizers:
                self._orphan(item)
            elif FOREGROUND in finalizers:
                self._foreground(item)
            return None
        self._dependent(item, obj)
        return None

    def _find(self, node: Node) -> Obj | None:
        try:
            obj = self.store.find(node.key, node.namespace or None, node.name)
        except ApiError:
            # The kind is not served any more.
            return None
        return obj if obj is not None and meta(obj)["uid"] == node.uid else None

    def _dependent(self, node: Node, obj: Obj) -> None:
        """Deletes a dependent whose owners are all gone or wait for it; forgets the gone ones where some stay."""
        references = meta(obj).get("ownerReferences") or []
        if not references:
            return
        stay, gone, waiting = [], [], []
        for reference in references:
            owner = self._owner(reference, node.namespace)
            if owner is None:
                gone.append(reference)
            elif deleting(owner) and FOREGROUND in (meta(owner).get("finalizers") or ()):
                waiting.append(reference)
            else:
                stay.append(reference)
        if stay:
            if gone or waiting:
                self._write(node, lambda current: _drop_owners(current, {r["uid"] for r in (*gone, *waiting)}))
            return
        policy = "Foreground" if waiting and self._dependents.get(node.uid) else "Background"
        self.store.delete(node.key, node.namespace or None, node.name, uid=node.uid, propagation=policy)

    def _owner(self, reference: Obj, namespace: str) -> Obj | None:
        info = self.store.resources.find_kind(reference["apiVersion"], reference["kind"])
        if info is None:
            return {"metadata": {"uid": reference["uid"]}}
        owner = self.store.find(info.key, namespace if info.namespaced else None, reference["name"])
        return owner if owner is not None and meta(owner)["uid"] == reference["uid"] else None

    def _foreground(self, node: Node) -> None:
        blocking = False
        for dependent in sorted(self._dependents.get(node.uid, ())):
            obj = self._find(dependent)
            if obj is None:
                continue
            references = meta(obj).get("ownerReferences") or ()
            blocking |= any(r["uid"] == node.uid and r.get("blockOwnerDeletion") for r in references)
            if not deleting(obj):
                self.queue.add(dependent)
        if blocking:
            self._waiting[node.uid] = node
            return
        self._waiting.pop(node.uid, None)
        self._write(node, lambda current: _drop_finalizer(current, FOREGROUND))

    def _orphan(self, node: Node) -> None:
        for dependent in sorted(self._dependents.get(node.uid, ())):
            if self._find(dependent) is not None:
                self._write(dependent, lambda current: _drop_owners(current, {node.uid}))
        self._write(node, lambda current: _drop_finalizer(current, ORPHAN))

    def _write(self, node: Node, change: Callable[[Obj], None]) -> None:
        self.store.mutate(node.key, node.namespace or None, node.name, change)


def _node(key: str, obj: Obj) -> Node:
    m = meta(obj)
    return Node(key, m.get("namespace", ""), m["name"], m["uid"])


def _drop_owners(obj: Obj, uids: set[str]) -> None:
    meta(obj)["ownerReferences"] = [r for r in meta(obj).get("ownerReferences") or () if r["uid"] not in uids]


def _drop_finalizer(obj: Obj, finalizer: str) -> None:
    meta(obj)["finalizers"] = [f for f in meta(obj).get("finalizers") or () if f != finalizer]
