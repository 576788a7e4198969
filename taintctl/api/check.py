"""Bad input is refused where it enters: an object of ours from JSON, or the problems that speak against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import API_VERSION, ObjectMeta, SpecModel
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Reason
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow

Own = MaintenanceWindow | MaintenanceRun | EvictionPolicy | MaintenanceApproval
KINDS: tuple[type[Own], ...] = (MaintenanceWindow, MaintenanceRun, EvictionPolicy, MaintenanceApproval)
M = TypeVar("M", MaintenanceWindow, MaintenanceRun, EvictionPolicy, MaintenanceApproval)
MAX_PROBLEMS = 20


@dataclass(frozen=True)
class FieldProblem:
    """What is wrong and where: `field` is a path such as `spec.target.devcie`."""

    field: str
    message: str
    reason: Reason = Reason.INVALID_SPEC

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


@dataclass(frozen=True)
class Checked(Generic[M]):
    """The object (None where it can't be read at all) and every problem found, at most 20."""

    obj: M | None
    metadata: ObjectMeta
    problems: tuple[FieldProblem, ...]


def check(kind: type[M], raw: Mapping[str, Any]) -> Checked[M]:
    """Reads an object of ours. An unknown field under `spec` is a problem that names it (a misspelt one must not
    widen what is meant); the object is read all the same, so that a run in flight can still be stopped."""
    try:
        metadata = ObjectMeta.model_validate(raw.get("metadata") or {})
    except ValidationError:
        metadata = ObjectMeta()  # what is wrong with it is said below, with the rest
    problems: list[FieldProblem] = []
    if raw.get("kind") not in (None, kind.KIND):
        problems.append(FieldProblem("kind", f"{raw.get('kind')!r} is not {kind.KIND}"))
    if raw.get("apiVersion") not in (None, API_VERSION):
        problems.append(FieldProblem("apiVersion", f"{raw.get('apiVersion')!r} is not {API_VERSION}"))
    if len(metadata.name) > kind.NAME_MAX:
        problems.append(FieldProblem("metadata.name", f"longer than {kind.NAME_MAX} characters"))
    present = {name: part for name, part in raw.items() if part is not None}
    try:
        obj: M | None = kind.model_validate(
            {**present, "kind": kind.KIND, "apiVersion": API_VERSION},
            # Only the API's own names: `work_completed` is as unknown here as it is to an API server.
            by_alias=True,
            by_name=False,
        )
    except ValidationError as error:
        problems.extend(_from_pydantic(error))
        problems.extend(_unknown_in_raw(kind, raw))
        return Checked(None, metadata, _bounded(problems))
    assert obj is not None
    problems.extend(
        FieldProblem(path, "is not a field of this API; check the spelling", Reason.UNKNOWN_FIELD)
        for path in _unknown(obj.spec, "spec")
    )
    if isinstance(obj, MaintenanceRun) and obj.spec.start_at is not None and obj.spec.deadline <= obj.spec.start_at:
        problems.append(FieldProblem("spec.deadline", "must be after spec.startAt"))
    return Checked(obj, metadata, _bounded(problems))


def _bounded(problems: list[FieldProblem]) -> tuple[FieldProblem, ...]:
    unique = dict.fromkeys(problems)
    return tuple(unique)[:MAX_PROBLEMS]


def _unknown(model: BaseModel, path: str) -> Iterator[str]:
    """Paths of the fields that no model of ours knows, depth first."""
    if isinstance(model, SpecModel):
        for name in sorted(model.model_extra or {}):
            yield f"{path}.{name[:64]}"
    for name, info in type(model).model_fields.items():
        value = getattr(model, name)
        alias = info.alias or name
        if isinstance(value, BaseModel):
            yield from _unknown(value, f"{path}.{alias}")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, BaseModel):
                    yield from _unknown(item, f"{path}.{alias}[{index}]")


def _unknown_in_raw(kind: type[Own], raw: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """Of an object that can't be read: the fields directly under `spec` that nobody knows (often the cause)."""
    spec = raw.get("spec")
    model = kind.model_fields["spec"].annotation
    if isinstance(spec, Mapping) and isinstance(model, type) and issubclass(model, BaseModel):
        known = {info.alias or name for name, info in model.model_fields.items()}
        for name in sorted(set(map(str, spec)) - known):
            yield FieldProblem(
                f"spec.{name[:64]}", "is not a field of this API; check the spelling", Reason.UNKNOWN_FIELD
            )


def _from_pydantic(error: ValidationError) -> Iterator[FieldProblem]:
    for item in error.errors(include_url=False, include_input=False):
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "missing":
            message = "is required"
        yield FieldProblem(path or "spec", message[:300])
