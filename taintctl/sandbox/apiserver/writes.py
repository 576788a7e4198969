"""What the store does to an object on its way in: plain functions over objects."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.meta import Object, parse_time, timestamp
from taintctl.sandbox.apiserver.strategies.base import Strategy
from taintctl.sandbox.resources import ResourceInfo

_WRITTEN_BY = {"status": {"status"}, "binding": {"spec", "status"}, "finalize": {"spec"}}
"""The parts of an object that a write of a subresource takes; everything else stays as it was."""

OPTIONAL_META = ("labels", "annotations", "finalizers", "ownerReferences")
"""Maps and lists that are left out when they are empty."""

_META_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
)


def carry_over(info: ResourceInfo, strategy: Strategy, new: Object, old: Object, subresource: str | None) -> None:
    """Takes from the old object what this write cannot change."""
    before = old["metadata"]
    meta = new["metadata"] = dict(new["metadata"])
    meta["resourceVersion"] = before["resourceVersion"]
    for part in ("uid", "creationTimestamp", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if part in before and not meta.get(part) and meta.get(part) != 0:
            meta[part] = before[part]
    if "generation" in before:
        meta["generation"] = before["generation"]
    else:
        meta.pop("generation", None)
    for part in OPTIONAL_META:
        if not meta.get(part):
            meta.pop(part, None)
    if subresource is None:
        if info.has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]
        return
    kept = _WRITTEN_BY[subresource]
    for part in (set(new) | set(old)) - kept - {"metadata", "apiVersion", "kind"}:
        if part in old:
            new[part] = old[part]
        else:
            new.pop(part)
    if not strategy.status_takes_metadata:
        for part in OPTIONAL_META:
            meta.pop(part, None)
            if part in before:
                meta[part] = before[part]


def note_write(info: ResourceInfo, obj: Object, now: datetime) -> None:
    """When the object was last updated, in managedFields. Kept only of the kinds where somebody asks for it: admission
    policies, whose controller tells since when they hold; without the fields, which nobody asks for."""
    meta = obj["metadata"]
    others = [one for one in meta.get("managedFields") or () if one.get("operation") != "Update"]
    entry = {"manager": "unknown", "operation": "Update", "apiVersion": info.api_version, "time": timestamp(now)}
    meta["managedFields"] = [*others, entry | {"fieldsType": "FieldsV1", "fieldsV1": {}}]


def content(obj: Object) -> Object:
    """What of an object counts for its generation."""
    return {k: v for k, v in obj.items() if k not in {"metadata", "status", "apiVersion", "kind"}}


def ordered(obj: Object) -> Object:
    """The object with kind, apiVersion and metadata first, as people are used to read it."""
    meta = obj["metadata"]
    first: dict[str, Any] = {part: meta[part] for part in _META_ORDER if part in meta}
    obj["metadata"] = first | {part: value for part, value in meta.items() if part not in first}
    head: Object = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": obj["metadata"]}
    head.update({part: value for part, value in obj.items() if part not in head})
    return head


def check_preconditions(info: ResourceInfo, obj: Object, uid: str | None, resource_version: str | None) -> None:
    """ApiError 409, worded as `rest.BeforeDelete` does, when the object is not the one that was meant."""
    meta = obj["metadata"]
    if uid and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(info.kind, info.group, meta["name"], why)
    if resource_version and resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion in "
            f"record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(info.kind, info.group, meta["name"], why)


def add_propagation_finalizer(meta: Object, propagation: str | None) -> None:
    """The finalizer by which garbage collection knows what to do with the dependents."""
    finalizer = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(propagation or "")
    if finalizer and finalizer not in (meta.get("finalizers") or []):
        meta["finalizers"] = [*(meta.get("finalizers") or []), finalizer]


def mark_deleted(obj: Object, strategy: Strategy, grace: int | None, *, asked: bool, now: datetime) -> int:
    """Marks an object for deletion in place, where it does not go at once; returns the seconds it still gets.

    `grace` is None for kinds that end at once. An object that is marked already gets its end moved forward, never
    back, and only when the caller `asked` for a grace period (`rest.BeforeDelete`).
    """
    meta = obj["metadata"]
    if meta.get("deletionTimestamp"):
        running: int = meta.get("deletionGracePeriodSeconds") or 0
        if grace is not None and asked and grace < running:
            began = parse_time(meta["deletionTimestamp"]) - timedelta(seconds=running)
            meta["deletionTimestamp"] = timestamp(began + timedelta(seconds=grace))
            meta["deletionGracePeriodSeconds"] = running = grace
        return running
    if not grace and not meta.get("finalizers") and not strategy.held(obj):
        return 0
    meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace or 0))
    meta["deletionGracePeriodSeconds"] = grace or 0
    if "generation" in meta:
        meta["generation"] += 1
    strategy.mark_deleted(obj)
    return grace or 0
