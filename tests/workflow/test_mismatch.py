"""The control plane counts other than we do: both counts are told with whom that may be, and only our own larger count
is ever used, where the policy says so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.base import condition
from taintctl.api.plan import DeviceID, PlannedPod, PlannedRule
from taintctl.api.reasons import Agreement, Phase, PodEffect
from taintctl.workflow.model import SetEffect
from tests.workflow.builders import DRIVER, NOW, World, make_plan, make_pod, make_policy, make_run, said, terminating

LARGER = {"onMismatch": "UseLarger"}


def counts(by: int, field: str = "pods") -> Any:
    """What the control plane says where it counts so many more than the plan (of two pods in one namespace)."""
    return lambda rule: said(replace(rule, **{field: getattr(rule, field) + by}))


def world_of(*pods: PlannedPod | str, by: int = 0, field: str = "pods", **policy: Any) -> World:
    plan = make_plan(pods or ("a", "b"))
    return World(plan=plan, policy=make_policy(dryRun={"attempts": 2}, **policy), message=counts(by, field))


def fresh(world: World) -> tuple[str, str, str]:
    found = condition(world.status.conditions, "DryRunFresh")
    assert found is not None
    return found.status, found.reason, found.message


def on_node(name: str, effect: PodEffect = PodEffect.EVICTED, **more: Any) -> PlannedPod:
    return make_pod(name, effect, node="node-1", **more)


# whom it may be


def test_pods_that_only_the_control_plane_may_count_are_named_with_why_we_leave_them_out() -> None:
    world = world_of(
        on_node("a"),
        on_node("ext", PodEffect.NOT_REACHED_BY_TAINT),
        terminating(on_node("going")),
        on_node("mon", PodEffect.TOLERATES),
        by=1,
    ).until(Phase.BLOCKED)
    # Of the four only `a` is counted by us, and the message says one more.
    assert "allocated and 2 pods in 1 namespace, and taintctl 2, 4 and 1 pod in 1 namespace." in world.status.message
    assert (
        "taintctl counts none of these, the control plane may: team-a/ext (extended resource), "
        "team-a/going (terminating), team-a/mon (tolerates the taint)." in world.status.message
    )
    assert "Nothing is evicted on numbers that differ." in world.status.message


def test_a_pod_that_is_not_scheduled_yet_may_be_it() -> None:
    world = world_of(on_node("a"), make_pod("waiting"), by=1).until(Phase.BLOCKED)
    assert "the control plane may: team-a/waiting (not scheduled yet)." in world.status.message


def test_pods_that_only_we_may_count_are_named_with_why() -> None:
    world = world_of(
        on_node("a"),
        on_node("new", created=NOW + timedelta(minutes=5)),
        on_node("patient", PodEffect.EVICTED_LATER, toleration_seconds=20),
        by=-1,
    ).until(Phase.BLOCKED)
    assert (
        "The control plane may not count these: team-a/new (came since), team-a/patient (tolerates the taint for 20 s)."
        in world.status.message
    )


@pytest.mark.parametrize("by", [-1, 1])
def test_where_no_pod_explains_it_that_is_said(by: int) -> None:
    world = world_of(on_node("a"), on_node("b", created=NOW - timedelta(hours=1)), by=by).until(Phase.BLOCKED)
    assert "taintctl knows no pod that explains it." in world.status.message


def test_devices_that_differ_are_no_pods_to_explain() -> None:
    world = world_of(by=1, field="published").until(Phase.BLOCKED)
    assert "3 published devices, 2 allocated and 2 pods in 1 namespace, and taintctl 2, 2 and 2" in world.status.message
    assert "explains" not in world.status.message


def test_only_pods_on_the_rules_own_devices_may_be_it() -> None:
    elsewhere = on_node("else", PodEffect.TOLERATES, devices=(DeviceID(DRIVER, "node-2", "gpu-0"),))
    world = World(
        run=make_run(target={"driver": DRIVER, "wholeDriver": True}),
        plan=make_plan([on_node("a"), elsewhere], pools=["node-1", "node-2"]),
        policy=make_policy(dryRun={"attempts": 1}),
    )
    world.message = lambda rule: said(replace(rule, pods=rule.pods + (rule.pool == "node-1")))
    world.until(Phase.BLOCKED)
    assert "team-a/else" not in world.status.message
    assert "For gpu.example.com/node-2" not in world.status.message


def test_the_numbers_of_three_rules_are_told_and_how_many_more_there_are() -> None:
    pools = [f"node-{n}" for n in range(5)]
    world = World(
        run=make_run(target={"driver": DRIVER, "wholeDriver": True}),
        plan=make_plan([], pools=pools),
        policy=make_policy(dryRun={"attempts": 1}),
        message=counts(1, "published"),
    ).until(Phase.BLOCKED)
    assert world.status.message.count("the control plane counts") == 3
    assert "2 more rules differ." in world.status.message


# UseLarger


def test_our_own_larger_count_is_used_after_the_attempts_where_the_policy_says_so() -> None:
    world = world_of(by=-1, **LARGER).until(Phase.AWAITING_APPROVAL)
    assert len(world.made) == 3, "once, and two attempts more"
    status, reason, message = fresh(world)
    assert (status, reason) == ("True", "LargerUsed")
    assert "1 pod in 1 namespace, and taintctl 2, 2 and 2 pods in 1 namespace." in message
    assert message.endswith("The policy says UseLarger, so the run goes on with 2 pods in 1 namespace on 2 devices.")
    assert world.status.plan is not None
    assert (world.status.plan.agreement, world.status.plan.counts.pods) == (Agreement.MISMATCH, 2)


def test_the_second_look_and_the_gate_keep_the_same_rule() -> None:
    world = world_of(by=-1, **LARGER).until(Phase.NOTICE)
    made = len(world.made)
    world.until(Phase.EVICTING)
    assert len(world.made) - made == 3, "a second look, and two attempts more"
    assert world.effects == {"NoExecute"}
    assert fresh(world)[:2] == ("True", "LargerUsed")


@pytest.mark.parametrize("field", ["published", "allocated", "pods", "namespaces"])
def test_what_the_message_counts_and_we_cannot_name_always_blocks(field: str) -> None:
    world = world_of(by=1, field=field, **LARGER).until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"


def test_one_number_above_ours_blocks_however_much_larger_the_others_are() -> None:
    world = world_of(**LARGER)
    world.message = lambda rule: said(replace(rule, pods=0, namespaces=0, allocated=rule.allocated + 1))
    world.until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"


def test_a_larger_count_that_shows_up_at_the_second_look_blocks_there() -> None:
    world = world_of(by=-1, **LARGER).until(Phase.NOTICE)
    world.message = counts(1)
    world.until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"
    assert "Evicting" not in [entry.to for entry in world.status.history]


def test_at_the_second_look_a_policy_that_blocks_blocks() -> None:
    world = world_of().until(Phase.NOTICE)
    world.message = counts(-1)
    world.until(Phase.BLOCKED)
    assert world.status.reason == "Mismatch"


def test_a_message_that_cannot_be_read_is_no_smaller_count() -> None:
    world = world_of(**LARGER)
    world.message = lambda _: "Fewer pods than you think."
    world.until(Phase.BLOCKED)
    assert world.status.reason == "MessageUnreadable"


def test_devices_that_are_not_of_the_plan_are_no_smaller_count() -> None:
    """One rule's pool is in the message and not in the plan any more: the plan must name every rule."""
    world = world_of(by=-1, **LARGER).until(Phase.NOTICE)
    other = PlannedRule(DRIVER, "node-1", "gpu-0", 1, 2, 2, 1)
    assert world.plan is not None
    world.plan = replace(world.plan, rules=(other,))
    decision = world.step()
    assert world.phase is Phase.DRY_RUN
    assert not [a for a in decision.actions if isinstance(a, SetEffect) and a.effect == "NoExecute"]


def test_our_larger_count_is_used_by_live_reads_only() -> None:
    world = world_of(by=-1, **LARGER).until(Phase.DRY_RUN)
    while world.status.dry_run.attempts < 2:
        world.pass_time(world.step().requeue_after or 0)
    world.live = False
    assert world.step().need_live
    assert world.phase is Phase.DRY_RUN


def test_a_refresh_that_agrees_needs_no_larger_count() -> None:
    world = world_of(by=-1, **LARGER).until(Phase.DRY_RUN)
    world.step()
    world.message = said
    world.until(Phase.AWAITING_APPROVAL)
    assert fresh(world)[:2] == ("True", "Agreed")
