"""Strategic merge patches of built-in kinds: lists merged by key, and the `$` directives.

The merge keys are the `patchMergeKey` tags of k8s.io/api for the kinds served here. A list that is not named here is
replaced as a whole, as upstream does with a list that has no tag.
"""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver.errors import bad_request
from taintctl.sandbox.apiserver.meta import copied

MERGE_KEYS: dict[str, str] = {
    "metadata.ownerReferences": "uid",
    "status.conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "containers.ports": "containerPort",
    "containers.env": "name",
    "containers.volumeMounts": "mountPath",
    "containers.volumeDevices": "devicePath",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
    "resourceClaimStatuses": "name",
    "spec.ports": "port",
    "secrets": "name",
    "status.addresses": "type",
    "status.podIPs": "ip",
}
"""Merge keys by the end of the field's path, without list positions."""

MERGED_SETS = ("metadata.finalizers",)
"""Lists of plain values that are merged; `$deleteFromPrimitiveList/<name>` takes values out."""

_ORDER, _DELETE_FROM, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def strategic_merge(target: Any, patch: Any) -> Any:
    """The target with the patch merged in; ApiError 400 for a directive that does not exist."""
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a strategic merge patch is an object")
    return _merge(target, patch, "")


def merge_key(path: str) -> str | None:
    """The key by which the list at `path` is merged; None for one that is replaced."""
    for ending, key in MERGE_KEYS.items():
        if path == ending or path.endswith(f".{ending}"):
            return key
    return None


def _merge(target: Any, patch: dict[str, Any], path: str) -> Any:
    directive = patch.get("$patch")
    if directive == "replace":
        return {key: copied(value) for key, value in patch.items() if key != "$patch"}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise bad_request(f"Unknown patch type found: {directive}")
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            result[name] = [one for one in result.get(name) or [] if one not in value]
        elif key == _RETAIN:
            result = {name: inner for name, inner in result.items() if name in value}
    for key, value in patch.items():
        if key.startswith((_ORDER, _DELETE_FROM)) or key in ("$patch", _RETAIN):
            continue
        here = f"{path}.{key}" if path else key
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge(result.get(key), value, here)
        elif isinstance(value, list):
            result[key] = _merge_list(result.get(key), value, here)
        else:
            result[key] = value
    return result


def _merge_list(target: Any, patch: list[Any], path: str) -> list[Any]:
    items = list(target) if isinstance(target, list) else []
    key = merge_key(path)
    if key is None:
        if path.endswith(MERGED_SETS):
            return items + [one for one in patch if one not in items]
        return [copied(one) for one in patch if not (isinstance(one, dict) and one.get("$patch"))]
    if any(isinstance(one, dict) and one.get("$patch") == "replace" and len(one) == 1 for one in patch):
        return [copied(one) for one in patch if one.get("$patch") != "replace"]
    for one in patch:
        if not isinstance(one, dict) or key not in one:
            raise bad_request(f"map: {one} does not contain declared merge key: {key}")
        position = next((at for at, old in enumerate(items) if old.get(key) == one[key]), None)
        if one.get("$patch") == "delete":
            if position is not None:
                del items[position]
        elif position is None:
            items.append(_merge({}, one, path))
        else:
            items[position] = _merge(items[position], one, path)
    return items
