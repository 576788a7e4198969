"""EvictionPolicy: may we?"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from taintctl.api.base import API_VERSION, WHOLE, Condition, Duration, Model, ObjectMeta, SpecModel

Count = Annotated[int, Field(ge=0, le=1_000_000), WHOLE]


class Limits(SpecModel):
    """Upper bounds of a plan. Absent is unlimited. Pods counted: Evicted, EvictedLater, NotReachedByTaint."""

    max_pods: Count | None = Field(None, description="Pods that would go, by the taint or by taintctl.")
    max_namespaces: Count | None = Field(None, description="Namespaces that these pods are in.")
    max_workloads: Count | None = Field(
        None,
        description="Top owners of these pods (a Deployment, a JobSet ...); one that can't be read, and a pod without "
        "owner, count each for itself.",
    )
    max_devices: Count | None = Field(None, description="Devices that the rules would taint.")

    @property
    def empty(self) -> bool:
        return (self.max_pods, self.max_namespaces, self.max_workloads, self.max_devices) == (None, None, None, None)


class BudgetMode(StrEnum):
    RESPECT = "Respect"
    """Blocked when a PodDisruptionBudget would break."""
    WARN = "Warn"
    IGNORE = "Ignore"


class DryRunPolicy(SpecModel):
    max_age: Duration = Field(timedelta(seconds=60), description="How old a dry run may be where it is acted on.")
    attempts: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(
        3, description="How often a message that does not agree is refreshed before the run is Blocked."
    )


class ApprovalRequired(StrEnum):
    ABOVE_AUTO_APPROVE = "AboveAutoApprove"
    ALWAYS = "Always"
    NEVER = "Never"


class ApproverKind(StrEnum):
    KUBERNETES = "Kubernetes"


class Approver(SpecModel):
    """One person, by the name that the API server knows them under."""

    kind: ApproverKind = Field(ApproverKind.KUBERNETES, description="Whose name it is.")
    name: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="The user name (kubectl auth whoami)."
    )


class ApprovalPolicy(SpecModel):
    required: ApprovalRequired = Field(
        ApprovalRequired.ABOVE_AUTO_APPROVE, description="When people are asked: above autoApprove, always, or never."
    )
    count: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(1, description="How many different people.")
    approvers: Annotated[tuple[Approver, ...], Field(max_length=100)] = Field(
        (), description="Who may; empty: RBAC decides who may write an approval."
    )
    expires_after: Duration = Field(timedelta(minutes=30), description="How long the run waits to be approved.")


class RollbackFailure(StrEnum):
    DRAIN_TIMEOUT = "DrainTimeout"
    CANCELLED = "Cancelled"


def _different(failures: tuple[RollbackFailure, ...]) -> tuple[RollbackFailure, ...]:
    if len(set(failures)) < len(failures):
        raise ValueError("names one failure twice")
    return failures


class PolicySpec(SpecModel):
    validations: ClassVar = ()

    limits: Limits = Field(default_factory=Limits)
    auto_approve: Limits = Field(
        default_factory=Limits,
        description="At or below all of them no approval is asked. Absent or empty approves nothing.",
    )
    budgets: BudgetMode = BudgetMode.RESPECT
    dry_run: DryRunPolicy = Field(default_factory=DryRunPolicy, description="How fresh a dry run must be.")
    approval: ApprovalPolicy = Field(default_factory=ApprovalPolicy, description="Whether people are asked, and who.")
    rollback_on: Annotated[tuple[RollbackFailure, ...], Field(max_length=2), AfterValidator(_different)] = Field(
        (RollbackFailure.DRAIN_TIMEOUT, RollbackFailure.CANCELLED),
        description="Failures that take the taint off before maintenance began.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class PolicyStatus(Model):
    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


class EvictionPolicy(Model):
    """What a plan may hit, and when people must approve it."""

    KIND: ClassVar = "EvictionPolicy"
    PLURAL: ClassVar = "evictionpolicies"
    SHORT_NAMES: ClassVar = ("evp",)
    NAME_MAX: ClassVar = 253

    api_version: str = API_VERSION
    kind: Literal["EvictionPolicy"] = "EvictionPolicy"
    metadata: ObjectMeta
    spec: PolicySpec = Field(default_factory=PolicySpec)
    status: PolicyStatus = Field(default_factory=PolicyStatus)

    @property
    def name(self) -> str:
        return self.metadata.name


BUILT_IN_POLICY = EvictionPolicy(metadata=ObjectMeta(name="(built in)"), spec=PolicySpec())
"""Where a run names no policy: no limits, budgets respected, and everything needs an approval."""
