"""The CEL rules of a schema: `x-kubernetes-validations`, with `self` and `oldSelf`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from taintctl.cel.environment import CelError, compile_rule
from taintctl.sandbox.apiserver.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.schema import MISSING, by_key, child, list_key, type_name

_OLD = re.compile(r"\boldSelf\b")


@dataclass(frozen=True)
class _Rule:
    text: str
    message: str
    message_expression: str
    reason: str
    field_path: str
    transition: bool
    """Names oldSelf: asked on update only, where the value was there before."""


class Rules:
    """All the rules of one schema. Compiled when the definition is stored, asked at every write."""

    def __init__(self, schema: Object) -> None:
        self._schema = schema
        self._has_rules = {id(part) for part in _parts_with_rules(schema)}

    def check(self, obj: Object, old: Object | None) -> list[FieldError]:
        """The rules that do not hold. `old` is None at creation."""
        return list(self._check(obj, MISSING if old is None else old, self._schema, ""))

    def _check(self, value: Any, old: Any, schema: Object, path: str) -> Iterator[FieldError]:
        if id(schema) not in self._has_rules or value is None:
            return
        for raw in schema.get("x-kubernetes-validations") or []:
            yield from _asked(_rule(raw), value, old, path)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) else {}
            properties = schema.get("properties") or {}
            additional = schema.get("additionalProperties")
            for name, inner in value.items():
                part = properties.get(name, additional)
                if isinstance(part, dict):
                    yield from self._check(inner, before.get(name, MISSING), part, child(path, name))
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            # Only the elements of map lists have a previous self; those of others cannot be told apart.
            known = schema.get("x-kubernetes-list-type") == "map" and isinstance(old, list)
            elements = by_key(old, schema) if known else {}
            for index, one in enumerate(value):
                previous = elements.get(repr(list_key(one, schema)), MISSING)
                yield from self._check(one, previous, schema["items"], f"{path}[{index}]")


def _parts_with_rules(schema: Object) -> Iterator[Object]:
    """The parts of a schema that have rules, or parts with rules, below them."""
    inner = list((schema.get("properties") or {}).values())
    inner += [schema[part] for part in ("items", "additionalProperties") if isinstance(schema.get(part), dict)]
    found = [part for one in inner for part in _parts_with_rules(one)]
    yield from found
    if found or schema.get("x-kubernetes-validations"):
        yield schema


def _rule(raw: Object) -> _Rule:
    text = raw["rule"]
    return _Rule(
        text=text,
        message=raw.get("message", ""),
        message_expression=raw.get("messageExpression", ""),
        reason=raw.get("reason") or "FieldValueInvalid",
        field_path=raw.get("fieldPath", ""),
        transition=bool(_OLD.search(text)) and not raw.get("optionalOldSelf"),
    )


def _asked(rule: _Rule, value: Any, old: Any, path: str) -> Iterator[FieldError]:
    if rule.transition and old is MISSING:
        return
    # What did not change and was let in before is not refused now (ratcheting), unless the rule is on the change.
    if not rule.transition and old is not MISSING and old == value:
        return
    values = {"self": value} if old is MISSING else {"self": value, "oldSelf": old}
    try:
        holds = compile_rule(rule.text, ("self", "oldSelf"))(**values)
    except CelError as error:
        yield _error("FieldValueInvalid", path, value, f"rule evaluation error: {error}: evaluating rule: {rule.text}")
        return
    if holds is not True:
        expressed = _from_expression(rule, values)
        why = expressed or rule.message or f"failed rule: {rule.text}"
        yield _error(rule.reason, path + rule.field_path, value, why, shown=not expressed)


def _from_expression(rule: _Rule, values: dict[str, Any]) -> str:
    """The message of `messageExpression`; empty where there is none or it fails, as upstream falls back."""
    if not rule.message_expression:
        return ""
    try:
        text = compile_rule(rule.message_expression, ("self", "oldSelf"))(**values)
    except CelError:
        return ""
    return text.strip() if isinstance(text, str) and "\n" not in text.strip() else ""


def _error(reason: str, path: str, value: Any, why: str, *, shown: bool = True) -> FieldError:
    if reason == "FieldValueForbidden":
        return forbidden_field(path, why)
    if reason == "FieldValueRequired":
        return required(path, why)
    if reason == "FieldValueDuplicate":
        return duplicate(path, why)
    if not shown:
        return FieldError("FieldValueInvalid", path, f"Invalid value: {why}")
    # Upstream names the type of an object or a list, and shows the value of a scalar.
    return invalid_value(path, type_name(value) if isinstance(value, (dict, list)) else value, why)
