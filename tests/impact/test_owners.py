"""The owners in a plan, what they count as, and whose work is lost elsewhere."""

from __future__ import annotations

from taintctl.api.objects import Pod, Snapshot, Unread
from taintctl.api.plan import LostPod, LostWith, Plan
from taintctl.api.target import Target
from taintctl.impact import build_plan
from tests.impact.fleet import DRIVER, FOREVER, KEY, VALUE, claim, known, owner, pod, pool, result, snapshot

TRAINING = owner("PyTorchJob", "big", "kubeflow.org/v1")
WEB, WEB_RS1, WEB_RS2 = owner("Deployment", "web"), owner("ReplicaSet", "web-1"), owner("ReplicaSet", "web-2")


def plan_of(cluster: Snapshot, device: str | None = "gpu-0") -> Plan:
    found = build_plan(
        cluster, Target(driver=DRIVER, pool="n1", device=device, whole_driver=True), key=KEY, value=VALUE
    )
    assert isinstance(found, Plan), found
    return found


def held_by(*pods: Pod, elsewhere: tuple[Pod, ...] = (), **more: object) -> Snapshot:
    """gpu-0 of n1 is held by `pods`."""
    return snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(claim("c", result("n1", "gpu-0"), users=tuple(p.metadata.name for p in pods)),),
        pods=pods,
        gang_pods=elsewhere,
        **more,  # type: ignore[arg-type]
    )


def test_pods_of_one_top_owner_are_one_workload() -> None:
    cluster = held_by(
        pod("a", owner=WEB_RS1),
        pod("b", owner=WEB_RS2),
        pod("alone"),
        owners=(known(WEB_RS1, WEB), known(WEB_RS2, WEB), known(WEB)),
    )
    plan = plan_of(cluster)
    assert {p.name: p.owner for p in plan.pods} == {"a": "Deployment/web", "b": "Deployment/web", "alone": ""}
    assert len(plan.workloads) == 2


def test_an_owner_that_is_known_in_part_is_a_workload_of_its_own() -> None:
    """Of one Deployment, but nobody can tell: 2, never fewer than there are. The pods of one ReplicaSet stay one."""
    cluster = held_by(
        pod("a", owner=WEB_RS1),
        pod("b", owner=WEB_RS2),
        pod("c", owner=WEB_RS2),
        owners=(known(WEB_RS1, unread=Unread.FORBIDDEN), known(WEB_RS2, WEB), known(WEB)),
    )
    plan = plan_of(cluster)
    assert {p.name: (p.owner, p.owner_unread) for p in plan.pods} == {
        "a": ("ReplicaSet/web-1", "Forbidden"),
        "b": ("Deployment/web", ""),
        "c": ("Deployment/web", ""),
    }
    assert len(plan.workloads) == 2


def test_the_same_owner_in_two_namespaces_is_two_workloads() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("c", result("n1", "gpu-0"), users=("a",)),
            claim("c", result("n1", "gpu-0"), users=("b",), namespace="team-b"),
        ),
        pods=(pod("a", owner=TRAINING), pod("b", namespace="team-b", owner=TRAINING)),
    )
    assert len(plan_of(cluster).workloads) == 2


def test_the_rest_of_a_gang_is_lost_and_neither_planned_nor_counted() -> None:
    worker = pod("big-worker-1", node="n2", owner=TRAINING)
    cluster = held_by(
        pod("big-worker-0", owner=TRAINING),
        elsewhere=(worker, pod("big-master-0", node="n3", owner=TRAINING)),
        owners=(known(TRAINING),),
    )
    plan = plan_of(cluster)
    assert [p.name for p in plan.pods] == ["big-worker-0"]
    assert (len(plan.counted_pods), len(plan.workloads), plan.lost_pods) == (1, 1, 2)
    assert plan.lost_with == (
        LostWith(
            namespace="team-a",
            owner="PyTorchJob/big",
            part="",
            hit=1,
            pods=(
                LostPod("big-master-0", "uid-big-master-0", "n3"),
                LostPod("big-worker-1", "uid-big-worker-1", "n2"),
            ),
        ),
    )
    assert plan.nodes == ("n1",)


def test_a_pod_on_another_device_of_the_pool_is_elsewhere_too() -> None:
    here, beside = pod("big-0", owner=TRAINING), pod("big-1", owner=TRAINING)
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("a", result("n1", "gpu-0"), users=("big-0",)),
            claim("b", result("n1", "gpu-1"), users=("big-1",)),
        ),
        pods=(here, beside),
    )
    assert [p.name for p in plan_of(cluster).lost_with[0].pods] == ["big-1"]
    assert plan_of(cluster, device=None).lost_with == ()


def test_who_does_not_run_or_is_of_another_gang_is_not_lost() -> None:
    other = owner("PyTorchJob", "other", "kubeflow.org/v1")
    cluster = held_by(
        pod("big-0", owner=TRAINING),
        elsewhere=(
            pod("done", owner=TRAINING, phase="Succeeded"),
            pod("ending", owner=TRAINING, terminating=True),
            pod("waiting", owner=TRAINING, node=None),
            pod("other-0", owner=other),
            pod("stranger"),
        ),
    )
    assert plan_of(cluster).lost_with == ()


def test_a_gang_whose_pods_stay_loses_nothing() -> None:
    stays = claim("c", result("n1", "gpu-0", FOREVER), users=("big-0",))
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(stays,),
        pods=(pod("big-0", owner=TRAINING),),
        gang_pods=(pod("big-1", node="n2", owner=TRAINING),),
    )
    assert plan_of(cluster).lost_with == ()


def test_the_replica_of_a_leader_worker_set_is_said() -> None:
    label = "leaderworkerset.sigs.k8s.io/group-index"
    serving = owner("LeaderWorkerSet", "serve", "leaderworkerset.x-k8s.io/v1")
    cluster = held_by(
        pod("serve-1", owner=serving, labels={label: "1"}),
        elsewhere=(
            pod("serve-1-1", owner=serving, labels={label: "1"}),
            pod("serve-0", owner=serving, labels={label: "0"}),
        ),
    )
    (lost,) = plan_of(cluster).lost_with
    assert (lost.owner, lost.part, [p.name for p in lost.pods]) == ("LeaderWorkerSet/serve", "1", ["serve-1-1"])
