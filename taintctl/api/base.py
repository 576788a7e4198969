"""What every kind of ours shares: names, the model base, Kubernetes' durations and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic.alias_generators import to_camel

GROUP = "taintctl.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

FINALIZER = f"{GROUP}/rules"
"""On every MaintenanceRun: our rules come off before the run goes."""
LABEL_RUN = f"{GROUP}/run"
"""On a DeviceTaintRule: the run's name, shortened to a label value where it is longer."""
LABEL_ROLE = f"{GROUP}/role"
"""On a DeviceTaintRule: `taint`, or `dry-run` for the fresh dry run beside it."""
LABEL_WINDOW = f"{GROUP}/window"
"""On a MaintenanceRun: the window that made it."""
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "taintctl"
ANNOTATION_ROUND = f"{GROUP}/dry-run-round"
"""On a DeviceTaintRule: which dry run of its run it was made for, so that a restart tells a fresh one from a stale."""

MAX_LISTED = 100
"""Devices and pods listed in a status; more are counted."""
MAX_HISTORY = 50
MAX_RULES = 256
MAX_NODES = 1000
"""Nodes that a run remembers; a plan with more is refused."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,3})?)s)?", re.ASCII)
DURATION_PATTERN = r"^([0-9]+h)?([0-9]+m)?([0-9]+(\.[0-9]{1,3})?s)?$"
MAX_DURATION = timedelta(days=366)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """A duration as Kubernetes writes it: `1h30m`, `45s`, `0s`. Raises ValueError with one sentence."""
    match = _DURATION.fullmatch(text) if text else None
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 1h30m or 45s")
    hours, minutes, seconds = match.groups()
    if max(len(part or "") for part in match.groups()) > 9:
        raise ValueError(f"{text!r} is longer than a year")
    value = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=float(seconds or 0))
    if value > MAX_DURATION:
        raise ValueError(f"{text!r} is longer than a year")
    return value


def format_duration(value: timedelta) -> str:
    """`1h30m`: what `parse_duration` takes, with no part that is zero (but `0s`)."""
    milliseconds = max(0, round(value / timedelta(milliseconds=1)))
    hours, rest = divmod(milliseconds, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".")
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "") + (f"{seconds}s" if rest else "")
    return text or "0s"


def _duration(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration such as 1h30m or 45s")
    return parse_duration(value)


def parse_time(text: str) -> datetime:
    """An RFC 3339 time, as an API server takes it for the format date-time. Raises ValueError with one sentence."""
    wrong = f"{text!r} is not an RFC 3339 time such as 2026-12-01T21:00:00Z"
    try:
        value = datetime.fromisoformat(text)
        if value.tzinfo is not None and _RFC_3339.fullmatch(text):
            return value.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter on the first and the last day of all
        raise ValueError(wrong) from None
    if value.tzinfo is None:
        wrong = f"{text!r} has no time zone; write it such as 2026-12-01T21:00:00Z"
    raise ValueError(wrong)


def format_time(value: datetime) -> str:
    """RFC 3339 in UTC; with microseconds where there are any, since our waits are compared with them."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _time(value: Any) -> datetime:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone; write it such as 2026-12-01T21:00:00Z")
        return value.astimezone(UTC)
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an RFC 3339 time such as 2026-12-01T21:00:00Z")
    return parse_time(value)


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "minLength": 2, "maxLength": 32}),
]
Time = Annotated[
    datetime,
    BeforeValidator(_time),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64}),
]


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, bool) or not (isinstance(value, int) or (isinstance(value, float) and value.is_integer())):
        raise ValueError(f"{value!r} is not a whole number")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]
"""A boolean as an API server takes it: no "yes", no 1."""
WHOLE = BeforeValidator(_whole)
"""Beside an int's bounds: as an API server takes integers, no "3" and no true, but 3.0, which JSON calls 3 too."""

Name = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
"""A DNS subdomain, as object names are."""


class Model(BaseModel):
    """A frozen part of one of our objects: camelCase outside, snake_case inside; a status ignores unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        strict=False,
        validate_default=False,
    )

    def dump(self) -> dict[str, Any]:
        """As JSON holds it: camelCase, no nulls."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class SpecModel(Model):
    """A part of a `spec`: it keeps unknown fields, so that a misspelt one is refused by name and never widens a target.

    `validations` are the CEL rules that the generated CRD carries: (rule, message).
    """

    model_config = ConfigDict(extra="allow")
    validations: ClassVar[tuple[tuple[str, str], ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        """An API server drops the nulls of fields that are not nullable, and none of ours is."""
        return {name: value for name, value in data.items() if value is not None} if isinstance(data, dict) else data


class OwnerReference(Model):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model):
    """What we read of an object's metadata."""

    name: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


class Condition(Model):
    """metav1.Condition. `status` is True, False or Unknown; Unknown never passes a gate."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_transition_time: Time | None = None


def set_condition(conditions: tuple[Condition, ...], new: Condition, now: datetime) -> tuple[Condition, ...]:
    """The conditions with `new` in its place; the transition time moves only when the status does (metav1)."""
    old = next((c for c in conditions if c.type == new.type), None)
    moved = old is None or old.status != new.status
    since = now if moved or old is None else old.last_transition_time
    stamped = new.model_copy(update={"last_transition_time": since})
    if old is None:
        return (*conditions, stamped)
    return tuple(stamped if c.type == new.type else c for c in conditions)


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((c for c in conditions if c.type == kind), None)
