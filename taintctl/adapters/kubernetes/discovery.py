"""What this API server serves: the newest DeviceTaintRule, the other DRA kinds, and whether ours are installed."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.api.base import API_VERSION, GROUP, VERSION
from taintctl.api.check import KINDS
from taintctl.api.text import one_line
from taintctl.ports.errors import NotFound, Unsupported

RESOURCE_GROUP = "resource.k8s.io"
RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
"""Newest first. The fields that we use are the same in all three from 1.35 on, where the effect None came."""
OBJECT_VERSIONS = ("v1", "v1beta2")
"""Of ResourceSlice, ResourceClaim and DeviceClass; v1beta1 nests a device's attributes differently."""
OLDEST = (1, 35)


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _Resource(msgspec.Struct, frozen=True):
    name: str


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] | None = None


class _GroupVersion(msgspec.Struct, frozen=True):
    version: str


class _Group(msgspec.Struct, frozen=True):
    versions: tuple[_GroupVersion, ...] | None = None


@dataclass(frozen=True)
class Discovery:
    """What was found. `rule_version` and `object_version` are None where there is none that we can use."""

    server_version: str
    release: tuple[int, int]
    rule_version: str | None
    object_version: str | None
    missing_kinds: tuple[str, ...]
    """Our CRDs (plural names) that are not installed."""

    def require_rules(self) -> str:
        """The version of DeviceTaintRule. Raises Unsupported with one sentence and the next step."""
        self._require_release()
        if self.rule_version is None:
            raise Unsupported(
                f"This cluster ({self.server_version}) serves no DeviceTaintRule: in 1.36 and before it is off by "
                "default; switch on the feature gate DRADeviceTaintRules and its resource.k8s.io API version "
                "(--runtime-config), or upgrade to 1.37."
            )
        return self.rule_version

    def require_objects(self) -> str:
        """The version of slices, claims and classes. Raises Unsupported."""
        self._require_release()
        if self.object_version is None:
            raise Unsupported(
                f"This cluster ({self.server_version}) serves ResourceSlices and ResourceClaims at neither "
                f"{RESOURCE_GROUP}/v1 nor v1beta2; switch on dynamic resource allocation."
            )
        return self.object_version

    def require_kinds(self) -> None:
        """Raises NotFound where a CRD of ours is missing."""
        if self.missing_kinds:
            raise NotFound(
                f"taintctl's CRDs are not installed ({', '.join(self.missing_kinds)} missing); "
                "install them with `kubectl apply -k deploy/`.",
                status=404,
            )

    def _require_release(self) -> None:
        if self.release < OLDEST:
            raise Unsupported(
                f"This cluster is {self.server_version}; taintctl needs Kubernetes 1.35 or later, where a "
                "DeviceTaintRule can be tried with the effect None before it evicts."
            )


async def discover(client: Client) -> Discovery:
    """Asks the server. Raises ClusterError only where it does not answer: what is missing is a value."""
    version = await client.request("GET", "/version", _Version)
    group = await client.get(path("apis", RESOURCE_GROUP), _Group)
    served = {v.version for v in (group.versions or ())} if group else set()
    resources = {
        name: await _resources(client, RESOURCE_GROUP, name)
        for name in dict.fromkeys((*RULE_VERSIONS, *OBJECT_VERSIONS))
        if name in served
    }
    wanted = {"resourceslices", "resourceclaims", "deviceclasses"}
    ours = await _resources(client, GROUP, VERSION)
    return Discovery(
        server_version=one_line(version.git_version, 64) or f"{version.major}.{version.minor}",
        release=_release(version),
        rule_version=next((v for v in RULE_VERSIONS if "devicetaintrules" in resources.get(v, ())), None),
        object_version=next((v for v in OBJECT_VERSIONS if wanted <= resources.get(v, frozenset())), None),
        missing_kinds=tuple(f"{k.PLURAL}.{API_VERSION.partition('/')[0]}" for k in KINDS if k.PLURAL not in ours),
    )


async def _resources(client: Client, group: str, version: str) -> frozenset[str]:
    found = await client.get(path("apis", group, version), _Resources)
    return frozenset(r.name for r in (found.resources or ())) if found else frozenset()


def _release(version: _Version) -> tuple[int, int]:
    """`1` and `36+` are 1.36; what can't be read counts as 0.0, which is refused."""
    major, minor = (re.match(r"\d{1,6}", part) for part in (version.major, version.minor))
    return (int(major.group()), int(minor.group())) if major and minor else (0, 0)
