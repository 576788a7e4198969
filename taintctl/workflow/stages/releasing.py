"""Releasing: the devices were proven idle in the decision that led here; our rules come off."""

from __future__ import annotations

from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.text import plural
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.transitions import TRANSITIONS


def decide(look: Look) -> Decision:
    if look.obs.rules:
        return look.stay(look.status.reason, f"{plural(len(look.obs.rules), 'rule')} still to be deleted.")
    look = look.with_status(rules=()).with_condition(
        ConditionType.RELEASED, True, Reason.RELEASED, "No rule of this run is left."
    )
    ending = look.status.ending
    if ending is not None and (look.phase, ending.reason, ending.phase) in TRANSITIONS:
        return look.go(ending.phase, Reason(ending.reason), ending.message)
    return look.go(Phase.SUCCEEDED, Reason.COMPLETED, "Maintenance is over and the devices are back in use.")
