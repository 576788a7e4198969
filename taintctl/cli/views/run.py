"""One MaintenanceRun, as somebody on call reads it: what, where, why, and the next step first."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from taintctl.api.base import format_duration
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Agreement, Phase
from taintctl.api.run import DrainMode, MaintenanceRun, RuleStatus, RunStatus, WorkMode
from taintctl.api.target import Partitions, Target
from taintctl.api.text import plural, some
from taintctl.cli.text import (
    BAD,
    DIM,
    GOOD,
    WARN,
    Cell,
    Line,
    command,
    fields,
    heading,
    line,
    moment,
    span,
    styled,
    table,
    when,
)
from taintctl.cli.views import plan as plan_view
from taintctl.cli.views.ladder import ladder
from taintctl.cli.views.words import START

SHOWN_RULES = 20
SHOWN_HISTORY = 12
LIVE_ROWS = 12
"""Of each list on a live page, at most; fewer where the terminal is low."""


def phase_style(phase: Phase | None) -> str:
    if phase in (Phase.SUCCEEDED, Phase.IN_MAINTENANCE):
        return GOOD
    if phase in (Phase.BLOCKED, Phase.FAILED, Phase.EXPIRED, Phase.ROLLING_BACK):
        return BAD
    return WARN if phase in (Phase.AWAITING_APPROVAL, Phase.EVICTING, Phase.DRAINING) else ""


def target_text(target: Target) -> str:
    """`gpu.example.com, pool node-1, device gpu-0`."""
    parts = [target.driver] if target.driver else []
    parts += [f"pool {target.pool}"] if target.pool else []
    parts += [f"device {target.device}"] if target.device else []
    labels = target.node_selector or {}
    parts += [f"nodes {','.join(f'{key}={value}' for key, value in sorted(labels.items()))}"] if labels else []
    parts += [f"class {target.device_class_name}"] if target.device_class_name else []
    parts += [f"where {selector.cel.expression}" for selector in target.selectors or ()]
    parts += [f"UUID {uuid}" for uuid in target.uuids or ()]
    parts += ["partitions Exact"] if target.partitions is Partitions.EXACT else []
    parts += ["the whole driver"] if target.whole_driver else []
    return ", ".join(parts)


def run_view(
    run: MaintenanceRun, policy: EvictionPolicy | None, now: datetime, *, wide: bool = False, note: str = ""
) -> list[Line]:
    """The whole page. `policy` is the one the run names (the built-in one where it names none); None: not readable.
    `note` says that no controller seems to be at work."""
    blocks = [
        _head(run, now),
        _facts(run, policy, now),
        _plan(run, policy, wide),
        _rules(run.status, wide, note),
        _eviction(run.status, now),
        _approvals(run, now),
        told(run, now),
        _conditions(run.status, now),
        _history(run.status, wide),
        _next_step(run, note),
    ]
    return _joined(blocks)


def live_view(
    run: MaintenanceRun,
    policy: EvictionPolicy | None,
    now: datetime,
    *,
    height: int,
    fitted: Callable[[list[Line]], list[Line]],
    note: str = "",
) -> list[Line]:
    """A page of at most `height` lines to follow a run by: what moves comes first, lists are cut to the room that is
    left, and what there is none for is left out. `fitted` makes lines fit the terminal's width."""
    plan, mode = run.status.plan, run.spec.drain.mode
    spec = policy.spec if policy else None

    def violations(most: int) -> list[Line]:
        found = plan.violations if plan else ()
        more = len(found) - most
        said = plan_view.violations(found[:most])
        return [*said, line(f"and {plural(more, 'violation')} more")] if more > 0 else said

    def pods(most: int) -> list[Line]:
        if plan is None:
            return []
        return [heading("Pods"), *plan_view.pods(plan.pods, plan.more_pods, mode=mode, most=most)]

    blocks: list[list[Line] | Callable[[int], list[Line]]] = [
        _head(run, now),
        _next_step(run, note),
        _eviction(run.status, now),
        _approvals(run, now),
        told(run, now),
        violations,
        _conditions(run.status, now, brief=True),
        [heading("Plan"), *plan_view.counts(plan.counts, spec)] if plan else [],
        lambda most: _rules(run.status, False, note, most),
        pods,
        lambda most: _history(run.status, False, most),
        _facts(run, policy, now),
    ]
    page: list[Line] = []
    less = False
    for block in blocks:
        room = height - 2 - len(page)
        versions = [block] if isinstance(block, list) else [block(most) for most in range(LIVE_ROWS, 0, -1)]
        for number, lines in enumerate(versions):
            more = fitted(([line("")] if page else []) + lines) if lines else []
            if len(more) <= room or not page:
                page += more
                less = less or (number > 0 and lines != versions[0])
                break
        else:
            less = True
    rest = [line(""), line(f"taintctl status {run.name} shows all of it.")] if less else []
    return [*page, *rest][: max(height, 1)]


def _joined(blocks: Iterable[list[Line]]) -> list[Line]:
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [line("")] if lines else []
            lines += block
    return lines


def _head(run: MaintenanceRun, now: datetime) -> list[Line]:
    status = run.status
    phase = status.phase or Phase.PENDING
    since = f" for {span(now - status.phase_since)}" if status.phase_since else ""
    reason = f" ({status.reason})" if status.reason else ""
    lines = [
        line(heading("Run "), run.name, ": ", styled(phase, phase_style(status.phase) or "bold"), reason, since),
        line("  ", status.message or "No controller has looked at this run yet; is `taintctl run` running?"),
    ]
    if run.metadata.deletion_timestamp is not None:
        lines.append(line(styled("  It is being deleted.", WARN)))
    if run.spec.paused and not phase.ended:
        lines.append(line(styled("  It is paused.", WARN)))
    if run.spec.cancelled and not phase.ended:
        lines.append(line(styled("  It is asked to end (taintctl cancel).", WARN)))
    return [*lines, line("  ", ladder(status))]


def _facts(run: MaintenanceRun, policy: EvictionPolicy | None, now: datetime) -> list[Line]:
    spec = run.spec
    pairs: list[tuple[str, Cell]] = [
        ("Target", target_text(spec.target)),
        ("Taint", f"{spec.taint.key}={spec.taint.value if spec.taint.value is not None else run.name}"),
        ("Policy", _policy_text(run, policy)),
        ("Asked for by", _asked_by(run)),
        ("Start", when(spec.start_at, now) if spec.start_at else "as soon as it may"),
        ("Deadline", f"{when(spec.deadline, now)}, then {spec.at_deadline}"),
        (
            "Notice",
            f"{format_duration(spec.notice)} (at least 10s), then pods may take {format_duration(spec.drain.timeout)}",
        ),
        *([("Drain", _drain(policy))] if spec.drain.mode is DrainMode.EVICT else []),
        ("Work", _work(run, now)),
    ]
    return fields(pairs, indent=2)


def _policy_text(run: MaintenanceRun, policy: EvictionPolicy | None) -> str:
    if run.spec.policy_name is None:
        return "built in: everything needs an approval"
    return run.spec.policy_name if policy else f"{run.spec.policy_name} (not readable)"


def _asked_by(run: MaintenanceRun) -> str:
    trigger = run.spec.trigger
    window = f"window {trigger.window_name}" if trigger.window_name else ""
    who = ", ".join(part for part in (run.spec.requested_by or "", window) if part) or "not said"
    return f"{who}: {trigger.reason}" if trigger.reason else who


def _drain(policy: EvictionPolicy | None) -> str:
    if policy is None:
        return "through the Eviction API"
    force = policy.spec.drain.force_at_timeout
    return "through the Eviction API, " + ("then NoExecute for what is left" if force else "and by NoExecute never")


def _work(run: MaintenanceRun, now: datetime) -> str:
    work, started = run.spec.work, run.status.work_started_at
    began = f", began {when(started, now)}" if started else ""
    if work.mode is WorkMode.DURATION and work.duration is not None:
        return f"{format_duration(work.duration)}{began}"
    return f"until `taintctl complete {run.name}`{began}"


def _plan(run: MaintenanceRun, policy: EvictionPolicy | None, wide: bool) -> list[Line]:
    plan = run.status.plan
    if plan is None:
        return []
    spec, mode = policy.spec if policy else None, run.spec.drain.mode
    computed = f" (made at {moment(plan.computed_at)})" if plan.computed_at else ""
    lines = [line(heading("Plan"), computed), *plan_view.counts(plan.counts, spec)]
    lines += plan_view.violations(plan.violations)
    lines += [line(""), heading("Devices"), *plan_view.devices(plan.devices, plan.more_devices, wide=wide)]
    lines += [line(""), heading("Pods"), *plan_view.pods(plan.pods, plan.more_pods, wide=wide, mode=mode)]
    multiple = plan.multiple_budgets
    for found in (
        plan_view.lost(plan.lost_with, plan.more_lost_with, wide=wide),
        plan_view.budgets(plan.budgets, plan.more_budgets, multiple=multiple, mode=mode, policy=spec),
    ):
        lines += [line(""), *found] if found else []
    return lines


def _rules(status: RunStatus, wide: bool, note: str = "", most: int = SHOWN_RULES) -> list[Line]:
    """The control plane's dry-run numbers beside our own prediction, rule by rule."""
    if not status.rules:
        return []
    shown = status.rules if wide else status.rules[:most]
    seen = "; as the controller last saw them" if note else ""
    lines = [heading(f"Rules (what the control plane's dry run says, beside our own count of pods{seen})")]
    more = ("PUBLISHED", "ALLOCATED", "NAMESPACES") if wide else ()
    header = ("SELECTOR", "EFFECT", *more, "PODS", "PREDICTED", "", "EVICTING")
    lines += table(header, [_rule_row(rule, wide) for rule in shown], indent=2)
    if len(status.rules) > len(shown):
        lines.append(line(f"  and {len(status.rules) - len(shown)} more (-o wide shows them)"))
    if wide:
        lines += [line("  ", styled(rule.name, DIM), f": {rule.message or 'no message yet'}") for rule in shown]
    return lines


def _rule_row(rule: RuleStatus, wide: bool) -> list[Cell]:
    selector = f"{rule.pool}/{rule.device}" if rule.device else rule.pool
    if rule.role == "dry-run":
        selector += " (second look)"
    agreement: Cell = "waiting"
    if rule.agreement is Agreement.AGREED:
        agreement = styled("agreed", GOOD)
    elif rule.agreement is not None:
        agreement = styled(rule.agreement.lower(), BAD)
    more = (rule.published, rule.allocated, rule.namespaces) if wide else ()
    numbers = [_number(n) for n in (*more, rule.pods, rule.predicted)]
    return [selector, rule.effect, *numbers, agreement, rule.eviction_in_progress or "-"]


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _eviction(status: RunStatus, now: datetime) -> list[Line]:
    eviction = status.eviction
    if eviction is None or eviction.started_at is None:
        return []
    pairs: list[tuple[str, Cell]] = [
        ("Started", when(eviction.started_at, now)),
        ("Evicted", f"{eviction.evicted_by_taint} by the taint, {eviction.evicted_by_taintctl} by taintctl"),
        ("Still there", f"{eviction.pending} to go, {len(eviction.terminating)} terminating"),
    ]
    if eviction.forced_at:
        pairs.append(("Forced", f"NoExecute for what was left, {when(eviction.forced_at, now)}"))
    if eviction.not_forced:
        pairs.append(("Not forced", styled(eviction.not_forced, WARN)))
    if eviction.terminating:
        pairs.append(("Terminating", some([f"{p.namespace}/{p.name}" for p in eviction.terminating], 5)))
    if eviction.late:
        late = some([f"{p.namespace}/{p.name}" for p in eviction.late], 5)
        pairs.append(("Came late", styled(f"{late}: not in the approved plan, so taintctl leaves them", WARN)))
    pairs += [("Blocked by", styled(blocker, WARN)) for blocker in eviction.blocked_by[:5]]
    if eviction.idle_proven_at:
        pairs.append(("Proven idle", when(eviction.idle_proven_at, now)))
    return [heading("Eviction"), *fields(pairs, indent=2)]


def _approvals(run: MaintenanceRun, now: datetime) -> list[Line]:
    approval = run.status.approval
    if approval is None:
        return []
    if approval.needed == 0:
        return [line(heading("Approval"), ": not needed, the policy lets this plan pass")]
    lines = [line(heading("Approval"), f": {len(approval.given)} of {approval.needed} given")]
    for given in approval.given:
        comment = f": {given.comment}" if given.comment else ""
        at = f" at {moment(given.at)}" if given.at else ""
        how = " (Break)" if given.breaks else ""
        lines.append(line("  ", styled(given.who, GOOD), f"{how}{at}{comment}"))
    if approval.break_needed and not any(given.breaks for given in approval.given) and not _ended(run):
        lines.append(line(styled("  A Break is wanted: the policy protects pods of the plan.", WARN)))
    if len(given_names := approval.given) < approval.needed and approval.expires_at and not _ended(run):
        missing = approval.needed - len(given_names)
        lines.append(line(f"  {missing} more wanted, until {when(approval.expires_at, now)}"))
    return lines


def told(run: MaintenanceRun, now: datetime) -> list[Line]:
    """Where people are told of the run, and where that fails."""
    lines: list[Line] = []
    for entry in run.status.notifications:
        where = f"Told in {entry.kind if entry.kind == 'Slack' else 'the webhook'}"
        if entry.failing_since is not None:
            since = when(entry.failing_since, now)
            lines.append(line(heading(where), ": ", styled("no", BAD), f", since {since}: {entry.error}"))
        elif entry.delivered_at is not None:
            lines.append(line(heading(where), f": {entry.target}, last {when(entry.delivered_at, now)}"))
    return lines


def _ended(run: MaintenanceRun) -> bool:
    return run.status.phase is not None and run.status.phase.ended


def _conditions(status: RunStatus, now: datetime, *, brief: bool = False) -> list[Line]:
    if not status.conditions:
        return []
    styles = {"True": GOOD, "False": "", "Unknown": WARN}
    rows: list[list[Cell]] = [
        [
            c.type,
            styled(c.status, styles.get(c.status, WARN)),
            span(now - c.last_transition_time) if c.last_transition_time else "-",
            c.reason,
            *([] if brief else [c.message]),
        ]
        for c in status.conditions
    ]
    header = ("TYPE", "STATUS", "FOR", "REASON", *(() if brief else ("MESSAGE",)))
    return [heading("Conditions"), *table(header, rows, indent=2)]


def _history(status: RunStatus, wide: bool, most: int = SHOWN_HISTORY) -> list[Line]:
    if not status.history:
        return []
    shown = status.history if wide else status.history[-most:]
    rows = [(moment(entry.at), entry.from_ or "-", entry.to, entry.reason) for entry in shown]
    earlier = len(status.history) - len(shown)
    lines = [line(heading("History"), f" ({earlier} earlier: -o wide)" if earlier else "")]
    return [*lines, *table(("AT", "FROM", "TO", "REASON"), rows, indent=2, whole=("AT",), optional=("FROM",))]


def _next_step(run: MaintenanceRun, note: str = "") -> list[Line]:
    step = run.status.next_step or ("nothing to do" if _ended(run) else "wait; the run goes on by itself")
    if note and not _ended(run):
        step = START
    return [line(heading("Next: "), command(step))]
