"""Which devices, and with which taint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from taintctl.api.base import Flag, SpecModel

DriverName = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
PoolName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9./]*[a-z0-9])?$")]
DeviceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


_LABEL_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?",
    re.ASCII,
)
LabelValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


def _label_keys(labels: Mapping[str, str]) -> Mapping[str, str]:
    for key in labels:
        if len(key) > 317 or not _LABEL_KEY.fullmatch(key):
            raise ValueError(f"{key[:80]!r} is no label key")
    return labels


NodeLabels = Annotated[dict[str, LabelValue], Field(min_length=1, max_length=32), AfterValidator(_label_keys)]


def _different(uuids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(uuids)) < len(uuids):
        raise ValueError("names one UUID twice")
    return uuids


class CELDeviceSelector(SpecModel):
    expression: Annotated[str, Field(min_length=1, max_length=10240)] = Field(
        description="True for the devices that are meant, as in a ResourceClaim's request: `device.driver`, "
        "`device.attributes`, `device.capacity`."
    )


class DeviceSelector(SpecModel):
    """One condition on a device, as in a DeviceClass or a ResourceClaim's request."""

    cel: CELDeviceSelector = Field(description="The condition in CEL.")


class Partitions(StrEnum):
    """What becomes of the other devices on the same hardware."""

    INCLUDE = "Include"
    """With a physical device its partitions go along, and with a partition its physical device and what else is on it:
    devices that share a counter set, or one's `parentUUID` is the other's `uuid`."""
    EXACT = "Exact"
    """Only what the target matches."""


_CRITERIA = ("driver", "nodeSelector", "deviceClassName", "selectors", "uuids")
_EMPTY = (
    "target must name at least one of driver, nodeSelector, deviceClassName, selectors, uuids: "
    "an empty target would mean every device"
)


class Target(SpecModel):
    """Which devices: every criterion given must match. `pool` and `device` need a `driver`."""

    validations: ClassVar = (
        (" || ".join(f"has(self.{name})" for name in (*_CRITERIA, "pool", "device")), _EMPTY),
        ("!(has(self.pool) || has(self.device)) || has(self.driver)", "pool and device need a driver"),
    )

    driver: DriverName | None = Field(
        None, description="The DRA driver that publishes the devices, as in a ResourceSlice."
    )
    pool: PoolName | None = Field(
        None, description="The driver's pool; for node-local devices usually the node's name."
    )
    device: DeviceName | None = Field(None, description="The device's name in its pool.")
    node_selector: NodeLabels | None = Field(
        None,
        description="Labels of the node that the device is local to, as a pod's nodeSelector. A device that is not "
        "local to one node matches none.",
    )
    device_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = Field(
        None, description="A DeviceClass: its selectors must match the device."
    )
    selectors: Annotated[tuple[DeviceSelector, ...], Field(min_length=1, max_length=32)] | None = Field(
        None, description="Conditions that must all be true, as in a ResourceClaim's request."
    )
    uuids: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1, max_length=128)], ...],
            Field(min_length=1, max_length=256),
            AfterValidator(_different),
        ]
        | None
    ) = Field(
        None,
        description="UUIDs of the hardware, as the devices' attribute `uuid` has them.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    partitions: Partitions = Partitions.INCLUDE
    whole_driver: Flag = Field(False, description="Must be true where the target comes to every device of a driver.")

    @model_validator(mode="after")
    def _criteria(self) -> Target:
        if self.driver is None and (self.pool or self.device):
            raise ValueError("pool and device need a driver")
        if not (self.driver or self.node_selector or self.device_class_name or self.selectors or self.uuids):
            raise ValueError(_EMPTY)
        return self

    @property
    def by_attribute(self) -> bool:
        """Whether only what the driver publishes of a device can say if it is meant."""
        return bool(self.device_class_name or self.selectors or self.uuids)


_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
KEY_PATTERN = rf"^({_DOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?$"
"""Of a taint's key, and of a label's."""
TaintKey = Annotated[str, Field(min_length=1, max_length=317, pattern=KEY_PATTERN)]
TaintValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


class Taint(SpecModel):
    """The taint's key and value. The effect is the workflow's, not the user's."""

    key: TaintKey = Field("taintctl.dev/maintenance", description="The taint's key.")
    value: TaintValue | None = Field(None, description="The taint's value; by default the run's name.")
