"""What every object has: timestamps, names, uids, labels, and copies of plain JSON values."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from taintctl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, required, too_long

Object = dict[str, Any]

_GENERATED = "bcdfghjklmnpqrstvwxz2456789"
"""The alphabet of generated name suffixes (k8s.io/apimachinery/pkg/util/rand): no vowels, nothing that misreads."""

_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_QUALIFIED_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

MAX_ANNOTATIONS = 256 * 1024


def copied(value: Any) -> Any:
    """A deep copy of a JSON value; several times faster than `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: copied(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [copied(inner) for inner in value]
    return value


def timestamp(moment: datetime) -> str:
    """A `metav1.Time`: RFC 3339, UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """A `metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime:
    """The reverse of `timestamp` and `micro_time`; ValueError when it is neither."""
    return datetime.fromisoformat(text)


def generated_name(prefix: str) -> str:
    """`generateName` and five random characters; a prefix over 58 characters is cut, as upstream does."""
    return prefix[:58] + "".join(secrets.choice(_GENERATED) for _ in range(5))


def qualified_name_problems(value: str) -> Iterator[str]:
    """Why `value` is no label key, taint key or the like (upstream's IsQualifiedName, recorded in 04-errors)."""
    prefix, slash, name = value.rpartition("/")
    if slash:
        if not prefix:
            yield "prefix part must be non-empty"
        else:
            yield from (f"prefix part {why}" for why in dns_subdomain_problems(prefix))
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield "name part must be no more than 63 bytes"
    if not _QUALIFIED_NAME.fullmatch(name):
        yield (
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
        )


def label_value_problems(value: str) -> Iterator[str]:
    if len(value) > 63:
        yield "must be no more than 63 bytes"
    if not _LABEL_VALUE.fullmatch(value):
        yield (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
            "for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        )


def dns_label_problems(value: str) -> Iterator[str]:
    if len(value) > 63:
        yield "must be no more than 63 bytes"
    if not _DNS_LABEL.fullmatch(value):
        yield (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )


def dns_subdomain_problems(value: str) -> Iterator[str]:
    if len(value) > 253:
        yield "must be no more than 253 bytes"
    if not _DNS_SUBDOMAIN.fullmatch(value):
        yield (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )


def path_segment_problems(value: str) -> Iterator[str]:
    """RBAC names may be anything that is one path segment (`system:node`)."""
    if value in {".", ".."}:
        yield f"may not be '{value}'"
    for char in "/%":
        if char in value:
            yield f"may not contain '{char}'"


def validate_metadata(obj: Object, name_problems: Any) -> list[FieldError]:
    """The checks of `metadata` that hold for every kind."""
    meta = obj["metadata"]
    errors: list[FieldError] = []
    name = meta.get("name", "")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    else:
        errors += [invalid_value("metadata.name", name, why) for why in name_problems(name)]
    for key, value in (meta.get("labels") or {}).items():
        errors += [invalid_value("metadata.labels", key, why) for why in qualified_name_problems(key)]
        if not isinstance(value, str):
            errors.append(invalid_value("metadata.labels", value, "must be a string"))
        else:
            errors += [invalid_value("metadata.labels", value, why) for why in label_value_problems(value)]
    total = 0
    for key, value in (meta.get("annotations") or {}).items():
        errors += [invalid_value("metadata.annotations", key, why) for why in qualified_name_problems(key.lower())]
        total += len(key) + len(str(value))
    if total > MAX_ANNOTATIONS:
        errors.append(too_long("metadata.annotations", MAX_ANNOTATIONS))
    for index, owner in enumerate(meta.get("ownerReferences") or []):
        for part in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(part):
                field = f"metadata.ownerReferences[{index}].{part}"
                errors.append(invalid_value(field, owner.get(part, ""), f"{part} must not be empty"))
    for index, finalizer in enumerate(meta.get("finalizers") or []):
        field = f"metadata.finalizers[{index}]"
        errors += [invalid_value(field, finalizer, why) for why in qualified_name_problems(finalizer)]
    return errors


def validate_metadata_update(obj: Object, old: Object) -> list[FieldError]:
    """What of `metadata` may never change. What a client leaves out has been filled in from `old` before."""
    meta, before = obj["metadata"], old["metadata"]
    immutable = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
    errors = [
        invalid_value(f"metadata.{part}", meta.get(part), "field is immutable")
        for part in immutable
        if meta.get(part) != before.get(part)
    ]
    if before.get("deletionTimestamp"):
        known = set(before.get("finalizers") or [])
        added = [one for one in meta.get("finalizers") or [] if one not in known]
        if added:
            listed = ", ".join(f'"{one}"' for one in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}"
            )
            errors.append(forbidden_field("metadata.finalizers", why))
    return errors
