"""What a run says to do next changes or shows what it waits for, and is never the command that has just said it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from taintctl.api.plan import Idleness, Problem, Verdict
from taintctl.api.reasons import Phase, PodEffect, Reason
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.workflow.model import Settings
from tests.workflow.builders import World, make_plan, make_pod, make_policy, make_run, said, terminating

WEB = make_pod("web", PodEffect.NOT_REACHED_BY_TAINT)
LATE = make_pod("late", PodEffect.NOT_REACHED_BY_TAINT)
MONITOR = make_pod("x/monitor", PodEffect.TOLERATES)


def refused(action: Any) -> EvictionOutcome:
    why = "Cannot evict pod as it would violate the budget web."
    return EvictionOutcome(action.namespace, action.name, action.uid, EvictionResult.BUDGET_FORBIDS, why)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (Reason.NO_DEVICES, "taintctl devices"),
        (Reason.WHOLE_DRIVER, "taintctl cancel night"),
        (Reason.TOO_MANY_RULES, "taintctl cancel night"),
        (Reason.POOL_INCOMPLETE, "kubectl get resourceslices"),
        (Reason.CONSUMER_UNKNOWN, "kubectl get resourceclaims --all-namespaces"),
    ],
)
def test_a_target_that_comes_to_no_plan(reason: Reason, step: str) -> None:
    world = World(plan=None, plan_problem=Problem(reason, "There is no plan."))
    world.settle()
    assert (world.phase, world.status.reason, world.status.next_step) == (Phase.BLOCKED, reason, step)


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        (Reason.POLICY_NOT_FOUND, "kubectl get evictionpolicies"),
        (Reason.POLICY_INVALID, "kubectl edit evictionpolicy careful"),
    ],
)
@pytest.mark.parametrize("phase", [None, Phase.DRY_RUN, Phase.NOTICE])
def test_a_policy_that_is_gone_or_bad(reason: Reason, step: str, phase: Phase | None) -> None:
    world = World(run=make_run(policyName="careful"))
    if phase is not None:
        world.until(phase)
    world.policy, world.policy_problem = None, Problem(reason, "There is no policy.")
    world.settle()
    assert (world.phase, world.status.reason, world.status.next_step) == (Phase.BLOCKED, reason, step)


def test_a_plan_beyond_policy_is_for_whoever_writes_the_policy() -> None:
    world = World(
        run=make_run(policyName="careful"), plan=make_plan(["a", "b"]), policy=make_policy(limits={"maxPods": 1})
    )
    world.settle()
    assert world.status.reason == Reason.POLICY_VIOLATED
    assert world.status.next_step == "kubectl edit evictionpolicy careful"


def test_the_built_in_policy_can_not_be_edited() -> None:
    patient = make_pod("a", PodEffect.EVICTED_LATER, toleration_seconds=10**9)
    world = World(run=make_run(policyName=None), plan=make_plan([patient]))
    world.settle()
    assert world.status.reason == Reason.POLICY_VIOLATED
    assert world.status.next_step == "taintctl cancel night"


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (lambda rule: said(replace(rule, pods=rule.pods + 1)), "taintctl devices"),
        (lambda rule: "Nothing to see here.", "kubectl describe devicetaintrule "),
    ],
    ids=["mismatch", "unreadable"],
)
def test_numbers_that_differ_and_a_message_that_does_not_read(message: Any, step: str) -> None:
    world = World(message=message).until(Phase.BLOCKED)
    assert world.status.next_step.startswith(step), world.status.message


@pytest.mark.parametrize(
    ("now", "reason", "step"),
    [
        ([WEB], Reason.BUDGET_FORBIDS, "kubectl get poddisruptionbudgets --namespace team-a"),
        ([WEB, LATE], Reason.DEVICES_IN_USE, "kubectl delete pod --namespace team-a late"),
        ([MONITOR], Reason.DEVICES_IN_USE, "kubectl delete pod --namespace x monitor"),
        ([terminating(WEB)], Reason.PODS_TERMINATING, ""),
    ],
    ids=["budget", "late", "tolerates", "terminating"],
)
def test_what_keeps_the_devices_while_pods_go(now: list[Any], reason: Reason, step: str) -> None:
    world = World(plan=make_plan([WEB, MONITOR]), outcome=refused).until(Phase.DRAINING)
    world.plan = make_plan(now)
    world.step()
    world.step()
    assert (world.status.reason, world.status.next_step) == (reason, step)


@pytest.mark.parametrize(
    ("idle", "step"),
    [
        (Idleness(Verdict.UNKNOWN, Reason.NODE_NOT_READY, "Node node-1 is not Ready."), "kubectl get nodes"),
        (
            Idleness(Verdict.UNKNOWN, Reason.DEVICE_PLUGIN_POD, "Pod x/y uses example.com/gpu."),
            "kubectl get pods --all-namespaces --output wide",
        ),
        (
            Idleness(Verdict.FALSE, Reason.DEVICES_IN_USE, "ResourceClaim team-a/c is still reserved for pod a."),
            "kubectl get resourceclaims --all-namespaces",
        ),
    ],
    ids=["node", "plugin", "claim"],
)
@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.IN_MAINTENANCE])
def test_what_keeps_devices_from_being_proven_idle(idle: Idleness, step: str, phase: Phase) -> None:
    world = World(settings=Settings()).until(Phase.DRAINING)
    world.plan = make_plan([])
    world.evictions_complete()
    if phase is Phase.IN_MAINTENANCE:
        world.until(phase)
        world.spec(work_completed=True)
    world.idle = idle
    world.step()
    assert (world.phase, world.status.reason, world.status.next_step) == (phase, idle.reason, step)
