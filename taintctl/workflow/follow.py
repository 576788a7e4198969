"""Where a refusal leads, and the second look that ends at the gate."""

from __future__ import annotations

from taintctl.api.plan import Problem
from taintctl.api.reasons import ConditionType, Phase, Reason
from taintctl.api.run import DrainMode
from taintctl.workflow.gate import gate, pass_gate, pass_gate_by_api
from taintctl.workflow.look import AT_ONCE, Look
from taintctl.workflow.model import Decision
from taintctl.workflow.next_step import on_policy
from taintctl.workflow.planning import Refusal
from taintctl.workflow.rounds import Otherwise, begin_dry_run, new_second_look, read
from taintctl.workflow.rules import beside


def follow(look: Look, refused: Refusal) -> Decision:
    """To be blocked, rolled back, or planned anew (by live reads only: a cache that lags makes no plan change); or to
    wait, where nothing could be read."""
    if refused.to is Phase.BLOCKED:
        step = refused.next_step or on_policy(refused.reason, look.obs.run.spec.policy_name, look.name)
        return look.block(refused.reason, refused.message, next_step=step)
    if refused.to is Phase.ROLLING_BACK:
        look = look.with_condition(ConditionType.APPROVED, False, refused.reason, refused.message)
        return look.roll_back(refused.reason, Phase.CANCELLED, refused.message)
    if refused.to is Phase.DRY_RUN:
        if not look.obs.live:
            return look.look_live()
        return begin_dry_run(look, refused.reason, f"{refused.message} The dry run is made anew.")
    if refused.reason is Reason.CLUSTER_UNREADABLE:
        return look.say_unreadable(Problem(refused.reason, refused.message))
    return look.stay(refused.reason, refused.message)


def second_look(look: Look, otherwise: Otherwise = follow) -> Decision:
    """Rules of effect None beside the others give fresh messages; when they agree, the gate. What passes it evicts: by
    the taint, or from Notice with drain.mode Evict through the Eviction API."""
    if not beside(look.status):
        look = new_second_look(look, attempts=0)
        return look.stay(Reason.SECOND_LOOK, _LOOKING, requeue=AT_ONCE)
    answer = read(look, "dry-run", new_second_look, Reason.SECOND_LOOK, _LOOKING, otherwise)
    if isinstance(answer, Decision):
        return answer
    look = answer
    if not look.live_now:
        return look.look_live()
    refused = gate(look)
    if refused is not None and refused.reason is Reason.SECOND_LOOK:
        look = new_second_look(look, look.status.dry_run.attempts)
        return look.stay(Reason.SECOND_LOOK, _LOOKING)
    if refused is not None:
        return otherwise(look, refused)
    if look.phase is Phase.NOTICE and look.obs.run.spec.drain.mode is DrainMode.EVICT:
        message = "The second look agrees with the plan that was allowed and approved; the pods are asked to go."
        return pass_gate_by_api(look).go(Phase.DRAINING, Reason.GATE_PASSED, message)
    look, actions = pass_gate(look)
    message = "The second look agrees with the plan that was allowed and approved; the pods are evicted."
    if look.phase is Phase.EVICTING:
        return look.stay(Reason.GATE_PASSED, message, actions=actions, requeue=AT_ONCE)
    return look.go(Phase.EVICTING, Reason.GATE_PASSED, message, actions=actions)


_LOOKING = "Nothing new arrives; a second dry run is compared with the plan before anything is evicted."
