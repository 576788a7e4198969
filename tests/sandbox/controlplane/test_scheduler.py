"""Placing pods and allocating claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import (
    CLAIMS,
    CLASSES,
    EVENTS,
    NODES,
    PODS,
    RULES,
    SLICES,
    TEMPLATES,
    labels_match,
    requirement_matches,
)
from tests.sandbox.controlplane.plane import Obj, Plane, entry, normal, recorded

pytestmark = pytest.mark.looptime


def claim(plane: Plane, name: str, **exactly: Any) -> Obj:
    return plane.store.create(CLAIMS, fleet.claim("team", name, **exactly))


def pod(plane: Plane, name: str, **shape: Any) -> Obj:
    return plane.store.create(PODS, fleet.pod("team", name, **shape))


def scheduled(plane: Plane, name: str) -> Obj:
    conditions = plane.get(PODS, name, "team")["status"].get("conditions", [])
    found: list[Obj] = [c for c in conditions if c["type"] == "PodScheduled"]
    [only] = found
    return only


async def test_a_pod_with_an_extended_resource_gets_the_recorded_claim(plane: Plane) -> None:
    objects = {e["response"]["kind"]: e["response"]["items"] for e in recorded("01-objects.json")}
    [known_claim] = [c for c in objects["ResourceClaimList"] if "extended" in c["metadata"]["name"]]
    [known_pod] = [p for p in objects["PodList"] if p["metadata"]["name"] == "ext-0"]
    plane.recorded_fleet(pods=False)
    await plane.manager.start()
    container = {"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "1"}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 2}
    meta = {"name": "ext-0", "namespace": "team-b", "labels": {"app": "inference"}}
    plane.store.create(PODS, {"metadata": meta, "spec": spec})
    await asyncio.sleep(1)
    made = plane.get(PODS, "ext-0", "team-b")
    expected = {**normal(known_pod["spec"]), "nodeName": "gpu-worker-01"}
    assert normal(made["spec"]) == expected
    status = made["status"]["extendedResourceClaimStatus"]
    name = status.pop("resourceClaimName")
    known = known_pod["status"]["extendedResourceClaimStatus"]
    known.pop("resourceClaimName")
    assert status == known
    assert name.startswith("ext-0-extended-resources-")
    assert len(name) == len(known_claim["metadata"]["name"])
    stored = plane.get(CLAIMS, name, "team-b")
    theirs = normal(known_claim)
    theirs["metadata"]["name"] = name
    [result] = theirs["status"]["allocation"]["devices"]["results"]
    result.update(pool="gpu-worker-01", device="gpu-0")
    [term] = theirs["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    term["matchFields"][0]["values"] = ["gpu-worker-01"]
    assert normal({k: v for k, v in stored.items() if k not in ("kind", "apiVersion")}) == theirs


async def test_a_template_makes_the_recorded_claim(plane: Plane) -> None:
    known = entry(recorded("08-tolerations.json"), "tol-two", "the claim")["response"]
    plane.recorded_fleet(pods=False)
    await plane.manager.start()
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    request["exactly"]["tolerations"] = [  # type: ignore[index]
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"operator": "Exists", "effect": "NoExecute"},
    ]
    template = {
        "metadata": {"name": "t", "namespace": "team-a"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    plane.store.create(TEMPLATES, template)
    spec = fleet.pod("team-a", "tol-two", template="t")
    spec["spec"]["resourceClaims"][0]["name"] = "g0"
    spec["spec"]["containers"][0]["resources"]["claims"][0]["name"] = "g0"
    plane.store.create(PODS, spec)
    await asyncio.sleep(1)
    [made] = plane.store.list(CLAIMS)
    expected = normal(known)
    expected["metadata"]["name"] = made["metadata"]["name"]
    [result] = expected["status"]["allocation"]["devices"]["results"]
    result.update(pool="gpu-worker-01", device="gpu-0")
    [term] = expected["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    term["matchFields"][0]["values"] = ["gpu-worker-01"]
    assert normal(made) == expected
    statuses = plane.get(PODS, "tol-two", "team-a")["status"]["resourceClaimStatuses"]
    assert statuses == [{"name": "g0", "resourceClaimName": made["metadata"]["name"]}]


async def test_pods_share_a_claim_and_wait_while_another_allocates_it(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    claim(plane, "shared")
    for number in range(3):
        pod(plane, f"p{number}", claim="shared")
    await asyncio.sleep(5)
    assert set(plane.pods().values()) == {"Running"}
    holders = plane.get(CLAIMS, "shared", "team")["status"]["reservedFor"]
    assert sorted(h["name"] for h in holders) == ["p0", "p1", "p2"]
    assert plane.devices("team", "shared") == ["n1/gpu-0"]


async def test_a_full_fleet_says_so_and_a_freed_device_is_taken(plane: Plane) -> None:
    plane.nodes(2, gpus=1)
    await plane.manager.start()
    for number in range(3):
        claim(plane, f"c{number}")
        pod(plane, f"p{number}", claim=f"c{number}")
    await asyncio.sleep(3)
    assert plane.pod("team", "p2") == "Pending"
    condition = scheduled(plane, "p2")
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == "0/2 nodes are available: 2 cannot allocate all claims."
    assert [e["reason"] for e in plane.store.list(EVENTS) if e["involvedObject"]["name"] == "p2"] == [
        "FailedScheduling"
    ]
    plane.store.delete(PODS, "team", "p0")
    await asyncio.sleep(15)
    assert plane.pod("team", "p2") == "Running"
    assert scheduled(plane, "p2")["status"] == "True"
    assert "message" not in scheduled(plane, "p2")


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
async def test_a_tainted_device_is_not_given_away_unless_tolerated(plane: Plane, effect: str) -> None:
    plane.nodes(1, gpus=1)
    await plane.manager.start()
    plane.rule("r", effect, driver=fleet.DRIVER, pool="n1", device="gpu-0")
    claim(plane, "strict")
    pod(plane, "strict", claim="strict")
    await asyncio.sleep(3)
    assert plane.pod("team", "strict") == "Pending"
    plane.store.delete(PODS, "team", "strict")
    claim(plane, "tolerant", tolerations=[{"operator": "Exists", "effect": effect}])
    pod(plane, "tolerant", claim="tolerant")
    await asyncio.sleep(3)
    assert plane.pod("team", "tolerant") == "Running"


async def test_the_end_of_a_taint_lets_a_waiting_pod_go(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    await plane.manager.start()
    plane.rule("r", "NoSchedule", driver=fleet.DRIVER)
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(30)
    assert plane.pod("team", "p") == "Pending"
    plane.store.delete(RULES, None, "r")
    await asyncio.sleep(11)
    assert plane.pod("team", "p") == "Running"


async def test_a_drivers_own_taint_keeps_pods_off(plane: Plane) -> None:
    plane.nodes(1, gpus=2)

    def taint(current: Obj) -> None:
        current["spec"]["devices"][0]["taints"] = [
            {"key": "gpu.example.com/xid", "value": "79", "effect": "NoSchedule"}
        ]

    plane.store.mutate(SLICES, None, "n1-gpu", taint)
    await plane.manager.start()
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    assert plane.devices("team", "c") == ["n1/gpu-1"]


async def test_a_monitor_sits_beside_other_holders(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    await plane.manager.start()
    claim(plane, "work", count=2)
    pod(plane, "work", claim="work")
    claim(plane, "watch", allocationMode="All", adminAccess=True)
    pod(plane, "watch", claim="watch")
    await asyncio.sleep(3)
    assert plane.devices("team", "work") == plane.devices("team", "watch") == ["n1/gpu-0", "n1/gpu-1"]
    assert set(plane.pods().values()) == {"Running"}


async def test_a_monitor_never_gets_one_device_twice(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    exactly = {"deviceClassName": fleet.DRIVER, "adminAccess": True}
    requests = [{"name": name, "exactly": exactly} for name in ("first", "second")]
    plane.store.create(
        CLAIMS, {"metadata": {"name": "c", "namespace": "team"}, "spec": {"devices": {"requests": requests}}}
    )
    await plane.manager.start()
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    assert plane.devices("team", "c") == []


async def test_all_needs_every_matching_device(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    await plane.manager.start()
    claim(plane, "one")
    pod(plane, "one", claim="one")
    await asyncio.sleep(2)
    claim(plane, "all", allocationMode="All")
    pod(plane, "all", claim="all")
    await asyncio.sleep(3)
    assert plane.pod("team", "all") == "Pending"


async def test_requests_with_selectors_find_the_one_arrangement_that_works(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    await plane.manager.start()
    bus = "device.attributes['resource.kubernetes.io'].pciBusID == '0000:17:00.0'"
    any_gpu = {"name": "any", "exactly": {"deviceClassName": fleet.DRIVER}}
    first = {"name": "first", "exactly": {"deviceClassName": fleet.DRIVER, "selectors": [{"cel": {"expression": bus}}]}}
    spec = {"devices": {"requests": [any_gpu, first]}}
    plane.store.create(CLAIMS, {"metadata": {"name": "c", "namespace": "team"}, "spec": spec})
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    results = plane.get(CLAIMS, "c", "team")["status"]["allocation"]["devices"]["results"]
    assert {r["request"]: r["device"] for r in results} == {"any": "gpu-1", "first": "gpu-0"}


async def test_only_the_newest_complete_generation_of_a_pool_counts(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    newer = fleet.resource_slice("n1", 3)
    newer["metadata"]["name"] = "n1-newer"
    newer["spec"]["pool"].update(generation=2, resourceSliceCount=2)
    plane.store.create(SLICES, newer)
    await plane.manager.start()
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    assert plane.pod("team", "p") == "Pending"

    def complete(current: Obj) -> None:
        current["spec"]["pool"]["resourceSliceCount"] = 1

    plane.store.mutate(SLICES, None, "n1-newer", complete)
    await asyncio.sleep(11)
    assert plane.pod("team", "p") == "Running"
    # Devices of the older generation are not counted either.
    plane.rule("dry", "None", driver=fleet.DRIVER)
    await plane.settle()
    assert plane.condition("dry")["message"].startswith("3 published devices selected. 1 allocated device selected.")


@pytest.mark.parametrize("scope", [{"allNodes": True}, {"nodeSelector": "zone"}])
async def test_devices_that_several_nodes_reach(plane: Plane, scope: Obj) -> None:
    plane.nodes(2, gpus=1)
    plane.store.mutate(NODES, None, "n2", lambda node: node["metadata"]["labels"].update(zone="b"))
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    selector = {"nodeSelectorTerms": [term]}
    where = {"nodeSelector": selector} if "nodeSelector" in scope else {"allNodes": True}
    network = {"driver": "net.example.com", "pool": {"name": "net", "generation": 1, "resourceSliceCount": 1}, **where}
    network["devices"] = [{"name": "nic-0"}]
    plane.store.create(SLICES, {"metadata": {"name": "net"}, "spec": network})
    plane.store.create(CLASSES, fleet.device_class("nic", driver="net.example.com", extended_resource=None))
    await plane.manager.start()
    claim(plane, "c", deviceClassName="nic")
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    assert plane.devices("team", "c") == ["net/nic-0"]
    allocation = plane.get(CLAIMS, "c", "team")["status"]["allocation"]
    if "nodeSelector" in scope:
        assert plane.get(PODS, "p", "team")["spec"]["nodeName"] == "n2"
        assert allocation["nodeSelector"] == selector
    else:
        assert "nodeSelector" not in allocation


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda node: node["spec"].update(unschedulable=True), "node(s) were unschedulable"),
        (
            lambda node: node["spec"].update(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
            "node(s) had untolerated taint {k: v}",
        ),
        (lambda node: node["metadata"].update(labels={}), "node(s) didn't match Pod's node affinity/selector"),
    ],
)
async def test_nodes_that_refuse(plane: Plane, change: Any, reason: str) -> None:
    plane.nodes()
    plane.store.mutate(NODES, None, "n1", change)
    await plane.manager.start()
    pod(plane, "p", on="n1")
    await asyncio.sleep(1)
    assert scheduled(plane, "p")["message"] == f"0/1 nodes are available: 1 {reason}."


async def test_a_late_write_ignores_a_taint_set_after_the_decision(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    plane.manager.scheduler.prebind_delay = 20.0
    await plane.manager.start()
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(5)
    plane.rule("r", "NoSchedule", driver=fleet.DRIVER)
    await asyncio.sleep(10)
    assert plane.devices("team", "c") == []
    await asyncio.sleep(10)
    assert plane.devices("team", "c") == ["n1/gpu-0"]
    assert plane.pod("team", "p") == "Running"


async def test_two_pods_decided_at_once_never_get_one_device(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    plane.manager.scheduler.prebind_delay = 5.0
    await plane.manager.start()
    for number in range(3):
        claim(plane, f"c{number}")
        pod(plane, f"p{number}", claim=f"c{number}")
    await asyncio.sleep(30)
    held = [d for number in range(3) for d in plane.devices("team", f"c{number}")]
    assert sorted(held) == ["n1/gpu-0", "n1/gpu-1"]


async def test_a_device_plugin_serves_the_extended_resource_itself(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    plane.store.mutate(
        NODES,
        None,
        "n1",
        lambda n: n["status"]["allocatable"].update({fleet.EXTENDED_RESOURCE: "1"}),
        subresource="status",
    )
    await plane.manager.start()
    pod(plane, "first", gpus=1)
    pod(plane, "second", gpus=1)
    await asyncio.sleep(2)
    assert plane.pods() == {"team/first": "Running", "team/second": "Pending"}
    assert plane.store.list(CLAIMS) == []
    assert (
        scheduled(plane, "second")["message"] == f"0/1 nodes are available: 1 Insufficient {fleet.EXTENDED_RESOURCE}."
    )


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (
            {"requests": [{"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "c"}]}]},
            "only requests with `exactly`",
        ),
        ({"requests": [], "constraints": [{"matchAttribute": "a/b"}]}, "claims with constraints"),
        ({"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}, "device class none does not exist"),
    ],
)
async def test_what_the_sandbox_cannot_allocate_is_said(plane: Plane, devices: Obj, why: str) -> None:
    plane.nodes()
    await plane.manager.start()
    plane.store.create(CLAIMS, {"metadata": {"name": "c", "namespace": "team"}, "spec": {"devices": devices}})
    pod(plane, "p", claim="c")
    await asyncio.sleep(1)
    assert why in scheduled(plane, "p")["message"]


async def test_a_pod_deleted_before_it_is_bound_takes_nothing(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    plane.manager.scheduler.prebind_delay = 10.0
    await plane.manager.start()
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(5)
    plane.store.delete(PODS, "team", "p")
    pod(plane, "q", claim="c")
    await asyncio.sleep(40)
    assert plane.pod("team", "q") == "Running"
    assert [h["name"] for h in plane.get(CLAIMS, "c", "team")["status"]["reservedFor"]] == ["q"]


async def test_a_claim_that_somebody_else_allocated_is_decided_anew(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    plane.manager.scheduler.prebind_delay = 5.0
    await plane.manager.start()
    claim(plane, "c")
    pod(plane, "p", claim="c")
    await asyncio.sleep(2)
    result = {"request": "gpu", "driver": fleet.DRIVER, "pool": "n1", "device": "gpu-1"}

    def allocate(current: Obj) -> None:
        current["status"] = {"allocation": {"devices": {"results": [result]}}}

    plane.store.mutate(CLAIMS, "team", "c", allocate, subresource="status")
    await asyncio.sleep(30)
    assert plane.devices("team", "c") == ["n1/gpu-1"]
    assert plane.pod("team", "p") == "Running"


async def test_a_restarted_scheduler_knows_what_is_in_use(plane: Plane) -> None:
    plane.nodes(1, gpus=2)
    await plane.manager.start()
    claim(plane, "a")
    pod(plane, "a", claim="a")
    await asyncio.sleep(2)
    await plane.manager.restart("scheduler")
    claim(plane, "b")
    pod(plane, "b", claim="b")
    await asyncio.sleep(2)
    assert plane.devices("team", "a") + plane.devices("team", "b") == ["n1/gpu-0", "n1/gpu-1"]


async def test_a_claim_is_held_by_at_most_256_pods(plane: Plane) -> None:
    plane.nodes(1, gpus=1)
    await plane.manager.start()
    claim(plane, "c")
    for number in range(257):
        pod(plane, f"p{number}", claim="c")
    await asyncio.sleep(15)
    states = list(plane.pods().values())
    assert (states.count("Running"), states.count("Pending")) == (256, 1)
    assert len(plane.get(CLAIMS, "c", "team")["status"]["reservedFor"]) == 256


async def test_a_selector_that_does_not_evaluate_is_said(plane: Plane) -> None:
    plane.nodes()
    await plane.manager.start()
    claim(plane, "c", selectors=[{"cel": {"expression": "device.attributes['gpu.example.com'].nothing == 'x'"}}])
    pod(plane, "p", claim="c")
    await asyncio.sleep(1)
    assert scheduled(plane, "p")["message"].startswith("0/1 nodes are available: selector ")


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [
        ("In", ["a", "b"], True),
        ("In", ["b"], False),
        ("NotIn", ["b"], True),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
        ("Gt", ["1"], False),
        ("Lt", ["1"], False),
        ("Near", ["a"], False),
    ],
)
def test_label_requirements(operator: str, values: list[str] | None, matches: bool) -> None:
    requirement = {"key": "zone", "operator": operator, "values": values}
    assert requirement_matches(requirement, {"zone": "a"}) is matches
    assert labels_match({"matchExpressions": [requirement]}, {"zone": "a"}) is matches


@pytest.mark.parametrize(("operator", "matches"), [("Gt", True), ("Lt", False)])
def test_numbers_of_labels_are_compared(operator: str, matches: bool) -> None:
    assert requirement_matches({"key": "gpus", "operator": operator, "values": ["4"]}, {"gpus": "8"}) is matches
