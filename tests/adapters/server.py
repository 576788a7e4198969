"""A sandbox API server without a control plane: the objects stay as a test puts them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import discover
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.apiserver.server import ApiServer
from taintctl.sandbox.faults import Faults
from taintctl.sandbox.store import Store
from taintctl.sandbox.users import Users

ROOT = Path(__file__).parents[2]
SPEED = 100.0
Obj = dict[str, Any]

PODS = "pods"
NODES = "nodes"
NAMESPACES = "namespaces"
CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
CLASSES = "deviceclasses.resource.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Server:
    """Store and HTTP server; `async with`."""

    def __init__(self, *, kubernetes: str = "1.37", history: int = 2000) -> None:
        self.clock = SystemClock(SPEED)
        self.store = Store(self.clock, kubernetes=kubernetes, history=history)
        self.users = Users()
        self.faults = Faults()
        self.http = ApiServer(self.store, self.users, self.faults, self.clock, kubernetes=kubernetes)

    async def __aenter__(self) -> Self:
        await self.http.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.stop()

    def credentials(self, user: str = "admin") -> Credentials:
        known = self.users.get(user)
        assert known is not None
        return Credentials.static(self.http.url, token=known.token)

    def client(self, user: str = "admin") -> Client:
        return Client(self.credentials(user), self.clock)

    @asynccontextmanager
    async def cluster(self, user: str = "admin") -> AsyncIterator[KubernetesCluster]:
        async with self.client(user) as client:
            yield KubernetesCluster(client, await discover(client), self.clock)

    def put(self, key: str, obj: Obj) -> Obj:
        """Stores an object and, where it has one, its status."""
        made = self.store.create(key, {k: v for k, v in obj.items() if k != "status"})
        if "status" not in obj:
            return made
        namespace, name = made["metadata"].get("namespace"), made["metadata"]["name"]
        return self.set_status(key, namespace, name, obj["status"])

    def set_status(self, key: str, namespace: str | None, name: str, status: Obj) -> Obj:
        def change(current: Obj) -> None:
            current["status"] = status

        return self.store.mutate(key, namespace, name, change, subresource="status")

    def install(self) -> None:
        """Our CRDs."""
        for file in sorted((ROOT / "crds").glob("taintctl.dev_*.yaml")):
            self.store.create(CRDS, yaml.safe_load(file.read_text()))

    def apply(self, file: str, kinds: Iterable[str]) -> None:
        """The objects of those kinds from a manifest of the repository."""
        for obj in yaml.safe_load_all((ROOT / file).read_text()):
            if obj["kind"] in kinds:
                info = self.store.resources.find_kind(obj["apiVersion"], obj["kind"])
                assert info is not None
                self.store.create(info.key, obj)


def claim(
    namespace: str, name: str, devices: Iterable[tuple[str, str]], *pods: Obj, driver: str = "gpu.example.com"
) -> Obj:
    """An allocated claim: (pool, device) pairs, reserved for pods."""
    results = [{"request": "gpu", "driver": driver, "pool": pool, "device": device} for pool, device in devices]
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [
                {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]} for p in pods
            ],
        },
    }


def pod(namespace: str, name: str, node: str, **labels: str) -> Obj:
    return {
        "metadata": {"namespace": namespace, "name": name, "labels": labels, "annotations": {"note": "long"}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "x"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def node(name: str, ready: str = "True") -> Obj:
    return {
        "metadata": {"name": name},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-30T20:12:18Z"}]},
    }


def slice_of(name: str, devices: int = 4, driver: str = "gpu.example.com") -> Obj:
    return {
        "metadata": {"name": f"{name}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{n}"} for n in range(devices)],
        },
    }


def budget(namespace: str, name: str, **labels: str) -> Obj:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        "status": {
            "disruptionsAllowed": 0,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
        },
    }


def recorded(file: str, case: str, what: str) -> Obj:
    """One entry of a recording."""
    [entry] = [
        e
        for e in json.loads((ROOT / "tests" / "recordings" / file).read_text())
        if e["case"] == case and e["what"] == what
    ]
    return dict(entry)
