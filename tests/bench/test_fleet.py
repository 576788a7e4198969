"""The fleet of the benchmarks is one that an API server would have taken, and its plans are as counted by hand."""

from __future__ import annotations

from taintctl.ports.clock import SystemClock
from taintctl.sandbox.controlplane.objects import CLAIMS, CLASSES, JOBS, NODES, PODS, SLICES
from taintctl.sandbox.store import Store
from tests.bench import fleet
from tests.bench.bench import Measured, goals
from tests.bench.measure import Cost


def test_it_has_what_was_asked_for() -> None:
    """12 nodes of 2 GPUs, the last of them idle: 22 claims, 22 + 11 pods, a Job a used node."""
    store = Store(SystemClock())
    fleet.fill(store, nodes=12, gpus=2, plain_pods=1)
    counts = [len(store.list(key)) for key in (NODES, SLICES, CLAIMS, PODS, JOBS)]
    assert counts == [12, 12, 22, 33, 11]


def test_its_objects_would_be_taken_as_they_are() -> None:
    store, judge = Store(SystemClock()), Store(SystemClock())
    fleet.fill(store, nodes=11, gpus=2, plain_pods=1)
    for key in (CLASSES, NODES, SLICES, JOBS, PODS, CLAIMS):
        for obj in store.list(key):
            wanted = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}
            judge.create(key, wanted)
            if obj.get("status") and key in (CLAIMS, PODS):
                judge.update(key, {**judge.get(key, wanted["metadata"].get("namespace"), wanted["metadata"]["name"]),
                                   "status": obj["status"]}, subresource="status")  # fmt: skip


def test_restored_objects_are_listed_in_order_and_have_versions() -> None:
    store = Store(SystemClock())
    store.restore(NODES, [{"metadata": {"name": name}} for name in ("b", "a")])
    assert [node["metadata"]["name"] for node in store.list(NODES)] == ["a", "b"]
    versions = [int(node["metadata"]["resourceVersion"]) for node in store.list(NODES)]
    assert versions == [3, 2]
    assert store.get(NODES, None, "a")["metadata"]["uid"] != store.get(NODES, None, "b")["metadata"]["uid"]


def test_goals_are_said_to_be_met_only_where_they_are() -> None:
    quick = {"run_s": 0.5, "kubectl_s": 1.0}
    fast = {"node_plan_s": 0.001, "class_plan_s": 1.0, "event_cpu_s": 0.0002}
    large = Measured(Cost(2, 1, 100), Cost(6, 1, 500), Cost(4, 1, 400), 400, fast, quick)
    small = Measured(Cost(1, 1, 50), Cost(1, 1, 50), Cost(1, 1, 50), 100, {**fast, "node_plan_s": 0.001}, quick)
    assert all(goal.met for goal in goals(large, small, 80))
    slow = {"node_plan_s": 0.021, "class_plan_s": 1.01, "event_cpu_s": 0.00021}
    worse = Measured(Cost(2.1, 1, 101), Cost(6, 1, 500), Cost(4, 1, 400), 401, slow, {"run_s": 0.51, "kubectl_s": 1.0})
    assert not any(goal.met for goal in goals(worse, small, 2)[:-1])
