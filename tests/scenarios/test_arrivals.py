"""Whatever comes or changes between the plan and NoExecute is in the plan that was allowed, or nothing is evicted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.reasons import Phase
from taintctl.sandbox import fleet
from taintctl.sandbox.apiserver.meta import timestamp
from tests.scenarios.stops import EVICTION, effects_of, rules_of, warnings, when_effect
from tests.scenarios.world import CLAIMS, DRIVER, LENIENT, NODE, ON_NODE_1, POLICIES, RULES, World

pytestmark = pytest.mark.looptime

SLICES = "resourceslices.resource.k8s.io"
EXACTLY = {"autoApprove": {"maxPods": len(ON_NODE_1)}, "budgets": "Ignore"}
"""Lets the plan pass as it is, and asks when there is one pod more."""
READS = ("get", "list", "rules_of", "snapshot", "approvals_verified")

Change = Callable[[World], Awaitable[None]]


class Busy:
    """A cluster in which something happens just before the n-th read from the first dry run on."""

    def __init__(self, world: World, at: int, change: Change) -> None:
        self._world, self._left, self._change = world, at, change
        self.happened = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._world.cluster, name)
        if name not in READS:
            return call

        async def busy(*args: Any, **kwargs: Any) -> Any:
            if self._world.rules_made and not self.happened and not self._evicting():
                self._left -= 1
                if self._left <= 0:
                    self.happened = True
                    await self._change(self._world)
            return await call(*args, **kwargs)

        return busy

    def _evicting(self) -> bool:
        return any(effect == "NoExecute" for _, _, effect in self._world.effects)


# who comes, and how


async def joins_the_shared_claim(world: World) -> None:
    world.sandbox.start_pod("team-b", "newcomer", on=NODE, claim="shared-gpu")
    await world.until(lambda: "team-b/newcomer" in world.pods_on(NODE))


async def takes_the_free_device(world: World) -> None:
    """Before NoSchedule it gets it; afterwards it stays pending."""
    world.sandbox.start_pod("team-a", "newcomer", on=NODE, template="one-gpu")
    await world.wait(0.2)


async def takes_the_free_device_as_extended_resource(world: World) -> None:
    world.sandbox.start_pod("team-a", "newcomer", on=NODE, gpus=1)
    await world.wait(0.2)


async def is_replaced_under_the_same_name(world: World) -> None:
    """As a StatefulSet's pod: the name is in the plan, the uid is not."""
    world.store.delete("pods", "team-b", "inference-0", grace_seconds=0)
    world.sandbox.start_pod("team-b", "inference-0", on=NODE, claim="shared-gpu", app="inference")
    await world.until(lambda: "team-b/inference-0" in world.pods_on(NODE))


async def changes_its_uuid(world: World) -> None:
    """The device of that name is other hardware now."""

    def swap(obj: dict[str, Any]) -> None:
        obj["spec"]["devices"][0]["attributes"]["uuid"] = {"string": "GPU-00000000-swapped"}

    world.store.mutate(SLICES, None, f"{NODE}-gpu", swap)


async def publishes_one_device_more(world: World) -> None:
    def add(obj: dict[str, Any]) -> None:
        obj["spec"]["devices"].append({**obj["spec"]["devices"][0], "name": "gpu-9"})

    world.store.mutate(SLICES, None, f"{NODE}-gpu", add)


async def raises_what_the_policy_forbids(world: World) -> None:
    world.policy(limits={"maxPods": 1}, autoApprove={"maxPods": 20}, budgets="Ignore")


async def asks_for_approval_now(world: World) -> None:
    world.policy(autoApprove={"maxPods": 1}, budgets="Ignore")


async def removes_the_policy(world: World) -> None:
    world.store.delete(POLICIES, None, "policy")


async def goes_by_itself(world: World) -> None:
    """A smaller plan than the one that was asked about."""
    world.store.delete("pods", "team-a", "train-01", grace_seconds=0)
    await world.wait(0.2)


POD_CHANGES = (
    joins_the_shared_claim,
    takes_the_free_device,
    takes_the_free_device_as_extended_resource,
    is_replaced_under_the_same_name,
)
DEVICE_CHANGES = (changes_its_uuid, publishes_one_device_more)
POLICY_CHANGES = (raises_what_the_policy_forbids, asks_for_approval_now, removes_the_policy)


def uids_on_node(world: World) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in world.store.list("pods")
        if pod["spec"].get("nodeName") == NODE and pod["metadata"]["name"] != "dcgm-0"
    }


def uuids(world: World) -> set[str]:
    devices = world.store.get(SLICES, None, f"{NODE}-gpu")["spec"]["devices"]
    return {device["attributes"]["uuid"]["string"] for device in devices}


class Moment:
    """What there was in the instant in which the first NoExecute came, before anybody acted on it."""

    def __init__(self, world: World) -> None:
        self.came = False
        self._world = world
        when_effect(world, "NoExecute", self._look)

    def _look(self) -> None:
        world, plan = self._world, self._world.run().status.plan
        assert plan is not None
        self.came = True
        self.pods, self.planned = uids_on_node(world), {pod.uid for pod in plan.pods}
        self.devices, self.planned_devices = uuids(world), {device.uuid for device in plan.devices}
        policy = world.store.find(POLICIES, None, "policy")
        self.policy = policy["metadata"]["generation"] if policy else None
        self.planned_policy = plan.policy_generation
        self.counted = plan.counts.pods

    def assert_planned(self, why: str) -> None:
        if self.came:
            assert self.pods <= self.planned, why
            assert self.devices == self.planned_devices, why
            assert self.policy == self.planned_policy, why
            assert self.counted <= len(ON_NODE_1), why


async def reads_of_a_run() -> list[str]:
    """The kinds of read from the first dry run to NoExecute, in a run in which nothing happens."""
    seen: list[str] = []
    async with World() as world:
        world.policy(**EXACTLY)

        class Counting(Busy):
            def __getattr__(self, name: str) -> Any:
                call = getattr(self._world.cluster, name)
                if name in READS and self._world.rules_made and not self._evicting():
                    seen.append(name)
                return call

        await world.control(Counting(world, 0, goes_by_itself))
        await world.start(policyName="policy")
        await world.until(lambda: any(effect == "NoExecute" for _, _, effect in world.effects))
    return seen


async def happens(change: Change, at: int, *, approved: bool = False) -> tuple[World, Moment]:
    """A run in which that happens just before its n-th read; returns what came of it a minute later."""
    async with World() as world:
        world.policy(**({"budgets": "Ignore"} if approved else EXACTLY))
        alice = await world.user("alice@example.com", "taintctl-approver")
        busy, moment = Busy(world, at, change), Moment(world)
        await world.control(busy)
        await world.start(policyName="policy")
        if approved:
            await world.until_phase(Phase.AWAITING_APPROVAL)
            await world.decide(alice, "alice@example.com", "Approve")
        await world.until(lambda: busy.happened or moment.came, 120)
        assert busy.happened, f"no read number {at}"
        await world.wait(30)
        return world, moment


@pytest.mark.parametrize("change", POD_CHANGES, ids=lambda c: c.__name__)
async def test_a_pod_that_comes_at_any_moment_is_in_the_plan_or_nothing_is_evicted(change: Change) -> None:
    reads = await reads_of_a_run()
    assert len(reads) > 20
    every = 2 if change is joins_the_shared_claim else 7
    for at in range(len(reads), 0, -every):
        world, moment = await happens(change, at)
        moment.assert_planned(f"{change.__name__} before read {at} of {len(reads)} ({reads[at - 1]})")
        if change is joins_the_shared_claim:
            assert not moment.came, f"before read {at}"
            assert world.deleted_pods == []
            assert world.phase() is Phase.AWAITING_APPROVAL


@pytest.mark.parametrize("change", DEVICE_CHANGES, ids=lambda c: c.__name__)
async def test_devices_that_change_at_any_moment_are_those_of_the_plan(change: Change) -> None:
    reads = await reads_of_a_run()
    for at in range(len(reads), 0, -7):
        _, moment = await happens(change, at)
        moment.assert_planned(f"{change.__name__} before read {at} of {len(reads)} ({reads[at - 1]})")


@pytest.mark.parametrize("change", POLICY_CHANGES, ids=lambda c: c.__name__)
async def test_a_policy_that_changes_before_it_is_read_for_the_gate_evicts_nobody(change: Change) -> None:
    reads = await reads_of_a_run()
    first = [n for n, name in enumerate(reads, start=1) if name == "rules_of"]
    for at in first:
        world, moment = await happens(change, at)
        assert not moment.came, f"{change.__name__} before read {at} of {len(reads)}"
        assert world.deleted_pods == []
        assert world.phase() in (Phase.AWAITING_APPROVAL, Phase.BLOCKED)


@pytest.mark.parametrize("change", [*POD_CHANGES, *DEVICE_CHANGES], ids=lambda c: c.__name__)
async def test_what_was_approved_is_asked_about_again_when_it_grows_until_the_last_read(change: Change) -> None:
    reads = await reads_of_a_run()
    snapshots = [n for n, name in enumerate(reads, start=1) if name == "snapshot"]
    needs_no_schedule_off = change in (takes_the_free_device, takes_the_free_device_as_extended_resource)
    # A new allocation is possible before NoSchedule only; all else until the last read before NoExecute.
    for at in snapshots[1:2] if needs_no_schedule_off else snapshots[-2:]:
        world, moment = await happens(change, at, approved=True)
        assert not moment.came, f"before read {at} of {len(reads)}"
        assert world.phase() is Phase.AWAITING_APPROVAL
        assert world.run().status.reason == "WaitingForApproval"
        assert world.deleted_pods == [] or change is is_replaced_under_the_same_name
        assert effects_of(world) == {"None"}


async def test_a_plan_that_only_shrinks_keeps_its_approval() -> None:
    reads = await reads_of_a_run()
    for at in (len(reads), len(reads) - 8):
        world, moment = await happens(goes_by_itself, at, approved=True)
        assert moment.came
        assert moment.pods <= moment.planned | {p for p in moment.pods if p not in uids_on_node(world)}
        assert world.run().status.approval is not None
        assert "PlanChanged" not in {h.reason for h in world.run().status.history}


# allocations that are written late


@pytest.mark.parametrize("delay", [3.0, 8.0])
async def test_an_allocation_decided_before_no_schedule_and_written_within_ten_seconds_is_asked_about(
    delay: float,
) -> None:
    async with World() as world:
        world.policy(**EXACTLY)
        world.sandbox.manager.scheduler.prebind_delay = delay
        when_effect(
            world, "None", lambda: world.sandbox.start_pod("team-a", "newcomer", on=NODE, template="one-gpu") and None
        )
        await world.control()
        await world.start(policyName="policy")
        await world.until(lambda: "Notice" in world.seen.get("run", []))
        assert "team-a/newcomer" not in world.pods_on(NODE)
        await world.wait(60)
        assert "team-a/newcomer" in world.pods_on(NODE)
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()
        assert world.deleted_pods == []


async def test_an_allocation_written_after_no_execute_keeps_the_device_from_being_idle() -> None:
    """PreBind can be minutes late. The taint deletes such a pod; the devices are in maintenance when it is gone."""
    async with World() as world:
        world.policy(**EXACTLY)
        await world.control()
        world.sandbox.manager.scheduler.prebind_delay = 20
        when_effect(
            world,
            "None",
            lambda: (
                world.sandbox.start_pod("team-a", "newcomer", on=NODE, template="one-gpu", stop_after="28s") and None
            ),
        )
        await world.start(policyName="policy")
        await world.until(lambda: "team-a/newcomer" in world.pods_on(NODE))
        assert any(effect == "NoExecute" for _, _, effect in world.effects)
        assert world.phase() is not Phase.IN_MAINTENANCE
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert "team-a/newcomer" not in world.pods_on(NODE)


async def test_an_extended_resource_pod_that_comes_late_is_not_evicted_by_our_own_hand() -> None:
    """Decided before NoSchedule, bound after NoExecute: the taint does not reach it, nobody approved it; it stays."""
    async with World() as world:
        world.policy(**EXACTLY)
        await world.control()
        world.sandbox.manager.scheduler.prebind_delay = 20
        when_effect(world, "None", lambda: world.sandbox.start_pod("team-a", "newcomer", on=NODE, gpus=1) and None)
        await world.start(policyName="policy", drain={"timeout": "5m"})
        await world.until(lambda: "team-a/newcomer" in world.pods_on(NODE))
        assert any(effect == "NoExecute" for _, _, effect in world.effects)
        await world.wait(120)
        assert world.phase() is Phase.DRAINING
        assert world.run().status.reason == "DevicesInUse"
        assert "team-a/newcomer" in world.run().status.message
        await world.until_phase(Phase.FAILED, seconds=240)
        assert world.run().status.reason == "DrainTimeout"
        assert "team-a/newcomer" in world.pods()
        world.assert_no_rule_left()


# messages that differ, that cannot be read, and silence


def speak(world: World, name: str, message: str, *, generation: int | None = None) -> None:
    """The condition of a rule as somebody else would write it; with a paused eviction controller it stays."""
    condition = {
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "NoEffect",
        "message": message,
        "lastTransitionTime": timestamp(world.clock.now()),
    }

    def write(rule: dict[str, Any]) -> None:
        condition["observedGeneration"] = rule["metadata"]["generation"] if generation is None else generation
        rule["status"] = {"conditions": [condition]}

    world.store.mutate(RULES, None, name, write, subresource="status")


def speak_of_new_rules(world: World, message: str, *, second_look: bool) -> None:
    """The eviction controller hangs, and somebody else says that of every rule (of the second look) that is made."""

    def answer(event: Any) -> None:
        name = event.obj["metadata"]["name"]
        if event.type == "ADDED" and name.endswith("-dry") is second_look:
            speak(world, name, message)

    world.store.subscribe(RULES, answer)


HONEST = (
    "4 published devices selected. 7 allocated devices selected. 4 pods would be evicted in 2 different namespaces if "
    "the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an "
    "update."
)
"""What the control plane says of the first node: four devices (three allocated to pods, all four to the monitor),
and four of the five pods, for it does not count the one with an extended resource."""


async def test_the_control_plane_says_of_the_first_node_what_these_stories_change() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        [rule] = rules_of(world)
        assert rule["status"]["conditions"][0]["message"] == HONEST


DIFFERENT = [
    ("4 pods would", "5 pods would", "Mismatch"),
    ("4 pods would", "3 pods would", "Mismatch"),
    ("4 published", "12 published", "Mismatch"),
    ("2 different namespaces", "3 different namespaces", "Mismatch"),
    ("7 allocated", "8 allocated", "Mismatch"),
    ("would be evicted", "shall be evicted", "MessageUnreadable"),
    ("4 pods", "some pods", "MessageUnreadable"),
    ("4 published devices selected. ", "", "MessageUnreadable"),
]


@pytest.mark.parametrize(("true", "said", "reason"), DIFFERENT)
async def test_a_message_that_is_not_our_own_count_blocks_after_so_many_attempts(
    true: str, said: str, reason: str
) -> None:
    assert true in HONEST
    async with World() as world:
        world.policy(**{**EXACTLY, "dryRun": {"attempts": 2}})
        world.sandbox.manager.pause(EVICTION)
        speak_of_new_rules(world, HONEST.replace(true, said), second_look=False)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=60)
        status = world.run().status
        assert status.reason == reason
        assert len(world.rules_made) == 1 + 2
        if reason == "Mismatch":
            assert said.split(" ")[0] in status.message
            assert "and taintctl 4, 7 and 4 pods in 2 namespaces" in status.message
        else:
            assert "does not read as expected" in status.message
        await world.wait(75)
        assert warnings(world, reason)
        assert world.phase() in (Phase.BLOCKED, Phase.DRY_RUN)
        world.assert_never_no_execute()
        assert world.deleted_pods == []


@pytest.mark.parametrize(("said", "end"), [("3 pods would", Phase.IN_MAINTENANCE), ("5 pods would", Phase.BLOCKED)])
async def test_our_own_count_is_used_where_it_is_the_larger_and_the_policy_says_so(said: str, end: Phase) -> None:
    """A control plane that counts one pod fewer, at the dry run and at the second look; or one that we cannot name."""
    async with World() as world:
        world.policy(**{**EXACTLY, "dryRun": {"attempts": 2}, "onMismatch": "UseLarger"})
        world.sandbox.manager.pause(EVICTION)
        for second_look in (False, True):
            speak_of_new_rules(world, HONEST.replace("4 pods would", said), second_look=second_look)
        when_effect(world, "NoExecute", lambda: world.sandbox.manager.resume(EVICTION))
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(end)
        if end is Phase.BLOCKED:
            assert "team-b/notebook-0 (extended resource)" in world.run().status.message
            world.assert_never_no_execute()
            assert world.deleted_pods == []
            return
        assert set(world.deleted_pods) == ON_NODE_1
        plan = world.run().status.plan
        assert plan is not None
        assert plan.agreement == "Mismatch"
        fresh = next(c for c in world.run().status.conditions if c.type == "DryRunFresh")
        assert (fresh.status, fresh.reason) == ("True", "LargerUsed")


async def test_a_run_blocked_by_messages_goes_on_by_itself_when_they_agree_again() -> None:
    async with World() as world:
        world.policy(**EXACTLY)
        world.sandbox.manager.pause(EVICTION)
        wrong = [True]

        def answer(event: Any) -> None:
            if event.type == "ADDED" and wrong[0]:
                speak(world, event.obj["metadata"]["name"], HONEST.replace("4 pods would", "9 pods would"))

        world.store.subscribe(RULES, answer)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=60)
        wrong[0] = False
        world.sandbox.manager.resume(EVICTION)
        await world.until_phase(Phase.IN_MAINTENANCE)


@pytest.mark.parametrize(("true", "said", "reason"), [DIFFERENT[0], DIFFERENT[2], DIFFERENT[5]])
async def test_a_second_look_that_differs_blocks_and_evicts_nobody(true: str, said: str, reason: str) -> None:
    async with World() as world:
        world.policy(**EXACTLY)
        when_effect(world, "NoSchedule", lambda: world.sandbox.manager.pause(EVICTION))
        speak_of_new_rules(world, HONEST.replace(true, said), second_look=True)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=120)
        assert world.run().status.reason == reason
        assert "Notice" in world.seen["run"]
        assert "NoExecute" not in effects_of(world)
        world.assert_never_no_execute()
        assert world.deleted_pods == []


async def test_a_message_about_another_generation_is_silence() -> None:
    async with World() as world:
        world.policy(**EXACTLY)
        world.sandbox.manager.pause(EVICTION)

        def answer(event: Any) -> None:
            if event.type == "ADDED":
                speak(world, event.obj["metadata"]["name"], HONEST, generation=0)

        world.store.subscribe(RULES, answer)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=60)
        assert world.run().status.reason == "EvictionControllerSilent"
        world.assert_never_no_execute()


@pytest.mark.parametrize("effect", ["None", "NoSchedule", "NoExecute"])
async def test_a_silent_eviction_controller_blocks_and_when_it_speaks_again_the_run_goes_on(effect: str) -> None:
    """Silent at the dry run, at the second look, and when NoExecute is set: nobody is evicted, no NoExecute stands."""
    async with World() as world:
        world.policy(**EXACTLY)
        manager = world.sandbox.manager
        when_effect(world, effect, lambda: manager.pause(EVICTION))
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=120)
        status = world.run().status
        assert status.reason == "EvictionControllerSilent"
        assert "kube-controller-manager" in status.message
        await world.wait(1)
        [standing] = [r for r in rules_of(world) if not r["metadata"]["name"].endswith("-dry")]
        assert standing["spec"]["taint"]["effect"] == ("None" if effect == "None" else "NoSchedule")
        manager.resume(EVICTION)
        await world.wait(20)
        assert world.deleted_pods == []
        moment = world.clock.now()
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1
        evicted = next(at for at, _, e in world.effects if e == "NoExecute" and at > moment)
        told = max(at for at, _, e in world.effects if e == "NoSchedule" and at <= evicted)
        assert evicted - told >= timedelta(seconds=10)


async def test_an_eviction_controller_that_restarted_after_evicting_says_not_started_and_the_run_goes_on() -> None:
    async with World() as world:
        world.policy(**EXACTLY)
        await world.control()
        await world.start(policyName="policy")
        await world.until(lambda: ON_NODE_1 - {"team-b/notebook-0"} <= set(world.deleted_pods))
        await world.sandbox.manager.restart(EVICTION)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1


# targets


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"driver": "gpu.exmaple.com", "pool": NODE}, "kubectl get resourceslices"),
        ({"driver": DRIVER, "pool": "gpu-worker-03"}, "there are gpu-worker-01, gpu-worker-02"),
        ({"driver": DRIVER, "pool": NODE, "device": "gpu-7"}, "there are gpu-0, gpu-1, gpu-2, gpu-3"),
    ],
)
async def test_a_target_that_matches_nothing_blocks_and_says_what_there_is(target: dict[str, Any], said: str) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", target=target)
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert world.run().status.reason == "NoDevices"
        assert said in world.run().status.message
        await world.wait(120)
        assert world.rules_made == []
        assert world.deleted_pods == []


async def test_a_target_that_comes_into_being_is_seen_by_itself() -> None:
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", target={"driver": DRIVER, "pool": "gpu-worker-03"})
        await world.until_phase(Phase.BLOCKED, seconds=30)
        world.sandbox.add_node("gpu-worker-03", 2)
        await world.until_phase(Phase.IN_MAINTENANCE, seconds=300)
        assert world.deleted_pods == []


@pytest.mark.parametrize(("nodes", "target"), [(2, {"driver": DRIVER}), (1, {"driver": DRIVER, "pool": NODE})])
async def test_what_comes_to_every_device_of_a_driver_needs_to_be_said(nodes: int, target: dict[str, Any]) -> None:
    async with World(nodes=nodes) as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", target=target)
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert world.run().status.reason == "WholeDriver"
        assert "wholeDriver: true" in world.run().status.message
        assert world.rules_made == []
        await world.start("meant", policyName="policy", target={**target, "wholeDriver": True})
        await world.patch(cancelled=True)
        await world.until_phase(Phase.IN_MAINTENANCE, name="meant")
        assert len(rules_of(world, "meant")) == nodes
        assert set(world.deleted_pods) >= ON_NODE_1


async def test_a_pool_that_makes_the_target_the_whole_driver_meanwhile_stops_the_run() -> None:
    """The other node goes: what was one node of two is now every device there is."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", notice="2m")
        await world.until_phase(Phase.NOTICE)
        world.sandbox.remove_slice("gpu-worker-02")
        await world.until_phase(Phase.BLOCKED, seconds=300)
        assert world.run().status.reason == "WholeDriver"
        world.assert_never_no_execute()


async def test_more_pools_than_a_run_has_rules_block_it() -> None:
    async with World() as world:
        driver = "many.example.com"
        world.sandbox.apply([fleet.resource_slice(f"node-{n:03d}", 1, driver=driver) for n in range(257)])
        world.policy()
        await world.control()
        await world.start(policyName="policy", target={"driver": driver, "wholeDriver": True})
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert world.run().status.reason == "TooManyRules"
        assert "257" in world.run().status.message
        assert world.rules_made == []


# slices on the way


def generation(world: World, number: int, slices: int) -> None:
    def bump(obj: dict[str, Any]) -> None:
        obj["spec"]["pool"].update(generation=number, resourceSliceCount=slices)

    world.store.mutate(SLICES, None, f"{NODE}-gpu", bump)


async def test_a_pool_published_anew_with_the_same_devices_is_the_same_plan() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy", notice="1m")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.until_phase(Phase.NOTICE)
        generation(world, 2, 1)
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert world.seen["run"].count("DryRun") == 1


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.AWAITING_APPROVAL, Phase.NOTICE])
async def test_an_incomplete_pool_evicts_nobody_until_it_is_complete(phase: Phase) -> None:
    async with World() as world:
        world.policy()
        await world.control()
        start = world.clock.now() + timedelta(minutes=2)
        if phase is Phase.PENDING:
            generation(world, 2, 2)
        await world.start(policyName="policy", notice="1m", startAt=format_time(start))
        if phase is not Phase.PENDING:
            await world.until_phase(phase)
            generation(world, 2, 2)
        await world.until_phase(Phase.BLOCKED, seconds=300)
        assert world.run().status.reason == "PoolIncomplete"
        assert "1 of 2 ResourceSlices" in world.run().status.message
        await world.wait(180)
        world.assert_never_no_execute()
        generation(world, 3, 1)
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_a_slice_withdrawn_after_the_approval_asks_again_since_nobody_knows_the_hardware_any_more() -> None:
    async with World(nodes=3) as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy", notice="2m")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.until_phase(Phase.NOTICE)
        world.sandbox.remove_slice(NODE)
        await world.wait(300)
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()
        assert world.deleted_pods == []


# policies


async def test_a_run_blocked_by_its_policy_goes_on_when_the_policy_allows_it() -> None:
    async with World() as world:
        world.policy(limits={"maxPods": 4}, autoApprove={"maxPods": 20}, budgets="Ignore")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert world.run().status.reason == "PolicyViolated"
        assert "5 pods" in world.run().status.message
        assert "maxPods is 4" in world.run().status.message
        world.policy(**{**LENIENT, "limits": {"maxPods": 5}})
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_a_policy_that_is_not_there_yet_is_waited_for() -> None:
    async with World() as world:
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert world.run().status.reason == "PolicyNotFound"
        world.policy()
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_a_budget_that_would_break_blocks_until_it_allows_the_plan() -> None:
    async with World() as world:
        world.policy(autoApprove={"maxPods": 20})
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED, seconds=30)
        assert "team-b/inference" in world.run().status.message
        world.without_budgets()
        await world.until_phase(Phase.IN_MAINTENANCE)


async def test_an_approval_given_for_a_plan_that_grew_meanwhile_does_not_count() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user("alice@example.com", "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        old = world.run().status.approval
        await joins_the_shared_claim(world)
        await world.decide(alice, "alice@example.com", "Approve")
        await world.wait(120)
        assert world.phase() is Phase.AWAITING_APPROVAL
        new = world.run().status.approval
        assert old is not None
        assert new is not None
        assert old.asked is not None
        assert new.asked is not None
        assert old.asked.digest != new.asked.digest
        assert new.given == ()
        world.assert_never_no_execute()
        await world.decide(alice, "alice@example.com", "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert "team-b/newcomer" in world.deleted_pods
        assert len([c for c in world.store.list(CLAIMS) if (c.get("status") or {}).get("allocation")]) > 0
