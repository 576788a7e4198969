"""Hostile hands and bad days: no taint of ours is forgotten, and nothing goes that was not allowed and approved."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.reasons import Phase
from tests.scenarios.world import ON_NODE_1, RULES, RUNS, World

pytestmark = pytest.mark.looptime


async def draining(world: World, **spec: Any) -> None:
    world.policy()
    await world.control()
    await world.start(policyName="policy", **spec)
    await world.until_phase(Phase.DRAINING)


def hide(rule: dict[str, Any]) -> None:
    rule["metadata"]["labels"] = {}


def disown(rule: dict[str, Any]) -> None:
    rule["metadata"]["ownerReferences"] = []


@pytest.mark.parametrize("change", [hide, disown])
@pytest.mark.parametrize("phase", [Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.DRAINING, Phase.IN_MAINTENANCE])
async def test_a_rule_whose_marks_were_taken_off_by_hand_is_not_forgotten(phase: Phase, change: Any) -> None:
    """Its name says whose it is; a taint that nobody owns would stay for ever."""
    async with World() as world:
        world.policy()
        await world.control()
        await world.start(policyName="policy", notice="60s")
        await world.until_phase(phase)
        (name,) = {r["metadata"]["name"] for r in world.rules() if not r["metadata"]["name"].endswith("-dry")}
        world.store.mutate(RULES, None, name, change)
        await world.patch(cancelled=True, released=True)
        await world.until(lambda: (phase := world.phase()) is not None and phase.ended)
        world.assert_no_rule_left()


async def test_a_run_deleted_with_its_dependents_orphaned_takes_its_taint_along() -> None:
    """`kubectl delete --cascade=orphan`: the garbage collector takes our owner reference off the rules."""
    async with World() as world:
        await draining(world)
        world.store.delete(RUNS, None, "run", propagation="Orphan")
        await world.until(lambda: world.store.find(RUNS, None, "run") is None)
        world.assert_no_rule_left()


async def test_a_rule_of_somebody_else_that_only_claims_our_run_as_owner_is_left_alone() -> None:
    async with World() as world:
        await draining(world)
        uid = world.raw()["metadata"]["uid"]
        owner = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "name": "run", "uid": uid}
        foreign = {
            "kind": "DeviceTaintRule",
            "apiVersion": "resource.k8s.io/v1",
            "metadata": {"name": "by-hand", "ownerReferences": [owner]},
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": "elsewhere"},
                "taint": {"key": "a.example/b", "effect": "NoSchedule"},
            },
        }
        world.store.create(RULES, foreign)
        await world.until_phase(Phase.IN_MAINTENANCE)
        await world.patch(workCompleted=True)
        await world.until_phase(Phase.SUCCEEDED)
        assert [r["metadata"]["name"] for r in world.rules()] == ["by-hand"]
        assert set(world.deleted_pods) == ON_NODE_1
