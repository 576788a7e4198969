"""The sandbox: a whole cluster in one process, with its API server, control plane, kubelets and fleet.

Its state is in memory and gone when it stops.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from taintctl.ports.clock import Clock, SystemClock
from taintctl.sandbox import fleet as fleets
from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.apiserver.server import ApiServer
from taintctl.sandbox.controlplane.inventory import pool_id
from taintctl.sandbox.controlplane.manager import ControllerManager
from taintctl.sandbox.controlplane.objects import PODS, SLICES, Obj, meta, phase
from taintctl.sandbox.faults import Faults
from taintctl.sandbox.store import ApiError, Store
from taintctl.sandbox.users import Users, kubeconfig

SETTLE = 30.0
"""Seconds that a new fleet's pods get to run before the sandbox is handed out as it is."""
ADMIN = "admin"


class Sandbox:
    """A cluster on loopback: `async with Sandbox() as sandbox:`, then talk to `sandbox.url`.

    `kubernetes` is 1.37 (DeviceTaintRule at v1) or 1.36 (v1beta2). `speed` divides delays and leaves timestamps
    alone; give a `clock` instead of it where time is not the wall's. `fleet=False` starts with no nodes at all. With
    `partitions` each GPU is published whole and in so many partitions.
    """

    def __init__(
        self,
        *,
        nodes: int = 3,
        gpus_per_node: int = 4,
        partitions: int = 0,
        kubernetes: str = "1.37",
        clock: Clock | None = None,
        speed: float = 1.0,
        port: int = 0,
        fleet: bool = True,
    ) -> None:
        if clock is not None and speed != 1.0:
            raise ValueError("give either a clock or a speed: a clock brings its own speed")
        self.clock: Clock = clock if clock is not None else SystemClock(speed)
        self.kubernetes = kubernetes
        self.store = Store(self.clock, kubernetes=kubernetes)
        self.users = Users()
        self.faults = Faults()
        self.manager = ControllerManager(self.store, self.clock)
        self._fleet = (nodes, gpus_per_node) if fleet else None
        self._partitions = partitions
        self._server = ApiServer(self.store, self.users, self.faults, self.clock, kubernetes=kubernetes, port=port)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serves, and returns when the fleet's pods run. OSError when the port is taken."""
        await self._server.start()
        await self.manager.start()
        if self._fleet is not None:
            (nodes, gpus_per_node), self._fleet = self._fleet, None
            fleets.build(self.store, nodes=nodes, gpus_per_node=gpus_per_node, partitions=self._partitions)
            await self.until(lambda: all(phase(pod) != "Pending" for pod in self.store.list(PODS)), SETTLE)

    async def stop(self) -> None:
        await self.manager.stop()
        await self._server.stop()

    @property
    def url(self) -> str:
        """Where the API server listens, such as http://127.0.0.1:40123."""
        return self._server.url

    def kubeconfig(self, user: str = ADMIN) -> dict[str, Any]:
        """A kubeconfig for one of the sandbox's users; KeyError for somebody it does not know."""
        known = self.users.get(user)
        if known is None:
            raise KeyError(f"the sandbox has no user {user}")
        return kubeconfig(known, self.url)

    def write_kubeconfig(self, path: str | os.PathLike[str], user: str = ADMIN) -> Path:
        """Writes the kubeconfig to a file that only its owner can read."""
        target = Path(path)
        target.unlink(missing_ok=True)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            yaml.safe_dump(self.kubeconfig(user), file, sort_keys=False)
        return target

    def apply(self, manifests: Iterable[Mapping[str, Any]]) -> list[Obj]:
        """Creates the objects, or merges them into those that are there; ValueError for a kind that is not served.

        It acts as the cluster's own administrator: admission policies are not asked.
        """
        return [self._apply(manifest) for manifest in manifests]

    def _apply(self, manifest: Mapping[str, Any]) -> Obj:
        info = self.store.resources.find_kind(manifest.get("apiVersion", ""), manifest.get("kind", ""))
        if info is None:
            raise ValueError(f"the sandbox serves no {manifest.get('apiVersion')} {manifest.get('kind')}")
        namespace = manifest["metadata"].get("namespace", "default") if info.namespaced else None
        name = manifest["metadata"]["name"]
        if self.store.find(info.key, namespace, name) is None:
            return self.store.create(info.key, dict(manifest))

        def merge(current: Obj) -> Obj:
            merged = _merged(current, manifest)
            assert isinstance(merged, dict)
            return merged

        return self.store.mutate(info.key, namespace, name, merge)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Waits until `condition` holds, looking after every write; False when `seconds` (of the sandbox) are over."""
        changed = asyncio.Event()
        unsubscribe = self.store.subscribe(None, lambda _: changed.set())
        over = asyncio.ensure_future(self.clock.sleep(seconds))
        try:
            while not condition():
                changed.clear()
                waiting = asyncio.ensure_future(changed.wait())
                try:
                    await asyncio.wait({waiting, over}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                if over.done():
                    return condition()
            return True
        finally:
            over.cancel()
            unsubscribe()

    # What drivers and machines do ----------------------------------------------------------------------------------

    def add_node(self, name: str, gpus: int) -> None:
        """A new node with its GPUs, ready at once."""
        fleets.add_node(self.store, name, gpus, partitions=self._partitions)

    def start_pod(self, namespace: str, name: str, **shape: Any) -> Obj:
        """Creates a pod, shaped as `fleet.pod` says."""
        return self.store.create(PODS, fleets.pod(namespace, name, **shape))

    def remove_slice(self, node: str) -> None:
        """The driver withdraws all it published of a node; allocations stay."""
        for name in self._slices(node):
            self.store.delete(SLICES, None, name)

    def taint_device(self, node: str, device: str, key: str, effect: str, value: str = "") -> None:
        """The driver itself taints a device in its slice; ApiError 404 for a node without a slice."""
        taint = {"key": key, "value": value, "effect": effect, "timeAdded": timestamp(self.clock.now())}

        def write(current: Obj) -> None:
            found = _device(current, device)
            found["taints"] = [t for t in found.get("taints") or () if t["key"] != key] + [taint]

        self.store.mutate(SLICES, None, self._publishing(node, device), write)

    def untaint_device(self, node: str, device: str, key: str) -> None:
        """The driver takes its own taint off."""

        def write(current: Obj) -> None:
            found = _device(current, device)
            left = [t for t in found.pop("taints", None) or () if t["key"] != key]
            if left:
                found["taints"] = left

        self.store.mutate(SLICES, None, self._publishing(node, device), write)

    def _slices(self, node: str) -> dict[str, Obj]:
        """The slices of a node's pool by name; ApiError 404 when there is none."""
        pool = (fleets.DRIVER, node)
        found = {meta(s)["name"]: s for s in self.store.list(SLICES) if pool_id(s) == pool}
        if not found:
            raise ApiError(404, "NotFound", f"resourceslices of {node} not found", {"name": node})
        return found

    def _publishing(self, node: str, device: str) -> str:
        for name, resource_slice in self._slices(node).items():
            if any(found["name"] == device for found in resource_slice["spec"].get("devices") or ()):
                return name
        raise ApiError(404, "NotFound", f"{node} publishes no device {device}", {"name": device})

    def node_silent(self, name: str) -> None:
        """The node's kubelet falls silent: it reports and finalises nothing."""
        self.manager.node_silent(name)

    def node_back(self, name: str) -> None:
        self.manager.node_back(name)


def _device(resource_slice: Obj, device: str) -> Obj:
    found: Obj = next(one for one in resource_slice["spec"]["devices"] if one["name"] == device)
    return found


def _merged(current: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(current) if isinstance(current, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result
