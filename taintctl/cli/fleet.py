"""The fleet as `taintctl devices` shows it: each device with who uses it and what taints it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from taintctl.api.base import API_VERSION, LABEL_RUN
from taintctl.api.objects import DeviceTaintRule, Pod, ResourceClaim, ResourceSlice, SliceDevice, Snapshot
from taintctl.api.rule import run_uid_of

EXTENDED = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that the scheduler made for a pod's extended resources (recording 01)."""


@dataclass(frozen=True)
class User:
    """A pod that holds the device, and how."""

    namespace: str
    name: str
    uid: str
    claim: str
    extended: bool
    admin_access: bool
    state: str
    """`Running`, `Terminating`, `Gone` (the claim still names it), or the pod's phase."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class SetTaint:
    """A taint on the device and who set it: `Driver` (in its slice), `MaintenanceRun` or `DeviceTaintRule`."""

    key: str
    value: str
    effect: str
    kind: str
    name: str

    @property
    def text(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"

    @property
    def setter(self) -> str:
        by = {"Driver": "its driver", "MaintenanceRun": f"run {self.name}", "DeviceTaintRule": f"rule {self.name}"}
        return by[self.kind]


@dataclass(frozen=True)
class Device:
    driver: str
    pool: str
    device: str
    node: str
    uuid: str
    published: bool
    users: tuple[User, ...]
    idle_claims: tuple[str, ...]
    """Claims (namespace/name) that have the device allocated with no pod behind them."""
    taints: tuple[SetTaint, ...]


Key = tuple[str, str, str]


def fleet(snapshot: Snapshot, rules: Iterable[DeviceTaintRule], driver: str) -> list[Device]:
    """The driver's devices of each pool's newest generation, and those that only allocations still name."""
    pods = {pod.metadata.uid: pod for pod in snapshot.pods}
    users: dict[Key, list[User]] = {}
    idle: dict[Key, list[str]] = {}
    for claim in snapshot.claims:
        for key, admin in _held(claim, driver).items():
            found = _users(claim, admin, pods)
            users.setdefault(key, []).extend(found)
            if not found:
                idle.setdefault(key, []).append(f"{claim.metadata.namespace}/{claim.metadata.name}")
    published = {(driver, s.spec.pool.name, d.name): (s, d) for s, d in _published(snapshot.slices, driver)}
    rules = tuple(rules)
    devices = []
    for key in sorted({*published, *users, *idle}):
        resource_slice, device = published.get(key, (None, None))
        uuid = (device.attributes or {}).get("uuid") if device else None
        devices.append(
            Device(
                *key,
                node=_node(resource_slice, device),
                uuid=(uuid.string or "") if uuid else "",
                published=device is not None,
                users=tuple(sorted(users.get(key, ()), key=lambda u: (u.key, u.claim))),
                idle_claims=tuple(sorted(idle.get(key, ()))),
                taints=_taints(key, device, rules),
            )
        )
    return devices


def _node(resource_slice: ResourceSlice | None, device: SliceDevice | None) -> str:
    if resource_slice is None or device is None:
        return ""
    return resource_slice.spec.node_name or device.node_name or ""


def _published(slices: Iterable[ResourceSlice], driver: str) -> Iterable[tuple[ResourceSlice, SliceDevice]]:
    own = [s for s in slices if s.spec.driver == driver]
    newest: dict[str, int] = {}
    for found in own:
        newest[found.spec.pool.name] = max(newest.get(found.spec.pool.name, 0), found.spec.pool.generation)
    for found in own:
        if found.spec.pool.generation == newest[found.spec.pool.name]:
            for device in found.spec.devices or ():
                yield found, device


def _held(claim: ResourceClaim, driver: str) -> dict[Key, bool]:
    """The driver's devices that the claim holds, and whether only with adminAccess."""
    held: dict[Key, bool] = {}
    allocation = claim.status.allocation
    for result in (allocation.devices.results if allocation else None) or ():
        if result.driver == driver:
            key = (result.driver, result.pool, result.device)
            held[key] = held.get(key, True) and bool(result.admin_access)
    return held


def _users(claim: ResourceClaim, admin: bool, pods: dict[str, Pod]) -> list[User]:
    extended = (claim.metadata.annotations or {}).get(EXTENDED) == "true"
    found = []
    for reference in claim.status.reserved_for or ():
        pod = pods.get(reference.uid)
        state = "Gone"
        if pod is not None:
            state = "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase or "Pending"
        elif reference.resource != "pods":
            state = reference.resource
        found.append(
            User(claim.metadata.namespace, reference.name, reference.uid, claim.metadata.name, extended, admin, state)
        )
    return found


def _taints(key: Key, device: SliceDevice | None, rules: tuple[DeviceTaintRule, ...]) -> tuple[SetTaint, ...]:
    own = [
        SetTaint(taint.key, taint.value or "", taint.effect, "Driver", key[0])
        for taint in (device.taints if device else None) or ()
    ]
    return (*own, *(_by_rule(rule) for rule in rules if _selects(rule, key)))


def _selects(rule: DeviceTaintRule, key: Key) -> bool:
    """Every given criterion must match; an empty selector is every device, an absent one none (recording 02)."""
    selector = rule.spec.device_selector
    if selector is None:
        return False
    wanted = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(wanted, key, strict=True))


def _by_rule(rule: DeviceTaintRule) -> SetTaint:
    taint = rule.spec.taint
    run = (rule.metadata.labels or {}).get(LABEL_RUN) if run_uid_of(rule) is not None else None
    kind, name = ("MaintenanceRun", run) if run else ("DeviceTaintRule", rule.metadata.name)
    return SetTaint(taint.key, taint.value or "", taint.effect, kind, name)


def document(devices: Iterable[Device]) -> dict[str, Any]:
    """For scripts. Within v1alpha1 fields are added, not renamed."""
    return {"apiVersion": API_VERSION, "kind": "DeviceList", "items": [_item(device) for device in devices]}


def _item(device: Device) -> dict[str, Any]:
    return {
        "driver": device.driver,
        "pool": device.pool,
        "device": device.device,
        "node": device.node,
        "uuid": device.uuid,
        "published": device.published,
        "users": [
            {
                "namespace": user.namespace,
                "name": user.name,
                "uid": user.uid,
                "claim": user.claim,
                "extendedResource": user.extended,
                "adminAccess": user.admin_access,
                "state": user.state,
            }
            for user in device.users
        ],
        "claimsWithoutPod": list(device.idle_claims),
        "taints": [
            {"key": t.key, "value": t.value, "effect": t.effect, "setBy": {"kind": t.kind, "name": t.name}}
            for t in device.taints
        ],
    }
