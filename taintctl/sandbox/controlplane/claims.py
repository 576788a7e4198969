"""The resource claim controller: claims from templates, and the end of reservations, allocations and claims.

Source: pkg/controller/resourceclaim of Kubernetes 1.36 and recording 01.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

from taintctl.ports.clock import Clock
from taintctl.sandbox.controlplane.events import Recorder
from taintctl.sandbox.controlplane.objects import (
    CLAIM_FINALIZER,
    CLAIMS,
    POD_CLAIM_NAME,
    PODS,
    TEMPLATES,
    Obj,
    Ref,
    annotation,
    deleting,
    meta,
    node_name,
    owned_by,
    ref,
    terminal,
)
from taintctl.sandbox.controlplane.podclaims import allocation_results, controller_reference
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event, Store

ClaimKey = tuple[str, str]


class Claims(Controller):
    """See the module's text."""

    name = "claims"
    watches = frozenset({PODS, CLAIMS})

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._events = Recorder(store, "resource_claim")

    def reset(self) -> None:
        self._of_pod: dict[str, set[ClaimKey]] = defaultdict(set)
        """Claims by the uid of a pod that they name, as consumer or as owner."""

    def sync(self) -> None:
        for claim in self.store.list(CLAIMS):
            self._take_claim(claim)
        for pod in self.store.list(PODS):
            self._take_pod(pod)

    def on_event(self, event: Event) -> None:
        if event.key == CLAIMS:
            if event.type == "DELETED":
                key = (meta(event.obj)["namespace"], meta(event.obj)["name"])
                for uid in _pods_of(event.old or event.obj):
                    self._of_pod[uid].discard(key)
                    if not self._of_pod[uid]:
                        del self._of_pod[uid]
            else:
                self._take_claim(event.obj)
        elif event.type == "DELETED":
            self._pod_done(event.obj)
        else:
            self._take_pod(event.obj)

    def _take_claim(self, claim: Obj) -> None:
        key = (meta(claim)["namespace"], meta(claim)["name"])
        for uid in _pods_of(claim):
            self._of_pod[uid].add(key)
        self.queue.add(key)

    def _take_pod(self, pod: Obj) -> None:
        if _done(pod):
            self._pod_done(pod)
        elif _missing(pod) and not deleting(pod):
            self.queue.add(ref(pod))

    def _pod_done(self, pod: Obj) -> None:
        for key in sorted(self._of_pod.get(meta(pod)["uid"], ())):
            self.queue.add(key)

    async def handle(self, item: Hashable) -> float | None:
        if isinstance(item, Ref):
            self._make_claims(item)
        elif isinstance(item, tuple):
            self._sync_claim(*item)
        return None

    def _make_claims(self, key: Ref) -> None:
        pod = self.store.find(PODS, key.namespace, key.name)
        if pod is None or ref(pod) != key or deleting(pod) or terminal(pod):
            return
        made = [{"name": entry["name"], "resourceClaimName": self._make(pod, entry)} for entry in _missing(pod)]
        if not made:
            return

        def tell(current: Obj) -> None:
            current.setdefault("status", {}).setdefault("resourceClaimStatuses", []).extend(made)

        self.store.mutate(PODS, key.namespace, key.name, tell, subresource="status")

    def _make(self, pod: Obj, entry: Obj) -> str:
        """The name of the claim for one entry of the pod, made unless it was before a restart."""
        namespace, name = meta(pod)["namespace"], entry["name"]
        for claim_namespace, claim_name in sorted(self._of_pod.get(meta(pod)["uid"], ())):
            claim = self.store.find(CLAIMS, claim_namespace, claim_name)
            if claim is not None and annotation(claim, POD_CLAIM_NAME) == name and owned_by(claim, pod):
                return claim_name
        try:
            template = self.store.get(TEMPLATES, namespace, entry["resourceClaimTemplateName"])
        except ApiError as error:
            message = f"PodResourceClaim {name}: resource claim template: {error.message}"
            self._events.pod(pod, "Warning", "FailedResourceClaimCreation", message, self.clock.now())
            raise
        shape = template["spec"].get("metadata") or {}
        metadata: Obj = {
            "generateName": f"{meta(pod)['name']}-{name}-",
            "namespace": namespace,
            "annotations": {**(shape.get("annotations") or {}), POD_CLAIM_NAME: name},
            "ownerReferences": [controller_reference(pod)],
        }
        if shape.get("labels"):
            metadata["labels"] = shape["labels"]
        claim = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata,
            "spec": template["spec"]["spec"],
        }
        return str(meta(self.store.create(CLAIMS, claim))["name"])

    def _sync_claim(self, namespace: str, name: str) -> None:
        claim = self.store.find(CLAIMS, namespace, name)
        if claim is None:
            return
        reserved = (claim.get("status") or {}).get("reservedFor") or []
        held = [consumer for consumer in reserved if self._holds(namespace, consumer)]
        unused = not held and (len(held) < len(reserved) or deleting(claim))
        if len(held) < len(reserved) or (unused and allocation_results(claim)):

            def release(current: Obj) -> None:
                status = current.setdefault("status", {})
                status.pop("reservedFor", None)
                if held:
                    status["reservedFor"] = held
                else:
                    status.pop("allocation", None)

            claim = self.store.mutate(CLAIMS, namespace, name, release, subresource="status")
        if not held and not reserved and allocation_results(claim):
            # Allocated and not yet reserved by whoever writes it: not ours to take back.
            return
        owner = self._owner(claim)
        if not held and owner is not None and _done(owner) and not deleting(claim):
            self.store.delete(CLAIMS, namespace, name, uid=meta(claim)["uid"])
        if unused and self.store.find(CLAIMS, namespace, name) is not None:
            self.store.mutate(CLAIMS, namespace, name, _unprotect)

    def _holds(self, namespace: str, consumer: Obj) -> bool:
        """Whether a consumer is still there; only pods are known here, anything else is left alone."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        pod = self.store.find(PODS, namespace, consumer["name"])
        return pod is not None and meta(pod)["uid"] == consumer["uid"] and not _done(pod)

    def _owner(self, claim: Obj) -> Obj | None:
        """The pod that the claim was made for, if it is still there."""
        for reference in meta(claim).get("ownerReferences") or ():
            if reference.get("controller") and reference.get("kind") == "Pod":
                pod = self.store.find(PODS, meta(claim)["namespace"], reference["name"])
                if pod is not None and meta(pod)["uid"] == reference["uid"]:
                    return pod
        return None


def _unprotect(claim: Obj) -> None:
    finalizers = meta(claim).get("finalizers") or []
    meta(claim)["finalizers"] = [f for f in finalizers if f != CLAIM_FINALIZER]


def _done(pod: Obj) -> bool:
    """The pod will not use its claims again: it has ended, or it is deleted and never ran."""
    return terminal(pod) or (deleting(pod) and not node_name(pod))


def _missing(pod: Obj) -> list[Obj]:
    """The pod's entries with a template whose claim is not noted in its status."""
    noted = {s["name"] for s in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    entries = pod["spec"].get("resourceClaims") or ()
    return [e for e in entries if e.get("resourceClaimTemplateName") and e["name"] not in noted]


def _pods_of(claim: Obj) -> set[str]:
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    owners = meta(claim).get("ownerReferences") or ()
    return {c["uid"] for c in consumers} | {o["uid"] for o in owners if o.get("kind") == "Pod"}
