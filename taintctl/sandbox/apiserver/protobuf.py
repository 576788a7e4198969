"""The few protobuf bodies that kubectl insists on: `create namespace`, `auth can-i`, `auth whoami`, `drain` …

kubectl's typed clients send protobuf whatever the server says it accepts. The wire format is decoded by the field
numbers of the `generated.proto` files of k8s.io/api and k8s.io/apimachinery; answers are always JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from taintctl.sandbox.apiserver.errors import bad_request
from taintctl.sandbox.apiserver.meta import Object, timestamp

_MAGIC = b"k8s\x00"


@dataclass(frozen=True)
class _Field:
    name: str
    kind: Any = "string"
    """`string`, `bytes`, `int`, `bool`, `time`, `int-or-string`, or the fields of a message."""
    repeated: bool = False
    map: bool = False


_Message = dict[int, _Field]


def _strings(name: str) -> _Field:
    return _Field(name, repeated=True)


_OWNER: _Message = {
    1: _Field("kind"),
    3: _Field("name"),
    4: _Field("uid"),
    5: _Field("apiVersion"),
    6: _Field("controller", "bool"),
    7: _Field("blockOwnerDeletion", "bool"),
}
_META = _Field(
    "metadata",
    {
        1: _Field("name"),
        2: _Field("generateName"),
        3: _Field("namespace"),
        5: _Field("uid"),
        6: _Field("resourceVersion"),
        8: _Field("creationTimestamp", "time"),
        11: _Field("labels", map=True),
        12: _Field("annotations", map=True),
        13: _Field("ownerReferences", _OWNER, repeated=True),
        14: _strings("finalizers"),
    },
)
_RULE: _Message = {
    1: _strings("verbs"),
    2: _strings("apiGroups"),
    3: _strings("resources"),
    4: _strings("resourceNames"),
    5: _strings("nonResourceURLs"),
}
_SUBJECT: _Message = {1: _Field("kind"), 2: _Field("apiGroup"), 3: _Field("name"), 4: _Field("namespace")}
_ROLE_REF: _Message = {1: _Field("apiGroup"), 2: _Field("kind"), 3: _Field("name")}
_ROLE: _Message = {1: _META, 2: _Field("rules", _RULE, repeated=True)}
_BINDING: _Message = {1: _META, 2: _Field("subjects", _SUBJECT, repeated=True), 3: _Field("roleRef", _ROLE_REF)}
_LABEL_SELECTOR: _Message = {
    1: _Field("matchLabels", map=True),
    2: _Field("matchExpressions", {1: _Field("key"), 2: _Field("operator"), 3: _strings("values")}, repeated=True),
}
_DELETE_OPTIONS: _Message = {
    1: _Field("gracePeriodSeconds", "int"),
    2: _Field("preconditions", {1: _Field("uid"), 2: _Field("resourceVersion")}),
    3: _Field("orphanDependents", "bool"),
    4: _Field("propagationPolicy"),
    5: _strings("dryRun"),
}
_RESOURCE: _Message = {
    1: _Field("namespace"),
    2: _Field("verb"),
    3: _Field("group"),
    4: _Field("version"),
    5: _Field("resource"),
    6: _Field("subresource"),
    7: _Field("name"),
}

_KINDS: dict[str, _Message] = {
    "Namespace": {1: _META},
    "ConfigMap": {1: _META, 2: _Field("data", map=True), 3: _Field("binaryData", "bytes", map=True)},
    "Secret": {1: _META, 2: _Field("data", "bytes", map=True), 3: _Field("type"), 4: _Field("stringData", map=True)},
    "ServiceAccount": {1: _META},
    "ClusterRole": _ROLE,
    "Role": _ROLE,
    "ClusterRoleBinding": _BINDING,
    "RoleBinding": _BINDING,
    "PodDisruptionBudget": {
        1: _META,
        2: _Field(
            "spec",
            {
                1: _Field("minAvailable", "int-or-string"),
                2: _Field("selector", _LABEL_SELECTOR),
                3: _Field("maxUnavailable", "int-or-string"),
            },
        ),
    },
    "Eviction": {1: _META, 2: _Field("deleteOptions", _DELETE_OPTIONS)},
    "DeleteOptions": _DELETE_OPTIONS,
    "SelfSubjectReview": {1: _META},
    "SelfSubjectAccessReview": {
        1: _META,
        2: _Field(
            "spec",
            {
                1: _Field("resourceAttributes", _RESOURCE),
                2: _Field("nonResourceAttributes", {1: _Field("path"), 2: _Field("verb")}),
            },
        ),
    },
}


def decode(body: bytes) -> Object | None:
    """The object in a protobuf body; None for a kind that is not decoded, ApiError 400 for what is no protobuf."""
    if not body.startswith(_MAGIC):
        raise bad_request("the body is no Kubernetes protobuf: it does not start with k8s\\0")
    try:
        envelope = _message(body[len(_MAGIC) :], {1: _Field("type", _TYPE_META), 2: _Field("raw", "raw")})
        kind = envelope.get("type", {})
        fields = _KINDS.get(kind.get("kind", ""))
        return None if fields is None else kind | _message(envelope.get("raw", b""), fields)
    except (ValueError, IndexError, RecursionError, AttributeError, TypeError) as error:
        raise bad_request(f"error decoding protobuf: {error}") from None


_TYPE_META: _Message = {1: _Field("apiVersion"), 2: _Field("kind")}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _parts(data: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers with their values: numbers, or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a field is cut short")
            yield number, data[at : at + length]
            at += length
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire} is not used by Kubernetes")


def _message(data: bytes, fields: _Message) -> Object:
    found: Object = {}
    for number, raw in _parts(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.map:
            entry = dict(_parts(raw))
            found.setdefault(field.name, {})[entry.get(1, b"").decode()] = _value(entry.get(2, b""), field.kind)
        elif field.repeated:
            found.setdefault(field.name, []).append(_value(raw, field.kind))
        else:
            value = _value(raw, field.kind)
            # Go writes empty strings and structs out; JSON leaves them away.
            if value not in ("", None, {}):
                found[field.name] = value
    return found


def _value(raw: Any, kind: Any) -> Any:
    if isinstance(kind, dict):
        return _message(raw, kind)
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind == "bool":
        return bool(raw)
    if kind == "time":
        seconds = dict(_parts(raw)).get(1)
        return None if seconds is None else timestamp(datetime.fromtimestamp(seconds, UTC))
    if kind == "int-or-string":
        parts = dict(_parts(raw))
        return parts.get(3, b"").decode() if parts.get(1) else parts.get(2, 0)
    return raw
