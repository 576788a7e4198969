"""Writes hit only the object that was read; what the API server refuses says what to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from taintctl.adapters.kubernetes.cluster import KubernetesCluster, _eviction_result
from taintctl.adapters.kubernetes.status import refusal
from taintctl.api.approval import MaintenanceApproval
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Effect
from taintctl.api.rule import EvictionResult, RuleManifest
from taintctl.api.run import MaintenanceRun
from taintctl.ports.errors import Conflict, Invalid, NotFound, Unavailable
from tests.adapters.server import BUDGETS, PODS, Obj, Server, budget, pod, recorded

WRONG_UID = "00000000-0000-0000-0000-000000000000"
OTHER_RULES = "devicetaintrules.resource.k8s.io"


def run(name: str, **labels: str) -> Obj:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"target": {"driver": "gpu.example.com", "pool": "n1"}, "deadline": "2026-12-01T05:00:00Z"},
    }


def rule(name: str, run_name: str = "r1") -> RuleManifest:
    return RuleManifest(
        name=name,
        role="taint",
        round=1,
        run_name=run_name,
        run_uid="u1",
        driver="gpu.example.com",
        pool="n1",
        device=None,
        key="taintctl.dev/maintenance",
        value="r1",
        effect=Effect.NONE,
    )


async def test_an_object_is_made_read_listed_and_deleted(cluster: KubernetesCluster) -> None:
    assert await cluster.get(MaintenanceRun, "r1") is None
    made = await cluster.create(MaintenanceRun, run("r1", team="a"))
    await cluster.create(MaintenanceRun, run("r2"))
    assert made["kind"] == "MaintenanceRun"
    assert await cluster.get(MaintenanceRun, "r1") == made
    listed = await cluster.list(MaintenanceRun, label_selector="team=a")
    assert [o["metadata"]["name"] for o in listed] == ["r1"]
    with pytest.raises(Conflict):
        await cluster.create(MaintenanceRun, run("r1"))
    with pytest.raises(Conflict):
        await cluster.delete(MaintenanceRun, "r1", uid=WRONG_UID)
    await cluster.delete(MaintenanceRun, "r1", uid=made["metadata"]["uid"])
    assert await cluster.get(MaintenanceRun, "r1") is None
    await cluster.delete(MaintenanceRun, "r1", uid=made["metadata"]["uid"])


async def test_a_bad_object_is_refused_with_the_field(cluster: KubernetesCluster) -> None:
    with pytest.raises(Invalid) as caught:
        await cluster.create(EvictionPolicy, {"metadata": {"name": "p"}, "spec": {"limits": {"maxPods": -1}}})
    assert "spec.limits.maxPods" in caught.value.message


async def test_a_status_is_replaced_whole_and_leaves_spec_and_metadata(cluster: KubernetesCluster) -> None:
    made = await cluster.create(MaintenanceRun, run("r1", team="a"))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    first = await cluster.replace_status(
        MaintenanceRun, "r1", uid=uid, resource_version=version, status={"phase": "Pending", "reason": "Created"}
    )
    assert first["spec"] == made["spec"]
    assert first["metadata"]["labels"] == {"team": "a"}
    second = await cluster.replace_status(
        MaintenanceRun,
        "r1",
        uid=uid,
        resource_version=first["metadata"]["resourceVersion"],
        status={"phase": "DryRun"},
    )
    assert second["status"]["phase"] == "DryRun"
    assert "reason" not in second["status"]
    assert second["metadata"]["generation"] == made["metadata"]["generation"]


async def test_a_status_is_not_written_over_a_change(cluster: KubernetesCluster) -> None:
    made = await cluster.create(MaintenanceRun, run("r1"))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    paused = await cluster.patch(MaintenanceRun, "r1", {"spec": {"paused": True}})
    for wrong_uid, wrong_version in ((uid, version), (WRONG_UID, paused["metadata"]["resourceVersion"])):
        with pytest.raises(Conflict):
            await cluster.replace_status(
                MaintenanceRun, "r1", uid=wrong_uid, resource_version=wrong_version, status={"phase": "DryRun"}
            )
    after = await cluster.get(MaintenanceRun, "r1")
    assert after is not None
    assert "phase" not in after.get("status", {})


async def test_a_patch_is_only_for_the_object_that_was_read(cluster: KubernetesCluster) -> None:
    made = await cluster.create(MaintenanceRun, run("r1"))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    patched = await cluster.patch(
        MaintenanceRun, "r1", {"metadata": {"finalizers": ["taintctl.dev/rules"]}}, uid=uid, resource_version=version
    )
    assert patched["metadata"]["finalizers"] == ["taintctl.dev/rules"]
    with pytest.raises(Conflict):
        await cluster.patch(MaintenanceRun, "r1", {"spec": {"paused": True}}, resource_version=version)
    with pytest.raises(Conflict):
        await cluster.patch(MaintenanceRun, "r1", {"spec": {"paused": True}}, uid=WRONG_UID)
    with pytest.raises(NotFound):
        await cluster.patch(MaintenanceRun, "other", {"spec": {"paused": True}})


@pytest.mark.parametrize("kubernetes", ["1.36", "1.37"])
async def test_rules_are_made_changed_and_deleted_at_the_version_that_is_served(kubernetes: str) -> None:
    async with Server(kubernetes=kubernetes) as server, server.cluster() as cluster:
        made = await cluster.create_rule(rule("taintctl-u1-0"))
        assert (made.spec.taint.effect, made.metadata.generation) == ("None", 1)
        uid, version = made.metadata.uid, made.metadata.resource_version
        changed = await cluster.set_rule_effect(
            "taintctl-u1-0", uid=uid, resource_version=version, effect=Effect.NO_SCHEDULE
        )
        assert (changed.spec.taint.effect, changed.metadata.generation) == ("NoSchedule", 2)
        assert changed.spec.taint.key == made.spec.taint.key
        with pytest.raises(Conflict):
            await cluster.set_rule_effect("taintctl-u1-0", uid=uid, resource_version=version, effect=Effect.NO_EXECUTE)
        with pytest.raises(Conflict):
            await cluster.set_rule_effect(
                "taintctl-u1-0",
                uid=WRONG_UID,
                resource_version=changed.metadata.resource_version,
                effect=Effect.NO_EXECUTE,
            )
        with pytest.raises(Conflict):
            await cluster.delete_rule("taintctl-u1-0", uid=WRONG_UID)
        assert [r.spec.taint.effect for r in await cluster.own_rules()] == ["NoSchedule"]
        await cluster.delete_rule("taintctl-u1-0", uid=uid)
        await cluster.delete_rule("taintctl-u1-0", uid=uid)
        assert await cluster.own_rules() == ()
        with pytest.raises(NotFound):
            await cluster.set_rule_effect("taintctl-u1-0", uid=uid, resource_version="", effect=Effect.NONE)


async def test_rules_are_found_by_run_and_foreign_ones_are_not(server: Server, cluster: KubernetesCluster) -> None:
    names = ["taintctl-u1-0", "taintctl-u1-0-dry", "taintctl-u10-0", "taintctl-u1-x-3"]
    for name in names:
        await cluster.create_rule(rule(name))
    for name in ("foreign", "taintctl-u1", "taintctl-u1-0-wet", "x-taintctl-u1-0"):
        server.store.create(OTHER_RULES, rule(name).to_object())
    assert [r.metadata.name for r in await cluster.rules_of("u1")] == ["taintctl-u1-0", "taintctl-u1-0-dry"]
    assert [r.metadata.name for r in await cluster.rules_of("u10")] == ["taintctl-u10-0"]
    assert await cluster.rules_of("") == ()
    assert {r.metadata.name for r in await cluster.own_rules()} == set(names)


async def test_a_pod_is_evicted_by_uid_and_a_replacement_is_not(server: Server, cluster: KubernetesCluster) -> None:
    made = server.put(PODS, pod("default", "web-0", "n1"))
    other = await cluster.evict("default", "web-0", uid=WRONG_UID)
    assert other.result is EvictionResult.GONE
    assert "deletionTimestamp" not in server.store.get(PODS, "default", "web-0")["metadata"]
    outcome = await cluster.evict("default", "web-0", uid=made["metadata"]["uid"])
    assert outcome.result is EvictionResult.EVICTED
    assert "deletionTimestamp" in server.store.get(PODS, "default", "web-0")["metadata"]
    gone = await cluster.evict("default", "nobody", uid=WRONG_UID)
    assert gone.result is EvictionResult.GONE


async def test_a_budget_forbids_and_two_budgets_can_not_decide(server: Server, cluster: KubernetesCluster) -> None:
    made = server.put(PODS, pod("default", "web-0", "n1", app="web"))
    uid = made["metadata"]["uid"]
    server.put(BUDGETS, budget("default", "web", app="web"))
    outcome = await cluster.evict("default", "web-0", uid=uid)
    assert outcome.result is EvictionResult.BUDGET_FORBIDS
    assert outcome.message == "The disruption budget web needs 1 healthy pods and has 1 currently"
    server.put(BUDGETS, budget("default", "also", app="web"))
    outcome = await cluster.evict("default", "web-0", uid=uid)
    assert outcome.result is EvictionResult.MULTIPLE_BUDGETS


def test_the_recorded_refusal_of_a_budget() -> None:
    entry = recorded("07-partitions-budgets-cancel.json", "pdb", "Eviction API on the same pod: refused by the budget")
    refused = refusal(entry["status"], msgspec.json.encode(entry["response"]))
    assert _eviction_result(refused) == (
        EvictionResult.BUDGET_FORBIDS,
        "The disruption budget web needs 1 healthy pods and has 1 currently",
    )


@pytest.mark.parametrize(
    ("status", "body", "result"),
    [
        (429, {"message": "Too many requests, please try again later."}, None),
        (500, {"message": "Internal error occurred: failed calling webhook"}, None),
        (403, {"message": "pdb disruptions allowed is negative"}, EvictionResult.FAILED),
        # storage's own wording (upstream apiserver/pkg/storage/errors.go)
        (409, {"message": "Precondition failed: UID in precondition: a, UID in object meta: b"}, EvictionResult.GONE),
        (409, {"message": "the object has been modified"}, EvictionResult.FAILED),
    ],
)
def test_other_refusals_of_an_eviction(status: int, body: dict[str, Any], result: EvictionResult | None) -> None:
    assert _eviction_result(refusal(status, msgspec.json.encode(body)))[0] is result


async def test_an_overloaded_server_is_no_answer_about_an_eviction(server: Server, cluster: KubernetesCluster) -> None:
    made = server.put(PODS, pod("default", "web-0", "n1"))
    fault = server.faults.fail(429, resources=["pods/eviction"])
    with pytest.raises(Unavailable):
        await cluster.evict("default", "web-0", uid=made["metadata"]["uid"])
    assert fault.met == 1


async def test_approvals_are_verified_only_by_the_policy_of_deploy(server: Server, cluster: KubernetesCluster) -> None:
    assert not await cluster.approvals_verified()
    server.apply("deploy/admission.yaml", ["ValidatingAdmissionPolicy"])
    assert not await cluster.approvals_verified()
    server.apply("deploy/admission.yaml", ["ValidatingAdmissionPolicyBinding"])
    assert await cluster.approvals_verified()
    # and it does hold
    server.users.add("mallory", groups=("system:masters",))
    async with server.cluster("mallory") as mallory:
        approval = {
            "metadata": {"name": "a1"},
            "spec": {
                "runName": "r1",
                "digest": "0" * 64,
                "decision": "Approve",
                "approver": {"kind": "Kubernetes", "name": "alice"},
            },
        }
        with pytest.raises(Exception, match="your own name"):
            await mallory.create(MaintenanceApproval, approval)


@pytest.mark.parametrize(
    "weaken",
    [
        lambda p, b: p["spec"].update(failurePolicy="Ignore"),
        lambda p, b: p["spec"].update(matchConditions=[{"name": "x", "expression": "false"}]),
        lambda p, b: p["spec"]["matchConstraints"]["resourceRules"][0].update(operations=["UPDATE"]),
        lambda p, b: p["spec"]["matchConstraints"]["resourceRules"][0].update(
            resources=["maintenanceapprovals/status"]
        ),
        lambda p, b: p["spec"]["matchConstraints"]["resourceRules"][0].update(resourceNames=["a1"]),
        lambda p, b: p["spec"]["matchConstraints"].update(objectSelector={"matchLabels": {"a": "b"}}),
        lambda p, b: p["spec"]["matchConstraints"].update(
            excludeResourceRules=[
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["maintenanceapprovals"]}
            ]
        ),
        lambda p, b: p["spec"].update(validations=[{"expression": "true"}]),
        lambda p, b: p["spec"].update(
            validations=[{"expression": "true || object.spec.approver.name == request.userInfo.username"}]
        ),
        # Everybody in their own name, but of any kind: whoever has a Slack id for a user name would be believed.
        lambda p, b: p["spec"].update(
            validations=[{"expression": "object.spec.approver.name == request.userInfo.username"}]
        ),
        lambda p, b: p["spec"].update(validations=p["spec"]["validations"][:1]),
        lambda p, b: p["spec"].update(validations=p["spec"]["validations"][1:]),
        lambda p, b: p["spec"].update(validations=p["spec"]["validations"][:2]),
        lambda p, b: p["spec"]["validations"][0].update(
            expression=p["spec"]["validations"][0]["expression"].replace("taintctl-system:taintctl", "default:default")
        ),
        lambda p, b: p["spec"]["validations"][0].update(
            expression=p["spec"]["validations"][0]["expression"] + " || object.spec.comment == 'please'"
        ),
        lambda p, b: b["spec"].update(validationActions=["Audit"]),
        lambda p, b: b["spec"].update(policyName="other"),
        lambda p, b: b["spec"].update(matchResources={"objectSelector": {"matchLabels": {"a": "b"}}}),
        lambda p, b: b["spec"].update(
            matchResources={
                "resourceRules": [
                    {
                        "apiGroups": ["taintctl.dev"],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": ["maintenanceapprovals"],
                    }
                ]
            }
        ),
        lambda p, b: b["spec"].update(
            matchResources={
                "resourceRules": [
                    {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments"]}
                ]
            }
        ),
    ],
)
async def test_a_weakened_policy_verifies_nothing(server: Server, cluster: KubernetesCluster, weaken: Any) -> None:
    server.apply("deploy/admission.yaml", ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"])
    assert await cluster.approvals_verified()
    policies = "validatingadmissionpolicies.admissionregistration.k8s.io"
    bindings = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
    policy = server.store.get(policies, None, "taintctl-approvals")
    binding = server.store.get(bindings, None, "taintctl-approvals")
    policy, binding = msgspec.json.decode(msgspec.json.encode([policy, binding]))
    weaken(policy, binding)
    server.store.update(policies, policy)
    server.store.update(bindings, binding)
    assert not await cluster.approvals_verified()


async def test_a_policy_that_lets_nobody_write_for_slack_verifies_too(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.apply("deploy/admission.yaml", ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"])
    policies = "validatingadmissionpolicies.admissionregistration.k8s.io"
    policy = msgspec.json.decode(msgspec.json.encode(server.store.get(policies, None, "taintctl-approvals")))
    policy["spec"]["validations"] = [
        {"expression": "object.spec.approver.kind == 'Kubernetes'"},
        {"expression": "object.spec.approver.name == request.userInfo.username"},
    ]
    server.store.update(policies, policy)
    assert await cluster.approvals_verified()


async def test_events_are_where_kubectl_describe_looks(server: Server, cluster: KubernetesCluster) -> None:
    made = await cluster.create(MaintenanceRun, run("r1"))
    involved = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "MaintenanceRun",
        "name": "r1",
        "uid": made["metadata"]["uid"],
    }
    for _ in range(3):
        await cluster.record_event(involved, event_type="Normal", reason="Approved", message="Two\npeople said yes.")
    await cluster.record_event(involved, event_type="Warning", reason="Mismatch", message="Other numbers.")
    async with server.client() as client:
        # the field selector that client-go's event search makes for a cluster-scoped object
        selector = f"involvedObject.name=r1,involvedObject.kind=MaintenanceRun,involvedObject.uid={involved['uid']}"
        found = await client.list("/api/v1/events", dict[str, Any], params={"fieldSelector": selector})
    assert [
        (e["reason"], e["message"], e["count"], e["type"]) for e in sorted(found.items, key=lambda e: -e["count"])
    ] == [
        ("Approved", "Two people said yes.", 3, "Normal"),
        ("Mismatch", "Other numbers.", 1, "Warning"),
    ]
    assert {e["metadata"]["namespace"] for e in found.items} == {"default"}


async def test_events_are_bounded_and_never_in_the_way(server: Server, cluster: KubernetesCluster) -> None:
    involved = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "name": "r1", "uid": "u1"}
    server.faults.fail(500, resources=["events"], times=1)
    await cluster.record_event(involved, event_type="Normal", reason="Lost", message="x")
    server.clock.speed = 1.0  # one more event a second
    for number in range(60):
        await cluster.record_event(involved, event_type="Normal", reason="Noise", message=str(number))
    assert 20 <= len(server.store.list("events")) <= 30


async def test_a_rule_is_found_by_its_name_when_its_labels_are_gone(server: Server, cluster: KubernetesCluster) -> None:
    bare = rule("taintctl-u1-0").to_object()
    del bare["metadata"]["labels"]
    server.store.create(OTHER_RULES, bare)
    assert [r.metadata.name for r in await cluster.rules_of("u1")] == ["taintctl-u1-0"]
