"""The proof that devices are idle: nothing holds them, the taint has stood for long enough, no node can have fallen
silent with a pod on it, and the control plane means nobody any more. The same whatever made the pods go."""

from __future__ import annotations

from datetime import timedelta

from taintctl.api.plan import Plan, Verdict
from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.run import EvictionStatus
from taintctl.api.text import moment, some
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.rules import main_rules, selector


def not_idle(look: Look) -> str:
    """DevicesIdle while it is not proven: what the objects say, but never True before the waits are over."""
    return "False" if look.obs.idleness.verdict is Verdict.FALSE else "Unknown"


def unproven(look: Look, plan: Plan | None, in_use: tuple[str, str]) -> tuple[str, str] | None:
    """Why the devices are not proven idle yet; None where they are (as far as this look can say). `in_use` is what to
    say where something holds them."""
    idle, settings, eviction = look.obs.idleness, look.obs.settings, look.status.eviction
    assert eviction is not None
    if idle.verdict is Verdict.FALSE:
        return in_use
    if idle.verdict is Verdict.UNKNOWN:
        return idle.reason, idle.message
    if not look.past(eviction.settled_from, settings.settle):
        return (
            Reason.SETTLING,
            f"The devices look idle; until {settings.settle.total_seconds():g} s after the taint "
            "a pod may come that was scheduled before it.",
        )
    return _condition_pending(look, plan) or _silence_possible(look)


def _silence_possible(look: Look) -> tuple[str, str] | None:
    """A pod force-deleted from a node that fell silent is gone from the API and still runs, and the node reads Ready
    for a while: so the devices must have looked idle, their nodes Ready, for longer than that: by the times in the
    status, and by a clock of this process, since a wall clock can be set."""
    silence, eviction = look.obs.settings.node_silence, look.status.eviction
    assert eviction is not None
    if eviction.empty_since is None:
        return None
    left = max(look.until(eviction.empty_since, silence), look.scaled(silence) - look.obs.idle_for)
    if left <= timedelta(0):
        return None
    return (
        Reason.PROVING_IDLE,
        "No pod holds the devices any more; a node that fell silent reads Ready for a while, so the proof waits until "
        f"{moment(look.now + left)}.",
    )


def _condition_pending(look: Look, plan: Plan | None) -> tuple[str, str] | None:
    """EvictionInProgress False for this generation on every rule; or on those where it is not, it has been so for 20 s
    with no pod left that it could mean (recording 09: nothing updates it then)."""
    waiting = [rule for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    if not waiting:
        return None
    names = some([rule.name for rule in waiting])
    if plan is None or not _means_nobody(look, plan):
        return Reason.PROVING_IDLE, f"EvictionInProgress of DeviceTaintRule {names} is not False yet."
    eviction = look.status.eviction
    if eviction is not None and look.past(eviction.stale_since, look.obs.settings.stale_condition):
        return None
    return (
        Reason.PROVING_IDLE,
        f"EvictionInProgress of DeviceTaintRule {names} is not False, though no pod is left that it could mean; "
        f"after {look.obs.settings.stale_condition.total_seconds():g} s it counts as stale.",
    )


def with_staleness(look: Look, plan: Plan | None) -> Look:
    """Since when a condition has not been False although no pod is left that it could mean."""
    old = look.status.eviction or EvictionStatus(started_at=look.status.phase_since)
    since = (old.stale_since or look.now) if plan is not None and _means_nobody(look, plan) else None
    return look.with_status(eviction=old.model_copy(update={"stale_since": since}))


def _means_nobody(look: Look, plan: Plan) -> bool:
    planned = {selector(rule): rule.pods for rule in plan.rules}
    waiting = [rule for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    return bool(waiting) and not any(planned.get(selector(rule), 0) for rule in waiting)


def proven(look: Look) -> Decision:
    eviction = look.status.eviction
    assert eviction is not None
    stale = [rule.name for rule in main_rules(look.status) if rule.eviction_in_progress != "False"]
    message = "Every pod is gone, and the devices are proven idle."
    reason = Reason.COMPLETED
    if stale:
        reason = Reason.CONDITION_STALE
        message += f" EvictionInProgress of DeviceTaintRule {some(stale)} is stale: it means no pod any more."
    eviction = eviction.model_copy(update={"idle_proven_at": look.now, "pending": 0, "terminating": ()})
    # A second look that was under way for those who were left is over: nobody is.
    look = look.with_status(eviction=eviction, work_started_at=look.now, rules=main_rules(look.status))
    look = look.with_condition(ConditionType.EVICTED, True, reason, message)
    look = look.with_condition(ConditionType.DEVICES_IDLE, True, Reason.DEVICES_IDLE, look.obs.idleness.message)
    look = look.with_condition(ConditionType.WORK_DONE, False, Reason.WAITING_FOR_WORK, "The work may begin.")
    return look.go(Phase.IN_MAINTENANCE, Reason.DEVICES_IDLE, message)
