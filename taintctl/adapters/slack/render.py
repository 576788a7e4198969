"""A run as one message: what is asked, of whom and until when; rendered from the run alone, so the same run always
looks the same."""

from __future__ import annotations

from taintctl.adapters.slack import blocks as kit
from taintctl.adapters.slack import render_plan as parts
from taintctl.adapters.slack.limits import MESSAGE_SIZE, Block, size
from taintctl.adapters.slack.text import code, joined, listed, plain, prose, when
from taintctl.adapters.slack.value import APPROVE, BREAK, DENY, DETAILS, Subject
from taintctl.api.policy import ApproverKind
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import ApprovalStatus, MaintenanceRun
from taintctl.api.text import plural
from taintctl.ports.chat import RunView

KINDS = {
    "Schedule": ("🗓️", "Planned maintenance"),
    "Manual": ("🔧", "Maintenance by hand"),
    "Quarantine": ("🚨", "QUARANTINE"),
}
"""By trigger.type: another picture and another word, so that neither colour nor a picture alone tells them apart."""
BRAKE = ("🛑", "BRAKE")
STATES = {
    Phase.PENDING: ("🕐", "Waiting for its turn"),
    Phase.DRY_RUN: ("🔍", "Dry run"),
    Phase.BLOCKED: ("⛔", "Blocked"),
    Phase.AWAITING_APPROVAL: ("✋", "Waiting for approval"),
    Phase.NOTICE: ("📣", "Notice given: no new pods"),
    Phase.EVICTING: ("🚚", "Evicting"),
    Phase.DRAINING: ("🚚", "Draining"),
    Phase.IN_MAINTENANCE: ("🛠️", "In maintenance"),
    Phase.RELEASING: ("🔓", "Releasing"),
    Phase.ROLLING_BACK: ("↩️", "Rolling back"),
    Phase.SUCCEEDED: ("✅", "Done"),
    Phase.FAILED: ("❌", "Failed"),
    Phase.CANCELLED: ("🚫", "Cancelled"),
    Phase.EXPIRED: ("⌛", "Window closed before it began"),
}
VERDICTS = {
    Reason.DENIED: ("🚫", "Denied"),
    Reason.APPROVAL_EXPIRED: ("⌛", "Expired: nobody approved in time"),
    Reason.PLAN_CHANGED: ("♻️", "Void: the plan changed"),
}
"""Three ways for a question to end without a yes."""
IN_SLACK = frozenset({ApproverKind.SLACK, ApproverKind.SLACK_GROUP, ApproverKind.EMAIL})
MAX_GIVEN = 12


def message(view: RunView) -> Block:
    """`text` (what a notification shows) and `blocks`, the arguments of chat.postMessage and chat.update."""
    emoji, kind = _kind(view.run)
    picture, state = _state(view.run)
    counts = view.run.status.plan.counts if view.run.status.plan else None
    hits = f"; {plural(counts.pods, 'pod')} on {plural(counts.devices, 'device')}" if counts else ""
    text = f"{emoji} {kind} {plain(view.run.name, 120)}: {picture} {state}{hits}"
    for room in (1.0, 0.5, 0.25):
        made = _blocks(view, room)
        if size(made) <= MESSAGE_SIZE:
            break
    return {"text": text, "blocks": made}


def asked(run: MaintenanceRun) -> ApprovalStatus | None:
    """The question that people are asked now; None where none is."""
    approval = run.status.approval
    if run.status.phase is not Phase.AWAITING_APPROVAL or approval is None or approval.asked is None:
        return None
    return approval if approval.needed and approval.approved_at is None and run.status.ending is None else None


def superseded(text: str) -> Block:
    """What is left of a message that another one stands for."""
    said = prose(text, 600)
    return {"text": plain(text, 300), "blocks": [kit.section(f"➡️ *This message no longer counts.* {said}")]}


def _kind(run: MaintenanceRun) -> tuple[str, str]:
    if run.status.reason.startswith("Brake"):
        return BRAKE
    return KINDS.get(str(run.spec.trigger.type), ("🔧", "Maintenance"))


def _state(run: MaintenanceRun) -> tuple[str, str]:
    status = run.status
    verdict = next((v for reason, v in VERDICTS.items() if status.reason == reason), None)
    if verdict is not None and not (status.phase is Phase.AWAITING_APPROVAL and asked(run)):
        return verdict
    return STATES.get(status.phase, ("🕐", "Not begun")) if status.phase else ("🕐", "Not begun")


def _blocks(view: RunView, room: float) -> list[Block]:
    run, question = view.run, asked(view.run)
    emoji, kind = _kind(run)
    picture, state = _state(run)
    name = run.spec.trigger.window_name or run.name
    made = [
        kit.header(f"{emoji} {kind}: {plain(name, 100)}"),
        kit.section(joined((f"{picture} *{state}*", _void(run), prose(run.status.message, int(600 * room))))),
        kit.fields(_facts(run)),
    ]
    policy = view.policy.spec if view.policy else None
    texts = [] if question else [_next(run)]
    ended = run.status.phase is not None and run.status.phase.ended
    if run.status.plan is not None and ended:
        texts.append(parts.counts(run.status.plan, policy))
    elif run.status.plan is not None:
        texts += [
            parts.counts(run.status.plan, policy),
            parts.pods(run.status.plan, run.spec.drain.mode, int(2200 * room)),
            parts.trouble(run.status.plan, policy, run.spec.drain.mode, int(1800 * room)),
        ]
    texts += [_approvals(run, int(900 * room)), _who_may(view) if question else ""]
    made += [kit.section(text) for text in texts if text]
    if question is not None:
        made.append(_buttons(view, question))
    made.append(
        kit.context(
            f"Look closer: {code(f'taintctl status {run.name}', 300)} or {code(f'kubectl describe mr {run.name}', 300)}"
        )
    )
    return made


def _void(run: MaintenanceRun) -> str:
    if run.status.reason == Reason.PLAN_CHANGED and asked(run):
        return "♻️ *Void: the plan changed*; what was approved before does not count for this one."
    return ""


def _next(run: MaintenanceRun) -> str:
    return f"Next: {code(run.status.next_step, 300)}" if run.status.next_step else ""


def _facts(run: MaintenanceRun) -> list[str]:
    spec, plan = run.spec, run.status.plan
    opens = when(spec.start_at) if spec.start_at else "as soon as it may"
    facts = [
        f"*Run*\n{code(run.name, 253)}",
        f"*Window*\n{code(spec.trigger.window_name) if spec.trigger.window_name else 'none'}",
        f"*Opens*\n{opens}",
        f"*Closes*\n{when(spec.deadline)}",
    ]
    if plan is not None:
        nodes = sorted({device.node for device in plan.devices if device.node})
        names = ", ".join(code(node, 70) for node in nodes[:3])
        more = "and more" if plan.more_devices else f"and {len(nodes) - 3} more"
        facts += [
            f"*Devices*\n{plan.counts.devices}",
            f"*Nodes*\n{names or 'none'}" + (f" {more}" if len(nodes) > 3 or plan.more_devices else ""),
        ]
    if spec.requested_by:
        facts.append(f"*Asked for by*\n{prose(spec.requested_by)}")
    if spec.trigger.reason:
        facts.append(f"*Why*\n{prose(spec.trigger.reason, 300)}")
    facts.append(f"*Policy*\n{code(spec.policy_name) if spec.policy_name else 'built in: everything is asked about'}")
    return facts


def _approvals(run: MaintenanceRun, limit: int) -> str:
    approval = run.status.approval
    if approval is None or (not approval.needed and not approval.given):
        return ""
    lines = []
    for given in approval.given[:MAX_GIVEN]:
        # A name in Slack is whatever its owner chose, so the id stands by it.
        named = f"{prose(given.name, 64)} " if given.name else ""
        who = f"{named}({code(given.approver, 40)} in Slack)" if given.kind == "Slack" else prose(given.approver, 80)
        at = f", {when(given.at)}" if given.at else ""
        comment = f": {prose(given.comment, 120)}" if given.comment else ""
        lines.append(f"👍 {who}{' with Break' if given.breaks else ''}{at}{comment}")
    head = f"*Approvals* {len(approval.given)} of {approval.needed}"
    if asked(run) and approval.expires_at:
        head += f", until {when(approval.expires_at)}"
    void = [item for item in approval.ignored if item.reason == Reason.OTHER_PLAN]
    ended = f"♻️ void: {plural(len(void), 'approval')} of an earlier plan" if void else ""
    return joined((head, listed(lines, limit, total=len(approval.given)), ended))


def _nobody(view: RunView) -> bool:
    if view.policy is None:
        return True
    return not any(approver.kind in IN_SLACK for approver in view.policy.spec.approval.approvers)


def _who_may(view: RunView) -> str:
    how = code(f"taintctl approve {view.run.name}", 300)
    if view.policy is None:
        return f"🔒 The run's policy can't be read, so nobody may approve through Slack. How to: {how}"
    if _nobody(view):
        return (
            "🔒 Under this policy nobody may approve through Slack: its approvers name no Slack user, group or mail "
            f"address. How to: {how}"
        )
    return ""


def _buttons(view: RunView, question: ApprovalStatus) -> Block:
    run = view.run
    value = Subject(run.name, run.metadata.uid, question.asked.digest if question.asked else "").dumps()
    details = kit.button(DETAILS, "Details", value)
    if _nobody(view):
        return kit.actions([details])
    deny = kit.button(DENY, "Deny", value, style="danger")
    if question.break_needed and not any(given.breaks for given in question.given):
        sure = kit.confirmation(
            "Evict protected pods?",
            "This plan evicts pods that the policy protects. A Break lets them go, for this plan only.",
            "Approve with Break",
            "Not now",
        )
        return kit.actions(
            [kit.button(BREAK, "Approve with Break", value, style="danger", confirm=sure), deny, details]
        )
    return kit.actions([kit.button(APPROVE, "Approve", value, style="primary"), deny, details])
