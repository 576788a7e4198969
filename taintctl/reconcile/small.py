"""The statuses of policies, approvals and of what can't be read: accepted or not, and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from taintctl.api.approval import ApprovalDecision, MaintenanceApproval
from taintctl.api.base import Condition, set_condition
from taintctl.api.check import FieldProblem, check
from taintctl.api.reasons import ENDED, ConditionType, Phase, Reason
from taintctl.api.run import MaintenanceRun


def policy_status(raw: Mapping[str, Any], problems: tuple[FieldProblem, ...], now: datetime) -> dict[str, Any]:
    """An EvictionPolicy's status."""
    if problems:
        sentence = "; ".join(str(p) for p in problems[:3])
        return _status(raw, "False", problems[0].reason, f"{sentence}. Runs that name this policy are Blocked.", now)
    return _status(raw, "True", Reason.ACCEPTED, "The policy is valid.", now)


def window_refused(raw: Mapping[str, Any], problems: tuple[FieldProblem, ...], now: datetime) -> dict[str, Any]:
    """The status of a MaintenanceWindow that can't be read; what it remembers (lastStart) stays."""
    sentence = "; ".join(str(p) for p in problems[:3])
    refused = _status(
        raw, "False", problems[0].reason, f"{sentence}. The window makes no run until it is corrected.", now
    )
    return {**part(raw, "status"), **refused}


def run_refused(raw: Mapping[str, Any], problems: tuple[FieldProblem, ...], now: datetime) -> dict[str, Any]:
    """The status of a MaintenanceRun that can't be read; what it remembers (its rules) stays."""
    sentence = "; ".join(str(p) for p in problems[:3])[:1024]
    old = part(raw, "status")
    return {
        **old,
        **_status(raw, "False", problems[0].reason, sentence, now),
        "phase": old.get("phase", str(Phase.PENDING)),
        "reason": str(problems[0].reason),
        "message": f"The run can't be read, and nothing is done for it: {sentence}. "
        "Delete it and start a corrected one.",
    }


def part(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object's spec or status; empty where it is no object, as CRDs that somebody loosened let through."""
    found = raw.get(name)
    return found if isinstance(found, Mapping) else {}


def approval_status(
    raw: Mapping[str, Any], run_raw: Mapping[str, Any] | None, verified: bool, now: datetime
) -> dict[str, Any]:
    """A MaintenanceApproval's status: whether the run it names counts it. It says, it does not decide: the run's own
    gate tallies the approvals again."""
    checked = check(MaintenanceApproval, raw)
    approval = checked.obj
    if approval is None or checked.problems:
        problem = checked.problems[0]
        return _status(raw, "False", problem.reason, f"{problem}. Delete it and approve again.", now)
    if run_raw is None:
        return _status(raw, "False", Reason.NO_SUCH_RUN, f"There is no MaintenanceRun {approval.spec.run_name}.", now)
    run = check(MaintenanceRun, run_raw).obj
    asked = run.status.approval if run is not None else None
    if any(given.approval == approval.name for given in (asked.given if asked else ())):
        return _status(raw, "True", Reason.COUNTED, f"Counted by run {approval.spec.run_name}.", now)
    ignored = next((one for one in (asked.ignored if asked else ()) if one.approval == approval.name), None)
    if ignored is not None:
        return _status(raw, "False", ignored.reason, ignored.message, now)
    fits = asked is not None and asked.asked is not None and asked.asked.digest == approval.spec.digest
    if fits and run is not None and approval.spec.decision is ApprovalDecision.DENY and _denied(run):
        return _status(raw, "True", Reason.COUNTED, f"Run {approval.spec.run_name} ended by it.", now)
    if run is not None and run.status.phase in ENDED:
        sentence = f"Run {approval.spec.run_name} has ended without it."
        return _status(raw, "False", Reason.RUN_ENDED, sentence, now)
    if not fits:
        sentence = f"Run {approval.spec.run_name} does not ask about this plan (any more); see taintctl status."
        return _status(raw, "False", Reason.OTHER_PLAN, sentence, now)
    if not verified:
        sentence = (
            "The admission policy that proves who approves is not installed, so no approval counts; "
            "apply deploy/, or start the controller with --allow-unverified-approvals."
        )
        return _status(raw, "False", Reason.APPROVERS_UNVERIFIED, sentence, now)
    sentence = f"Run {approval.spec.run_name} does not count it (yet): see taintctl explain {approval.spec.run_name}."
    return _status(raw, "Unknown", Reason.WAITING_FOR_APPROVAL, sentence, now)


def _denied(run: MaintenanceRun) -> bool:
    ending = run.status.ending
    return run.status.reason == Reason.DENIED or (ending is not None and ending.reason == Reason.DENIED)


def _status(raw: Mapping[str, Any], status: str, reason: str, message: str, now: datetime) -> dict[str, Any]:
    generation = int((raw.get("metadata") or {}).get("generation", 0))
    new = Condition(
        type=ConditionType.ACCEPTED,
        status=status,
        reason=reason,
        message=message[:1024],
        observed_generation=generation,
    )
    return {
        "observedGeneration": generation,
        "conditions": [c.dump() for c in set_condition(_conditions(raw), new, now)],
    }


def _conditions(raw: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Those that are there and can be read."""
    found = part(raw, "status").get("conditions")
    read: list[Condition] = []
    for condition in found if isinstance(found, list) else ():
        with suppress(ValidationError):
            read.append(Condition.model_validate(condition))
    return tuple(read)
