"""What the workflow sees and what it wants done: values in, values out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.check import FieldProblem
from taintctl.api.objects import DeviceTaintRule
from taintctl.api.plan import DeviceID, Idleness, Plan, Problem
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Effect
from taintctl.api.rule import EvictionOutcome, RuleManifest
from taintctl.api.run import MaintenanceRun, RunStatus


@dataclass(frozen=True)
class Settings:
    """Waits that the control plane's behaviour asks for (design/device-taint-facts), and the factor that scales them.

    `speed` divides every wait, ours and those of specs and policies; timestamps stay as they are.
    """

    speed: float = 1.0
    settle: timedelta = timedelta(seconds=10)
    """How long NoSchedule stands at least before eviction, and a taint before a device can be idle: schedulers must
    have seen it."""
    acknowledge: timedelta = timedelta(seconds=30)
    """How long the eviction controller may take to follow a generation before it counts as silent."""
    stale_condition: timedelta = timedelta(seconds=20)
    """How long EvictionInProgress may stay True with no pod left that it could mean (recording 09)."""
    node_silence: timedelta = timedelta(seconds=60)
    """How long a node that fell silent may still read Ready (kube-controller-manager: --node-monitor-grace-period 50 s,
    looked at every 5 s): devices must have looked idle for so long, or a pod force-deleted there may still run."""
    poll: timedelta = timedelta(seconds=2)
    """How soon to look again where something is under way."""
    idle_check: timedelta = timedelta(seconds=10)
    """How often devices in maintenance are looked at again."""
    eviction_retry: timedelta = timedelta(seconds=5)
    gate_valid: timedelta = timedelta(seconds=10)
    """How old the live reads of a gate may be when NoExecute is patched; not scaled: it bounds our own work."""
    allow_unverified_approvals: bool = False

    def scaled(self, wait: timedelta) -> timedelta:
        return wait / self.speed


@dataclass(frozen=True)
class Observation:
    """Everything that one decision rests on, read by reconcile/gather.py."""

    run: MaintenanceRun
    problems: tuple[FieldProblem, ...]
    policy: EvictionPolicy | None
    """None: `policy_problem` says why."""
    policy_problem: Problem | None
    approvals: tuple[MaintenanceApproval, ...]
    """Those whose spec.runName is this run's and that have no problems."""
    approvals_verified: datetime | None
    """Since when the cluster proves who writes an approval; None: it does not."""
    rules: tuple[DeviceTaintRule, ...]
    """Live: the rules that this run made, also those whose labels or owner somebody took off."""
    plan: Plan | None
    plan_problem: Problem | None
    idleness: Idleness
    earlier_runs: tuple[str, ...]
    """Runs that hold or were first to ask for one of this run's devices."""
    live: bool
    """No part of it comes from a cache."""
    taken_at: datetime
    """When the oldest part was read."""
    outcomes: tuple[EvictionOutcome, ...] = ()
    """What came of the evictions that the last decision asked for."""
    undone: str = ""
    """Why not all that the last decision asked for was done; empty: it was."""
    idle_for: timedelta = timedelta(0)
    """How long this process has seen the devices idle at every look, by a clock that nobody sets."""
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class CreateRule:
    manifest: RuleManifest


@dataclass(frozen=True)
class DeleteRule:
    name: str
    uid: str


@dataclass(frozen=True)
class SetEffect:
    """Only ever of the very rule that was observed. `not_after`: too late and it is not done (NoExecute has one)."""

    name: str
    uid: str
    resource_version: str
    effect: Effect
    not_after: datetime | None = None


@dataclass(frozen=True)
class EvictPod:
    """By the Eviction API, after one more look: is a claim still allocated to one of `devices`, reserved for `uid`?
    `not_after`: too late and it is left to the next decision."""

    namespace: str
    name: str
    uid: str
    claims: tuple[str, ...]
    devices: tuple[DeviceID, ...]
    not_after: datetime


@dataclass(frozen=True)
class AddFinalizer:
    pass


@dataclass(frozen=True)
class RemoveFinalizer:
    pass


Action = CreateRule | DeleteRule | SetEffect | EvictPod | AddFinalizer | RemoveFinalizer


@dataclass(frozen=True)
class Event:
    """A Kubernetes event on the run. `type` is Normal or Warning."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True)
class Counted:
    """An approval or a denial that counts from this decision on: who, when, from where (`kind`), for which plan."""

    approval: str
    kind: str
    approver: str
    who: str
    """For people: the approver with their name."""
    decision: str
    digest: str
    at: datetime | None
    comment: str = ""

    @property
    def sentence(self) -> str:
        said = {"Deny": "denied", "Break": "approved, with Break,"}.get(self.decision, "approved")
        return f"{self.who} {said} the plan {self.digest[:12]}."


@dataclass(frozen=True)
class Decision:
    """What to store and what to do, in this order: the status first (only if the run is still as it was read; else
    nothing at all is done), then the actions in turn, then the events."""

    status: RunStatus
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
    """Look again after this long at the latest (already scaled); None: only when something changes."""
    counted: tuple[Counted, ...] = ()
    """Told once the status is stored."""
    need_live: bool = False
    """Look again at once with live reads: the next step must not rest on a cache."""
