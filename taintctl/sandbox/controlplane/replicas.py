"""ReplicaSets and Deployments.

Source: pkg/controller/replicaset and pkg/controller/deployment of Kubernetes 1.36, without adoption, revisions and
maxSurge: a rolling update starts all new pods beside the old, and drops the old once the new are ready.
"""

from __future__ import annotations

from typing import Any

from taintctl.sandbox.apiserver.meta import copied
from taintctl.sandbox.controlplane.objects import (
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    Obj,
    deleting,
    meta,
    set_condition,
)
from taintctl.sandbox.controlplane.workloads import (
    BURST,
    WorkloadController,
    active,
    dearest_last,
    ready,
    reference,
    template_hash,
)

HASH_LABEL = "pod-template-hash"


class ReplicaSets(WorkloadController):
    """Keeps `spec.replicas` pods alive: one that is marked for deletion is replaced at once."""

    name = "replicasets"
    key = REPLICA_SETS
    watches = frozenset({REPLICA_SETS, PODS})

    def reconcile(self, workload: Obj, children: list[Obj]) -> float | None:
        alive = [pod for pod in children if active(pod)]
        missing = workload["spec"]["replicas"] - len(alive)
        for _ in range(min(missing, BURST)):
            self.start_pod(workload, generateName=f"{meta(workload)['name']}-")
        for pod in sorted(alive, key=dearest_last)[: max(0, -missing)]:
            self.remove(pod)
        running = sum(map(ready, alive))
        self.tell(
            workload,
            {
                "replicas": len(alive),
                "fullyLabeledReplicas": len(alive) or None,
                "readyReplicas": running or None,
                "availableReplicas": running or None,
            },
        )
        return 0.1 if missing > BURST else None


class Deployments(WorkloadController):
    """Keeps a ReplicaSet for its template, and those of older templates at 0."""

    name = "deployments"
    key = DEPLOYMENTS
    child_key = REPLICA_SETS
    watches = frozenset({DEPLOYMENTS, REPLICA_SETS})

    def reconcile(self, workload: Obj, children: list[Obj]) -> float | None:
        spec, sets = workload["spec"], [child for child in children if not deleting(child)]
        name = f"{meta(workload)['name']}-{template_hash(spec['template'])}"
        new = next((s for s in sets if meta(s)["name"] == name), None)
        old = [s for s in sets if meta(s)["name"] != name]
        recreate = (spec.get("strategy") or {}).get("type") == "Recreate"
        wanted = 0 if recreate and any(_count(s, "replicas") for s in old) else spec["replicas"]
        if new is None:
            new = self.store.create(REPLICA_SETS, _replica_set(workload, name, wanted))
        elif new["spec"]["replicas"] != wanted:
            new = self._scale(new, wanted)
        if recreate or _count(new, "availableReplicas") >= spec["replicas"]:
            old = [self._scale(s, 0) if s["spec"]["replicas"] else s for s in old]
        empty = [s for s in old if not s["spec"]["replicas"] and not _count(s, "replicas")]
        for replica_set in empty[: max(0, len(empty) - spec["revisionHistoryLimit"])]:
            self.remove(replica_set)
        self._report(workload, new, old)
        return None

    def _scale(self, replica_set: Obj, replicas: int) -> Obj:
        def write(current: Obj) -> None:
            current["spec"]["replicas"] = replicas

        return self.store.mutate(REPLICA_SETS, meta(replica_set)["namespace"], meta(replica_set)["name"], write)

    def _report(self, workload: Obj, new: Obj, old: list[Obj]) -> None:
        wanted, now = workload["spec"]["replicas"], self.clock.now()
        total, available, running = (
            sum(_count(s, field) for s in (new, *old)) for field in ("replicas", "availableReplicas", "readyReplicas")
        )
        updated = _count(new, "replicas")
        done = updated == total == wanted and available >= wanted
        verdicts: list[dict[str, Any]] = [
            _verdict("Available", available >= wanted, "MinimumReplicasAvailable", "MinimumReplicasUnavailable"),
            {"type": "Progressing", "status": "True", "reason": _PROGRESS[done], "message": ""},
        ]

        def conditions(current: Obj) -> None:
            for verdict in verdicts:
                set_condition(current, verdict, now)

        status = {
            "replicas": total or None,
            "updatedReplicas": updated or None,
            "readyReplicas": running or None,
            "availableReplicas": available or None,
            "unavailableReplicas": max(0, wanted - available) or None,
        }
        self.tell(workload, status, conditions)


_PROGRESS = {True: "NewReplicaSetAvailable", False: "ReplicaSetUpdated"}


def _verdict(kind: str, holds: bool, yes: str, no: str) -> dict[str, Any]:
    return {"type": kind, "status": "True" if holds else "False", "reason": yes if holds else no, "message": ""}


def _count(replica_set: Obj, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field) or 0)


def _replica_set(deployment: Obj, name: str, replicas: int) -> Obj:
    hashed = {HASH_LABEL: name.rpartition("-")[2]}
    template, selector = copied(deployment["spec"]["template"]), copied(deployment["spec"]["selector"])
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **hashed}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **hashed}
    return {
        "metadata": {
            "namespace": meta(deployment)["namespace"],
            "name": name,
            "labels": metadata["labels"],
            "ownerReferences": [reference(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    }
