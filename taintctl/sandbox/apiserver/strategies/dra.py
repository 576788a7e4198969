"""resource.k8s.io: claims, claim templates and taint rules; slices are in slices.py.

Messages and order as in tests/recordings/04-errors.json; defaults as in 01-objects.json; otherwise
`pkg/apis/resource/validation` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from taintctl.sandbox.apiserver.errors import (
    FieldError,
    forbidden_field,
    invalid_value,
    required,
    too_many,
    unsupported,
)
from taintctl.sandbox.apiserver.meta import (
    Object,
    dns_label_problems,
    dns_subdomain_problems,
    label_value_problems,
    qualified_name_problems,
    timestamp,
)
from taintctl.sandbox.apiserver.strategies.base import Strategy

EFFECTS = ("NoExecute", "NoSchedule", "None")


def taint_problems(field: str, taint: Object) -> Iterator[FieldError]:
    """What is wrong with a device taint."""
    key, value = taint.get("key", ""), taint.get("value", "")
    yield from (invalid_value(f"{field}.key", key, why) for why in qualified_name_problems(key))
    if value:
        yield from (invalid_value(f"{field}.value", value, why) for why in label_value_problems(value))
    effect = taint.get("effect", "")
    if not effect:
        yield required(f"{field}.effect")
    elif effect not in EFFECTS:
        yield unsupported(f"{field}.effect", effect, EFFECTS)


def pool_problems(field: str, pool: str) -> Iterator[FieldError]:
    """A pool name is one or more DNS subdomains separated by slashes; the first bad part is named."""
    for part in pool.split("/"):
        yield from (invalid_value(field, part, why) for why in dns_subdomain_problems(part))


class TaintRuleStrategy(Strategy):
    """DeviceTaintRule: `timeAdded` is set at creation and again when the effect changes."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = struct(obj.get("spec"))
        spec["taint"] = struct(spec.get("taint"))
        if not spec["taint"].get("timeAdded"):
            spec["taint"]["timeAdded"] = timestamp(now)
        # As a Go struct is written: the selector before the taint.
        obj["spec"] = {part: spec[part] for part in ("deviceSelector", "taint") if part in spec}

    def prepare_create(self, obj: Object, now: datetime) -> None:
        obj["status"] = {}

    def prepare_update(self, obj: Object, old: Object, subresource: str | None, now: datetime) -> None:
        taint, before = obj["spec"]["taint"], old["spec"]["taint"]
        if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get("timeAdded"):
            taint["timeAdded"] = timestamp(now)

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if subresource == "status":
            return []
        spec = obj["spec"]
        errors: list[FieldError] = []
        selector = spec.get("deviceSelector") or {}
        if "driver" in selector:
            driver = selector["driver"] or ""
            field = "spec.deviceSelector.driver"
            if not driver:
                errors.append(required(field))
            errors += [invalid_value(field, driver, why) for why in dns_subdomain_problems(driver) if driver]
        if "pool" in selector:
            errors += pool_problems("spec.deviceSelector.pool", selector["pool"] or "")
        if "device" in selector:
            device = selector["device"] or ""
            errors += [invalid_value("spec.deviceSelector.device", device, why) for why in dns_label_problems(device)]
        return [*errors, *taint_problems("spec.taint", spec["taint"])]


def default_claim_spec(spec: Object) -> None:
    """The defaults of a claim's spec, in place: one device, exactly, and `Equal` for tolerations."""
    for request in struct(spec.get("devices")).get("requests") or []:
        for part in [request.get("exactly"), *(request.get("firstAvailable") or [])]:
            if not isinstance(part, dict):
                continue
            part.setdefault("allocationMode", "ExactCount")
            if part["allocationMode"] == "ExactCount":
                part.setdefault("count", 1)
            for toleration in part.get("tolerations") or []:
                toleration.setdefault("operator", "Equal")


def claim_spec_problems(field: str, spec: Object) -> Iterator[FieldError]:
    """What is wrong with a claim's spec."""
    for index, request in enumerate(struct(spec.get("devices")).get("requests") or []):
        path = f"{field}.devices.requests[{index}]"
        name = request.get("name", "")
        yield from (invalid_value(f"{path}.name", name, why) for why in dns_label_problems(name))
        exactly, choices = request.get("exactly"), request.get("firstAvailable")
        if not exactly and not choices:
            yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
        if exactly and choices:
            yield invalid_value(path, None, "exactly one of `exactly` or `firstAvailable` is required")
        if exactly:
            yield from _request_problems(f"{path}.exactly", exactly)
        for at, choice in enumerate(choices or []):
            yield from _request_problems(f"{path}.firstAvailable[{at}]", choice)


def _request_problems(field: str, request: Object) -> Iterator[FieldError]:
    if not request.get("deviceClassName"):
        yield required(f"{field}.deviceClassName")
    mode = request.get("allocationMode")
    if mode not in ("ExactCount", "All"):
        yield unsupported(f"{field}.allocationMode", mode, ("All", "ExactCount"))
    count = request.get("count", 0)
    if mode == "ExactCount" and (not isinstance(count, int) or count <= 0):
        yield invalid_value(f"{field}.count", count, "must be greater than zero")
    for index, toleration in enumerate(request.get("tolerations") or []):
        if toleration.get("operator") not in ("Equal", "Exists"):
            yield unsupported(f"{field}.tolerations[{index}].operator", toleration.get("operator"), ("Equal", "Exists"))


class ClaimStrategy(Strategy):
    """ResourceClaim: the spec never changes, nor does an allocation while the claim is reserved."""

    def default(self, obj: Object, now: datetime) -> None:
        obj["spec"] = struct(obj.get("spec"))
        default_claim_spec(obj["spec"])

    def prepare_create(self, obj: Object, now: datetime) -> None:
        obj["status"] = {}

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if subresource == "status":
            return list(_status_problems(obj.get("status") or {}, (old or {}).get("status") or {}))
        if old is not None and obj["spec"] != old["spec"]:
            return [invalid_value("spec", obj["spec"], "field is immutable")]
        return list(claim_spec_problems("spec", obj["spec"]))


def _status_problems(status: Object, before: Object) -> Iterator[FieldError]:
    reserved = status.get("reservedFor") or []
    if reserved and not status.get("allocation"):
        yield forbidden_field("status.reservedFor", "may not be specified when `allocated` is not set")
    if len(reserved) > 256:
        yield too_many("status.reservedFor", len(reserved), 256)
    if before.get("allocation") and status.get("allocation") and status["allocation"] != before["allocation"]:
        yield invalid_value("status.allocation", status["allocation"], "field is immutable")


class ClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplate: the spec never changes."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = struct(obj.get("spec"))
        spec["spec"] = struct(spec.get("spec"))
        default_claim_spec(spec["spec"])

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if old is not None and obj["spec"] != old["spec"]:
            return [invalid_value("spec", obj["spec"], "field is immutable")]
        return list(claim_spec_problems("spec.spec", obj["spec"]["spec"]))


def struct(value: Any) -> Object:
    """The value where it is an object, an empty one otherwise."""
    return value if isinstance(value, dict) else {}
