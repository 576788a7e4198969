"""Whose pods are hit: named, counted and, where an owner is there, brought back elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import MONITOR, NODE, POD_KEY, WHOLE_PATH, World

pytestmark = pytest.mark.looptime

OTHER = "gpu-worker-02"


def spread(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A workload of the fleet's namespace team-a whose pods hold a GPU each."""
    batch = kind == "Job"
    pod: dict[str, Any] = {
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        **({"restartPolicy": "Never"} if batch else {}),
    }
    selector = {} if batch else {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": "batch/v1" if batch else "apps/v1",
        "kind": kind,
        "metadata": {"namespace": "team-a", "name": name},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": pod}, **selector, **spec},
    }


def where(world: World, app: str) -> list[str]:
    """The nodes of the running pods of one workload."""
    pods = (p for p in world.store.list(POD_KEY) if (p["metadata"].get("labels") or {}).get("app") == app)
    return sorted(p["spec"]["nodeName"] for p in pods if p["status"]["phase"] == "Running")


async def test_what_an_owner_runs_goes_on_elsewhere_while_the_node_is_in_maintenance() -> None:
    async with World(nodes=1, gpus_per_node=6) as world:
        world.policy(limits={"maxWorkloads": 7}, autoApprove={"maxWorkloads": 7}, budgets="Ignore")
        world.sandbox.apply([spread("Deployment", "web", replicas=2), spread("Job", "count", backoffLimit=6)])
        await world.until(lambda: where(world, "web") + where(world, "count") == [NODE] * 3, 60)
        world.sandbox.add_node(OTHER, 4)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.until(lambda: where(world, "web") + where(world, "count") == [OTHER] * 3, 60)
        gone = [pod for pod in world.deleted_pods if pod.startswith(("team-a/web-", "team-a/count-"))]
        assert len(gone) == 3
        assert world.pods_on(NODE) == {MONITOR}
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        assert world.seen["run"] == WHOLE_PATH
        world.assert_no_rule_left()


async def test_a_plan_of_too_many_workloads_is_blocked_and_says_so() -> None:
    """On the node: the fleet's five pods without owner, a Deployment's two, a Job's one: 7 workloads."""
    async with World(nodes=1, gpus_per_node=6) as world:
        world.policy(limits={"maxWorkloads": 6}, autoApprove={"maxWorkloads": 6}, budgets="Ignore")
        world.sandbox.apply([spread("Deployment", "web", replicas=2), spread("Job", "count")])
        await world.until(lambda: where(world, "web") + where(world, "count") == [NODE] * 3, 60)
        world.sandbox.add_node(OTHER, 4)
        await world.control()
        await world.start(policyName="policy")
        await world.until_phase(Phase.BLOCKED)
        status = world.run().status
        assert status.plan is not None
        assert (status.plan.counts.workloads, status.plan.counts.pods) == (7, 8)
        assert {p.owner: p.owner_unread for p in status.plan.pods if p.owner} == {
            "Deployment/web": None,
            "Job/count": None,
        }
        assert "maxWorkloads is 6" in status.message
        world.assert_never_no_execute()


async def test_the_rest_of_a_gang_is_named_and_left_alone() -> None:
    async with World(nodes=1, gpus_per_node=4) as world:
        gang = spread("Job", "big", completionMode="Indexed", completions=3, parallelism=3)
        world.sandbox.apply([gang])
        await world.until(lambda: where(world, "big") == [NODE], 60)  # one GPU was free
        world.sandbox.add_node(OTHER, 4)
        await world.until(lambda: where(world, "big") == [NODE, OTHER, OTHER], 600)
        elsewhere = {p["metadata"]["name"] for p in world.store.list(POD_KEY) if p["spec"].get("nodeName") == OTHER}
        world.policy("asks", approval={"required": "Always"}, budgets="Ignore")
        await world.control()
        await world.start(policyName="asks")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        plan = world.run().status.plan
        assert plan is not None
        (lost,) = plan.lost_with
        assert (lost.namespace, lost.owner, lost.hit, lost.count) == ("team-a", "Job/big", 1, 2)
        assert set(lost.pods) == elsewhere
        assert plan.counts.lost_pods == 2
        assert plan.counts.pods == 6  # the fleet's five and one of the gang
        assert elsewhere.isdisjoint(p.name for p in plan.pods)


async def test_an_owner_that_may_not_be_read_stops_nothing_and_counts_by_itself() -> None:
    async with World(nodes=1, gpus_per_node=6) as world:
        world.sandbox.apply([spread("Deployment", "web", replicas=2)])
        await world.until(lambda: where(world, "web") == [NODE] * 2, 60)

        def forget(role: dict[str, Any]) -> None:
            role["rules"] = [rule for rule in role["rules"] if "deployments" not in rule["resources"]]

        world.sandbox.add_node(OTHER, 4)
        world.store.mutate("clusterroles.rbac.authorization.k8s.io", None, "taintctl-controller", forget)
        world.policy("asks", approval={"required": "Always"}, budgets="Ignore")
        await world.control()
        await world.start(policyName="asks")
        await world.until_phase(Phase.AWAITING_APPROVAL)
        plan = world.run().status.plan
        assert plan is not None
        (replicas,) = world.store.list("replicasets.apps")
        name = f"ReplicaSet/{replicas['metadata']['name']}"
        assert {(p.owner, p.owner_unread) for p in plan.pods if p.owner} == {(name, "Forbidden")}
        assert plan.counts.workloads == 6
