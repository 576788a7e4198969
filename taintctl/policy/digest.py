"""The plan that people approve, as one digest, and kept small enough to tell a smaller plan from a larger one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable

from taintctl.api.plan import Plan, PlannedDevice, Violation
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.run import CompactPlan

ENTRY_BYTES = 8
"""Bytes of a SHA-256 kept of a device or a pod's uid: 10,000 pods are 107 kB of base64."""

_WORST_FIRST = tuple(PodEffect)


def digest(plan: Plan, policy: EvictionPolicy, violations: Iterable[Violation] = ()) -> str:
    """64 hex digits over what an approval is for: the devices with their UUIDs, each pod's uid and effect, the
    policy's uid and generation, and what is violated. Terminating pods are not in it: nothing happens to them.
    """
    canonical = [
        [policy.metadata.name, policy.metadata.uid, policy.metadata.generation],
        sorted(_device(device) for device in plan.devices),
        sorted([pod.uid, pod.effect.value] for pod in plan.pods if not pod.terminating),
        sorted({_violation(violation) for violation in violations}),
    ]
    return hashlib.sha256(json.dumps(canonical, separators=(",", ":")).encode()).hexdigest()


def compact(plan: Plan, policy: EvictionPolicy, violations: Iterable[Violation] = ()) -> CompactPlan:
    """What `covers` needs of an approved plan, for a run's status: its size grows by 11 bytes a pod."""
    said = tuple(violations)
    return CompactPlan(
        digest=digest(plan, policy, said),
        policy_generation=policy.metadata.generation,
        policy_uid=policy.metadata.uid,
        devices=_pack(_device(device) for device in plan.devices),
        pods={
            effect.value: packed
            for effect in PodEffect
            if (packed := _pack([pod.uid] for pod in plan.pods if pod.effect is effect and not pod.terminating))
        },
        violations=tuple(sorted({_violation(violation) for violation in said})),
    )


def covers(approved: CompactPlan, plan: Plan, policy: EvictionPolicy, violations: Iterable[Violation] = ()) -> bool:
    """Whether `plan` is the approved one or a smaller: same policy and generation; every device (with its UUID) and
    every pod (uid) was in it, none with a worse effect; no new violation. What cannot be read covers nothing.

    Worst first: Evicted (deleted at once, no budget asked), EvictedLater (the same, but with time to end by itself),
    NotReachedByTaint (taintctl evicts it, and a budget can say no), Tolerates (stays). Better is smaller.
    """
    if (policy.metadata.uid, policy.metadata.generation) != (approved.policy_uid, approved.policy_generation):
        return False
    try:
        devices = _unpack(approved.devices)
        allowed = {uid: PodEffect(effect) for effect, packed in approved.pods.items() for uid in _unpack(packed)}
    except ValueError:
        return False
    rank = _WORST_FIRST.index
    return (
        all(_entry(_device(device)) in devices for device in plan.devices)
        and all(
            (was := allowed.get(_entry([pod.uid]))) is not None and rank(was) <= rank(pod.effect)
            for pod in plan.pods
            if not pod.terminating
        )
        and {_violation(violation) for violation in violations} <= set(approved.violations)
    )


def _device(device: PlannedDevice) -> list[str]:
    return [device.id.driver, device.id.pool, device.id.device, device.uuid]


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
