"""Errors as a real API server words them.

The texts follow the recordings in tests/recordings (04-errors.json, 07-partitions-budgets-cancel.json) and, where
none was recorded, `k8s.io/apimachinery/pkg/api/errors` and `.../util/validation/field`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

MAX_CAUSES = 50
"""An answer never carries more causes than this; a huge object with a fault in every element stays readable."""


class ApiError(Exception):
    """A refusal with the HTTP status, machine-readable reason and message that the client gets."""

    def __init__(self, status: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details if details is not None else {}

    def to_status(self) -> dict[str, Any]:
        """The `Status` object of the answer."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        return status | {"details": self.details, "code": self.status}


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field; `reason` is the `CauseType` of the API."""

    reason: str
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def quoted(value: Any) -> str:
    """A value as the API server prints it inside an error: strings quoted, everything else as JSON."""
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return msgspec.json.encode(value).decode()


def invalid_value(field: str, value: Any, why: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {quoted(value)}: {why}")


def type_invalid(field: str, value: Any, why: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, f"Invalid value: {quoted(value)}: {why}")


def required(field: str, why: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, f"Required value: {why}" if why else "Required value")


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    options = ", ".join(quoted(one) for one in supported)
    return FieldError(
        "FieldValueNotSupported", field, f"Unsupported value: {quoted(value)}: supported values: {options}"
    )


def forbidden_field(field: str, why: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {why}")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {quoted(value)}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, f"Too many: {actual}: must have at most {limit} items")


def _qualified(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details | more


def not_found(plural: str, group: str, name: str) -> ApiError:
    message = f'{_qualified(plural, group)} "{name}" not found'
    return ApiError(404, "NotFound", message, _details(name, group, plural))


def no_such_path() -> ApiError:
    """The answer for a path that no resource has."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> ApiError:
    message = f'{_qualified(plural, group)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, _details(name, group, plural))


def conflict(plural: str, group: str, name: str, why: str = "") -> ApiError:
    text = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {_qualified(plural, group)} "{name}": {text}'
    return ApiError(409, "Conflict", message, _details(name, group, plural))


def invalid(kind: str, group: str, name: str, errors: Iterable[FieldError]) -> ApiError:
    """422 with one cause an error; the message names each text once, as upstream's aggregate does."""
    listed = list(errors)
    texts = list(dict.fromkeys(str(one) for one in listed))[:MAX_CAUSES]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": e.reason, "message": e.text, "field": e.field} for e in listed[:MAX_CAUSES]]
    message = f'{_qualified(kind, group)} "{name}" is invalid: {joined}'
    return ApiError(422, "Invalid", message, _details(name, group, kind, causes=causes))


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message, {})


def rejected() -> ApiError:
    """What a JSON patch gets that cannot be applied or whose test fails (recorded)."""
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", {})


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized", {})


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    subject = _qualified(plural, group)
    message = f'{subject} "{name}" is forbidden: {why}' if name else f"{subject} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, _details(name, group, plural))


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message, {})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, {})


def unsupported_media_type(sent: str, accepted: Sequence[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
        if sent
        else "the body of the request has no content type - accepted media types include: " + ", ".join(accepted)
    )
    return ApiError(415, "UnsupportedMediaType", message, {})


def too_large(limit: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})


def resource_version_too_large(asked: int, current: int) -> ApiError:
    message = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return ApiError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
