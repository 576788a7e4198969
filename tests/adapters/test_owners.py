"""Owners of any kind, asked for once each, and never more than they are worth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from taintctl.adapters.kubernetes import owners as module
from taintctl.adapters.kubernetes.cache import LeanCache
from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.memo import Memo
from taintctl.adapters.kubernetes.owners import OwnerReader
from taintctl.adapters.kubernetes.snapshot import read_snapshot
from taintctl.api.objects import KnownOwner, Meta, Owner, Pod, PodSpec, SchedulingGroup, Snapshot, Unread
from taintctl.ports.cluster import Scope
from tests.adapters.server import CLAIMS, CRDS, NODES, PODS, SLICES, Obj, Server, claim, node, pod, slice_of
from tests.adapters.test_snapshot import DRIVER

REPLICA_SETS, DEPLOYMENTS, JOBS = "replicasets.apps", "deployments.apps", "jobs.batch"


def of(kind: str, group: str, obj: Obj) -> Obj:
    """A controller reference to a stored object."""
    meta = obj["metadata"]
    return {"apiVersion": group, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True}


def put(server: Server, key: str, name: str, *above: Obj, namespace: str = "team-a", **spec: Any) -> Obj:
    meta = {"name": name, "namespace": namespace, "ownerReferences": list(above)}
    containers = [{"name": "c", "image": "x"}]
    shape: Obj = {"template": {"metadata": {"labels": {"is": name}}, "spec": {"containers": containers}}}
    if key == JOBS:
        shape["template"]["spec"]["restartPolicy"] = "Never"
    else:
        shape["selector"] = {"matchLabels": {"is": name}}
    return server.put(key, {"metadata": meta, "spec": {**shape, **spec}})


def put_pod(server: Server, name: str, node_name: str, *above: Obj, namespace: str = "team-a", **more: Any) -> Obj:
    made = pod(namespace, name, node_name)
    made["metadata"] |= {"ownerReferences": list(above), **more.pop("metadata", {})}
    made["spec"] |= more
    return server.put(PODS, made)


def crd(server: Server, group: str, kind: str, version: str = "v1") -> str:
    plural = kind.lower() + "s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    server.store.create(
        CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
                "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        },
    )
    return f"{plural}.{group}"


def holding(server: Server, *pods: Obj) -> None:
    """Device n of pool n1 is held by the n-th pod."""
    server.put(SLICES, slice_of("n1", max(4, len(pods))))
    server.put(NODES, node("n1"))
    for number, held in enumerate(pods):
        namespace = held["metadata"]["namespace"]
        server.put(CLAIMS, claim(namespace, f"claim-{number}", [("n1", f"gpu-{number}")], held))


def a_pod(name: str, owner: Owner | None = None, namespace: str = "team-a", group: str | None = None) -> Pod:
    controller = (msgspec.structs.replace(owner, controller=True),) if owner else None
    return Pod(
        metadata=Meta(name=name, namespace=namespace, uid=f"uid-{name}", owner_references=controller),
        spec=PodSpec(scheduling_group=SchedulingGroup(pod_group_name=group) if group else None),
    )


class Asked:
    """A client's calls, with their Accept headers."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str]] = []
        self.at_once = 0
        self.most_at_once = 0
        really = client.call

        async def call(method: str, path: str, **how: Any) -> Any:
            self.calls.append((path, how.get("accept", "")))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                return await really(method, path, **how)
            finally:
                self.at_once -= 1

        monkeypatch.setattr(client, "call", call)

    def for_(self, part: str) -> list[str]:
        return [path for path, _ in self.calls if part in path]


@pytest_asyncio.fixture
async def reader(client: Client, server: Server) -> AsyncIterator[OwnerReader]:
    yield OwnerReader(client, server.clock)


@pytest.fixture
def asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(client, monkeypatch)


def unread(found: tuple[KnownOwner, ...]) -> dict[str, Unread | None]:
    return {known.owner.name: known.unread for known in found}


def links(found: tuple[KnownOwner, ...]) -> dict[str, str | None]:
    return {k.owner.name: k.controller.name if k.controller else None for k in found}


async def test_a_snapshot_brings_the_chain_above_its_holders(server: Server, cluster: KubernetesCluster) -> None:
    deployment = put(server, DEPLOYMENTS, "web")
    replicas = put(server, REPLICA_SETS, "web-5d", of("Deployment", "apps/v1", deployment))
    put(server, REPLICA_SETS, "not-ours")
    holding(server, put_pod(server, "web-0", "n1", of("ReplicaSet", "apps/v1", replicas)))
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert links(found.owners) == {"web-5d": "web", "web": None}
    assert found.gang_pods == ()


async def test_any_kind_is_followed_with_nothing_but_its_metadata(
    server: Server, reader: OwnerReader, asked: Asked
) -> None:
    flows = crd(server, "flows.example.com", "Flow", "v1alpha7")
    flow = put(server, flows, "night", secret="keep")
    job = put(server, JOBS, "step", of("Flow", "flows.example.com/v1alpha7", flow))
    found = await reader.follow(
        [a_pod("p", Owner(api_version="batch/v1", kind="Job", name="step", uid=job["metadata"]["uid"]))]
    )
    assert links(found) == {"step": "night", "night": None}
    assert unread(found) == {"step": None, "night": None}
    (accept,) = [accept for path, accept in asked.calls if path.endswith("/flows/night")]
    assert accept.startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (Owner("apps/v1", "ReplicaSet", "gone", "u"), Unread.NOT_FOUND),
        (Owner("apps/v1", "ReplicaSet", "other", "not-its-uid"), Unread.NOT_FOUND),
        (Owner("apps/v1", "Nonsense", "x", "u"), Unread.UNKNOWN_KIND),
        (Owner("none.example.com/v1", "Flow", "x", "u"), Unread.UNKNOWN_KIND),
        (Owner("apps/v1", "ReplicaSet", "..", "u"), Unread.UNREADABLE),
        (Owner("apps/v1", "ReplicaSet", "a/b", "u"), Unread.UNREADABLE),
        (Owner("apps/v1/../../x", "ReplicaSet", "x", "u"), Unread.UNREADABLE),
        (Owner("", "ReplicaSet", "x", "u"), Unread.UNREADABLE),
        (Owner("apps/v1", "Replica Set", "x", "u"), Unread.UNREADABLE),
    ],
)
async def test_what_can_not_be_read_is_a_value(server: Server, reader: OwnerReader, owner: Owner, why: Unread) -> None:
    put(server, REPLICA_SETS, "other")
    (found,) = await reader.follow([a_pod("p", owner)])
    assert (found.owner, found.unread, found.controller) == (owner, why, None)


@pytest.mark.parametrize(("status", "why"), [(403, Unread.FORBIDDEN), (500, Unread.UNREADABLE)])
async def test_a_refusal_does_not_fail_the_snapshot(
    server: Server, cluster: KubernetesCluster, status: int, why: Unread
) -> None:
    replicas = put(server, REPLICA_SETS, "web")
    holding(server, put_pod(server, "web-0", "n1", of("ReplicaSet", "apps/v1", replicas)))
    server.faults.fail(status, resources=[REPLICA_SETS])
    assert unread((await cluster.snapshot(Scope(DRIVER, "n1"))).owners) == {"web": why}


async def test_ten_thousand_pods_of_one_owner_are_one_call(server: Server, reader: OwnerReader, asked: Asked) -> None:
    job = put(server, JOBS, "big")
    owner = Owner("batch/v1", "Job", "big", job["metadata"]["uid"])
    await reader.follow([a_pod(f"p{n}", owner) for n in range(10_000)])
    assert len(asked.for_("/jobs/")) == 1
    assert len(asked.calls) == 2  # and what batch/v1 serves


async def test_many_owners_are_asked_for_a_few_at_a_time_and_only_so_many(
    reader: OwnerReader, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_OWNERS", 40)
    pods = [a_pod(f"p{n}", Owner("batch/v1", "Job", f"j{n:03}", f"u{n}")) for n in range(100)]
    found = await reader.follow(reversed(pods))
    # The same ones whatever the order: the first by name.
    assert [known.owner.name for known in found] == [f"j{n:03}" for n in range(40)]
    assert len(asked.for_("/jobs/")) == 40
    assert asked.most_at_once == module.PARALLEL


async def test_an_answer_is_remembered_for_a_minute_and_so_is_a_no(
    server: Server, reader: OwnerReader, asked: Asked
) -> None:
    job = put(server, JOBS, "big")
    pods = [
        a_pod("p", Owner("batch/v1", "Job", "big", job["metadata"]["uid"])),
        a_pod("q", Owner("batch/v1", "Job", "gone", "u")),
        a_pod("r", Owner("none.example.com/v1", "Flow", "x", "u")),
    ]
    first = await reader.follow(pods)
    calls = len(asked.calls)
    assert await reader.follow(pods) == first
    assert len(asked.calls) == calls
    await server.clock.sleep(61)
    await reader.follow(pods)
    assert len(asked.calls) == 2 * calls


async def test_a_failure_is_not_remembered(server: Server, reader: OwnerReader) -> None:
    job = put(server, JOBS, "big")
    pods = [a_pod("p", Owner("batch/v1", "Job", "big", job["metadata"]["uid"]))]
    server.faults.fail(500, resources=[JOBS])
    assert unread(await reader.follow(pods)) == {"big": Unread.UNREADABLE}
    server.faults.clear()
    assert unread(await reader.follow(pods)) == {"big": None}


async def test_a_server_that_takes_too_long_leaves_what_is_known(
    server: Server, reader: OwnerReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST", 0.3)
    replicas = put(server, REPLICA_SETS, "slow")
    job = put(server, JOBS, "quick", of("ReplicaSet", "apps/v1", replicas))
    server.faults.slow(1000, resources=[REPLICA_SETS])
    found = await reader.follow([a_pod("p", Owner("batch/v1", "Job", "quick", job["metadata"]["uid"]))])
    assert links(found) == {"quick": "slow"}


async def test_a_memo_keeps_to_its_size() -> None:
    memo: Memo[int, int] = Memo(2, 60)
    for number in (1, 2, 1, 3):
        memo.put(number, number)
    assert [memo.get(number) for number in (1, 2, 3)] == [1, None, 3]
    assert len(memo) == 2


# --- gangs


def training(server: Server, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """A PyTorchJob with a worker on n1 and others elsewhere, and strangers beside them."""
    job = of("PyTorchJob", "kubeflow.org/v1", put(server, crd(server, "kubeflow.org", "PyTorchJob"), "big"))
    other = of("Job", "batch/v1", put(server, JOBS, "other"))
    holding(server, put_pod(server, "big-0", "n1", job))
    put_pod(server, "big-1", "n2", job)
    put_pod(server, "big-2", "n1", job)  # on the node, but without a device
    put_pod(server, "waiting", "", job)
    put_pod(server, "stranger", "n2")
    put_pod(server, "other-0", "n2", other)


def names(found: tuple[Pod, ...]) -> list[str]:
    return [p.metadata.name for p in found]


async def test_the_rest_of_a_gang_is_found_in_its_namespace(server: Server, cluster: KubernetesCluster) -> None:
    training(server)
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert names(found.gang_pods) == ["big-1", "big-2"]
    assert links(found.owners) == {"big": None}


async def test_who_wants_no_owners_asks_for_none(server: Server, client: Client, asked: Asked) -> None:
    training(server)
    found = await read_snapshot(client, server.clock, "v1", Scope(DRIVER, "n1", owners=False))
    assert (found.owners, found.gang_pods, names(found.pods)) == ((), (), ["big-0", "big-2"])
    assert asked.for_("/resourceclaims")
    assert asked.for_("pytorchjobs") == []


async def test_nothing_more_is_read_where_no_gang_is_hit(server: Server, cluster: KubernetesCluster) -> None:
    job = put(server, JOBS, "single")
    holding(server, put_pod(server, "single-0", "n1", of("Job", "batch/v1", job)))
    lists = server.faults.slow(0, verbs=["list"], resources=[PODS])
    await cluster.snapshot(Scope(DRIVER, "n1"))
    assert lists.met == 1  # those on the node


async def test_members_under_other_owners_of_the_gang_are_found(server: Server, cluster: KubernetesCluster) -> None:
    """A JobSet's pods hang under several Jobs: only above these do they meet."""
    above = of("JobSet", "jobset.x-k8s.io/v1", put(server, crd(server, "jobset.x-k8s.io", "JobSet"), "set"))
    jobs = [of("Job", "batch/v1", put(server, JOBS, name, above)) for name in ("set-a", "set-b")]
    elsewhere = of("Job", "batch/v1", put(server, JOBS, "set-a", namespace="team-b"))
    holding(server, put_pod(server, "a-0", "n1", jobs[0]))
    put_pod(server, "a-1", "n2", jobs[0])
    put_pod(server, "b-0", "n3", jobs[1])
    put_pod(server, "b-0", "n3", elsewhere, namespace="team-b")
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert [(p.metadata.namespace, p.metadata.name) for p in found.gang_pods] == [("team-a", "a-1"), ("team-a", "b-0")]
    assert links(found.owners) == {"set-a": "set", "set-b": "set", "set": None}


@pytest.mark.parametrize(
    ("policy", "expected"), [({"gang": {"minCount": 2}}, ["g-1"]), ({"basic": {}}, []), (None, ["g-1"])]
)
async def test_a_pod_group_is_read_at_the_version_that_is_served(
    server: Server, cluster: KubernetesCluster, policy: Obj | None, expected: list[str]
) -> None:
    """1.36 serves it at v1alpha2; where there is none, the pods' word is taken."""
    if policy is not None:
        put(server, crd(server, "scheduling.k8s.io", "PodGroup", "v1alpha2"), "g", schedulingPolicy=policy)
    group = {"schedulingGroup": {"podGroupName": "g"}}
    holding(server, put_pod(server, "g-0", "n1", **group))
    put_pod(server, "g-1", "n2", **group)
    put_pod(server, "h-0", "n2", schedulingGroup={"podGroupName": "h"})
    assert names((await cluster.snapshot(Scope(DRIVER, "n1"))).gang_pods) == expected


async def test_gangs_of_many_namespaces_are_read_with_one_list(server: Server, cluster: KubernetesCluster) -> None:
    key = crd(server, "kubeflow.org", "PyTorchJob")
    held = []
    for number in range(21):
        namespace = f"team-{number:02}"
        job = of("PyTorchJob", "kubeflow.org/v1", put(server, key, "big", namespace=namespace))
        held.append(put_pod(server, "big-0", "n1", job, namespace=namespace))
        put_pod(server, "big-1", "n2", job, namespace=namespace)
    holding(server, *held)
    lists = server.faults.slow(0, verbs=["list"], resources=[PODS])
    found = await cluster.snapshot(Scope(DRIVER, "n1"))
    assert len(found.gang_pods) == 21
    assert lists.met == 2


async def test_a_cache_knows_the_same_owners_and_gangs(
    server: Server, cluster: KubernetesCluster, client: Client
) -> None:
    training(server)

    def what(found: Snapshot) -> tuple[object, ...]:
        return found.owners, found.gang_pods, found.pods

    cache = LeanCache(client, "v1", server.clock)
    running = asyncio.create_task(cache.run())
    try:
        async with asyncio.timeout(40):
            while cache.age() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            live = what(await cluster.snapshot(Scope(DRIVER, "n1")))
            while what(await cache.snapshot(Scope(DRIVER, "n1"))) != live:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        server.store.delete(PODS, "team-a", "big-1", grace_seconds=0)
        async with asyncio.timeout(40):
            while names((await cache.snapshot(Scope(DRIVER, "n1"))).gang_pods) != ["big-2"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_owners_of_a_pod_that_joins_meanwhile_are_asked_for_too(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the owners and the second look at the claims: what is read last is still claims."""
    job, late = (of("Job", "batch/v1", put(server, JOBS, name)) for name in ("early", "late"))
    first = put_pod(server, "early-0", "n1", job)
    holding(server, first)
    asked = Asked(client, monkeypatch)
    call = client.call

    async def spy(method: str, path: str, **how: Any) -> Any:
        answer = await call(method, path, **how)
        if path.endswith("/jobs/early") and len(asked.for_("/jobs/early")) == 1:
            second = put_pod(server, "late-0", "n1", late)
            joined = claim("team-a", "claim-0", [("n1", "gpu-0")], first, second)
            server.set_status(CLAIMS, "team-a", "claim-0", joined["status"])
        return answer

    monkeypatch.setattr(client, "call", spy)
    found = await read_snapshot(client, server.clock, "v1", Scope(DRIVER, "n1"), OwnerReader(client, server.clock))
    assert links(found.owners) == {"early": None, "late": None}
    assert names(found.pods) == ["early-0", "late-0"]


async def test_where_nothing_changes_no_owner_is_asked_for_after_the_claims(
    server: Server, client: Client, asked: Asked
) -> None:
    training(server)
    await read_snapshot(client, server.clock, "v1", Scope(DRIVER, "n1"))
    paths = [path for path, _ in asked.calls]
    claims = [n for n, path in enumerate(paths) if path.endswith("/resourceclaims")]
    owners = [n for n, path in enumerate(paths) if "jobs" in path or path.endswith("/team-a/pods")]
    assert len(claims) == 2
    assert len(owners) == 3  # the PyTorchJob; of the gang's namespace the pods, and a Job that was not in it
    assert claims[0] < owners[0] < owners[-1] < claims[1]
