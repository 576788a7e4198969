"""Jobs: pods that run to their end, made again where they fail or are deleted, up to the backoff limit.

Source: pkg/controller/job of Kubernetes 1.36, without the tracking finalizer (a pod that vanishes before it succeeded
counts as failed, as it does upstream), failure policies, backoff delays and per-index limits.
"""

from __future__ import annotations

from collections import defaultdict

from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.controlplane.objects import (
    JOBS,
    PODS,
    Obj,
    deleting,
    is_true,
    meta,
    phase,
    set_condition,
    terminal,
)
from taintctl.sandbox.controlplane.workloads import BURST, WorkloadController, active, controller, ready
from taintctl.sandbox.store import Event

INDEX = "batch.kubernetes.io/job-completion-index"


class Jobs(WorkloadController):
    """Runs up to `parallelism` pods until `completions` have succeeded, or more than `backoffLimit` have failed."""

    name = "jobs"
    key = JOBS
    watches = frozenset({JOBS, PODS})

    def reset(self) -> None:
        super().reset()
        self._vanished: dict[str, dict[str, str | None]] = defaultdict(dict)
        """By the Job's uid: pods that are gone, with the index that they had completed; None: they failed."""
        self._before: dict[str, int] = {}
        """Failures that the status knew of when this controller started, beyond the pods that are there."""
        self._let_go: set[str] = set()
        """Pods that this controller deleted: they did not fail."""

    def sync(self) -> None:
        super().sync()
        for job in self.store.list(JOBS):
            uid = meta(job)["uid"]
            here = sum(
                phase(pod) == "Failed"
                for pod in self.store.list(PODS, meta(job)["namespace"])
                if (controller(pod) or {}).get("uid") == uid
            )
            self._before[uid] = max(0, _count(job, "failed") - here)

    def on_event(self, event: Event) -> None:
        if event.key == JOBS and event.type == "DELETED":
            self._vanished.pop(meta(event.obj)["uid"], None)
            self._before.pop(meta(event.obj)["uid"], None)
        owner = controller(event.obj) if event.key == PODS and event.type == "DELETED" else None
        uid = meta(event.obj)["uid"]
        if owner is not None and owner.get("kind") == "Job" and uid not in self._let_go:
            last = event.old or event.obj
            done = _index(last) if phase(last) == "Succeeded" else None
            self._vanished[owner["uid"]][uid] = done
        elif owner is not None:
            self._let_go.discard(uid)
        super().on_event(event)

    def remove(self, child: Obj) -> None:
        self._let_go.add(meta(child)["uid"])
        super().remove(child)

    def reconcile(self, workload: Obj, children: list[Obj]) -> float | None:
        if is_true(workload, "Complete") or is_true(workload, "Failed"):
            return None
        spec, uid = workload["spec"], meta(workload)["uid"]
        gone = self._vanished.get(uid, {})
        succeeded = [_index(pod) for pod in children if phase(pod) == "Succeeded"]
        succeeded += [index for index in gone.values() if index is not None]
        failed = sum(phase(pod) == "Failed" for pod in children) + sum(index is None for index in gone.values())
        failed += self._before.get(uid, 0)
        alive = [pod for pod in children if active(pod)]
        ending = [pod for pod in children if deleting(pod) and not terminal(pod)]
        indexed = spec["completionMode"] == "Indexed"
        done = len(set(succeeded)) if indexed else len(succeeded)
        completions = spec.get("completions")
        verdict = ""
        if failed > spec["backoffLimit"]:
            verdict = "Failed"
        elif (done >= completions) if completions is not None else (done > 0 and not alive):
            verdict = "Complete"
        if verdict or spec.get("suspend"):
            for pod in alive:
                self.remove(pod)
            alive = []
        else:
            in_the_way = alive + (ending if spec.get("podReplacementPolicy") == "Failed" else [])
            self._start(workload, in_the_way, set(succeeded) if indexed else None, done)
        self._report(workload, alive, len(ending), done, failed, verdict)
        return None

    def _start(self, job: Obj, there: list[Obj], completed: set[str] | None, done: int) -> None:
        spec, completions = job["spec"], job["spec"].get("completions")
        left = spec["parallelism"] if completions is None else min(spec["parallelism"], completions - done)
        if completions is None and done:
            return
        name = meta(job)["name"]
        own = {"job-name": name, "controller-uid": meta(job)["uid"]}
        labels = {**own, **{f"batch.kubernetes.io/{label}": value for label, value in own.items()}}
        for pod in sorted(there, key=lambda p: str(meta(p)["creationTimestamp"]))[max(0, left) :]:
            if not deleting(pod):
                self.remove(pod)
        missing = min(max(0, left - len(there)), BURST)
        if completed is None:
            for _ in range(missing):
                self.start_pod(job, generateName=f"{name}-", labels=labels)
            return
        taken = completed | {_index(pod) for pod in there}
        free = [str(index) for index in range(completions or 0) if str(index) not in taken]
        for index in free[:missing]:
            self.start_pod(
                job,
                generateName=f"{name}-{index}-",
                labels={**labels, INDEX: index},
                annotations={INDEX: index},
            )

    def _report(self, job: Obj, alive: list[Obj], ending: int, done: int, failed: int, verdict: str) -> None:
        now, status = self.clock.now(), job.get("status") or {}
        started = status.get("startTime") or (None if job["spec"].get("suspend") else timestamp(now))

        def conclude(current: Obj) -> None:
            if verdict == "Complete":
                for kind in ("SuccessCriteriaMet", "Complete"):
                    set_condition(current, {"type": kind, "status": "True", "reason": "CompletionsReached"}, now)
            elif verdict:
                message = "Job has reached the specified backoff limit"
                for kind in ("FailureTarget", "Failed"):
                    said = {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": message}
                    set_condition(current, said, now)

        self.tell(
            job,
            {
                "startTime": started,
                "completionTime": timestamp(now) if verdict == "Complete" else None,
                "active": len(alive) or None,
                "terminating": ending,
                "ready": sum(map(ready, alive)),
                "succeeded": done or None,
                "failed": failed or None,
            },
            conclude,
        )


def _count(job: Obj, field: str) -> int:
    return int((job.get("status") or {}).get(field) or 0)


def _index(pod: Obj) -> str:
    return str((meta(pod).get("labels") or {}).get(INDEX, ""))
