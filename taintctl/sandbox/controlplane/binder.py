"""What the scheduler writes once it has decided (PreBind and Bind): allocation, reservation, binding."""

from __future__ import annotations

from dataclasses import dataclass

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.apiserver.pods import bind
from taintctl.sandbox.controlplane.events import Recorder
from taintctl.sandbox.controlplane.objects import CLAIM_FINALIZER, CLAIMS, PODS, Obj, Ref, deleting, meta
from taintctl.sandbox.controlplane.podclaims import (
    ExtendedRequest,
    allocation_results,
    consumer_of,
    extended_status,
    reserved_for,
)
from taintctl.sandbox.controlplane.taints import DeviceID
from taintctl.sandbox.store import ApiError, Store


@dataclass(frozen=True)
class Decision:
    """One pod's node and devices, as decided and not written yet."""

    pod: Ref
    node: str
    reserved: tuple[Ref, ...]
    """Every claim of `spec.resourceClaims`: the pod goes into their reservedFor."""
    allocated: dict[Ref, Obj]
    """Those of them that get their allocation now."""
    extended: Obj | None = None
    """The claim to make for extended resources."""
    extended_allocation: Obj | None = None
    extended_requests: tuple[ExtendedRequest, ...] = ()

    @property
    def devices(self) -> set[DeviceID]:
        """The devices this decision takes, other than with adminAccess."""
        allocations = [*self.allocated.values(), *([self.extended_allocation] if self.extended_allocation else [])]
        return {
            DeviceID(result["driver"], result["pool"], result["device"])
            for allocation in allocations
            for result in allocation["devices"]["results"]
            if not result.get("adminAccess")
        }


class Binder:
    """Writes one decision. Every write is refused (ApiError) when its object changed hands; then all is decided anew.

    As upstream, allocation and reservation are one write of the claim's status, before the pod is bound.
    """

    def __init__(self, store: Store, clock: Clock, events: Recorder) -> None:
        self._store = store
        self._clock = clock
        self._events = events

    def bind(self, decision: Decision) -> None:
        pod = self._store.find(PODS, decision.pod.namespace, decision.pod.name)
        if pod is None or meta(pod)["uid"] != decision.pod.uid or deleting(pod):
            return
        for claim in decision.reserved:
            self._reserve(claim, pod, decision.allocated.get(claim))
        if decision.extended is not None and decision.extended_allocation is not None:
            self._extended(pod, decision.extended, decision.extended_allocation, decision.extended_requests)
        bind(self._store, *decision.pod[:2], decision.node, uid=decision.pod.uid, user="system:kube-scheduler")
        where = f"{decision.pod.namespace}/{decision.pod.name} to {decision.node}"
        self._events.pod(pod, "Normal", "Scheduled", f"Successfully assigned {where}", self._clock.now())

    def _reserve(self, claim: Ref, pod: Obj, allocation: Obj | None) -> None:
        def protect(current: Obj) -> None:
            finalizers = meta(current).setdefault("finalizers", [])
            if CLAIM_FINALIZER not in finalizers:
                finalizers.append(CLAIM_FINALIZER)

        def reserve(current: Obj) -> None:
            _same(current, claim)
            status = current.setdefault("status", {})
            if allocation is not None:
                if allocation_results(current):
                    raise _conflict(claim)
                status["allocation"] = {**allocation, "allocationTimestamp": timestamp(self._clock.now())}
            elif not allocation_results(current):
                # Deallocated since the decision.
                raise _conflict(claim)
            if not reserved_for(current, pod):
                status.setdefault("reservedFor", []).append(consumer_of(pod))

        if allocation is not None:
            self._store.mutate(CLAIMS, claim.namespace, claim.name, protect)
        self._store.mutate(CLAIMS, claim.namespace, claim.name, reserve, subresource="status")

    def _extended(self, pod: Obj, claim: Obj, allocation: Obj, requests: tuple[ExtendedRequest, ...]) -> None:
        status = {
            "allocation": {**allocation, "allocationTimestamp": timestamp(self._clock.now())},
            "reservedFor": [consumer_of(pod)],
        }
        created = self._store.create(CLAIMS, claim)
        name = meta(created)["name"]

        def allocate(current: Obj) -> None:
            current["status"] = status

        def tell(current: Obj) -> None:
            current.setdefault("status", {})["extendedResourceClaimStatus"] = extended_status(requests, name)

        self._store.mutate(CLAIMS, meta(pod)["namespace"], name, allocate, subresource="status")
        self._store.mutate(PODS, meta(pod)["namespace"], meta(pod)["name"], tell, subresource="status")


def _same(current: Obj, claim: Ref) -> None:
    if meta(current)["uid"] != claim.uid or deleting(current):
        raise _conflict(claim)


def _conflict(claim: Ref) -> ApiError:
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "{claim.name}": the object has been '
        "modified; please apply your changes to the latest version and try again",
        {"name": claim.name, "group": "resource.k8s.io", "kind": "resourceclaims"},
    )
