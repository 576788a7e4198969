"""Small clusters for the tests of impact: built by hand, or read from the recordings."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from taintctl.api.objects import (
    Allocation,
    AllocationResult,
    BudgetSpec,
    BudgetStatus,
    ClaimStatus,
    ConsumerReference,
    Container,
    ContainerExtendedResourceRequest,
    DeviceAllocation,
    DeviceAttribute,
    DeviceClass,
    DeviceClassSpec,
    ExtendedResourceClaimStatus,
    KnownOwner,
    LabelSelector,
    Meta,
    Namespace,
    Node,
    NodeStatus,
    ObjectCondition,
    Owner,
    OwnerSpec,
    Pod,
    PodDisruptionBudget,
    PodSpec,
    PodStatus,
    Pool,
    ResourceClaim,
    ResourceRequirements,
    ResourceSlice,
    SchedulingGroup,
    SliceDevice,
    SliceSpec,
    Snapshot,
    Toleration,
    Unread,
)
from taintctl.api.pools import pool_sizes

RECORDINGS = Path(__file__).parent.parent / "recordings"
NOW = datetime(2026, 12, 1, 21, 0, tzinfo=UTC)
DRIVER = "gpu.example.com"
KEY, VALUE = "gpu.example.com/maintenance", "planned"
"""The taint of every dry run in the recordings."""
FOREVER = Toleration(operator="Exists", effect="NoExecute")


def entries(name: str) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return loaded


def messages(name: str) -> list[tuple[str, dict[str, str] | None, str]]:
    """(case, deviceSelector, message) of every status that carries a dry-run message."""
    found = []
    for entry in entries(name):
        rule = entry.get("response") or {}
        for condition in rule.get("status", {}).get("conditions", ()) if rule.get("kind") == "DeviceTaintRule" else ():
            if condition["reason"] == "NoEffect":
                found.append(
                    (f"{entry['case']}: {entry['what']}", rule["spec"].get("deviceSelector"), condition["message"])
                )
    return found


def recorded_snapshot() -> Snapshot:
    """The cluster of 01-objects.json, as the control plane stored it."""
    lists = {entry["request"]["path"].rsplit("/", 1)[-1]: entry["response"]["items"] for entry in entries("01-objects")}
    slices = tuple(msgspec.convert(item, ResourceSlice, strict=False) for item in lists["resourceslices"])
    return Snapshot(
        slices=slices,
        published=pool_sizes(slices),
        claims=tuple(msgspec.convert(item, ResourceClaim, strict=False) for item in lists["resourceclaims"]),
        pods=tuple(msgspec.convert(item, Pod, strict=False) for item in lists["pods"]),
        nodes=tuple(msgspec.convert(item, Node, strict=False) for item in lists["nodes"]),
        classes=tuple(msgspec.convert(item, DeviceClass, strict=False) for item in lists["deviceclasses"]),
        budgets=(),
        taken_at=NOW,
        live=True,
    )


def snapshot(
    *,
    slices: tuple[ResourceSlice, ...] = (),
    claims: tuple[ResourceClaim, ...] = (),
    pods: tuple[Pod, ...] = (),
    nodes: tuple[Node, ...] = (),
    budgets: tuple[PodDisruptionBudget, ...] = (),
    classes: tuple[DeviceClass, ...] = (),
    owners: tuple[KnownOwner, ...] = (),
    gang_pods: tuple[Pod, ...] = (),
    namespaces: tuple[Namespace, ...] = (),
) -> Snapshot:
    return Snapshot(
        slices=slices,
        published=pool_sizes(slices),
        claims=claims,
        pods=pods,
        nodes=nodes,
        budgets=budgets,
        classes=classes,
        namespaces=namespaces,
        taken_at=NOW,
        live=True,
        owners=owners,
        gang_pods=gang_pods,
    )


def pool(
    name: str, *devices: str, driver: str = DRIVER, generation: int = 1, count: int = 1, part: str = "0"
) -> ResourceSlice:
    """A slice of a pool that is local to the node of its name, each device with a UUID."""
    return ResourceSlice(
        metadata=Meta(name=f"{name}-{driver}-{generation}-{part}"),
        spec=SliceSpec(
            driver=driver,
            pool=Pool(name=name, generation=generation, resource_slice_count=count),
            node_name=name,
            devices=tuple(
                SliceDevice(name=device, attributes={"uuid": DeviceAttribute(string=f"GPU-{name}-{device}")})
                for device in devices
            ),
        ),
    )


def result(
    pool_name: str, device: str, *tolerations: Toleration, admin: bool | None = None, driver: str = DRIVER
) -> AllocationResult:
    return AllocationResult(
        driver=driver, pool=pool_name, device=device, admin_access=admin, tolerations=tolerations or None
    )


def claim(
    name: str,
    *results: AllocationResult,
    users: tuple[str, ...] = (),
    extended: bool = False,
    namespace: str = "team-a",
) -> ResourceClaim:
    """An allocated claim reserved for the pods `users` (each with the uid `uid-<name>`)."""
    return ResourceClaim(
        metadata=Meta(
            name=name,
            namespace=namespace,
            annotations={"resource.kubernetes.io/extended-resource-claim": "true"} if extended else None,
        ),
        status=ClaimStatus(
            allocation=Allocation(devices=DeviceAllocation(results=results)),
            reserved_for=tuple(ConsumerReference(resource="pods", name=user, uid=f"uid-{user}") for user in users),
        ),
    )


def pod(
    name: str,
    *,
    namespace: str = "team-a",
    node: str | None = "n1",
    phase: str = "Running",
    terminating: bool = False,
    labels: dict[str, str] | None = None,
    owner: Owner | None = None,
    group: str | None = None,
    requests: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    init_requests: dict[str, Any] | None = None,
    backed_by: str | None = None,
    mapped: tuple[str, ...] = (),
) -> Pod:
    """`owner` controls it, `group` is its PodGroup.

    `backed_by`: the claim that stands for the pod's extended resources, for those `mapped` of container `c`.
    """
    return Pod(
        metadata=Meta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            labels=labels,
            deletion_timestamp=NOW if terminating else None,
            owner_references=(
                (Owner(api_version="v1", kind="Node", name="other"), msgspec.structs.replace(owner, controller=True))
                if owner
                else None
            ),
        ),
        spec=PodSpec(
            node_name=node,
            scheduling_group=SchedulingGroup(pod_group_name=group) if group else None,
            containers=(Container(name="c", resources=ResourceRequirements(requests=requests, limits=limits)),),
            init_containers=(
                (Container(name="i", resources=ResourceRequirements(requests=init_requests)),)
                if init_requests
                else None
            ),
        ),
        status=PodStatus(
            phase=phase,
            extended_resource_claim_status=(
                ExtendedResourceClaimStatus(
                    resource_claim_name=backed_by,
                    request_mappings=tuple(ContainerExtendedResourceRequest("c", name) for name in mapped) or None,
                )
                if backed_by
                else None
            ),
        ),
    )


def owner(kind: str, name: str, api_version: str = "") -> Owner:
    """A reference to a controller, with the uid `uid-<name>`."""
    usual = {"Job": "batch/v1", "CronJob": "batch/v1", "Pod": "v1"}
    version = api_version or usual.get(kind, "apps/v1")
    return Owner(api_version=version, kind=kind, name=name, uid=f"uid-{name}")


def known(
    what: Owner,
    above: Owner | None = None,
    *,
    unread: Unread | None = None,
    namespace: str = "team-a",
    spec: OwnerSpec | None = None,
) -> KnownOwner:
    """What was read of an owner: who controls it, or why it was not read."""
    return KnownOwner(owner=what, namespace=namespace, controller=above, unread=unread, spec=spec or OwnerSpec())


def node(name: str, *, ready: str | None = "True", since: datetime | None = datetime(2026, 12, 1, tzinfo=UTC)) -> Node:
    conditions = (ObjectCondition(type="Ready", status=ready, last_transition_time=since),) if ready else None
    return Node(metadata=Meta(name=name), status=NodeStatus(conditions=conditions))


def budget(
    name: str,
    selector: LabelSelector | None,
    *,
    allowed: int = 0,
    namespace: str = "team-a",
    generation: int = 1,
    observed: int | None = 1,
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=Meta(name=name, namespace=namespace, generation=generation),
        spec=BudgetSpec(selector=selector),
        status=BudgetStatus(disruptions_allowed=allowed, observed_generation=observed),
    )


def device_class(name: str, extended_resource: str | None) -> DeviceClass:
    return DeviceClass(metadata=Meta(name=name), spec=DeviceClassSpec(extended_resource_name=extended_resource))
