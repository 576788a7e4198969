"""Namespaces: nothing is created in one that is not there or going, and a deleted one takes its objects along."""

from __future__ import annotations

from collections.abc import Callable

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.resources import ResourceInfo
from taintctl.sandbox.store import Event, Store

INITIAL = ("default", "kube-node-lease", "kube-public", "kube-system")
_IMMORTAL = ("default", "kube-public", "kube-system")


def ensure_initial(store: Store) -> None:
    """Creates the namespaces that every cluster has."""
    for name in INITIAL:
        if store.find("namespaces", None, name) is None:
            store.create("namespaces", {"metadata": {"name": name}})


def check_creation(store: Store, info: ResourceInfo, namespace: str, name: str) -> None:
    """Upstream's NamespaceLifecycle admission: 404 for no such namespace, 403 for one that is going."""
    if not info.namespaced:
        return
    found = store.find("namespaces", None, namespace)
    if found is None:
        raise errors.not_found("namespaces", "", namespace)
    if found["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise errors.forbidden(info.plural, info.group, name, why)


def check_deletion(info: ResourceInfo, name: str) -> None:
    if info.key == "namespaces" and name in _IMMORTAL:
        raise errors.forbidden("namespaces", "", name, "this namespace may not be deleted")


def follow_deletions(store: Store) -> Callable[[], None]:
    """Empties namespaces that are being deleted, and lets them go when they are empty; returns what ends it."""

    def on_event(event: Event) -> None:
        if event.key == "namespaces" and event.type == "MODIFIED" and _is_going(event.obj):
            _empty(store, event.obj["metadata"]["name"])
            return
        namespace = event.obj["metadata"].get("namespace")
        if event.type == "DELETED" and namespace:
            going = store.find("namespaces", None, namespace)
            if going is not None and _is_going(going):
                _finish(store, namespace)

    return store.subscribe(None, on_event)


def _is_going(namespace: Object) -> bool:
    return bool(namespace["metadata"].get("deletionTimestamp")) and bool(namespace["spec"].get("finalizers"))


def _contents(store: Store, namespace: str) -> list[tuple[str, Object]]:
    return [
        (info.key, obj)
        for info in store.resources
        if info.namespaced and not info.storage
        for obj in store.list(info.key, namespace)
    ]


def _empty(store: Store, namespace: str) -> None:
    for key, obj in _contents(store, namespace):
        if not obj["metadata"].get("deletionTimestamp") and store.find(key, namespace, obj["metadata"]["name"]):
            store.delete(key, namespace, obj["metadata"]["name"])
    _finish(store, namespace)


def _finish(store: Store, namespace: str) -> None:
    if _contents(store, namespace):
        return

    def release(draft: Object) -> None:
        draft["spec"]["finalizers"] = []

    if store.find("namespaces", None, namespace) is not None:
        store.mutate("namespaces", None, namespace, release, subresource="finalize")
