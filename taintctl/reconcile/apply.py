"""The only writer: stores a decision, then does it, and stops at the first surprise."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from taintctl.api.base import API_VERSION, FINALIZER
from taintctl.api.plan import DeviceID
from taintctl.api.reasons import Effect
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.api.run import MaintenanceRun
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cluster
from taintctl.ports.errors import ClusterError, Conflict, NotFound
from taintctl.workflow.model import (
    Action,
    AddFinalizer,
    CreateRule,
    Decision,
    DeleteRule,
    EvictPod,
    RemoveFinalizer,
    SetEffect,
)

log = logging.getLogger("taintctl.reconcile")


@dataclass(frozen=True)
class Applied:
    """`complete`: everything was done; else the run must be looked at again, from the start."""

    complete: bool
    outcomes: tuple[EvictionOutcome, ...] = ()


@dataclass(frozen=True)
class Writer:
    cluster: Cluster
    clock: Clock

    async def apply(self, run: MaintenanceRun, decision: Decision) -> Applied:
        """Status first, and only if the run is still as it was read: else nothing is done. Raises ClusterError for what
        is neither a conflict nor gone; whatever was done by then is found again by the next look."""
        resource_version = run.metadata.resource_version
        changed = decision.status.dump() != run.status.dump()
        try:
            if changed:
                stored = await self.cluster.replace_status(
                    MaintenanceRun,
                    run.name,
                    uid=run.metadata.uid,
                    resource_version=resource_version,
                    status=decision.status.dump(),
                )
                resource_version = str(stored["metadata"]["resourceVersion"])
            elif any(isinstance(a, SetEffect) and a.effect is Effect.NO_EXECUTE for a in decision.actions):
                await self._still_as_read(run)
            outcomes = [o for a in decision.actions if (o := await self._do(a, run, resource_version)) is not None]
        except (Conflict, NotFound) as error:
            log.info("run %s changed while it was decided on; looking again: %s", run.name, error.message)
            return Applied(False)
        except _TooLateError as error:
            log.warning("run %s: %s", run.name, error)
            return Applied(False)
        for event in decision.events:
            await self.cluster.record_event(
                involved(run), event_type=event.type, reason=event.reason, message=event.message
            )
            log.info("run %s: %s: %s", run.name, event.reason, event.message)
        return Applied(True, tuple(outcomes))

    async def _still_as_read(self, run: MaintenanceRun) -> None:
        raw = await self.cluster.get(MaintenanceRun, run.name)
        if raw is None or raw["metadata"].get("resourceVersion") != run.metadata.resource_version:
            raise Conflict(f"run {run.name} changed", status=409)

    async def _do(self, action: Action, run: MaintenanceRun, resource_version: str) -> EvictionOutcome | None:
        match action:
            case CreateRule(manifest):
                await self.cluster.create_rule(manifest)
            case DeleteRule(name, uid):
                await self.cluster.delete_rule(name, uid=uid)
            case SetEffect():
                await self._set_effect(action)
            case EvictPod():
                return await self._evict(action)
            case AddFinalizer():
                await self._finalizers(run, resource_version, (*run.metadata.finalizers, FINALIZER))
            case RemoveFinalizer():
                rest = tuple(f for f in run.metadata.finalizers if f != FINALIZER)
                await self._finalizers(run, resource_version, rest)
        return None

    async def _set_effect(self, action: SetEffect) -> None:
        left = None if action.not_after is None else (action.not_after - self.clock.now()).total_seconds()
        late = f"rule {action.name} was not set to {action.effect}: the reads it rests on are too old by now"
        if left is not None and left < 0:
            raise _TooLateError(late)
        try:
            # A slow server and the retries of a 429 take time too.
            async with asyncio.timeout(left):
                await self.cluster.set_rule_effect(
                    action.name, uid=action.uid, resource_version=action.resource_version, effect=action.effect
                )
        except TimeoutError:
            raise _TooLateError(late) from None

    async def _finalizers(self, run: MaintenanceRun, resource_version: str, finalizers: tuple[str, ...]) -> None:
        await self.cluster.patch(
            MaintenanceRun,
            run.name,
            {"metadata": {"finalizers": list(finalizers)}},
            uid=run.metadata.uid,
            resource_version=resource_version,
        )

    async def _evict(self, action: EvictPod) -> EvictionOutcome:
        """One more look at the claims: a pod that no longer holds a target device is not ours to evict."""
        for name in action.claims:
            claim = await self.cluster.get_claim(action.namespace, name)
            if claim is None or claim.status.allocation is None:
                continue
            held = {DeviceID(r.driver, r.pool, r.device) for r in claim.status.allocation.devices.results or ()}
            reserved = {ref.uid for ref in claim.status.reserved_for or () if ref.resource == "pods"}
            if action.uid in reserved and held & set(action.devices):
                return await self.cluster.evict(action.namespace, action.name, uid=action.uid)
        return EvictionOutcome(
            action.namespace, action.name, action.uid, EvictionResult.GONE, "it no longer holds a target device"
        )


class _TooLateError(Exception):
    """The gate's reads are too old to act on."""


def involved(obj: Any) -> dict[str, Any]:
    """The reference that an event about an object of ours carries."""
    return {
        "apiVersion": API_VERSION,
        "kind": obj.kind,
        "name": obj.metadata.name,
        "uid": obj.metadata.uid,
        "resourceVersion": obj.metadata.resource_version,
    }


__all__ = ["Applied", "ClusterError", "Writer", "involved"]
