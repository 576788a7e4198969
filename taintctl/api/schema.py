"""Structural schemas (apiextensions.k8s.io/v1) from the models.

Types are inlined, without `$ref` and null; every string, list and map is bounded, so that the CEL rules stay inside an
API server's cost budget. Each level of a `spec` keeps unknown fields: a misspelt one stays visible to the controller,
which refuses it by name.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import Any, cast

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from taintctl.api.base import Condition, SpecModel, format_duration
from taintctl.api.check import Own
from taintctl.api.run import CompactPlan

Schema = dict[str, Any]

MAX_STATUS_STRING = 32 * 1024
"""Of a status string whose model says no bound: what metav1.Condition allows a message."""
MAX_STATUS_ITEMS = 1000
MAX_STATUS_PROPERTIES = 64
MAX_PACKED = 512 * 1024
"""Of the packed hashes in a status: those of 10,000 pods take a fifth of it."""
_DEFAULT_NAME_MAX = 253
"""What an API server holds names to by itself."""

# Notes from the generator to what puts the schema together; they are gone from the result.
_MEMBERS = "members"
_MAP_KEYS = "map-keys"

_ORDER = ("description", "type", "format", "pattern", "enum", "default", "required", "properties", "items")
_KEPT = {
    *_ORDER,
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "minProperties",
    "minimum",
    "maximum",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
}


def schema(kind: type[Own]) -> Schema:
    """The structural schema of one kind's objects."""
    whole = kind.model_json_schema(by_alias=True, schema_generator=_Generator)
    defs: Mapping[str, Schema] = whole.get("$defs", {})
    fields: Mapping[str, Schema] = whole["properties"]
    spec = _structural(fields["spec"], defs, f"{kind.KIND}.spec", status=False)
    root: Schema = {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__ or ""),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": _structural(fields["status"], defs, f"{kind.KIND}.status", status=True),
        },
    }
    if "default" in spec:
        del root["required"]
    if kind.NAME_MAX < _DEFAULT_NAME_MAX:
        root["x-kubernetes-validations"] = [
            {
                "rule": f"self.metadata.name.size() <= {kind.NAME_MAX}",
                "message": f"metadata.name must have at most {kind.NAME_MAX} characters",
            }
        ]
    return root


class _Generator(GenerateJsonSchema):
    """pydantic's JSON schema, with what Kubernetes wants where the models know it."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        out = super().model_schema(schema)
        model = cast(type[BaseModel], schema["cls"])
        out.pop("additionalProperties", None)
        for name, text in _inherited_docs(model).items():
            info = model.model_fields.get(name)
            if info is not None and info.description is None:
                out["properties"][info.alias or name]["description"] = text
        if issubclass(model, SpecModel):
            out["x-kubernetes-preserve-unknown-fields"] = True
            rules = [{"rule": rule, "message": message} for rule, message in model.validations]
            rules += _immutability(model)
            if rules:
                out["x-kubernetes-validations"] = rules
        elif model is Condition:
            out[_MAP_KEYS] = ["type"]
        elif model is CompactPlan:
            properties = out["properties"]
            packed_fields = (properties["devices"], properties["protected"], properties["pods"]["additionalProperties"])
            for packed in packed_fields:
                packed["maxLength"] = MAX_PACKED
        return out

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        out = super().enum_schema(schema)
        docs = _attribute_docs(schema["cls"])
        members = [f"{member.value}: {docs[member.name]}" for member in schema["members"] if member.name in docs]
        if members:
            # Beside the description, which pydantic takes from the class afterwards.
            out[_MEMBERS] = " ".join(members)
        return out

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # An absent field is absent: an API server drops a null of a field that is not nullable.
        return self.generate_inner(schema["schema"])

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> Any:
        factory = schema.get("default_factory")
        if factory is not None:
            return cast(Any, factory)()
        return super().get_default_value(schema)

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, timedelta):
            return format_duration(dft)
        if isinstance(dft, BaseModel):
            # An API server fills in the defaults of the fields inside.
            return {}
        return super().encode_default(dft)


def _immutability(model: type[SpecModel]) -> list[Schema]:
    """Transition rules on the spec itself: a field's own rule is not asked when the field is taken away."""
    names = cast(tuple[str, ...], getattr(model, "IMMUTABLE", ()))
    fields = {info.alias or name for name, info in model.model_fields.items()}
    unknown = set(names) - fields
    if unknown:
        raise ValueError(f"{model.__name__}.IMMUTABLE names {sorted(unknown)}, which are not its fields")
    if fields and set(names) == fields:
        return [{"rule": "self == oldSelf", "message": "spec is immutable"}]
    return [
        {
            "rule": f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            "message": f"{name} is immutable",
        }
        for name in names
    ]


def _inherited_docs(model: type[BaseModel]) -> dict[str, str]:
    docs: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if issubclass(cls, BaseModel) and cls is not BaseModel:
            docs |= _attribute_docs(cls)
    return docs


def _attribute_docs(cls: type) -> dict[str, str]:
    """The string under each attribute of a class, as this project writes them. Raises OSError where Python has no
    source of it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = cast(ast.ClassDef, tree.body[0]).body
    docs: dict[str, str] = {}
    for statement, following in pairwise(body):
        if isinstance(statement, ast.AnnAssign):
            target: ast.expr = statement.target
        elif isinstance(statement, ast.Assign):
            target = statement.targets[0]
        else:
            continue
        if (
            isinstance(target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            docs[target.id] = " ".join(inspect.cleandoc(following.value.value).split())
    return docs


def _structural(node: Mapping[str, Any], defs: Mapping[str, Schema], path: str, *, status: bool) -> Schema:
    """One node with its reference put in place, bounded, and with nothing that an API server does not take."""
    out: Schema = dict(node)
    while "$ref" in out:
        target = defs[out.pop("$ref").removeprefix("#/$defs/")]
        out = {**target, **out}
    out.pop("title", None)
    out.pop(_MAP_KEYS, None)
    if status or out.get("default", ...) is None:
        # A status says what was seen: nothing is filled in.
        out.pop("default", None)
    if "enum" in out:
        # A list of its own: the same enum stands in several places.
        out["enum"] = list(out["enum"])
    text = " ".join(f"{out.get('description', '')} {out.pop(_MEMBERS, '')}".split())
    if text:
        out["description"] = text
    kind = out.get("type")
    if kind == "object" and "properties" in out:
        out["properties"] = {
            name: _structural(child, defs, f"{path}.{name}", status=status) for name, child in out["properties"].items()
        }
        out.pop("additionalProperties", None)
        # What has a default is filled in before it is asked for.
        required = [name for name in out.pop("required", []) if "default" not in out["properties"][name]]
        if required:
            out["required"] = required
    elif kind == "object":
        values = _structural(out.pop("additionalProperties", {}), defs, f"{path}[*]", status=status)
        out["additionalProperties"] = values
        _bound(out, "maxProperties", MAX_STATUS_PROPERTIES, path, status=status)
    elif kind == "array":
        items = _structural(out["items"], defs, f"{path}[]", status=status)
        keys = defs.get(out["items"].get("$ref", "").removeprefix("#/$defs/"), {}).get(_MAP_KEYS)
        out["items"] = items
        if keys:
            out |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        _bound(out, "maxItems", MAX_STATUS_ITEMS, path, status=status)
    elif kind == "string" and "enum" not in out:
        _bound(out, "maxLength", MAX_STATUS_STRING, path, status=status)
    elif kind == "integer":
        out["format"] = "int64"
    unknown = set(out) - _KEPT - {"additionalProperties"}
    typed = kind is not None or out.get("x-kubernetes-int-or-string")
    if not typed or unknown:
        raise ValueError(f"{path}: {sorted(unknown) or 'no type'} is not part of a structural schema")
    return {name: out[name] for name in (*_ORDER, *sorted(set(out) - set(_ORDER))) if name in out}


def _bound(out: Schema, key: str, fallback: int, path: str, *, status: bool) -> None:
    if key in out:
        return
    if not status:
        raise ValueError(f"{path} has no {key}: a field of a spec is bounded in its model")
    out[key] = fallback
