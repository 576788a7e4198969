"""The windows: why somebody says no, and everything that a plan touches, page by page."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from taintctl.adapters.slack import blocks as kit
from taintctl.adapters.slack.limits import Block
from taintctl.adapters.slack.text import code, joined, plain, prose
from taintctl.adapters.slack.value import COMMENT, DENY_VIEW, DETAILS_VIEW, NEXT, PREVIOUS, Subject
from taintctl.api.plan import Plan, PlannedDevice, PlannedPod
from taintctl.api.reasons import PodEffect
from taintctl.api.text import plural
from taintctl.ports.chat import Details

PAGE_LINES = 60
SECTION = 2800
COMMENT_MAX = 1000
"""A MaintenanceApproval's comment has at most 1024 characters."""
ORDER = {effect: place for place, effect in enumerate(PodEffect)}


def deny(subject: Subject) -> Block:
    element = {
        "type": "plain_text_input",
        "action_id": COMMENT,
        "multiline": True,
        "min_length": 1,
        "max_length": COMMENT_MAX,
        "placeholder": kit.plain_text("Why not now?"),
    }
    return {
        "type": "modal",
        "callback_id": DENY_VIEW,
        "private_metadata": subject.dumps(),
        "title": kit.plain_text("Deny the run"),
        "submit": kit.plain_text("Deny"),
        "close": kit.plain_text("Back"),
        "blocks": [
            kit.section(f"One denial cancels {code(subject.run, 253)} for everybody."),
            {
                "type": "input",
                "block_id": COMMENT,
                "label": kit.plain_text("Why"),
                "element": element,
                "hint": kit.plain_text("Everybody who looks at the run reads it."),
            },
        ],
    }


def loading(subject: Subject) -> Block:
    return _window(subject, [kit.section(f"Looking at {code(subject.run, 253)} …")])


def refused(subject: Subject, text: str) -> Block:
    return _window(subject, [kit.section(prose(text, 600))])


def details(subject: Subject, found: Details | None) -> Block:
    """The page that `subject` asks for; the nearest one where there is none such any more."""
    if found is None:
        return refused(subject, f"The run {subject.run} is gone.")
    head = [] if found.same or found.plan is None else ["⚠️ *This is not the plan that is asked about.*"]
    if found.note:
        head.append(prose(found.note, 600))
    if found.plan is None:
        return _window(subject, [kit.section(joined(head) or "There is no plan.")])
    entries = _entries(found.plan)
    pages = max(1, -(-len(entries) // PAGE_LINES))
    page = min(subject.page, pages - 1)
    lines = [_line(entry) for entry in entries[page * PAGE_LINES : (page + 1) * PAGE_LINES]]
    at = replace(subject, page=page)
    head.append(
        f"{plural(len(found.plan.devices), 'device')}, {plural(len(found.plan.pods), 'pod')}; "
        f"page {page + 1} of {pages}"
    )
    made = [kit.section(joined(head)), *_sections(lines)]
    turns = [(PREVIOUS, "Previous", page - 1), (NEXT, "Next", page + 1)]
    buttons = [
        kit.button(action, text, replace(subject, page=to).dumps()) for action, text, to in turns if 0 <= to < pages
    ]
    return _window(at, [*made, kit.actions(buttons)] if buttons else made)


def _window(subject: Subject, made: list[Block]) -> Block:
    return {
        "type": "modal",
        "callback_id": DETAILS_VIEW,
        "private_metadata": subject.dumps(),
        "title": kit.plain_text(plain("Pods and devices", 24)),
        "close": kit.plain_text("Close"),
        "blocks": made,
    }


def _sections(lines: list[str]) -> list[Block]:
    made: list[Block] = []
    text = ""
    for line in lines:
        if text and len(text) + len(line) + 1 > SECTION:
            made.append(kit.section(text))
            text = ""
        text = f"{text}\n{line}" if text else line
    return [*made, kit.section(text)] if text else made


def _entries(plan: Plan) -> list[str | PlannedPod | PlannedDevice]:
    """Headings, every pod, worst effect first, and every device; one line each."""
    counts = Counter(pod.effect for pod in plan.pods)
    entries: list[str | PlannedPod | PlannedDevice] = []
    last: PodEffect | None = None
    for pod in sorted(plan.pods, key=lambda pod: (ORDER[pod.effect], pod.namespace, pod.name)):
        if pod.effect is not last:
            last = pod.effect
            entries.append(f"*{pod.effect}* {counts[pod.effect]}")
        entries.append(pod)
    return [*entries, *([f"*Devices* {len(plan.devices)}"] if plan.devices else []), *plan.devices]


def _line(entry: str | PlannedPod | PlannedDevice) -> str:
    if isinstance(entry, str):
        return entry
    return _pod(entry) if isinstance(entry, PlannedPod) else _device(entry)


def _device(device: PlannedDevice) -> str:
    where = f" on {code(device.node, 80)}" if device.node else ""
    uuid = f" {code(device.uuid, 60)}" if device.uuid else ""
    gone = "" if device.published else ", no longer published"
    return f"• {code(str(device.id), 150)}{uuid}{where}{gone}{', on the same hardware' if device.along else ''}"


def _pod(pod: PlannedPod) -> str:
    said = [f"• {code(pod.key, 150)}", code(pod.owner, 90) if pod.owner else "no owner"]
    if pod.node:
        said.append(f"on {code(pod.node, 80)}")
    if pod.devices:
        more = f" and {len(pod.devices) - 2} more" if len(pod.devices) > 2 else ""
        said.append(f"holds {', '.join(code(f'{d.pool}/{d.device}', 80) for d in pod.devices[:2])}{more}")
    if pod.toleration_seconds is not None:
        said.append(f"{pod.toleration_seconds} s after the taint")
    if pod.terminating:
        said.append("going already")
    return ", ".join(said)
