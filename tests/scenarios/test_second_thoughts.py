"""A hand, a fault or a clock in the middle of what is being done: it stops where it is, and what is said is so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.reasons import Phase
from taintctl.ports.clock import LoopClock
from tests.scenarios.world import (
    APPROVALS,
    CLAIMS,
    DRIVER,
    MONITOR,
    NODE,
    ON_NODE_1,
    POD_KEY,
    RULES,
    RUNS,
    START,
    World,
    manifests,
)

pytestmark = pytest.mark.looptime

OURS = "system:serviceaccount:taintctl-system:taintctl"
LENIENT: dict[str, Any] = {"limits": {}, "approval": {"required": "Never"}, "budgets": "Ignore"}
WHOLE = {"driver": DRIVER, "wholeDriver": True}
POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"


def effects(world: World) -> list[str]:
    return [rule["spec"]["taint"]["effect"] for rule in world.rules()]


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("hand", ["paused", "cancelled"])
async def test_one_rule_that_cannot_be_written_keeps_no_other_from_being_taken_back(hand: str, status: int) -> None:
    async with World(nodes=3) as world:
        world.policy(**LENIENT)
        world.sandbox.start_pod("team-a", "patient", on="gpu-worker-03", template="patient")
        await world.control()
        await world.start(policyName="policy", target=WHOLE)
        await world.until_phase(Phase.DRAINING)
        stuck = world.rules()[0]["metadata"]["name"]
        world.sandbox.faults.fail(status, verbs=["patch", "delete"], resources=[RULES], users=[OURS], names=[stuck])
        await world.patch(**{hand: True})
        await world.wait(60)
        assert effects(world).count("NoExecute") == 1
        assert "team-a/patient" not in world.deleted_pods
        message = world.run().status.message
        assert "Not all of it could be done, and it is tried again" in message
        assert "Nothing is evicted" not in message
        world.sandbox.faults.clear()
        await world.wait(120)
        assert "NoExecute" not in effects(world)
        assert "Not all of it" not in world.run().status.message


@pytest.mark.parametrize("hand", ["paused", "cancelled", "deadline", "deleted"])
async def test_a_hand_in_the_middle_of_our_own_evictions_stops_the_rest(hand: str) -> None:
    async with World(gpus_per_node=40) as world:
        world.policy(**LENIENT)
        names = [f"ext-{number:02}" for number in range(20)]
        for name in names:
            world.sandbox.start_pod("team-x", name, on=NODE, gpus=1)
        await world.until(lambda: {f"team-x/{name}" for name in names} <= world.pods_on(NODE))
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.EVICTING)
        world.sandbox.faults.slow(2, verbs=["get"], resources=[CLAIMS], users=[OURS])

        def ours() -> int:
            return sum(pod.startswith("team-x/") for pod in world.deleted_pods)

        await world.until(lambda: ours() >= 2)
        if hand == "deadline":
            await world.patch(deadline=format_time(world.clock.now()))
        elif hand == "deleted":
            world.store.delete(RUNS, None, "run")
        else:
            await world.patch(**{hand: True})
        before = ours()
        await world.wait(60)
        # The one that was asked for when the hand came may still go.
        assert ours() <= before + 1
        assert "NoExecute" not in effects(world)


async def test_a_pause_between_the_rules_stops_the_rest() -> None:
    async with World(nodes=10, gpus_per_node=2) as world:
        world.policy(**LENIENT)
        await world.control()
        world.sandbox.faults.slow(0.9, verbs=["patch"], resources=[RULES], users=[OURS])
        await world.start(policyName="policy", target=WHOLE)

        def evicting() -> int:
            return sum(effect == "NoExecute" for _, _, effect in world.effects)

        await world.until(lambda: evicting() >= 1, 900)
        await world.patch(paused=True)
        before = evicting()
        await world.wait(30)
        assert evicting() <= before + 1
        assert "NoExecute" not in effects(world)


async def test_one_pod_whose_eviction_is_never_answered_keeps_no_other() -> None:
    async with World(gpus_per_node=8) as world:
        world.policy(**LENIENT)
        for name in "abc":
            world.sandbox.start_pod("team-x", name, on=NODE, gpus=1)
        await world.until(lambda: {f"team-x/{name}" for name in "abc"} <= world.pods_on(NODE))
        await world.control()
        world.sandbox.faults.fail(503, verbs=["create"], resources=["pods/eviction"], names=["a"])
        await world.start(policyName="policy")
        await world.until_phase(Phase.DRAINING)
        await world.wait(90)
        there = {pod for pod in world.pods_on(NODE) if pod.startswith("team-x/")}
        assert there == {"team-x/a"}
        assert world.run().status.reason == "EvictionRefused"
        assert "team-x/a" in world.run().status.message


class SetClock(LoopClock):
    ahead = timedelta(0)

    def now(self) -> Any:
        return super().now() + self.ahead


@pytest.mark.parametrize("ahead", [70, 3600])
async def test_a_clock_that_is_set_forward_proves_no_silent_node_idle(ahead: int) -> None:
    async with World() as world:
        world.policy()
        clock, real = SetClock(START), world.clock
        world.clock = clock
        await world.control()
        world.clock = real
        later = format_time(START + timedelta(hours=6))
        await world.start(policyName="policy", drain={"timeout": "2h"}, deadline=later)
        await world.until_phase(Phase.EVICTING)
        world.sandbox.node_silent(NODE)
        await world.until(lambda: set(world.deleted_pods) == ON_NODE_1)
        for name in sorted(ON_NODE_1 | {MONITOR}):
            namespace, pod = name.split("/")
            world.store.delete(POD_KEY, namespace, pod, grace_seconds=0)
        await world.wait(5)
        clock.ahead = timedelta(seconds=ahead)
        await world.wait(120)
        assert world.phase() is Phase.DRAINING
        assert world.run().status.reason == "NodeNotReady"


@pytest.mark.parametrize("weak", ["binding only audits", "policy sees no creation"])
async def test_an_approval_from_while_the_admission_policy_was_weak_never_counts(weak: str) -> None:
    async with World() as world:
        world.without_budgets()
        mallory = await world.user("mallory@example.com", "taintctl-approver")
        if weak == "binding only audits":
            world.store.mutate(
                BINDINGS, None, "taintctl-approvals", lambda o: o["spec"].update(validationActions=["Audit"])
            )
        else:
            world.store.mutate(
                POLICIES,
                None,
                "taintctl-approvals",
                lambda o: o["spec"]["matchConstraints"]["resourceRules"][0].update(operations=["UPDATE"]),
            )
        await world.control()
        await world.start()
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(mallory, "boss@example.com", "Approve")
        await world.wait(30)
        assert world.run().status.reason == "ApproversUnverified"
        world.sandbox.apply(manifests("deploy/admission.yaml"))
        await world.wait(300)
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert world.deleted_pods == []
        # Whoever is who they say they are may approve it now.
        boss = await world.user("boss@example.com", "taintctl-approver")
        world.store.delete(APPROVALS, None, world.store.list(APPROVALS)[0]["metadata"]["name"])
        await world.decide(boss, "boss@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_an_approval_says_that_it_counted_and_so_does_a_denial_that_ended_the_run() -> None:
    def said(world: World) -> list[tuple[str, str]]:
        found = sorted(world.store.list(APPROVALS), key=lambda o: str(o["metadata"]["creationTimestamp"]))
        return [(c["status"], c["reason"]) for o in found for c in o["status"]["conditions"] if c["type"] == "Accepted"]

    async with World() as world:
        world.policy(approval={"required": "Always", "count": 2}, budgets="Ignore", limits={})
        people = {name: await world.user(f"{name}@example.com", "taintctl-approver") for name in ("ann", "bob", "cid")}
        await world.control()
        await world.start("one", policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL, name="one")
        await world.decide(people["ann"], "ann@example.com", "Approve", "one")
        await world.wait(2)
        assert said(world) == [("True", "Counted")]
        await world.decide(people["bob"], "bob@example.com", "Deny", "one")
        await world.until_phase(Phase.CANCELLED, name="one")
        await world.wait(2)
        assert said(world) == [("True", "Counted"), ("True", "Counted")]


async def test_of_two_runs_for_one_device_only_one_evicts_though_a_write_of_the_other_is_held_up() -> None:
    async with World() as world:
        world.policy()
        target = {"driver": DRIVER, "pool": "gpu-worker-03"}
        held_up: list[Any] = []

        def hold_up(event: Any) -> None:
            if event.key != RULES or event.type != "ADDED" or held_up:
                return
            if event.obj["metadata"]["labels"].get("taintctl.dev/run") == "second":
                faults = world.sandbox.faults
                held_up.append(
                    faults.fail(
                        429, verbs=["update"], resources=[f"{RUNS}/status"], names=["second"], times=1, retry_after=9
                    )
                )

        world.store.subscribe(None, hold_up)
        await world.control()
        await world.start("first", policyName="policy", target=target)
        await world.until(lambda: world.run("first").status.reason == "NoDevices")
        world.sandbox.add_node("gpu-worker-03", 4)
        since = world.run("first").status.phase_since
        assert since is not None
        await world.wait((since - world.clock.now()).total_seconds() + 54)
        await world.start("second", policyName="policy", target=target)
        await world.wait(400)
        assert held_up
        assert held_up[0].met == 1
        inside = [name for name in ("first", "second") if world.phase(name) is Phase.IN_MAINTENANCE]
        assert len(inside) == 1
        other = "second" if inside == ["first"] else "first"
        assert world.run(other).status.reason == "DeviceInOtherRun"
        assert len([effect for effect in effects(world) if effect != "None"]) == 1


async def test_a_run_without_devices_holds_nobody_up_paused_or_not() -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        await world.start("first", policyName="policy", target={"driver": DRIVER, "pool": "no-such-pool"})
        await world.until(lambda: world.run("first").status.reason == "NoDevices")
        await world.patch("first", paused=True)
        await world.start("second", policyName="policy", target=WHOLE)
        await world.until_phase(Phase.IN_MAINTENANCE, name="second")


async def test_a_run_that_can_never_be_planned_says_so_though_another_is_under_way_and_holds_nobody_up() -> None:
    async with World() as world:
        world.policy(**LENIENT)
        await world.control()
        await world.start("first", policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE, name="first")
        await world.start("typo", policyName="policy", target={"driver": DRIVER})
        await world.until(lambda: world.run("typo").status.reason == "WholeDriver")
        await world.patch("first", workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, name="first")
        await world.start("third", policyName="policy", target={"driver": DRIVER, "pool": "gpu-worker-02"})
        await world.until_phase(Phase.IN_MAINTENANCE, name="third")


async def test_after_the_taint_was_taken_off_by_hand_a_run_can_be_let_go_though_pods_are_back() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        # What `taintctl cancel --now` does.
        for rule in world.rules():
            world.store.mutate(
                RULES, None, rule["metadata"]["name"], lambda o: o["spec"]["taint"].update(effect="None")
            )
        await world.patch(cancelled=True)
        world.sandbox.start_pod("team-a", "back", on=NODE, template="one-gpu")
        await world.until(lambda: "team-a/back" in world.pods_on(NODE))
        await world.wait(30)
        assert world.phase() is Phase.IN_MAINTENANCE
        await world.patch(released=True)
        await world.until_phase(Phase.CANCELLED)
        world.assert_no_rule_left()
        assert "team-a/back" in world.pods_on(NODE)


async def test_the_word_of_somebody_whom_the_policy_does_not_name_is_said_not_to_count() -> None:
    async with World() as world:
        approvers = [{"kind": "Kubernetes", "name": "ann@example.com"}]
        world.policy(approval={"required": "Always", "approvers": approvers}, budgets="Ignore", limits={})
        bob = await world.user("bob@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(bob, "bob@example.com", "Deny")
        await world.wait(5)
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert "does not count" in world.run().status.message
        [said] = world.store.list(APPROVALS)
        accepted = next(c for c in said["status"]["conditions"] if c["type"] == "Accepted")
        assert (accepted["status"], accepted["reason"]) == ("False", "NotAnApprover")
