"""Namespaces: nothing is created in one that is not there or going.

A deleted one stays Terminating until the namespace controller (controlplane/namespaces.py) has emptied it.
"""

from __future__ import annotations

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.resources import ResourceInfo
from taintctl.sandbox.store import Store

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
