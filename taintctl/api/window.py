"""MaintenanceWindow: when, and what. As a CronJob makes Jobs, a window makes MaintenanceRuns."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from taintctl.api.base import API_VERSION, WHOLE, Condition, Duration, Flag, Model, ObjectMeta, SpecModel, Time
from taintctl.api.run import EXTEND_RULE, RunTemplate


class Schedule(SpecModel):
    """A cron line with its time zone, or one date; and how long the window is open."""

    validations: ClassVar = (
        (
            "!(has(self.cron) && has(self.start)) && (has(self.cron) || has(self.start))",
            "schedule takes either cron or start",
        ),
        ("!has(self.timeZone) || has(self.cron)", "schedule.timeZone goes with cron; start carries its own zone"),
    )

    cron: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="Five fields, names and steps as CronJob takes them."
    )
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="IANA time zone of cron, by default UTC."
    )
    start: Time | None = Field(None, description="The one start, instead of cron.")
    duration: Duration = Field(description="Elapsed time that the window is open.")
    starting_deadline: Duration | None = Field(
        None, description="How late a run may still start; by default until the window closes."
    )
    plan_ahead: Duration | None = Field(
        None, description="Dry run and approval begin this much earlier; eviction never before the start."
    )

    @model_validator(mode="after")
    def _either(self) -> Schedule:
        if (self.cron is None) == (self.start is None):
            raise ValueError("schedule takes either cron or start")
        if self.time_zone is not None and self.cron is None:
            raise ValueError("schedule.timeZone goes with cron; start carries its own zone")
        if self.duration.total_seconds() < 60:
            raise ValueError("schedule.duration must be at least 1m")
        return self


class ConcurrencyPolicy(StrEnum):
    FORBID = "Forbid"
    """No new run while the last one has not ended."""
    REPLACE = "Replace"
    """Cancels the last run, only while it has not begun to evict."""


class WindowSpec(RunTemplate):
    validations: ClassVar = (EXTEND_RULE,)

    schedule: Schedule
    suspend: Flag = Field(False, description="Makes no new run.")
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID
    history_limit: Annotated[int, Field(ge=0, le=100), WHOLE] = Field(5, description="How many ended runs are kept.")


class WindowStatus(Model):
    observed_generation: int = 0
    next_start: Time | None = None
    last_start: Time | None = None
    """The start that a run was last made for, or that was last found missed."""
    active_run: str = ""
    conditions: tuple[Condition, ...] = ()


class MaintenanceWindow(Model):
    """When maintenance happens, on which devices, under which policy."""

    KIND: ClassVar = "MaintenanceWindow"
    PLURAL: ClassVar = "maintenancewindows"
    SHORT_NAMES: ClassVar = ("mw",)
    NAME_MAX: ClassVar = 52

    api_version: str = API_VERSION
    kind: str = "MaintenanceWindow"
    metadata: ObjectMeta
    spec: WindowSpec
    status: WindowStatus = Field(default_factory=WindowStatus)

    @property
    def name(self) -> str:
        return self.metadata.name
