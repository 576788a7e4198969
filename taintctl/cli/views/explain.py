"""Why nothing happens: the reason in words, what is waited for, for how long still, and the exact next command."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from taintctl.api.base import condition, format_duration
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.run import AtDeadline, MaintenanceRun, WorkMode
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.text import Cell, Line, fields, heading, line, moment, plural, relative, span, when

WORDS: dict[str, str] = {
    Reason.CREATED: "The run was just created; its first dry run comes next.",
    Reason.DEVICE_IN_OTHER_RUN: "Another run has one of these devices; this one goes on when that one has ended.",
    Reason.WAITING_FOR_DRY_RUN: "Rules of effect None are made, and the control plane is asked whom they would hit.",
    Reason.WAITING_FOR_APPROVAL: "Somebody has to approve the plan.",
    Reason.WAITING_FOR_START: "Everything is ready; the run's start has not come yet.",
    Reason.APPROVED: "The plan is approved.",
    Reason.AUTO_APPROVED: "The plan is small enough for the policy to let it pass by itself.",
    Reason.PLAN_CHANGED: "The plan is no longer the one that was asked about, so it is looked at again.",
    Reason.NOTICE_GIVEN: "The devices take no new pods (NoSchedule); work on them may end by itself.",
    Reason.SECOND_LOOK: "A fresh dry run is read before anything is evicted.",
    Reason.GATE_PASSED: "The second look agreed; eviction is being switched on.",
    Reason.EVICTION_ACKNOWLEDGED: "The control plane has seen the NoExecute taint.",
    Reason.PODS_PENDING: "Pods are still to be evicted.",
    Reason.PODS_TERMINATING: "Pods are stopping; a device counts as idle only when they are gone.",
    Reason.BUDGET_FORBIDS: "A PodDisruptionBudget does not let a pod go now; it is tried again.",
    Reason.PROVING_IDLE: "Pods are gone; it is being proven that nothing uses the devices.",
    Reason.CONDITION_STALE: "The control plane says pods are pending, but none is left that it could mean.",
    Reason.DEVICES_IDLE: "Nothing uses the devices.",
    Reason.DEVICES_IN_USE: "Something still uses a device.",
    Reason.NODE_NOT_READY: "A node is not Ready (or was not all along), so a pod may still run there unseen.",
    Reason.DEVICE_PLUGIN_POD: "A pod on the node may use the hardware through a device plugin, which taints do not reach.",
    Reason.SETTLING: "The taint is too young: schedulers have to have seen it (10 s).",
    Reason.WAITING_FOR_WORK: "The devices are empty and the work on them is under way.",
    Reason.WORK_DONE: "The work is done.",
    Reason.WORK_NOT_DONE: "The deadline passed with the work not done (or devices not idle), so the taint stays.",
    Reason.WAITING_FOR_RELEASE: "The taint stays until somebody releases the devices.",
    Reason.RELEASED: "The devices were given back.",
    Reason.PAUSED: "Somebody paused the run.",
    Reason.RESUMED: "The run was resumed; it starts over with a dry run.",
    Reason.KEPT_TAINTED: "The deadline passed and atDeadline is KeepTainted, so the taint stays.",
    Reason.DEADLINE_EXTENDED: "The deadline passed and atDeadline is Extend, so there is more time.",
    Reason.INVALID_SPEC: "The spec says something that cannot be.",
    Reason.UNKNOWN_FIELD: "The spec has a field that nobody knows; it may be misspelt.",
    Reason.POLICY_NOT_FOUND: "The EvictionPolicy that the run names does not exist.",
    Reason.POLICY_INVALID: "The EvictionPolicy has a mistake.",
    Reason.NO_DEVICES: "The target matches no device.",
    Reason.WHOLE_DRIVER: "The target comes to every device of the driver, and wholeDriver is not set.",
    Reason.POOL_INCOMPLETE: "A pool's driver has not published all of its ResourceSlices.",
    Reason.TOO_MANY_RULES: "The target needs more than 256 rules.",
    Reason.CLUSTER_UNREADABLE: "The cluster cannot be read, so nothing is decided.",
    Reason.MESSAGE_UNREADABLE: "The control plane's dry-run message does not read as known releases write it.",
    Reason.MISMATCH: "The control plane's dry run and our own count do not say the same.",
    Reason.EVICTION_CONTROLLER_SILENT: "The device taint eviction controller does not answer (kube-controller-manager).",
    Reason.POLICY_VIOLATED: "The plan is beyond what the policy allows.",
    Reason.APPROVERS_UNVERIFIED: "Nothing proves who wrote an approval: the admission policy is not installed.",
    Reason.COMPLETED: "The run did what it was for.",
    Reason.DENIED: "Somebody denied the plan.",
    Reason.APPROVAL_EXPIRED: "Nobody approved in time.",
    Reason.CANCELLED: "Somebody cancelled the run.",
    Reason.DELETED: "The run was deleted.",
    Reason.DEADLINE_PASSED: "The deadline passed.",
    Reason.DRAIN_TIMEOUT: "Pods did not go in the time that spec.drain.timeout gives.",
    Reason.MULTIPLE_BUDGETS: "Two PodDisruptionBudgets select one pod, and the Eviction API cannot decide that.",
    Reason.RULE_CHANGED: "Somebody changed one of the run's rules by hand; that is taken for a decision.",
    Reason.RULE_DELETED: "Somebody deleted one of the run's rules by hand; that is taken for a decision.",
    Reason.COUNTED: "The approval counts.",
    Reason.NOT_AN_APPROVER: "The policy does not name this person as an approver.",
    Reason.OTHER_PLAN: "The approval is for another plan than the one asked about.",
    Reason.NO_SUCH_RUN: "The approval names a run that does not exist.",
    Reason.ACCEPTED: "The object is valid.",
    Reason.SCHEDULED: "The window makes a run at its next start.",
    Reason.SUSPENDED: "The window is suspended and makes no run.",
    Reason.RUN_ACTIVE: "The window's last run has not ended, and concurrencyPolicy lets it finish first.",
    Reason.START_MISSED: "A start was missed for longer than startingDeadline allows.",
    Reason.NO_FURTHER_START: "The schedule has no further start.",
}
"""Every reason, in a sentence that needs no manual."""

SILENT_CONTROLLER = timedelta(seconds=30)
"""How long a change may go unseen before it is said that no controller answers."""


@dataclass(frozen=True)
class Limit:
    """What ends the wait by itself, and when."""

    at: datetime
    then: str


def explain_run(run: MaintenanceRun, policy: EvictionPolicy | None, now: datetime, *, speed: float = 1.0) -> list[Line]:
    """`speed` is the factor of the controller (1 on a real cluster): what it waits is that much shorter."""
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
    pairs += [("Also", text) for text in _also(run, now)]
    limit = None if phase.ended else time_limit(run, policy, speed)
    if limit is not None:
        pairs.append(("Until", f"{moment(limit.at)} ({relative(limit.at, now)}); {limit.then}"))
    pairs.append(("Next", next_command(run, now)))
    return lines + fields(pairs, indent=2)


def unseen(run: MaintenanceRun, now: datetime) -> bool:
    """Whether the controller has not looked at the run's newest spec although it had the time."""
    created = run.metadata.creation_timestamp
    if run.status.phase is None:
        return created is not None and now - created > SILENT_CONTROLLER
    return run.status.observed_generation < run.metadata.generation


def _also(run: MaintenanceRun, now: datetime) -> list[str]:
    found = []
    if unseen(run, now):
        found.append(
            "the controller has not seen the newest spec of this run; if this stays, it is not running "
            "(kubectl -n taintctl-system get pods)"
        )
    plan = run.status.plan
    if plan is not None:
        found += [f"{v.check}: {v.message}" for v in plan.violations[:5]]
    approval = run.status.approval
    if approval is not None and approval.needed and len(approval.given) < approval.needed:
        missing = approval.needed - len(approval.given)
        found.append(f"{plural(missing, 'approval')} of {approval.needed} missing")
    if run.status.eviction is not None:
        found += [f"blocked by {name}" for name in run.status.eviction.blocked_by[:3]]
    found += [
        f"{c.type} is {c.status} ({c.reason}): {c.message}" for c in run.status.conditions if c.status == "Unknown"
    ]
    if run.metadata.deletion_timestamp is not None:
        found.append("it is being deleted, and goes when none of its rules is left")
    return found


def time_limit(run: MaintenanceRun, policy: EvictionPolicy | None, speed: float) -> Limit | None:
    """What ends the present wait by itself."""
    spec, status = run.spec, run.status
    deadline = _deadline(run)
    if status.phase is Phase.AWAITING_APPROVAL:
        if status.reason == Reason.WAITING_FOR_START and spec.start_at is not None:
            return Limit(spec.start_at, "then the run starts by itself")
        expires = status.approval.expires_at if status.approval else None
        if expires is not None and expires < spec.deadline:
            return Limit(expires, "without approval the run is then cancelled")
        return Limit(spec.deadline, "then the run expires")
    if status.phase is Phase.NOTICE:
        since = [r.effect_since for r in status.rules if r.effect is Effect.NO_SCHEDULE and r.effect_since]
        wait = max(spec.notice, timedelta(seconds=10)) / speed
        if since and max(since) + wait > (status.phase_since or max(since)):
            return Limit(max(since) + wait, "then a second look, and eviction if it agrees")
    if status.phase in (Phase.EVICTING, Phase.DRAINING) and status.eviction and status.eviction.started_at:
        timeout = status.eviction.started_at + spec.drain.timeout / speed
        rolls_back = policy is None or Reason.DRAIN_TIMEOUT in policy.spec.rollback_on
        if rolls_back and timeout < spec.deadline:
            return Limit(timeout, "pods that are still there then make the run fail, and the taint comes off")
        return Limit(spec.deadline, "then the taint comes off and the run fails")
    if status.phase is Phase.IN_MAINTENANCE:
        work_end = _work_end(run, speed)
        if status.reason == Reason.WAITING_FOR_WORK and work_end is not None and work_end < deadline.at:
            return Limit(work_end, "then the work is done and the devices are given back if idle")
        return deadline
    if status.phase in (None, Phase.PENDING, Phase.DRY_RUN, Phase.BLOCKED, Phase.NOTICE):
        return Limit(spec.deadline, "then the run expires")
    return None


def _deadline(run: MaintenanceRun) -> Limit:
    spec = run.spec
    if spec.at_deadline is AtDeadline.EXTEND and spec.extend_by is not None:
        then = "idle devices whose work is done are given back, else the taint stays"
        return Limit(
            spec.deadline + spec.extend_by, f"that is the deadline and {format_duration(spec.extend_by)}; {then}"
        )
    if spec.at_deadline is AtDeadline.KEEP_TAINTED:
        return Limit(spec.deadline, "then the taint stays until somebody releases")
    return Limit(spec.deadline, "then idle devices whose work is done are given back, else the taint stays")


def _work_end(run: MaintenanceRun, speed: float) -> datetime | None:
    work, started = run.spec.work, run.status.work_started_at
    if work.mode is WorkMode.DURATION and work.duration is not None and started is not None:
        return started + work.duration / speed
    return None


def next_command(run: MaintenanceRun, now: datetime) -> str:
    """The run's own next step, or the one that its state asks for."""
    if unseen(run, now):
        return "taintctl run (or kubectl -n taintctl-system rollout status deployment/taintctl)"
    if run.status.next_step:
        return run.status.next_step
    if run.status.phase is not None and run.status.phase.ended:
        return "nothing to do"
    return f"taintctl status {run.name} --watch"


def explain_window(window: MaintenanceWindow, problems: tuple[str, ...], now: datetime) -> list[Line]:
    """Why a window makes no run now."""
    status = window.status
    lines = [line(heading(f"Window {window.name}"), ": ", _window_state(window, problems))]
    pairs: list[tuple[str, Cell]] = [("Mistake", problem) for problem in problems]
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
    pairs.append(("Next", _window_next(window, problems)))
    return lines + fields(pairs, indent=2)


def _window_state(window: MaintenanceWindow, problems: tuple[str, ...]) -> str:
    if problems:
        return "it has a mistake and makes no run."
    if window.spec.suspend:
        return "it is suspended and makes no run."
    if window.status.active_run:
        return f"its run {window.status.active_run} has not ended."
    return "it waits for its next start." if window.status.next_start else "it knows of no further start."


def _window_next(window: MaintenanceWindow, problems: tuple[str, ...]) -> str:
    if problems:
        return f"kubectl edit mw {window.name}"
    if window.spec.suspend:
        return f'kubectl patch mw {window.name} --type merge -p \'{{"spec":{{"suspend":false}}}}\''
    if window.status.active_run:
        return f"taintctl explain {window.status.active_run}"
    return f"taintctl schedule {window.name}, or taintctl start --window {window.name} for a run now"
