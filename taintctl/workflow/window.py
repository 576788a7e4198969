"""A MaintenanceWindow makes its runs, as a CronJob makes Jobs. Pure.

Runs carry no owner reference to their window: deleting a window must not delete a run that holds rules. Its ended runs
stay too, until somebody deletes them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from taintctl.api.base import API_VERSION, LABEL_WINDOW, Condition, format_time, set_condition
from taintctl.api.check import FieldProblem
from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.run import MaintenanceRun, RunTemplate, Trigger, TriggerType
from taintctl.api.text import moment, plural, some
from taintctl.api.window import ConcurrencyPolicy, MaintenanceWindow, WindowStatus
from taintctl.policy import Due, Occurrence, due, run_name, schedule_problem
from taintctl.workflow.model import Event, Settings
from taintctl.workflow.text import EVENT_MAX, SENTENCE_MAX, short

LOOK_AGAIN = timedelta(hours=1)
"""At the latest, not scaled: a clock that was set must not make a window sleep for a month."""
NAME_FREE = timedelta(minutes=1)
"""How soon to see whether a name that was taken is free, not scaled."""
NOT_BEGUN = frozenset({None, Phase.PENDING, Phase.DRY_RUN, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE})
"""Phases in which a run has not begun to evict: `Replace` may cancel it."""


@dataclass(frozen=True)
class WindowObservation:
    """`runs` are those that carry the window's label; `taken` is a run that is in the way: not the window's, but with
    the name of one that it would make."""

    window: MaintenanceWindow
    problems: tuple[FieldProblem, ...]
    runs: tuple[MaintenanceRun, ...]
    settings: Settings = field(default_factory=Settings)
    taken: str = ""


@dataclass(frozen=True)
class WindowDecision:
    """What to do, in this order: create, cancel, store the status, delete, tell."""

    status: WindowStatus
    create: dict[str, Any] | None = None
    cancel: tuple[str, ...] = ()
    delete: tuple[tuple[str, str], ...] = ()
    """Ended runs beyond historyLimit, as (name, uid)."""
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None


def decide_window(observation: WindowObservation, now: datetime) -> WindowDecision:
    """One look at a window. `lastStart` is stored when the run is seen, so a crash after its creation finds it; the
    run's name says its start, so that no start makes two."""
    window = observation.window
    active = _active(observation)
    status = window.status.model_copy(
        update={
            "observed_generation": window.metadata.generation,
            "active_run": active.name if active is not None else "",
            "next_start": None,
        }
    )
    base = WindowDecision(status, delete=_history(observation))
    if window.metadata.deletion_timestamp is not None:
        return WindowDecision(status)
    problem = _problem(observation)
    if problem is not None:
        said = _say(base, window, now, ConditionType.ACCEPTED, False, problem[0], problem[1])
        return _say(said, window, now, ConditionType.READY, False, problem[0], "It makes no run until it is corrected.")
    accepted = _say(base, window, now, ConditionType.ACCEPTED, True, Reason.ACCEPTED, "The window is valid.")
    if window.spec.suspend:
        return _say(
            accepted, window, now, ConditionType.READY, False, Reason.SUSPENDED, "Suspended: it makes no new run."
        )
    created = window.metadata.creation_timestamp or now
    what = due(window.spec.schedule, now=now, last_start=status.last_start, created=created)
    return _scheduled(observation, accepted, what, active, now)


def _problem(observation: WindowObservation) -> tuple[Reason, str] | None:
    if observation.problems:
        return observation.problems[0].reason, f"{some([str(p) for p in observation.problems])}."
    sentence = schedule_problem(observation.window.spec.schedule)
    return (Reason.INVALID_SPEC, f"spec.schedule: {sentence}") if sentence is not None else None


def _scheduled(
    observation: WindowObservation, base: WindowDecision, what: Due, active: MaintenanceRun | None, now: datetime
) -> WindowDecision:
    window, occurrence = observation.window, what.occurrence
    decision = _with_missed(base, window, what)
    coming = occurrence if occurrence is not None and occurrence.start > now else what.next
    decision = _with_status(decision, next_start=coming.start if coming is not None else None)
    wake = what.next.opens if what.next is not None else None
    requeue = max(timedelta(0), min(LOOK_AGAIN, wake - now)) if wake is not None else LOOK_AGAIN
    decision = _replaced(decision, requeue_after=requeue)
    if occurrence is not None:
        name = run_name(window.name, occurrence.start)
        if any(run.name == name for run in observation.runs):
            # It has been made; only now is it stored that it was.
            return _ready(_with_status(decision, last_start=occurrence.start), window, what, active, now)
        if name == observation.taken:
            message = (
                f"Run {name}, which this start would make, is there already and is not this window's; delete it, or "
                f"the start is missed at {moment(occurrence.latest)}."
            )
            decision = _replaced(decision, requeue_after=min(requeue, NAME_FREE))
            return _say(decision, window, now, ConditionType.READY, False, Reason.NAME_TAKEN, message)
        if active is None:
            event = Event("Normal", Reason.SCHEDULED, f"Made run {name} for {moment(occurrence.start)}.")
            return _replaced(
                _ready(decision, window, what, active, now),
                create=_run(window, occurrence, name),
                events=(*decision.events, event),
                requeue_after=timedelta(0),
            )
        return _run_active(decision, window, occurrence, active, now)
    return _ready(decision, window, what, active, now)


def _run_active(
    decision: WindowDecision, window: MaintenanceWindow, occurrence: Occurrence, active: MaintenanceRun, now: datetime
) -> WindowDecision:
    """A start has come and the last run has not ended: its own may still start until the occurrence's latest."""
    start = format_time(occurrence.start)
    if decision.requeue_after is not None:
        # When it is too late, that is said at once.
        too_late = occurrence.latest - now + timedelta(seconds=1)
        decision = _replaced(decision, requeue_after=max(timedelta(0), min(decision.requeue_after, too_late)))
    if window.spec.concurrency_policy is ConcurrencyPolicy.REPLACE and active.status.phase in NOT_BEGUN:
        message = f"Run {active.name} is cancelled to make room for the start at {start}."
        decision = _replaced(decision, cancel=() if active.spec.cancelled else (active.name,))
    else:
        message = f"Run {active.name} has not ended; the start at {start} waits for it until "
        message += f"{moment(occurrence.latest)}."
    return _say(decision, window, now, ConditionType.READY, False, Reason.RUN_ACTIVE, message)


def _ready(
    decision: WindowDecision, window: MaintenanceWindow, what: Due, active: MaintenanceRun | None, now: datetime
) -> WindowDecision:
    upcoming = decision.status.next_start
    if active is not None:
        message = f"Run {active.name} is under way."
        return _say(decision, window, now, ConditionType.READY, True, Reason.RUN_ACTIVE, message)
    if upcoming is None and what.occurrence is None:
        return _say(
            decision, window, now, ConditionType.READY, False, Reason.NO_FURTHER_START, "There is no further start."
        )
    if what.missed and what.occurrence is None:
        message = f"Missed {_starts(what.missed)}; the next start is {_time(upcoming)}."
        return _say(decision, window, now, ConditionType.READY, True, Reason.START_MISSED, message)
    return _say(
        decision, window, now, ConditionType.READY, True, Reason.SCHEDULED, f"The next start is {_time(upcoming)}."
    )


def _with_missed(decision: WindowDecision, window: MaintenanceWindow, what: Due) -> WindowDecision:
    """Missed starts are told once: lastStart moves behind them."""
    if not what.missed:
        return decision
    message = (
        f"Missed {_starts(what.missed)}: the controller was down, or another run was under way, until it was too late "
        "to start (schedule.startingDeadline)."
    )
    event = Event("Warning", Reason.START_MISSED, short(message, EVENT_MAX))
    return _replaced(_with_status(decision, last_start=what.missed[-1]), events=(*decision.events, event))


def _starts(missed: tuple[datetime, ...]) -> str:
    return f"{plural(len(missed), 'start')} ({some([moment(m) for m in missed[-3:]])})"


def _time(at: datetime | None) -> str:
    return moment(at) if at is not None else "not known"


def _active(observation: WindowObservation) -> MaintenanceRun | None:
    """The newest run that has not ended."""
    running = [run for run in observation.runs if run.status.phase is None or not run.status.phase.ended]
    return max(running, key=_age, default=None)


def _history(observation: WindowObservation) -> tuple[tuple[str, str], ...]:
    ended = [run for run in observation.runs if run.status.phase is not None and run.status.phase.ended]
    old = sorted(ended, key=_age, reverse=True)[observation.window.spec.history_limit :]
    return tuple((run.name, run.metadata.uid) for run in old if run.metadata.deletion_timestamp is None)


def _age(run: MaintenanceRun) -> tuple[datetime, str]:
    return run.spec.start_at or run.spec.deadline, run.name


def _run(window: MaintenanceWindow, occurrence: Occurrence, name: str) -> dict[str, Any]:
    """The MaintenanceRun of a start: what the window's template says, between its start and its end."""
    template = RunTemplate.model_validate(
        {name: getattr(window.spec, name) for name in RunTemplate.model_fields}, by_name=True
    )
    trigger = Trigger(type=TriggerType.SCHEDULE, window_name=window.name)
    return {
        "apiVersion": API_VERSION,
        "kind": MaintenanceRun.KIND,
        "metadata": {"name": name, "labels": {LABEL_WINDOW: window.name}},
        "spec": {
            **template.dump(),
            "trigger": trigger.dump(),
            "startAt": format_time(occurrence.start),
            "deadline": format_time(occurrence.closes),
        },
    }


def _with_status(decision: WindowDecision, **changes: object) -> WindowDecision:
    return _replaced(decision, status=decision.status.model_copy(update=changes))


def _replaced(decision: WindowDecision, **changes: Any) -> WindowDecision:
    return WindowDecision(**{**decision.__dict__, **changes})


def _say(
    decision: WindowDecision,
    window: MaintenanceWindow,
    now: datetime,
    kind: ConditionType,
    status: bool,
    reason: Reason,
    message: str,
) -> WindowDecision:
    condition = Condition(
        type=kind,
        status=str(status),
        reason=reason,
        message=short(message, SENTENCE_MAX),
        observed_generation=window.metadata.generation,
    )
    return _with_status(decision, conditions=set_condition(decision.status.conditions, condition, now))
