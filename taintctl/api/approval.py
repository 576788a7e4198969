"""MaintenanceApproval: who said yes, or no."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from taintctl.api.base import API_VERSION, Condition, Model, Name, ObjectMeta, SpecModel
from taintctl.api.policy import SLACK_USER, ApproverKind, check_name

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", min_length=64, max_length=64)]


class ApprovalDecision(StrEnum):
    APPROVE = "Approve"
    DENY = "Deny"
    BREAK = "Break"
    """Approve, and let the protected pods of this plan be evicted too. It lifts no other limit."""


class ApprovalAuthor(SpecModel):
    """One person."""

    validations: ClassVar = (
        (
            f"self.kind != 'Slack' || self.name.matches('{SLACK_USER}')",
            "name: with kind Slack it is a Slack user's id, such as U024BE7LH",
        ),
    )

    kind: Literal[ApproverKind.KUBERNETES, ApproverKind.SLACK] = Field(
        ApproverKind.KUBERNETES, description="Whose name it is."
    )
    name: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="The user name (kubectl auth whoami), or the id of a Slack user."
    )

    @field_validator("name")
    @classmethod
    def _name_of_kind(cls, name: str, info: ValidationInfo) -> str:
        return check_name(info.data.get("kind", ApproverKind.KUBERNETES), name)


class SlackIdentity(SpecModel):
    """What Slack's server said of the person when they clicked. Only the controller may write it."""

    team: Annotated[str, Field(pattern=r"^[TE][A-Z0-9]{1,20}$", max_length=21)] = Field(description="The workspace.")
    display_name: Annotated[str, Field(max_length=256)] | None = Field(None, description="For people to read.")
    email: Annotated[str, Field(max_length=256)] | None = Field(None, description="The mail address.")
    groups: Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=100)] = Field(
        (), description="Those of the policy's user groups that the person was in."
    )
    channel: Annotated[str, Field(max_length=64)] = Field(description="Where the message was.")
    ts: Annotated[str, Field(max_length=64)] = Field(description="The message.")


class ApprovalSpec(SpecModel):
    """Immutable."""

    IMMUTABLE: ClassVar[tuple[str, ...]] = ("runName", "digest", "decision", "approver", "slack", "comment")
    validations: ClassVar = (
        (
            "(self.approver.kind == 'Slack') == has(self.slack)",
            "slack goes with approver.kind Slack, and only with it",
        ),
    )

    run_name: Name = Field(description="The MaintenanceRun.")
    digest: Digest = Field(description="The digest of the plan, from the run's status.approval.asked.digest.")
    decision: ApprovalDecision = Field(description="One denial cancels the run.")
    approver: ApprovalAuthor = Field(description="Who decides; the admission policy holds it to the caller's name.")
    slack: SlackIdentity | None = Field(None, description="With approver.kind Slack: who that is.")
    comment: Annotated[str, Field(max_length=1024)] | None = Field(None, description="Why, for whoever reads it later.")

    @model_validator(mode="after")
    def _identity_with_slack(self) -> ApprovalSpec:
        if (self.approver.kind is ApproverKind.SLACK) != (self.slack is not None):
            raise ValueError("slack goes with approver.kind Slack, and only with it")
        return self


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
