"""The pod subresources that do something: binding and eviction."""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.apiserver.meta import Object, timestamp
from taintctl.sandbox.apiserver.requests import DeleteOptions, Request, delete_options
from taintctl.sandbox.apiserver.selectors import label_selector
from taintctl.sandbox.store import Store

BUDGETS = "poddisruptionbudgets.policy"
MAX_DISRUPTED = 2000
"""Evictions that a budget may have under way, as upstream."""


def bind(store: Store, namespace: str, name: str, node: str, *, uid: str = "", user: str) -> None:
    """Puts a pod on a node, as `pods/binding` does; 409 when it is on one already, or being deleted."""
    pod = store.get("pods", namespace, name)
    if uid and uid != pod["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod['metadata']['uid']}"
        raise errors.conflict("pods/binding", "", name, why)
    if pod["metadata"].get("deletionTimestamp"):
        raise errors.conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise errors.conflict("pods/binding", "", name, why)
    moment = timestamp(store.clock.now())

    def assign(draft: Object) -> None:
        draft["spec"]["nodeName"] = node
        status = draft.setdefault("status", {})
        rest = [one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
        status["conditions"] = [*rest, scheduled]

    store.mutate("pods", namespace, name, assign, subresource="binding", user=user)


def handle_binding(store: Store, request: Request) -> Object:
    """POST pods/x/binding."""
    body = request.decoded()
    target = body.get("target") if isinstance(body, dict) else None
    node = (target or {}).get("name")
    if not node:
        raise errors.invalid("Binding", "", request.name, [errors.required("target.name")])
    if (target or {}).get("kind") not in (None, "", "Node"):
        unsupported = errors.unsupported("target.kind", (target or {}).get("kind"), ("Node", "<empty>"))
        raise errors.invalid("Binding", "", request.name, [unsupported])
    uid = (body.get("metadata") or {}).get("uid", "")
    if not request.dry_run:
        bind(store, request.namespace, request.name, node, uid=uid, user=request.user.name)
    return _success()


def handle_eviction(store: Store, request: Request, admit: Any) -> Object:
    """POST pods/x/eviction, as `pkg/registry/core/pod/storage/eviction.go` decides it."""
    body = request.decoded()
    if not isinstance(body, dict) or body.get("kind", "Eviction") != "Eviction":
        raise errors.bad_request("not a Eviction object")
    named = (body.get("metadata") or {}).get("name", "")
    if named != request.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    options = delete_options(request, body.get("deleteOptions") or {})
    pod = store.get("pods", request.namespace, request.name)
    if not _ignores_budgets(pod):
        budget = _budget_of(store, pod)
        if budget is not None and not _is_unready_spare(pod, budget):
            # What cannot be deleted anyway takes nothing from the budget.
            _delete(store, request, options, admit, dry_run=True)
            _take_from_budget(store, budget, request.name, dry_run=options.dry_run, user=request.user.name)
    _delete(store, request, options, admit, dry_run=options.dry_run)
    return _success()


def _delete(store: Store, request: Request, options: DeleteOptions, admit: Any, *, dry_run: bool) -> None:
    store.delete(
        "pods",
        request.namespace,
        request.name,
        uid=options.uid,
        resource_version=options.resource_version,
        grace_seconds=options.grace_seconds,
        propagation=options.propagation,
        user=request.user.name,
        admit=admit,
        dry_run=dry_run,
    )


def _success() -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _ignores_budgets(pod: Object) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _budget_of(store: Store, pod: Object) -> Object | None:
    budgets = [
        one
        for one in store.list(BUDGETS, pod["metadata"]["namespace"])
        if label_selector(one["spec"].get("selector"))(pod)
    ]
    if len(budgets) > 1:
        why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ApiError(500, "", why, {})
    return budgets[0] if budgets else None


def _is_unready_spare(pod: Object, budget: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    if ready:
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status", {})
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _take_from_budget(store: Store, budget: Object, pod: str, *, dry_run: bool, user: str) -> None:
    meta, status = budget["metadata"], budget.get("status", {})
    name = meta["name"]
    refused = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        cause = f"The disruption budget {name} is still being processed by the server."
        causes = [{"reason": "DisruptionBudget", "message": cause}]
        raise ApiError(429, "TooManyRequests", refused, {"causes": causes, "retryAfterSeconds": 10})
    if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("poddisruptionbudget", "policy", name, why)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
        causes = [{"reason": "DisruptionBudget", "message": cause}]
        raise ApiError(429, "TooManyRequests", refused, {"causes": causes})
    if dry_run:
        return
    moment = timestamp(store.clock.now())

    def take(draft: Object) -> None:
        draft["status"]["disruptionsAllowed"] = allowed - 1
        draft["status"]["disruptedPods"] = {**(draft["status"].get("disruptedPods") or {}), pod: moment}
        if allowed == 1:
            _say_no_more(draft["status"], meta.get("generation", 0), moment)

    store.mutate(BUDGETS, meta["namespace"], name, take, subresource="status", user=user)


def _say_no_more(status: Object, generation: int, moment: str) -> None:
    rest = [one for one in status.get("conditions") or [] if one.get("type") != "DisruptionAllowed"]
    condition = {
        "type": "DisruptionAllowed",
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": moment,
        "reason": "InsufficientPods",
        "message": "",
    }
    status["conditions"] = [*rest, condition]
