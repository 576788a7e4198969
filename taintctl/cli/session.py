"""One command's dealings with a cluster, and what it says when something is not there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import Discovery, discover
from taintctl.api.base import parse_time
from taintctl.api.check import Checked, M, Own, check
from taintctl.api.objects import DeviceTaintRule, Snapshot
from taintctl.api.policy import BUILT_IN_POLICY, EvictionPolicy
from taintctl.api.run import MaintenanceRun
from taintctl.cli.errors import Failure
from taintctl.cli.text import span
from taintctl.controller.defaults import LEASE, NAMESPACE, SPEED_ANNOTATION
from taintctl.ports.clock import Clock, SystemClock
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import ClusterError

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
LEASES_MISSED = 4
"""Durations of the Lease without a renewal: more than the clocks of two machines and a slow API server explain."""
MIN_SILENCE = timedelta(seconds=10)
START_CONTROLLER = f"look at kubectl -n {NAMESPACE} get pods, or start `taintctl run`"
INSTALL = "install it with `kubectl apply -k deploy/`, or try `taintctl sandbox`"


class Source(Protocol):
    """A cluster to look at: the one behind a connection, or what somebody wrote down of one."""

    async def get(self, kind: type[Own], name: str) -> dict[str, Any] | None: ...

    async def list(self, kind: type[Own], *, label_selector: str = "") -> tuple[dict[str, Any], ...]: ...

    async def snapshot(self, scope: Scope) -> Snapshot: ...

    async def own_rules(self) -> tuple[DeviceTaintRule, ...]: ...


@dataclass(frozen=True)
class Reading:
    """What a command needs that only looks."""

    source: Source

    async def get(self, kind: type[Own], name: str) -> dict[str, Any] | None:
        """One object of ours; None for a name that no object can have, too (it would ask for another URL)."""
        return await self.source.get(kind, name) if NAME.fullmatch(name) else None

    async def checked(self, kind: type[M], name: str) -> Checked[M]:
        """One object of ours with its problems. Raises Failure where there is none."""
        raw = await self.get(kind, name)
        if raw is None:
            raise Failure(f"there is no {kind.KIND} {name}; {_list_command(kind)} lists what there is")
        return check(kind, raw)

    async def all(self, kind: type[M]) -> list[Checked[M]]:
        return [check(kind, raw) for raw in await self.source.list(kind)]

    async def policy(self, name: str | None) -> EvictionPolicy:
        """The policy by name, the built-in one for None. Raises Failure where it is missing or invalid."""
        if name is None:
            return BUILT_IN_POLICY
        checked = await self.checked(EvictionPolicy, name)
        if checked.obj is None or checked.problems:
            raise Failure(
                f"EvictionPolicy {name} is not valid: {checked.problems[0]}; correct it: kubectl edit evp {name}"
            )
        return checked.obj


@dataclass(frozen=True)
class Session(Reading):
    """A connection as one user, and the cluster behind it."""

    client: Client
    cluster: KubernetesCluster
    discovery: Discovery
    clock: Clock

    @classmethod
    @asynccontextmanager
    async def open(cls, kubeconfig: str | None, context: str | None) -> AsyncIterator[Session]:
        """Raises ConfigError where no cluster is configured, ClusterError where it does not answer, and Failure where
        our kinds are not installed."""
        clock = SystemClock()
        async with Client(Credentials.from_environment(kubeconfig, context), clock) as client:
            discovery = await discover(client)
            if discovery.missing_kinds:
                missing = ", ".join(discovery.missing_kinds)
                raise Failure(f"taintctl is not installed on {client.where} (no {missing}); {INSTALL}")
            cluster = KubernetesCluster(client, discovery, clock)
            yield cls(cluster, client, cluster, discovery, clock)

    async def run(self, name: str) -> MaintenanceRun:
        """Raises Failure where there is no such run, or where its spec can't be read."""
        checked = await self.checked(MaintenanceRun, name)
        if checked.obj is None:
            raise Failure(f"run {name} can't be read: {checked.problems[0]}; delete it and start a corrected one")
        return checked.obj

    async def policy_of(self, run: MaintenanceRun) -> EvictionPolicy | None:
        """For display: None where it is missing, invalid or not ours to read."""
        try:
            return await self.policy(run.spec.policy_name)
        except (Failure, ClusterError):
            return None

    async def whoami(self) -> str:
        """The caller's name as the API server knows it (SelfSubjectReview)."""
        answer = await self.client.request(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            dict,
            body={"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
        )
        name = answer.get("status", {}).get("userInfo", {}).get("username", "")
        if not name:
            raise Failure("the API server does not say who you are; check the credentials in your kubeconfig")
        return str(name)

    async def controller_note(self) -> str:
        """One sentence where no controller seems to be at work, by its Lease; empty where one is, or where the caller
        may not read the Lease."""
        lease = await self._lease()
        if lease is None:
            return ""
        spec = lease.get("spec") or {}
        renewed = spec.get("renewTime")
        if not spec.get("holderIdentity") or not renewed:
            return f"No controller is at work (nobody holds the Lease {NAMESPACE}/{LEASE}); {START_CONTROLLER}."
        silence = self.clock.now() - parse_time(renewed)
        if silence > max(LEASES_MISSED * timedelta(seconds=spec.get("leaseDurationSeconds") or 15), MIN_SILENCE):
            ago = f"{span(silence)} ago"
            return (
                f"No controller is at work (the Lease {NAMESPACE}/{LEASE} was last renewed {ago}); {START_CONTROLLER}."
            )
        return ""

    async def controller_speed(self) -> float:
        """By how much the controller divides its delays; 1 unless its Lease says otherwise (a sandbox's does)."""
        meta = (await self._lease() or {}).get("metadata") or {}
        try:
            speed = float((meta.get("annotations") or {}).get(SPEED_ANNOTATION, 1))
        except ValueError:
            return 1.0
        return speed if 0 < speed <= 1000 else 1.0

    async def _lease(self) -> dict[str, Any] | None:
        """Empty where there is none, None where the caller may not read it."""
        try:
            found = await self.client.get(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}", dict)
        except ClusterError:
            return None
        return found or {}

    async def patch_spec(self, kind: type[Own], name: str, *, uid: str, **fields: Any) -> dict[str, Any]:
        """A merge patch of `spec`, only of that very object."""
        return await self.cluster.patch(kind, name, {"spec": fields}, uid=uid)


def _list_command(kind: type[Own]) -> str:
    return "`taintctl status`" if kind.SHORT_NAMES[0] in ("mr", "mw") else f"`kubectl get {kind.SHORT_NAMES[0]}`"
