"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver.errors import bad_request, rejected
from taintctl.sandbox.apiserver.meta import copied

MAX_OPERATIONS = 10_000
"""What a JSON patch may hold; upstream's own limit."""


def merge_patch(target: Any, patch: Any) -> Any:
    """The target with the patch merged in; null deletes."""
    if not isinstance(patch, dict):
        return copied(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Any, operations: Any) -> Any:
    """The target with the operations applied to a copy; ApiError 422 when one fails, 400 when it is no patch."""
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > MAX_OPERATIONS:
        raise bad_request(f"the patch has more than {MAX_OPERATIONS} operations")
    result = copied(target)
    for one in operations:
        result = _applied(result, one)
    return result


def _applied(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if not isinstance(path, str):
        raise rejected()
    if kind == "test":
        if _found(document, _parts(path)) != operation.get("value"):
            raise rejected()
        return document
    if kind == "remove":
        return _removed(document, _parts(path))
    if kind in ("add", "replace"):
        if "value" not in operation:
            raise rejected()
        return _put(document, _parts(path), copied(operation["value"]), replace=kind == "replace")
    if kind in ("move", "copy") and isinstance(operation.get("from"), str):
        source = _parts(operation["from"])
        value = copied(_found(document, source))
        if kind == "move":
            document = _removed(document, source)
        return _put(document, _parts(path), value, replace=False)
    raise rejected()


def _parts(pointer: str) -> list[str]:
    if not pointer:
        return []
    if not pointer.startswith("/"):
        raise rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def _index(part: str, length: int) -> int:
    if not part.isdigit() or int(part) >= length:
        raise rejected()
    return int(part)


def _found(document: Any, parts: list[str]) -> Any:
    for part in parts:
        if isinstance(document, dict):
            if part not in document:
                raise rejected()
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(part, len(document))]
        else:
            raise rejected()
    return document


def _put(document: Any, parts: list[str], value: Any, *, replace: bool) -> Any:
    if not parts:
        return value
    parent, last = _found(document, parts[:-1]), parts[-1]
    if isinstance(parent, dict):
        if replace and last not in parent:
            raise rejected()
        parent[last] = value
    elif isinstance(parent, list):
        if replace:
            parent[_index(last, len(parent))] = value
        else:
            parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1), value)
    else:
        raise rejected()
    return document


def _removed(document: Any, parts: list[str]) -> Any:
    if not parts:
        raise rejected()
    parent, last = _found(document, parts[:-1]), parts[-1]
    if isinstance(parent, dict):
        if last not in parent:
            raise rejected()
        del parent[last]
    elif isinstance(parent, list):
        del parent[_index(last, len(parent))]
    else:
        raise rejected()
    return document
