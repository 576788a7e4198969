"""CustomResourceDefinitions at work: a stored definition is served at once, a deleted one takes its objects along."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.strategies.custom import CustomStrategy
from taintctl.sandbox.resources import ResourceInfo

if TYPE_CHECKING:
    from taintctl.sandbox.store import Event, Store

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def served_version(definition: Object) -> Object:
    """The one version that the sandbox serves of a definition; validation has seen to it that there is one."""
    version: Object = definition["spec"]["versions"][0]
    return version


def resource_of(definition: Object) -> ResourceInfo:
    """The resource that a valid definition describes."""
    spec = definition["spec"]
    names = spec["names"]
    version = served_version(definition)
    return ResourceInfo(
        group=spec["group"],
        versions=(version["name"],),
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(sorted(version.get("subresources") or {})),
        has_generation=True,
        custom=True,
    )


def follow_definitions(store: Store) -> None:
    """Keeps the store's registry in step with the definitions it holds."""

    def on_change(event: Event) -> None:
        info = resource_of(event.obj)
        if event.type == "DELETED":
            for obj in store.list(info.key):
                meta = obj["metadata"]
                namespace = meta.get("namespace")
                store.mutate(info.key, namespace, meta["name"], _without_finalizers)
                if store.find(info.key, namespace, meta["name"]) is not None:
                    store.delete(info.key, namespace, meta["name"])
            store.resources.unregister(info.key)
            return
        old = event.old
        if old is None or old["spec"] != event.obj["spec"]:
            store.resources.register(info, CustomStrategy(served_version(event.obj)))

    store.subscribe(DEFINITIONS, on_change)


def _without_finalizers(obj: Object) -> None:
    obj["metadata"].pop("finalizers", None)
