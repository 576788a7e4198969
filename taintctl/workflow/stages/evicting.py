"""Evicting: the gate was passed. Either every rule is NoExecute, and the eviction controller is to follow; or we were
interrupted, and then the second look and the gate come again before anything is patched."""

from __future__ import annotations

from taintctl.api.reasons import Effect, Phase, Reason
from taintctl.api.run import EvictionStatus
from taintctl.api.text import plural, some
from taintctl.workflow.follow import follow, second_look
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.planning import Refusal, stands
from taintctl.workflow.rules import main_rules


def decide(look: Look) -> Decision:
    settings, rules = look.obs.settings, main_rules(look.status)
    if not rules or any(rule.effect is not Effect.NO_EXECUTE or rule.effect_since is None for rule in rules):
        now = stands(look)
        return follow(look, now) if isinstance(now, Refusal) else second_look(look)
    eviction = look.status.eviction or EvictionStatus(started_at=look.status.phase_since)
    if eviction.settled_from is None:
        eviction = eviction.model_copy(update={"settled_from": look.now})
    look = look.with_status(eviction=eviction)
    silent = [rule.name for rule in rules if rule.eviction_in_progress is None]
    if not silent:
        return look.go(
            Phase.DRAINING,
            Reason.EVICTION_ACKNOWLEDGED,
            f"The eviction controller has taken up {plural(len(rules), 'rule')}; the pods are going.",
        )
    if look.past(eviction.settled_from, settings.acknowledge):
        return look.block(
            Reason.EVICTION_CONTROLLER_SILENT,
            f"The eviction controller did not take up DeviceTaintRule {some(silent)} within "
            f"{settings.acknowledge.total_seconds():g} s, so the rules are back at NoSchedule; "
            "check that kube-controller-manager runs.",
            next_step=f"kubectl describe devicetaintrule {silent[0]}",
        )
    return look.stay(Reason.GATE_PASSED, "NoExecute is set; waiting for the eviction controller to take it up.")
