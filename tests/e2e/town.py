"""A sandbox with deploy/ on it in this process, real `taintctl run` processes beside it, and a record of who wrote."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from taintctl.api.base import API_VERSION, format_time
from taintctl.cli.lab import CONTROLLER, lab
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.store import Event
from tests.processes import BOUND

SPEED = 40.0
PATIENCE = 120.0
"""Real seconds that a test waits for what must come; it takes a fraction of that on an idle machine."""
RUNS = "maintenanceruns.taintctl.dev"
WINDOWS = "maintenancewindows.taintctl.dev"
POLICIES = "evictionpolicies.taintctl.dev"
APPROVALS = "maintenanceapprovals.taintctl.dev"
RULES = "devicetaintrules.resource.k8s.io"
LEASES = "leases.coordination.k8s.io"
DRIVER = "gpu.example.com"
NODE = "gpu-worker-01"
APPROVER = "ada@example.com"
VICTIMS = {f"team-b/{name}" for name in ("inference-0", "inference-1", "inference-2", "notebook-0")} | {
    "team-a/train-01"
}
"""The fleet's pods on the first node that a run evicts (taintctl/sandbox/fleet.py); the monitor beside them stays."""
POLICY = {
    "limits": {"maxPods": 5},
    "budgets": "Ignore",
    "dryRun": {"maxAge": "1h"},
    "approval": {"approvers": [{"kind": "Kubernetes", "name": APPROVER}]},
}
"""A dry run stays fresh while a killed controller starts again, so that no rule has a reason to be made twice."""


@dataclass(frozen=True)
class Write:
    """One write to the API server's store."""

    user: str
    key: str
    name: str
    type: str
    effect: str = ""
    phase: str = ""


@dataclass
class Process:
    """`taintctl run`. Its stderr goes to `log`."""

    process: asyncio.subprocess.Process
    log: Path

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """SIGKILL, at once: also from inside a write of the API server."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), PATIENCE)

    async def stop(self) -> int:
        """SIGTERM, as a kubelet does, and the exit status."""
        if self.process.returncode is None:
            self.process.terminate()
        return await self.ended()

    async def says(self, pattern: str) -> re.Match[str]:
        """The first place in its log that matches, once there is one."""
        async with asyncio.timeout(PATIENCE):
            while (found := re.search(pattern, self.said())) is None:
                assert self.process.returncode is None, f"it ended without saying {pattern!r}: {self.said()}"
                await asyncio.sleep(0.02)
        return found

    async def probe(self, path: str) -> tuple[int, str]:
        port = (await self.says(r"probes at port (\d+)"))[1]
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, (await answer.text()).strip()

    async def probes(self, path: str, status: int) -> str:
        """What a probe says, once it has that status."""
        async with asyncio.timeout(PATIENCE):
            while (found := await self.probe(path))[0] != status:  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
        return found[1]


@dataclass
class Town:
    sandbox: Sandbox
    folder: Path
    writes: list[Write] = field(default_factory=list)
    """Everything that was stored since the town was there, in order."""
    evicted: list[tuple[str, str]] = field(default_factory=list)
    """(pod, by whom it was marked for deletion), in order."""
    started: list[Process] = field(default_factory=list)
    hooks: list[Callable[[Write], None]] = field(default_factory=list)
    """Called inside each write: the writer has no answer yet."""

    def see(self, event: Event) -> None:
        obj, meta = event.obj, event.obj["metadata"]
        effect = obj["spec"]["taint"]["effect"] if event.key == RULES else ""
        status = obj.get("status") if event.key == RUNS else None
        phase = status.get("phase", "") if isinstance(status, dict) else ""
        write = Write(event.user, event.key, meta["name"], event.type, effect, phase)
        self.writes.append(write)
        before = (event.old or {}).get("metadata", {})
        if event.key == "pods" and meta.get("deletionTimestamp") and not before.get("deletionTimestamp"):
            self.evicted.append((f"{meta['namespace']}/{meta['name']}", event.user))
        for hook in tuple(self.hooks):
            hook(write)

    # the controllers

    async def controller(self, user: str = CONTROLLER, *options: str) -> Process:
        """`taintctl run` as somebody of the sandbox's."""
        number = len(self.started)
        config = self.sandbox.write_kubeconfig(self.folder / f"kubeconfig-{number}", user)
        return await self.run("--kubeconfig", str(config), *options)

    async def run(self, *options: str) -> Process:
        log = self.folder / f"log-{len(self.started)}"
        arguments = ["run", "--speed", f"{SPEED:g}", "--probes-host", "127.0.0.1", "--probes-port", "0", *options]
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "taintctl.cli.main", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, "KUBECONFIG": os.devnull, "HOME": str(self.folder)},
                **BOUND,
            )
        made = Process(process, log)
        self.started.append(made)
        return made

    def second_account(self) -> str:
        """Another service account with the controller's rights, so that the store tells two controllers apart."""
        user = self.sandbox.users.service_account("taintctl-system", "second")
        subject = {"kind": "ServiceAccount", "name": "second", "namespace": "taintctl-system"}
        roles = (
            ("ClusterRole", "taintctl-controller", None),
            ("Role", "taintctl-lease", "taintctl-system"),
            ("Role", "taintctl-events", "default"),
        )
        self.sandbox.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": f"{kind}Binding",
                "metadata": {"name": f"{role}-second", **({"namespace": namespace} if namespace else {})},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [subject],
            }
            for kind, role, namespace in roles
        )
        return user.name

    def forget_lease(self) -> None:
        """Spares the wait for a dead controller's lease; how that is waited for has a test of its own."""
        if self.sandbox.store.find(LEASES, "taintctl-system", "taintctl") is not None:
            self.sandbox.store.delete(LEASES, "taintctl-system", "taintctl")

    def holder(self) -> str:
        lease = self.sandbox.store.find(LEASES, "taintctl-system", "taintctl")
        return str(lease["spec"].get("holderIdentity", "")) if lease else ""

    # what people do

    def policy(self, name: str = "policy", **spec: Any) -> None:
        manifest = {"apiVersion": API_VERSION, "kind": "EvictionPolicy", "metadata": {"name": name}}
        self.sandbox.apply([{**manifest, "spec": spec or POLICY}])

    def start(self, name: str = "run", **spec: Any) -> None:
        wanted = {
            "target": {"driver": DRIVER, "pool": NODE},
            "policyName": "policy",
            "deadline": format_time(datetime.now(UTC) + timedelta(hours=2)),
            **spec,
        }
        manifest = {"apiVersion": API_VERSION, "kind": "MaintenanceRun", "metadata": {"name": name}}
        self.sandbox.apply([{**manifest, "spec": wanted}])

    def approve(self, name: str = "run") -> None:
        digest = self.get(name)["status"]["approval"]["asked"]["digest"]
        approver = {"kind": "Kubernetes", "name": APPROVER}
        spec = {"runName": name, "digest": digest, "decision": "Approve", "approver": approver}
        metadata = {"name": f"{name}-{digest[:12]}"}
        self.sandbox.apply(
            [{"apiVersion": API_VERSION, "kind": "MaintenanceApproval", "metadata": metadata, "spec": spec}]
        )

    def patch(self, name: str = "run", **spec: Any) -> None:
        self.sandbox.store.mutate(RUNS, None, name, lambda run: run["spec"].update(spec))

    async def hands(self, name: str = "run") -> None:
        """What people do to a run that goes well: approve the plan, and say that the work is done."""
        await self.reaches("AwaitingApproval", name)
        self.approve(name)
        await self.reaches("InMaintenance", name)
        self.patch(name, workCompleted=True)

    # what is there

    def get(self, name: str = "run", key: str = RUNS) -> dict[str, Any]:
        return self.sandbox.store.get(key, None, name)

    def status(self, name: str = "run", key: str = RUNS) -> dict[str, Any]:
        return self.get(name, key).get("status") or {}

    def phases(self, name: str = "run") -> list[str]:
        """Every phase the run was stored in, in order, without repetitions."""
        seen: list[str] = []
        for write in self.writes:
            if write.key == RUNS and write.name == name and write.phase and write.phase != (seen or [""])[-1]:
                seen.append(write.phase)
        return seen

    def made_rules(self) -> list[str]:
        """The rules that were made, other than the fresh looks beside them."""
        added = [w.name for w in self.writes if w.key == RULES and w.type == "ADDED"]
        return [name for name in added if not name.endswith("-dry")]

    def by(self, user: str) -> list[int]:
        """At which places of `writes` that user wrote."""
        return [at for at, write in enumerate(self.writes) if write.user == user]

    # waiting

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        assert await self.sandbox.until(condition, PATIENCE * SPEED), f"{what} did not come: {self.describe()}"

    async def reaches(self, phase: str, name: str = "run") -> None:
        await self.until(lambda: self.status(name).get("phase") == phase, f"{name} in {phase}")

    def describe(self) -> str:
        lines = [
            f"{run['metadata']['name']}: {self.phases(run['metadata']['name'])}, "
            f"{(run.get('status') or {}).get('reason')}: {(run.get('status') or {}).get('message')}"
            for run in self.sandbox.store.list(RUNS)
        ]
        return "\n".join([*lines, *(f"--- {p.log.name}\n{p.said()[-3000:]}" for p in self.started[-2:])])

    def assert_ended_well(self, name: str = "run") -> None:
        """As if nothing had happened: the right pods went once each, each rule was made once, none is left."""
        assert self.status(name)["phase"] == "Succeeded", self.describe()
        assert self.sandbox.store.list(RULES) == [], self.describe()
        assert sorted(pod for pod, _ in self.evicted) == sorted(VICTIMS), self.describe()
        [rule] = self.made_rules()
        uid = self.get(name)["metadata"]["uid"]
        assert rule == f"taintctl-{uid}-0"
        left = {p["metadata"]["name"] for p in self.sandbox.store.list("pods") if p["spec"].get("nodeName") == NODE}
        assert left == {"dcgm-0"}

    def assert_nothing_odd_said(self) -> None:
        for process in self.started:
            assert "Traceback" not in process.said(), process.said()
            assert "an error of ours" not in process.said(), process.said()


@asynccontextmanager
async def town(folder: Path, *, nodes: int = 2, gpus: int = 4, kubernetes: str = "1.37") -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(
            lab(nodes=nodes, gpus_per_node=gpus, kubernetes=kubernetes, speed=SPEED, port=0)
        )
        made = Town(sandbox, folder)
        stack.callback(sandbox.store.subscribe(None, made.see))
        try:
            yield made
        finally:
            for process in made.started:
                process.kill()
                await process.ended()
