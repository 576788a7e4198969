"""The plan, and the numbers that the control plane's message must say."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import msgspec
import pytest

from taintctl.api.objects import (
    ConsumerReference,
    DeviceSelector,
    LabelSelector,
    Meta,
    Namespace,
    Pod,
    ResourceClaim,
    Snapshot,
)
from taintctl.api.plan import Budget, Plan, PlannedPod, Problem
from taintctl.api.reasons import PodEffect, Reason
from taintctl.api.target import Target
from taintctl.impact import DryRunMessage, build_plan, parse, predict
from tests.impact.fleet import (
    DRIVER,
    FOREVER,
    KEY,
    NOW,
    VALUE,
    budget,
    claim,
    entries,
    known,
    messages,
    owner,
    pod,
    pool,
    recorded_snapshot,
    result,
    snapshot,
)

LATER = msgspec.structs.replace(FOREVER, toleration_seconds=20)


def plan_of(cluster: Snapshot, target: Target) -> Plan:
    found = build_plan(cluster, target, key=KEY, value=VALUE)
    assert isinstance(found, Plan), found
    return found


def effects(plan: Plan) -> dict[str, PodEffect]:
    return {p.name: p.effect for p in plan.pods}


# --- recordings


@pytest.mark.parametrize(("case", "selector", "message"), [m for m in messages("02-dry-runs") if m[1] is not None])
def test_the_prediction_is_the_recorded_message(case: str, selector: dict[str, str], message: str) -> None:
    assert predict(recorded_snapshot(), DeviceSelector(**selector), key=KEY, value=VALUE) == parse(message)


def test_the_prediction_follows_a_pod_that_left() -> None:
    """Recording 03: pool gpu-worker-02 before and after one of its pods left."""
    before = recorded_snapshot()
    left = next(p for p in before.pods if p.metadata.name == "claim-0")
    after = msgspec.structs.replace(
        before,
        pods=tuple(p for p in before.pods if p is not left),
        claims=tuple(c for c in before.claims if not c.metadata.name.startswith("claim-0-")),
    )
    pool_2 = DeviceSelector(pool="gpu-worker-02")
    said = {case.split(": ")[1]: parse(message) for case, _, message in messages("03-refresh")}
    assert predict(before, pool_2, key=KEY, value=VALUE) == said["status"]
    assert predict(after, pool_2, key=KEY, value=VALUE) == said["status after recreate"]


def _with_pods_of(claims: list[dict[str, Any]], slices: Sequence[dict[str, Any]] = ()) -> Snapshot:
    """Recordings 07 and 08 hold the claims alone: the pods that they are reserved for run on the pool's node."""
    base = recorded_snapshot()
    held = tuple(msgspec.convert(item, ResourceClaim, strict=False) for item in claims)
    pods = []
    for item in claims:
        (allocated,) = item["status"]["allocation"]["devices"]["results"]
        for user in item["status"]["reservedFor"]:
            name, namespace = user["name"], item["metadata"]["namespace"]
            bound = pod(name, namespace=namespace, node=allocated["pool"])
            pods.append(
                msgspec.structs.replace(bound, metadata=msgspec.structs.replace(bound.metadata, uid=user["uid"]))
            )
    more = tuple(msgspec.convert(item, type(base.slices[0]), strict=False) for item in slices)
    return msgspec.structs.replace(base, claims=held, pods=tuple(pods), slices=base.slices + more)


def test_partitions_and_admin_access_are_counted_as_recorded() -> None:
    recorded = [e.get("response") or {} for e in entries("07-partitions-budgets-cancel")]
    slices = [item for item in recorded if item.get("kind") == "ResourceSlice"][:2]
    (claims,) = [item["items"] for item in recorded if item.get("kind") == "ResourceClaimList"]
    cluster = _with_pods_of(claims, slices)
    checked = 0
    for case, selector, message in messages("07-partitions-budgets-cancel"):
        if case.startswith(("dry-parent", "dry-partition", "dry-admin")):
            assert selector is not None
            assert predict(cluster, DeviceSelector(**selector), key=KEY, value=VALUE) == parse(message), case
            checked += 1
    assert checked == 3


def test_tolerations_are_counted_as_recorded() -> None:
    claims = [e["response"] for e in entries("08-tolerations") if e["response"].get("kind") == "ResourceClaim"]
    cluster = _with_pods_of(claims)
    found = messages("08-tolerations")
    assert len(found) == 5
    for case, selector, message in found:
        assert selector is not None
        assert predict(cluster, DeviceSelector(**selector), key=KEY, value=VALUE) == parse(message), case


def test_the_plan_of_the_recorded_pool_names_the_pod_that_the_taint_does_not_reach() -> None:
    plan = plan_of(recorded_snapshot(), Target(driver=DRIVER, pool="gpu-worker-02"))
    assert effects(plan) == {
        "claim-0": PodEffect.EVICTED,
        "ext-0": PodEffect.NOT_REACHED_BY_TAINT,
        "shared-0": PodEffect.EVICTED,
        "shared-1": PodEffect.EVICTED,
        "two-0": PodEffect.EVICTED,
    }
    (rule,) = plan.rules
    assert (rule.published, rule.allocated, rule.pods, rule.namespaces) == (4, 4, 4, 1)
    assert (rule.driver, rule.pool, rule.device) == (DRIVER, "gpu-worker-02", None)
    assert len(plan.counted_pods) == 5
    assert plan.namespaces == {"team-a", "team-b"}
    assert [d.uuid for d in plan.devices] == ["GPU-10", "GPU-11", "GPU-12", "GPU-13"]
    assert plan.computed_at == NOW


def test_the_plan_of_the_other_recorded_pool_has_who_stays_and_who_goes_later() -> None:
    plan = plan_of(recorded_snapshot(), Target(driver=DRIVER, pool="gpu-worker-01"))
    assert [(p.name, p.effect, p.toleration_seconds) for p in plan.pods] == [
        ("delayed-0", PodEffect.EVICTED_LATER, 20),
        ("tolerant-0", PodEffect.TOLERATES, None),
    ]
    assert [p.name for p in plan.counted_pods] == ["delayed-0"]


# --- by hand


def test_a_pod_is_planned_with_its_owner_claims_devices_and_node() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1", "gpu-2"),),
        claims=(
            claim("b", result("n1", "gpu-1"), users=("web-0",)),
            claim("a", result("n1", "gpu-0"), users=("web-0",)),
        ),
        pods=(pod("web-0", owner=owner("ReplicaSet", "web-5d")),),
        owners=(
            known(owner("ReplicaSet", "web-5d"), owner("Deployment", "web")),
            known(owner("Deployment", "web")),
        ),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, pool="n1", whole_driver=True))
    first, second, _ = plan.devices
    assert plan.pods == (
        PlannedPod(
            namespace="team-a",
            name="web-0",
            uid="uid-web-0",
            effect=PodEffect.EVICTED,
            owner="Deployment/web",
            workload="team-a/apps/Deployment/web/uid-web",
            node="n1",
            claims=("a", "b"),
            devices=(first.id, second.id),
        ),
    )
    (rule,) = plan.rules
    assert (rule.published, rule.allocated, rule.pods, rule.namespaces) == (3, 2, 1, 1)


def test_only_the_targets_devices_are_the_pods() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(claim("a", result("n1", "gpu-0"), result("n1", "gpu-1", FOREVER), users=("p",)),),
        pods=(pod("p"),),
    )
    (kept,) = plan_of(cluster, Target(driver=DRIVER, pool="n1", device="gpu-1")).pods
    assert (kept.effect, [d.device for d in kept.devices]) == (PodEffect.TOLERATES, ["gpu-1"])
    (lost,) = plan_of(cluster, Target(driver=DRIVER, pool="n1", whole_driver=True)).pods
    assert (lost.effect, [d.device for d in lost.devices]) == (PodEffect.EVICTED, ["gpu-0", "gpu-1"])


def test_a_pod_with_an_extended_resource_and_a_claim_goes_by_the_taint() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("own", result("n1", "gpu-0", LATER), users=("p",)),
            claim("ext", result("n1", "gpu-1"), users=("p",), extended=True),
        ),
        pods=(pod("p"),),
    )
    whole = plan_of(cluster, Target(driver=DRIVER, pool="n1", whole_driver=True))
    assert [(p.effect, p.toleration_seconds) for p in whole.pods] == [(PodEffect.EVICTED_LATER, 20)]
    assert whole.rules[0].pods == 1
    ext_only = plan_of(cluster, Target(driver=DRIVER, pool="n1", device="gpu-1"))
    assert effects(ext_only) == {"p": PodEffect.NOT_REACHED_BY_TAINT}
    assert ext_only.rules[0].pods == 0


def test_gone_terminating_unbound_and_finished_pods() -> None:
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("c", result("n1", "gpu-0"), users=("gone", "ending", "unbound", "done")),
            claim("free", result("n1", "gpu-1")),
        ),
        pods=(
            pod("ending", terminating=True),
            pod("unbound", node=None, phase="Pending"),
            pod("done", phase="Succeeded"),
        ),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, pool="n1", whole_driver=True))
    assert [(p.name, p.terminating, p.counted) for p in plan.pods] == [
        ("done", False, True),
        ("ending", True, False),
        ("unbound", False, True),
    ]
    # The message counts pods that are bound and not deleted yet: the finished one alone (upstream countPendingPods).
    assert (plan.rules[0].allocated, plan.rules[0].pods, plan.rules[0].namespaces) == (2, 1, 1)


def test_a_pod_in_two_rules_is_one_pod_of_the_plan_and_counted_by_each_rule() -> None:
    """Recording 07, two-a and two-b: each message counts the same pod."""
    cluster = snapshot(
        slices=(pool("n1", "gpu-0"), pool("n2", "gpu-0")),
        claims=(claim("c", result("n1", "gpu-0"), result("n2", "gpu-0"), users=("p",)),),
        pods=(pod("p"),),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, whole_driver=True))
    assert [rule.pods for rule in plan.rules] == [1, 1]
    assert len(plan.pods) == 1


def test_a_device_that_two_claims_share_counts_twice_as_allocated() -> None:
    """Recording 07, dry-admin."""
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("a", result("n1", "gpu-0"), users=("p",)),
            claim("m", result("n1", "gpu-0", FOREVER, admin=True), users=("monitor",), namespace="admin"),
        ),
        pods=(pod("p"), pod("monitor", namespace="admin")),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, pool="n1", device="gpu-0"))
    assert (plan.rules[0].published, plan.rules[0].allocated, plan.rules[0].pods) == (1, 2, 1)
    assert [(p.name, p.effect, p.admin_access) for p in plan.pods] == [
        ("monitor", PodEffect.TOLERATES, True),
        ("p", PodEffect.EVICTED, False),
    ]


def test_a_claim_reserved_for_a_pod_group_cannot_be_decided() -> None:
    group = ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="train", uid="u")
    held = claim("c", result("n1", "gpu-0"))
    held = msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, reserved_for=(group,)))
    cluster = snapshot(slices=(pool("n1", "gpu-0", "gpu-1"),), claims=(held,))
    found = build_plan(cluster, Target(driver=DRIVER, pool="n1", device="gpu-0"), key=KEY, value=VALUE)
    assert isinstance(found, Problem)
    assert found.reason == Reason.CONSUMER_UNKNOWN
    assert "ResourceClaim team-a/c is reserved for podgroups train" in found.message
    assert plan_of(cluster, Target(driver=DRIVER, pool="n1", device="gpu-1")).pods == ()


def test_a_target_problem_is_the_plans() -> None:
    found = build_plan(snapshot(), Target(driver=DRIVER), key=KEY, value=VALUE)
    assert isinstance(found, Problem)
    assert found.reason == Reason.NO_DEVICES


def test_budgets_of_the_counted_pods_alone() -> None:
    everyone = LabelSelector()
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("c", result("n1", "gpu-0"), users=("a", "b", "ending")),
            claim("t", result("n1", "gpu-0", FOREVER), users=("stays",)),
        ),
        pods=(pod("a"), pod("b", labels={"app": "b"}), pod("ending", terminating=True), pod("stays"), pod("other")),
        budgets=(budget("web", everyone, allowed=1), budget("b", LabelSelector(match_labels={"app": "b"}), allowed=0)),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, pool="n1", device="gpu-0"))
    assert plan.budgets == (Budget("team-a", "b", 0, 1), Budget("team-a", "web", 1, 2))
    assert plan.multiple_budgets == ("team-a/b",)


def test_a_plan_holds_what_protects_its_pods() -> None:
    owned = pod("a", labels={"keep": "yes", "app": "train"})
    ranked = msgspec.structs.replace(owned.spec, priority=1000, priority_class_name="high")
    cluster = snapshot(
        slices=(pool("n1", "gpu-0", "gpu-1"),),
        claims=(
            claim("c", result("n1", "gpu-0"), users=("a", "b")),
            claim("d", result("n1", "gpu-1"), users=("c",), namespace="team-b"),
        ),
        pods=(msgspec.structs.replace(owned, spec=ranked), pod("b"), pod("c", namespace="team-b")),
        namespaces=(Namespace(Meta(name="team-a", labels={"env": "prod"})), Namespace(Meta(name="team-c"))),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, pool="n1", whole_driver=True))
    assert [(p.name, p.priority, p.priority_class, p.labels, p.namespace_labels) for p in plan.pods] == [
        ("a", 1000, "high", (("app", "train"), ("keep", "yes")), (("env", "prod"),)),
        ("b", 0, "", (), (("env", "prod"),)),
        ("c", 0, "", (), None),
    ]


def test_what_other_runs_keep_out_and_what_is_published_are_the_driver_s() -> None:
    cluster = snapshot(
        slices=(
            pool("n1", "gpu-0", "gpu-1"),
            pool("n2", "gpu-0", "gpu-1", "gpu-2"),
            pool("n2", "old", generation=0),
            pool("n3", "gpu-0"),
            pool("n3", "nic-0", driver="nic.example.com"),
        ),
    )

    # A snapshot of the cluster holds the slices of the plan's pool, and of the others how large they are.
    narrow = msgspec.structs.replace(cluster, slices=cluster.slices[:1])

    def out(of: Snapshot, *others: DeviceSelector) -> int:
        found = build_plan(of, Target(driver=DRIVER, pool="n1"), key=KEY, value=VALUE, others=others)
        assert isinstance(found, Plan)
        assert found.published == 6
        assert found.unavailable == 2 + found.elsewhere
        return found.elsewhere

    for of in (cluster, narrow):
        assert out(of) == 0
        assert out(of, DeviceSelector(driver=DRIVER, pool="n2")) == 3
        assert out(of, DeviceSelector(DRIVER, "n2", "gpu-1"), DeviceSelector(DRIVER, "n3", "gpu-0")) == 2
        assert out(of, DeviceSelector(DRIVER, "n2", "gpu-1"), DeviceSelector(driver=DRIVER, pool="n2")) == 3
        assert out(of, DeviceSelector("nic.example.com", "n3"), DeviceSelector(DRIVER, "n9")) == 0
        # The plan's own are counted once.
        assert out(of, DeviceSelector(DRIVER, "n1", "gpu-1")) == 0
        # A rule whose selector somebody edited away means every device.
        assert out(of, DeviceSelector(device="gpu-0")) == 2
        assert out(of, DeviceSelector()) == 4
    # Of a pool whose slices are not there a name counts, whether it is there or not.
    assert out(cluster, DeviceSelector(DRIVER, "n2", "gone")) == 0
    assert out(narrow, DeviceSelector(DRIVER, "n2", "gone")) == 1


def test_the_order_in_which_objects_come_does_not_matter() -> None:
    cluster = recorded_snapshot()
    turned = msgspec.structs.replace(
        cluster,
        slices=cluster.slices[::-1],
        claims=cluster.claims[::-1],
        pods=cluster.pods[::-1],
        budgets=cluster.budgets[::-1],
    )
    target = Target(driver=DRIVER, whole_driver=True)
    assert plan_of(cluster, target) == plan_of(turned, target)


def test_the_prediction_of_older_generations_is_nothing() -> None:
    cluster = snapshot(slices=(pool("n1", "a", "b", generation=1), pool("n1", "c", generation=2)))
    assert predict(cluster, DeviceSelector(driver=DRIVER), key=KEY, value=VALUE) == DryRunMessage(1, 0, 0, 0)


def test_ten_thousand_pods_in_256_pools_are_planned_in_seconds() -> None:
    slices = tuple(pool(f"n{i}", *(f"gpu-{j}" for j in range(40))) for i in range(256))
    held = [(f"n{i % 256}", f"gpu-{i // 256}", f"p{i}") for i in range(10_000)]
    cluster = snapshot(
        slices=slices,
        claims=tuple(claim(name, result(pool_name, device), users=(name,)) for pool_name, device, name in held),
        pods=tuple(pod(name, node=pool_name) for pool_name, _, name in held),
    )
    plan = plan_of(cluster, Target(driver=DRIVER, whole_driver=True))
    assert len(plan.pods) == 10_000
    assert sum(rule.pods for rule in plan.rules) == 10_000
    assert len(set(chain.from_iterable(p.devices for p in plan.pods))) == 10_000


def test_a_snapshot_decodes_what_tells_extended_resources_apart() -> None:
    (ext,) = [p for p in recorded_snapshot().pods if p.metadata.name == "ext-0"]
    assert isinstance(ext, Pod)
    status = ext.status.extended_resource_claim_status
    assert status is not None
    assert status.request_mappings is not None
    assert [(m.container_name, m.resource_name) for m in status.request_mappings] == [("c", "example.com/gpu")]


def test_a_plan_on_more_nodes_than_a_run_remembers_is_refused() -> None:
    """One device of the network, shared by a pod on each of 1,000 nodes, and local to one more."""
    users = [f"p{n}" for n in range(1000)]
    pods = [pod(name, node=f"node-{name}") for name in users]
    device = pool("n1", "gpu-0")

    def shared_by(count: int) -> Plan | Problem:
        cluster = snapshot(
            slices=(device, pool("n2", "gpu-0")),
            claims=(claim("shared", result("n1", "gpu-0"), users=tuple(users[:count])),),
            pods=tuple(pods),
        )
        return build_plan(cluster, Target(driver=DRIVER, pool="n1"), key=KEY, value=VALUE)

    most = shared_by(999)
    assert isinstance(most, Plan)
    assert len(most.nodes) == 1000
    refused = shared_by(1000)
    assert isinstance(refused, Problem)
    assert refused.reason == Reason.TOO_MANY_RULES
    assert "1001 nodes" in refused.message
