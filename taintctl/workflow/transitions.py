"""Every move a run can make, as data: (from, reason, to). What is not in the table cannot happen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from taintctl.api.base import MAX_HISTORY
from taintctl.api.reasons import ENDED, Phase, Reason
from taintctl.api.run import HistoryEntry, RunStatus
from taintctl.workflow.model import Event
from taintctl.workflow.text import EVENT_MAX, MESSAGE_MAX, short

Transition = tuple[Phase | None, Reason, Phase]

PLAN_PROBLEMS = frozenset(
    {
        Reason.NO_DEVICES,
        Reason.DEVICE_CLASS_NOT_FOUND,
        Reason.SELECTOR_FAILED,
        Reason.WHOLE_DRIVER,
        Reason.POOL_INCOMPLETE,
        Reason.TOO_MANY_RULES,
        Reason.CONSUMER_UNKNOWN,
    }
)
"""Why there can be no plan although the cluster could be read: the run is Blocked with it."""
POLICY_PROBLEMS = frozenset({Reason.POLICY_NOT_FOUND, Reason.POLICY_INVALID})
BAD_SPEC = frozenset({Reason.INVALID_SPEC, Reason.UNKNOWN_FIELD})
BY_HAND = frozenset({Reason.RULE_CHANGED, Reason.RULE_DELETED})
NO_AGREEMENT = frozenset({Reason.MISMATCH, Reason.MESSAGE_UNREADABLE, Reason.EVICTION_CONTROLLER_SILENT})
"""What can come of a dry run, other than agreement."""

BEFORE_EVICTION = (Phase.DRY_RUN, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE)
"""Rules of ours may exist, none has ever been NoExecute since the last dry run."""
BEFORE_MAINTENANCE = (*BEFORE_EVICTION, Phase.EVICTING, Phase.DRAINING)


def _moves(froms: Iterable[Phase | None], reasons: Iterable[Reason], to: Phase) -> Iterator[Transition]:
    return ((start, reason, to) for start in froms for reason in reasons)


P, R = Phase, Reason

TRANSITIONS: frozenset[Transition] = frozenset(
    [
        (None, R.CREATED, P.PENDING),
        # Straight to an end only from Pending, where no rule has been made yet.
        *_moves([P.PENDING], BAD_SPEC, P.FAILED),
        (P.PENDING, R.DEADLINE_PASSED, P.EXPIRED),
        *_moves([P.PENDING], [R.CANCELLED, R.DELETED], P.CANCELLED),
        # Rules are there all the same (the status was lost): they come off first.
        *_moves([P.PENDING], [R.CANCELLED, R.DELETED, R.DEADLINE_PASSED, *BAD_SPEC], P.ROLLING_BACK),
        *_moves([P.PENDING], [*POLICY_PROBLEMS, *PLAN_PROBLEMS], P.BLOCKED),
        (P.PENDING, R.WAITING_FOR_DRY_RUN, P.DRY_RUN),
        # The dry run: agreed and within policy, or blocked. There is no other way towards eviction.
        *_moves([P.DRY_RUN], [*NO_AGREEMENT, *PLAN_PROBLEMS, *POLICY_PROBLEMS, R.POLICY_VIOLATED], P.BLOCKED),
        (P.DRY_RUN, R.DEVICE_IN_OTHER_RUN, P.BLOCKED),
        *_moves([P.DRY_RUN], [R.WAITING_FOR_APPROVAL, R.PLAN_CHANGED, R.AUTO_APPROVED], P.AWAITING_APPROVAL),
        # Blocked is looked at again; before any rule was made that means from the start.
        (P.BLOCKED, R.WAITING_FOR_DRY_RUN, P.DRY_RUN),
        (P.BLOCKED, R.CREATED, P.PENDING),
        # Approval: given and at the start the notice; refused or too late the end; another plan a new dry run.
        *_moves([P.AWAITING_APPROVAL], [R.PLAN_CHANGED, R.WAITING_FOR_DRY_RUN], P.DRY_RUN),
        *_moves([P.AWAITING_APPROVAL], POLICY_PROBLEMS, P.BLOCKED),
        *_moves([P.AWAITING_APPROVAL], [R.DENIED, R.APPROVAL_EXPIRED], P.ROLLING_BACK),
        (P.AWAITING_APPROVAL, R.NOTICE_GIVEN, P.NOTICE),
        # The notice ends with the second look and the gate. Evicting goes through both again after an interruption.
        (P.NOTICE, R.GATE_PASSED, P.EVICTING),
        # With drain.mode Evict taintctl asks the pods to go, under NoSchedule: whatever speaks against it now leads
        # where it leads from Notice. What is left at the timeout needs a second look and the gate once more.
        (P.NOTICE, R.GATE_PASSED, P.DRAINING),
        *_moves([P.DRAINING], [R.PLAN_CHANGED], P.DRY_RUN),
        *_moves([P.DRAINING], POLICY_PROBLEMS, P.BLOCKED),
        (P.DRAINING, R.DENIED, P.ROLLING_BACK),
        (P.DRAINING, R.GATE_PASSED, P.EVICTING),
        *_moves([P.NOTICE, P.EVICTING], [R.PLAN_CHANGED], P.DRY_RUN),
        *_moves([P.NOTICE, P.EVICTING], [*NO_AGREEMENT, *POLICY_PROBLEMS], P.BLOCKED),
        *_moves([P.NOTICE, P.EVICTING], [R.DENIED], P.ROLLING_BACK),
        (P.EVICTING, R.EVICTION_ACKNOWLEDGED, P.DRAINING),
        # The drain ends with devices proven idle, or the taint comes off.
        (P.DRAINING, R.DEVICES_IDLE, P.IN_MAINTENANCE),
        *_moves([P.DRAINING], [R.DRAIN_TIMEOUT, R.MULTIPLE_BUDGETS], P.ROLLING_BACK),
        # Held runs (paused, a spec that can't be read right, cancelled but kept tainted) go on with a new dry run.
        *_moves([P.BLOCKED, P.AWAITING_APPROVAL, P.NOTICE, P.EVICTING, P.DRAINING], [R.RESUMED], P.DRY_RUN),
        # Interrupts of every phase between the first rule and maintenance.
        *_moves(BEFORE_MAINTENANCE, [R.DELETED, R.CANCELLED, R.DEADLINE_PASSED, *BY_HAND], P.ROLLING_BACK),
        # Cancelled, the taint kept by policy, and then released by hand.
        *_moves([P.BLOCKED, P.NOTICE, P.EVICTING, P.DRAINING], [R.RELEASED], P.ROLLING_BACK),
        # Out of maintenance there is one way: proven idle, then released. (Where every rule was deleted by hand,
        # nothing is left to release.)
        *_moves([P.IN_MAINTENANCE], [R.WORK_DONE, R.RELEASED], P.RELEASING),
        (P.IN_MAINTENANCE, R.RULE_DELETED, P.ROLLING_BACK),
        (P.RELEASING, R.COMPLETED, P.SUCCEEDED),
        (P.RELEASING, R.CANCELLED, P.CANCELLED),
        # How it was to end was kept in status.ending; by now no rule of ours is left.
        *_moves([P.ROLLING_BACK], [R.DENIED, R.APPROVAL_EXPIRED, R.CANCELLED, R.DELETED], P.CANCELLED),
        (P.ROLLING_BACK, R.DEADLINE_PASSED, P.EXPIRED),
        *_moves(
            [P.ROLLING_BACK], [R.DEADLINE_PASSED, R.DRAIN_TIMEOUT, R.MULTIPLE_BUDGETS, *BY_HAND, *BAD_SPEC], P.FAILED
        ),
    ]
)

_WARNINGS = frozenset({Phase.BLOCKED, Phase.FAILED, Phase.EXPIRED, Phase.ROLLING_BACK})


class ImpossibleTransition(Exception):
    """A move that is not in the table: a mistake in the program, never a state of the cluster."""


def move(
    status: RunStatus, to: Phase, reason: Reason, message: str, now: datetime, next_step: str = ""
) -> tuple[RunStatus, Event]:
    """The status in its new phase, with its history, and the event that tells it. The only place where a phase
    changes. Raises ImpossibleTransition for what the table does not have."""
    if (status.phase, reason, to) not in TRANSITIONS:
        raise ImpossibleTransition(f"{status.phase} -> {to} ({reason}) is not in the transition table")
    # Later than the one before, also where a clock was set back or is coarse: what was told is told apart by it.
    at = max([now, *(earlier.at + timedelta(microseconds=1) for earlier in status.history[-1:])])
    entry = HistoryEntry(at=at, from_=status.phase or "", to=to, reason=reason)
    moved = status.model_copy(
        update={
            "phase": to,
            "phase_since": now,
            "reason": str(reason),
            "message": short(message, MESSAGE_MAX),
            "next_step": next_step,
            "history": remember(status.history, entry),
        }
    )
    kind = "Warning" if to in _WARNINGS else "Normal"
    return moved, Event(kind, str(reason), short(f"{to}: {message}", EVENT_MAX))


def remember(history: tuple[HistoryEntry, ...], entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
    """The last 50 moves. A run that is looked at again and again (Blocked, DryRun, Blocked, …) keeps the first round
    and the time of the last, so that it does not push out how it came there."""

    def same(a: HistoryEntry, b: HistoryEntry) -> bool:
        return (a.from_, a.to, a.reason) == (b.from_, b.to, b.reason)

    if len(history) >= 3 and same(history[-1], history[-3]) and same(entry, history[-2]):
        return (*history[:-2], entry)
    return (*history, entry)[-MAX_HISTORY:]


def mermaid() -> str:
    """The table as a mermaid state diagram: one arrow for each pair of phases, with its reasons."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for start, reason, to in TRANSITIONS:
        arrows.setdefault((str(start) if start else "[*]", str(to)), []).append(str(reason))
    for end in ENDED:
        arrows[(str(end), "[*]")] = []
    order = {name: index for index, name in enumerate(["[*]", *map(str, Phase)])}
    lines = ["stateDiagram-v2"]
    for (start_name, to_name), reasons in sorted(arrows.items(), key=lambda a: (order[a[0][0]], order[a[0][1]])):
        label = f": {', '.join(sorted(reasons))}" if reasons else ""
        lines.append(f"    {start_name} --> {to_name}{label}")
    return "\n".join(lines) + "\n"
