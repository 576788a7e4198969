"""The scheduler: picks a node for each pending pod, allocates its claims and binds it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from taintctl.ports.clock import Clock
from taintctl.sandbox.controlplane.allocator import CannotAllocateError
from taintctl.sandbox.controlplane.binder import Binder, Decision
from taintctl.sandbox.controlplane.events import Recorder
from taintctl.sandbox.controlplane.objects import (
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    RULES,
    SLICES,
    Obj,
    Ref,
    condition,
    deleting,
    is_true,
    meta,
    node_name,
    node_selector_matches,
    ref,
    set_condition,
)
from taintctl.sandbox.controlplane.podclaims import (
    ExtendedRequest,
    allocation_results,
    class_of,
    extended_claim,
    extended_requests,
    is_for_pod,
    used_claims,
)
from taintctl.sandbox.controlplane.scheduler_cache import SchedulerCache
from taintctl.sandbox.controlplane.taints import schedulable_on
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event, Store

_log = logging.getLogger(__name__)

MAX_CONSUMERS = 256
"""ResourceClaimReservedForMaxSize: so many pods may hold one claim."""
FIRST_BACKOFF, LAST_BACKOFF = 1.0, 10.0
"""Seconds before an unschedulable pod is tried again after something changed, as kube-scheduler's defaults."""
NODES_AT_ONCE = 50
"""Nodes looked at before the loop gives way to others."""


class _WaitingForClaims(Exception):
    """A claim is not made yet, or another pod's allocation of it is on its way."""


class Scheduler(Controller):
    """Serial decisions as in kube-scheduler; binding runs beside them and is late by `prebind_delay`."""

    name = "scheduler"
    watches = frozenset({PODS, NODES, CLAIMS, CLASSES, RULES, SLICES})

    def __init__(self, store: Store, clock: Clock, *, prebind_delay: float = 0.05) -> None:
        super().__init__(store, clock)
        self.prebind_delay = prebind_delay
        """Seconds between the decision and the write of allocation and binding (PreBind). A taint set in between
        does not stop the write, as upstream."""
        self._events = Recorder(store, "default-scheduler")

    def reset(self) -> None:
        self._cache = SchedulerCache()
        self._waiting: set[Ref] = set()
        self._attempts: Counter[Ref] = Counter()
        self._binding: set[asyncio.Task[None]] = set()

    def sync(self) -> None:
        for key in (NODES, SLICES, CLASSES, RULES, CLAIMS, PODS):
            for obj in self.store.list(key):
                self._take(key, None, obj)

    async def stop(self) -> None:
        tasks = list(self._binding) if self.running else []
        await super().stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def on_event(self, event: Event) -> None:
        gone = event.type == "DELETED"
        self._take(event.key, event.old or (event.obj if gone else None), None if gone else event.obj)

    def _take(self, key: str, old: Obj | None, new: Obj | None) -> None:
        if key == PODS:
            self._take_pod(old, new)
        elif self._cache.take(key, old, new):
            self._move_waiting()

    def _take_pod(self, old: Obj | None, new: Obj | None) -> None:
        if self._cache.take_pod(old, new):
            self._move_waiting()
        pod = new or old
        if pod is None:
            return
        key = ref(pod)
        if new is None or node_name(new) or deleting(new):
            self._waiting.discard(key)
            self._attempts.pop(key, None)
            return
        if new["spec"].get("schedulerName", "default-scheduler") != "default-scheduler":
            return
        if old is None or old["spec"] != new["spec"] or _claim_names(old) != _claim_names(new):
            self.queue.add(key)

    def _move_waiting(self) -> None:
        """Something changed that may help: pods that wait are tried again, each after its own backoff."""
        for key in self._waiting:
            self.queue.add_after(key, min(LAST_BACKOFF, FIRST_BACKOFF * 2 ** min(self._attempts[key] - 1, 8)))

    async def handle(self, item: Hashable) -> float | None:
        assert isinstance(item, Ref)
        self._waiting.discard(item)
        pod = self.store.find(PODS, item.namespace, item.name)
        if (
            pod is None
            or meta(pod)["uid"] != item.uid
            or node_name(pod)
            or deleting(pod)
            or item in self._cache.assumed
        ):
            return None
        if pod["spec"].get("schedulingGates"):
            return None
        self._attempts[item] += 1
        try:
            decision = await self._decide(pod)
        except _WaitingForClaims:
            self._waiting.add(item)
            return None
        except CannotAllocateError as error:
            self._unschedulable(pod, f"0/{len(self._cache.nodes)} nodes are available: {error}.")
            return None
        if isinstance(decision, str):
            self._unschedulable(pod, decision)
            return None
        self._cache.assume(decision, pod)
        task = asyncio.get_running_loop().create_task(self._bind(decision), name=f"sandbox bind {item.name}")
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)
        return None

    async def _decide(self, pod: Obj) -> Decision | str:
        """Where the pod goes and what it gets, or why not."""
        claims = self._claims(pod)
        extended = extended_requests(pod)
        open_claims = [claim for claim in claims if not allocation_results(claim)]
        if any(ref(claim) in self._cache.allocating for claim in open_claims):
            raise _WaitingForClaims
        reasons: Counter[str] = Counter()
        for looked_at, node in enumerate(self._cache.nodes_by_load(), start=1):
            if looked_at % NODES_AT_ONCE == 0:
                await asyncio.sleep(0)
            reason = self._node_refuses(node, pod, claims) or self._lacks(node, pod, extended)
            if reason:
                reasons[reason] += 1
                continue
            by_claim = [
                (request, device_class)
                for request in extended
                if not self._device_plugin(node, request.resource)
                and (device_class := class_of(request.resource, self._cache.allocator.classes.values())) is not None
            ]
            special = extended_claim(pod, by_claim) if by_claim else None
            if special is not None:
                meta(special)["name"] = f"{meta(pod)['name']}-extended-resources"
            wanted = [*open_claims, *([special] if special is not None else [])]
            found = self._cache.allocator.allocate(wanted, node, self._cache.in_use) if wanted else []
            if found is None:
                reasons["cannot allocate all claims"] += 1
                continue
            if special is not None:
                del meta(special)["name"]
            return Decision(
                pod=ref(pod),
                node=meta(node)["name"],
                reserved=tuple(ref(claim) for claim in claims),
                allocated={ref(claim): allocation for claim, allocation in zip(open_claims, found, strict=False)},
                extended=special,
                extended_allocation=found[-1] if special is not None else None,
                extended_requests=tuple(request for request, _ in by_claim),
            )
        if not self._cache.nodes:
            return "no nodes available to schedule pods"
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
        return f"0/{len(self._cache.nodes)} nodes are available: {told}."

    def _claims(self, pod: Obj) -> list[Obj]:
        result = []
        namespace = meta(pod)["namespace"]
        for used in used_claims(pod):
            claim = self.store.find(CLAIMS, namespace, used.name) if used.name else None
            if claim is None:
                raise _WaitingForClaims
            if not is_for_pod(claim, pod, used.must_own):
                raise CannotAllocateError(f"resourceclaim {used.name} was not created for this pod")
            if deleting(claim):
                raise CannotAllocateError(f"resourceclaim {used.name} is being deleted")
            if len((claim.get("status") or {}).get("reservedFor") or ()) >= MAX_CONSUMERS:
                raise CannotAllocateError(f"resourceclaim {used.name} is in use by {MAX_CONSUMERS} pods")
            result.append(claim)
        return result

    @staticmethod
    def _node_refuses(node: Obj, pod: Obj, claims: list[Obj]) -> str | None:
        """Why a node is not for a pod, in kube-scheduler's words; None if it may be."""
        if node["spec"].get("unschedulable"):
            return "node(s) were unschedulable"
        if not is_true(node, "Ready") or deleting(node):
            return "node(s) were not ready"
        taint = schedulable_on(node, pod)
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        labels = meta(node).get("labels") or {}
        wanted = pod["spec"].get("nodeSelector") or {}
        affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
            "requiredDuringSchedulingIgnoredDuringExecution"
        )
        if any(labels.get(key) != value for key, value in wanted.items()) or not node_selector_matches(affinity, node):
            return "node(s) didn't match Pod's node affinity/selector"
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            if not node_selector_matches(allocation.get("nodeSelector"), node):
                return "resourceclaim not available on the node"
        return None

    @staticmethod
    def _device_plugin(node: Obj, resource: str) -> bool:
        """The node counts the resource itself, through a classic device plugin."""
        return resource in ((node.get("status") or {}).get("allocatable") or {})

    def _lacks(self, node: Obj, pod: Obj, extended: list[ExtendedRequest]) -> str | None:
        """The extended resource that a node lacks for a pod, as kube-scheduler says it."""
        wanted: Counter[str] = Counter()
        for request in extended:
            wanted[request.resource] += request.devices
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        for resource, count in wanted.items():
            if resource not in allocatable:
                if class_of(resource, self._cache.allocator.classes.values()) is None:
                    return f"Insufficient {resource}"
                continue
            others = self._cache.pods_on(meta(node)["name"])
            used = sum(r.devices for other in others for r in extended_requests(other) if r.resource == resource)
            if used + count > int(allocatable[resource]):
                return f"Insufficient {resource}"
        return None

    def _unschedulable(self, pod: Obj, message: str) -> None:
        self._waiting.add(ref(pod))
        now = self.clock.now()

        def write(current: Obj) -> None:
            set_condition(
                current,
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message[:1024]},
                now,
            )

        before = condition(pod, "PodScheduled")
        if before is not None and before.get("message") == message[:1024]:
            return
        try:
            self.store.mutate(PODS, meta(pod)["namespace"], meta(pod)["name"], write, subresource="status")
        except ApiError as error:
            _log.debug("condition of %s: %s", ref(pod), error)
            self.queue.retry(ref(pod))
            return
        self._events.pod(pod, "Warning", "FailedScheduling", message, now)

    async def _bind(self, decision: Decision) -> None:
        try:
            await self.clock.sleep(self.prebind_delay)
            Binder(self.store, self.clock, self._events).bind(decision)
        except ApiError as error:
            _log.debug("binding %s: %s", decision.pod, error)
            self.queue.retry(decision.pod)
        except Exception:
            _log.exception("binding %s failed", decision.pod)
            self.queue.retry(decision.pod)
        finally:
            self._cache.forget(decision)
            # Pods that need a claim which this decision was allocating can go on.
            self._move_waiting()


def _claim_names(pod: Mapping[str, Any]) -> list[Obj]:
    return list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
