"""Garbage collection, namespaces, claims of ended pods, and budgets."""

from __future__ import annotations

import asyncio

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import BUDGETS, CLAIMS, NAMESPACES, PODS, TEMPLATES
from tests.sandbox.controlplane.plane import Obj, Plane

pytestmark = pytest.mark.looptime

MAPS = "configmaps"


def config(name: str, *owners: Obj, block: bool = False) -> Obj:
    references = [
        {
            "apiVersion": "v1",
            "kind": o["kind"],
            "name": o["metadata"]["name"],
            "uid": o["metadata"]["uid"],
            "blockOwnerDeletion": block,
        }
        for o in owners
    ]
    return {"metadata": {"name": name, "namespace": "team", "ownerReferences": references}}


def names(plane: Plane) -> set[str]:
    return {m["metadata"]["name"] for m in plane.store.list(MAPS)}


async def test_dependents_go_with_their_last_owner(plane: Plane) -> None:
    await plane.manager.start()
    a, b = (plane.store.create(MAPS, config(n)) for n in "ab")
    child = plane.store.create(MAPS, config("child", a, b))
    plane.store.create(MAPS, config("grandchild", child))
    await plane.settle()
    plane.store.delete(MAPS, "team", "a")
    await plane.settle()
    assert names(plane) == {"b", "child", "grandchild"}
    left = plane.get(MAPS, "child", "team")["metadata"]["ownerReferences"]
    assert [r["name"] for r in left] == ["b"]
    plane.store.delete(MAPS, "team", "b")
    await plane.settle()
    assert names(plane) == set()


async def test_an_object_whose_owner_never_was_goes_at_once(plane: Plane) -> None:
    await plane.manager.start()
    ghost = {"kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "7f1c8c1e-0000-4000-8000-000000000000"}}
    plane.store.create(MAPS, config("orphan", ghost))
    await plane.settle()
    assert names(plane) == set()


async def test_an_owner_of_an_unknown_kind_counts_as_there(plane: Plane) -> None:
    await plane.manager.start()
    plane.store.create(MAPS, config("child", {"kind": "Nobody", "metadata": {"name": "n", "uid": "u"}}))
    await plane.settle()
    assert names(plane) == {"child"}


async def test_foreground_deletion_waits_for_dependents_that_block(plane: Plane) -> None:
    await plane.manager.start()
    owner = plane.store.create(MAPS, config("owner"))
    child = config("child", owner, block=True)
    child["metadata"]["finalizers"] = ["example.com/hold"]
    plane.store.create(MAPS, child)
    plane.store.delete(MAPS, "team", "owner", propagation="Foreground")
    await plane.settle()
    assert names(plane) == {"owner", "child"}
    assert "deletionTimestamp" in plane.get(MAPS, "child", "team")["metadata"]
    plane.store.mutate(MAPS, "team", "child", lambda c: c["metadata"].update(finalizers=[]))
    await plane.settle()
    assert names(plane) == set()


async def test_orphans_stay_without_their_owner(plane: Plane) -> None:
    await plane.manager.start()
    owner = plane.store.create(MAPS, config("owner"))
    plane.store.create(MAPS, config("child", owner))
    plane.store.delete(MAPS, "team", "owner", propagation="Orphan")
    await plane.settle()
    assert names(plane) == {"child"}
    assert "ownerReferences" not in plane.get(MAPS, "child", "team")["metadata"]


async def test_a_namespace_goes_when_it_is_empty(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(TEMPLATES, fleet.template("team", "one"))
    await plane.manager.start()
    plane.store.create(PODS, fleet.pod("team", "p", template="one"))
    await asyncio.sleep(2)
    plane.store.delete(NAMESPACES, None, "team")
    await asyncio.sleep(1)
    assert plane.get(NAMESPACES, "team")["status"]["phase"] == "Terminating"
    assert plane.pod("team", "p") == "Terminating"
    await asyncio.sleep(5)
    assert plane.store.find(NAMESPACES, None, "team") is None
    assert plane.store.list(CLAIMS) == plane.store.list(TEMPLATES) == []


async def test_a_named_claim_stays_and_is_freed_when_its_last_pod_is_gone(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(CLAIMS, fleet.claim("team", "shared"))
    await plane.manager.start()
    for name in ("a", "b"):
        plane.store.create(PODS, fleet.pod("team", name, claim="shared"))
    await asyncio.sleep(3)
    plane.store.delete(PODS, "team", "a")
    await asyncio.sleep(4)
    held = plane.get(CLAIMS, "shared", "team")["status"]
    assert [c["name"] for c in held["reservedFor"]] == ["b"]
    assert "allocation" in held
    plane.store.delete(PODS, "team", "b")
    await asyncio.sleep(2)
    # Terminating is not gone.
    assert "allocation" in plane.get(CLAIMS, "shared", "team")["status"]
    await asyncio.sleep(2)
    freed = plane.get(CLAIMS, "shared", "team")
    assert freed["status"] == {}
    assert "finalizers" not in freed["metadata"]


async def test_a_claim_in_use_waits_for_its_pod_to_be_deleted(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(CLAIMS, fleet.claim("team", "c"))
    await plane.manager.start()
    plane.store.create(PODS, fleet.pod("team", "p", claim="c"))
    await asyncio.sleep(2)
    plane.store.delete(CLAIMS, "team", "c")
    await asyncio.sleep(60)
    assert "deletionTimestamp" in plane.get(CLAIMS, "c", "team")["metadata"]
    plane.store.delete(PODS, "team", "p")
    await asyncio.sleep(4)
    assert plane.store.list(CLAIMS) == []


async def test_a_template_that_comes_late_is_used(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    plane.store.create(PODS, fleet.pod("team", "p", template="late"))
    await asyncio.sleep(5)
    assert plane.pod("team", "p") == "Pending"
    plane.store.create(TEMPLATES, fleet.template("team", "late"))
    await asyncio.sleep(12)
    assert plane.pod("team", "p") == "Running"


async def test_a_restarted_claim_controller_makes_no_second_claim(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(TEMPLATES, fleet.template("team", "one"))
    await plane.manager.start()
    plane.store.create(PODS, fleet.pod("team", "p", template="one"))
    await asyncio.sleep(2)

    def forget(current: Obj) -> None:
        current["status"].pop("resourceClaimStatuses")

    await plane.manager.stop("claims")
    plane.store.mutate(PODS, "team", "p", forget, subresource="status")
    await plane.manager.start("claims")
    await plane.settle()
    assert len(plane.store.list(CLAIMS)) == 1
    assert len(plane.get(PODS, "p", "team")["status"]["resourceClaimStatuses"]) == 1


def allowed(plane: Plane) -> tuple[int, int, int, int]:
    status = plane.get(BUDGETS, "b", "team")["status"]
    return status["expectedPods"], status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]


async def test_a_budget_follows_its_pods(plane: Plane) -> None:
    plane.nodes()
    plane.store.create(BUDGETS, fleet.budget("team", "b", "web", 2))
    await plane.manager.start()
    for name in "xyz":
        plane.store.create(PODS, fleet.pod("team", name, app="web"))
    plane.store.create(PODS, fleet.pod("team", "other", app="db"))
    await plane.settle()
    assert allowed(plane) == (3, 0, 2, 0)
    await asyncio.sleep(2)
    assert allowed(plane) == (3, 3, 2, 1)
    plane.store.delete(PODS, "team", "x")
    await plane.settle()
    assert allowed(plane) == (3, 2, 2, 0)
    await asyncio.sleep(4)
    assert allowed(plane) == (2, 2, 2, 0)


async def test_an_evicted_pod_counts_as_disrupted_until_its_deletion_is_seen_or_two_minutes_are_over(
    plane: Plane,
) -> None:
    plane.nodes()
    plane.store.create(BUDGETS, fleet.budget("team", "b", "web", 1))
    await plane.manager.start()
    for name in "xy":
        plane.store.create(PODS, fleet.pod("team", name, app="web"))
    await asyncio.sleep(2)

    def evicted(current: Obj) -> None:
        current["status"].update(disruptionsAllowed=0, disruptedPods={"x": "2026-11-30T20:12:02Z"})

    plane.store.mutate(BUDGETS, "team", "b", evicted, subresource="status")
    await plane.settle()
    assert allowed(plane) == (2, 1, 1, 0)
    await asyncio.sleep(121)
    assert allowed(plane) == (2, 2, 1, 1)
    assert "disruptedPods" not in plane.get(BUDGETS, "b", "team")["status"]


@pytest.mark.parametrize(
    ("spec", "expected", "desired"),
    [
        # Three of four pods have a controller: shares are of those.
        ({"maxUnavailable": 1}, 3, 2),
        ({"maxUnavailable": "50%"}, 3, 1),
        ({"minAvailable": "50%"}, 3, 2),
        ({"minAvailable": 3}, 4, 3),
    ],
)
async def test_shares_are_of_what_controllers_want(plane: Plane, spec: Obj, expected: int, desired: int) -> None:
    plane.nodes()
    owner = {"apiVersion": "example.com/v1", "kind": "Set", "name": "s", "uid": "u", "controller": True}
    for index in range(4):
        pod = fleet.pod("team", f"p{index}", app="web")
        if index:
            pod["metadata"]["ownerReferences"] = [owner]
        plane.store.create(PODS, pod)
    budget = fleet.budget("team", "b", "web", 0)
    budget["spec"] = {**spec, "selector": budget["spec"]["selector"]}
    plane.store.create(BUDGETS, budget)
    await plane.manager.start()
    await asyncio.sleep(2)
    assert allowed(plane) == (expected, 4, desired, 4 - desired)
