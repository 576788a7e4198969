"""The plan: who holds the target devices, what would happen to each, and the rules that would do it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from taintctl.api.base import Model, Time
from taintctl.api.reasons import Agreement, PodEffect


@dataclass(frozen=True, order=True)
class DeviceID:
    """What Kubernetes calls one device. The name may later mean other hardware: a PlannedDevice has its UUID."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, order=True)
class PlannedDevice:
    id: DeviceID
    uuid: str = ""
    node: str = ""
    """The node it is local to; empty for a device that is not."""
    published: bool = True
    """False: only allocations still name it, its slice is gone."""
    pci_bus_id: str = ""
    along: bool = False
    """Not matched by the target itself: a device on the same hardware is (`target.partitions: Include`)."""


@dataclass(frozen=True, order=True)
class PlannedPod:
    """A pod that holds a target device."""

    namespace: str
    name: str
    uid: str
    effect: PodEffect
    owner: str = ""
    """The top of its chain of controllers as `Kind/name`, or empty."""
    node: str = ""
    claims: tuple[str, ...] = ()
    """The ResourceClaims (names in the pod's namespace) through which it holds target devices."""
    devices: tuple[DeviceID, ...] = ()
    toleration_seconds: int | None = None
    """For EvictedLater: how long after the taint."""
    terminating: bool = False
    admin_access: bool = False
    """Holds target devices only with adminAccess (monitors): if it tolerates too, it does not keep a device busy."""
    owner_unread: str = ""
    """Why `owner` may not be the top (an `Unread`): the chain could be followed only so far."""
    workload: str = ""
    """What pods of one owner have in common, for counting; empty for a pod that stands for itself."""
    priority: int = 0
    priority_class: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    namespace_labels: tuple[tuple[str, str], ...] | None = None
    """None: the namespace could not be found."""
    created: datetime | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def keeps_device(self) -> bool:
        """It stays under the taint and is no monitor: its devices are not idle while it is there."""
        return self.effect is PodEffect.TOLERATES and not self.terminating and not self.admin_access

    @property
    def counted(self) -> bool:
        """Whether limits count it: it would go, by the taint or by us, and is not going already."""
        return self.effect is not PodEffect.TOLERATES and not self.terminating


@dataclass(frozen=True, order=True)
class PlannedRule:
    """One DeviceTaintRule selector and what the dry-run message must say for it (2 to 4 numbers of recording 02)."""

    driver: str
    pool: str
    device: str | None
    published: int
    allocated: int
    pods: int
    namespaces: int


@dataclass(frozen=True, order=True)
class Budget:
    """A PodDisruptionBudget that selects pods of the plan."""

    namespace: str
    name: str
    allowed: int
    needed: int


PROTECTED = "protected"
"""The check whose violations a Break approval lifts; no other is lifted by anybody."""


@dataclass(frozen=True, order=True)
class LostPod:
    name: str
    uid: str
    node: str


@dataclass(frozen=True, order=True)
class LostWith:
    """Pods that the taint does not touch and whose work is lost all the same: others of their gang would go.

    They are not evicted, no limit counts them, and no approval is for them: they may come and go.
    """

    namespace: str
    owner: str
    """The gang, as `Kind/name`."""
    part: str
    """Which replica of a LeaderWorkerSet; else empty."""
    hit: int
    """How many pods of the plan that would go are of it."""
    pods: tuple[LostPod, ...]


@dataclass(frozen=True, order=True)
class Violation:
    """Why policy does not let the plan pass, as people read it."""

    check: str
    limit: str
    actual: str
    message: str
    pods: tuple[str, ...] = ()
    """For `protected`: the uids of all the pods it is about, which is what a Break approval lets go."""

    @property
    def breakable(self) -> bool:
        return self.check == PROTECTED


@dataclass(frozen=True)
class Problem:
    """Why there can be no plan: a Reason and one sentence with the next step."""

    reason: str
    message: str


@dataclass(frozen=True)
class Plan:
    """The whole of it, sorted, so that equal plans are equal values. Violations and digest are policy's (policy/)."""

    devices: tuple[PlannedDevice, ...]
    pods: tuple[PlannedPod, ...]
    rules: tuple[PlannedRule, ...]
    budgets: tuple[Budget, ...] = ()
    multiple_budgets: tuple[str, ...] = ()
    """Pods (namespace/name) that more than one budget selects: the Eviction API answers 500 for them for ever."""
    lost_with: tuple[LostWith, ...] = ()
    published: int = 0
    """How many devices the drivers of its devices publish: what a percentage is of."""
    elsewhere: int = 0
    """How many devices of these drivers, other than its own, other runs keep out of service."""
    computed_at: datetime | None = None

    @property
    def unavailable(self) -> int:
        """Devices out of service while this plan is carried out: its own, and those that other runs keep out."""
        return len(self.devices) + self.elsewhere

    @property
    def counted_pods(self) -> tuple[PlannedPod, ...]:
        return tuple(p for p in self.pods if p.counted)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Of its devices and of every pod in it, sorted: a device need not be local to the node that uses it."""
        return tuple(sorted({d.node for d in self.devices if d.node} | {p.node for p in self.pods if p.node}))

    @property
    def namespaces(self) -> frozenset[str]:
        return frozenset(p.namespace for p in self.pods if p.counted)

    @property
    def workloads(self) -> frozenset[str]:
        """What would lose pods: top owners, and pods without one. An owner that is known only in part counts as a
        workload of its own, so that there are never fewer than there are."""
        return frozenset(p.workload or p.uid for p in self.pods if p.counted)

    @property
    def lost_pods(self) -> int:
        return sum(len(lost.pods) for lost in self.lost_with)


class PodRef(Model):
    """One pod, named for people and by uid."""

    namespace: str
    name: str
    uid: str


class Verdict(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True)
class Idleness:
    """Whether anything still uses the devices under the run's rules, by the objects alone (impact/idle.py says it).

    The waits (10 s since the taint, the condition) are the workflow's to add.
    """

    verdict: Verdict
    reason: str
    message: str
    holders: tuple[PodRef, ...] = ()
    """Pods that are there and hold a target device (the monitors with adminAccess that tolerate left out)."""
    terminating: tuple[PodRef, ...] = ()
    """Those of them that are marked for deletion."""
    devices: tuple[PlannedDevice, ...] = ()
    """What is published now under the run's rules."""


class PlanDevice(Model):
    driver: str
    pool: str
    device: str
    uuid: str = ""
    node: str = ""


class PlanPod(Model):
    namespace: str
    name: str
    uid: str
    owner: str = ""
    owner_unread: str | None = None
    """Why `owner` may not be the top of the chain; absent where it is."""
    effect: PodEffect


class PlanLost(Model):
    """Pods of a gang that run elsewhere and are lost with those of the plan. They are not evicted."""

    namespace: str
    owner: str
    part: str | None = None
    hit: int
    count: int
    pods: tuple[str, ...] = ()
    """The names of the first of them."""


class PlanCounts(Model):
    devices: int = 0
    unavailable: int = 0
    """Devices out of service with this plan, over all runs; those alone where the policy does not ask for it."""
    published: int = 0
    """Devices that the driver publishes."""
    pods: int = 0
    """Evicted, EvictedLater and NotReachedByTaint."""
    namespaces: int = 0
    workloads: int = 0
    """Top owners of those pods; one that is known only in part, and a pod without owner, count each for itself."""
    tolerating_pods: int = 0
    lost_pods: int = 0
    """Not among `pods`."""


class PlanViolation(Model):
    check: str
    limit: str
    actual: str
    message: str


class PlanBudget(Model):
    namespace: str
    name: str
    allowed: int
    needed: int


class PlanStatus(Model):
    """The plan as a run's status shows it: the first 100 of each list, and how many more."""

    digest: str = ""
    computed_at: Time | None = None
    policy_generation: int = 0
    devices: tuple[PlanDevice, ...] = ()
    more_devices: int = 0
    pods: tuple[PlanPod, ...] = ()
    more_pods: int = 0
    counts: PlanCounts = Field(default_factory=PlanCounts)
    agreement: Agreement | None = None
    violations: tuple[PlanViolation, ...] = ()
    budgets: tuple[PlanBudget, ...] = ()
    more_budgets: int = 0
    lost_with: tuple[PlanLost, ...] = ()
    more_lost_with: int = 0
    multiple_budgets: tuple[str, ...] = ()
    """Pods (namespace/name, the first 100) that more than one budget selects: the Eviction API never lets them go."""
