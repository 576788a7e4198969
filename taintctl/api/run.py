"""MaintenanceRun: one safe eviction, from dry run to release."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from taintctl.api.base import (
    API_VERSION,
    MAX_HISTORY,
    MAX_NODES,
    Condition,
    Duration,
    Flag,
    Model,
    Name,
    ObjectMeta,
    SpecModel,
    Time,
)
from taintctl.api.plan import PlanStatus, PodRef
from taintctl.api.reasons import Agreement, Effect, Phase
from taintctl.api.target import Taint, Target


class AtDeadline(StrEnum):
    """What happens to devices in maintenance when the deadline passes."""

    RELEASE = "Release"
    """Released where they are idle and the work is done; else the taint stays (`WorkNotDone`)."""
    KEEP_TAINTED = "KeepTainted"
    """The taint stays until somebody releases."""
    EXTEND = "Extend"
    """As if the deadline were `extendBy` later; then as Release."""


class TriggerType(StrEnum):
    SCHEDULE = "Schedule"
    MANUAL = "Manual"


class Trigger(SpecModel):
    """What asked for the run."""

    type: TriggerType = Field(TriggerType.MANUAL, description="A window's schedule, or somebody by hand.")
    window_name: Annotated[str, Field(max_length=52)] | None = Field(
        None, description="The MaintenanceWindow, for type Schedule."
    )
    reason: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="Why, in the words of whoever asked."
    )


class DrainMode(StrEnum):
    TAINT = "Taint"
    """NoExecute deletes the pods, and asks no PodDisruptionBudget."""
    EVICT = "Evict"
    """The Eviction API first, which honours PodDisruptionBudgets, under NoSchedule. NoExecute only for what is left at
    `timeout`, and only where the policy has `drain.forceAtTimeout`."""


class Drain(SpecModel):
    mode: DrainMode = Field(
        DrainMode.TAINT,
        description="Taint: NoExecute deletes the pods. Evict: the Eviction API first, which honours budgets; "
        "NoExecute for what is left at timeout, if the policy allows.",
    )
    timeout: Duration = Field(
        timedelta(minutes=30),
        description="How long pods may take to go, counted from the gate that let the eviction begin.",
    )


class WorkMode(StrEnum):
    MANUAL = "Manual"
    """Until `workCompleted` is set (`taintctl complete`)."""
    DURATION = "Duration"
    """For `duration`, counted from InMaintenance."""


class Work(SpecModel):
    """What happens while the devices are empty."""

    validations: ClassVar = (
        ("(self.mode == 'Duration') == has(self.duration)", "work.duration goes with mode Duration, and only with it"),
    )

    mode: WorkMode = WorkMode.MANUAL
    duration: Duration | None = Field(None, description="With mode Duration: how long, counted from InMaintenance.")

    @model_validator(mode="after")
    def _duration_with_mode(self) -> Work:
        if (self.mode is WorkMode.DURATION) != (self.duration is not None):
            raise ValueError("work.duration goes with mode Duration, and only with it")
        return self


class RunTemplate(SpecModel):
    """What a window copies into each run."""

    target: Target
    taint: Taint = Field(default_factory=Taint)
    policy_name: Name | None = Field(
        None, description="The EvictionPolicy; without one every eviction needs an approval."
    )
    notice: Duration = Field(
        timedelta(0), description="How long NoSchedule stands before eviction; never less than 10s."
    )
    drain: Drain = Field(default_factory=Drain, description="How the pods are made to go.")
    work: Work = Field(default_factory=Work)
    at_deadline: AtDeadline = AtDeadline.RELEASE
    extend_by: Duration | None = Field(None, description="With atDeadline Extend: how much later the deadline then is.")

    @model_validator(mode="after")
    def _extension(self) -> RunTemplate:
        if (self.at_deadline is AtDeadline.EXTEND) != (self.extend_by is not None):
            raise ValueError("extendBy goes with atDeadline Extend, and only with it")
        return self


EXTEND_RULE = (
    "(has(self.atDeadline) && self.atDeadline == 'Extend') == has(self.extendBy)",
    "extendBy goes with atDeadline Extend, and only with it",
)


class RunSpec(RunTemplate):
    """Immutable except `paused`, `cancelled`, `workCompleted`, `released` and `deadline`."""

    IMMUTABLE: ClassVar[tuple[str, ...]] = (
        "target",
        "taint",
        "policyName",
        "notice",
        "drain",
        "work",
        "atDeadline",
        "extendBy",
        "trigger",
        "requestedBy",
        "startAt",
    )
    validations: ClassVar = (EXTEND_RULE,)

    trigger: Trigger = Field(default_factory=Trigger)
    requested_by: Annotated[str, Field(max_length=256)] | None = Field(
        None, description="Who asked; the admission policy holds it to the caller's name."
    )
    start_at: Time | None = Field(None, description="No eviction before; without it, now.")
    deadline: Time = Field(description="No eviction after.")
    paused: Flag = Field(False, description="No further step; under NoExecute back to NoSchedule.")
    cancelled: Flag = Field(False, description="Ends the run; before maintenance the taint comes off.")
    work_completed: Flag = Field(False, description="The work is done (taintctl complete).")
    released: Flag = Field(
        False, description="Release without waiting for the work (taintctl release); the devices must still be idle."
    )


class RuleStatus(Model):
    """One DeviceTaintRule of ours and what its message said."""

    name: str
    role: Literal["taint", "dry-run"] = "taint"
    uid: str = ""
    """Empty: to be made (or made again); an existing rule of this name counts only with our round on it."""
    driver: str = ""
    pool: str = ""
    device: str | None = None
    effect: Effect = Effect.NONE
    """What we asked for last; kept by hand edits' detection."""
    effect_since: Time | None = None
    generation: int = 0
    published: int | None = None
    allocated: int | None = None
    pods: int | None = None
    namespaces: int | None = None
    predicted: int | None = None
    """Our own count of pods for this rule."""
    agreement: Agreement | None = None
    eviction_in_progress: str | None = None
    """The condition's status for this generation: True, False or Unknown."""
    message: Annotated[str, Field(max_length=1024)] = ""


class CompactPlan(Model):
    """What was asked for or approved, small enough for 10,000 pods: 8 bytes of a SHA-256 an entry, base64."""

    digest: str
    policy_generation: int = 0
    policy_uid: str = ""
    devices: str = ""
    pods: dict[str, str] = Field(default_factory=dict)
    """By PodEffect: the packed hashes of the pods' uids."""
    violations: tuple[str, ...] = ()
    protected: str = ""
    """The packed hashes of the uids of pods that the policy protects."""


class GivenApproval(Model):
    approval: str
    approver: str
    kind: str = "Kubernetes"
    """Where from: Kubernetes or Slack."""
    name: str = ""
    """How people know the approver, where `approver` is an id."""
    at: Time | None = None
    comment: str = ""
    breaks: bool = False
    """It is a Break: protected pods may be evicted."""

    @property
    def who(self) -> str:
        """For people: `alice`, or `Ann (U024BE7LH in Slack)`."""
        return shown(self.kind, self.approver, self.name)


def shown(kind: str, approver: str, name: str) -> str:
    """An approver for people to read. Whoever has the name in a chat chose it, so it is cut and the id stands by it."""
    if kind == "Kubernetes":
        return approver
    name = " ".join("".join(c if c.isprintable() else " " for c in name).split())[:64]
    return f"{name} ({approver} in {kind})" if name else f"{approver} in {kind}"


class IgnoredApproval(Model):
    """An approval or a denial that does not count, and why."""

    approval: str
    reason: str
    message: str = ""


class ApprovalStatus(Model):
    asked: CompactPlan | None = None
    """The plan that people are asked about, or that was approved."""
    asked_at: Time | None = None
    needed: int = 0
    """How many people; 0: the policy lets this plan pass without."""
    break_needed: bool = False
    """One of them must be a Break, for the plan would evict protected pods."""
    given: tuple[GivenApproval, ...] = ()
    ignored: tuple[IgnoredApproval, ...] = ()
    """The first of those that do not count."""
    expires_at: Time | None = None
    approved_at: Time | None = None


class EvictionStatus(Model):
    started_at: Time | None = None
    """When the gate was passed; the drain timeout counts from here."""
    forced_at: Time | None = None
    """With drain.mode Evict: when the gate was passed for NoExecute on what was left; the timeout counts anew from
    here. Before, taintctl evicts through the Eviction API, and the rules stand at NoSchedule."""
    not_forced_at: Time | None = None
    """When that gate last refused; it is asked again after dryRun.maxAge."""
    not_forced: Annotated[str, Field(max_length=1024)] = ""
    """Why it refused."""
    settled_from: Time | None = None
    """Our own clock when the last rule was seen at NoExecute (with drain.mode Evict at NoSchedule): the 10 s before
    idle count from here."""
    pending: int = 0
    """Pods of the plan that are there and not marked for deletion."""
    terminating: tuple[PodRef, ...] = ()
    late: tuple[PodRef, ...] = ()
    """Pods that came to a target device after the gate."""
    nodes: Annotated[tuple[str, ...], Field(max_length=MAX_NODES)] = ()
    """The nodes of the plan's devices and of every pod that held one since the gate: all must have stayed Ready, or a
    pod that was force-deleted there may still run."""
    evicted_by_taint: int = 0
    evicted_by_taintctl: int = 0
    blocked_by: tuple[str, ...] = ()
    stale_since: Time | None = None
    """Since when a condition has been True with no pod left that it could mean."""
    empty_since: Time | None = None
    """Since when, without a break, nothing has held the devices and their nodes have read Ready."""
    idle_proven_at: Time | None = None
    """When the devices were first proven idle."""


class DryRunStatus(Model):
    round: int = 0
    """Bumped before rules are made again, and stored before anything is done: a restart goes on with the same one."""
    requested_at: Time | None = None
    attempts: int = 0
    read_at: Time | None = None
    """When every rule's message of this round had been read and agreed."""


class Ending(Model):
    """How the run will end once none of our rules is left."""

    phase: Phase
    reason: str
    message: Annotated[str, Field(max_length=1024)]


class Notification(Model):
    """One place where people are told of the run, and how that went."""

    kind: Literal["Slack", "Webhook"]
    target: Annotated[str, Field(max_length=256)]
    """The channel's id; of a webhook its scheme, host and port, never its path or query, which may hold a secret."""
    channel: Annotated[str, Field(max_length=64)] = ""
    ts: Annotated[str, Field(max_length=64)] = ""
    """The message that follows the run; empty: not posted yet."""
    nonce: Annotated[str, Field(max_length=64)] = ""
    """Stored before a message is posted, and goes with it: after a crash the message is found by it."""
    posting_since: Time | None = None
    shown: Annotated[str, Field(max_length=64)] = ""
    """The fingerprint of what was last delivered."""
    told: Time | None = None
    """The time of the last history entry that is in the thread, or was sent."""
    delivered_at: Time | None = None
    failing_since: Time | None = None
    """None: the last delivery worked."""
    failures: int = 0
    next_try_at: Time | None = None
    error: Annotated[str, Field(max_length=512)] = ""


class HistoryEntry(Model):
    at: Time
    from_: Annotated[str, Field(alias="from")] = ""
    to: str
    reason: str


class RunStatus(Model):
    observed_generation: int = 0
    phase: Phase | None = None
    phase_since: Time | None = None
    reason: str = ""
    message: Annotated[str, Field(max_length=2048)] = ""
    conditions: tuple[Condition, ...] = ()
    dry_run: DryRunStatus = Field(default_factory=DryRunStatus)
    plan: PlanStatus | None = None
    rules: tuple[RuleStatus, ...] = ()
    approval: ApprovalStatus | None = None
    eviction: EvictionStatus | None = None
    work_started_at: Time | None = None
    ending: Ending | None = None
    history: Annotated[tuple[HistoryEntry, ...], Field(max_length=MAX_HISTORY)] = ()
    notifications: Annotated[tuple[Notification, ...], Field(max_length=8)] = ()
    next_step: str = ""
    """What a person would do next, as a command where there is one; empty where nothing is to be done."""


class MaintenanceRun(Model):
    """One safe eviction, from dry run to release."""

    KIND: ClassVar = "MaintenanceRun"
    PLURAL: ClassVar = "maintenanceruns"
    SHORT_NAMES: ClassVar = ("mr",)
    NAME_MAX: ClassVar = 253

    api_version: str = API_VERSION
    kind: str = "MaintenanceRun"
    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = Field(default_factory=RunStatus)

    @property
    def name(self) -> str:
        return self.metadata.name
