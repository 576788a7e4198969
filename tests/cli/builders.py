"""A run half-way through its life, written by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from taintctl.api.check import check
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow

NOW = datetime(2026, 12, 1, 21, 3, 0, tzinfo=UTC)


def at(seconds_ago: float) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat().replace("+00:00", "Z")


def run(name: str = "nightly-1", **status: Any) -> MaintenanceRun:
    """A run over node-1 under policy `careful`, with the given status."""
    spec = status.pop("spec", {})
    metadata = status.pop("metadata", {})
    raw = {
        "metadata": {"name": name, "uid": "u-1", "generation": 1, "creationTimestamp": at(180), **metadata},
        "spec": {
            "target": {"driver": "gpu.example.com", "pool": "node-1"},
            "policyName": "careful",
            "requestedBy": "olga",
            "trigger": {"type": "Manual", "reason": "firmware"},
            "deadline": "2026-12-02T05:00:00Z",
            **spec,
        },
        "status": {"observedGeneration": 1, **status},
    }
    checked = check(MaintenanceRun, raw)
    assert checked.obj is not None, checked.problems
    return checked.obj


AWAITING: dict[str, Any] = {
    "phase": "AwaitingApproval",
    "phaseSince": at(60),
    "reason": "WaitingForApproval",
    "message": "1 approval needed.",
    "nextStep": "taintctl approve nightly-1",
    "plan": {
        "digest": "d" * 64,
        "computedAt": at(61),
        "devices": [
            {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "uuid": "GPU-1", "node": "node-1"}
        ],
        "pods": [
            {"namespace": "a", "name": "train", "uid": "p1", "owner": "Job/train", "effect": "Evicted"},
            {"namespace": "b", "name": "book", "uid": "p2", "effect": "NotReachedByTaint"},
        ],
        "counts": {"devices": 1, "pods": 2, "namespaces": 2, "workloads": 2, "lostPods": 3},
        "lostWith": [
            {
                "namespace": "a",
                "owner": "PyTorchJob/big",
                "hit": 1,
                "count": 3,
                "pods": ["big-worker-1", "big-worker-2"],
            }
        ],
        "budgets": [{"namespace": "a", "name": "pdb", "allowed": 0, "needed": 1}],
    },
    "rules": [
        {
            "name": "taintctl-u-1-0",
            "uid": "r1",
            "driver": "gpu.example.com",
            "pool": "node-1",
            "published": 1,
            "allocated": 2,
            "pods": 1,
            "namespaces": 1,
            "predicted": 1,
            "agreement": "Agreed",
            "evictionInProgress": "False",
        }
    ],
    "approval": {
        "asked": {"digest": "d" * 64},
        "askedAt": at(60),
        "needed": 2,
        "given": [{"approval": "x", "approver": "ada", "at": at(30), "comment": "go"}],
        "expiresAt": (NOW + timedelta(minutes=29)).isoformat(),
    },
    "conditions": [
        {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "Fine.", "lastTransitionTime": at(60)}
    ],
    "history": [
        {"at": at(62), "to": "Pending", "reason": "Created"},
        {"at": at(61), "from": "Pending", "to": "DryRun", "reason": "WaitingForDryRun"},
        {"at": at(60), "from": "DryRun", "to": "AwaitingApproval", "reason": "WaitingForApproval"},
    ],
}


def policy(**spec: Any) -> EvictionPolicy:
    raw = {"metadata": {"name": "careful", "generation": 3}, "spec": spec}
    checked = check(EvictionPolicy, raw)
    assert checked.obj is not None
    assert not checked.problems
    return checked.obj


def window(**changes: Any) -> MaintenanceWindow:
    spec = {
        "schedule": {"cron": "0 21 * * *", "timeZone": "Europe/Berlin", "duration": "8h"},
        "target": {"driver": "gpu.example.com", "pool": "node-1"},
        **changes.pop("spec", {}),
    }
    metadata = {"name": "nightly", **changes.pop("metadata", {})}
    checked = check(MaintenanceWindow, {"metadata": metadata, "spec": spec, "status": changes})
    assert checked.obj is not None, checked.problems
    return checked.obj


def plain(lines: list[Any]) -> str:
    return "\n".join(line.plain for line in lines)
