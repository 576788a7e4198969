"""The condition `EvictionInProgress` of a DeviceTaintRule, word for word. Pure.

Source: maybeUpdateRuleStatus of pkg/controller/devicetainteviction (Kubernetes 1.36) and the recordings 02 to 09.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONDITION = "EvictionInProgress"


@dataclass(frozen=True)
class Counts:
    """What the controller counts for one rule at one moment."""

    published: int = 0
    """Devices in slices of the newest generation that the rule selects."""
    allocated: int = 0
    """Allocation results that the rule selects: a device shared by two claims counts twice."""
    pods: int = 0
    """Pods not yet marked for deletion that the rule evicts, or would."""
    namespaces: int = 0
    evicted: int = 0
    """Pods evicted because of the rule since the controller started."""


def condition(rule: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    """The condition without its lastTransitionTime."""
    effect = rule["spec"]["taint"]["effect"]
    status, reason, message = _by_effect(effect, counts)
    if counts.evicted:
        message += " " if message else ""
        message += f"{_pods(counts.evicted)} evicted since starting the controller."
    return {
        "type": CONDITION,
        "status": status,
        "observedGeneration": rule["metadata"]["generation"],
        "reason": reason,
        "message": message,
    }


def _by_effect(effect: str, counts: Counts) -> tuple[str, str, str]:
    if effect == "NoExecute":
        if counts.pods:
            verb = "needs" if counts.pods == 1 else "need"
            message = f"{_pods(counts.pods)} {verb} to be evicted in {_namespaces(counts.namespaces)}."
            return "True", "PodsPendingEviction", message
        return "False", "Completed" if counts.evicted else "NotStarted", ""
    if effect == "None":
        message = (
            f"{_devices(counts.published, 'published')} selected. {_devices(counts.allocated, 'allocated')} selected. "
            f"{_pods(counts.pods)} would be evicted in {_namespaces(counts.namespaces)} if the effect was NoExecute. "
            "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
        return "False", "NoEffect", message
    return "False", "OtherEffect", "Eviction only happens for the NoExecute effect."


def _devices(count: int, kind: str) -> str:
    return f"{count} {kind} device{'' if count == 1 else 's'}"


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"


def _namespaces(count: int) -> str:
    return "1 namespace" if count == 1 else f"{count} different namespaces"
