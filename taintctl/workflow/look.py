"""One look at a run: what was observed, what its status says of it, and the answers a stage can give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from taintctl.api.base import Condition, set_condition
from taintctl.api.plan import Problem
from taintctl.api.policy import BUILT_IN_POLICY, RollbackFailure
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.run import AtDeadline, DrainMode, Ending, RunStatus
from taintctl.workflow.model import Action, Decision, Event, Observation
from taintctl.workflow.text import EVENT_MAX, MESSAGE_MAX, SENTENCE_MAX, short
from taintctl.workflow.transitions import PLAN_PROBLEMS, POLICY_PROBLEMS, move

AT_ONCE = timedelta(0)
_LAST = datetime.max.replace(tzinfo=UTC)
ALARMS = frozenset(
    {
        Reason.WORK_NOT_DONE,
        Reason.KEPT_TAINTED,
        Reason.RULE_CHANGED,
        Reason.RULE_DELETED,
        Reason.CLUSTER_UNREADABLE,
        Reason.INVALID_SPEC,
        Reason.UNKNOWN_FIELD,
        Reason.BUDGET_FORBIDS,
        Reason.EVICTION_REFUSED,
        Reason.DEVICE_PLUGIN_POD,
        Reason.NODE_NOT_READY,
        Reason.APPROVERS_UNVERIFIED,
    }
)
"""Reasons to stay that get a Warning event, once."""


@dataclass(frozen=True)
class HandEdit:
    """What somebody did to our rules: an operator's decision, so the run stops and says so."""

    reason: Reason
    message: str
    names: frozenset[str]


@dataclass(frozen=True)
class Look:
    """`status` has the observed rules worked in; `edit` is what does not fit."""

    obs: Observation
    now: datetime
    status: RunStatus
    edit: HandEdit | None = None

    @property
    def name(self) -> str:
        return self.obs.run.name

    @property
    def phase(self) -> Phase | None:
        return self.status.phase

    def scaled(self, wait: timedelta) -> timedelta:
        return self.obs.settings.scaled(wait)

    @property
    def poll(self) -> timedelta:
        return self.scaled(self.obs.settings.poll)

    def past(self, moment: datetime | None, wait: timedelta = timedelta(0)) -> bool:
        """Whether `wait` (not scaled yet) has passed since `moment`; never for a moment that has not come."""
        return moment is not None and moment + self.scaled(wait) <= self.now

    def until(self, moment: datetime, wait: timedelta = timedelta(0)) -> timedelta:
        return max(AT_ONCE, moment + self.scaled(wait) - self.now)

    @property
    def freshness(self) -> timedelta:
        """How old a dry run may be, by the wall: the policy's maxAge, scaled; less than 10 s counts as 10 s, since our
        own reads and writes in between take time that no factor shortens."""
        policy = self.obs.policy or BUILT_IN_POLICY
        return max(self.scaled(policy.spec.dry_run.max_age), self.obs.settings.gate_valid)

    def fresh(self, moment: datetime | None) -> bool:
        """Never for a moment that has not come: a clock that was set back makes nothing young again."""
        return moment is not None and moment <= self.now < moment + self.freshness

    @property
    def live_now(self) -> bool:
        """Live reads, and not too old to act on."""
        return self.obs.live and self.now - self.obs.taken_at <= self.obs.settings.gate_valid

    @property
    def unreadable(self) -> Problem | None:
        """Why nothing can be decided at all: something could not be read (or is a problem nobody foresaw)."""
        obs = self.obs
        for problem, known in ((obs.policy_problem, POLICY_PROBLEMS), (obs.plan_problem, PLAN_PROBLEMS)):
            if problem is not None and problem.reason not in known:
                return Problem(Reason.CLUSTER_UNREADABLE, problem.message)
        if obs.plan is None and obs.plan_problem is None:
            return Problem(Reason.CLUSTER_UNREADABLE, "The cluster has not been read yet.")
        return None

    @property
    def policy_problem(self) -> Problem | None:
        if self.obs.policy is not None:
            return None
        return self.obs.policy_problem or Problem(Reason.POLICY_NOT_FOUND, "The EvictionPolicy is not there.")

    @property
    def deadline(self) -> datetime:
        """After which nothing goes on by itself: with atDeadline Extend, in maintenance, that much later."""
        spec = self.obs.run.spec
        if self.phase is Phase.IN_MAINTENANCE and spec.at_deadline is AtDeadline.EXTEND and spec.extend_by is not None:
            by = self.scaled(spec.extend_by)
            # Years have an end in Python, and a deadline may be near it.
            return spec.deadline + by if spec.deadline < _LAST - by else _LAST
        return spec.deadline

    @property
    def start(self) -> datetime | None:
        """When eviction may begin; None: at once."""
        return self.obs.run.spec.start_at

    @property
    def started(self) -> bool:
        return self.start is None or self.start <= self.now

    def rolls_back_on(self, failure: RollbackFailure) -> bool:
        """Whether the policy takes the taint off for it; where there is no policy any more, the default does."""
        return failure in (self.obs.policy or BUILT_IN_POLICY).spec.rollback_on

    @property
    def by_api(self) -> bool:
        """Whether taintctl evicts through the Eviction API and the rules really stand at NoSchedule meanwhile:
        drain.mode Evict, the gate was passed, and NoExecute was not set for what is left."""
        eviction = self.status.eviction
        there = {rule.metadata.uid: rule.spec.taint.effect for rule in self.obs.rules}
        rules = [rule for rule in self.status.rules if rule.role == "taint"]
        return (
            self.obs.run.spec.drain.mode is DrainMode.EVICT
            and self.phase is Phase.DRAINING
            and eviction is not None
            and eviction.started_at is not None
            and eviction.forced_at is None
            and bool(rules)
            and all(r.effect is Effect.NO_SCHEDULE and r.effect_since is not None for r in rules)
            and all(there.get(rule.uid) == Effect.NO_SCHEDULE for rule in rules)
        )

    # Answers. They change the status alone; the rules follow it (rules.bring_about).

    def with_status(self, **changes: object) -> Look:
        return replace(self, status=self.status.model_copy(update=changes))

    def with_condition(self, kind: ConditionType, status: str | bool, reason: str, message: str) -> Look:
        return replace(self, status=conditioned(self.status, self, kind, status, reason, message))

    def stay(
        self,
        reason: str,
        message: str,
        *,
        next_step: str = "",
        actions: Sequence[Action] = (),
        requeue: timedelta | None = None,
    ) -> Decision:
        """No move: the reason and sentence why, and what to do meanwhile."""
        said = self.status.model_copy(
            update={"reason": str(reason), "message": short(message, MESSAGE_MAX), "next_step": next_step}
        )
        alarm = reason in ALARMS and reason != self.obs.run.status.reason
        events = (Event("Warning", str(reason), short(message, EVENT_MAX)),) if alarm else ()
        return Decision(said, tuple(actions), events, requeue_after=self.poll if requeue is None else requeue)

    def go(
        self, to: Phase, reason: Reason, message: str, *, next_step: str = "", actions: Sequence[Action] = ()
    ) -> Decision:
        """The one move of this decision; the next look follows at once."""
        status, event = move(self.status, to, reason, message, self.now, next_step)
        return Decision(status, tuple(actions), (event,), requeue_after=AT_ONCE)

    def look_live(self) -> Decision:
        """The next step must not rest on a cache, nor on reads that are too old: read again. Nothing is stored.

        Live reads that took too long are not repeated at once, for that would be a hot loop on a slow API server."""
        if not self.obs.live:
            if (unreadable := self.unreadable) is not None:
                return self.say_unreadable(unreadable)
            return Decision(self.obs.run.status, need_live=True, requeue_after=AT_ONCE)
        return self.stay(
            Reason.CLUSTER_UNREADABLE,
            f"Reading the cluster took longer than {self.obs.settings.gate_valid.total_seconds():g} s, too long to act "
            "on; the run tries again.",
        )

    def say_unreadable(self, problem: Problem) -> Decision:
        """Nothing is decided on what can't be read; the conditions that hang on it are Unknown."""
        look = self
        held = self.phase in (Phase.DRAINING, Phase.IN_MAINTENANCE)
        kinds = (ConditionType.DEVICES_IDLE,) if held else (ConditionType.DRY_RUN_FRESH, ConditionType.WITHIN_POLICY)
        for kind in kinds:
            look = look.with_condition(kind, "Unknown", problem.reason, problem.message)
        return look.stay(
            problem.reason,
            f"Nothing is done, for {lower_first(problem.message)}",
            next_step="kubectl get --raw=/readyz?verbose",
            requeue=self.scaled(self.obs.settings.idle_check),
        )

    def block(self, reason: Reason, message: str, *, next_step: str = "") -> Decision:
        """To Blocked: nothing is evicted, what is NoExecute becomes NoSchedule, and it is looked at again."""
        return without_no_execute(self).go(Phase.BLOCKED, reason, message, next_step=next_step)

    def roll_back(self, reason: Reason, end: Phase, message: str, *, ending: Reason | None = None) -> Decision:
        """Takes every rule of ours off, and then ends as said."""
        end_reason = ending or reason
        look = self.with_status(ending=Ending(phase=end, reason=end_reason, message=short(message, SENTENCE_MAX)))
        return look.go(Phase.ROLLING_BACK, reason, message)


def conditioned(
    status: RunStatus, look: Look, kind: ConditionType, value: str | bool, reason: str, message: str
) -> RunStatus:
    new = Condition(
        type=kind,
        status=str(value),
        reason=str(reason),
        message=short(message, SENTENCE_MAX),
        observed_generation=look.obs.run.metadata.generation,
    )
    return status.model_copy(update={"conditions": set_condition(status.conditions, new, look.now)})


def without_no_execute(look: Look) -> Look:
    """No rule is to evict: what we asked to be NoExecute is asked to be NoSchedule. A rule edited by hand is left
    alone, and stays known as edited."""
    edited = look.edit.names if look.edit is not None else frozenset()
    rules = tuple(
        rule.model_copy(update={"effect": Effect.NO_SCHEDULE, "effect_since": None})
        if rule.effect is Effect.NO_EXECUTE and rule.name not in edited
        else rule
        for rule in look.status.rules
    )
    return look.with_status(rules=rules)


def lower_first(sentence: str) -> str:
    """`The cluster …` -> `the cluster …`, to follow a comma; names and acronyms stay as they are."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence
