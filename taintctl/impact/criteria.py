"""Whether one device is meant by a target: every criterion must match."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from taintctl.api.check import FieldProblem
from taintctl.api.objects import DeviceClass, Node, SliceDevice
from taintctl.api.plan import DeviceID, PlannedDevice, Problem
from taintctl.api.pools import PoolKey, PublishedPool, text_attribute
from taintctl.api.reasons import Reason
from taintctl.api.target import Target
from taintctl.cel.environment import CelError, compile_device_selector
from taintctl.cel.references import references


class SelectorFailed(Exception):
    """An expression that is neither true nor false for a device: no silent no. Its text names the device."""


class _Condition:
    """One expression, evaluated once for devices that are equal in all that it reads."""

    def __init__(self, where: str, expression: str) -> None:
        """`where` is how people find it: `selectors[0]`, `DeviceClass gpu`. Raises CelError."""
        self.where = where
        self._holds = compile_device_selector(expression)
        self._reads = references(expression)
        self._names: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._known: dict[Hashable, bool] = {}

    def holds(self, driver: str, device: SliceDevice) -> bool:
        """Raises CelError."""
        attributes, capacity = device.attributes or {}, device.capacity or {}
        multiple = bool(device.allow_multiple_allocations)
        if self._reads is None:
            return self._holds(driver, _plain(attributes), _plain(capacity), multiple)
        names = self._names.get(driver)
        if names is None:
            names = self._names[driver] = (
                _qualified(self._reads.attributes, driver),
                _qualified(self._reads.capacity, driver),
            )
        read = [attributes.get(name) for name in names[0]], [capacity.get(name) for name in names[1]]
        key = (driver, multiple, *read[0], *read[1])
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._holds(
                driver, _given(names[0], read[0]), _given(names[1], read[1]), multiple
            )
        return known


def _qualified(read: Iterable[tuple[str, str]], driver: str) -> tuple[str, ...]:
    """The names that a device of the driver may have them under: those of its own domain also without one."""
    names = {f"{domain}/{name}" for domain, name in read} | {name for domain, name in read if domain == driver}
    return tuple(sorted(names))


@dataclass(frozen=True)
class Criteria:
    """A target with its expressions compiled."""

    target: Target
    conditions: tuple[_Condition, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Of each node, by its name."""

    def names_pool(self, driver: str, pool: str) -> bool:
        return self.target.driver in (None, driver) and self.target.pool in (None, pool)

    def names(self, device: DeviceID) -> bool:
        """The criteria that need only the device's name."""
        return self.names_pool(device.driver, device.pool) and self.target.device in (None, device.device)

    def on_node(self, node: str) -> bool:
        """Whether the node (empty: none, or several) has the labels."""
        wanted = self.target.node_selector
        if wanted is None:
            return True
        labels = self.labels.get(node, {})
        return all(labels.get(key) == value for key, value in wanted.items())

    def has(self, driver: str, pool: str, device: SliceDevice) -> bool:
        """The criteria on what the driver publishes of it. Raises SelectorFailed."""
        if self.target.uuids is not None and text_attribute(driver, device, "uuid") not in self.target.uuids:
            return False
        if not self.conditions:
            return True
        for condition in self.conditions:
            try:
                held = condition.holds(driver, device)
            except CelError as error:
                named = DeviceID(driver, pool, device.name)
                raise SelectorFailed(f"{condition.where} cannot be decided for device {named}: {error}") from None
            if not held:
                return False
        return True

    def mean(self, planned: PlannedDevice, device: SliceDevice) -> bool:
        """All of them. Raises SelectorFailed."""
        return (
            self.names(planned.id)
            and self.on_node(planned.node)
            and self.has(planned.id.driver, planned.id.pool, device)
        )


def _given(names: Sequence[str], values: Sequence[msgspec.Struct | None]) -> dict[str, Any]:
    return _plain({name: value for name, value in zip(names, values, strict=True) if value is not None})


def _plain(values: Mapping[str, msgspec.Struct]) -> dict[str, Any]:
    """As JSON holds them, for CEL."""
    return msgspec.to_builtins(values) if values else {}


def criteria(target: Target, classes: Iterable[DeviceClass], nodes: Iterable[Node] = ()) -> Criteria | Problem:
    """The target ready to ask, or what of it the cluster does not have or cannot be compiled."""
    conditions = []
    if target.device_class_name is not None:
        found = next((c for c in classes if c.metadata.name == target.device_class_name), None)
        if found is None:
            return Problem(
                Reason.DEVICE_CLASS_NOT_FOUND,
                f"There is no DeviceClass {target.device_class_name}; kubectl get deviceclasses shows those there are.",
            )
        where = f"DeviceClass {target.device_class_name}"
        for selector in found.spec.selectors or ():
            if selector.cel is None:
                return Problem(
                    Reason.SELECTOR_FAILED,
                    f"{where} has a selector that is not CEL, which this version of taintctl cannot decide.",
                )
            try:
                conditions.append(_Condition(where, selector.cel.expression))
            except CelError as error:
                return Problem(
                    Reason.SELECTOR_FAILED, f"An expression of {where} cannot be used: {error}; name devices otherwise."
                )
    for problem in target_problems(target):
        return Problem(Reason.SELECTOR_FAILED, f"{problem}.")
    conditions += [
        _Condition(f"target.selectors[{index}]", selector.cel.expression)
        for index, selector in enumerate(target.selectors or ())
    ]
    labels = {node.metadata.name: node.metadata.labels or {} for node in nodes} if target.node_selector else {}
    return Criteria(target, tuple(conditions), labels)


def target_problems(target: Target) -> tuple[FieldProblem, ...]:
    """The expressions of the target that do not compile."""
    found = []
    for index, selector in enumerate(target.selectors or ()):
        try:
            compile_device_selector(selector.cel.expression)
        except CelError as error:
            found.append(
                FieldProblem(f"spec.target.selectors[{index}].cel.expression", f"does not compile: {error}"[:300])
            )
    return tuple(found)


def pools_meant(
    target: Target, pools: Mapping[PoolKey, PublishedPool], classes: Iterable[DeviceClass]
) -> frozenset[PoolKey]:
    """The pools that can hold a device of the target, of those on the nodes that it means: those with one that
    matches, those that are not published whole yet, and those with one for which it cannot be decided."""
    asked = criteria(target, classes)
    if isinstance(asked, Problem):
        return frozenset()
    return frozenset(
        key for key, pool in pools.items() if asked.names_pool(*key) and (not pool.complete or _any(asked, pool))
    )


def _any(asked: Criteria, pool: PublishedPool) -> bool:
    if asked.target.device is None and not asked.target.by_attribute:
        return True
    try:
        return any(
            asked.target.device in (None, device.name) and asked.has(pool.driver, pool.name, device)
            for item in pool.slices
            for device in item.spec.devices or ()
        )
    except SelectorFailed:
        return True
