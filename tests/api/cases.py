"""Good and bad objects, and the field that a bad one is refused for: by check() and, unless said otherwise, by an API
server with our CRDs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.check import Own
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from tests.api.builders import POOL, Object, a_policy, a_run, a_window, an_approval

MAKERS = {
    MaintenanceRun: a_run,
    MaintenanceWindow: a_window,
    EvictionPolicy: a_policy,
    MaintenanceApproval: an_approval,
}


@dataclass(frozen=True)
class Case:
    kind: type[Own]
    obj: Object
    field: str = ""
    """Where the problem is; empty: there is none."""
    kept_by_server: bool = False
    """An API server stores it, for the controller to refuse: an unknown field, or what its rules do not ask."""

    def __str__(self) -> str:
        return f"{self.kind.KIND} {self.field or 'good'} {self.obj['metadata']['name'][:12]} {self.obj.get('spec')}"[
            :150
        ]


def good(kind: type[Own], name: str = "good", **spec: Any) -> Case:
    return Case(kind, MAKERS[kind](name, **spec))


def bad(kind: type[Own], field: str, *, name: str = "bad", kept_by_server: bool = False, **spec: Any) -> Case:
    return Case(kind, MAKERS[kind](name, **spec), field, kept_by_server)


def without(case: Case, field: str, at: str) -> Case:
    spec = {name: value for name, value in case.obj["spec"].items() if name != field}
    return Case(case.kind, {**case.obj, "spec": spec}, at)


CRON = {"cron": "0 21 * * *", "duration": "8h"}

GOOD = (
    good(MaintenanceRun),
    good(MaintenanceRun, target={"driver": "gpu.example.com", "wholeDriver": True}),
    good(MaintenanceRun, target={**POOL, "device": "gpu-0"}),
    good(MaintenanceRun, target={"driver": "gpu.example.com", "device": "gpu-0"}),
    good(MaintenanceRun, target={"nodeSelector": {"topology.kubernetes.io/zone": "a", "rack": ""}}),
    good(MaintenanceRun, target={"deviceClassName": "gpu.example.com", "partitions": "Exact"}),
    good(MaintenanceRun, target={"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}),
    good(MaintenanceRun, target={"uuids": ["GPU-1", "GPU-2"]}),
    good(MaintenanceWindow, target={"uuids": ["GPU-1"]}),
    good(MaintenanceRun, taint={"key": "maintenance", "value": ""}),
    good(MaintenanceRun, notice="5m", drain={"timeout": "1h"}, policyName="careful"),
    good(MaintenanceRun, drain={"mode": "Evict"}),
    good(EvictionPolicy, drain={"forceAtTimeout": True}),
    good(EvictionPolicy, onMismatch="UseLarger"),
    good(MaintenanceRun, work={"mode": "Duration", "duration": "2h"}),
    good(MaintenanceRun, atDeadline="Extend", extendBy="1h"),
    good(MaintenanceRun, atDeadline="KeepTainted"),
    good(MaintenanceRun, trigger={"type": "Schedule", "windowName": "nightly"}, requestedBy="alice"),
    good(MaintenanceRun, startAt="2026-12-01T21:00:00+01:00", paused=True),
    good(MaintenanceRun, name="r" * 253),
    good(MaintenanceWindow),
    good(MaintenanceWindow, schedule={"start": "2026-12-24T21:00:00Z", "duration": "4h"}),
    good(MaintenanceWindow, schedule={**CRON, "startingDeadline": "1h", "planAhead": "30m"}),
    good(MaintenanceWindow, suspend=True, concurrencyPolicy="Replace", historyLimit=0),
    good(MaintenanceWindow, name="w" * 52),
    good(EvictionPolicy),
    good(EvictionPolicy, limits={"maxPods": 0}, autoApprove={"maxPods": 3, "maxNamespaces": 1, "maxDevices": 8}),
    good(EvictionPolicy, budgets="Warn", dryRun={"maxAge": "2m", "attempts": 1}, rollbackOn=[]),
    good(EvictionPolicy, approval={"required": "Always", "count": 2, "approvers": [{"name": "alice"}]}),
    good(
        EvictionPolicy,
        approval={
            "approvers": [
                {"kind": "Slack", "name": "U024BE7LH", "kubernetesUser": "alice"},
                {"kind": "Slack", "name": "W012A3CDE"},
                {"kind": "SlackGroup", "name": "S0614TZR7"},
                {"kind": "Email", "name": "Ann.Lee+ops@mail.example.com", "kubernetesUser": "ann"},
            ]
        },
    ),
    good(
        EvictionPolicy,
        limits={"maxDevices": "25%", "maxUnavailable": "100%", "min": 0},
        autoApprove={"maxDevices": "0%", "maxUnavailable": 1_000_000},
        toleratingPods="Block",
    ),
    good(EvictionPolicy, protected={"minPriority": -5}, approval={"onExpiry": "AskAgain", "selfApproval": True}),
    good(
        EvictionPolicy,
        protected={
            "namespaces": ["kube-system"],
            "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod", ""]}]},
            "podSelector": {
                "matchLabels": {"example.com/keep": "yes"},
                "matchExpressions": [{"key": "keep", "operator": "Exists"}],
            },
            "priorityClassNames": ["system-node-critical"],
            "minPriority": 2_000_000_000,
        },
    ),
    good(MaintenanceApproval),
    good(MaintenanceApproval, decision="Break"),
    good(
        MaintenanceApproval,
        approver={"kind": "Slack", "name": "U024BE7LH"},
        slack={"team": "T024BE7LD", "channel": "C0123456789", "ts": "1764622800.000100", "groups": ["S0614TZR7"]},
    ),
    good(MaintenanceApproval, decision="Deny", comment="not tonight"),
)

BAD = (
    without(good(MaintenanceRun), "target", "spec.target"),
    without(good(MaintenanceRun), "deadline", "spec.deadline"),
    bad(MaintenanceRun, "spec.target", target={}),
    bad(MaintenanceRun, "spec.target", target={"pool": "node-1"}),
    bad(MaintenanceRun, "spec.target", target={"device": "gpu-0"}),
    bad(MaintenanceRun, "spec.target", target={"partitions": "Exact", "wholeDriver": True}),
    bad(MaintenanceRun, "spec.target.nodeSelector", target={"nodeSelector": {}}),
    bad(MaintenanceRun, "spec.target.nodeSelector", target={**POOL, "nodeSelector": {}}),
    bad(MaintenanceRun, "spec.target.nodeSelector.rack", target={"nodeSelector": {"rack": "a b"}}),
    bad(MaintenanceRun, "spec.target.nodeSelector", target={"nodeSelector": {"a b": "c"}}, kept_by_server=True),
    bad(MaintenanceRun, "spec.target.deviceClassName", target={"deviceClassName": ""}),
    bad(MaintenanceRun, "spec.target.selectors", target={"selectors": []}),
    bad(MaintenanceRun, "spec.target.selectors[0].cel", target={"selectors": [{}]}),
    bad(MaintenanceRun, "spec.target.selectors[0].cel.expression", target={"selectors": [{"cel": {"expression": ""}}]}),
    bad(MaintenanceRun, "spec.target.uuids", target={"uuids": []}),
    bad(MaintenanceRun, "spec.target.uuids[0]", target={"uuids": [""]}),
    bad(MaintenanceRun, "spec.target.partitions", target={**POOL, "partitions": "exact"}),
    bad(MaintenanceRun, "spec.target.driver", target={"driver": ""}),
    bad(MaintenanceRun, "spec.target.driver", target={"driver": "GPU.example.com"}),
    bad(MaintenanceRun, "spec.target.driver", target={"driver": "d" * 64}),
    bad(MaintenanceRun, "spec.target.pool", target={"driver": "gpu.example.com", "pool": "p" * 254}),
    bad(MaintenanceRun, "spec.taint.key", taint={"key": "a key"}),
    bad(MaintenanceRun, "spec.taint.value", taint={"value": "v" * 64}),
    bad(MaintenanceRun, "spec.notice", notice="soon"),
    bad(MaintenanceRun, "spec.notice", notice=""),
    bad(MaintenanceRun, "spec.notice", notice="9000h", kept_by_server=True),
    bad(MaintenanceRun, "spec.drain.timeout", drain={"timeout": "30 minutes"}),
    bad(MaintenanceRun, "spec.drain.mode", drain={"mode": "Delete"}),
    bad(EvictionPolicy, "spec.onMismatch", onMismatch="UseSmaller"),
    bad(EvictionPolicy, "spec.drain.forceAtTimeout", drain={"forceAtTimeout": "yes"}),
    bad(MaintenanceRun, "spec.work", work={"mode": "Duration"}),
    bad(MaintenanceRun, "spec.work", work={"duration": "1h"}),
    bad(MaintenanceRun, "spec.work.mode", work={"mode": "Job"}),
    bad(MaintenanceRun, "spec", atDeadline="Extend"),
    bad(MaintenanceRun, "spec", extendBy="1h"),
    bad(MaintenanceRun, "spec.atDeadline", atDeadline="Wait"),
    bad(MaintenanceRun, "spec.trigger.type", trigger={"type": "Quarantine"}),
    bad(MaintenanceRun, "spec.deadline", deadline="tomorrow"),
    bad(MaintenanceRun, "spec.deadline", startAt="2026-12-02T05:00:00Z", kept_by_server=True),
    bad(MaintenanceRun, "spec.requestedBy", requestedBy="u" * 257),
    bad(MaintenanceWindow, "metadata.name", name="w" * 53),
    without(good(MaintenanceWindow), "schedule", "spec.schedule"),
    bad(MaintenanceWindow, "spec.schedule.duration", schedule={"cron": "0 21 * * *"}),
    bad(MaintenanceWindow, "spec.schedule", schedule={"duration": "8h"}),
    bad(MaintenanceWindow, "spec.schedule", schedule={**CRON, "start": "2026-12-24T21:00:00Z"}),
    bad(
        MaintenanceWindow,
        "spec.schedule",
        schedule={"start": "2026-12-24T21:00:00Z", "duration": "8h", "timeZone": "Europe/Berlin"},
    ),
    bad(MaintenanceWindow, "spec.schedule", schedule={**CRON, "duration": "30s"}, kept_by_server=True),
    bad(MaintenanceWindow, "spec.concurrencyPolicy", concurrencyPolicy="Allow"),
    bad(MaintenanceWindow, "spec.historyLimit", historyLimit=-1),
    bad(MaintenanceWindow, "spec.historyLimit", historyLimit=101),
    bad(MaintenanceWindow, "spec.target", target={}),
    bad(EvictionPolicy, "spec.limits.maxPods", limits={"maxPods": -1}),
    bad(EvictionPolicy, "spec.autoApprove.maxDevices", autoApprove={"maxDevices": 1_000_001}),
    bad(EvictionPolicy, "spec.budgets", budgets="Obey"),
    bad(EvictionPolicy, "spec.dryRun.attempts", dryRun={"attempts": 0}),
    bad(EvictionPolicy, "spec.approval.count", approval={"count": 0}),
    bad(EvictionPolicy, "spec.approval.approvers[0].name", approval={"approvers": [{"kind": "Kubernetes"}]}),
    bad(
        EvictionPolicy,
        "spec.approval.approvers[0].kind",
        approval={"approvers": [{"kind": "Teams", "name": "alice"}]},
    ),
    *(
        bad(EvictionPolicy, f"spec.{part}.{field}", **{part: {field: amount}})
        for part in ("limits", "autoApprove")
        for field in ("maxDevices", "maxUnavailable")
        for amount in ("101%", "25", "-5%", "2.5%", "25 %", "25%\n", "", -1, 1_000_001, 2.5)
    ),
    bad(EvictionPolicy, "spec.limits.min", limits={"min": -1}),
    bad(EvictionPolicy, "spec.limits.maxPods", limits={"maxPods": "25%"}),
    bad(EvictionPolicy, "spec.toleratingPods", toleratingPods="Evict"),
    bad(EvictionPolicy, "spec.protected", protected={}),
    bad(EvictionPolicy, "spec.protected.namespaces", protected={"namespaces": []}),
    bad(EvictionPolicy, "spec.protected.namespaces[0]", protected={"namespaces": ["team-*"]}),
    bad(EvictionPolicy, "spec.protected.podSelector", protected={"podSelector": {}}),
    bad(EvictionPolicy, "spec.protected.podSelector.matchLabels", protected={"podSelector": {"matchLabels": {}}}),
    bad(
        EvictionPolicy,
        "spec.protected.podSelector.matchLabels",
        protected={"podSelector": {"matchLabels": {"a key": "x"}}},
    ),
    bad(
        EvictionPolicy,
        "spec.protected.podSelector.matchLabels.app",
        protected={"podSelector": {"matchLabels": {"app": "a value"}}},
    ),
    bad(
        EvictionPolicy,
        "spec.protected.namespaceSelector.matchExpressions[0]",
        protected={"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "In"}]}},
    ),
    bad(
        EvictionPolicy,
        "spec.protected.namespaceSelector.matchExpressions[0]",
        protected={
            "namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "Exists", "values": ["prod"]}]}
        },
    ),
    bad(
        EvictionPolicy,
        "spec.protected.namespaceSelector.matchExpressions[0].operator",
        protected={"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "Gt", "values": ["3"]}]}},
    ),
    bad(EvictionPolicy, "spec.protected.minPriority", protected={"minPriority": 2**31}),
    bad(EvictionPolicy, "spec.approval.onExpiry", approval={"onExpiry": "Shrug"}),
    bad(EvictionPolicy, "spec.approval.selfApproval", approval={"selfApproval": "yes"}),
    bad(EvictionPolicy, "spec.rollbackOn[0]", rollbackOn=["Bored"]),
    bad(MaintenanceApproval, "spec.digest", digest="0f"),
    bad(MaintenanceApproval, "spec.digest", digest="0F" * 32),
    bad(MaintenanceApproval, "spec.decision", decision="Maybe"),
    without(good(MaintenanceApproval), "approver", "spec.approver"),
    bad(MaintenanceApproval, "spec.comment", comment="c" * 1025),
)

UNKNOWN_FIELDS = (
    bad(
        MaintenanceRun,
        "spec.target.selectors[0].cel.expresion",
        target={"selectors": [{"cel": {"expression": "true", "expresion": "false"}}]},
        kept_by_server=True,
    ),
    bad(MaintenanceRun, "spec.dedline", dedline="2026-12-02T05:00:00Z", kept_by_server=True),
    bad(MaintenanceRun, "spec.target.devcie", target={**POOL, "devcie": "gpu-0"}, kept_by_server=True),
    bad(MaintenanceRun, "spec.target.nodeselector", target={**POOL, "nodeselector": {"a": "b"}}, kept_by_server=True),
    bad(MaintenanceRun, "spec.taint.effect", taint={"effect": "NoExecute"}, kept_by_server=True),
    bad(MaintenanceRun, "spec.drain.modus", drain={"modus": "Evict"}, kept_by_server=True),
    bad(EvictionPolicy, "spec.drain.force", drain={"force": True}, kept_by_server=True),
    bad(MaintenanceRun, "spec.work.jobTemplate", work={"jobTemplate": {}}, kept_by_server=True),
    bad(MaintenanceRun, "spec.trigger.source", trigger={"source": "pager"}, kept_by_server=True),
    bad(MaintenanceWindow, "spec.schedule.exclusions", schedule={**CRON, "exclusions": []}, kept_by_server=True),
    bad(MaintenanceWindow, "spec.paused", paused=True, kept_by_server=True),
    bad(EvictionPolicy, "spec.limits.maxWorkload", limits={"maxWorkload": 3}, kept_by_server=True),
    bad(
        EvictionPolicy,
        "spec.protected.namespace",
        protected={"minPriority": 1, "namespace": "kube-system"},
        kept_by_server=True,
    ),
    bad(
        EvictionPolicy,
        "spec.protected.podSelector.matchExpresions",
        protected={"podSelector": {"matchLabels": {"a": "b"}, "matchExpresions": []}},
        kept_by_server=True,
    ),
    bad(EvictionPolicy, "spec.quarantine", quarantine={"effect": "NoSchedule"}, kept_by_server=True),
    bad(
        EvictionPolicy,
        "spec.approval.approvers[0].mail",
        approval={"approvers": [{"name": "alice", "mail": "a@example.com"}]},
        kept_by_server=True,
    ),
    bad(MaintenanceApproval, "spec.reason", reason="because", kept_by_server=True),
    bad(
        MaintenanceApproval,
        "spec.approver.group",
        approver={"kind": "Kubernetes", "name": "alice", "group": "ops"},
        kept_by_server=True,
    ),
)
