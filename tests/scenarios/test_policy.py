"""Whom a policy protects, who may say yes, and how many devices may be out at once, against a whole cluster."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun
from taintctl.ports.errors import Unavailable
from taintctl.sandbox.fleet import pod, template
from tests.scenarios.stops import effects_of, rules_of
from tests.scenarios.world import APPROVALS, DRIVER, LENIENT, NODE, ON_NODE_1, World

pytestmark = pytest.mark.looptime

SECOND = "gpu-worker-02"
PROD = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}
ALICE = "alice@example.com"


def label(world: World, namespace: str, **labels: str) -> None:
    world.store.mutate("namespaces", None, namespace, lambda n: n["metadata"].setdefault("labels", {}).update(labels))


async def test_pods_of_a_protected_namespace_go_with_a_break_and_not_with_an_approval() -> None:
    async with World() as world:
        label(world, "team-b", env="prod")
        world.policy(**LENIENT, protected=PROD)
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        plan = world.run().status.plan
        assert plan is not None
        assert [(v.check, v.limit, v.actual) for v in plan.violations] == [("protected", "namespaceSelector", "4 pods")]
        await world.decide(alice, ALICE, "Approve")
        await world.wait(120)
        assert world.phase() is Phase.AWAITING_APPROVAL
        world.assert_never_no_execute()
        await world.decide(alice, ALICE, "Break")
        await world.until_phase(Phase.IN_MAINTENANCE)
        assert set(world.deleted_pods) == ON_NODE_1


async def test_a_namespace_that_becomes_protected_during_notice_keeps_its_pods() -> None:
    async with World() as world:
        world.policy(**LENIENT, protected=PROD)
        await world.control()
        await world.start(policyName="policy", notice="60s")
        await world.until_phase(Phase.NOTICE)
        label(world, "team-b", env="prod")
        await world.until_phase(Phase.AWAITING_APPROVAL, seconds=120)
        assert world.run().status.approval.break_needed  # type: ignore[union-attr]
        await world.wait(300)
        world.assert_never_no_execute()
        assert world.pods() >= ON_NODE_1


async def test_a_pod_of_high_priority_is_protected() -> None:
    async with World() as world:
        urgent = pod("team-a", "urgent", on=NODE, template="one-gpu")
        urgent["spec"]["priority"] = 100_000
        world.store.create("pods", urgent)
        await world.until(lambda: "team-a/urgent" in world.pods_on(NODE))
        world.policy(**LENIENT, protected={"minPriority": 100_000})
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        assert [c.message for c in world.run().status.conditions if c.type == "WithinPolicy"] == [
            "The policy protects 1 pod of the plan by minPriority 100000: team-a/urgent; leave them out of the "
            "target, wait until they have ended, or have a Break approval given."
        ]


async def test_who_asked_for_a_run_does_not_approve_it() -> None:
    async with World() as world:
        world.policy(budgets="Ignore")
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control()
        await world.start(policyName="policy", requestedBy="admin")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        await world.decide(world.admin, "admin", "Approve")
        await world.until(lambda: "admin asked for the run" in world.run().status.message, 60)
        await world.wait(120)
        assert world.phase() is Phase.AWAITING_APPROVAL
        (own,) = world.store.list(APPROVALS)
        said = own["status"]["conditions"][0]
        assert (said["status"], said["reason"]) == ("False", "SelfApproval")
        await world.decide(alice, ALICE, "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)
        approval = world.run().status.approval
        assert approval is not None
        assert [given.approver for given in approval.given] == [ALICE]


async def test_a_question_is_asked_again_until_somebody_answers() -> None:
    async with World() as world:
        world.policy(budgets="Ignore", approval={"onExpiry": "AskAgain", "expiresAfter": "5m"})
        alice = await world.user(ALICE, "taintctl-approver")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        first = world.run().status.approval
        await world.wait(780)
        later = world.run().status.approval
        assert first is not None
        assert later is not None
        assert first.asked_at is not None
        assert later.asked_at is not None
        assert timedelta(minutes=10) <= later.asked_at - first.asked_at < timedelta(minutes=11)
        assert later.asked == first.asked
        await world.decide(alice, ALICE, "Approve")
        await world.until_phase(Phase.IN_MAINTENANCE)


# Devices that tolerating pods keep

FOREVER = {"operator": "Exists", "effect": "NoExecute"}


async def test_a_device_that_a_tolerating_pod_keeps_is_never_idle_though_the_policy_ignores_it() -> None:
    async with World() as world:
        world.store.create("resourceclaimtemplates.resource.k8s.io", template("team-a", "stays", tolerations=[FOREVER]))
        world.sandbox.start_pod("team-a", "burn-in", on=NODE, template="stays")
        await world.until(lambda: "team-a/burn-in" in world.pods_on(NODE))
        world.policy(**LENIENT, toleratingPods="Ignore")
        await world.control()
        await world.start(policyName="policy", drain={"timeout": "5m"})
        await world.until_phase(Phase.DRAINING)
        for _ in range(40):
            await world.wait(20)
            assert world.phase() is Phase.DRAINING, world.describe()
            assert world.condition("DevicesIdle") == "False"
        assert set(world.deleted_pods) == ON_NODE_1
        world.store.delete("pods", "team-a", "burn-in", grace_seconds=0)
        await world.until_phase(Phase.IN_MAINTENANCE)


# Devices out, over all runs


async def start_both(world: World, **spec: Any) -> None:
    """Two runs of a node each: four of the driver's eight devices."""
    await world.control()
    for name, pool in (("one", NODE), ("two", SECOND)):
        await world.start(name, policyName="policy", target={"driver": DRIVER, "pool": pool}, **spec)


def out_at_once(world: World) -> int:
    """In how many runs rules evict, at most, at one time."""
    evicting: dict[str, str] = {}
    most = 0
    for _, rule, effect in world.effects:
        evicting[rule] = effect
        most = max(most, sum(e == "NoExecute" for e in evicting.values()))
    return most


async def test_of_two_runs_at_once_no_more_devices_are_out_than_the_policy_lets() -> None:
    async with World() as world:
        world.policy(**{**LENIENT, "limits": {"maxUnavailable": "50%"}})
        await start_both(world)
        await world.until_phase(Phase.IN_MAINTENANCE, name="one")
        await world.wait(300)
        assert world.phase("two") is Phase.BLOCKED
        plan = world.run("two").status.plan
        assert plan is not None
        assert [(v.check, v.limit, v.actual) for v in plan.violations] == [("maxUnavailable", "50% (4 of 8)", "8")]
        assert effects_of(world, "two") == {"None"}
        await world.patch("one", workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED, name="one")
        assert out_at_once(world) == 1
        await world.until_phase(Phase.IN_MAINTENANCE, name="two")


@pytest.mark.parametrize("minutes", range(1, 4))
async def test_of_two_runs_that_come_to_their_notice_in_one_moment_the_first_goes_on(minutes: int) -> None:
    """Both are ready and wait for one start: each sets NoSchedule before it can have seen the other's."""
    async with World() as world:
        world.policy(**{**LENIENT, "limits": {"maxUnavailable": 4}})
        start = world.clock.now() + timedelta(minutes=minutes)
        await start_both(world, startAt=start.isoformat().replace("+00:00", "Z"))
        await world.until_phase(Phase.IN_MAINTENANCE, name="one")
        assert "Notice" in world.seen["two"], "or the test is not about what it says"
        await world.wait(120)
        assert world.phase("two") is Phase.BLOCKED
        assert not [rule for rule in rules_of(world, "two") if rule["spec"]["taint"]["effect"] != "None"]
        await world.patch("one", cancelled=True)
        await world.patch("one", released=True)
        await world.until_phase(Phase.IN_MAINTENANCE, name="two")
        named = {rule["metadata"]["name"] for rule in rules_of(world, "two")}
        before = [at for at, rule, effect in world.effects if effect == "NoExecute" and rule not in named]
        after = [at for at, rule, effect in world.effects if effect == "NoExecute" and rule in named]
        assert max(before) < min(after)


async def test_a_rule_whose_run_is_gone_still_keeps_its_devices_out() -> None:
    async with World() as world:
        world.policy(**{**LENIENT, "limits": {"maxUnavailable": 4}})
        await world.control()
        await world.start("one", policyName="policy", target={"driver": DRIVER, "pool": SECOND})
        await world.until_phase(Phase.IN_MAINTENANCE, name="one")
        await world.kill()
        await world.admin.patch(MaintenanceRun, "one", {"metadata": {"finalizers": []}})
        await world.delete("one")
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED)
        assert "8 devices would be out of service, 4 of them by other runs" in world.run().status.message
        world.store.delete("devicetaintrules.resource.k8s.io", None, world.rules()[0]["metadata"]["name"])


class Deaf:
    """The cluster, but for the rules of others: they can't be read."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.deaf = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def own_rules(self) -> Any:
        if self.deaf:
            raise Unavailable("GET devicetaintrules: no answer")
        return await self._cluster.own_rules()


async def test_where_it_cannot_be_read_what_others_keep_out_nothing_is_evicted() -> None:
    async with World() as world:
        world.policy(**{**LENIENT, "limits": {"maxUnavailable": 4}})
        cluster = Deaf(world.cluster)
        await world.control(cluster)
        await world.start(policyName="policy", notice="60s")
        await world.until_phase(Phase.NOTICE)
        cluster.deaf = True
        await world.wait(180)
        assert world.phase() is Phase.NOTICE
        assert world.run().status.reason == "ClusterUnreadable"
        world.assert_never_no_execute()
        cluster.deaf = False
        await world.until_phase(Phase.IN_MAINTENANCE)
