"""ResourceSlices: the devices of a pool, or the counters that its partitionable devices share.

Messages, order and bounds of `pkg/apis/resource/validation` of Kubernetes 1.36, as far as the sandbox reads the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from taintctl.cel.quantity import parse_quantity
from taintctl.sandbox.apiserver.errors import (
    FieldError,
    bad_request,
    duplicate,
    invalid_value,
    required,
    too_many,
)
from taintctl.sandbox.apiserver.meta import Object, dns_label_problems, dns_subdomain_problems, timestamp
from taintctl.sandbox.apiserver.strategies.base import Strategy
from taintctl.sandbox.apiserver.strategies.dra import pool_problems, struct, taint_problems

MAX_DEVICES = 128
MAX_DEVICES_WITH_MORE = 64
"""Where one device of the slice has taints or consumes counters."""
MAX_COUNTER_SETS = 8
MAX_COUNTERS = 32
"""In a set, and of a set by one device."""
MAX_CONSUMPTIONS = 2
"""Counter sets from which one device consumes."""
_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_SCOPES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_DEVICE_SCOPES = ("nodeName", "nodeSelector", "allNodes")


class SliceStrategy(Strategy):
    """ResourceSlice: the driver, the pool's name and the node never change; taints get their time."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = struct(obj.get("spec"))
        for one in spec.get("sharedCounters") or []:
            _read_quantities(one)
        for device in spec.get("devices") or []:
            for taint in device.get("taints") or []:
                taint.setdefault("timeAdded", timestamp(now))
            for one in device.get("consumesCounters") or []:
                _read_quantities(one)

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        spec = obj["spec"]
        return [
            *_pool_and_driver_problems(spec),
            *(_changed(spec, old["spec"]) if old is not None else ()),
            *_scope_problems("spec", spec),
            *_content_problems(spec),
        ]


def _read_quantities(counter_set: Object) -> None:
    """The counters as they are stored; ApiError 400 for what a real server could not decode."""
    counters = counter_set.get("counters") or {}
    for name, counter in counters.items():
        try:
            counters[name] = {"value": _quantity(counter)}
        except ValueError:
            why = f'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: counter {name}: {_QUANTITY}'
            raise bad_request(why) from None


def _quantity(counter: Any) -> str:
    """The quantity of a counter, which may be sent as a number; null and absent are zero, as in Go."""
    value = counter.get("value") if isinstance(counter, dict) else counter
    if value is None:
        return "0"
    if not isinstance(counter, dict) or isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("no quantity")
    parse_quantity(str(value))
    return str(value)


def _pool_and_driver_problems(spec: Object) -> Iterator[FieldError]:
    pool = struct(spec.get("pool"))
    if not pool.get("name"):
        yield required("spec.pool.name")
    else:
        yield from pool_problems("spec.pool.name", pool["name"])
    count = pool.get("resourceSliceCount", 0)
    if not isinstance(count, int) or count <= 0:
        yield invalid_value("spec.pool.resourceSliceCount", count, "must be greater than zero")
    driver = spec.get("driver", "")
    if not driver:
        yield required("spec.driver")
    else:
        yield from (invalid_value("spec.driver", driver, why) for why in dns_subdomain_problems(driver))


def _changed(spec: Object, before: Object) -> Iterator[FieldError]:
    for field, now_is, was in (
        ("spec.driver", spec.get("driver", ""), before.get("driver", "")),
        ("spec.pool.name", struct(spec.get("pool")).get("name", ""), struct(before.get("pool")).get("name", "")),
        ("spec.nodeName", spec.get("nodeName"), before.get("nodeName")),
    ):
        if now_is != was:
            yield invalid_value(field, now_is, "field is immutable")


def _set_scopes(field: str, of: Object, scopes: tuple[str, ...], empty: str) -> tuple[list[str], list[FieldError]]:
    """Which of the scopes are set, and what is wrong with the others: false or empty is no way to leave one out."""
    chosen, errors = [], []
    for scope in scopes:
        value = of.get(scope)
        if value or (value is not None and scope == "nodeSelector"):
            chosen.append(f"`{scope}`")
        elif value is not None:
            why = empty if scope == "nodeName" else "must be either unset or set to true"
            errors.append(invalid_value(f"{field}.{scope}", value, why))
    return chosen, errors


def _scope_problems(field: str, spec: Object) -> Iterator[FieldError]:
    chosen, errors = _set_scopes(field, spec, _SCOPES, "must be either unset or set to a non-empty string")
    yield from errors
    selector = spec.get("nodeSelector")
    if selector is not None and len(selector.get("nodeSelectorTerms") or ()) != 1:
        terms = selector.get("nodeSelectorTerms")
        yield invalid_value(
            f"{field}.nodeSelector.nodeSelectorTerms", terms, "must have exactly one node selector term"
        )
    why = f"exactly one of {', '.join(f'`{scope}`' for scope in _SCOPES)} is required"
    if not chosen:
        yield required(field, why)
    elif len(chosen) > 1:
        yield invalid_value(field, f"{{{', '.join(chosen)}}}", f"{why}, but multiple fields are set")


def _content_problems(spec: Object) -> Iterator[FieldError]:
    """Devices and counters, which never stand in one slice."""
    if spec.get("sharedCounters") is not None and spec.get("devices") is not None:
        yield invalid_value("spec", "", "only one of `sharedCounters` or `devices` is allowed")
    devices = spec.get("devices") or []
    more = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = MAX_DEVICES_WITH_MORE if more else MAX_DEVICES
    if len(devices) > limit:
        yield too_many("spec.devices", len(devices), limit)
    else:
        for index, device in enumerate(devices):
            yield from _device_problems(f"spec.devices[{index}]", device, bool(spec.get("perDeviceNodeSelection")))
        yield from _duplicates("spec.devices", [device.get("name", "") for device in devices])
    yield from _counter_set_problems("spec.sharedCounters", spec.get("sharedCounters") or [], "name", MAX_COUNTER_SETS)


def _device_problems(field: str, device: Object, per_device: bool) -> Iterator[FieldError]:
    name = device.get("name", "")
    yield from (invalid_value(f"{field}.name", name, why) for why in dns_label_problems(name))
    for attribute, value in (device.get("attributes") or {}).items():
        if not isinstance(value, dict) or len(value) != 1:
            path = f"{field}.attributes[{attribute}]"
            yield (
                required(path, "exactly one value must be specified")
                if not value
                else invalid_value(path, value, "exactly one value must be specified")
            )
    for index, taint in enumerate(device.get("taints") or []):
        yield from taint_problems(f"{field}.taints[{index}]", taint)
    consumed = device.get("consumesCounters") or []
    yield from _counter_set_problems(f"{field}.consumesCounters", consumed, "counterSet", MAX_CONSUMPTIONS)
    yield from _device_scope_problems(field, device, per_device)


def _device_scope_problems(field: str, device: Object, per_device: bool) -> Iterator[FieldError]:
    if not per_device:
        if any(device.get(scope) is not None for scope in _DEVICE_SCOPES):
            where = "if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            yield invalid_value(field, None, f"`nodeName`, `nodeSelector` and `allNodes` can only be set {where}")
        return
    chosen, errors = _set_scopes(field, device, _DEVICE_SCOPES, "must not be empty")
    yield from errors
    when = "is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
    why = f"exactly one of `nodeName`, `nodeSelector`, or `allNodes` {when}"
    if not chosen:
        yield required(field, why)
    elif len(chosen) > 1:
        yield invalid_value(field, f"{{{', '.join(chosen)}}}", why)


def _counter_set_problems(field: str, sets: list[Object], key: str, limit: int) -> Iterator[FieldError]:
    """Of counter sets, or of what a device consumes of them; `key` is the field with the set's name."""
    if len(sets) > limit:
        yield too_many(field, len(sets), limit)
        return
    for index, one in enumerate(sets):
        path, name, counters = f"{field}[{index}]", one.get(key, ""), one.get("counters") or {}
        if not name:
            yield required(f"{path}.{key}")
        else:
            yield from (invalid_value(f"{path}.{key}", name, why) for why in dns_label_problems(name))
        if not counters:
            yield required(f"{path}.counters")
        elif len(counters) > MAX_COUNTERS:
            yield too_many(f"{path}.counters", len(counters), MAX_COUNTERS)
        else:
            for counter in counters:
                yield from (
                    invalid_value(f"{path}.counters[{counter}]", counter, w) for w in dns_label_problems(counter)
                )
    yield from _duplicates(field, [one.get(key, "") for one in sets])


def _duplicates(field: str, names: list[Any]) -> Iterator[FieldError]:
    seen: set[Any] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield duplicate(f"{field}[{index}]", name)
        seen.add(name)
