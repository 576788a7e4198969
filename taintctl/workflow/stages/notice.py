"""Notice: NoSchedule stands, so that work can end by itself and nothing new arrives; then the second look."""

from __future__ import annotations

from taintctl.api.reasons import Reason
from taintctl.workflow.follow import follow, second_look
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision
from taintctl.workflow.planning import Refusal, stands, summary, with_plan, with_tally
from taintctl.workflow.rules import main_rules


def decide(look: Look) -> Decision:
    obs = look.obs
    now = stands(look)
    if isinstance(now, Refusal):
        return follow(look, now)
    look = with_tally(with_plan(look, now), now)
    message = (
        f"NoSchedule stands, so that work can end by itself; what is left then is evicted, now {summary(now.plan)}."
    )
    since = [rule.effect_since for rule in main_rules(look.status)]
    seen = [moment for moment in since if moment is not None]
    if not seen or len(seen) < len(since):
        return look.stay(Reason.NOTICE_GIVEN, message)
    wait = max(obs.run.spec.notice, obs.settings.settle)
    if not look.past(max(seen), wait):
        return look.stay(Reason.NOTICE_GIVEN, message, requeue=look.until(max(seen), wait))
    return second_look(look)
