"""Discovery: which groups, versions and resources there are, in the old form and the aggregated one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.resources import Registry, ResourceInfo

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUB_VERBS = {"binding": ["create"], "eviction": ["create"], "finalize": ["update"]}
_SUB_KINDS = {
    "binding": {"group": "", "version": "v1", "kind": "Binding"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
}

REVIEWS = (
    ResourceInfo(
        "authentication.k8s.io", ("v1",), "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", False
    ),
    ResourceInfo(
        "authorization.k8s.io",
        ("v1",),
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
        False,
    ),
)
"""What can be created and is never stored."""

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def resources(registry: Registry) -> Iterator[ResourceInfo]:
    """Everything that discovery lists."""
    yield from registry
    yield from REVIEWS


def _verbs(info: ResourceInfo) -> list[str]:
    return ["create"] if info in REVIEWS else _VERBS


def group_versions(registry: Registry) -> dict[str, list[str]]:
    """The versions of each group, the core group first."""
    groups: dict[str, list[str]] = {"": ["v1"]}
    for info in resources(registry):
        versions = groups.setdefault(info.group, [])
        versions += [one for one in info.versions if one not in versions]
    # Stable versions before betas, and those before alphas: clients prefer the first.
    return {group: sorted(versions, key=_rank) for group, versions in groups.items()}


def _rank(version: str) -> tuple[int, str]:
    return (2 if "alpha" in version else 1 if "beta" in version else 0, version)


def api_versions() -> Object:
    """/api."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}],
    }


def group(registry: Registry, name: str) -> Object | None:
    """/apis/<group>; None for one that is not served."""
    versions = group_versions(registry).get(name) if name else None
    if not versions:
        return None
    listed = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(registry: Registry) -> Object:
    """/apis."""
    found = (group(registry, name) for name in group_versions(registry) if name)
    groups = [{k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in found if one]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def resource_list(registry: Registry, name: str, version: str) -> Object | None:
    """/api/v1 and /apis/<group>/<version>; None for one that is not served."""
    if version not in group_versions(registry).get(name, []):
        return None
    listed: list[Object] = []
    for info in resources(registry):
        if info.group != name or version not in info.versions:
            continue
        entry: Object = {
            "name": info.plural,
            "singularName": info.singular,
            "namespaced": info.namespaced,
            "kind": info.kind,
            "verbs": _verbs(info),
        }
        if info.short_names:
            entry["shortNames"] = list(info.short_names)
        if info.categories:
            entry["categories"] = list(info.categories)
        listed.append(entry)
        for sub in info.subresources:
            kind = _SUB_KINDS.get(sub)
            more: Object = dict(kind) if kind else {"kind": info.kind}
            listed.append(
                {"name": f"{info.plural}/{sub}", "singularName": "", "namespaced": info.namespaced, **more}
                | {"verbs": _SUB_VERBS.get(sub, ["get", "patch", "update"])}
            )
    full = f"{name}/{version}" if name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": full, "resources": listed}


def aggregated(registry: Registry, *, core: bool) -> Object:
    """/api or /apis in one answer (`apidiscovery.k8s.io/v2`)."""
    items = []
    for name, versions in group_versions(registry).items():
        if core != (not name):
            continue
        listed = [
            {
                "version": version,
                "resources": [
                    _aggregated(replace(info, versions=(version,)), info in REVIEWS)
                    for info in resources(registry)
                    if info.group == name and version in info.versions
                ],
                "freshness": "Current",
            }
            for version in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": listed})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(info: ResourceInfo, is_review: bool) -> Object:
    def kind_of(sub: str = "") -> Object:
        own = {"group": info.group, "version": info.versions[0], "kind": info.kind}
        return _SUB_KINDS.get(sub, own)

    entry: Object = {
        "resource": info.plural,
        "responseKind": kind_of(),
        "scope": "Namespaced" if info.namespaced else "Cluster",
        "singularResource": info.singular,
        "verbs": ["create"] if is_review else _VERBS,
    }
    if info.short_names:
        entry["shortNames"] = list(info.short_names)
    if info.categories:
        entry["categories"] = list(info.categories)
    if info.subresources:
        entry["subresources"] = [
            {"subresource": sub, "responseKind": kind_of(sub), "verbs": _SUB_VERBS.get(sub, ["get", "patch", "update"])}
            for sub in info.subresources
        ]
    return entry
