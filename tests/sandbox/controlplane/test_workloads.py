"""Owners bring back what was evicted: Deployments, ReplicaSets, StatefulSets and Jobs, as upstream documents them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.objects import DEPLOYMENTS, JOBS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS, TEMPLATES
from tests.sandbox.controlplane.plane import Obj, Plane

pytestmark = pytest.mark.looptime


def template(app: str, *, complete_after: str = "", **spec: Any) -> Obj:
    metadata: Obj = {"labels": {"app": app}}
    if complete_after:
        metadata["annotations"] = {"sandbox.taintctl.dev/complete-after": complete_after}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def put(plane: Plane, key: str, name: str, replicas: int, **spec: Any) -> Obj:
    shape = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name)}
    return plane.store.create(key, {"metadata": {"namespace": "team", "name": name}, "spec": {**shape, **spec}})


def job(plane: Plane, name: str, *, complete_after: str = "", **spec: Any) -> Obj:
    shape = {"template": template(name, complete_after=complete_after, restartPolicy="Never")}
    return plane.store.create(JOBS, {"metadata": {"namespace": "team", "name": name}, "spec": {**shape, **spec}})


def names(plane: Plane, phase: str = "Running") -> list[str]:
    return sorted(key.partition("/")[2] for key, found in plane.pods().items() if found == phase)


def status(plane: Plane, key: str, name: str) -> Obj:
    found: Obj = plane.get(key, name, "team")["status"]
    return found


def fail(plane: Plane, name: str) -> None:
    def write(pod: Obj) -> None:
        pod["status"]["phase"] = "Failed"

    plane.store.mutate(PODS, "team", name, write, subresource="status")


def change(plane: Plane, key: str, name: str, **spec: Any) -> None:
    plane.store.mutate(key, "team", name, lambda current: current["spec"].update(spec))


async def started(plane: Plane, nodes: int = 1) -> None:
    plane.nodes(nodes)
    await plane.manager.start()


async def test_a_replica_set_replaces_a_pod_as_soon_as_it_is_marked(plane: Plane) -> None:
    await started(plane)
    owner = put(plane, REPLICA_SETS, "web", 2)
    await asyncio.sleep(5)
    first, second = names(plane)
    pod = plane.get(PODS, first, "team")
    (reference,) = pod["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert status(plane, REPLICA_SETS, "web") == {
        "replicas": 2,
        "fullyLabeledReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "observedGeneration": 1,
    }
    plane.store.delete(PODS, "team", first)
    await asyncio.sleep(0.5)
    assert names(plane, "Terminating") == [first]
    assert len(plane.store.list(PODS)) == 3
    await asyncio.sleep(5)
    assert len(names(plane)) == 2
    assert second in names(plane)
    assert first not in names(plane)


async def test_a_pod_that_ended_is_replaced_and_stays_to_be_looked_at(plane: Plane) -> None:
    await started(plane)
    put(plane, REPLICA_SETS, "web", 1)
    await asyncio.sleep(5)
    (first,) = names(plane)
    fail(plane, first)
    await asyncio.sleep(5)
    assert names(plane, "Failed") == [first]
    assert len(names(plane)) == 1


async def test_an_evicted_pod_comes_back_on_another_node(plane: Plane) -> None:
    await started(plane)
    plane.store.create(TEMPLATES, fleet.template("team", "one"))
    spec = {"containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]}
    spec |= {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    put(plane, REPLICA_SETS, "web", 2, template={"metadata": {"labels": {"app": "web"}}, "spec": spec})
    await asyncio.sleep(5)
    assert {p["spec"]["nodeName"] for p in plane.store.list(PODS)} == {"n1"}
    fleet.add_node(plane.store, "n2", 4)
    plane.rule("r", "NoExecute", driver=fleet.DRIVER, pool="n1")
    await asyncio.sleep(60)
    assert {p["spec"]["nodeName"] for p in plane.store.list(PODS)} == {"n2"}
    assert len(names(plane)) == 2


async def test_scaling_takes_away_what_is_not_running_first(plane: Plane) -> None:
    await started(plane)
    put(plane, REPLICA_SETS, "web", 1)
    await asyncio.sleep(5)
    (running,) = names(plane)
    plane.store.mutate(NODES, None, "n1", lambda node: node["spec"].update(unschedulable=True))
    change(plane, REPLICA_SETS, "web", replicas=3)
    await asyncio.sleep(5)
    assert len(names(plane, "Pending")) == 2
    change(plane, REPLICA_SETS, "web", replicas=1)
    await asyncio.sleep(5)
    assert names(plane) == [running]
    assert len(plane.store.list(PODS)) == 1


async def test_a_deployment_keeps_its_pods_through_a_replica_set(plane: Plane) -> None:
    await started(plane)
    put(plane, DEPLOYMENTS, "web", 2)
    await asyncio.sleep(5)
    (replicas,) = plane.store.list(REPLICA_SETS)
    assert replicas["metadata"]["name"].startswith("web-")
    hashed = {"app": "web", "pod-template-hash": replicas["metadata"]["name"].removeprefix("web-")}
    assert replicas["spec"]["selector"]["matchLabels"] == hashed
    assert all(p["metadata"]["labels"] == hashed for p in plane.store.list(PODS))
    assert replicas["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    found = status(plane, DEPLOYMENTS, "web")
    conditions = {c["type"]: (c["status"], c["reason"]) for c in found.pop("conditions")}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert found == {
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "observedGeneration": 1,
    }


@pytest.mark.parametrize("strategy", ["RollingUpdate", "Recreate"])
async def test_a_new_template_replaces_all_pods(plane: Plane, strategy: str) -> None:
    await started(plane)
    put(plane, DEPLOYMENTS, "web", 2, strategy={"type": strategy})
    await asyncio.sleep(5)
    before, fewest = set(names(plane)), 2

    def look(_: object) -> None:
        nonlocal fewest
        fewest = min(fewest, len(names(plane)))

    plane.store.subscribe(PODS, look)
    change(plane, DEPLOYMENTS, "web", template=template("web", terminationGracePeriodSeconds=1))
    await asyncio.sleep(30)
    assert len(names(plane)) == 2
    assert before.isdisjoint(names(plane))
    assert fewest == (2 if strategy == "RollingUpdate" else 0)
    old, new = sorted(plane.store.list(REPLICA_SETS), key=lambda s: int(s["spec"]["replicas"]))
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 2)


async def test_old_replica_sets_are_kept_as_long_as_the_history_goes(plane: Plane) -> None:
    await started(plane)
    put(plane, DEPLOYMENTS, "web", 1, revisionHistoryLimit=1)
    for seconds in (5, 6, 7):
        await asyncio.sleep(20)
        change(plane, DEPLOYMENTS, "web", template=template("web", terminationGracePeriodSeconds=seconds))
    await asyncio.sleep(20)
    assert len(plane.store.list(REPLICA_SETS)) == 2


async def test_pods_go_with_their_deployment(plane: Plane) -> None:
    await started(plane)
    put(plane, DEPLOYMENTS, "web", 2)
    await asyncio.sleep(5)
    plane.store.delete(DEPLOYMENTS, "team", "web")
    await asyncio.sleep(40)
    assert plane.store.list(REPLICA_SETS) == plane.store.list(PODS) == []


async def test_a_stateful_set_starts_in_order_and_brings_a_pod_back_under_its_name(plane: Plane) -> None:
    await started(plane)
    created: list[tuple[str, list[str]]] = []

    def look(event: Any) -> None:
        if event.type == "ADDED":
            created.append((event.obj["metadata"]["name"], names(plane)))

    plane.store.subscribe(PODS, look)
    put(plane, STATEFUL_SETS, "db", 3)
    await asyncio.sleep(30)
    # Each starts when those before it run.
    assert created == [("db-0", []), ("db-1", ["db-0"]), ("db-2", ["db-0", "db-1"])]
    first = plane.get(PODS, "db-1", "team")
    assert first["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert first["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    plane.store.delete(PODS, "team", "db-1")
    await asyncio.sleep(0.5)
    assert plane.pod("team", "db-1") == "Terminating"
    await asyncio.sleep(10)
    again = plane.get(PODS, "db-1", "team")
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    found = status(plane, STATEFUL_SETS, "db")
    assert (found["replicas"], found["readyReplicas"], found["availableReplicas"]) == (3, 3, 3)
    assert (
        found["currentRevision"] == found["updateRevision"] == first["metadata"]["labels"]["controller-revision-hash"]
    )


async def test_a_stateful_set_is_scaled_and_updated_from_the_top(plane: Plane) -> None:
    await started(plane)
    put(plane, STATEFUL_SETS, "db", 3)
    await asyncio.sleep(30)
    deleted: list[str] = []

    def look(event: Any) -> None:
        if event.type == "DELETED":
            deleted.append(event.obj["metadata"]["name"])

    plane.store.subscribe(PODS, look)
    change(plane, STATEFUL_SETS, "db", template=template("db", terminationGracePeriodSeconds=1))
    await asyncio.sleep(60)
    assert deleted == ["db-2", "db-1", "db-0"]
    change(plane, STATEFUL_SETS, "db", replicas=1)
    await asyncio.sleep(60)
    assert deleted[3:] == ["db-2", "db-1"]
    assert names(plane) == ["db-0"]


async def test_a_parallel_stateful_set_waits_for_nobody(plane: Plane) -> None:
    await started(plane)
    put(plane, STATEFUL_SETS, "db", 3, podManagementPolicy="Parallel", updateStrategy={"type": "OnDelete"})
    await asyncio.sleep(0.5)
    assert len(plane.store.list(PODS)) == 3
    await asyncio.sleep(5)
    fail(plane, "db-1")
    await asyncio.sleep(10)
    assert names(plane) == ["db-0", "db-1", "db-2"]
    change(plane, STATEFUL_SETS, "db", template=template("db", terminationGracePeriodSeconds=1))
    await asyncio.sleep(10)
    hashes = {p["metadata"]["labels"]["controller-revision-hash"] for p in plane.store.list(PODS)}
    assert hashes != {status(plane, STATEFUL_SETS, "db")["updateRevision"]}
    change(plane, STATEFUL_SETS, "db", replicas=0)
    await asyncio.sleep(10)
    assert plane.store.list(PODS) == []


async def test_a_job_runs_to_its_end(plane: Plane) -> None:
    await started(plane)
    job(plane, "count", completions=3, parallelism=2, complete_after="10s")
    await asyncio.sleep(5)
    assert len(names(plane)) == 2
    found = status(plane, JOBS, "count")
    assert (found["active"], found["ready"], found.get("succeeded")) == (2, 2, None)
    await asyncio.sleep(60)
    found = status(plane, JOBS, "count")
    assert found["succeeded"] == 3
    assert "active" not in found
    assert {c["type"] for c in found["conditions"] if c["status"] == "True"} == {"Complete", "SuccessCriteriaMet"}
    assert found["completionTime"] > found["startTime"]
    assert len(plane.store.list(PODS)) == 3
    labels = plane.store.list(PODS)[0]["metadata"]["labels"]
    assert (labels["batch.kubernetes.io/job-name"], labels["job-name"]) == ("count", "count")


async def test_a_deleted_pod_of_a_job_counts_as_failed_and_is_started_again(plane: Plane) -> None:
    await started(plane)
    job(plane, "train", backoffLimit=1)
    await asyncio.sleep(5)
    (first,) = names(plane)
    plane.store.delete(PODS, "team", first)
    await asyncio.sleep(10)
    (second,) = names(plane)
    assert second != first
    assert status(plane, JOBS, "train")["failed"] == 1
    await plane.manager.restart("jobs")  # what it had in memory is lost
    plane.store.delete(PODS, "team", second)
    await asyncio.sleep(10)
    found = status(plane, JOBS, "train")
    assert found["failed"] == 2
    conditions = {c["type"]: c.get("reason") for c in found["conditions"]}
    assert conditions == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert names(plane) == []


@pytest.mark.parametrize(("policy", "at_once"), [("TerminatingOrFailed", 2), ("Failed", 1)])
async def test_when_a_job_replaces_a_pod(plane: Plane, policy: str, at_once: int) -> None:
    await started(plane)
    job(plane, "train", podReplacementPolicy=policy)
    await asyncio.sleep(5)
    (first,) = names(plane)
    plane.store.delete(PODS, "team", first)
    await asyncio.sleep(0.5)
    assert len(plane.store.list(PODS)) == at_once
    await asyncio.sleep(10)
    assert len(names(plane)) == 1


async def test_an_indexed_job_brings_back_the_index_that_was_lost(plane: Plane) -> None:
    await started(plane)
    job(plane, "train", completionMode="Indexed", completions=3, parallelism=3)
    await asyncio.sleep(5)

    def indexes() -> list[str]:
        running = (plane.get(PODS, name, "team") for name in names(plane))
        return sorted(p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for p in running)

    assert indexes() == ["0", "1", "2"]
    (middle,) = [name for name in names(plane) if name.startswith("train-1-")]
    plane.store.delete(PODS, "team", middle)
    await asyncio.sleep(10)
    assert indexes() == ["0", "1", "2"]
    assert middle not in names(plane)


async def test_a_suspended_job_runs_nothing_and_has_not_failed(plane: Plane) -> None:
    await started(plane)
    job(plane, "train", backoffLimit=0)
    await asyncio.sleep(5)
    change(plane, JOBS, "train", suspend=True)
    await asyncio.sleep(10)
    assert plane.store.list(PODS) == []
    assert "failed" not in status(plane, JOBS, "train")
    change(plane, JOBS, "train", suspend=False)
    await asyncio.sleep(5)
    assert len(names(plane)) == 1


async def test_a_work_queue_is_done_when_one_has_succeeded_and_none_is_left(plane: Plane) -> None:
    await started(plane)
    job(plane, "queue", parallelism=2, complete_after="10s")
    await asyncio.sleep(30)
    assert status(plane, JOBS, "queue")["succeeded"] == 2
    assert len(plane.store.list(PODS)) == 2
