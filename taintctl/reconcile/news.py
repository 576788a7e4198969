"""What is told of a run: lines for the thread of its message, and the events of a webhook (docs/webhook.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from taintctl.api.base import format_time
from taintctl.api.reasons import ENDED, Phase
from taintctl.api.run import HistoryEntry, MaintenanceRun, Notification

MAX_LINES = 10
"""Told in one go; what came before is counted."""
MAX_LINE = 600
AFTER_APPROVAL = frozenset(
    {
        Phase.NOTICE,
        Phase.EVICTING,
        Phase.DRAINING,
        Phase.IN_MAINTENANCE,
        Phase.RELEASING,
        Phase.ROLLING_BACK,
        *ENDED,
    }
)
UNTOLD = frozenset({None, Phase.PENDING, Phase.DRY_RUN})
"""Where nothing is known yet that anybody has to be told."""


def steps(run: MaintenanceRun, entry: Notification) -> tuple[HistoryEntry, ...]:
    """The phase changes from the approval on that are not in the thread yet."""
    return tuple(
        step
        for step in run.status.history
        if (entry.told is None or step.at > entry.told) and {step.from_, step.to} & AFTER_APPROVAL
    )


def lines(run: MaintenanceRun, new: Sequence[HistoryEntry]) -> tuple[str, ...]:
    """Plain text; the last step has the run's own sentence, where it is still the one that it is at."""
    said = [f"{step.to} ({step.reason})" for step in new]
    if new and new[-1].to == run.status.phase and run.status.message:
        said[-1] = f"{said[-1]}: {run.status.message}"
    if len(said) > MAX_LINES:
        earlier = len(said) - MAX_LINES + 1
        said = [f"{earlier} steps: {new[0].to} to {new[earlier - 1].to}", *said[earlier:]]
    return tuple(line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…" for line in said)


def last_step(run: MaintenanceRun) -> Any:
    return max((step.at for step in run.status.history), default=run.status.phase_since)


def event_id(run: MaintenanceRun) -> str:
    """The same for the same change, so that a receiver can tell one that is sent again."""
    status = run.status
    approval = status.approval
    parts = (
        run.metadata.uid,
        str(status.phase or ""),
        status.reason,
        format_time(status.phase_since) if status.phase_since is not None else "",
        approval.asked.digest if approval is not None and approval.asked is not None else "",
        ",".join(given.approval for given in approval.given) if approval is not None else "",
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def event(run: MaintenanceRun, at: str) -> dict[str, Any]:
    """The body of a webhook's request. Fields are added, never renamed."""
    status = run.status
    plan, approval = status.plan, status.approval
    return {
        "id": event_id(run),
        "type": "run.ended" if status.phase in ENDED else "run.changed",
        "at": at,
        "run": {
            "name": run.name,
            "uid": run.metadata.uid,
            "window": run.spec.trigger.window_name or "",
            "policy": run.spec.policy_name or "",
            "requestedBy": run.spec.requested_by or "",
            "deadline": format_time(run.spec.deadline),
        },
        "phase": str(status.phase or ""),
        "reason": status.reason,
        "message": status.message,
        "nextStep": status.next_step,
        "counts": plan.counts.dump() if plan is not None else {},
        "digest": approval.asked.digest if approval is not None and approval.asked is not None else "",
        "approvals": {
            "needed": approval.needed if approval is not None else 0,
            "given": [given.who for given in approval.given] if approval is not None else [],
        },
    }


def origin(url: str) -> str:
    """Scheme, host and port: the path and query may hold a secret."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port is not None else ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"[:256]
