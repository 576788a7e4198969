"""Plans, policies and approvals for the tests of policy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from taintctl.api.approval import ApprovalAuthor, ApprovalDecision, ApprovalSpec, MaintenanceApproval
from taintctl.api.base import ObjectMeta
from taintctl.api.plan import Budget, DeviceID, Plan, PlannedDevice, PlannedPod
from taintctl.api.policy import EvictionPolicy, PolicySpec
from taintctl.api.reasons import PodEffect

NOW = datetime(2026, 12, 1, 21, 0, tzinfo=UTC)
DRIVER = "gpu.example.com"


def device(name: str, uuid: str | None = None) -> PlannedDevice:
    return PlannedDevice(id=DeviceID(DRIVER, "n1", name), uuid=f"GPU-{name}" if uuid is None else uuid, node="n1")


def pod(
    name: str,
    effect: PodEffect = PodEffect.EVICTED,
    *,
    namespace: str = "team-a",
    seconds: int | None = None,
    terminating: bool = False,
    workload: str = "",
    **more: Any,
) -> PlannedPod:
    return PlannedPod(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        effect=effect,
        toleration_seconds=seconds,
        terminating=terminating,
        workload=workload,
        **more,
    )


def plan(
    *pods: PlannedPod,
    devices: tuple[PlannedDevice, ...] = (device("gpu-0"),),
    budgets: tuple[Budget, ...] = (),
    multiple_budgets: tuple[str, ...] = (),
    published: int = 0,
    elsewhere: int = 0,
) -> Plan:
    return Plan(
        devices=devices,
        pods=pods,
        rules=(),
        budgets=budgets,
        multiple_budgets=multiple_budgets,
        published=published,
        elsewhere=elsewhere,
        computed_at=NOW,
    )


def policy(*, uid: str = "policy-1", generation: int = 1, **spec: Any) -> EvictionPolicy:
    return EvictionPolicy(
        metadata=ObjectMeta(name="gpus", uid=uid, generation=generation), spec=PolicySpec.model_validate(spec)
    )


def approval(
    name: str,
    who: str,
    digest: str,
    *,
    decision: ApprovalDecision = ApprovalDecision.APPROVE,
    at: datetime | None = NOW,
    comment: str | None = None,
) -> MaintenanceApproval:
    return MaintenanceApproval(
        metadata=ObjectMeta(name=name, creation_timestamp=at),
        spec=ApprovalSpec(
            run_name="run", digest=digest, decision=decision, approver=ApprovalAuthor(name=who), comment=comment
        ),
    )
