"""A real kubectl on the sandbox's Deployments, StatefulSets and Jobs."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from taintctl.sandbox.cluster import Sandbox
from tests.processes import BOUND

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]

WORKLOADS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: team-a}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: "pg:1"}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: count, namespace: team-a}
spec:
  completions: 2
  template:
    metadata: {annotations: {sandbox.taintctl.dev/complete-after: 10s}}
    spec: {restartPolicy: Never, containers: [{name: c, image: "count:1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: team-a}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "count:1"}]}}}}
"""


class Kubectl:
    def __init__(self, sandbox: Sandbox, home: Path) -> None:
        self._config = sandbox.write_kubeconfig(home / "kubeconfig")
        self._home = home

    async def run(self, *arguments: str, stdin: str = "") -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "-n", "team-a", *arguments),
            env={"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": str(self._config)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            **BOUND,
        )
        async with asyncio.timeout(120):
            out, _ = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, out.decode()

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        status, out = await self.run(*arguments, stdin=stdin)
        assert status == 0, out
        return out


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    async with Sandbox(nodes=1, gpus_per_node=2, speed=20) as sandbox:
        yield Kubectl(sandbox, tmp_path)


def row(output: str) -> list[str]:
    _, line = output.splitlines()
    return line.split()


async def test_workloads_are_applied_followed_and_deleted(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", stdin=WORKLOADS)
    assert 'deployment "web" successfully rolled out' in await kubectl("rollout", "status", "deployment/web")
    assert row(await kubectl("get", "deploy", "web"))[:4] == ["web", "2/2", "2", "2"]
    assert row(await kubectl("get", "rs"))[1:4] == ["2", "2", "2"]
    await kubectl("rollout", "status", "statefulset/db")
    assert row(await kubectl("get", "sts", "db"))[:2] == ["db", "2/2"]
    await kubectl("wait", "--for=condition=Complete", "job/count", "--timeout=100s")
    assert row(await kubectl("get", "job", "count"))[:3] == ["count", "Complete", "2/2"]
    assert row(await kubectl("get", "cj"))[:8] == ["nightly", "0", "3", "*", "*", "*", "<none>", "False"]
    assert "Controlled By:  ReplicaSet/web-" in await kubectl("describe", "pods", "-l", "app=web")
    for kind in ("deploy/web", "sts/db", "job/count"):
        assert "Name:" in await kubectl("describe", kind)
    await kubectl("delete", "pod", "db-0")
    await kubectl("wait", "--for=condition=Ready", "pod/db-0", "--timeout=100s")
    await kubectl("rollout", "restart", "deployment/web")
    await kubectl("rollout", "status", "deployment/web")
    await kubectl("delete", "deploy/web", "sts/db", "job/count", "cj/nightly")
    await kubectl("wait", "--for=delete", "pods", "-l", "app in (web, db)", "--timeout=100s")
    assert "No resources found" in await kubectl("get", "rs")


async def test_what_no_controller_could_run_is_refused(kubectl: Kubectl) -> None:
    for wrong, why in (
        (
            WORKLOADS.replace("labels: {app: web}", "labels: {app: other}"),
            "`selector` does not match template `labels`",
        ),
        (WORKLOADS.replace("restartPolicy: Never, ", ""), "spec.template.spec.restartPolicy: Required value"),
        (WORKLOADS.replace("replicas: 2", "replicas: -2"), "must be greater than or equal to 0"),
        (WORKLOADS.replace('image: "pg:1"', "name: c"), "spec.template.spec.containers[0].image: Required value"),
    ):
        status, out = await kubectl.run("apply", "-f", "-", stdin=wrong)
        assert status != 0
        assert why in out
    await kubectl("apply", "-f", "-", stdin=WORKLOADS)
    other = WORKLOADS.replace("app: web", "app: shop")
    assert "spec.selector: Invalid value" in (await kubectl.run("apply", "-f", "-", stdin=other))[1]
    changed = WORKLOADS.replace("count:1", "count:2")
    assert "spec.template: Forbidden: field is immutable" in (await kubectl.run("apply", "-f", "-", stdin=changed))[1]
