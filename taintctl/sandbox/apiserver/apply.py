"""Server-side apply, with the managed fields of appliers only.

What one manager applied and applies no more is removed, unless another applied it too; what two managers apply with
different values is a conflict, unless forced. Writes by other means (create, update, patch) own nothing here, where
upstream makes them owners too: they can therefore never conflict with an apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.apiserver.meta import Object, copied
from taintctl.sandbox.apiserver.strategic import merge_key
from taintctl.sandbox.resources import ResourceInfo

Fields = dict[str, Any]
ListKeys = Callable[[str], tuple[str, ...]]
"""The keys that identify the elements of the list at a path (`spec.containers`); empty for atomic lists."""

MAX_MANAGERS = 20

_SYSTEM = ("apiVersion", "kind")
_SYSTEM_META = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
)


def builtin_list_keys(path: str) -> tuple[str, ...]:
    """The merge keys of built-in kinds."""
    key = merge_key(path)
    return (key,) if key else ()


def schema_list_keys(schema: Object) -> ListKeys:
    """The list keys that a custom resource's schema declares."""

    def keys(path: str) -> tuple[str, ...]:
        part: Any = schema
        for name in path.split("."):
            while isinstance(part, dict) and isinstance(part.get("items"), dict):
                part = part["items"]
            if not isinstance(part, dict):
                return ()
            part = (part.get("properties") or {}).get(name, part.get("additionalProperties"))
        if isinstance(part, dict) and part.get("x-kubernetes-list-type") == "map":
            return tuple(part.get("x-kubernetes-list-map-keys") or ())
        return ()

    return keys


def applied_object(
    live: Object | None,
    config: Object,
    *,
    manager: str,
    force: bool,
    info: ResourceInfo,
    keys: ListKeys,
    now: str,
    status: bool,
) -> Object:
    """The live object with the configuration applied; ApiError 409 when another manager applied other values.

    `status` is whether the status subresource is applied to; elsewhere a status in the configuration is dropped.
    """
    config = _own_part(config, status=status)
    fields = _fields(config, "", keys)
    managed = [one for one in (live or {}).get("metadata", {}).get("managedFields") or [] if isinstance(one, dict)]
    others = [one for one in managed if one.get("manager") != manager or one.get("operation") != "Apply"]
    mine = next((one for one in managed if one not in others), None)
    base = copied(live) if live is not None else {}
    conflicts = [
        (other["manager"], path)
        for other in others
        for path in _shared_leaves(fields, other.get("fieldsV1") or {})
        if _value_at(base, path) != _value_at(config, path)
    ]
    if conflicts and not force:
        raise _conflict(conflicts, info, config)
    if mine is not None:
        gone = _difference(mine.get("fieldsV1") or {}, fields)
        for other in others:
            gone = _difference(gone, other.get("fieldsV1") or {})
        _remove(base, gone)
    result = _merge(base, config, "", keys)
    if conflicts:
        taken = [path for _, path in conflicts]
        others = [one | {"fieldsV1": _without(one.get("fieldsV1") or {}, taken)} for one in others]
    entry = {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": config.get("apiVersion", info.api_version),
        "time": mine["time"] if mine is not None and mine.get("fieldsV1") == fields else now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    meta = result.setdefault("metadata", {})
    meta["managedFields"] = [*others, entry][-MAX_MANAGERS:]
    merged: Object = result
    return merged


def _own_part(config: Object, *, status: bool) -> Object:
    own = copied(config)
    if not status:
        own.pop("status", None)
    for part in ("managedFields", "creationTimestamp", "uid", "generation", "selfLink"):
        own.get("metadata", {}).pop(part, None)
    result: Object = own
    return result


def _element(item: Any, keys: tuple[str, ...]) -> str:
    return "k:" + msgspec.json.encode({key: item.get(key) for key in keys}, order="deterministic").decode()


def _fields(value: Any, path: str, keys: ListKeys) -> Fields:
    found: Fields = {}
    for name, inner in value.items():
        if (not path and name in _SYSTEM) or (path == "metadata" and name in _SYSTEM_META):
            continue
        here = f"{path}.{name}" if path else name
        if isinstance(inner, dict) and inner:
            found[f"f:{name}"] = _fields(inner, here, keys)
        elif isinstance(inner, list) and (by := keys(here)) and all(isinstance(one, dict) for one in inner):
            found[f"f:{name}"] = {_element(one, by): {".": {}, **_fields(one, here, keys)} for one in inner}
        else:
            found[f"f:{name}"] = {}
    return {name: inner for name, inner in found.items() if inner or name != "f:metadata"}


def _leaves(fields: Fields, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, inner in fields.items():
        if name == ".":
            continue
        if isinstance(inner, dict) and any(part != "." for part in inner):
            yield from _leaves(inner, (*path, name))
        else:
            yield (*path, name)


def _shared_leaves(mine: Fields, other: Fields) -> Iterator[tuple[str, ...]]:
    theirs = set(_leaves(other))
    return (path for path in _leaves(mine) if path in theirs)


def _value_at(obj: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if part.startswith("f:"):
            obj = obj.get(part[2:]) if isinstance(obj, dict) else None
        else:
            obj = _find_element(obj, part)
    return obj


def _find_element(items: Any, element: str) -> Any:
    wanted = msgspec.json.decode(element[2:])
    for one in items if isinstance(items, list) else []:
        if isinstance(one, dict) and all(one.get(key) == value for key, value in wanted.items()):
            return one
    return None


def _difference(old: Fields, new: Fields) -> Fields:
    """What is in `old` and not in `new`."""
    left: Fields = {}
    for name, inner in old.items():
        if name not in new:
            left[name] = inner
        elif isinstance(inner, dict) and inner:
            below = _difference(inner, new[name])
            if below:
                left[name] = below
    return left


def _without(fields: Fields, paths: list[tuple[str, ...]]) -> Fields:
    result: Fields = copied(fields)
    for path in paths:
        part = result
        for name in path[:-1]:
            part = part.get(name, {})
        part.pop(path[-1], None)
    return result


def _remove(obj: Any, fields: Fields) -> None:
    for name, inner in fields.items():
        below = {part: value for part, value in inner.items() if part != "."} if isinstance(inner, dict) else {}
        if name.startswith("f:") and isinstance(obj, dict):
            key = name[2:]
            if not below:
                obj.pop(key, None)
            elif key in obj:
                _remove(obj[key], below)
                if not obj[key]:
                    del obj[key]
        elif name.startswith("k:") and isinstance(obj, list):
            element = _find_element(obj, name)
            if element is not None and isinstance(inner, dict) and "." in inner:
                obj.remove(element)
            elif element is not None:
                _remove(element, below)


def _merge(live: Any, config: Any, path: str, keys: ListKeys) -> Any:
    if isinstance(config, dict):
        result = dict(live) if isinstance(live, dict) else {}
        for name, value in config.items():
            here = f"{path}.{name}" if path else name
            if value is None:
                result.pop(name, None)
            else:
                result[name] = _merge(result.get(name), value, here, keys)
        return result
    if isinstance(config, list) and isinstance(live, list) and (by := keys(path)):
        items = list(live)
        for one in config:
            found = _find_element(items, _element(one, by))
            if found is None:
                items.append(copied(one))
            else:
                items[items.index(found)] = _merge(found, one, path, keys)
        return items
    return copied(config)


def _conflict(conflicts: list[tuple[str, tuple[str, ...]]], info: ResourceInfo, config: Object) -> ApiError:
    shown = [(manager, "".join(f".{p[2:]}" if p[0] == "f" else f"[{p}]" for p in path)) for manager, path in conflicts]
    causes = [
        {"reason": "FieldManagerConflict", "message": f'conflict with "{manager}"', "field": field}
        for manager, field in shown[:50]
    ]
    by_manager: dict[str, list[str]] = {}
    for manager, field in shown[:50]:
        by_manager.setdefault(manager, []).append(field)
    count = f"{len(conflicts)} conflict" + ("s" if len(conflicts) > 1 else "")
    if len(conflicts) == 1:
        text = f'{count} with "{shown[0][0]}": {shown[0][1]}'
    else:
        lines = [f'conflicts with "{manager}":\n- ' + "\n- ".join(fields) for manager, fields in by_manager.items()]
        text = f"{count}: " + "\n".join(lines)
    details = {"name": config.get("metadata", {}).get("name", ""), "kind": info.plural, "causes": causes}
    if info.group:
        details["group"] = info.group
    return ApiError(409, "Conflict", f"Apply failed with {text}", details)
