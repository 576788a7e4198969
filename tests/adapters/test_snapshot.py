"""What a live snapshot holds, and that nobody who arrives or leaves while it is read is got wrong."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.snapshot import MAX_SINGLE, read_snapshot
from taintctl.api.objects import Snapshot
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import ClusterError
from tests.adapters.server import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    Obj,
    Server,
    budget,
    claim,
    node,
    pod,
    slice_of,
)

DRIVER = "gpu.example.com"


def names(objects: Any) -> list[str]:
    return [o.metadata.name for o in objects]


def fill(server: Server, nodes: int = 3) -> dict[str, Obj]:
    """Nodes n0, n1 ... with a slice each; on each a pod with a claim and one without; a slice of another driver."""
    pods = {}
    for number in range(nodes):
        name = f"n{number}"
        server.put(NODES, node(name))
        server.put(SLICES, slice_of(name))
        pods[name] = server.put(PODS, pod(f"team-{number}", f"user-{number}", name, app="user"))
        server.put(PODS, pod("kube-system", f"agent-{number}", name))
        server.put(CLAIMS, claim(f"team-{number}", f"claim-{number}", [(name, "gpu-0")], pods[name]))
        server.put(BUDGETS, budget(f"team-{number}", f"budget-{number}", app="user"))
        server.put(NAMESPACES, {"metadata": {"name": f"team-{number}", "labels": {"team": str(number)}}})
    server.put(SLICES, slice_of("n0", driver="nic.example.com"))
    server.put(CLAIMS, claim("team-0", "nic", [("n0", "nic-0")], driver="nic.example.com"))
    server.put(CLAIMS, {**claim("team-0", "pending", []), "status": {}})
    server.put(CLASSES, {"metadata": {"name": DRIVER}, "spec": {"extendedResourceName": "example.com/gpu"}})
    return pods


async def test_a_pool_brings_its_holders_their_neighbours_nodes_and_budgets(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    before = server.clock.now()
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert found.live
    assert before <= found.taken_at <= server.clock.now()
    assert names(found.slices) == [f"n1-{DRIVER}"]
    # whether a target is the whole driver needs to know how large that is
    assert found.published == {(DRIVER, "n0"): 4, (DRIVER, "n1"): 4, (DRIVER, "n2"): 4}
    assert names(found.claims) == ["claim-1"]
    assert names(found.pods) == ["agent-1", "user-1"]
    assert names(found.nodes) == ["n1"]
    assert names(found.budgets) == ["budget-1"]
    assert [(n.metadata.name, n.metadata.labels["team"]) for n in found.namespaces] == [("team-1", "1")]
    assert names(found.classes) == [DRIVER]


async def test_labels_of_nodes_bring_the_pools_that_are_local_to_them(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    server.put(NODES, {**node("n7"), "metadata": {"name": "n7", "labels": {"zone": "a"}}})
    server.put(SLICES, slice_of("n7"))
    server.put(SLICES, slice_of("n7", driver="nic.example.com"))
    found = await cluster.snapshot(Scope(node_selector={"zone": "a"}))
    assert names(found.slices) == [f"n7-{DRIVER}", "n7-nic.example.com"]
    assert names(found.nodes) == ["n7"]
    assert (found.claims, found.pods) == ((), ())
    assert (found.devices_of(DRIVER), found.devices_of("nic.example.com"), found.devices_of(None)) == (16, 8, 24)
    of_one = await cluster.snapshot(Scope(DRIVER, node_selector={"zone": "a"}))
    assert names(of_one.slices) == [f"n7-{DRIVER}"]
    assert (await cluster.snapshot(Scope(node_selector={"zone": "b"}))).slices == ()


async def test_pools_are_picked_among_those_that_driver_and_labels_leave(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    seen: list[tuple[str, str]] = []

    def pick(pools: Any, classes: Any) -> frozenset[tuple[str, str]]:
        seen.extend(sorted(pools))
        assert names(classes) == [DRIVER]
        return frozenset({(DRIVER, "n2")})

    found = await cluster.snapshot(Scope(DRIVER, pick=pick))
    assert seen == [(DRIVER, "n0"), (DRIVER, "n1"), (DRIVER, "n2")]
    assert names(found.slices) == [f"n2-{DRIVER}"]
    assert names(found.claims) == ["claim-2"]
    kept = await cluster.snapshot(Scope(DRIVER, pick=pick, pools=frozenset({(DRIVER, "n0")})))
    assert names(kept.claims) == ["claim-0", "claim-2"]


async def test_a_pool_that_only_allocations_name_is_in_reach(server: Server, cluster: KubernetesCluster) -> None:
    fill(server)
    server.store.delete(SLICES, None, f"n1-{DRIVER}")
    assert names((await cluster.snapshot(Scope(DRIVER, pick=lambda *_: frozenset()))).claims) == ["claim-1"]
    assert names((await cluster.snapshot(Scope(DRIVER, "n1"))).claims) == ["claim-1"]
    assert (await cluster.snapshot(Scope(DRIVER, "n2", pick=lambda *_: frozenset()))).claims == ()


async def test_a_driver_brings_all_of_its_pools(server: Server, cluster: KubernetesCluster) -> None:
    fill(server)
    found = await cluster.snapshot(Scope(DRIVER))
    assert names(found.claims) == ["claim-0", "claim-1", "claim-2"]
    assert len(found.pods) == 6
    assert names(found.nodes) == ["n0", "n1", "n2"]


async def test_nodes_that_no_slice_names_any_more_are_read_when_asked_for(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    server.store.delete(SLICES, None, f"n1-{DRIVER}")
    without = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert names(without.pods) == ["user-1"]
    found = await cluster.snapshot(Scope(DRIVER, "n1", nodes=("n1",)))
    assert names(found.pods) == ["agent-1", "user-1"]
    assert names(found.nodes) == ["n1"]


async def test_a_holder_elsewhere_is_found_and_a_replacement_of_its_name_is_not_taken_for_it(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    far = server.put(PODS, pod("team-9", "far", "n9"))
    old = server.put(PODS, pod("team-9", "sts-0", "n9"))
    server.put(CLAIMS, claim("team-9", "net", [("n1", "gpu-3")], far, old))
    server.store.delete(PODS, "team-9", "sts-0", grace_seconds=0)
    server.put(PODS, pod("team-9", "sts-0", "n9"))
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert names(found.pods) == ["agent-1", "user-1", "far"]


async def test_a_namespace_that_is_not_there_is_left_out(server: Server, cluster: KubernetesCluster) -> None:
    """A plan then takes its pods for protected, where the policy asks for a namespace's labels."""
    fill(server)
    far = server.put(PODS, pod("team-9", "far", "n9"))
    server.put(CLAIMS, claim("team-9", "net", [("n1", "gpu-3")], far))
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert {p.metadata.namespace for p in found.pods} == {"team-1", "team-9", "kube-system"}
    assert names(found.namespaces) == ["team-1"]


async def test_many_nodes_are_read_with_one_list_each(server: Server, cluster: KubernetesCluster) -> None:
    fill(server, nodes=MAX_SINGLE + 2)
    lists = server.faults.slow(0, verbs=["list", "get"], resources=[PODS, NODES, NAMESPACES])
    found = await cluster.snapshot(Scope(DRIVER))
    assert len(found.pods) == 2 * (MAX_SINGLE + 2)
    assert len(found.nodes) == MAX_SINGLE + 2
    assert len(found.namespaces) == MAX_SINGLE + 2
    assert lists.met == 3


@pytest.mark.parametrize("resource", [SLICES, CLAIMS, CLASSES, PODS, NODES, BUDGETS, NAMESPACES])
async def test_a_part_that_can_not_be_read_fails_the_whole(
    server: Server, cluster: KubernetesCluster, resource: str
) -> None:
    fill(server)
    server.faults.fail(403, resources=[resource])
    with pytest.raises(ClusterError) as caught:
        await cluster.snapshot(Scope(DRIVER, "n1"))
    assert caught.value.status == 403


async def test_slices_are_found_where_the_server_does_not_select_by_driver(
    server: Server, cluster: KubernetesCluster
) -> None:
    fill(server)
    server.faults.fail(400, verbs=["list"], resources=[SLICES], times=1)
    assert names((await cluster.snapshot(Scope(DRIVER))).slices) == [f"n{n}-{DRIVER}" for n in range(3)]


async def snapshot_while(server: Server, monkeypatch: pytest.MonkeyPatch, url: str, change: Any) -> Snapshot:
    """A snapshot of pool n1 during which `change` happens once, right after the first answer from `url`."""
    async with server.client() as client:
        call = client.call
        changed = False

        async def spy(method: str, path: str, **kwargs: Any) -> Any:
            nonlocal changed
            answer = await call(method, path, **kwargs)
            if path == url and not changed:
                changed = True
                change()
            return answer

        monkeypatch.setattr(client, "call", spy)
        found = await read_snapshot(client, server.clock, "v1", Scope(DRIVER, "n1"))
        assert changed
        return found


CLAIMS_URL = "/apis/resource.k8s.io/v1/resourceclaims"
PODS_URL = "/api/v1/pods"


@pytest.mark.parametrize("after", [CLAIMS_URL, PODS_URL])
async def test_a_pod_that_joins_while_it_is_read_is_in_it(
    server: Server, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    pods = fill(server)

    def join() -> None:
        late = server.put(PODS, pod("team-1", "late", "n1"))
        joined = claim("team-1", "claim-1", [("n1", "gpu-0")], pods["n1"], late)
        server.set_status(CLAIMS, "team-1", "claim-1", joined["status"])

    found = await snapshot_while(server, monkeypatch, after, join)
    assert "late" in names(found.pods)
    reserved = {c.uid for c in found.claims[0].status.reserved_for or ()}
    assert reserved <= {p.metadata.uid for p in found.pods}


async def test_a_pod_that_takes_over_a_shared_claim_is_not_mistaken_for_nobody(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between claims and pods the only holder goes and another pod joins: the device is in use throughout."""
    fill(server)

    def swap() -> None:
        late = server.put(PODS, pod("team-1", "late", "n5"))
        joined = claim("team-1", "claim-1", [("n1", "gpu-0")], late)
        server.set_status(CLAIMS, "team-1", "claim-1", joined["status"])
        server.store.delete(PODS, "team-1", "user-1", grace_seconds=0)

    found = await snapshot_while(server, monkeypatch, CLAIMS_URL, swap)
    holders = {c.uid for c in found.claims[0].status.reserved_for or ()}
    assert [p.metadata.name for p in found.pods if p.metadata.uid in holders] == ["late"]


async def test_claims_that_never_hold_still_end_the_reading_all_the_same(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = fill(server)
    count = 0
    async with server.client() as client:
        call = client.call

        async def spy(method: str, path: str, **kwargs: Any) -> Any:
            nonlocal count
            if path == CLAIMS_URL:
                count += 1
                extra = server.put(PODS, pod("team-1", f"extra-{count}", "n7"))
                joined = claim("team-1", "claim-1", [("n1", "gpu-0")], pods["n1"], extra)
                server.set_status(CLAIMS, "team-1", "claim-1", joined["status"])
            return await call(method, path, **kwargs)

        monkeypatch.setattr(client, "call", spy)
        found = await read_snapshot(client, server.clock, "v1", Scope(DRIVER, "n1"))
    assert count == 4
    assert {c.name for c in found.claims[0].status.reserved_for or ()} == {"user-1", "extra-4"}
    assert "extra-4" in names(found.pods)


async def test_large_annotations_are_not_kept(server: Server, client: Client, cluster: KubernetesCluster) -> None:
    fill(server)
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert all(p.metadata.annotations is None for p in found.pods)
