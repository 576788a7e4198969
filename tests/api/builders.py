"""Objects of ours as people write them: what is left out has the API's default."""

from __future__ import annotations

from typing import Any

from taintctl.api.base import API_VERSION

Object = dict[str, Any]
POOL = {"driver": "gpu.example.com", "pool": "node-1"}
DIGEST = "0f" * 32


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def a_run(name: str = "swap-gpu", **spec: Any) -> Object:
    return _object("MaintenanceRun", name, {"target": POOL, "deadline": "2026-12-02T05:00:00Z", **spec})


def a_window(name: str = "nightly", **spec: Any) -> Object:
    schedule = {"cron": "0 21 * * *", "timeZone": "Europe/Berlin", "duration": "8h"}
    return _object("MaintenanceWindow", name, {"target": POOL, "schedule": schedule, **spec})


def a_policy(name: str = "careful", **spec: Any) -> Object:
    return _object("EvictionPolicy", name, spec)


def an_approval(name: str = "swap-gpu-alice", **spec: Any) -> Object:
    approver = {"kind": "Kubernetes", "name": "alice"}
    given = {"runName": "swap-gpu", "digest": DIGEST, "decision": "Approve", "approver": approver, **spec}
    return _object("MaintenanceApproval", name, given)
