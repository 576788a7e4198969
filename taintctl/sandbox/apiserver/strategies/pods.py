"""Pods: defaults as in tests/recordings/01-objects.json, graceful deletion, what may change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from taintctl.sandbox.apiserver.errors import FieldError, forbidden_field, required
from taintctl.sandbox.apiserver.meta import Object, copied
from taintctl.sandbox.apiserver.strategies.base import Strategy

_NODE_PROBLEMS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_MUTABLE = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
_UPDATE_REFUSED = (
    f"pod updates may not change fields other than {_MUTABLE}(only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodStrategy(Strategy):
    """A pod on a node ends gracefully; one without a node, or that has ended, goes at once."""

    status_takes_metadata = True

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        for part in ("containers", "initContainers"):
            for container in spec.get(part) or []:
                _default_container(container)
        spec.setdefault("restartPolicy", "Always")
        spec.setdefault("terminationGracePeriodSeconds", 30)
        spec.setdefault("dnsPolicy", "ClusterFirst")
        spec.setdefault("securityContext", {})
        spec.setdefault("schedulerName", "default-scheduler")
        spec.setdefault("priority", 0)
        spec.setdefault("enableServiceLinks", True)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
        for toleration in spec.get("tolerations") or []:
            if toleration.get("operator") == "Equal":
                # The API reads an absent operator as Equal, and writes neither out.
                toleration.pop("operator")

    def prepare_create(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"]
        tolerations = list(spec.get("tolerations") or [])
        for key in _NODE_PROBLEMS:
            if not any(_tolerates_no_execute(one, key) for one in tolerations):
                tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        spec["tolerations"] = tolerations
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        spec = obj["spec"]
        if old is None:
            return list(_spec_problems(spec))
        if subresource is None and not _only_allowed_changes(spec, old["spec"]):
            return [forbidden_field("spec", _UPDATE_REFUSED)]
        return []

    def grace_seconds(self, obj: Object, asked: int | None) -> int | None:
        spec = obj["spec"]
        if not spec.get("nodeName") or obj.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        seconds = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return 1 if seconds < 0 else int(seconds)


def _default_container(container: Object) -> None:
    container.setdefault("resources", {})
    resources = container["resources"]
    limits = resources.get("limits") or {}
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = container.get("image") or ""
    tag = image.rpartition("/")[2].partition(":")[2]
    container.setdefault("imagePullPolicy", "Always" if tag in ("", "latest") and "@" not in image else "IfNotPresent")
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")


def _tolerates_no_execute(toleration: Object, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def qos_class(spec: Object) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory only (upstream's `ComputePodQOS`)."""
    requests: list[str] = []
    guaranteed = True
    for container in [*(spec.get("containers") or []), *(spec.get("initContainers") or [])]:
        resources = container.get("resources") or {}
        limits, asked = resources.get("limits") or {}, resources.get("requests") or {}
        requests += [name for name in (*limits, *asked) if name in ("cpu", "memory")]
        guaranteed = guaranteed and all(
            name in limits and asked.get(name) == limits[name] for name in ("cpu", "memory")
        )
    if not requests:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _spec_problems(spec: Object) -> Iterator[FieldError]:
    containers = spec.get("containers") or []
    if not containers:
        yield required("spec.containers")
    claims = {one.get("name") for one in spec.get("resourceClaims") or []}
    for index, container in enumerate(containers):
        for part in ("name", "image"):
            if not container.get(part):
                yield required(f"spec.containers[{index}].{part}")
        for at, claim in enumerate((container.get("resources") or {}).get("claims") or []):
            if claim.get("name") not in claims:
                field = f"spec.containers[{index}].resources.claims[{at}]"
                yield FieldError("FieldValueNotFound", f"{field}.name", f'Not found: "{claim.get("name")}"')
    for index, claim in enumerate(spec.get("resourceClaims") or []):
        if bool(claim.get("resourceClaimName")) == bool(claim.get("resourceClaimTemplateName")):
            why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield FieldError("FieldValueInvalid", f"spec.resourceClaims[{index}]", f"Invalid value: {why}")


def _only_allowed_changes(spec: Object, before: Object) -> bool:
    """Whether an update changes only what may change; tolerations may only be added to."""
    tolerations = spec.get("tolerations") or []
    kept = all(one in tolerations for one in before.get("tolerations") or [])
    return kept and _fixed(spec) == _fixed(before)


def _fixed(spec: Object) -> Any:
    fixed = copied(spec)
    for part in ("containers", "initContainers"):
        for container in fixed.get(part) or []:
            container.pop("image", None)
    fixed.pop("activeDeadlineSeconds", None)
    fixed.pop("tolerations", None)
    return fixed
