"""The plan as a run's status shows it, and whether it may go on: policy, approval, and what was asked about."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from taintctl.api.base import MAX_DURATION, MAX_LISTED
from taintctl.api.plan import (
    Plan,
    PlanBudget,
    PlanCounts,
    PlanDevice,
    PlanLost,
    PlanPod,
    PlanStatus,
    PlanViolation,
    Violation,
)
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import ConditionType, Phase, PodEffect, Reason
from taintctl.api.run import ApprovalStatus, IgnoredApproval, MaintenanceRun
from taintctl.api.text import plural, some
from taintctl.policy import (
    Evaluation,
    Tally,
    Terms,
    compact,
    covers,
    digest,
    evaluate,
    newly_protected,
    people_needed,
    tally,
    uncovered,
)
from taintctl.workflow.look import Look
from taintctl.workflow.rules import main_rules, selector
from taintctl.workflow.text import others_first, short

MAX_VIOLATIONS = 50
MAX_LOST = 10
"""Gangs that a status lists, and pods of each."""
NO_TALLY = Tally(given=(), denied=None, ignored=())


@dataclass(frozen=True)
class Standing:
    """How a plan stands with the policy and with the people asked, at this look."""

    plan: Plan
    policy: EvictionPolicy
    evaluation: Evaluation
    needed: int
    covered: bool
    """The plan that was asked about covers it."""
    tally: Tally

    @property
    def approved(self) -> bool:
        return self.covered and self.tally.complete(self.needed) and not self.unbroken

    @property
    def unbroken(self) -> bool:
        """The plan hits protected pods, and nobody has given a Break for it."""
        return bool(self.evaluation.protected) and not (self.covered and self.tally.broken)

    @property
    def ask(self) -> str:
        """`2 approvals (one of them with Break)`."""
        how = ", with Break" if self.needed == 1 else " (at least one with Break)"
        return plural(self.needed, "approval") + (how if self.evaluation.protected else "")

    @property
    def violations(self) -> tuple[Violation, ...]:
        return self.evaluation.violations


def judged(run: MaintenanceRun, plan: Plan, policy: EvictionPolicy, now: datetime, *, speed: float) -> Evaluation:
    """The plan held against the policy, at that time."""
    spec = run.spec
    left = spec.deadline - max(now, spec.start_at or now)
    return evaluate(
        plan,
        policy,
        drain_timeout=spec.drain.timeout,
        drain_mode=spec.drain.mode,
        # Delays in specifications pass faster by the speed; a deadline is a time. (Bounded, since years overflow.)
        time_left=min(left, MAX_DURATION) * speed,
    )


def standing(look: Look, plan: Plan, policy: EvictionPolicy) -> Standing:
    obs, approval = look.obs, look.status.approval
    evaluation = judged(obs.run, plan, policy, look.now, speed=obs.settings.speed)
    asked = approval.asked if approval is not None else None
    return Standing(
        plan=plan,
        policy=policy,
        evaluation=evaluation,
        needed=people_needed(plan, policy, protected=bool(evaluation.protected)),
        covered=asked is not None and covers(asked, plan, policy, evaluation.violations, run_uid=obs.run.metadata.uid),
        tally=count(look, policy),
    )


def count(look: Look, policy: EvictionPolicy) -> Tally:
    """Who has approved or denied what was asked about."""
    obs, approval = look.obs, look.status.approval
    if approval is None or approval.asked is None:
        return NO_TALLY
    terms = Terms(
        approval.asked,
        policy,
        verified_since=obs.approvals_verified,
        allow_unverified=obs.settings.allow_unverified_approvals,
        asked_at=approval.asked_at,
        expires_at=approval.expires_at,
        requested_by=obs.run.spec.requested_by,
    )
    return tally(obs.approvals, terms)


@dataclass(frozen=True)
class Refusal:
    """Why a run may not go on, and where that leads: `to` None is to wait where it is."""

    reason: Reason
    message: str
    to: Phase | None = None
    next_step: str = ""
    """What a person would do next, where it is not about the policy."""


def stands(look: Look) -> Standing | Refusal:
    """Whether what was planned, allowed and approved still holds at this look (cached or live, the caller says which):
    `plan_stands`, and then whether enough people have approved."""
    now = plan_stands(look)
    if isinstance(now, Refusal) or now.approved:
        return now
    return _changed(f"{now.ask} needed and {len(now.tally.given)} given for it")


def plan_stands(look: Look) -> Standing | Refusal:
    """In this order: can it be read, is there a policy, has somebody denied, is there a plan, does no other run go
    first, is it for the same rules, does policy allow it, is it the plan (or a smaller) that was asked about."""
    obs = look.obs
    policy = _judge(look)
    if isinstance(policy, Refusal):
        return policy
    if obs.plan_problem is not None:
        return Refusal(Reason.PLAN_CHANGED, obs.plan_problem.message, Phase.DRY_RUN)
    if obs.earlier_runs:
        return Refusal(Reason.PLAN_CHANGED, others_first(obs.earlier_runs), Phase.DRY_RUN)
    assert obs.plan is not None  # else unreadable
    now = standing(look, obs.plan, policy)
    if {selector(rule) for rule in obs.plan.rules} != {selector(rule) for rule in main_rules(look.status)}:
        return _changed("the devices are no longer those of the dry run")
    if now.evaluation.blocking:
        return _changed(violated(now.evaluation.blocking))
    if not now.covered:
        return _changed("a device, a pod or the policy is not as it was asked about")
    asked = look.status.approval
    if now.needed and asked is not None and asked.expires_at is None:
        # It was within autoApprove, which also minds what other runs have taken out since.
        return _changed("it is no longer within autoApprove")
    return now


def word_stands(look: Look) -> Refusal | None:
    """Whether the word still stands on which taintctl evicts, pod by pod: the cluster can be read, there is a policy,
    nobody has denied since, and no approval was withdrawn. The pods are held against the approved plan one by one."""
    policy = _judge(look)
    if isinstance(policy, Refusal):
        return policy
    approval, given, plan = look.status.approval, count(look, policy), look.obs.plan
    if approval is None or approval.asked is None:
        return _changed("what was approved is not known any more")
    if approval.break_needed and not given.broken:
        return _changed("the Break for protected pods was taken back")
    if look.obs.plan_problem is None and plan is not None:
        run_uid, protected = look.obs.run.metadata.uid, standing(look, plan, policy).evaluation.protected
        if newly_protected(approval.asked, protected) - uncovered(approval.asked, plan, run_uid=run_uid):
            return _changed("a pod of the plan is protected now that was not")
    if not given.complete(approval.needed):
        return _changed(f"{plural(approval.needed, 'approval')} needed and {len(given.given)} given for it")
    return None


def _judge(look: Look) -> EvictionPolicy | Refusal:
    """The policy, where everything could be read and nobody has denied."""
    obs = look.obs
    if (unreadable := look.unreadable) is not None:
        return Refusal(Reason.CLUSTER_UNREADABLE, unreadable.message)
    if obs.policy is None:
        problem = look.policy_problem
        assert problem is not None
        return Refusal(Reason(problem.reason), problem.message, Phase.BLOCKED)
    denied = count(look, obs.policy).denied
    if denied is not None:
        return Refusal(Reason.DENIED, denial(denied.who, denied.comment), Phase.ROLLING_BACK)
    return obs.policy


def _changed(why: str) -> Refusal:
    return Refusal(Reason.PLAN_CHANGED, f"Nothing more is done on the old plan: {why}.", Phase.DRY_RUN)


def denial(approver: str, comment: str) -> str:
    return f"{approver} denied the eviction" + (f": {short(comment, 300)}" if comment else ".")


def violated(violations: tuple[Violation, ...]) -> str:
    return " ".join(short(violation.message, 300) for violation in violations[:MAX_VIOLATIONS])


def ask(look: Look, now: Standing) -> tuple[Look, Reason]:
    """Asks about the plan, unless what was asked covers it already: then that stands, with the approvals given.

    A question that ran out unanswered is asked anew. The reason says which it was."""
    old = look.status.approval
    stands = (
        old is not None
        and now.covered
        and (now.approved or old.expires_at is None or look.now < old.expires_at)
        and (now.needed == 0 or old.expires_at is not None)
    )
    if stands:
        reason = Reason.WAITING_FOR_APPROVAL
    else:
        expires = look.now + look.scaled(now.policy.spec.approval.expires_after)
        asked = ApprovalStatus(
            asked=compact(now.plan, now.policy, now.violations, run_uid=look.obs.run.metadata.uid),
            asked_at=look.now,
            needed=now.needed,
            expires_at=expires if now.needed else None,
        )
        other = old is not None and old.asked is not None and not now.covered
        reason = Reason.PLAN_CHANGED if other else Reason.WAITING_FOR_APPROVAL
        look = look.with_status(approval=asked)
    if now.needed == 0:
        reason = Reason.AUTO_APPROVED
    return look, reason


def ask_again(look: Look, now: Standing) -> Look:
    """The question that ran out is asked anew; approvals that were given for it answer an earlier one. Not sooner than
    a dry run grows old, whatever approval.expiresAfter says: that would be a hot loop."""
    old = look.status.approval
    assert old is not None
    wait = max(look.scaled(now.policy.spec.approval.expires_after), look.freshness)
    changes = {"asked_at": look.now, "expires_at": look.now + wait, "given": ()}
    return look.with_status(approval=old.model_copy(update=changes))


def with_tally(look: Look, now: Standing) -> Look:
    """Status and condition of the approval."""
    old = look.status.approval
    assert old is not None
    approval = old.model_copy(
        update={
            "needed": now.needed,
            "break_needed": bool(now.evaluation.protected),
            "given": now.tally.given,
            "ignored": tuple(
                IgnoredApproval(approval=i.approval, reason=i.reason, message=short(i.message, 256))
                for i in now.tally.ignored
            ),
            "approved_at": (old.approved_at or look.now) if now.approved else None,
        }
    )
    look = look.with_status(approval=approval)
    given = len(now.tally.given)
    if now.approved and now.needed == 0:
        return look.with_condition(
            ConditionType.APPROVED, True, Reason.AUTO_APPROVED, "The policy lets this plan pass without an approval."
        )
    if now.approved:
        people = some([g.who for g in now.tally.given])
        return look.with_condition(ConditionType.APPROVED, True, Reason.APPROVED, f"Approved by {people}.")
    unverified = next((i for i in now.tally.ignored if i.reason is Reason.APPROVERS_UNVERIFIED), None)
    if unverified is not None:
        return look.with_condition(ConditionType.APPROVED, "Unknown", unverified.reason, unverified.message)
    return look.with_condition(
        ConditionType.APPROVED,
        False,
        Reason.WAITING_FOR_APPROVAL,
        f"{given} of {now.ask} given.",
    )


def with_plan(look: Look, now: Standing) -> Look:
    """The plan in the status, and whether it is within policy. An equal plan keeps its time, so that a look that finds
    nothing new writes nothing."""
    plan, policy, old = now.plan, now.policy, look.status.plan
    counted = plan.counted_pods
    shown = PlanStatus(
        digest=digest(plan, policy, now.violations, run_uid=look.obs.run.metadata.uid),
        computed_at=look.now,
        policy_generation=policy.metadata.generation,
        devices=tuple(
            PlanDevice(driver=d.id.driver, pool=d.id.pool, device=d.id.device, uuid=d.uuid, node=d.node)
            for d in plan.devices[:MAX_LISTED]
        ),
        more_devices=max(0, len(plan.devices) - MAX_LISTED),
        pods=tuple(
            PlanPod(
                namespace=p.namespace,
                name=p.name,
                uid=p.uid,
                owner=p.owner,
                owner_unread=p.owner_unread or None,
                effect=p.effect,
            )
            for p in plan.pods[:MAX_LISTED]
        ),
        more_pods=max(0, len(plan.pods) - MAX_LISTED),
        counts=PlanCounts(
            devices=len(plan.devices),
            unavailable=plan.unavailable,
            published=plan.published,
            pods=len(counted),
            namespaces=len(plan.namespaces),
            workloads=len(plan.workloads),
            tolerating_pods=sum(p.effect is PodEffect.TOLERATES for p in plan.pods),
            lost_pods=plan.lost_pods,
        ),
        agreement=old.agreement if old is not None else None,
        violations=tuple(
            PlanViolation(check=v.check, limit=v.limit, actual=v.actual, message=short(v.message, 512))
            for v in now.violations[:MAX_VIOLATIONS]
        ),
        budgets=tuple(
            PlanBudget(namespace=b.namespace, name=b.name, allowed=b.allowed, needed=b.needed)
            for b in plan.budgets[:MAX_LISTED]
        ),
        more_budgets=max(0, len(plan.budgets) - MAX_LISTED),
        lost_with=tuple(
            PlanLost(
                namespace=lost.namespace,
                owner=lost.owner,
                part=lost.part or None,
                hit=lost.hit,
                count=len(lost.pods),
                pods=tuple(pod.name for pod in lost.pods[:MAX_LOST]),
            )
            for lost in plan.lost_with[:MAX_LOST]
        ),
        more_lost_with=max(0, len(plan.lost_with) - MAX_LOST),
        multiple_budgets=plan.multiple_budgets[:MAX_LISTED],
    )
    if old is not None and old.digest != shown.digest:
        # What was agreed on was another plan.
        shown = shown.model_copy(update={"agreement": None})
    if old is not None and old.model_copy(update={"computed_at": shown.computed_at}) == shown:
        shown = old
    look = look.with_status(plan=shown)
    if now.evaluation.blocking or now.unbroken:
        return look.with_condition(ConditionType.WITHIN_POLICY, False, Reason.POLICY_VIOLATED, violated(now.violations))
    warned = (*now.evaluation.protected, *now.evaluation.warnings)
    broken = f" with the Break of {some(now.tally.broken)}" if now.evaluation.protected else ""
    return look.with_condition(
        ConditionType.WITHIN_POLICY,
        True,
        Reason.WITHIN_POLICY,
        f"EvictionPolicy {policy.name} allows the plan{broken}." + (f" Mind: {violated(warned)}" if warned else ""),
    )


def summary(plan: Plan) -> str:
    """`4 pods in 2 namespaces on 8 devices`."""
    pods, spaces = plural(len(plan.counted_pods), "pod"), plural(len(plan.namespaces), "namespace")
    return f"{pods} in {spaces} on {plural(len(plan.devices), 'device')}"
