"""The commands of the README's installation, with a real kubectl, on the sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from taintctl.sandbox.cluster import Sandbox

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]


async def test_the_base_and_the_policies_are_applied_and_shown(tmp_path: Path) -> None:
    async with Sandbox(nodes=1, gpus_per_node=2, speed=50) as sandbox:
        environment = os.environ | {"KUBECONFIG": str(sandbox.write_kubeconfig(tmp_path / "kubeconfig"))}
        environment["HOME"] = str(tmp_path)  # kubectl's discovery cache

        async def kubectl(*arguments: str) -> str:
            done = await asyncio.to_thread(
                subprocess.run,
                ["kubectl", *arguments],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        first = await kubectl("apply", "-k", "deploy/")
        assert "customresourcedefinition.apiextensions.k8s.io/maintenanceruns.taintctl.dev created" in first
        assert "deployment.apps/taintctl created" in first
        again = (await kubectl("apply", "-k", "deploy/")).splitlines()
        assert [line for line in again if not line.endswith(" unchanged")] == []
        assert len(again) == len(first.splitlines())

        await kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        await kubectl("apply", "-f", "policies/")
        window = (await kubectl("get", "mw")).splitlines()
        assert " ".join(window[0].split()) == "NAME SCHEDULE TIMEZONE NEXT DURATION ACTIVE SUSPEND READY AGE"
        assert " ".join(window[1].split()).startswith("nightly-gpu-worker-01 0 21 * * * Europe/Berlin 8h ")
        policies = (await kubectl("get", "evp", "careful")).splitlines()
        assert policies[1].split()[:6] == ["careful", "50", "2", "AboveAutoApprove", "1", "Respect"]
        # A percentage is shown as it is written; a column of integers would leave it out.
        wide = (await kubectl("get", "evp", "inference", "-o", "wide")).splitlines()
        assert " ".join(wide[0].split()).endswith("MAX-DEVICES MAX-UNAVAILABLE MAX-NAMESPACES AGE")
        assert wide[1].split()[-4:-1] == ["10%", "10%", "10"]
        explained = await kubectl("explain", "maintenanceruns.spec.target.pool")
        assert "The driver's pool; for node-local devices usually the node's name." in explained
        assert set((await kubectl("get", "taintctl", "-o", "name")).split()) == {
            *(
                f"evictionpolicy.taintctl.dev/{name}"
                for name in ("autopilot-small", "careful", "inference", "lab", "strict", "training")
            ),
            "maintenancewindow.taintctl.dev/nightly-gpu-worker-01",
        }
