"""The plan that people approve, as one digest, and kept small enough to tell a smaller plan from a larger one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Mapping

from taintctl.api.plan import Plan, PlannedDevice, PlannedPod, Violation
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.run import CompactPlan

ENTRY_BYTES = 8
"""Bytes of a SHA-256 kept of a device or a pod's uid: 10,000 pods are 107 kB of base64."""

_WORST_FIRST = tuple(PodEffect)


def digest(plan: Plan, policy: EvictionPolicy, violations: Iterable[Violation] = (), *, run_uid: str = "") -> str:
    """64 hex digits over what an approval is for: the run, the devices with their UUIDs and PCI addresses, each pod's
    uid and effect, the policy's uid and generation, and what is violated. Terminating pods are not in it: nothing
    happens to them.
    """
    return compact(plan, policy, violations, run_uid=run_uid).digest


def compact(
    plan: Plan, policy: EvictionPolicy, violations: Iterable[Violation] = (), *, run_uid: str = ""
) -> CompactPlan:
    """What `covers` needs of an approved plan, for a run's status: its size grows by 11 bytes a pod.

    Pods that the policy protects stand in it twice."""
    found = tuple(violations)
    unsealed = CompactPlan(
        digest="",
        policy_generation=policy.metadata.generation,
        policy_uid=policy.metadata.uid,
        devices=_pack(parts for device in plan.devices for parts in (_device(device), _name(device))),
        pods={
            effect.value: packed
            for effect in PodEffect
            if (packed := _pack([pod.uid] for pod in plan.pods if pod.effect is effect and not pod.terminating))
        },
        violations=tuple(sorted({_violation(violation) for violation in found})),
        protected=_pack([uid] for uid in {uid for violation in found for uid in violation.pods}),
    )
    return unsealed.model_copy(update={"digest": _seal(unsealed, run_uid)})


def _seal(what: CompactPlan, run_uid: str) -> str:
    """The digest that people approve is over the very fields that are compared later: a status edited to hold more
    than was approved, or one of another run, does not fit it."""
    parts = [
        run_uid,
        what.policy_uid,
        what.policy_generation,
        what.devices,
        sorted(what.pods.items()),
        list(what.violations),
        *([what.protected] if what.protected else []),
    ]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()


def covers(
    approved: CompactPlan,
    plan: Plan,
    policy: EvictionPolicy,
    violations: Iterable[Violation] = (),
    *,
    run_uid: str = "",
) -> bool:
    """Whether `plan` is the approved one or a smaller: same run, policy and generation; every device (with its UUID
    and PCI address) and every pod (uid) was in it, none with a worse effect; no new violation, and no pod that is
    protected now and was not. What cannot be read, or does not fit its own digest, covers nothing.

    Worst first: Evicted (deleted at once, no budget asked), EvictedLater (the same, but with time to end by itself),
    NotReachedByTaint (taintctl evicts it, and a budget can say no), Tolerates (stays). Better is smaller.
    """
    as_asked = (policy.metadata.uid, policy.metadata.generation) == (approved.policy_uid, approved.policy_generation)
    if not as_asked or approved.digest != _seal(approved, run_uid):
        return False
    try:
        devices, allowed = _unpack(approved.devices), _allowed(approved)
        protected = _unpack(approved.protected)
    except ValueError:
        return False
    found = tuple(violations)
    return (
        all(_entry(_device(device)) in devices for device in plan.devices)
        and all(_allows(allowed, pod) for pod in plan.pods if not pod.terminating)
        and {_violation(violation) for violation in found} <= set(approved.violations)
        and all(_entry([uid]) in protected for violation in found for uid in violation.pods)
    )


def uncovered(approved: CompactPlan, plan: Plan, *, run_uid: str = "") -> frozenset[str]:
    """The uids of the pods that `covers` finds fault with, each by itself: not in what was approved, with a worse
    effect, or on a device that was not. Of what cannot be read, all."""
    pods = [pod for pod in plan.pods if not pod.terminating]
    try:
        if approved.digest != _seal(approved, run_uid):
            raise ValueError("edited")
        devices, allowed = _unpack(approved.devices), _allowed(approved)
    except ValueError:
        return frozenset(pod.uid for pod in pods)
    new = {device.id for device in plan.devices if _entry(_device(device)) not in devices}
    return frozenset(pod.uid for pod in pods if not _allows(allowed, pod) or not new.isdisjoint(pod.devices))


def newly_protected(approved: CompactPlan, violations: Iterable[Violation]) -> frozenset[str]:
    """The uids of pods that a policy protects now and did not when the plan was approved; all of them
    where what was approved cannot be read."""
    try:
        known = _unpack(approved.protected)
    except ValueError:
        known = frozenset()
    return frozenset(uid for violation in violations for uid in violation.pods if _entry([uid]) not in known)


def other_hardware(approved: CompactPlan, devices: Iterable[PlannedDevice]) -> tuple[PlannedDevice, ...]:
    """Those of `devices` whose name was in the plan and stood for other hardware then (UUID or PCI address). Of a plan
    that cannot be read, all."""
    try:
        known = _unpack(approved.devices)
    except ValueError:
        return tuple(devices)
    return tuple(d for d in devices if _entry(_name(d)) in known and _entry(_device(d)) not in known)


def _allowed(approved: CompactPlan) -> dict[bytes, PodEffect]:
    return {uid: PodEffect(effect) for effect, packed in approved.pods.items() for uid in _unpack(packed)}


def _allows(allowed: Mapping[bytes, PodEffect], pod: PlannedPod) -> bool:
    was = allowed.get(_entry([pod.uid]))
    return was is not None and _WORST_FIRST.index(was) <= _WORST_FIRST.index(pod.effect)


def _device(device: PlannedDevice) -> list[str]:
    return [*_name(device), device.uuid, device.pci_bus_id]


def _name(device: PlannedDevice) -> list[str]:
    return [device.id.driver, device.id.pool, device.id.device]


def _violation(violation: Violation) -> str:
    """What makes it the same violation: the check and the limit, not by how much it is passed."""
    return f"{violation.check}: {violation.limit}"


def _entry(parts: list[str]) -> bytes:
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).digest()[:ENTRY_BYTES]


def _pack(entries: Iterable[list[str]]) -> str:
    return base64.b64encode(b"".join(sorted(map(_entry, entries)))).decode()


def _unpack(packed: str) -> frozenset[bytes]:
    try:
        raw = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("not base64") from None
    if len(raw) % ENTRY_BYTES:
        raise ValueError("cut short")
    return frozenset(raw[start : start + ENTRY_BYTES] for start in range(0, len(raw), ENTRY_BYTES))
