"""StatefulSets: pods with names that come back.

Source: pkg/controller/statefulset of Kubernetes 1.36, without volumes, adoption and partitions.
"""

from __future__ import annotations

from taintctl.sandbox.controlplane.objects import PODS, STATEFUL_SETS, Obj, deleting, meta, terminal
from taintctl.sandbox.controlplane.workloads import WorkloadController, ready, template_hash

REVISION_LABEL = "controller-revision-hash"


class StatefulSets(WorkloadController):
    """Keeps the pods `name-0` to `name-(replicas - 1)`: one at a time, in order, or with podManagementPolicy Parallel
    all at once. A pod is made again once the one of its name is gone."""

    name = "statefulsets"
    key = STATEFUL_SETS
    watches = frozenset({STATEFUL_SETS, PODS})

    def reconcile(self, workload: Obj, children: list[Obj]) -> float | None:
        spec, base = workload["spec"], meta(workload)["name"]
        revision = f"{base}-{template_hash(spec['template'])}"
        wanted = [f"{base}-{ordinal}" for ordinal in range(spec["replicas"])]
        pods = {meta(pod)["name"]: pod for pod in children}
        self._next_step(workload, wanted, pods, revision)
        there = [pod for pod in pods.values() if not terminal(pod)]
        running = sum(map(ready, there))
        updated = sum(_revision(pod) == revision for pod in there)
        self.tell(
            workload,
            {
                "replicas": len(there),
                "readyReplicas": running or None,
                "availableReplicas": running,
                "currentReplicas": updated or None,
                "updatedReplicas": updated or None,
                "currentRevision": revision,
                "updateRevision": revision,
            },
        )
        return None

    def _next_step(self, workload: Obj, wanted: list[str], pods: dict[str, Obj], revision: str) -> None:
        """Starts and removes what may be now. A change of any pod brings the next step."""
        spec = workload["spec"]
        in_order = spec.get("podManagementPolicy") != "Parallel"
        for ordinal, name in enumerate(wanted):
            pod = pods.get(name)
            if pod is None:
                labels = {
                    "statefulset.kubernetes.io/pod-name": name,
                    "apps.kubernetes.io/pod-index": str(ordinal),
                    REVISION_LABEL: revision,
                }
                if self.store.find(PODS, meta(workload)["namespace"], name) is None:  # else the name is another's
                    self.start_pod(workload, name=name, labels=labels)
            elif terminal(pod) and not deleting(pod):
                self.remove(pod)
            if in_order and (pod is None or not ready(pod)):
                return
        surplus = [pods[name] for name in sorted(pods.keys() - set(wanted), key=_ordinal, reverse=True)]
        if surplus and any(map(deleting, surplus)) and in_order:
            return
        for pod in surplus[: 1 if in_order else len(surplus)]:
            self.remove(pod)
        if surplus or (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            return
        stale = [pods[name] for name in reversed(wanted) if name in pods and _revision(pods[name]) != revision]
        if stale and all(name in pods and ready(pods[name]) for name in wanted):
            self.remove(stale[0])


def _revision(pod: Obj) -> str:
    return str((meta(pod).get("labels") or {}).get(REVISION_LABEL, ""))


def _ordinal(name: str) -> int:
    last = name.rpartition("-")[2]
    return int(last) if last.isdecimal() else -1
