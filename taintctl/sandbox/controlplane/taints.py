"""Taints and tolerations of devices and of nodes, as Kubernetes 1.36.2 reads them. Pure.

Sources: k8s.io/dynamic-resource-allocation/resourceclaim (ToleratesTaint), pkg/controller/devicetainteviction
(ruleMatchesDevice), and the recordings 02, 08 and 09.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

NO_SCHEDULE = "NoSchedule"
NO_EXECUTE = "NoExecute"
NONE = "None"


class DeviceID(NamedTuple):
    """A device's address; the hardware behind it may change."""

    driver: str
    pool: str
    device: str


def rule_matches(rule: Mapping[str, Any], device: DeviceID) -> bool:
    """Whether a DeviceTaintRule selects a device: no selector selects none, an empty one every device."""
    selector = rule["spec"].get("deviceSelector")
    if selector is None:
        return False
    return all(
        selector.get(field) in (None, value)
        for field, value in (("driver", device.driver), ("pool", device.pool), ("device", device.device))
    )


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether one toleration covers one taint. The same for devices and nodes; absent effect or key match all."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def blocks_allocation(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a device with this taint is not given to a request with these tolerations."""
    if taint.get("effect") not in (NO_SCHEDULE, NO_EXECUTE):
        return False
    return not any(tolerates(toleration, taint) for toleration in tolerations)


def tolerated_seconds(taint: Mapping[str, Any], tolerations: Iterable[Mapping[str, Any]]) -> float | None:
    """How long a NoExecute taint is tolerated: 0 for not at all, None for ever.

    For devices only a toleration whose effect is spelled NoExecute counts (recording 08); one without seconds wins
    over all others, otherwise the shortest does; negative counts as 0.
    """
    shortest: float | None = None
    for toleration in tolerations:
        if toleration.get("effect") != NO_EXECUTE or not tolerates(toleration, taint):
            continue
        seconds = toleration.get("tolerationSeconds")
        if seconds is None:
            return None
        shortest = max(0.0, float(seconds)) if shortest is None else min(shortest, max(0.0, float(seconds)))
    return shortest if shortest is not None else 0.0


def pod_tolerated_seconds(taints: Iterable[Mapping[str, Any]], pod: Mapping[str, Any]) -> float | None:
    """How long a pod may stay on a node with these NoExecute taints: 0 for not at all, None for ever.

    As pkg/controller/tainteviction: every taint has to be tolerated; the shortest of the tolerations used counts.
    """
    tolerations = pod["spec"].get("tolerations") or ()
    shortest: float | None = None
    for taint in taints:
        used = [t for t in tolerations if tolerates(t, taint)]
        if not used:
            return 0.0
        for toleration in used:
            seconds = toleration.get("tolerationSeconds")
            if seconds is not None:
                seconds = max(0.0, float(seconds))
                shortest = seconds if shortest is None else min(shortest, seconds)
    return shortest


def schedulable_on(node: Mapping[str, Any], pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first taint of the node that keeps the pod away, None if there is none."""
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") in (NO_SCHEDULE, NO_EXECUTE) and not any(tolerates(t, taint) for t in tolerations):
            found: Mapping[str, Any] = taint
            return found
    return None
