"""A whole cluster and a controller in one process, in virtual time, for stories from start to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import discover
from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import API_VERSION, format_time
from taintctl.api.check import KINDS, check
from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun
from taintctl.ports.clock import LoopClock
from taintctl.reconcile.announce import Announcer
from taintctl.reconcile.gather import Reader
from taintctl.reconcile.loop import Reconciler
from taintctl.sandbox.cluster import Sandbox
from taintctl.workflow.model import Settings

ROOT = Path(__file__).parents[2]
START = datetime(2026, 12, 1, 20, 0, tzinfo=UTC)
RUNS = "maintenanceruns.taintctl.dev"
APPROVALS = "maintenanceapprovals.taintctl.dev"
WINDOWS = "maintenancewindows.taintctl.dev"
POLICIES = "evictionpolicies.taintctl.dev"
RULES = "devicetaintrules.resource.k8s.io"
CLAIMS = "resourceclaims.resource.k8s.io"
POD_KEY = "pods"
DRIVER = "gpu.example.com"
NODE = "gpu-worker-01"
CONTROLLER = ("taintctl-system", "taintctl")
KIND_OF = {f"{kind.PLURAL}.taintctl.dev": kind for kind in KINDS}

ON_NODE_1 = frozenset(
    {
        "team-a/train-01",
        "team-b/inference-0",
        "team-b/inference-1",
        "team-b/inference-2",
        "team-b/notebook-0",
    }
)
"""The fleet's pods on the first node that a run would evict; notebook-0 has an extended resource."""
MONITOR = "gpu-monitoring/dcgm-0"
WHOLE_PATH = [
    "Pending",
    "DryRun",
    "AwaitingApproval",
    "Notice",
    "Evicting",
    "Draining",
    "InMaintenance",
    "Releasing",
    "Succeeded",
]
LENIENT = {"limits": {}, "autoApprove": {"maxPods": 20}, "budgets": "Ignore"}


def manifests(*paths: str) -> list[dict[str, Any]]:
    """All objects of the repository's YAML files."""
    return [deepcopy(doc) for path in paths for doc in _documents(path)]


@cache
def _documents(path: str) -> tuple[dict[str, Any], ...]:
    """Parsed once: that takes longer than many a story."""
    return tuple(doc for doc in yaml.safe_load_all((ROOT / path).read_text()) if doc)


class World(AbstractAsyncContextManager["World"]):
    """A sandbox with our CRDs, admission policies and the controller's own service account and rights."""

    def __init__(self, *, speed: float = 1.0, **sandbox: Any) -> None:
        self.clock = LoopClock(START, speed=speed)
        self.settings = Settings(speed=speed)
        self.sandbox = Sandbox(clock=self.clock, **{"nodes": 2, "gpus_per_node": 4, **sandbox})
        self.store = self.sandbox.store
        self.seen: dict[str, list[str]] = {}
        """The phases of each run, in the order the API server saw them."""
        self.effects: list[tuple[datetime, str, str]] = []
        """Every effect that any rule had: when, rule, effect."""
        self.rules_made: list[str] = []
        self.deleted_pods: list[str] = []
        """Pods that were marked for deletion, as namespace/name, in order."""
        self._stack = AsyncExitStack()
        self._controller: asyncio.Future[Any] | None = None
        self._reconciler: Reconciler | None = None

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.sandbox)
        crds = [f"crds/{path.name}" for path in sorted((ROOT / "crds").glob("*.yaml"))]
        deploy = [f"deploy/{n}.yaml" for n in ("namespace", "service-account", "rbac", "roles-for-people", "admission")]
        self.sandbox.apply(manifests(*crds, *deploy))
        self.cluster = await self._connect(self.sandbox.users.service_account(*CONTROLLER).token)
        self.admin = await self._connect(self.sandbox.users.admin.token)
        self.store.subscribe(None, self._note)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self._stack.aclose()

    async def _connect(self, token: str) -> KubernetesCluster:
        client = await self._stack.enter_async_context(
            Client(Credentials.static(self.sandbox.url, token=token), self.clock)
        )
        return KubernetesCluster(client, await discover(client), self.clock)

    async def user(self, name: str, role: str) -> KubernetesCluster:
        """Somebody with one of the ClusterRoles of deploy/."""
        user = self.sandbox.users.add(name)
        self.sandbox.apply(
            [
                {
                    "apiVersion": "rbac.authorization.k8s.io/v1",
                    "kind": "ClusterRoleBinding",
                    "metadata": {"name": f"{role}-{name.split('@')[0]}"},
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                    "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
                }
            ]
        )
        return await self._connect(user.token)

    def _note(self, event: Any) -> None:
        key, obj = event.key, event.obj
        if key in KIND_OF and self._reconciler is not None:
            self._reconciler.enqueue(KIND_OF[key], obj["metadata"]["name"])
        name = obj["metadata"]["name"]
        if key == RUNS:
            phases = self.seen.setdefault(name, [])
            phase = (obj.get("status") or {}).get("phase")
            if phase and (not phases or phases[-1] != phase):
                phases.append(phase)
        if key == RULES and event.type != "DELETED":
            effect = obj["spec"]["taint"]["effect"]
            if event.type == "ADDED":
                self.rules_made.append(name)
            if not self.effects or self.effects[-1][1:] != (name, effect):
                self.effects.append((self.clock.now(), name, effect))
        if key == POD_KEY and obj["metadata"].get("deletionTimestamp"):
            pod = f"{obj['metadata']['namespace']}/{name}"
            if pod not in self.deleted_pods:
                self.deleted_pods.append(pod)

    # the controller

    async def control(self, cluster: Any = None, *, chat: Any = None, webhook: Any = None) -> None:
        """Starts a controller with nothing in memory, as after a restart."""
        await self.kill()
        self._reconciler = Reconciler(cluster or self.cluster, None, self.clock, self.settings)
        # Not through a cluster that counts or breaks the controller's own calls: nothing that a run does hangs on it.
        announcer = Announcer(
            self.cluster,
            Reader(self.cluster, None, self.clock, self.settings),
            self.clock,
            self.settings,
            chat=chat,
            webhook=webhook,
        )
        self._reconciler.on_run = announcer.tell
        work = asyncio.gather(self._reconciler.run(), announcer.run())
        self._controller = asyncio.ensure_future(work)

    async def kill(self) -> None:
        """The controller is gone in the middle of whatever it did."""
        task, self._controller, self._reconciler = self._controller, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # what people do

    def policy(self, name: str = "policy", **spec: Any) -> None:
        self.sandbox.apply(
            [{"apiVersion": API_VERSION, "kind": "EvictionPolicy", "metadata": {"name": name}, "spec": spec or LENIENT}]
        )

    def without_budgets(self) -> None:
        """No PodDisruptionBudget stands in the way of the built-in policy."""
        self.store.delete("poddisruptionbudgets.policy", "team-b", "inference")

    async def start(self, name: str = "run", by: KubernetesCluster | None = None, **spec: Any) -> None:
        body = {
            "metadata": {"name": name},
            "spec": {
                "target": {"driver": DRIVER, "pool": NODE},
                "deadline": format_time(self.clock.now() + timedelta(hours=2)),
                **spec,
            },
        }
        await (by or self.admin).create(MaintenanceRun, body)

    async def patch(self, name: str = "run", **spec: Any) -> None:
        await self.admin.patch(MaintenanceRun, name, {"spec": spec})

    async def delete(self, name: str = "run") -> None:
        await self.admin.delete(MaintenanceRun, name, uid=self.raw(name)["metadata"]["uid"])

    async def decide(self, who: KubernetesCluster, user: str, decision: str, run: str = "run") -> None:
        asked = self.run(run).status.approval
        assert asked is not None
        assert asked.asked is not None
        await who.create(
            MaintenanceApproval,
            {
                "metadata": {"name": f"{run}-{user.split('@')[0]}-{decision.lower()}-{asked.asked.digest[:8]}"},
                "spec": {
                    "runName": run,
                    "digest": asked.asked.digest,
                    "decision": decision,
                    "approver": {"kind": "Kubernetes", "name": user},
                },
            },
        )

    # what is there

    def raw(self, name: str = "run") -> dict[str, Any]:
        return self.store.get(RUNS, None, name)

    def run(self, name: str = "run") -> MaintenanceRun:
        run = check(MaintenanceRun, self.raw(name)).obj
        assert run is not None
        return run

    def phase(self, name: str = "run") -> Phase | None:
        return self.run(name).status.phase

    def condition(self, kind: str, name: str = "run") -> str | None:
        return next((c.status for c in self.run(name).status.conditions if c.type == kind), None)

    def rules(self) -> list[dict[str, Any]]:
        return self.store.list(RULES)

    def pods(self) -> set[str]:
        """Pods that are there and not marked for deletion, as namespace/name."""
        return {
            f"{p['metadata']['namespace']}/{p['metadata']['name']}"
            for p in self.store.list(POD_KEY)
            if not p["metadata"].get("deletionTimestamp")
        }

    def pods_on(self, node: str = NODE) -> set[str]:
        return {
            f"{p['metadata']['namespace']}/{p['metadata']['name']}"
            for p in self.store.list(POD_KEY)
            if p["spec"].get("nodeName") == node
        }

    # waiting

    async def until(self, condition: Callable[[], bool], seconds: float = 600) -> None:
        """Fails with where the runs are when it takes longer than that (of the clock's)."""
        if not await self.sandbox.until(condition, seconds):
            raise AssertionError(f"not within {seconds} s: {self.describe()}")

    async def until_phase(self, *phases: Phase, name: str = "run", seconds: float = 600) -> Phase:
        await self.until(lambda: self.phase(name) in phases, seconds)
        phase = self.phase(name)
        assert phase is not None
        return phase

    async def wait(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    def describe(self) -> str:
        lines = []
        for raw in self.store.list(RUNS):
            status = raw.get("status") or {}
            lines.append(
                f"{raw['metadata']['name']}: {self.seen.get(raw['metadata']['name'])} {status.get('reason')}: "
                f"{status.get('message')}"
            )
        lines += [f"{r['metadata']['name']} {r['spec']['taint']['effect']}" for r in self.rules()]
        return "; ".join(lines)

    def assert_no_rule_left(self) -> None:
        assert self.rules() == [], self.describe()

    def assert_never_no_execute(self) -> None:
        assert not [e for e in self.effects if e[2] == "NoExecute"], self.effects
