"""The condition Notified: whether those whom the policy wants told of the run were told. It decides nothing else."""

from __future__ import annotations

from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.run import Notification, RunStatus
from taintctl.workflow.look import Look, conditioned
from taintctl.workflow.text import MESSAGE_MAX, short

WHERE = {"Slack": "Slack", "Webhook": "the webhook"}


def with_notified(look: Look, status: RunStatus) -> RunStatus:
    """Absent where the policy wants nobody told, and until it was tried. Without a policy it stays as it is."""
    policy = look.obs.policy
    if policy is None:
        return status
    wants = policy.spec.notifications
    kinds = {kind for kind, target in (("Slack", wants.slack), ("Webhook", wants.webhook)) if target is not None}
    entries = [entry for entry in status.notifications if entry.kind in kinds]
    failing = next((entry for entry in entries if entry.failing_since is not None), None)
    if failing is not None:
        status = conditioned(
            status, look, ConditionType.NOTIFIED, False, Reason.NOTIFY_FAILED, _sentence(failing, look.name, status)
        )
        return _said(status, failing) if failing.kind == "Slack" else status
    if kinds and kinds <= {entry.kind for entry in entries if entry.delivered_at is not None}:
        told = " and ".join(f"{WHERE[kind]} ({target})" for kind, target in sorted((e.kind, e.target) for e in entries))
        return conditioned(status, look, ConditionType.NOTIFIED, True, Reason.NOTIFIED, f"Told in {told}.")
    rest = tuple(condition for condition in status.conditions if condition.type != ConditionType.NOTIFIED)
    return status.model_copy(update={"conditions": rest})


def _sentence(entry: Notification, run: str, status: RunStatus) -> str:
    error = entry.error.rstrip(".")
    if status.phase is Phase.AWAITING_APPROVAL and entry.kind == "Slack":
        return f"Slack: {error}; it is tried again, and taintctl approve {run} works all the same."
    return f"{entry.kind}: {error}; it is tried again."


def _said(status: RunStatus, entry: Notification) -> RunStatus:
    """A run that waits for people says that they do not know of it."""
    if status.phase is not Phase.AWAITING_APPROVAL:
        return status
    who = "The message in Slack could not be kept up to date" if entry.ts else "Nobody could be told in Slack"
    message = short(f"{status.message} {who}: {entry.error}", MESSAGE_MAX)
    return status.model_copy(update={"message": message})
