"""Where the control plane's dry run and our own plan differ: by how much, whom that may be, and whether our own count
may be used all the same."""

from __future__ import annotations

from datetime import datetime

from taintctl.api.plan import DeviceID, Plan, PlannedPod, PlannedRule
from taintctl.api.policy import BUILT_IN_POLICY, OnMismatch
from taintctl.api.reasons import Agreement, PodEffect
from taintctl.api.run import RuleStatus
from taintctl.api.text import plural, some
from taintctl.workflow.look import Look
from taintctl.workflow.rules import selector

TOLD = 3
"""Rules whose numbers are told."""


def agreement(rule: RuleStatus, planned: PlannedRule | None) -> Agreement:
    """All four numbers of the message equal the plan's, or it is a mismatch; what did not parse is no number."""
    said = (rule.published, rule.allocated, rule.pods, rule.namespaces)
    if None in said:
        return Agreement.UNREADABLE
    if planned is None or said != (planned.published, planned.allocated, planned.pods, planned.namespaces):
        return Agreement.MISMATCH
    return Agreement.AGREED


def accepted(look: Look, rule: RuleStatus, plan: Plan) -> bool:
    """Whether a run may go on with what this rule's message says: it agrees with the plan; or, where the policy says
    UseLarger and refreshing did not help, none of its numbers is larger than ours. Whom the message counts and we
    cannot name would be hit unseen, so that is never accepted; nor is a message that can't be read."""
    policy = (look.obs.policy or BUILT_IN_POLICY).spec
    planned = _planned(plan, rule)
    said = agreement(rule, planned)
    if rule.agreement is Agreement.AGREED:
        return said is Agreement.AGREED
    return (
        rule.agreement is Agreement.MISMATCH
        and said is not Agreement.UNREADABLE
        and policy.on_mismatch is OnMismatch.USE_LARGER
        and look.status.dry_run.attempts >= policy.dry_run.attempts
        and planned is not None
        and (rule.published or 0) <= planned.published
        and (rule.allocated or 0) <= planned.allocated
        and (rule.pods or 0) <= planned.pods
        and (rule.namespaces or 0) <= planned.namespaces
    )


def told(rules: list[RuleStatus], plan: Plan, since: datetime | None) -> str:
    """Both counts of each rule that differs (or its message), and the pods that may explain it; `since` is when the
    messages were asked for."""
    sentences = [_numbers(rule, plan, since) for rule in rules[:TOLD]]
    if len(rules) > TOLD:
        sentences.append(f"{plural(len(rules) - TOLD, 'more rule differs', 'more rules differ')}.")
    return " ".join(sentences)


def _planned(plan: Plan, rule: RuleStatus) -> PlannedRule | None:
    return next((planned for planned in plan.rules if selector(planned) == selector(rule)), None)


def _numbers(rule: RuleStatus, plan: Plan, since: datetime | None) -> str:
    planned = _planned(plan, rule)
    if agreement(rule, planned) is Agreement.UNREADABLE:
        return f"The dry-run message of DeviceTaintRule {rule.name} does not read as expected: {rule.message!r}."
    where = "/".join(part for part in selector(rule) if part)
    ours = (
        f"{planned.published}, {planned.allocated} and {plural(planned.pods, 'pod')} in "
        f"{plural(planned.namespaces, 'namespace')}"
        if planned is not None
        else "no such devices"
    )
    said = (
        f"For {where} the control plane counts {plural(rule.published or 0, 'published device')}, {rule.allocated} "
        f"allocated and {plural(rule.pods or 0, 'pod')} in {plural(rule.namespaces or 0, 'namespace')}, "
        f"and taintctl {ours}."
    )
    if planned is None or rule.pods == planned.pods:
        return said
    return f"{said} {_explained(rule, plan, since, theirs=(rule.pods or 0) > planned.pods)}"


def _explained(rule: RuleStatus, plan: Plan, since: datetime | None, *, theirs: bool) -> str:
    """The pods on the rule's devices that one side may count and the other not; `theirs`: the control plane counts
    more."""
    there = [pod for pod in plan.pods if any(_selects(rule, device) for device in pod.devices)]
    why = _left_out if theirs else _in_doubt
    names = [f"{pod.key} ({reason})" for pod in there if (reason := why(pod, since))]
    if not names:
        return "taintctl knows no pod that explains it."
    side = "taintctl counts none of these, the control plane may" if theirs else "The control plane may not count these"
    return f"{side}: {some(names)}."


def _selects(rule: RuleStatus, device: DeviceID) -> bool:
    return (rule.driver, rule.pool) == (device.driver, device.pool) and rule.device in (None, device.device)


def _left_out(pod: PlannedPod, _: datetime | None) -> str:
    """Why our own count of what the taint evicts leaves the pod out; empty where it does not."""
    if pod.terminating:
        return "terminating"
    if pod.effect is PodEffect.NOT_REACHED_BY_TAINT:
        return "extended resource"
    if pod.effect is PodEffect.TOLERATES:
        return "tolerates the taint"
    return "" if pod.node else "not scheduled yet"


def _in_doubt(pod: PlannedPod, since: datetime | None) -> str:
    """Why the control plane's count may leave the pod out, which ours has; empty where nothing says so."""
    if _left_out(pod, since):
        return ""
    if since is not None and pod.created is not None and pod.created >= since:
        return "came since"
    if pod.toleration_seconds is not None:
        return f"tolerates the taint for {pod.toleration_seconds} s"
    return ""
