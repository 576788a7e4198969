"""EvictionPolicy: may we?"""

from __future__ import annotations

import re
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from taintctl.api.base import API_VERSION, WHOLE, Condition, Duration, Flag, Model, ObjectMeta, SpecModel
from taintctl.api.labels import LabelSelector

MAX_COUNT = 1_000_000
Count = Annotated[int, Field(ge=0, le=MAX_COUNT), WHOLE]
PERCENT = r"^(100|[0-9]{1,2})%$"


def _amount(value: Any) -> int | str:
    """As an API server takes it: no true, no "3", no 3.0 (of an int-or-string its rules ask for an integer)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT:
        return value
    if isinstance(value, str) and re.fullmatch(PERCENT.removesuffix("$"), value, re.ASCII):
        return value
    raise ValueError(f"{value!r} is neither a number up to {MAX_COUNT} nor a percentage such as 25%")


Amount = Annotated[
    int | str,
    BeforeValidator(_amount),
    WithJsonSchema(
        {
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {
                    "rule": f"type(self) == int ? self >= 0 && self <= {MAX_COUNT} : self.matches('{PERCENT}')",
                    "message": f"must be a number up to {MAX_COUNT} or a percentage such as 25%",
                }
            ],
        }
    ),
]
"""A number of devices, or a percentage of those that the driver publishes."""


class Limits(SpecModel):
    """Upper bounds of a plan. Absent is unlimited. Pods counted: Evicted, EvictedLater, NotReachedByTaint."""

    max_pods: Count | None = Field(None, description="Pods that would go, by the taint or by taintctl.")
    max_namespaces: Count | None = Field(None, description="Namespaces that these pods are in.")
    max_workloads: Count | None = Field(
        None,
        description="Top owners of these pods (a Deployment, a JobSet ...); one that can't be read, and a pod without "
        "owner, count each for itself.",
    )
    max_devices: Amount | None = Field(
        None, description="Devices that the rules would taint: a number, or a percentage of what the driver publishes."
    )
    max_unavailable: Amount | None = Field(
        None,
        description="Devices of the driver that are out of service over all runs that keep some tainted, and this one: "
        "a number, or a percentage of what the driver publishes.",
    )
    min: Count = Field(
        1,
        description="What a percentage (which is rounded down) comes to at least: one of three devices is 33% of "
        "them, and 25% would be none.",
    )

    @property
    def empty(self) -> bool:
        given = (self.max_pods, self.max_namespaces, self.max_workloads, self.max_devices, self.max_unavailable)
        return all(limit is None for limit in given)

    def devices(self, amount: int | str, published: int) -> int:
        """How many devices `amount` (maxDevices or maxUnavailable) comes to, where the driver publishes so many."""
        if isinstance(amount, int):
            return amount
        return max(published * int(amount.removesuffix("%")) // 100, self.min)


Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")], ...],
    Field(min_length=1, max_length=100, json_schema_extra={"x-kubernetes-list-type": "set"}),
]


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("names one of them twice")
    return names


class Protected(SpecModel):
    """Pods that are never evicted without a Break approval: those that any of the criteria names."""

    validations: ClassVar = (
        (
            "has(self.namespaces) || has(self.namespaceSelector) || has(self.podSelector) || "
            "has(self.priorityClassNames) || has(self.minPriority)",
            "protected must name at least one criterion",
        ),
    )

    namespaces: Annotated[Names, AfterValidator(_once)] | None = Field(None, description="Pods of these namespaces.")
    namespace_selector: LabelSelector | None = Field(
        None, description="Pods of namespaces with these labels; of one whose labels can't be read, too."
    )
    pod_selector: LabelSelector | None = Field(None, description="Pods with these labels.")
    priority_class_names: Annotated[Names, AfterValidator(_once)] | None = Field(
        None, description="Pods of these PriorityClasses."
    )
    min_priority: Annotated[int, Field(ge=-(2**31), le=2**31 - 1), WHOLE] | None = Field(
        None, description="Pods of this priority and above; a pod without one has 0."
    )

    @model_validator(mode="after")
    def _criterion(self) -> Protected:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("protected must name at least one criterion")
        return self


class ToleratingPods(StrEnum):
    """Pods that tolerate the taint and hold a target device without adminAccess: they keep it, and it is not idle."""

    WAIT = "Wait"
    """The run waits for them to go, and fails at drain.timeout."""
    BLOCK = "Block"
    """A plan with one is a violation."""
    IGNORE = "Ignore"
    """They are not warned of, and the run does not fail at drain.timeout for them: it waits until the deadline."""


class BudgetMode(StrEnum):
    RESPECT = "Respect"
    """Blocked when a PodDisruptionBudget would break."""
    WARN = "Warn"
    IGNORE = "Ignore"


class OnMismatch(StrEnum):
    """What becomes of a run whose dry run counts other than taintctl, also after dryRun.attempts."""

    BLOCK = "Block"
    USE_LARGER = "UseLarger"
    """It goes on with our own count, where no number of the control plane's is larger: pods that the message counts and
    taintctl cannot name always block."""


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
    """A user name, as the API server knows it (`kubectl auth whoami`)."""
    SLACK = "Slack"
    """A Slack user's id, such as U024BE7LH."""
    SLACK_GROUP = "SlackGroup"
    """A Slack user group's id, such as S0614TZR7: everybody who is in it when they click."""
    EMAIL = "Email"
    """The mail address of a Slack user, by Slack's word."""


SLACK_USER = "^[UW][A-Z0-9]{5,20}$"
SLACK_GROUP = "^S[A-Z0-9]{5,20}$"
MAIL = "^[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]+([.][A-Za-z0-9-]+)*$"
_NAMES = {
    ApproverKind.SLACK: (SLACK_USER, "a Slack user's id, such as U024BE7LH (in their profile: Copy member ID)"),
    ApproverKind.SLACK_GROUP: (SLACK_GROUP, "a Slack user group's id, such as S0614TZR7"),
    ApproverKind.EMAIL: (MAIL, "a mail address, such as ann@example.com"),
}
"""How names of a kind look; a Kubernetes user may have any."""


def check_name(kind: ApproverKind, name: str) -> str:
    """Raises ValueError where no approver of that kind has such a name."""
    pattern, what = _NAMES.get(kind, ("", ""))
    if pattern and not re.fullmatch(pattern, name, re.ASCII):
        raise ValueError(f"with kind {kind} it is {what}")
    return name


class Approver(SpecModel):
    """Who may approve: one person, or the members of a Slack user group."""

    validations: ClassVar = (
        *(
            (f"self.kind != '{kind}' || self.name.matches('{pattern}')", f"name: with kind {kind} it is {what}")
            for kind, (pattern, what) in _NAMES.items()
        ),
        (
            "!has(self.kubernetesUser) || self.kind in ['Slack', 'Email']",
            "kubernetesUser goes with kind Slack or Email only",
        ),
    )

    kind: ApproverKind = Field(ApproverKind.KUBERNETES, description="Whose name it is.")
    name: Annotated[str, Field(min_length=1, max_length=256)] = Field(
        description="The user name (kubectl auth whoami), the id of a Slack user or user group, or a mail address."
    )
    kubernetes_user: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None,
        description="With kind Slack or Email: the same person's user name in Kubernetes, so that who asked for a run "
        "can be told from who approves it.",
    )

    @field_validator("name")
    @classmethod
    def _name_of_kind(cls, name: str, info: ValidationInfo) -> str:
        return check_name(info.data.get("kind", ApproverKind.KUBERNETES), name)

    @field_validator("kubernetes_user")
    @classmethod
    def _of_one_person(cls, user: str | None, info: ValidationInfo) -> str | None:
        if user is not None and info.data.get("kind") not in (ApproverKind.SLACK, ApproverKind.EMAIL):
            raise ValueError("goes with kind Slack or Email only")
        return user


class OnExpiry(StrEnum):
    CANCEL = "Cancel"
    """The run is cancelled."""
    ASK_AGAIN = "AskAgain"
    """The question is asked anew, and approvals given so far do not count for it."""


class ApprovalPolicy(SpecModel):
    required: ApprovalRequired = Field(
        ApprovalRequired.ABOVE_AUTO_APPROVE, description="When people are asked: above autoApprove, always, or never."
    )
    count: Annotated[int, Field(ge=1, le=20), WHOLE] = Field(1, description="How many different people.")
    approvers: Annotated[tuple[Approver, ...], Field(max_length=100)] = Field(
        (), description="Who may; empty: RBAC decides who may write an approval."
    )
    expires_after: Duration = Field(timedelta(minutes=30), description="How long the run waits to be approved.")
    on_expiry: OnExpiry = Field(OnExpiry.CANCEL, description="What happens when nobody approved in that time.")
    self_approval: Flag = Field(False, description="Whether the person in the run's requestedBy may approve it too.")


class DrainPolicy(SpecModel):
    force_at_timeout: Flag = Field(
        False,
        description="With drain.mode Evict: whether what is left at drain.timeout gets NoExecute, which asks no "
        "budget. Only after one more second look, and only where the plan is still allowed and approved.",
    )


class RollbackFailure(StrEnum):
    DRAIN_TIMEOUT = "DrainTimeout"
    CANCELLED = "Cancelled"


def _different(failures: tuple[RollbackFailure, ...]) -> tuple[RollbackFailure, ...]:
    if len(set(failures)) < len(failures):
        raise ValueError("names one failure twice")
    return failures


class SlackNotifications(SpecModel):
    channel: Annotated[str, Field(pattern=r"^[CG][A-Z0-9]{6,20}$", max_length=21)] = Field(
        description="The channel's id (at the foot of its details in Slack), such as C0123456789; the app is a member."
    )


class WebhookNotifications(SpecModel):
    url: Annotated[str, Field(pattern=r"^https?://[^\s@?#]+(\?[^\s#]*)?$", max_length=2048)] = Field(
        description="Where each change of a run is posted as JSON, signed with the controller's key."
    )


class Notifications(SpecModel):
    """Who is told of a run beside those who look."""

    slack: SlackNotifications | None = Field(None, description="A Slack channel: told, and asked where approval is.")
    webhook: WebhookNotifications | None = Field(None, description="Any other receiver, told only.")


class PolicySpec(SpecModel):
    validations: ClassVar = ()

    limits: Limits = Field(default_factory=Limits)
    auto_approve: Limits = Field(
        default_factory=Limits,
        description="At or below all of them no approval is asked. Absent or empty approves nothing.",
    )
    protected: Protected | None = Field(None, description="Pods that are never evicted without a Break approval.")
    budgets: BudgetMode = BudgetMode.RESPECT
    tolerating_pods: ToleratingPods = ToleratingPods.WAIT
    on_mismatch: OnMismatch = Field(
        OnMismatch.BLOCK,
        description="Where the control plane's dry run and taintctl's own count still differ after dryRun.attempts: "
        "Block, or UseLarger where taintctl's is the larger.",
    )
    dry_run: DryRunPolicy = Field(default_factory=DryRunPolicy, description="How fresh a dry run must be.")
    approval: ApprovalPolicy = Field(default_factory=ApprovalPolicy, description="Whether people are asked, and who.")
    drain: DrainPolicy = Field(default_factory=DrainPolicy, description="What a drain by the Eviction API may end in.")
    notifications: Notifications = Field(default_factory=Notifications, description="Where runs are told of.")
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

    @property
    def minds_other_runs(self) -> bool:
        """Whether it asks what other runs keep out of service."""
        return any(limits.max_unavailable is not None for limits in (self.spec.limits, self.spec.auto_approve))


BUILT_IN_POLICY = EvictionPolicy(metadata=ObjectMeta(name="(built in)"), spec=PolicySpec())
"""Where a run names no policy: no limits, budgets respected, and everything needs an approval."""
