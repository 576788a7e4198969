"""A whole run by kubectl alone: everything that people say to the controller is a Kubernetes object."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from taintctl.api.base import API_VERSION, format_time
from taintctl.cli.lab import bind
from tests.e2e.town import APPROVER, DRIVER, NODE, PATIENCE, RULES, RUNS, Town, town
from tests.processes import BOUND

pytestmark = [
    pytest.mark.process,
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]

OPERATOR = "olga@example.com"


class People:
    """kubectl as the sandbox's users; each has a kubeconfig and nothing else."""

    def __init__(self, place: Town) -> None:
        self._place = place
        for person, role in ((OPERATOR, "taintctl-operator"), (APPROVER, "taintctl-approver")):
            place.sandbox.users.add(person)
            place.sandbox.apply([bind(role, person)])

    async def _kubectl(self, user: str, arguments: tuple[str, ...], stdin: Mapping[str, Any] | None) -> tuple[int, str]:
        config = self._place.sandbox.write_kubeconfig(self._place.folder / f"kubectl-{user}", user)
        process = await asyncio.create_subprocess_exec(
            *("kubectl", *arguments),
            env={"PATH": os.environ["PATH"], "HOME": str(self._place.folder), "KUBECONFIG": str(config)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            **BOUND,
        )
        async with asyncio.timeout(PATIENCE):
            out, _ = await process.communicate(json.dumps(stdin).encode() if stdin else b"")
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def __call__(self, user: str, *arguments: str, stdin: Mapping[str, Any] | None = None) -> str:
        status, out = await self._kubectl(user, arguments, stdin)
        assert status == 0, f"{out}\n{self._place.describe()}"
        return out

    async def refused(self, user: str, *arguments: str, stdin: Mapping[str, Any] | None = None) -> str:
        status, out = await self._kubectl(user, arguments, stdin)
        assert status != 0, out
        return out

    async def wait(self, user: str, what: str, phase: str) -> None:
        await self(user, "wait", what, f"--for=jsonpath={{.status.phase}}={phase}", f"--timeout={PATIENCE:g}s")


def manifest(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def run_manifest(name: str, **spec: Any) -> dict[str, Any]:
    target = {"driver": DRIVER, "pool": NODE}
    deadline = format_time(datetime.now(UTC) + timedelta(hours=2))
    return manifest("MaintenanceRun", name, target=target, policyName="night", deadline=deadline, **spec)


async def test_a_run_from_apply_to_delete(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        kubectl = People(place)
        await place.controller()
        policy = manifest("EvictionPolicy", "night", limits={"maxPods": 8}, budgets="Warn")
        await kubectl("admin", "apply", "-f", "-", stdin=policy)
        await kubectl("admin", "wait", "evp/night", "--for=condition=Accepted", f"--timeout={PATIENCE:g}s")

        somebody_else = await kubectl.refused(
            OPERATOR, "create", "-f", "-", stdin=run_manifest("run", requestedBy=APPROVER)
        )
        assert "spec.requestedBy must be your own name, olga@example.com, or left out" in somebody_else
        await kubectl(OPERATOR, "apply", "-f", "-", stdin=run_manifest("run", requestedBy=OPERATOR))
        await kubectl.wait(OPERATOR, "mr/run", "AwaitingApproval")
        digest = await kubectl(APPROVER, "get", "mr", "run", "-o", "jsonpath={.status.approval.asked.digest}")

        def approval(approver: str) -> dict[str, Any]:
            said_by = {"kind": "Kubernetes", "name": approver}
            return manifest(
                "MaintenanceApproval", "yes", runName="run", digest=digest, decision="Approve", approver=said_by
            )

        not_hers = await kubectl.refused(OPERATOR, "create", "-f", "-", stdin=approval(OPERATOR))
        assert 'cannot create resource "maintenanceapprovals"' in not_hers
        borrowed = await kubectl.refused(APPROVER, "create", "-f", "-", stdin=approval(OPERATOR))
        assert "spec.approver.name must be your own name, ada@example.com" in borrowed
        assert place.status()["phase"] == "AwaitingApproval"
        await kubectl(APPROVER, "create", "-f", "-", stdin=approval(APPROVER))

        await kubectl.wait(OPERATOR, "mr/run", "InMaintenance")
        await kubectl(OPERATOR, "wait", "mr/run", "--for=condition=DevicesIdle", f"--timeout={PATIENCE:g}s")
        shown = await kubectl(OPERATOR, "get", "mr")
        assert re.search(r"^run +InMaintenance", shown, re.MULTILINE), shown
        moved = await kubectl.refused(
            OPERATOR, "patch", "mr", "run", "--type=merge", "-p", '{"spec":{"target":{"pool":"gpu-worker-02"}}}'
        )
        assert "immutable" in moved
        await kubectl(OPERATOR, "patch", "mr", "run", "--type=merge", "-p", '{"spec":{"workCompleted":true}}')
        await kubectl.wait(OPERATOR, "mr/run", "Succeeded")
        place.assert_ended_well()
        described = await kubectl("admin", "describe", "mr", "run")
        events = re.findall(r"^ +(?:Normal|Warning) +(\w+) ", described.partition("Events:")[2], re.MULTILINE)
        assert {"WaitingForApproval", "GatePassed", "DevicesIdle"} <= set(events), described
        await kubectl(OPERATOR, "delete", "mr", "run", f"--timeout={PATIENCE:g}s")
        assert place.sandbox.store.find(RUNS, None, "run") is None
        place.assert_nothing_odd_said()


async def test_a_run_that_is_deleted_while_it_waits_takes_its_rule_off(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        kubectl = People(place)
        await place.controller()
        await kubectl("admin", "apply", "-f", "-", stdin=manifest("EvictionPolicy", "night", budgets="Warn"))
        await kubectl(OPERATOR, "apply", "-f", "-", stdin=run_manifest("run"))
        await kubectl.wait(OPERATOR, "mr/run", "AwaitingApproval")
        assert len(place.sandbox.store.list(RULES)) == 1
        await kubectl(OPERATOR, "delete", "mr", "run", f"--timeout={PATIENCE:g}s")
        assert place.sandbox.store.find(RUNS, None, "run") is None
        assert place.sandbox.store.list(RULES) == []
        assert place.evicted == []
        place.assert_nothing_odd_said()
