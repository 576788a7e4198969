"""Small builders for the workflow's values, and a world in which decisions are carried out by the book.

`World` stands in for the cluster and for reconcile: it stores a status, does the actions in order, writes the messages
that the control plane would write (wording of recordings 02 and 05), and checks at every NoExecute that the gate's
promises hold. It has no clock: `now` moves by `pass_time`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from taintctl.api.approval import ApprovalAuthor, ApprovalDecision, ApprovalSpec, MaintenanceApproval
from taintctl.api.base import FINALIZER, ObjectMeta
from taintctl.api.check import FieldProblem
from taintctl.api.objects import DeviceTaintRule, Meta, ObjectCondition, RuleConditions
from taintctl.api.plan import (
    Budget,
    DeviceID,
    Idleness,
    Plan,
    PlannedDevice,
    PlannedPod,
    PlannedRule,
    PodRef,
    Problem,
    Verdict,
)
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Effect, Phase, PodEffect, Reason
from taintctl.api.rule import EvictionOutcome, EvictionResult, RuleManifest
from taintctl.api.run import MaintenanceRun, RunStatus
from taintctl.workflow import decide
from taintctl.workflow.model import (
    Action,
    AddFinalizer,
    CreateRule,
    Decision,
    DeleteRule,
    EvictPod,
    Observation,
    RemoveFinalizer,
    SetEffect,
    Settings,
)

NOW = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
DRIVER = "gpu.example.com"
RUN_UID = "7a3c1d52-8f43-4f0e-9c1b-2f1f4d0c9a11"


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def make_run(*, status: RunStatus | None = None, meta: dict[str, Any] | None = None, **spec: Any) -> MaintenanceRun:
    """A run of eight hours on one pool; fields of the spec by their Python or API names."""
    body = {"target": {"driver": DRIVER, "pool": "node-1"}, "deadline": NOW + 8 * HOUR, "policyName": "careful", **spec}
    metadata = {"name": "night", "uid": RUN_UID, "resourceVersion": "1", "generation": 1, "finalizers": (FINALIZER,)}
    return MaintenanceRun.model_validate(
        {"metadata": {**metadata, **(meta or {})}, "spec": body, "status": status or RunStatus()}
    )


def make_policy(**spec: Any) -> EvictionPolicy:
    """Lets everything pass without people, unless told otherwise."""
    spec.setdefault("approval", {"required": "Never"})
    metadata = {"name": "careful", "uid": "policy-uid", "generation": 1}
    return EvictionPolicy.model_validate({"metadata": metadata, "spec": spec})


def make_pod(name: str, effect: PodEffect = PodEffect.EVICTED, **more: Any) -> PlannedPod:
    """A pod `namespace/name` (namespace `team-a` where the name has none) on device gpu-0 of node-1."""
    namespace, _, short = name.rpartition("/")
    more.setdefault("devices", (DeviceID(DRIVER, "node-1", "gpu-0"),))
    more.setdefault("claims", (f"{short}-claim",))
    return PlannedPod(namespace=namespace or "team-a", name=short, uid=f"uid-{short}", effect=effect, **more)


def make_plan(
    pods: Iterable[PlannedPod | str] = ("train",),
    *,
    pools: Iterable[str] = ("node-1",),
    gpus: int = 2,
    budgets: tuple[Budget, ...] = (),
    uuid: str = "GPU",
) -> Plan:
    """A plan whose rules predict what the control plane counts: pods that the taint reaches, each once a rule."""
    all_pods = tuple(sorted(make_pod(p) if isinstance(p, str) else p for p in pods))
    devices = tuple(
        PlannedDevice(DeviceID(DRIVER, pool, f"gpu-{n}"), uuid=f"{uuid}-{pool}-{n}", node=pool)
        for pool in pools
        for n in range(gpus)
    )
    rules = []
    for pool in pools:
        there = [p for p in all_pods if any(d.pool == pool for d in p.devices)]
        reached = [p for p in there if p.effect in (PodEffect.EVICTED, PodEffect.EVICTED_LATER) and not p.terminating]
        rules.append(
            PlannedRule(
                driver=DRIVER,
                pool=pool,
                device=None,
                published=gpus,
                allocated=len({(p.uid, d) for p in there for d in p.devices if d.pool == pool}),
                pods=len(reached),
                namespaces=len({p.namespace for p in reached}),
            )
        )
    return Plan(devices=devices, pods=all_pods, rules=tuple(rules), budgets=budgets, computed_at=NOW)


def said(planned: PlannedRule) -> str:
    """The message of an effect-None rule, in the wording of recording 02."""

    def some(count: int, one: str, many: str) -> str:
        return f"{count} {one if count == 1 else many}"

    return (
        f"{some(planned.published, 'published device', 'published devices')} selected. "
        f"{some(planned.allocated, 'allocated device', 'allocated devices')} selected. "
        f"{some(planned.pods, 'pod', 'pods')} would be evicted in "
        f"{some(planned.namespaces, 'namespace', 'different namespaces')} if the effect was NoExecute. "
        "This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
    )


def make_rule(manifest: RuleManifest, *, uid: str = "rule-uid", resource_version: str = "10") -> DeviceTaintRule:
    """The object that an API server keeps of a manifest."""
    raw = manifest.to_object()
    raw["metadata"] |= {"uid": uid, "resourceVersion": resource_version, "generation": 1}
    return msgspec.convert(raw, DeviceTaintRule)


def make_approval(
    digest: str,
    *,
    who: str = "alice",
    deny: bool = False,
    breaks: bool = False,
    at: datetime = NOW,
    comment: str | None = None,
) -> MaintenanceApproval:
    said = ApprovalDecision.DENY if deny else ApprovalDecision.BREAK if breaks else ApprovalDecision.APPROVE
    return MaintenanceApproval(
        metadata=ObjectMeta(name=f"night-{who}-{said}".lower(), uid=f"uid-{who}-{said}", creation_timestamp=at),
        spec=ApprovalSpec(
            run_name="night",
            digest=digest,
            decision=said,
            approver=ApprovalAuthor(name=who),
            comment=comment,
        ),
    )


IDLE = Idleness(Verdict.TRUE, Reason.DEVICES_IDLE, "No pod holds a device.")


def idleness_of(plan: Plan | None) -> Idleness:
    """By the plan alone: whoever holds a device, but monitors with adminAccess that tolerate."""
    if plan is None:
        return Idleness(Verdict.UNKNOWN, Reason.CLUSTER_UNREADABLE, "The cluster can't be read.")
    holders = [p for p in plan.pods if not (p.admin_access and p.effect is PodEffect.TOLERATES)]
    if not holders:
        return IDLE
    refs = tuple(PodRef(namespace=p.namespace, name=p.name, uid=p.uid) for p in holders)
    leaving = tuple(r for r, p in zip(refs, holders, strict=True) if p.terminating)
    return Idleness(Verdict.FALSE, Reason.DEVICES_IN_USE, f"{holders[0].key} holds a device.", refs, leaving)


class Killed(Exception):
    """The controller was killed in the middle of carrying out a decision."""


@dataclass
class World:
    """A cluster by the book, and the controller on it. Change its fields between steps."""

    run: MaintenanceRun = field(default_factory=make_run)
    plan: Plan | None = field(default_factory=make_plan)
    policy: EvictionPolicy | None = field(default_factory=make_policy)
    policy_problem: Problem | None = None
    plan_problem: Problem | None = None
    problems: tuple[FieldProblem, ...] = ()
    approvals: tuple[MaintenanceApproval, ...] = ()
    verified: bool = True
    earlier_runs: tuple[str, ...] = ()
    settings: Settings = field(default_factory=lambda: Settings(node_silence=timedelta(0)))
    """No wait for nodes that may have fallen silent, but where a test is about that."""
    now: datetime = NOW
    live: bool = True
    idle: Idleness | None = None
    """None: as the plan says."""
    controller_silent: bool = False
    message: Callable[[PlannedRule], str] = said
    outcome: Callable[[EvictPod], EvictionOutcome | None] | None = None
    kill_after: int | None = None
    """Kill the controller after this many writes (the status is one)."""
    rules: dict[str, DeviceTaintRule] = field(default_factory=dict)
    outcomes: tuple[EvictionOutcome, ...] = ()
    undone: str = ""
    idle_since: datetime | None = None
    clock_set: timedelta = timedelta(0)
    events: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    made_at: dict[str, datetime] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    _writes: int = 0

    @property
    def status(self) -> RunStatus:
        return self.run.status

    @property
    def phase(self) -> Phase | None:
        return self.run.status.phase

    @property
    def effects(self) -> set[str]:
        return {str(rule.spec.taint.effect) for rule in self.rules.values()}

    def observe(self) -> Observation:
        return Observation(
            run=self.run,
            problems=self.problems,
            policy=self.policy,
            policy_problem=self.policy_problem,
            approvals=self.approvals,
            approvals_verified=NOW - timedelta(days=1) if self.verified else None,
            rules=tuple(self.rules.values()),
            plan=self.plan,
            plan_problem=self.plan_problem,
            idleness=self.idle or idleness_of(self.plan),
            earlier_runs=self.earlier_runs,
            live=self.live,
            taken_at=self.now,
            outcomes=self.outcomes,
            undone=self.undone,
            idle_for=self._idle_for(),
            settings=self.settings,
        )

    def _idle_for(self) -> timedelta:
        """As the loop counts it; `clock_set` is what somebody set the clock forward by, which that does not notice."""
        if self.phase is not Phase.DRAINING or (self.idle or idleness_of(self.plan)).verdict is not Verdict.TRUE:
            self.idle_since = None
            return timedelta(0)
        self.idle_since = self.idle_since or self.now - self.clock_set
        return self.now - self.clock_set - self.idle_since

    def step(self) -> Decision:
        """One look, one decision, carried out. Raises Killed where it was asked to."""
        observation = self.observe()
        decision = decide(observation, self.now)
        self.outcomes = ()
        if decision.status != self.run.status:
            self._write()
            # As an API server stores it: through JSON, so that nothing lives in memory alone.
            self.run = self.run.model_copy(update={"status": RunStatus.model_validate(decision.status.dump())})
        for action in decision.actions:
            self._write()
            self._do(action, observation)
        self.events += [event.reason for event in decision.events]
        return decision

    def settle(self, limit: int = 40) -> Decision:
        """Steps until a decision waits for time or for a change."""
        for _ in range(limit):
            decision = self.step()
            busy = decision.requeue_after == timedelta(0) or decision.need_live or self.outcomes
            if not busy and self._quiet(decision):
                return decision
        raise AssertionError(f"still at work after {limit} steps: {self.status.phase} {self.status.message}")

    def _quiet(self, decision: Decision) -> bool:
        return not decision.actions and decision.status == decide(self.observe(), self.now).status

    def pass_time(self, wait: timedelta | float) -> World:
        self.now += wait if isinstance(wait, timedelta) else seconds(wait)
        return self

    def until(self, phase: Phase, limit: int = 200) -> World:
        """Time passes as decisions ask for it, until the run is in `phase`."""
        for _ in range(limit):
            if self.phase is phase:
                return self
            decision = self.step()
            if decision.requeue_after is None:
                break
            if decision.requeue_after:
                self.pass_time(decision.requeue_after)
        assert self.phase is phase, f"{self.phase} and not {phase}: {self.status.reason}: {self.status.message}"
        return self

    def spec(self, **changes: Any) -> World:
        """Somebody edits the run."""
        spec = self.run.spec.model_copy(update=changes)
        meta = self.run.metadata.model_copy(update={"generation": self.run.metadata.generation + 1})
        self.run = self.run.model_copy(update={"spec": spec, "metadata": meta})
        return self

    def delete(self) -> World:
        """Somebody deletes the run; the finalizer keeps it."""
        meta = self.run.metadata.model_copy(update={"deletion_timestamp": self.now})
        self.run = self.run.model_copy(update={"metadata": meta})
        return self

    def approve(self, who: str = "alice", **more: Any) -> World:
        asked = self.status.approval.asked if self.status.approval else None
        assert asked is not None, "nothing is asked yet"
        self.approvals += (make_approval(asked.digest, who=who, at=self.now, **more),)
        return self

    def edit_rule(self, name: str, **taint: Any) -> World:
        """Somebody edits a rule's taint by hand."""
        rule = self.rules[name]
        spec = msgspec.structs.replace(rule.spec, taint=msgspec.structs.replace(rule.spec.taint, **taint))
        meta = msgspec.structs.replace(rule.metadata, generation=rule.metadata.generation + 1)
        self.rules[name] = msgspec.structs.replace(rule, spec=spec, metadata=meta)
        return self

    def condition(
        self,
        name: str,
        status: str,
        message: str = "",
        *,
        reason: str = "PodsPendingEviction",
        generation: int | None = None,
    ) -> World:
        """The eviction controller says something about a rule, as it is now or at another generation."""
        self.rules[name] = _with_condition(self.rules[name], status, reason, message, generation)
        return self

    def evictions_complete(self) -> World:
        """The control plane has deleted what the taint reaches, and says so (recording 05)."""
        assert self.plan is not None
        self.plan = make_plan(
            [p for p in self.plan.pods if p.effect not in (PodEffect.EVICTED, PodEffect.EVICTED_LATER)],
            pools=sorted({r.pool for r in self.plan.rules}),
        )
        for name in self.rules:
            self.condition(name, "False", "1 pod evicted since starting the controller.", reason="Completed")
        return self

    def name_of(self, number: int = 0) -> str:
        return f"taintctl-{RUN_UID}-{number}"

    # What the API server and the control plane do.

    def _write(self) -> None:
        if self.kill_after is not None and self._writes >= self.kill_after:
            self.kill_after = None
            raise Killed
        self._writes += 1

    def _do(self, action: Action, observation: Observation) -> None:
        match action:
            case CreateRule(manifest):
                assert manifest.name not in self.rules, f"{manifest.name} is made twice"
                assert manifest.effect is Effect.NONE
                self.made.append(manifest.name)
                self.made_at[manifest.name] = self.now
                rule = make_rule(manifest, uid=f"rule-uid-{len(self.made)}")
                self.rules[manifest.name] = rule if self.controller_silent else self._dry_run(rule)
            case DeleteRule(name, uid):
                if name in self.rules and self.rules[name].metadata.uid == uid:
                    del self.rules[name]
            case SetEffect():
                self._set_effect(action, observation)
            case EvictPod():
                self._evict(action)
            case AddFinalizer():
                self._finalizers((*self.run.metadata.finalizers, FINALIZER))
            case RemoveFinalizer():
                assert not self.rules, "the run would go and its rules stay"
                self._finalizers(tuple(f for f in self.run.metadata.finalizers if f != FINALIZER))

    def _finalizers(self, finalizers: tuple[str, ...]) -> None:
        meta = self.run.metadata.model_copy(update={"finalizers": finalizers})
        self.run = self.run.model_copy(update={"metadata": meta})

    def _dry_run(self, rule: DeviceTaintRule) -> DeviceTaintRule:
        chosen = rule.spec.device_selector
        assert chosen is not None
        known = self.plan.rules if self.plan is not None else ()
        planned = next(
            (r for r in known if (r.driver, r.pool, r.device) == (chosen.driver, chosen.pool, chosen.device)),
            PlannedRule(DRIVER, chosen.pool or "", chosen.device, 0, 0, 0, 0),
        )
        return _with_condition(rule, "False", "NoEffect", self.message(planned))

    def _set_effect(self, action: SetEffect, observation: Observation) -> None:
        rule = self.rules[action.name]
        assert rule.metadata.uid == action.uid
        assert rule.metadata.resource_version == action.resource_version
        if action.effect is Effect.NO_EXECUTE:
            assert observation.live
            assert observation.plan is not None
            assert action.not_after is not None
            assert self.now <= action.not_after
            assert self.status.phase is Phase.EVICTING, "NoExecute before the status says so"
            for name in [rule.metadata.name for rule in observation.rules if not rule.metadata.name.endswith("-dry")]:
                age = self.now - self.made_at[f"{name}-dry"]
                assert age <= seconds(60), "the second look is stale"
        version = str(int(action.resource_version) + 1)
        meta = msgspec.structs.replace(rule.metadata, generation=rule.metadata.generation + 1, resource_version=version)
        taint = msgspec.structs.replace(rule.spec.taint, effect=str(action.effect))
        rule = msgspec.structs.replace(rule, metadata=meta, spec=msgspec.structs.replace(rule.spec, taint=taint))
        self.rules[action.name] = rule
        if self.controller_silent:
            return
        if action.effect is Effect.NO_EXECUTE:
            self.condition(action.name, "True", "1 pod needs to be evicted in 1 namespace.")
        else:
            self.condition(action.name, "False", "", reason="NoEffect")

    def _evict(self, action: EvictPod) -> None:
        """By the Eviction API: the pod is marked and gone, unless a test says otherwise."""
        self.evicted.append(action.name)
        result = self.outcome(action) if self.outcome is not None else None
        if result is None:
            result = EvictionOutcome(action.namespace, action.name, action.uid, EvictionResult.EVICTED)
        if result.result is EvictionResult.EVICTED and self.plan is not None:
            pools = sorted({r.pool for r in self.plan.rules})
            self.plan = make_plan([p for p in self.plan.pods if p.uid != action.uid], pools=pools)
        self.outcomes += (result,)


def _with_condition(
    rule: DeviceTaintRule, status: str, reason: str, message: str, generation: int | None = None
) -> DeviceTaintRule:
    """As an API server stores a status: the resourceVersion moves, the generation does not."""
    found = ObjectCondition(
        type="EvictionInProgress",
        status=status,
        reason=reason,
        message=message,
        observed_generation=rule.metadata.generation if generation is None else generation,
    )
    version = str(int(rule.metadata.resource_version) + 1)
    meta: Meta = msgspec.structs.replace(rule.metadata, resource_version=version)
    return msgspec.structs.replace(rule, metadata=meta, status=RuleConditions((found,)))


def terminating(pod: PlannedPod) -> PlannedPod:
    return replace(pod, terminating=True)
