"""Every phase, condition type and reason that a person or a script can read, in one place."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a MaintenanceRun is. The last four have ended: no rule of ours is left."""

    PENDING = "Pending"
    DRY_RUN = "DryRun"
    BLOCKED = "Blocked"
    AWAITING_APPROVAL = "AwaitingApproval"
    NOTICE = "Notice"
    EVICTING = "Evicting"
    DRAINING = "Draining"
    IN_MAINTENANCE = "InMaintenance"
    RELEASING = "Releasing"
    ROLLING_BACK = "RollingBack"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    EXPIRED = "Expired"

    @property
    def ended(self) -> bool:
        return self in ENDED


ENDED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.EXPIRED})


class ConditionType(StrEnum):
    ACCEPTED = "Accepted"
    READY = "Ready"
    DRY_RUN_FRESH = "DryRunFresh"
    WITHIN_POLICY = "WithinPolicy"
    APPROVED = "Approved"
    EVICTED = "Evicted"
    DEVICES_IDLE = "DevicesIdle"
    WORK_DONE = "WorkDone"
    RELEASED = "Released"
    NOTIFIED = "Notified"


class Effect(StrEnum):
    """DeviceTaint effects (resource.k8s.io, KEP-5055). An unknown effect counts as None upstream; we never send one."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class PodEffect(StrEnum):
    """What a NoExecute taint would do to a pod that holds a target device, worst first."""

    EVICTED = "Evicted"
    EVICTED_LATER = "EvictedLater"
    NOT_REACHED_BY_TAINT = "NotReachedByTaint"
    """Holds the device through an extended resource: the taint neither counts nor deletes it; taintctl evicts it
    through the Eviction API (recording 02, dry-ext)."""
    TOLERATES = "Tolerates"


class Agreement(StrEnum):
    """Whether the control plane's dry-run message and our own prediction say the same."""

    AGREED = "Agreed"
    MISMATCH = "Mismatch"
    UNREADABLE = "Unreadable"


class Reason(StrEnum):
    """The machine word beside a phase or a condition."""

    # a run on its way
    CREATED = "Created"
    DEVICE_IN_OTHER_RUN = "DeviceInOtherRun"
    WAITING_FOR_DRY_RUN = "WaitingForDryRun"
    AGREED = "Agreed"
    LARGER_USED = "LargerUsed"
    WITHIN_POLICY = "WithinPolicy"
    WAITING_FOR_APPROVAL = "WaitingForApproval"
    WAITING_FOR_START = "WaitingForStart"
    APPROVED = "Approved"
    AUTO_APPROVED = "AutoApproved"
    PLAN_CHANGED = "PlanChanged"
    NOTICE_GIVEN = "NoticeGiven"
    SECOND_LOOK = "SecondLook"
    GATE_PASSED = "GatePassed"
    EVICTION_ACKNOWLEDGED = "EvictionAcknowledged"
    PODS_PENDING = "PodsPending"
    PODS_TERMINATING = "PodsTerminating"
    BUDGET_FORBIDS = "BudgetForbids"
    EVICTION_REFUSED = "EvictionRefused"
    PROVING_IDLE = "ProvingIdle"
    CONDITION_STALE = "ConditionStale"
    DEVICES_IDLE = "DevicesIdle"
    DEVICES_IN_USE = "DevicesInUse"
    NODE_NOT_READY = "NodeNotReady"
    DEVICE_PLUGIN_POD = "DevicePluginPod"
    SETTLING = "Settling"
    WAITING_FOR_WORK = "WaitingForWork"
    WORK_DONE = "WorkDone"
    WORK_NOT_DONE = "WorkNotDone"
    HARDWARE_CHANGED = "HardwareChanged"
    WAITING_FOR_RELEASE = "WaitingForRelease"
    RELEASED = "Released"
    PAUSED = "Paused"
    RESUMED = "Resumed"
    KEPT_TAINTED = "KeptTainted"
    DEADLINE_EXTENDED = "DeadlineExtended"
    # why nothing is evicted
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_FIELD = "UnknownField"
    POLICY_NOT_FOUND = "PolicyNotFound"
    POLICY_INVALID = "PolicyInvalid"
    NO_DEVICES = "NoDevices"
    DEVICE_CLASS_NOT_FOUND = "DeviceClassNotFound"
    SELECTOR_FAILED = "SelectorFailed"
    WHOLE_DRIVER = "WholeDriver"
    POOL_INCOMPLETE = "PoolIncomplete"
    TOO_MANY_RULES = "TooManyRules"
    CONSUMER_UNKNOWN = "ConsumerUnknown"
    CLUSTER_UNREADABLE = "ClusterUnreadable"
    MESSAGE_UNREADABLE = "MessageUnreadable"
    MISMATCH = "Mismatch"
    EVICTION_CONTROLLER_SILENT = "EvictionControllerSilent"
    POLICY_VIOLATED = "PolicyViolated"
    APPROVERS_UNVERIFIED = "ApproversUnverified"
    # how a run ends
    COMPLETED = "Completed"
    DENIED = "Denied"
    APPROVAL_EXPIRED = "ApprovalExpired"
    CANCELLED = "Cancelled"
    DELETED = "Deleted"
    DEADLINE_PASSED = "DeadlinePassed"
    DRAIN_TIMEOUT = "DrainTimeout"
    MULTIPLE_BUDGETS = "MultipleBudgets"
    RULE_CHANGED = "RuleChanged"
    RULE_DELETED = "RuleDeleted"
    # approvals
    COUNTED = "Counted"
    APPROVAL_RECORDED = "ApprovalRecorded"
    NOT_AN_APPROVER = "NotAnApprover"
    OTHER_PLAN = "OtherPlan"
    SAME_APPROVER = "SameApprover"
    SELF_APPROVAL = "SelfApproval"
    NO_SUCH_RUN = "NoSuchRun"
    RUN_ENDED = "RunEnded"
    # who is told
    NOTIFIED = "Notified"
    NOTIFY_FAILED = "NotifyFailed"
    # windows
    ACCEPTED = "Accepted"
    SCHEDULED = "Scheduled"
    SUSPENDED = "Suspended"
    RUN_ACTIVE = "RunActive"
    NAME_TAKEN = "NameTaken"
    START_MISSED = "StartMissed"
    NO_FURTHER_START = "NoFurtherStart"
