"""The loop between reader and writer: one worker a key, errors with backoff, nothing kept that a restart would miss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import FINALIZER, LABEL_WINDOW
from taintctl.api.check import KINDS, FieldProblem, Own, check
from taintctl.api.plan import Verdict
from taintctl.api.policy import EvictionPolicy
from taintctl.api.pools import PoolKey
from taintctl.api.reasons import Phase
from taintctl.api.rule import EvictionOutcome, run_uid_of
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.impact import target_problems
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cache, Cluster
from taintctl.ports.errors import ClusterError, Conflict, NotFound
from taintctl.reconcile.apply import Writer
from taintctl.reconcile.gather import Reader
from taintctl.reconcile.queue import WorkQueue
from taintctl.reconcile.small import approval_status, part, policy_status, run_refused
from taintctl.reconcile.windows import reconcile_window
from taintctl.workflow import decide
from taintctl.workflow.model import Observation, Settings

log = logging.getLogger("taintctl.reconcile")

Key = tuple[type[Own], str]

MAX_STEPS = 50
"""Decisions in one go for one run before others get their turn; a run that wants more is queued again."""
FIRST_BACKOFF = timedelta(seconds=1)
LAST_BACKOFF = timedelta(seconds=60)
RESYNC = timedelta(minutes=5)
TURN = 60.0
"""Seconds of one run's decisions in one go, not scaled, after which the others get their turn: on a slow API server."""
MAX_PASS = timedelta(minutes=5)
"""How long one pass over one object may take, not scaled; every network call inside has its own, shorter bound."""


class Reconciler:
    """Brings every object of ours one decision further whenever it, or what it rests on, may have changed."""

    def __init__(self, cluster: Cluster, cache: Cache | None, clock: Clock, settings: Settings) -> None:
        self._cluster = cluster
        self._clock = clock
        self._settings = settings
        self._reader = Reader(cluster, cache, clock, settings)
        self._writer = Writer(cluster, clock)
        self._queue: WorkQueue[Key] = WorkQueue()
        self._failures: dict[Key, int] = {}
        self._undone: dict[str, str] = {}
        """By run: why not all of its last decision was done."""
        self._idle_since: dict[str, float] = {}
        """By run's uid, on the loop's clock: the first of the looks, one after the other, that saw its devices idle."""
        self._runs_by_scope: dict[str, Callable[[PoolKey], bool]] = {}
        self.on_run: Callable[[str], None] = lambda name: None
        """Told of every run that may have changed; returns at once."""

    def enqueue(self, kind: type[Own], name: str, delay: timedelta = timedelta(0)) -> None:
        self._queue.add((kind, name), delay.total_seconds())

    def devices_changed(self, driver: str, pool: str) -> None:
        """A claim, pod or slice of that pool changed: the runs that aim at it look again."""
        for name, concerns in self._runs_by_scope.items():
            if concerns((driver, pool)):
                self.enqueue(MaintenanceRun, name)

    async def resync(self) -> None:
        """Queues every object of ours, and names rules of ours that no run owns any more."""
        rules = await self._cluster.own_rules()  # before the runs, so that a run that starts meanwhile is known
        runs: set[str] = set()
        for kind in KINDS:
            for raw in await self._cluster.list(kind):
                self.enqueue(kind, raw["metadata"]["name"])
                if kind is MaintenanceRun:
                    runs.add(raw["metadata"]["uid"])
                    self.on_run(raw["metadata"]["name"])
        for rule in rules:
            if run_uid_of(rule) not in runs and rule.metadata.deletion_timestamp is None:
                log.warning(
                    "DeviceTaintRule %s taints devices and its run is gone; kubectl delete it if nobody works on them",
                    rule.metadata.name,
                )

    async def run(self, workers: int = 4) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._resync_again_and_again())
            for _ in range(workers):
                group.create_task(self._queue.work(self._one))

    async def _resync_again_and_again(self) -> None:
        delay = FIRST_BACKOFF
        while True:
            try:
                await self.resync()
                delay = FIRST_BACKOFF
                await self._clock.sleep(RESYNC.total_seconds())
            except ClusterError as error:
                log.warning("objects can't be listed, trying again: %s", error.message)
                await self._clock.sleep(delay.total_seconds())
                delay = min(delay * 2, LAST_BACKOFF)

    async def _one(self, key: Key) -> timedelta | None:
        """Returns after which time to look again at the latest, whatever comes of it now."""
        kind, name = key
        try:
            async with asyncio.timeout(MAX_PASS.total_seconds()):
                again = await self.reconcile(kind, name)
        except (Conflict, NotFound) as error:
            log.info("%s %s changed meanwhile; looking again: %s", kind.KIND, name, error.message)
            again = self._backoff(key)
        except ClusterError as error:
            log.warning("%s %s: %s; trying again", kind.KIND, name, error.message)
            again = self._backoff(key)
        except TimeoutError:
            log.error("%s %s: one pass took longer than %s; trying again", kind.KIND, name, MAX_PASS)
            again = self._backoff(key)
        except Exception:  # one object must not stop the others
            log.exception("%s %s: an error of ours; nothing further is done for it now", kind.KIND, name)
            again = self._backoff(key)
        else:
            self._failures.pop(key, None)
        return again

    def _backoff(self, key: Key) -> timedelta:
        count = min(self._failures.get(key, 0), 16)
        self._failures[key] = count + 1
        return self._settings.scaled(min(FIRST_BACKOFF * 2**count, LAST_BACKOFF))

    async def reconcile(self, kind: type[Own], name: str) -> timedelta | None:
        """One object, until there is nothing to do now. Returns after which time to look again at the latest."""
        if kind is MaintenanceRun:
            return await self._reconcile_run(name)
        if kind is MaintenanceWindow:
            return await reconcile_window(self._cluster, self._clock, self._settings, name)
        if kind is EvictionPolicy:
            await self._reconcile_policy(name)
        if kind is MaintenanceApproval:
            await self._reconcile_approval(name)
        return None

    async def _reconcile_run(self, name: str) -> timedelta | None:
        live = False
        outcomes: tuple[EvictionOutcome, ...] = ()
        began = asyncio.get_running_loop().time()
        for _ in range(MAX_STEPS):
            raw = await self._cluster.get(MaintenanceRun, name)
            if raw is None:
                self._forget(name)
                return None
            checked = check(MaintenanceRun, raw)
            if checked.obj is None:
                await self._refuse(raw, checked.problems)
                return None
            run = checked.obj
            problems = checked.problems + target_problems(run.spec.target)
            self._remember_scope(run)
            looked = asyncio.get_running_loop().time()
            try:
                observation = await self._reader.observe(run, problems, live=live, outcomes=outcomes)
            except ClusterError as error:
                self._idle_since.pop(run.metadata.uid, None)
                await self._say_unreadable(run, error)
                raise
            observation = replace(
                observation,
                undone=self._undone.get(name, ""),
                idle_for=self._idle_for(observation, looked),
            )
            decision = decide(observation, self._clock.now())
            phase = decision.status.phase
            moved = phase != run.status.phase
            try:
                applied = await self._writer.apply(run, decision)
            finally:
                if moved or (phase is not None and phase.ended):
                    # Also where only a part was done: the phase may have been stored.
                    self._wake_window(run)
                if decision.status != run.status:
                    self.on_run(name)
                if moved or decision.status.approval != run.status.approval:
                    await self._wake_approvals(run)
            if decision.need_live:
                live = True
                continue
            outcomes = applied.outcomes
            if applied.error is not None:
                self._undone[name] = applied.error.message
                raise applied.error
            self._undone.pop(name, None)
            if not applied.complete:
                live = False
                continue
            if outcomes:
                live = False
                continue
            if moved or decision.requeue_after == timedelta(0):
                if asyncio.get_running_loop().time() - began > TURN:
                    return timedelta(0)
                live = False
                continue
            return decision.requeue_after
        return self._settings.scaled(self._settings.poll)

    def _remember_scope(self, run: MaintenanceRun) -> None:
        if run.status.phase is not None and run.status.phase.ended:
            self._runs_by_scope.pop(run.name, None)
        else:
            self._runs_by_scope[run.name] = _concerns(run)

    async def _wake_approvals(self, run: MaintenanceRun) -> None:
        """What becomes of an approval is said on it, and that is the run's to decide."""
        try:
            found = await self._cluster.list(MaintenanceApproval)
        except ClusterError as error:
            log.info("run %s: what became of its approvals is not said on them now: %s", run.name, error.message)
            return
        for raw in found:
            if part(raw, "spec").get("runName") == run.name:
                self.enqueue(MaintenanceApproval, raw["metadata"]["name"])

    def _forget(self, name: str) -> None:
        self._runs_by_scope.pop(name, None)
        self._undone.pop(name, None)

    def _idle_for(self, observation: Observation, looked: float) -> timedelta:
        """Since the first of the looks in a row that saw the devices idle; a look begins before its reads."""
        uid, phase = observation.run.metadata.uid, observation.run.status.phase
        if phase is Phase.DRAINING and not observation.live:
            return timedelta(0)  # a cache says nothing either way
        if phase is not Phase.DRAINING or observation.idleness.verdict is not Verdict.TRUE:
            self._idle_since.pop(uid, None)
            return timedelta(0)
        return timedelta(seconds=looked - self._idle_since.setdefault(uid, looked))

    def _wake_window(self, run: MaintenanceRun) -> None:
        window = run.metadata.labels.get(LABEL_WINDOW)
        if window:
            self.enqueue(MaintenanceWindow, window)

    async def _refuse(self, raw: dict[str, Any], problems: tuple[FieldProblem, ...]) -> None:
        """A run that can't even be read: said on it, and nothing else is done, but to let it go where it is deleted and
        none of its rules is left."""
        metadata = raw["metadata"]
        finalizers = metadata.get("finalizers") or []
        if (
            metadata.get("deletionTimestamp")
            and FINALIZER in finalizers
            and not await self._cluster.rules_of(metadata["uid"])
        ):
            await self._cluster.patch(
                MaintenanceRun,
                metadata["name"],
                {"metadata": {"finalizers": [f for f in finalizers if f != FINALIZER]}},
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
            )
            return
        status = run_refused(raw, problems, self._clock.now())
        if status["message"] == part(raw, "status").get("message"):
            return
        await self._cluster.replace_status(
            MaintenanceRun,
            metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            status=status,
        )

    async def _say_unreadable(self, run: MaintenanceRun, error: ClusterError) -> None:
        """The phase and its reason stay (what a pause remembers is in them); the sentence says why nothing happens."""
        message = f"Nothing is done now, for the cluster can't be read: {error.message}"[:2048]
        if run.status.message == message:
            return
        status = run.status.model_copy(update={"message": message})
        try:
            await self._cluster.replace_status(
                MaintenanceRun,
                run.name,
                uid=run.metadata.uid,
                resource_version=run.metadata.resource_version,
                status=status.dump(),
            )
        except ClusterError:
            log.debug("run %s: the reason could not be stored either", run.name)

    async def _reconcile_policy(self, name: str) -> None:
        raw = await self._cluster.get(EvictionPolicy, name)
        if raw is not None:
            checked = check(EvictionPolicy, raw)
            await self._store_small(EvictionPolicy, raw, policy_status(raw, checked.problems, self._clock.now()))
        for other in await self._cluster.list(MaintenanceRun):
            if part(other, "spec").get("policyName") == name:
                self.enqueue(MaintenanceRun, other["metadata"]["name"])

    async def _reconcile_approval(self, name: str) -> None:
        raw = await self._cluster.get(MaintenanceApproval, name)
        if raw is None:
            return
        run_name = str(part(raw, "spec").get("runName", ""))
        run_raw = await self._cluster.get(MaintenanceRun, run_name) if run_name else None
        if run_raw is not None:
            self.enqueue(MaintenanceRun, run_name)
        verified = self._settings.allow_unverified_approvals or await self._cluster.approvals_verified() is not None
        status = approval_status(raw, run_raw, verified, self._clock.now())
        await self._store_small(MaintenanceApproval, raw, status)

    async def _store_small(self, kind: type[Own], raw: dict[str, Any], status: dict[str, Any]) -> None:
        if status == raw.get("status"):
            return
        metadata = raw["metadata"]
        await self._cluster.replace_status(
            kind,
            metadata["name"],
            uid=metadata["uid"],
            resource_version=metadata["resourceVersion"],
            status=status,
        )


def _concerns(run: MaintenanceRun) -> Callable[[PoolKey], bool]:
    """Which pools' changes make the run look again at once: those under its rules, and those that its target names.
    What the names do not tell (labels, classes, expressions, UUIDs) is found at its next look: else a target without
    a driver would look at every change of a cluster."""
    target = run.spec.target
    tainted = frozenset((rule.driver, rule.pool) for rule in run.status.rules)
    by_name = target.driver is not None and not (target.node_selector or target.by_attribute)

    def concerns(pool: PoolKey) -> bool:
        return pool in tainted or (by_name and target.driver == pool[0] and target.pool in (None, pool[1]))

    return concerns
