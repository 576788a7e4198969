"""Who must say yes, and who has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from taintctl.api.approval import ApprovalDecision, MaintenanceApproval
from taintctl.api.plan import Plan
from taintctl.api.policy import ApprovalRequired, EvictionPolicy, Limits
from taintctl.api.reasons import Reason
from taintctl.api.run import CompactPlan, GivenApproval
from taintctl.policy.people import Mark, asked_themself, marks, not_among, same_people, who

MAX_IGNORED = 20
"""How many of the approvals that do not count are explained."""
CLOCK_SKEW = timedelta(seconds=5)
"""How far the API server's clock (creationTimestamp, whole seconds) and ours may be apart."""


@dataclass(frozen=True)
class Ignored:
    """An approval that does not count, and why, as its own status says it."""

    approval: str
    reason: Reason
    message: str


@dataclass(frozen=True)
class Tally:
    """Who approved the plan that was asked about (the first approval of each person), who denied it, and what does
    not count."""

    given: tuple[GivenApproval, ...]
    denied: GivenApproval | None
    ignored: tuple[Ignored, ...]

    @property
    def broken(self) -> tuple[str, ...]:
        """Who let protected pods go."""
        return tuple(given.approver for given in self.given if given.breaks)

    def complete(self, needed: int) -> bool:
        """Whether enough people approved and nobody denied. With none needed, nobody has to."""
        return self.denied is None and len(self.given) >= needed


def people_needed(plan: Plan, policy: EvictionPolicy, *, protected: bool = False) -> int:
    """How many different people must approve `plan`; 0: it passes without. An empty autoApprove (as the built-in
    policy's) approves nothing, not even a plan that hits nobody. A plan that hits protected pods is always asked about,
    whatever autoApprove and approval.required say."""
    approval, auto = policy.spec.approval, policy.spec.auto_approve
    if protected:
        return approval.count
    if approval.required is ApprovalRequired.NEVER:
        return 0
    if approval.required is ApprovalRequired.ALWAYS or auto.empty:
        return approval.count
    within = all(
        limit is None or actual <= limit
        for limit, actual in (
            (auto.max_pods, len(plan.counted_pods)),
            (auto.max_namespaces, len(plan.namespaces)),
            (auto.max_workloads, len(plan.workloads)),
            (_devices(auto, auto.max_devices, plan), len(plan.devices)),
            (_devices(auto, auto.max_unavailable, plan), plan.unavailable),
        )
    )
    return 0 if within else approval.count


def _devices(auto: Limits, amount: int | str | None, plan: Plan) -> int | None:
    return None if amount is None else auto.devices(amount, plan.published)


@dataclass(frozen=True)
class Terms:
    """What the approvals of one run are held against: the plan that was `asked` about at `asked_at`, until
    `expires_at`."""

    asked: CompactPlan
    policy: EvictionPolicy
    verified_since: datetime | None
    """Since when the cluster proves who writes an approval; None: it does not."""
    allow_unverified: bool
    asked_at: datetime | None
    expires_at: datetime | None
    requested_by: str | None = None


def tally(approvals: Sequence[MaintenanceApproval], terms: Terms) -> Tally:
    """Counts the approvals of one run.

    A Break is an Approve that also lets protected pods go: it counts by the same rules, and where one person gave both
    it is the Break that counts. Who asked for the run (`requested_by`) does not count, unless the policy has
    approval.selfApproval.
    An Approve counts for that digest alone, from somebody who may, once a person (wherever they said it), and only
    where the cluster proved who wrote it at that time (`verified_since`) or that was waived. One written before the
    asking answers an earlier question; one written after the expiry came too late, also where nobody was there to say
    so at the time.
    A Deny needs less, since stopping is safe: it counts unverified too, and for another digest if written since the
    asking (the plan may have changed while somebody read it). One Deny wins over any number of approvals.
    """
    found = _count(approvals, terms)
    return replace(found, ignored=found.ignored[:MAX_IGNORED])


def objection(approval: MaintenanceApproval, others: Sequence[MaintenanceApproval], terms: Terms) -> Ignored | None:
    """Why `approval` would not count beside the others, before it is written; None: it would."""
    found = _count([*others, approval], terms)
    return next((one for one in found.ignored if one.approval == approval.name), None)


def _count(approvals: Sequence[MaintenanceApproval], terms: Terms) -> Tally:
    given: dict[frozenset[Mark], GivenApproval] = {}
    denied: GivenApproval | None = None
    ignored: list[Ignored] = []
    people = same_people((approval.spec for approval in approvals), terms.policy)
    for approval in sorted(approvals, key=_order):
        spec, name = approval.spec, approval.name
        known = marks(spec, terms.policy)
        person = next(one for one in people if known <= one)
        if (why := not_among(spec, terms.policy)) != "":
            ignored.append(Ignored(name, Reason.NOT_AN_APPROVER, why))
        elif spec.decision is ApprovalDecision.DENY and not _before(approval, terms.asked_at):
            denied = denied or _given(approval)
        elif (refused := _refused(approval, person, terms)) is not None:
            ignored.append(refused)
        elif person in given:
            why = f"{who(spec)} has approved already; another person has to."
            if given[person].approver != spec.approver.name:
                why = f"{who(spec)} has approved already, as {given[person].who}; another person has to."
            ignored.append(Ignored(name, Reason.SAME_APPROVER, why))
        else:
            given[person] = _given(approval)
    return Tally(given=tuple(given.values()), denied=denied, ignored=tuple(ignored))


def _refused(approval: MaintenanceApproval, person: frozenset[Mark], terms: Terms) -> Ignored | None:
    """What speaks against an approval of somebody who may approve."""
    spec = approval.spec
    if spec.digest != terms.asked.digest or _before(approval, terms.asked_at):
        return Ignored(
            approval.name,
            Reason.OTHER_PLAN,
            "It is for another plan than the one asked about now; look at the plan and decide again.",
        )
    if _after(approval, terms.expires_at):
        return Ignored(
            approval.name,
            Reason.APPROVAL_EXPIRED,
            "It was given after the time to approve had run out; start another run.",
        )
    if not (terms.allow_unverified or _proven(approval, terms.verified_since)):
        return Ignored(
            approval.name,
            Reason.APPROVERS_UNVERIFIED,
            "Nothing in this cluster proved who wrote it when it was written; apply the "
            "ValidatingAdmissionPolicy of deploy/, delete this approval and approve again, or start the "
            "controller with --allow-unverified-approvals.",
        )
    why = asked_themself(spec, person, terms.policy, terms.requested_by)
    return Ignored(approval.name, Reason.SELF_APPROVAL, why) if why else None


def _order(approval: MaintenanceApproval) -> tuple[bool, datetime, str]:
    """A Break before the Approve that the same person gave earlier."""
    created = approval.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return approval.spec.decision is not ApprovalDecision.BREAK, created, approval.name


def _before(approval: MaintenanceApproval, asked_at: datetime | None) -> bool:
    created = approval.metadata.creation_timestamp
    return created is not None and asked_at is not None and created + CLOCK_SKEW < asked_at


def _after(approval: MaintenanceApproval, expires_at: datetime | None) -> bool:
    created = approval.metadata.creation_timestamp
    return created is not None and expires_at is not None and created > expires_at + CLOCK_SKEW


def _proven(approval: MaintenanceApproval, since: datetime | None) -> bool:
    created = approval.metadata.creation_timestamp
    return since is not None and (created is None or created >= since)


def _given(approval: MaintenanceApproval) -> GivenApproval:
    return GivenApproval(
        approval=approval.name,
        approver=approval.spec.approver.name,
        kind=str(approval.spec.approver.kind),
        name=(approval.spec.slack.display_name or "") if approval.spec.slack is not None else "",
        at=approval.metadata.creation_timestamp,
        comment=approval.spec.comment or "",
        breaks=approval.spec.decision is ApprovalDecision.BREAK,
    )
