"""Deleted namespaces: everything in them goes first."""

from __future__ import annotations

from collections.abc import Hashable

from taintctl.sandbox.controlplane.objects import NAMESPACES, Obj, deleting, meta
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event

LOOK_AGAIN = 0.5
"""Seconds until a namespace that is not empty yet is looked at again."""


class Namespaces(Controller):
    """A namespace stays Terminating until nothing is left in it, then its finalizer `kubernetes` is taken off."""

    name = "namespaces"
    watches = frozenset({NAMESPACES})

    def sync(self) -> None:
        for namespace in self.store.list(NAMESPACES):
            self.queue.add(meta(namespace)["name"])

    def on_event(self, event: Event) -> None:
        if event.type != "DELETED" and deleting(event.obj):
            self.queue.add(meta(event.obj)["name"])

    async def handle(self, item: Hashable) -> float | None:
        name = str(item)
        namespace = self.store.find(NAMESPACES, None, name)
        if namespace is None or not deleting(namespace):
            return None
        left = 0
        for info in self.store.resources:
            if not info.namespaced or info.storage_key != info.key:
                continue
            for obj in self.store.list(info.key, name):
                left += 1
                if not deleting(obj):
                    self._delete(info.key, obj)
        if left:
            return LOOK_AGAIN

        def finalize(current: Obj) -> None:
            current["spec"]["finalizers"] = [f for f in current["spec"].get("finalizers") or () if f != "kubernetes"]

        self.store.mutate(NAMESPACES, None, name, finalize, subresource="finalize")
        return None

    def _delete(self, key: str, obj: Obj) -> None:
        try:
            self.store.delete(key, meta(obj)["namespace"], meta(obj)["name"], uid=meta(obj)["uid"])
        except ApiError as error:
            if error.status not in (404, 409):
                raise
