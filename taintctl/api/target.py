"""Which devices, and with which taint."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from taintctl.api.base import Flag, SpecModel

DriverName = Annotated[
    str,
    Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"),
]
PoolName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9./]*[a-z0-9])?$")]
DeviceName = Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]


class Target(SpecModel):
    """Which devices: every criterion given must match. `pool` and `device` need a `driver`."""

    validations: ClassVar = (
        (
            "has(self.driver) || has(self.pool) || has(self.device)",
            "target must name at least a driver: an empty target would mean every device",
        ),
        ("!(has(self.pool) || has(self.device)) || has(self.driver)", "pool and device need a driver"),
    )

    driver: DriverName | None = Field(
        None, description="The DRA driver that publishes the devices, as in a ResourceSlice."
    )
    pool: PoolName | None = Field(
        None, description="The driver's pool; for node-local devices usually the node's name."
    )
    device: DeviceName | None = Field(None, description="The device's name in its pool.")
    whole_driver: Flag = Field(False, description="Must be true where the target comes to every device of the driver.")

    @model_validator(mode="after")
    def _criteria(self) -> Target:
        if self.driver is None and (self.pool or self.device):
            raise ValueError("pool and device need a driver")
        if self.driver is None:
            raise ValueError("target must name at least a driver: an empty target would mean every device")
        return self


TaintKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=317,
        pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
    ),
]
TaintValue = Annotated[str, Field(max_length=63, pattern=r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")]


class Taint(SpecModel):
    """The taint's key and value. The effect is the workflow's, not the user's."""

    key: TaintKey = Field("taintctl.dev/maintenance", description="The taint's key.")
    value: TaintValue | None = Field(None, description="The taint's value; by default the run's name.")
