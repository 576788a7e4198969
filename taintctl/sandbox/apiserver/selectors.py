"""Label and field selectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taintctl.sandbox.apiserver.errors import bad_request
from taintctl.sandbox.apiserver.meta import Object, label_value_problems, qualified_name_problems
from taintctl.sandbox.resources import ResourceInfo

Matcher = Callable[[Object], bool]

_SET = re.compile(r"^\s*(\S+)\s+(in|notin)\s*\(([^)]*)\)\s*$")
_EQUALITY = re.compile(r"^\s*([^=!\s]+)\s*(==|=|!=)\s*([^=!\s]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^=!\s,()<>]+)\s*$")


@dataclass(frozen=True)
class Requirement:
    """One part of a label selector. An absent label satisfies `NotIn`, and the empty `In` value only when absent."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "Exists")


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """A label selector as `kubectl -l` takes it; ApiError 400 when it is none."""
    requirements = []
    for part in re.split(r",(?![^(]*\))", text):
        if part.strip():
            requirements.append(_requirement(part, text))
    return tuple(requirements)


def _requirement(part: str, whole: str) -> Requirement:
    if match := _SET.match(part):
        key, operator, values = match.groups()
        listed = tuple(one.strip() for one in values.split(","))
        found = Requirement(key, "In" if operator == "in" else "NotIn", listed)
    elif match := _EQUALITY.match(part):
        key, operator, value = match.groups()
        found = Requirement(key, "NotIn" if operator == "!=" else "In", (value,))
    elif match := _EXISTS.match(part):
        found = Requirement(match.group(2), "DoesNotExist" if match.group(1) else "Exists")
    else:
        raise bad_request(f"unable to parse requirement: found '{part.strip()}' in label selector '{whole}'")
    problems = [*qualified_name_problems(found.key), *(why for v in found.values for why in label_value_problems(v))]
    if problems:
        raise bad_request(f"unable to parse requirement: {found.key}: {problems[0]}")
    return found


def label_selector(selector: Object | None) -> Matcher:
    """A `metav1.LabelSelector`; a missing or empty one matches nothing, as for disruption budgets."""
    requirements = [Requirement(k, "In", (v,)) for k, v in ((selector or {}).get("matchLabels") or {}).items()]
    for one in (selector or {}).get("matchExpressions") or []:
        requirements.append(Requirement(one["key"], one["operator"], tuple(one.get("values") or ())))

    def matches(obj: Object) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return bool(requirements) and all(one.matches(labels) for one in requirements)

    return matches


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)

_FIELDS: dict[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "namespaces": ("status.phase",),
    "secrets": ("type",),
    "events": _EVENT_FIELDS,
    "jobs.batch": ("status.successful",),
    "resourceslices.resource.k8s.io": ("spec.nodeName", "spec.driver"),
}
"""The fields beside metadata.name and metadata.namespace that each kind can be selected by."""

_EVENTS_V1 = {
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
}


def parse_fields(text: str, info: ResourceInfo) -> tuple[tuple[str, bool, str], ...]:
    """Pairs of field and wanted value, with whether it is wanted; ApiError 400 for a field nobody can select by."""
    allowed = ("metadata.name", "metadata.namespace", *_FIELDS.get(info.storage_key, ()))
    found = []
    for part in text.split(","):
        if not part.strip():
            continue
        match = re.match(r"^\s*([^=!]+?)\s*(==|=|!=)\s*(.*?)\s*$", part)
        if match is None:
            raise bad_request(f"invalid field selector: {part.strip()!r}: can't understand it")
        field, operator, value = match.groups()
        if info.storage:
            head, dot, rest = field.partition(".")
            field = _EVENTS_V1.get(head, head) + dot + rest
        if field not in allowed:
            raise bad_request(f"field label not supported: {field}")
        found.append((field, operator != "!=", value))
    return tuple(found)


def field_value(obj: Object, field: str) -> str:
    """The value of a field as selectors compare it: text, empty when absent."""
    if field == "source":
        return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")
    value: Any = obj
    for part in field.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if field in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value)


def matcher(labels: str, fields: str, info: ResourceInfo) -> Matcher | None:
    """What a request's selectors ask for; None when they ask for everything."""
    requirements = parse_labels(labels)
    wanted = parse_fields(fields, info)
    if not requirements and not wanted:
        return None

    def matches(obj: Object) -> bool:
        if any((field_value(obj, field) == value) != positive for field, positive, value in wanted):
            return False
        if not requirements:
            return True
        own = obj["metadata"].get("labels") or {}
        return all(one.matches(own) for one in requirements)

    return matches
