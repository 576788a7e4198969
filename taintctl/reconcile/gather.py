"""The only reader: everything that one decision about a run rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.check import FieldProblem, check
from taintctl.api.objects import DeviceSelector, Snapshot
from taintctl.api.plan import Idleness, Plan, Problem, Verdict
from taintctl.api.policy import BUILT_IN_POLICY, EvictionPolicy
from taintctl.api.pools import PoolKey
from taintctl.api.reasons import ENDED, Effect, Phase, Reason
from taintctl.api.rule import EvictionOutcome, run_uid_of
from taintctl.api.run import DrainMode, MaintenanceRun
from taintctl.api.target import Target
from taintctl.impact import build_plan, idleness, may_mean, pools_meant, selects
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cache, Cluster, Scope
from taintctl.ports.errors import ClusterError
from taintctl.reconcile.small import part
from taintctl.workflow.model import Observation, Settings
from taintctl.workflow.rules import taint_value

MAX_CACHE_AGE = timedelta(seconds=90)
"""A cache that has heard nothing for longer (bookmarks come every minute) is not planned from."""

PAST_APPROVAL = frozenset({Phase.DRAINING, Phase.IN_MAINTENANCE, Phase.RELEASING, Phase.ROLLING_BACK, *ENDED})
"""Where no approval is asked about any more; whoever goes back to a dry run from there reads them again. But with
drain.mode Evict they are while draining: each pod goes on that word, and a denial still stops it."""


TOWARDS_EVICTION = (Phase.DRY_RUN, Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.EVICTING)
"""The way to eviction, in its order: of two runs for one device the one that is further goes first."""


@dataclass(frozen=True)
class _Seen:
    """What one snapshot shows."""

    idleness: Idleness
    plan: Plan | None = None
    problem: Problem | None = None
    snapshot: Snapshot | None = None
    live: bool = False


@dataclass(frozen=True)
class Reader:
    """Reads through `cluster`, or plans from `cache` where that is fresh enough and nothing hangs on it."""

    cluster: Cluster
    cache: Cache | None
    clock: Clock
    settings: Settings

    async def observe(
        self,
        run: MaintenanceRun,
        problems: tuple[FieldProblem, ...],
        *,
        live: bool,
        outcomes: tuple[EvictionOutcome, ...] = (),
    ) -> Observation:
        """Reads facts in the order that loses nothing: rules first (what is), then policy, approvals and the other runs
        (what may be), then the cluster (whom it hits). Raises ClusterError where the rules or the runs can't be read:
        to take rules for missing would look like an operator's hand."""
        taken_at = self.clock.now()
        rules = await self.cluster.rules_of(run.metadata.uid)
        policy, policy_problem = await self.policy(run)
        approvals, verified, approvals_problem = await self.approvals(run)
        others, others_problem = await self._out_elsewhere(run, policy)
        runs: tuple[dict[str, Any], ...] = ()
        if run.status.phase in (None, Phase.PENDING, *TOWARDS_EVICTION):
            runs = await self.cluster.list(MaintenanceRun)
        seen = await self._cluster(run, live, others)
        return Observation(
            run=run,
            problems=problems,
            policy=policy,
            policy_problem=policy_problem,
            approvals=approvals,
            approvals_verified=verified,
            rules=rules,
            plan=seen.plan,
            plan_problem=seen.problem or approvals_problem or others_problem,
            idleness=seen.idleness,
            earlier_runs=_earlier_runs(run, runs, seen),
            live=seen.live and approvals_problem is None and others_problem is None,
            taken_at=taken_at,
            outcomes=outcomes,
            settings=self.settings,
        )

    async def policy(self, run: MaintenanceRun) -> tuple[EvictionPolicy | None, Problem | None]:
        """The run's policy as it is now, or why there is none."""
        name = run.spec.policy_name
        if name is None:
            return BUILT_IN_POLICY, None
        try:
            raw = await self.cluster.get(EvictionPolicy, name)
        except ClusterError as error:
            return None, Problem(Reason.CLUSTER_UNREADABLE, f"EvictionPolicy {name} can't be read: {error.message}")
        if raw is None:
            return None, Problem(
                Reason.POLICY_NOT_FOUND,
                f"There is no EvictionPolicy {name}; create it, or start a run that names another.",
            )
        checked = check(EvictionPolicy, raw)
        if checked.problems or checked.obj is None:
            return None, Problem(
                Reason.POLICY_INVALID,
                f"EvictionPolicy {name} is not valid: {checked.problems[0]}; correct it with kubectl edit.",
            )
        return checked.obj, None

    async def approvals(
        self, run: MaintenanceRun
    ) -> tuple[tuple[MaintenanceApproval, ...], datetime | None, Problem | None]:
        """The run's approvals, where it asks for any, and since when the cluster proves who writes them."""
        by_api = run.status.phase is Phase.DRAINING and run.spec.drain.mode is DrainMode.EVICT
        if run.status.approval is None or (run.status.phase in PAST_APPROVAL and not by_api):
            return (), None, None
        try:
            found = await self.cluster.list(MaintenanceApproval)
            verified = await self.cluster.approvals_verified()
        except ClusterError as error:
            return (), None, Problem(Reason.CLUSTER_UNREADABLE, f"Approvals can't be read: {error.message}")
        return valid_approvals(found, run.name), verified, None

    async def _out_elsewhere(
        self, run: MaintenanceRun, policy: EvictionPolicy | None
    ) -> tuple[tuple[DeviceSelector, ...], Problem | None]:
        """What other runs keep out of service (NoSchedule or NoExecute), by the selectors of their rules; read live,
        and only where the policy has a maxUnavailable.

        Two runs can come to their notice at once, each before it could see the other's taint. Then the one that was
        asked for first goes on, and does not count one behind it that is in its notice too; that one counts the first,
        and steps back. Both taints have stood for 10 s before either gate, so no gate is passed without seeing the
        other; and the runs are read after the rules, so that one that is past its gate is never taken for waiting.
        """
        if policy is None or not policy.minds_other_runs or run.status.phase in PAST_APPROVAL:
            return (), None
        try:
            found = await self.cluster.own_rules()
            rules = [r for r in found if run_uid_of(r) != run.metadata.uid and r.spec.taint.effect != Effect.NONE]
            behind: frozenset[str] = frozenset()
            if rules and run.status.phase in (Phase.NOTICE, Phase.EVICTING):
                behind = await self._behind(run)
        except ClusterError as error:
            return (), Problem(Reason.CLUSTER_UNREADABLE, f"Other runs can't be read: {error.message}")
        return tuple(
            rule.spec.device_selector or DeviceSelector()
            for rule in rules
            if rule.spec.taint.effect != Effect.NO_SCHEDULE or run_uid_of(rule) not in behind
        ), None

    async def _behind(self, run: MaintenanceRun) -> frozenset[str]:
        """The uids of runs that are in their notice and were asked for after this one."""
        others = [check(MaintenanceRun, raw).obj for raw in await self.cluster.list(MaintenanceRun)]
        return frozenset(
            other.metadata.uid
            for other in others
            if other is not None and other.status.phase is Phase.NOTICE and _order(run) < _order(other)
        )

    async def _cluster(self, run: MaintenanceRun, live: bool, others: tuple[DeviceSelector, ...]) -> _Seen:
        """The plan and the idleness, from one snapshot."""
        target, status = run.spec.target, run.status
        if status.phase is not None and status.phase.ended:
            return _Seen(Idleness(Verdict.UNKNOWN, Reason.COMPLETED, "The run has ended."), live=True)
        eviction = status.eviction
        known_nodes = frozenset(d.node for d in status.plan.devices if d.node) if status.plan else frozenset()
        known_nodes |= frozenset(eviction.nodes if eviction else ())
        # Also what the run's rules taint, should the target no longer mean it.
        tainted = frozenset((rule.driver, rule.pool) for rule in status.rules)
        scope = scope_of(target, pools=tainted, nodes=tuple(sorted(known_nodes)))
        try:
            snapshot = await self._snapshot(scope, live)
        except ClusterError as error:
            sentence = f"The cluster can't be read: {error.message}"
            problem = Problem(Reason.CLUSTER_UNREADABLE, sentence)
            return _Seen(Idleness(Verdict.UNKNOWN, Reason.CLUSTER_UNREADABLE, sentence), problem=problem)
        key, value = run.spec.taint.key, taint_value(run)
        planned = build_plan(snapshot, target, key=key, value=value, others=others)
        plan = planned if isinstance(planned, Plan) else None
        selectors = [(rule.driver, rule.pool, rule.device) for rule in status.rules if rule.role == "taint"]
        idle = idleness(
            snapshot,
            selectors or [(rule.driver, rule.pool, rule.device) for rule in plan.rules] if plan else selectors,
            key=key,
            value=value,
            nodes=known_nodes,
            evicting_since=eviction.started_at if eviction else None,
            proven_at=eviction.idle_proven_at if eviction else None,
        )
        problem_ = planned if isinstance(planned, Problem) else None
        return _Seen(idle, plan=plan, problem=problem_, snapshot=snapshot, live=snapshot.live)

    async def _snapshot(self, scope: Scope, live: bool) -> Snapshot:
        if not live and self.cache is not None:
            age = self.cache.age()
            if age is not None and timedelta(0) <= age <= self.settings.scaled(MAX_CACHE_AGE):
                return await self.cache.snapshot(scope)
        return await self.cluster.snapshot(scope)


def _earlier_runs(run: MaintenanceRun, others: Iterable[dict[str, Any]], seen: _Seen) -> tuple[str, ...]:
    """Runs that go first: those that hold rules, or were asked for before, for a device of this one's.

    One that is Blocked and holds no rule holds nothing up; one that can't be read, and has rules, holds everything
    up. A run that makes its dry run has passed that once, and another may have too, in the same moment or while
    this one had no device: then whoever is further goes first, and of two that are as far the one that was asked
    for before. So it is asked again at every look until the eviction, the gate's too.
    """
    found: list[str] = []
    for raw in others:
        other = check(MaintenanceRun, raw).obj
        status = part(raw, "status")
        if raw["metadata"]["uid"] == run.metadata.uid or status.get("phase") in ENDED:
            continue
        if other is None:
            if status.get("rules"):
                found.append(raw["metadata"]["name"])
            continue
        before, holds = _order(other) < _order(run), bool(other.status.rules)
        blocked = other.status.phase is Phase.BLOCKED
        if run.status.phase in TOWARDS_EVICTION:
            mine, its = _progress(run), _progress(other)
            first = holds and not blocked and (its > mine or (its == mine and before))
        else:
            first = holds or (before and not blocked)
        if first and _meet(other, run, seen):
            found.append(other.name)
    return tuple(sorted(found))


def _progress(run: MaintenanceRun) -> int:
    phase = run.status.phase
    return TOWARDS_EVICTION.index(phase) if phase in TOWARDS_EVICTION else len(TOWARDS_EVICTION)


def _order(run: MaintenanceRun) -> tuple[str, str]:
    created = run.metadata.creation_timestamp
    return (created.isoformat() if created else "", run.name)


def _meet(other: MaintenanceRun, run: MaintenanceRun, seen: _Seen) -> bool:
    """Whether the other run has a device of this one's plan under a rule, or its target means one, or the hardware of
    one. Without a plan: whether their targets can mean one device by name."""
    if seen.plan is None or seen.snapshot is None:
        return overlap(other.spec.target, run.spec.target)
    rules = [DeviceSelector(driver=r.driver, pool=r.pool, device=r.device) for r in other.status.rules]
    devices = seen.plan.devices
    return any(selects(rule, device.id) for rule in rules for device in devices) or may_mean(
        seen.snapshot, other.spec.target, devices
    )


def overlap(one: Target, other: Target) -> bool:
    """Whether two targets can mean one device, by its name. A criterion that is absent means any."""

    def meets(a: str | None, b: str | None) -> bool:
        return a is None or b is None or a == b

    return meets(one.driver, other.driver) and meets(one.pool, other.pool) and meets(one.device, other.device)


def scope_of(target: Target, *, pools: frozenset[PoolKey] = frozenset(), nodes: tuple[str, ...] = ()) -> Scope:
    """What of a cluster has to be read to plan for a target."""
    narrower = target.device is not None or target.by_attribute
    return Scope(
        driver=target.driver,
        pool=target.pool,
        node_selector=target.node_selector,
        pick=partial(pools_meant, target) if narrower else None,
        pools=pools,
        nodes=nodes,
    )


def valid_approvals(raws: Iterable[dict[str, object]], run_name: str) -> tuple[MaintenanceApproval, ...]:
    """The approvals for that run that have no problem, in a stable order."""
    checked = (check(MaintenanceApproval, raw) for raw in raws)
    valid = (c.obj for c in checked if c.obj is not None and not c.problems)
    return tuple(sorted((a for a in valid if a.spec.run_name == run_name), key=lambda a: a.name))
