"""Runs, policies and plans for the tests of Slack, and a Desk that writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from taintctl.api.plan import DeviceID, Plan, PlannedDevice, PlannedPod
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.run import MaintenanceRun
from taintctl.ports.chat import Answer, Answered, Click, Details, RunView

DIGEST = "ab" * 32
UID = "6f1c0c6e-1111-2222-3333-444455556666"
OPENS, CLOSES = "2026-12-01T21:00:00Z", "2026-12-02T05:00:00Z"
EFFECTS = ["Evicted", "EvictedLater", "NotReachedByTaint", "Tolerates"]
HOSTILE = "*bold* _it_ ~no~ `code` <!channel> <@U0ALICE> @here & <https://evil.example|click> \x07\u202e\n> quote"


def policy(*approvers: dict[str, Any], **spec: Any) -> EvictionPolicy:
    given = {"approval": {"approvers": approvers or ({"kind": "Slack", "name": "U0ALICE"},)}, **spec}
    return EvictionPolicy.model_validate({"metadata": {"name": "careful"}, "spec": given})


def run(
    pods: int = 3,
    *,
    name: str = "gpus-29430",
    phase: str = "AwaitingApproval",
    reason: str = "WaitingForApproval",
    word: str = "",
    spec: dict[str, Any] | None = None,
    approval: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    **status: Any,
) -> MaintenanceRun:
    """A window's run that waits to be approved, with `pods` pods of 4 owners; `word` goes into every outside word."""
    listed = [
        {
            "namespace": f"team-{n % 3}{word}",
            "name": f"pod-{n}{word}",
            "uid": f"uid-{n}",
            "owner": f"Deployment/web-{n % 40}{word}" if n % 5 else "",
            "effect": EFFECTS[n % 4],
        }
        for n in range(min(pods, 100))
    ]
    found = {
        "digest": DIGEST,
        "devices": [
            {"driver": "gpu.example.com", "pool": f"node-{n}", "device": "gpu-0", "node": f"node-{n}{word}"}
            for n in range(4)
        ],
        "pods": listed,
        "morePods": max(0, pods - 100),
        "counts": {"devices": 4, "published": 16, "pods": pods, "namespaces": min(pods, 3), "workloads": min(pods, 40)},
        **(plan or {}),
    }
    return MaintenanceRun.model_validate(
        {
            "metadata": {"name": name, "uid": UID},
            "spec": {
                "target": {"driver": "gpu.example.com"},
                "trigger": {"type": "Schedule", "windowName": "gpus", "reason": f"firmware{word}"[:1024]},
                "requestedBy": f"carol{word}"[:256],
                "policyName": "careful",
                "startAt": OPENS,
                "deadline": CLOSES,
                **(spec or {}),
            },
            "status": {
                "phase": phase,
                "reason": reason,
                "message": f"Waits for approval.{word}"[:2048],
                "plan": found,
                "approval": {
                    "asked": {"digest": DIGEST},
                    "needed": 1,
                    "expiresAt": "2026-12-01T20:30:00Z",
                    **(approval or {}),
                },
                **status,
            },
        }
    )


def view(pods: int = 3, **more: Any) -> RunView:
    return RunView(run(pods, **more), policy())


def whole_plan(pods: int, word: str = "") -> Plan:
    device = DeviceID("gpu.example.com", "node-1", "gpu-0")
    return Plan(
        devices=(PlannedDevice(device, uuid=f"GPU-1{word}", node=f"node-1{word}"),),
        pods=tuple(
            PlannedPod(
                f"team-{n % 3}{word}", f"pod-{n:05d}{word}", f"uid-{n}", PodEffect(EFFECTS[n % 4]), devices=(device,)
            )
            for n in range(pods)
        ),
        rules=(),
    )


@dataclass
class FakeDesk:
    wanted: list[str] = field(default_factory=list)
    answer: Answer = field(default_factory=lambda: Answer(Answered.RECORDED, "Your approval is recorded."))
    found: Details | None = None
    clicks: list[Click] = field(default_factory=list)

    async def groups(self, run_name: str) -> Sequence[str]:
        return self.wanted

    async def decide(self, click: Click) -> Answer:
        self.clicks.append(click)
        return self.answer

    async def details(self, run_name: str, run_uid: str) -> Details | None:
        return self.found
