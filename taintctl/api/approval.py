"""MaintenanceApproval: who said yes, or no."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from taintctl.api.base import API_VERSION, Condition, Model, Name, ObjectMeta, SpecModel
from taintctl.api.policy import Approver

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]


class ApprovalDecision(StrEnum):
    APPROVE = "Approve"
    DENY = "Deny"
    BREAK = "Break"
    """Approve, and let the protected pods of this plan be evicted too. It lifts no other limit."""


class ApprovalSpec(SpecModel):
    """Immutable."""

    IMMUTABLE: ClassVar[tuple[str, ...]] = ("runName", "digest", "decision", "approver", "comment")

    run_name: Name = Field(description="The MaintenanceRun.")
    digest: Digest = Field(description="The digest of the plan, from the run's status.approval.asked.digest.")
    decision: ApprovalDecision = Field(description="One denial cancels the run.")
    approver: Approver = Field(description="Who decides; the admission policy holds it to the caller's name.")
    comment: Annotated[str, Field(max_length=1024)] | None = Field(None, description="Why, for whoever reads it later.")


class ApprovalObjectStatus(Model):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class MaintenanceApproval(Model):
    """One person's decision on one plan of one run."""

    KIND: ClassVar = "MaintenanceApproval"
    PLURAL: ClassVar = "maintenanceapprovals"
    SHORT_NAMES: ClassVar = ("ma",)
    NAME_MAX: ClassVar = 253

    api_version: str = API_VERSION
    kind: str = "MaintenanceApproval"
    metadata: ObjectMeta
    spec: ApprovalSpec
    status: ApprovalObjectStatus = Field(default_factory=ApprovalObjectStatus)

    @property
    def name(self) -> str:
        return self.metadata.name
