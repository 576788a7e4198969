"""Which claims a pod uses, and which devices its extended resources ask for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from taintctl.cel.quantity import parse_quantity
from taintctl.sandbox.controlplane.objects import EXTENDED_RESOURCE_CLAIM, Obj, meta, owned_by, ref

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""Every class can be asked for under this name, with or without an extendedResourceName (KEP-5004)."""


class UsedClaim(NamedTuple):
    """A claim that a pod's spec names."""

    name: str | None
    """None while the claim of a template is not made yet."""
    must_own: bool
    """Made from a template: it counts only if this pod owns it."""


def used_claims(pod: Mapping[str, Any]) -> Iterator[UsedClaim]:
    """The claims of `spec.resourceClaims`; not those behind extended resources, as upstream's resourceclaim.Name."""
    statuses = {s["name"]: s for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        if entry.get("resourceClaimName"):
            yield UsedClaim(entry["resourceClaimName"], False)
            continue
        status = statuses.get(entry["name"])
        if status is None:
            yield UsedClaim(None, True)
        elif status.get("resourceClaimName"):
            yield UsedClaim(status["resourceClaimName"], True)
        # A status without a name says that no claim is needed.


def is_for_pod(claim: Mapping[str, Any], pod: Mapping[str, Any], must_own: bool) -> bool:
    return not must_own or owned_by(claim, pod)


def reserved_for(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    uid = meta(pod)["uid"]
    return any(consumer.get("uid") == uid for consumer in (claim.get("status") or {}).get("reservedFor") or ())


def consumer_of(pod: Mapping[str, Any]) -> Obj:
    """The entry of a pod in `status.reservedFor`."""
    return {"resource": "pods", "name": meta(pod)["name"], "uid": meta(pod)["uid"]}


def allocation_results(claim: Mapping[str, Any]) -> list[Obj]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


class ExtendedRequest(NamedTuple):
    """A container's request for an extended resource."""

    container: str
    resource: str
    request: str
    """The name of the request in the claim: `container-0-request-0`."""
    devices: int


def extended_requests(pod: Mapping[str, Any]) -> list[ExtendedRequest]:
    """What a pod's containers ask for beyond the resources that every node has, in upstream's order and naming."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    result = []
    for index, container in enumerate(containers):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        extended = sorted(name for name in wanted if "/" in name and not name.startswith("kubernetes.io/"))
        position = 0
        for name in extended:
            count = int(parse_quantity(str(wanted[name])))
            if count <= 0:
                continue
            result.append(ExtendedRequest(container["name"], name, f"container-{index}-request-{position}", count))
            position += 1
    return result


def class_of(resource: str, classes: Iterable[Obj]) -> Obj | None:
    """The DeviceClass behind an extended resource; of several the newest, then the first by name (KEP-5004)."""
    found = [
        c for c in classes if resource in (c["spec"].get("extendedResourceName"), IMPLICIT_PREFIX + meta(c)["name"])
    ]
    if not found:
        return None
    newest = max(meta(c).get("creationTimestamp", "") for c in found)
    return min((c for c in found if meta(c).get("creationTimestamp", "") == newest), key=lambda c: str(meta(c)["name"]))


def extended_claim(pod: Mapping[str, Any], requests: Iterable[tuple[ExtendedRequest, Obj]]) -> Obj:
    """The claim that the scheduler makes for a pod's extended resources (recording 01), without its allocation."""
    owner = ref(pod)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": f"{owner.name}-extended-resources-",
            "namespace": owner.namespace,
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "ownerReferences": [controller_reference(pod)],
            "finalizers": ["resource.kubernetes.io/delete-protection"],
        },
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": request.request,
                        "exactly": {
                            "deviceClassName": meta(device_class)["name"],
                            "allocationMode": "ExactCount",
                            "count": request.devices,
                        },
                    }
                    for request, device_class in requests
                ]
            }
        },
    }


def extended_status(requests: Iterable[ExtendedRequest], claim_name: str) -> Obj:
    """`status.extendedResourceClaimStatus` of the pod."""
    return {
        "requestMappings": [
            {"containerName": r.container, "resourceName": r.resource, "requestName": r.request} for r in requests
        ],
        "resourceClaimName": claim_name,
    }


def controller_reference(pod: Mapping[str, Any]) -> Obj:
    owner = ref(pod)
    return {"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid, "controller": True}
