"""Why nothing happens: the reason in words, what is waited for, for how long still, and the exact next command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taintctl.api.base import condition, format_duration
from taintctl.api.policy import EvictionPolicy, OnExpiry, RollbackFailure, ToleratingPods
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.run import AtDeadline, DrainMode, MaintenanceRun, WorkMode
from taintctl.api.text import plural
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.text import Cell, Line, command, fields, heading, line, moment, relative, span, when
from taintctl.cli.views.words import START, WORDS

SILENT_CONTROLLER = timedelta(seconds=30)
"""How long a change may go unseen before it is said that no controller answers."""

STANDS = frozenset(
    {Reason.WAITING_FOR_RELEASE, Reason.RULE_CHANGED, Reason.RULE_DELETED, Reason.HARDWARE_CHANGED, Reason.KEPT_TAINTED}
)
"""Why devices in maintenance stay tainted until somebody releases, whatever the deadline."""
BEFORE = (Phase.DRY_RUN, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE)

SHOWN = 20
"""Violations that are said; `taintctl status` has all that the run's status holds."""


@dataclass(frozen=True)
class Limit:
    """What ends the wait by itself, and when."""

    at: datetime
    then: str


def explain_run(
    run: MaintenanceRun,
    policy: EvictionPolicy | None,
    now: datetime,
    note: str = "",
    speed: float = 1.0,
    person: str = "",
) -> list[Line]:
    """In words; `policy` is the one the run names, None where it can't be read. `note` says that no controller seems to
    be at work, `speed` by how much it divides its delays, `person` who asks."""
    status = run.status
    phase = status.phase or Phase.PENDING
    verb = "ended as" if phase.ended else "is in"
    since = f", for {span(now - status.phase_since)}" if status.phase_since else ""
    lines = [line(heading(f"Run {run.name}"), f" {verb} {phase}{since}.")]
    pairs: list[tuple[str, Cell]] = []
    if status.reason:
        pairs.append(("Why", f"{status.reason}: {WORDS.get(status.reason, 'a reason this version does not know.')}"))
    if status.message:
        pairs.append(("In detail", status.message))
    also = [text for text in _also(run, now, note) if text not in status.message and not _repeats(text, status.message)]
    pairs += [("Also", text) for text in ([note] if note else []) + also]
    limit = None if phase.ended or note else time_limit(run, policy, speed)
    if phase is Phase.BLOCKED and status.phase_since and policy is not None and not note and not run.spec.paused:
        again = status.phase_since + max(policy.spec.dry_run.max_age / speed, timedelta(seconds=10))
        pairs.append(("Again", f"{moment(again)} ({relative(again, now)}); it is looked at again then"))
    if limit is not None:
        pairs.append(("Until", f"{moment(limit.at)} ({relative(limit.at, now)}); {limit.then}"))
    pairs.append(("Next", command(next_command(run, now, note, person))))
    return lines + fields(pairs, indent=2)


def _repeats(text: str, message: str) -> bool:
    """`check: sentence`, or `Condition is Unknown (Reason): sentence`, of which the sentence has been said."""
    sentence = text.partition(": ")[2]
    return bool(sentence) and sentence in message


def unseen(run: MaintenanceRun, now: datetime) -> bool:
    """Whether the controller has not looked at the run's newest spec although it had the time."""
    created = run.metadata.creation_timestamp
    if run.status.phase is None:
        return created is not None and now - created > SILENT_CONTROLLER
    return run.status.observed_generation < run.metadata.generation


def _also(run: MaintenanceRun, now: datetime, note: str) -> list[str]:
    found: list[str] = []
    if run.status.phase is not None and run.status.phase.ended:
        return found
    if run.spec.cancelled:
        found.append("it is asked to end (taintctl cancel)")
    if unseen(run, now) and not note:
        found.append(
            "the controller has not seen the newest spec of this run; if this stays, it is not running "
            "(kubectl -n taintctl-system get pods)"
        )
    plan = run.status.plan
    if plan is not None:
        found += [f"{v.check}: {v.message}" for v in plan.violations[:SHOWN]]
        if len(plan.violations) > SHOWN:
            found.append(f"and {plural(len(plan.violations) - SHOWN, 'violation')} more")
    approval = run.status.approval
    if approval is not None and approval.needed and len(approval.given) < approval.needed:
        missing = approval.needed - len(approval.given)
        found.append(f"{plural(missing, 'approval')} of {approval.needed} missing")
    if approval is not None and approval.break_needed and not any(given.breaks for given in approval.given):
        found.append("the policy protects pods of the plan, so one of the approvals must be a Break")
    found += [
        f"people are not told in {entry.kind}: {entry.error}"
        for entry in run.status.notifications
        if entry.failing_since is not None
    ]
    if run.status.eviction is not None:
        found += [f"blocked by {name}" for name in run.status.eviction.blocked_by[:3]]
    found += [
        f"{c.type} is {c.status} ({c.reason}): {c.message}" for c in run.status.conditions if c.status == "Unknown"
    ]
    if run.metadata.deletion_timestamp is not None:
        found.append("it is being deleted, and goes when none of its rules is left")
    return found


def time_limit(run: MaintenanceRun, policy: EvictionPolicy | None, speed: float = 1.0) -> Limit | None:
    """What ends the present wait by itself; lengths of time are divided by `speed`, moments are not."""
    spec, status = run.spec, run.status
    deadline = _deadline(run, speed)
    if status.phase is Phase.IN_MAINTENANCE and status.reason in STANDS:
        return None
    if spec.paused and status.phase in (Phase.EVICTING, Phase.DRAINING):
        return Limit(spec.deadline, "then the taint comes off and the run fails")
    if spec.paused and status.phase in (None, Phase.PENDING, *BEFORE):
        return Limit(spec.deadline, "nothing happens before somebody resumes it; then the run expires")
    if status.phase is Phase.AWAITING_APPROVAL:
        if status.reason == Reason.WAITING_FOR_START and spec.start_at is not None:
            return Limit(spec.start_at, "then the run starts by itself")
        expires = status.approval.expires_at if status.approval else None
        if expires is not None and expires < spec.deadline:
            again = policy is not None and policy.spec.approval.on_expiry is OnExpiry.ASK_AGAIN
            then = "it is asked again" if again else "the run is then cancelled"
            return Limit(expires, f"without approval {then}")
        return Limit(spec.deadline, "then the run expires")
    if status.phase is Phase.NOTICE:
        since = [r.effect_since for r in status.rules if r.effect is Effect.NO_SCHEDULE and r.effect_since]
        wait = max(spec.notice, timedelta(seconds=10)) / speed
        if since:
            return Limit(max(since) + wait, "then a second look, and eviction if it agrees")
    if status.phase in (Phase.EVICTING, Phase.DRAINING) and status.eviction and status.eviction.started_at:
        timeout = (status.eviction.forced_at or status.eviction.started_at) + spec.drain.timeout / speed
        rolls_back = policy is None or RollbackFailure.DRAIN_TIMEOUT in policy.spec.rollback_on
        forces = policy is not None and policy.spec.drain.force_at_timeout and spec.drain.mode is DrainMode.EVICT
        if forces and status.eviction.forced_at is None and timeout < spec.deadline:
            return Limit(timeout, "what is left then gets NoExecute, if a second look and the gate let it")
        if rolls_back and timeout < spec.deadline:
            ignoring = policy is not None and policy.spec.tolerating_pods is ToleratingPods.IGNORE
            those = "pods that are still there then" + (" and do not tolerate the taint" if ignoring else "")
            return Limit(timeout, f"{those} make the run fail, and the taint comes off")
        return Limit(spec.deadline, "then the taint comes off and the run fails")
    if status.phase is Phase.IN_MAINTENANCE:
        work_end = _work_end(run, speed)
        if status.reason == Reason.WAITING_FOR_WORK and work_end is not None and work_end < deadline.at:
            return Limit(work_end, "then the work is done and the devices are given back if idle")
        return deadline
    if status.phase in (None, Phase.PENDING, Phase.DRY_RUN, Phase.BLOCKED, Phase.NOTICE):
        return Limit(spec.deadline, "then the run expires")
    return None


def _deadline(run: MaintenanceRun, speed: float) -> Limit:
    spec = run.spec
    if spec.at_deadline is AtDeadline.EXTEND and spec.extend_by is not None:
        then = "idle devices whose work is done are given back, else the taint stays"
        return Limit(
            spec.deadline + spec.extend_by / speed,
            f"that is the deadline and {format_duration(spec.extend_by)}; {then}",
        )
    if spec.at_deadline is AtDeadline.KEEP_TAINTED:
        return Limit(spec.deadline, "then the taint stays until somebody releases")
    return Limit(spec.deadline, "then idle devices whose work is done are given back, else the taint stays")


def _work_end(run: MaintenanceRun, speed: float) -> datetime | None:
    work, started = run.spec.work, run.status.work_started_at
    if work.mode is WorkMode.DURATION and work.duration is not None and started is not None:
        return started + work.duration / speed
    return None


def next_command(run: MaintenanceRun, now: datetime, note: str = "", person: str = "") -> str:
    """The run's own next step, or the one that its state asks for. Without a controller nothing goes on by itself."""
    ended = run.status.phase is not None and run.status.phase.ended
    if unseen(run, now) or (note and not ended):
        return START
    step = run.status.next_step
    if step:
        given = run.status.approval.given if run.status.approval is not None else ()
        said = step.startswith("taintctl approve ") and person in {one.approver for one in given}
        return f"somebody else: {step}" if said else step
    return "nothing to do" if ended else f"taintctl status {run.name} --watch"


def explain_window(window: MaintenanceWindow, problems: tuple[str, ...], now: datetime) -> list[Line]:
    """Why a window makes no run now."""
    status = window.status
    lines = [line(heading(f"Window {window.name}"), ": ", _window_state(window, problems or _refused(window)))]
    pairs: list[tuple[str, Cell]] = [("Mistake", problem) for problem in problems]
    problems = problems or _refused(window)
    for kind in (ConditionType.ACCEPTED, ConditionType.READY):
        found = condition(status.conditions, kind)
        if found is not None:
            words = WORDS.get(found.reason, "")
            pairs.append((kind, f"{found.status} ({found.reason}): {found.message or words}"))
    if not status.conditions:
        pairs.append(("Also", "no controller has looked at it yet (kubectl -n taintctl-system get pods)"))
    pairs.append(("Next start", when(status.next_start, now)))
    pairs.append(("Last start", when(status.last_start, now)))
    pairs.append(("Active run", status.active_run or "none"))
    pairs.append(("Next", command(_window_next(window, problems))))
    return lines + fields(pairs, indent=2)


def _refused(window: MaintenanceWindow) -> tuple[str, ...]:
    """What the controller refuses, such as a time that no clock shows; it checks more than the form."""
    accepted = condition(window.status.conditions, ConditionType.ACCEPTED)
    current = accepted is not None and accepted.observed_generation == window.metadata.generation
    return (accepted.message,) if accepted and current and accepted.status == "False" else ()


def _window_state(window: MaintenanceWindow, problems: tuple[str, ...]) -> str:
    if problems:
        return "it has a mistake and makes no run."
    if window.spec.suspend:
        return "it is suspended and makes no run."
    if window.status.active_run:
        return f"its run {window.status.active_run} has not ended."
    if not window.status.conditions:
        return "no controller has looked at it yet."
    return "it waits for its next start." if window.status.next_start else "it knows of no further start."


def _window_next(window: MaintenanceWindow, problems: tuple[str, ...]) -> str:
    if problems:
        return f"kubectl edit mw {window.name}"
    if window.spec.suspend:
        return f'kubectl patch mw {window.name} --type merge -p \'{{"spec":{{"suspend":false}}}}\''
    if window.status.active_run:
        return f"taintctl explain {window.status.active_run}"
    return f"taintctl schedule {window.name}, or taintctl start --window {window.name} for a run now"
