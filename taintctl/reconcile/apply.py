"""The only writer: stores a decision, then does it.

What evicts nobody (an effect taken back, a rule deleted) is done wherever it can be, whatever becomes of the rest. What
evicts is done one by one (pods a few at a time), each only while the run is as it was decided on: a pause, a
cancellation, a deletion or another deadline in the middle stops the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from taintctl.api.base import API_VERSION, FINALIZER, ObjectMeta, format_time
from taintctl.api.plan import DeviceID
from taintctl.api.reasons import Effect, Reason
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
audit = logging.getLogger("taintctl.audit")

EVICTIONS_AT_ONCE = 8
"""Calls to the Eviction API under way at a time, for one run."""


@dataclass(frozen=True)
class Applied:
    """`complete`: everything was done; else the run must be looked at again, from the start."""

    complete: bool
    outcomes: tuple[EvictionOutcome, ...] = ()
    error: ClusterError | None = None
    """What the API server refused, or did not answer: said on the run, and tried again."""


@dataclass(frozen=True)
class Writer:
    cluster: Cluster
    clock: Clock

    async def apply(self, run: MaintenanceRun, decision: Decision) -> Applied:
        """Status first, and only if the run is still as it was read: else nothing is done. Raises ClusterError where
        the status cannot be stored; whatever of the actions was not done is found again by the next look."""
        resource_version = run.metadata.resource_version
        try:
            if decision.status.dump() != run.status.dump():
                stored = await self.cluster.replace_status(
                    MaintenanceRun,
                    run.name,
                    uid=run.metadata.uid,
                    resource_version=resource_version,
                    status=decision.status.dump(),
                )
                resource_version = str(stored["metadata"]["resourceVersion"])
                await self._audit(run, decision)
            elif any(map(_evicts, decision.actions)):
                await self._as_decided(run, resource_version=resource_version)
        except (Conflict, NotFound) as error:
            log.info("run %s changed while it was decided on; looking again: %s", run.name, error.message)
            return Applied(False)
        applied = await self._act(run, resource_version, decision.actions)
        if applied.complete:
            for event in decision.events:
                await self.cluster.record_event(
                    involved(run), event_type=event.type, reason=event.reason, message=event.message
                )
                log.info("run %s: %s: %s", run.name, event.reason, event.message)
        return applied

    async def _audit(self, run: MaintenanceRun, decision: Decision) -> None:
        """Who said yes or no, once: what counts is stored by now."""
        for one in decision.counted:
            fields = {
                "audit": "approval",
                "run": run.name,
                "runUid": run.metadata.uid,
                "approval": one.approval,
                "kind": one.kind,
                "approver": one.approver,
                "decision": one.decision,
                "digest": one.digest,
                "at": format_time(one.at) if one.at is not None else "",
                "comment": one.comment,
            }
            audit.info("run %s: %s", run.name, one.sentence, extra={"fields": fields})
            await self.cluster.record_event(
                involved(run), event_type="Normal", reason=Reason.APPROVAL_RECORDED, message=one.sentence
            )

    async def _act(self, run: MaintenanceRun, resource_version: str, actions: Sequence[Action]) -> Applied:
        outcomes: list[EvictionOutcome] = []
        failed: ClusterError | None = None
        known = True  # the write of the status has just asked
        for together in _in_turn(actions):
            action = together[0]
            if failed is not None and not _evicts_nobody(action):
                continue
            try:
                if _evicts(action) and not known:
                    await self._as_decided(run)
                if _evicts(action) and run.spec.deadline <= self.clock.now():
                    raise _TooLateError("nothing more is evicted: the deadline has passed")
                known = False
                doing = (self._do(action, run, resource_version) for action in together)
                answers = await asyncio.gather(*doing, return_exceptions=True)
                outcomes += [answer for answer in answers if isinstance(answer, EvictionOutcome)]
                for answer in answers:
                    if isinstance(answer, BaseException):
                        raise answer
            except _TooLateError as error:
                log.warning("run %s: %s", run.name, error)
                return Applied(False, tuple(outcomes))
            except ClusterError as error:
                # The first one that is more than a change by somebody else is the one to be told of.
                quiet = failed is None or isinstance(failed, (Conflict, NotFound))
                failed = error if quiet else failed
                log.info("run %s: %s was not done: %s", run.name, type(action).__name__, error.message)
                continue
        if failed is None:
            return Applied(True, tuple(outcomes))
        changed = isinstance(failed, (Conflict, NotFound))
        return Applied(False, tuple(outcomes), None if changed else failed)

    async def _as_decided(self, run: MaintenanceRun, *, resource_version: str | None = None) -> None:
        """Whether nobody changed what the run is to do: its spec (generation), or that it is to be there at all. With
        `resource_version`: nothing of it at all."""
        raw = await self.cluster.get(MaintenanceRun, run.name)
        then, now = run.metadata, ObjectMeta() if raw is None else ObjectMeta.model_validate(raw["metadata"])
        if (
            (now.uid, now.generation) != (then.uid, then.generation)
            or (now.deletion_timestamp is None) != (then.deletion_timestamp is None)
            or resource_version not in (None, now.resource_version)
        ):
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
        """What cannot be asked or answered for one pod keeps no other waiting. Raises _TooLateError."""
        if action.not_after < self.clock.now():
            raise _TooLateError(f"pod {action.namespace}/{action.name} was not evicted: the reads are too old by now")
        try:
            return await self._evict_holder(action)
        except ClusterError as error:
            result = EvictionResult.FAILED
            return EvictionOutcome(action.namespace, action.name, action.uid, result, error.message[:256])

    async def _evict_holder(self, action: EvictPod) -> EvictionOutcome:
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
    """The reads that a decision rests on are too old to act on, or the deadline has passed."""


def _in_turn(actions: Sequence[Action]) -> Iterator[tuple[Action, ...]]:
    """What is done at once: one action; of evictions that follow each other a few."""
    for evicting, group in groupby(actions, lambda action: isinstance(action, EvictPod)):
        some, size = tuple(group), EVICTIONS_AT_ONCE if evicting else 1
        yield from (some[start : start + size] for start in range(0, len(some), size))


def _evicts(action: Action) -> bool:
    return isinstance(action, EvictPod) or (isinstance(action, SetEffect) and action.effect is Effect.NO_EXECUTE)


def _evicts_nobody(action: Action) -> bool:
    """And takes something back, as a rule: one that can't be written keeps no other from it."""
    return isinstance(action, DeleteRule) or (isinstance(action, SetEffect) and action.effect is not Effect.NO_EXECUTE)


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
