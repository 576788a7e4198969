"""RollingBack: before maintenance began every rule of ours comes off, those that evict first; then the run ends."""

from __future__ import annotations

from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.text import plural
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.transitions import TRANSITIONS


def decide(look: Look) -> Decision:
    if look.obs.rules:
        left = plural(len(look.obs.rules), "rule")
        return look.stay(look.status.reason, f"{_why(look)} {left} still to be deleted.")
    look = look.with_status(rules=()).with_condition(
        ConditionType.RELEASED, True, look.status.reason, "No rule of this run is left."
    )
    ending = look.status.ending
    if ending is not None and (look.phase, ending.reason, ending.phase) in TRANSITIONS:
        return look.go(ending.phase, Reason(ending.reason), ending.message)
    return look.go(Phase.CANCELLED, Reason.CANCELLED, "The run was taken back.")


def _why(look: Look) -> str:
    return look.status.ending.message if look.status.ending is not None else "The run is taken back."
