"""Structural OpenAPI v3 schemas of custom resources: pruning, defaults and validation.

The texts are those of `k8s.io/kube-openapi/pkg/validation` as `kubectl apply` shows them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from taintctl.sandbox.apiserver.errors import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    type_invalid,
    unsupported,
)
from taintctl.sandbox.apiserver.formats import FORMATS
from taintctl.sandbox.apiserver.meta import Object, copied

MISSING: Any = object()
"""Stands for a value that is not there, where None is a value."""

_TYPE_META = ("apiVersion", "kind", "metadata")


def child(path: str, name: str) -> str:
    """The path of a property, as field errors write it."""
    return f"{path}.{name}" if path else name


def prune(obj: Object, schema: Object, *, drop: bool) -> list[str]:
    """The paths of fields that the schema does not know; dropped in place when `drop`."""
    unknown: list[str] = []
    _prune(obj, schema, "", drop, unknown, root=True)
    return unknown


def _prune(value: Any, schema: Object, path: str, drop: bool, unknown: list[str], *, root: bool = False) -> None:
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for index, one in enumerate(value):
                _prune(one, items, f"{path}[{index}]", drop, unknown)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields")) or additional is True
    embedded = root or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in list(value):
        if embedded and name in _TYPE_META:
            continue
        if name in properties:
            _prune(value[name], properties[name], child(path, name), drop, unknown)
        elif isinstance(additional, dict):
            _prune(value[name], additional, child(path, name), drop, unknown)
        elif not keeps:
            unknown.append(child(path, name))
            if drop:
                del value[name]


def apply_defaults(value: Any, schema: Object) -> None:
    """Fills in defaults in place. A null of a property that is not nullable counts as absent, with a default or without
    (upstream's PruneNonNullableNullsWithoutDefaults)."""
    if isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict):
            for one in value:
                apply_defaults(one, items)
        return
    if not isinstance(value, dict):
        return
    properties = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    for name in list(value):
        inner = properties.get(name, additional)
        if value[name] is None and isinstance(inner, dict) and not inner.get("nullable"):
            del value[name]
        elif name not in properties and isinstance(additional, dict):
            apply_defaults(value[name], additional)
    for name, inner in properties.items():
        if "default" in inner and name not in value:
            value[name] = copied(inner["default"])
        if name in value:
            apply_defaults(value[name], inner)


def validate(obj: Object, schema: Object, old: Object | None = None) -> list[FieldError]:
    """What of the object does not fit the schema. On update what did not change is not held against it (ratcheting)."""
    return list(_validate(obj, schema, "", MISSING if old is None else old, root=True))


def _validate(value: Any, schema: Object, path: str, old: Any, *, root: bool = False) -> Iterator[FieldError]:
    if old is not MISSING and old == value:
        return
    if value is None and schema.get("nullable"):
        return
    wrong = _wrong_type(value, schema)
    if wrong:
        yield type_invalid(path, type_name(value), f'{path} in body must be of type {wrong}: "{type_name(value)}"')
        return
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    if isinstance(value, str):
        yield from _validate_string(value, schema, path)
    elif isinstance(value, bool):
        pass
    elif isinstance(value, (int, float)):
        yield from _validate_number(value, schema, path)
    elif isinstance(value, list):
        yield from _validate_list(value, schema, path, old)
    elif isinstance(value, dict):
        yield from _validate_object(value, schema, path, old, root=root)
    yield from _validate_combinations(value, schema, path)


def type_name(value: Any) -> str:
    """The OpenAPI name of a JSON value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _wrong_type(value: Any, schema: Object) -> str:
    """The type the schema wants where the value has another one; empty when it fits."""
    actual = type_name(value)
    if schema.get("x-kubernetes-int-or-string"):
        return "" if actual in ("integer", "string") else "integer,string"
    wanted: str = schema.get("type", "")
    if not wanted or wanted == actual:
        return ""
    if wanted == "number" and actual == "integer":
        return ""
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        return ""
    return wanted


@lru_cache(maxsize=512)
def pattern(text: str) -> re.Pattern[str]:
    """A compiled pattern; re.error when it is none. `$` is the very end, as in Go: no newline may follow."""
    return re.compile(text[:-1] + r"\Z" if text.endswith("$") and not text.endswith("\\$") else text)


def _validate_string(value: str, schema: Object, path: str) -> Iterator[FieldError]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield invalid_value(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "pattern" in schema and not pattern(schema["pattern"]).search(value):
        yield invalid_value(path, value, f"{path} in body should match '{schema['pattern']}'")
    check = FORMATS.get(schema.get("format", ""))
    if check is not None and not check(value):
        yield invalid_value(path, value, f'{path} in body must be of type {schema["format"]}: "{value}"')


def _validate_number(value: float, schema: Object, path: str) -> Iterator[FieldError]:
    if "maximum" in schema:
        limit = schema["maximum"]
        if value > limit or (value == limit and schema.get("exclusiveMaximum")):
            words = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {words} {limit}")
    if "minimum" in schema:
        limit = schema["minimum"]
        if value < limit or (value == limit and schema.get("exclusiveMinimum")):
            words = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
            yield invalid_value(path, value, f"{path} in body should be {words} {limit}")
    if schema.get("multipleOf") and value % schema["multipleOf"]:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {schema['multipleOf']}")


def _validate_list(value: list[Any], schema: Object, path: str, old: Any) -> Iterator[FieldError]:
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])
        return
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield invalid_value(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    kind = schema.get("x-kubernetes-list-type", "atomic")
    before = by_key(old, schema) if isinstance(old, list) and kind == "map" else {}
    seen: list[Any] = []
    for index, one in enumerate(value):
        at = f"{path}[{index}]"
        key = list_key(one, schema)
        if kind in ("set", "map") and key is not MISSING:
            if key in seen:
                yield duplicate(at, key)
            seen.append(key)
        items = schema.get("items")
        if isinstance(items, dict):
            yield from _validate(one, items, at, before.get(repr(key), MISSING))


def list_key(item: Any, schema: Object) -> Any:
    """What makes an element of a set or map list the same element; MISSING for atomic lists."""
    kind = schema.get("x-kubernetes-list-type", "atomic")
    if kind == "set":
        return item
    if kind != "map" or not isinstance(item, dict):
        return MISSING
    defaults = (schema.get("items") or {}).get("properties") or {}
    names = schema.get("x-kubernetes-list-map-keys") or []
    return {name: item.get(name, defaults.get(name, {}).get("default")) for name in names}


def by_key(items: list[Any], schema: Object) -> dict[str, Any]:
    """The elements of a map list by their keys."""
    return {repr(list_key(one, schema)): one for one in items}


def _validate_object(value: Object, schema: Object, path: str, old: Any, *, root: bool) -> Iterator[FieldError]:
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        least = schema["minProperties"]
        yield invalid_value(path, len(value), f"{path} in body should have at least {least} properties")
    properties = schema.get("properties") or {}
    for name in schema.get("required") or []:
        if name not in value:
            yield required(child(path, name))
    before = old if isinstance(old, dict) else {}
    additional = schema.get("additionalProperties")
    for name, inner in value.items():
        if root and name in _TYPE_META:
            continue
        if name in properties:
            yield from _validate(inner, properties[name], child(path, name), before.get(name, MISSING))
        elif isinstance(additional, dict):
            yield from _validate(inner, additional, child(path, name), before.get(name, MISSING))


_Judge = Callable[[int, int], str]
_COMBINATIONS: dict[str, _Judge] = {
    "allOf": lambda good, total: "" if good == total else "must validate all the schemas (allOf)",
    "anyOf": lambda good, total: "" if good else "must validate at least one schema (anyOf)",
    "oneOf": lambda good, total: (
        "" if good == 1 else f"must validate one and only one schema (oneOf). Found {good if good else 'none'} valid"
    ),
}


def _validate_combinations(value: Any, schema: Object, path: str) -> Iterator[FieldError]:
    for word, judge in _COMBINATIONS.items():
        options = schema.get(word)
        if options:
            good = sum(1 for option in options if not list(_validate(value, option, path, MISSING)))
            problem = judge(good, len(options))
            if problem:
                yield invalid_value(path, type_name(value), f'"{path}" {problem}')
    if "not" in schema and not list(_validate(value, schema["not"], path, MISSING)):
        yield invalid_value(path, type_name(value), f'"{path}" must not validate the schema (not)')
