"""Reading Kubernetes objects: the store's keys, references, timestamps and conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from taintctl.sandbox.apiserver.meta import timestamp

Obj = dict[str, Any]

PODS = "pods"
NODES = "nodes"
NAMESPACES = "namespaces"
EVENTS = "events"
BUDGETS = "poddisruptionbudgets.policy"
REPLICA_SETS = "replicasets.apps"
DEPLOYMENTS = "deployments.apps"
STATEFUL_SETS = "statefulsets.apps"
JOBS = "jobs.batch"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
RULES = "devicetaintrules.resource.k8s.io"

CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"

STOP_AFTER = "sandbox.taintctl.dev/stop-after"
"""Annotation of a pod: how long its containers take to stop, such as `25s`."""
COMPLETE_AFTER = "sandbox.taintctl.dev/complete-after"
"""Annotation of a pod: how long it runs before it succeeds by itself, such as `60s`."""


class Ref(NamedTuple):
    """One instance of a namespaced object: a name may come back, its uid does not."""

    namespace: str
    name: str
    uid: str


def meta(obj: Mapping[str, Any]) -> Obj:
    found: Obj = obj["metadata"]
    return found


def ref(obj: Mapping[str, Any]) -> Ref:
    m = meta(obj)
    return Ref(m.get("namespace", ""), m["name"], m["uid"])


def deleting(obj: Mapping[str, Any]) -> bool:
    return meta(obj).get("deletionTimestamp") is not None


def annotation(obj: Mapping[str, Any], key: str) -> str | None:
    value = (meta(obj).get("annotations") or {}).get(key)
    return None if value is None else str(value)


def phase(pod: Mapping[str, Any]) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def terminal(pod: Mapping[str, Any]) -> bool:
    """The pod has run and will not run again."""
    return phase(pod) in ("Succeeded", "Failed")


def node_name(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "")


_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_duration(text: str) -> float:
    """Seconds of a duration such as `25s` or `1h30m`; ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"{text!r} is not a duration such as 25s or 1h30m")
    hours, minutes, seconds = match.groups()
    return timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0)).total_seconds()


def duration_annotation(obj: Mapping[str, Any], key: str) -> float | None:
    """Seconds of a duration annotation; one that does not parse counts as absent, as kubelets treat theirs."""
    text = annotation(obj, key)
    if text is None:
        return None
    try:
        return parse_duration(text)
    except ValueError:
        return None


def condition(obj: Mapping[str, Any], kind: str) -> Obj | None:
    for found in (obj.get("status") or {}).get("conditions") or ():
        if found.get("type") == kind:
            return dict(found)
    return None


def is_true(obj: Mapping[str, Any], kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def set_condition(obj: Obj, new: Obj, now: datetime) -> bool:
    """Writes a condition into the status in place; lastTransitionTime moves with the status. Says if it changed."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    for index, old in enumerate(conditions):
        if old.get("type") != new["type"]:
            continue
        changed = old.get("status") != new["status"]
        merged = {**old, **new}
        merged["lastTransitionTime"] = timestamp(now) if changed else old.get("lastTransitionTime")
        if merged == old:
            return False
        conditions[index] = merged
        return True
    conditions.append({**new, "lastTransitionTime": timestamp(now)})
    return True


def owned_by(obj: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    """`owner` is the controlling owner of `obj`, by uid."""
    return any(
        reference.get("controller") and reference.get("uid") == meta(owner)["uid"]
        for reference in meta(obj).get("ownerReferences") or ()
    )


def labels_match(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """A metav1.LabelSelector; absent matches nothing, empty matches everything."""
    if selector is None:
        return False
    labels = labels or {}
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(requirement_matches(item, labels) for item in selector.get("matchExpressions") or ())


def requirement_matches(requirement: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    """One selector requirement: In, NotIn, Exists, DoesNotExist, and Gt and Lt of node selectors."""
    key, wanted = requirement["key"], requirement.get("values") or []
    actual = values.get(key)
    match requirement.get("operator"):
        case "In":
            return actual in wanted
        case "NotIn":
            return actual not in wanted
        case "Exists":
            return key in values
        case "DoesNotExist":
            return key not in values
        case ("Gt" | "Lt") as operator:
            try:
                left, right = int(values[key]), int(wanted[0])
            except (KeyError, IndexError, ValueError):
                return False
            return left > right if operator == "Gt" else left < right
        case _:
            return False


def node_selector_matches(selector: Mapping[str, Any] | None, node: Mapping[str, Any]) -> bool:
    """A core/v1 NodeSelector: one of its terms has to match; no selector matches every node."""
    if selector is None:
        return True
    labels = meta(node).get("labels") or {}
    fields = {"metadata.name": meta(node)["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(requirement_matches(item, labels) for item in term.get("matchExpressions") or ())
        and all(requirement_matches(item, fields) for item in term.get("matchFields") or ())
        for term in selector.get("nodeSelectorTerms") or ()
    )
