"""Which resources the sandbox serves, and under which versions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taintctl.sandbox.apiserver.strategies.base import Strategy

KUBERNETES_VERSIONS = ("1.37", "1.36")
"""The releases the sandbox can be: 1.37 serves DeviceTaintRule at v1, 1.36 at v1beta2."""


@dataclass(frozen=True)
class ResourceInfo:
    """One resource as discovery lists it."""

    group: str
    """The API group; empty for the core group."""
    versions: tuple[str, ...]
    """The served versions, newest first. Objects are kept in one form; versions differ in name only."""
    plural: str
    singular: str
    kind: str
    namespaced: bool
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    """Whether a change of anything but metadata and status bumps `metadata.generation`."""
    custom: bool = False
    """Defined by a CustomResourceDefinition: merge patches only, and its list items carry apiVersion and kind."""
    storage: str = ""
    """The key of the resource that holds the objects, where it is another one (events.k8s.io over core events)."""

    @property
    def key(self) -> str:
        """What the store's methods take: `pods`, `resourceclaims.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_key(self) -> str:
        return self.storage or self.key

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def api_version(self) -> str:
        """`apiVersion` in the newest served version."""
        return self.api_version_of(self.versions[0])

    def api_version_of(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _one(
    group: str,
    version: str,
    plural: str,
    kind: str,
    *,
    namespaced: bool = True,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    sub: tuple[str, ...] = (),
    generation: bool = False,
    storage: str = "",
) -> ResourceInfo:
    return ResourceInfo(
        group=group,
        versions=(version,),
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=namespaced,
        short_names=short,
        categories=categories,
        subresources=sub,
        has_generation=generation,
        storage=storage,
    )


_DRA = "resource.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_ALL = ("all",)

BUILTIN: tuple[ResourceInfo, ...] = (
    _one("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), sub=("status", "finalize")),
    _one("", "v1", "nodes", "Node", namespaced=False, short=("no",), sub=("status",)),
    _one(
        "",
        "v1",
        "pods",
        "Pod",
        short=("po",),
        categories=_ALL,
        sub=("status", "binding", "eviction"),
        generation=True,
    ),
    _one("", "v1", "events", "Event", short=("ev",)),
    _one("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
    _one("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    _one("", "v1", "secrets", "Secret"),
    _one("", "v1", "services", "Service", short=("svc",), categories=_ALL, sub=("status",)),
    _one("events.k8s.io", "v1", "events", "Event", short=("ev",), storage="events"),
    _one(_DRA, "v1", "resourceslices", "ResourceSlice", namespaced=False, generation=True),
    _one(_DRA, "v1", "deviceclasses", "DeviceClass", namespaced=False, generation=True),
    _one(_DRA, "v1", "resourceclaims", "ResourceClaim", sub=("status",)),
    _one(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    _one(_DRA, "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False, sub=("status",), generation=True),
    _one(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), sub=("status",), generation=True
    ),
    _one("coordination.k8s.io", "v1", "leases", "Lease"),
    _one(
        "apps", "v1", "deployments", "Deployment", short=("deploy",), categories=_ALL, sub=("status",), generation=True
    ),
    _one(
        "apps", "v1", "statefulsets", "StatefulSet", short=("sts",), categories=_ALL, sub=("status",), generation=True
    ),
    _one("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), categories=_ALL, sub=("status",), generation=True),
    _one("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), categories=_ALL, sub=("status",), generation=True),
    _one("batch", "v1", "jobs", "Job", categories=_ALL, sub=("status",), generation=True),
    _one("batch", "v1", "cronjobs", "CronJob", short=("cj",), categories=_ALL, sub=("status",), generation=True),
    _one(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    _one(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _one(_RBAC, "v1", "roles", "Role"),
    _one(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _one(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short=("crd", "crds"),
        categories=("api-extensions",),
        sub=("status",),
        generation=True,
    ),
    _one(
        _ADMISSION,
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
        categories=("api-extensions",),
        sub=("status",),
        generation=True,
    ),
    _one(
        _ADMISSION,
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
        categories=("api-extensions",),
        generation=True,
    ),
)

RULES = f"devicetaintrules.{_DRA}"


class Registry:
    """The resources served now: the built-in ones, and those that CustomResourceDefinitions add."""

    def __init__(self, kubernetes: str = "1.37") -> None:
        self._by_key: dict[str, ResourceInfo] = {info.key: info for info in BUILTIN}
        self._strategies: dict[str, Strategy] = {}
        self.generation = 0
        """Goes up with every change, so that discovery and OpenAPI know when to build themselves anew."""
        self.use_kubernetes(kubernetes)

    def use_kubernetes(self, version: str) -> None:
        """Serves what that release serves; ValueError for one the sandbox does not know."""
        if version not in KUBERNETES_VERSIONS:
            raise ValueError(f"Kubernetes {version} is not one of {', '.join(KUBERNETES_VERSIONS)}")
        self.kubernetes = version
        rule_version = "v1" if version == "1.37" else "v1beta2"
        self._by_key[RULES] = replace(self._by_key[RULES], versions=(rule_version,))
        self.generation += 1

    def get(self, key: str) -> ResourceInfo:
        """The resource of that key; KeyError with the key when there is none."""
        return self._by_key[key]

    def find(self, group: str, version: str, plural: str) -> ResourceInfo | None:
        info = self._by_key.get(f"{plural}.{group}" if group else plural)
        return info if info is not None and version in info.versions else None

    def find_kind(self, api_version: str, kind: str) -> ResourceInfo | None:
        """The resource of an `apiVersion` and `kind`, as owner references and manifests name it."""
        group, _, version = api_version.rpartition("/")
        for info in self._by_key.values():
            if info.kind == kind and info.group == group and version in info.versions:
                return info
        return None

    def strategy(self, key: str) -> Strategy | None:
        """The strategy of a custom resource; None for a built-in one."""
        return self._strategies.get(key)

    def register(self, info: ResourceInfo, strategy: Strategy) -> None:
        """Serves a custom resource, or replaces what was registered for its key."""
        self._by_key[info.key] = info
        self._strategies[info.key] = strategy
        self.generation += 1

    def unregister(self, key: str) -> None:
        if self._by_key.pop(key, None) is not None:
            self._strategies.pop(key, None)
            self.generation += 1

    def __iter__(self) -> Iterator[ResourceInfo]:
        return iter(tuple(self._by_key.values()))
