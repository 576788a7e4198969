"""Whether a CustomResourceDefinition's schema is structural, and its patterns and CEL rules can be used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from taintctl.cel.environment import CelError, compile_rule
from taintctl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, required, unsupported
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.schema import pattern

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_MAX_DEPTH = 64


_TEXTS = ("pattern", "format", "type", "description", "x-kubernetes-list-type")
_NUMBERS = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_RULE_TEXTS = ("rule", "message", "messageExpression", "reason", "fieldPath")
_BOUNDS = ("maximum", "minimum", "multipleOf")
_LISTS = ("enum", "required", "allOf", "anyOf", "oneOf", "x-kubernetes-list-map-keys", "x-kubernetes-validations")
_OBJECTS = ("properties", "items", "additionalProperties", "not")


def _is(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _wrong_keywords(field: str, schema: Object) -> Iterator[FieldError]:
    """Keywords whose value has the wrong type."""
    for parts, kinds, wanted in (
        (_TEXTS, (str,), "a string"),
        (_NUMBERS, (int,), "an integer"),
        (_BOUNDS, (int, float), "a number"),
        (_LISTS, (list,), "a list"),
        (_OBJECTS, (dict,), "an object"),
    ):
        for part in parts:
            if part == "additionalProperties" and schema.get(part) is True:
                continue
            if part in schema and not _is(schema[part], *kinds):
                yield invalid_value(f"{field}.{part}", schema[part], f"must be {wanted}")
    for part in ("allOf", "anyOf", "oneOf"):
        if not all(isinstance(one, dict) for one in schema.get(part) or ()):
            yield invalid_value(f"{field}.{part}", schema[part], "must be a list of objects")
    for part in ("required", "x-kubernetes-list-map-keys"):
        if isinstance(schema.get(part), list) and not all(isinstance(one, str) for one in schema[part]):
            yield invalid_value(f"{field}.{part}", schema[part], "must be a list of strings")
    if isinstance(schema.get("properties"), dict):
        for name, inner in schema["properties"].items():
            if not isinstance(inner, dict):
                yield invalid_value(f"{field}.properties[{name}]", inner, "must be an object")


def schema_problems(field: str, schema: Object, depth: int = 0) -> Iterator[FieldError]:
    """What keeps a schema from being served, with the path of the part at fault."""
    if depth > _MAX_DEPTH:
        yield forbidden_field(field, f"schemas deeper than {_MAX_DEPTH} are not supported")
        return
    wrong = next(_wrong_keywords(field, schema), None)
    if wrong is not None:
        # Nothing below can be read.
        yield wrong
        return
    if depth == 0 and schema.get("type") != "object":
        yield invalid_value(f"{field}.type", schema.get("type", ""), "must be object at the root")
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    kind = schema.get("type")
    if kind is None and not untyped:
        yield required(f"{field}.type", "must not be empty for specified object fields")
    elif kind is not None and kind not in _TYPES:
        yield unsupported(f"{field}.type", kind, _TYPES)
    if kind == "array" and "items" not in schema:
        yield required(f"{field}.items", "must be specified")
    if schema.get("properties") and schema.get("additionalProperties"):
        yield forbidden_field(
            f"{field}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    if "pattern" in schema:
        try:
            pattern(schema["pattern"])
        except re.error as error:
            yield invalid_value(f"{field}.pattern", schema["pattern"], f"must be a valid regular expression: {error}")
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        yield from _rule_problems(f"{field}.x-kubernetes-validations[{index}]", rule)
    for name, inner in (schema.get("properties") or {}).items():
        yield from schema_problems(f"{field}.properties[{name}]", inner, depth + 1)
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from schema_problems(f"{field}.{part}", schema[part], depth + 1)


def _rule_problems(field: str, rule: Any) -> Iterator[FieldError]:
    if not isinstance(rule, dict) or not all(isinstance(rule.get(part, ""), str) for part in _RULE_TEXTS):
        yield invalid_value(field, rule, "must be an object with a rule and a message")
        return
    expression = rule.get("rule", "")
    if not str(expression).strip():
        yield required(f"{field}.rule", "rule is not specified")
        return
    for part in ("rule", "messageExpression"):
        if rule.get(part):
            try:
                compile_rule(rule[part], ("self", "oldSelf"))
            except CelError as error:
                yield invalid_value(f"{field}.{part}", rule[part], f"compilation failed: {error}")
