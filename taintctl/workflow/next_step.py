"""What a person would do next, as a command that changes or shows what the run waits for; empty where nothing is to be
done. Never the command that has just said it: `taintctl explain` and `status` print what is here."""

from __future__ import annotations

from taintctl.api.plan import Plan, Violation
from taintctl.api.reasons import Reason
from taintctl.workflow.look import Look


def on_policy(reason: str, policy: str | None, run: str) -> str:
    """Where the policy is missing, bad, or does not allow the plan. The built-in one can't be edited; a narrower target
    or a policy by name needs another run."""
    if policy is None:
        return f"taintctl cancel {run}"
    if reason == Reason.POLICY_NOT_FOUND:
        return "kubectl get evictionpolicies"
    return f"kubectl edit evictionpolicy {policy}"


def on_violation(violation: Violation, plan: Plan, policy: str | None, run: str) -> str:
    """Where policy does not allow the plan: to look at the budget that would break, or at the runs whose devices are
    out, before anybody loosens a policy."""
    broken = next((b for b in plan.budgets if b.needed > b.allowed), None)
    if violation.check == "budgets" and broken is not None:
        return f"kubectl get poddisruptionbudgets --namespace {broken.namespace}"
    if violation.check == "multipleBudgets":
        namespace = plan.multiple_budgets[0].partition("/")[0]
        return f"kubectl get poddisruptionbudgets --namespace {namespace}"
    if violation.check == "maxUnavailable" and plan.elsewhere:
        return "taintctl status"  # whose devices are out
    return on_policy(Reason.POLICY_VIOLATED, policy, run)


def on_approval(breaks: bool, run: str) -> str:
    return f"taintctl approve {run} --break" if breaks else f"taintctl approve {run}"


def on_plan(reason: str, run: str) -> str:
    """Where the target comes to no plan. A run's target is immutable, so a wrong one needs another run."""
    if reason == Reason.POOL_INCOMPLETE:
        return "kubectl get resourceslices"
    if reason == Reason.CONSUMER_UNKNOWN:
        return "kubectl get resourceclaims --all-namespaces"
    if reason in (Reason.WHOLE_DRIVER, Reason.TOO_MANY_RULES):
        return f"taintctl cancel {run}"
    return "taintctl devices"


def on_use(look: Look, reason: str) -> str:
    """Where the devices are not proven idle: what has to go from them, if it does not go by itself."""
    eviction = look.status.eviction
    if reason == Reason.NODE_NOT_READY:
        return "kubectl get nodes"
    if reason == Reason.DEVICE_PLUGIN_POD:
        return "kubectl get pods --all-namespaces --output wide"
    if reason == Reason.BUDGET_FORBIDS and eviction is not None and eviction.blocked_by:
        namespace = eviction.blocked_by[0].partition("/")[0]
        return f"kubectl get poddisruptionbudgets --namespace {namespace}"
    if reason == Reason.EVICTION_REFUSED and eviction is not None and eviction.blocked_by:
        namespace, _, pod = eviction.blocked_by[0].partition(":")[0].partition("/")
        return f"kubectl describe pod --namespace {namespace} {pod}"
    if reason == Reason.DEVICES_IN_USE:
        idle = look.obs.idleness
        stopping = {pod.uid for pod in idle.terminating}
        late = {pod.uid for pod in eviction.late} if eviction is not None else set()
        staying = [pod for pod in idle.holders if pod.uid not in stopping]
        # Who is not of the plan goes by nobody else's hand.
        staying.sort(key=lambda pod: pod.uid not in late)
        if staying:
            return f"kubectl delete pod --namespace {staying[0].namespace} {staying[0].name}"
        return "kubectl get resourceclaims --all-namespaces"
    return ""
