"""Who approved or denied what, to be told once: when the decision that counts it is stored."""

from __future__ import annotations

from taintctl.api.reasons import Reason
from taintctl.api.run import GivenApproval, RunStatus
from taintctl.workflow.look import Look
from taintctl.workflow.model import Counted
from taintctl.workflow.planning import count


def counted(look: Look, status: RunStatus) -> tuple[Counted, ...]:
    """The approvals that `status` counts and the run's stored one does not, and the denial that ends the run."""
    before, after = look.obs.run.status, status.approval
    if after is None or after.asked is None:
        return ()
    digest = after.asked.digest
    known = {given.approval for given in before.approval.given} if before.approval is not None else set()
    found = [
        _counted(given, "Break" if given.breaks else "Approve", digest)
        for given in after.given
        if given.approval not in known
    ]
    ending = status.ending
    if ending is not None and ending.reason == Reason.DENIED and before.ending is None and look.obs.policy is not None:
        denied = count(look, look.obs.policy).denied
        found += [_counted(denied, "Deny", digest)] if denied is not None else []
    return tuple(found)


def _counted(given: GivenApproval, decision: str, digest: str) -> Counted:
    return Counted(
        approval=given.approval,
        kind=given.kind,
        approver=given.approver,
        who=given.who,
        decision=decision,
        digest=digest,
        at=given.at,
        comment=given.comment,
    )
