"""All controllers of the sandbox, each of which can be started, stopped, restarted and paused by its name."""

from __future__ import annotations

from taintctl.ports.clock import Clock
from taintctl.sandbox.controlplane.claims import Claims
from taintctl.sandbox.controlplane.disruption import Disruption
from taintctl.sandbox.controlplane.garbage_collector import GarbageCollector
from taintctl.sandbox.controlplane.jobs import Jobs
from taintctl.sandbox.controlplane.kubelet import Kubelet
from taintctl.sandbox.controlplane.namespaces import Namespaces
from taintctl.sandbox.controlplane.node_health import NodeHealth
from taintctl.sandbox.controlplane.node_lifecycle import NodeLifecycle
from taintctl.sandbox.controlplane.replicas import Deployments, ReplicaSets
from taintctl.sandbox.controlplane.scheduler import Scheduler
from taintctl.sandbox.controlplane.stateful_sets import StatefulSets
from taintctl.sandbox.controlplane.taint_eviction import TaintEviction
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import Store


class ControllerManager:
    """The control plane; each controller is an attribute and has a name."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.health = NodeHealth(clock)
        self.scheduler = Scheduler(store, clock)
        self.claims = Claims(store, clock)
        self.kubelet = Kubelet(store, clock, self.health)
        self.node_lifecycle = NodeLifecycle(store, clock, self.health)
        self.taint_eviction = TaintEviction(store, clock)
        self.garbage_collector = GarbageCollector(store, clock)
        self.namespaces = Namespaces(store, clock)
        self.disruption = Disruption(store, clock)
        self.workloads = tuple(kind(store, clock) for kind in (Deployments, ReplicaSets, StatefulSets, Jobs))
        self._all: dict[str, Controller] = {
            controller.name: controller
            for controller in (
                self.claims,
                self.scheduler,
                self.kubelet,
                self.node_lifecycle,
                self.taint_eviction,
                self.garbage_collector,
                self.namespaces,
                self.disruption,
                *self.workloads,
            )
        }

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._all)

    def __getitem__(self, name: str) -> Controller:
        """The controller of that name; KeyError with the known names otherwise."""
        try:
            return self._all[name]
        except KeyError:
            raise KeyError(f"no controller {name}; there are {', '.join(self._all)}") from None

    async def start(self, *names: str) -> None:
        """Starts the named controllers, or all."""
        for name in names or self.names:
            await self[name].start()

    async def stop(self, *names: str) -> None:
        """Stops the named controllers, or all; what they had in memory is lost."""
        for name in names or self.names:
            await self[name].stop()

    async def restart(self, *names: str) -> None:
        await self.stop(*names)
        await self.start(*names)

    def pause(self, *names: str) -> None:
        """Lets the named controllers hang: they do nothing, and go on from there when resumed."""
        for name in names or self.names:
            self[name].pause()

    def resume(self, *names: str) -> None:
        for name in names or self.names:
            self[name].resume()

    def node_silent(self, name: str) -> None:
        """The node's kubelet stops reporting and finalising; 40 s later the node is Unknown and tainted."""
        self.health.node_silent(name)

    def node_back(self, name: str) -> None:
        """The node's kubelet is back: the node is Ready and untainted, deleted pods end."""
        self.health.node_back(name)
