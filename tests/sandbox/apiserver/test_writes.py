"""Writes over HTTP: bodies, names, dry runs, deletion, namespaces, subresources."""

from __future__ import annotations

from typing import Any

import pytest

MERGE = {"content_type": "application/merge-patch+json"}
PATH = "/api/v1/namespaces/default/configmaps"
BUDGETS = "poddisruptionbudgets.policy"


async def test_a_body_in_yaml(api: Any) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {day: 2026-11-30}\n"
    created = await api.ok("POST", PATH, body, content_type="application/yaml")
    assert created["data"] == {"day": "2026-11-30"}


@pytest.mark.parametrize(
    ("body", "content_type", "status", "message"),
    [
        (b"{", "application/json", 400, "not valid JSON"),
        (b"[]", "application/json", 400, "not an object"),
        (b"a: [", "application/yaml", 400, "error decoding YAML"),
        (b"x", "text/csv", 415, "accepted media types include: application/json, application/yaml"),
        (b"nonsense", "application/vnd.kubernetes.protobuf", 400, "no Kubernetes protobuf"),
        (b"k8s\x00\n\r\n\x07apps/v1\x12\x02Xx", "application/vnd.kubernetes.protobuf", 415, "unknown format"),
        (b'{"kind": "Secret"}', "application/json", 400, "Secret in version v1 cannot be handled as a ConfigMap"),
        (b'{"metadata": {"name": "c", "namespace": "x"}}', "application/json", 400, "does not match the namespace"),
        (b'{"metadata": {"name": "c"}, "x": "' + b"x" * 3 * 1024 * 1024 + b'"}', "application/json", 413, "too large"),
    ],
)
async def test_bodies_that_are_refused(api: Any, body: bytes, content_type: str, status: int, message: str) -> None:
    answer = await api.refused("POST", PATH, body, content_type=content_type)
    assert answer[0] == status
    assert message in answer[1]


async def test_a_protobuf_body_of_kubectl(api: Any) -> None:
    # `kubectl create configmap zz --from-literal=a=b`: TypeMeta, then metadata {name} and data {a: b}.
    raw = b"\x0a\x04\x0a\x02zz\x12\x06\x0a\x01a\x12\x01b"
    type_meta = b"\x0a\x02v1\x12\x09ConfigMap"
    body = b"k8s\x00\x0a" + bytes([len(type_meta)]) + type_meta + b"\x12" + bytes([len(raw)]) + raw
    created = await api.ok("POST", PATH, body, content_type="application/vnd.kubernetes.protobuf")
    assert (created["metadata"]["name"], created["data"]) == ("zz", {"a": "b"})
    cut = await api.refused("POST", PATH, body[:-3], content_type="application/vnd.kubernetes.protobuf")
    assert cut == (400, "error decoding protobuf: a field is cut short")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/nothings", 404),
        ("GET", "/apis/nothing.example.com/v1/things", 404),
        ("GET", "/api/v1/pods/x", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/nodes/x/proxy", 404),
        ("GET", "/nowhere", 404),
        ("POST", "/api/v1/pods", 405),
        ("PUT", PATH, 405),
        ("POST", f"{PATH}/c", 405),
        ("GET", "/api/v1/namespaces/default/pods/p/eviction", 405),
    ],
)
async def test_paths_and_methods_that_lead_nowhere(api: Any, method: str, path: str, status: int) -> None:
    assert (await api.refused(method, path))[0] == status


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (
            "/api/v1/nodes",
            {"metadata": [1]},
            "cannot unmarshal array into Go struct field Node.metadata of type object",
        ),
        ("/api/v1/nodes", {"metadata": {"name": 1}}, "cannot unmarshal number into Go struct field Node.metadata.name"),
        ("/api/v1/nodes", {"metadata": {"labels": {"a": 1}}}, "Node.metadata.labels.a of type string"),
        ("/api/v1/namespaces/default/pods", {"spec": {"containers": "c"}}, "Pod.spec.containers of type list"),
        ("/api/v1/namespaces/default/pods", {"spec": {"containers": ["c"]}}, "Pod.spec.containers of type object"),
        (
            "/apis/resource.k8s.io/v1/devicetaintrules",
            {"spec": {"deviceSelector": {"driver": ["d"]}}},
            "DeviceTaintRule.spec.deviceSelector.driver of type string",
        ),
    ],
)
async def test_bodies_of_the_wrong_shape(api: Any, path: str, body: Any, message: str) -> None:
    status, answer = await api.refused("POST", path, body)
    assert status == 400
    assert message in answer


async def test_null_is_absent(api: Any) -> None:
    container = {"name": "c", "image": "x", "resources": None, "ports": None}
    body = {
        "metadata": {"name": "p", "labels": None, "creationTimestamp": None},
        "spec": {"containers": [container], "tolerations": None, "nodeName": None},
    }
    made = await api.ok("POST", "/api/v1/namespaces/default/pods", body)
    assert "labels" not in made["metadata"]
    assert made["spec"]["containers"][0]["resources"] == {}
    assert len(made["spec"]["tolerations"]) == 2


async def test_dry_runs_write_nothing(api: Any) -> None:
    body = {"metadata": {"name": "c"}, "data": {"k": "v"}}
    created = await api.ok("POST", f"{PATH}?dryRun=All", body)
    assert created["metadata"]["uid"]
    assert "resourceVersion" not in created["metadata"]
    assert (await api.refused("GET", f"{PATH}/c"))[0] == 404
    await api.ok("POST", PATH, body)
    before = api.store.resource_version
    patched = await api.ok("PATCH", f"{PATH}/c?dryRun=All", {"data": {"k": "w"}}, **MERGE)
    assert patched["data"] == {"k": "w"}
    await api.ok("PUT", f"{PATH}/c?dryRun=All", {"metadata": {"name": "c"}, "data": {}})
    await api.ok("DELETE", f"{PATH}/c?dryRun=All")
    await api.ok("DELETE", f"{PATH}/c", {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
    await api.ok("DELETE", f"{PATH}?dryRun=All")
    applied = await api.ok(
        "PATCH",
        f"{PATH}/new?dryRun=All&fieldManager=me",
        b"metadata: {name: new}\n",
        content_type="application/apply-patch+yaml",
    )
    assert applied["metadata"]["name"] == "new"
    assert api.store.resource_version == before
    assert (await api.ok("GET", f"{PATH}/c"))["data"] == {"k": "v"}
    assert (await api.refused("POST", f"{PATH}?dryRun=Some", body))[0] == 422


async def test_put_needs_the_right_name_and_uid(api: Any) -> None:
    made = await api.ok("POST", PATH, {"metadata": {"name": "c"}})
    assert (await api.refused("PUT", f"{PATH}/c", {"metadata": {"name": "d"}}))[0] == 400
    other = {"metadata": {"name": "c", "uid": "other"}}
    uid = made["metadata"]["uid"]
    message = (
        'Operation cannot be fulfilled on configmaps "c": Precondition failed: UID in precondition: other, '
        f"UID in object meta: {uid}"
    )
    assert await api.refused("PUT", f"{PATH}/c", other) == (409, message)
    assert (await api.ok("PUT", f"{PATH}/c", {"metadata": {"name": "c"}, "data": {"k": "v"}}))["data"] == {"k": "v"}
    assert (await api.refused("PUT", f"{PATH}/nope", {"metadata": {}}))[0] == 404


async def test_strategic_patches_are_for_built_in_kinds(api: Any) -> None:
    await api.ok("POST", PATH, {"metadata": {"name": "c", "finalizers": ["x/1"]}})
    strategic = {"content_type": "application/strategic-merge-patch+json"}
    both = await api.ok("PATCH", f"{PATH}/c", {"metadata": {"finalizers": ["x/2"]}}, **strategic)
    assert both["metadata"]["finalizers"] == ["x/1", "x/2"]
    only = await api.ok("PATCH", f"{PATH}/c", {"metadata": {"finalizers": ["x/3"]}}, **MERGE)
    assert only["metadata"]["finalizers"] == ["x/3"]


async def test_apply_needs_a_manager(api: Any) -> None:
    status, message = await api.refused(
        "PATCH", f"{PATH}/c", b"metadata: {name: c}", content_type="application/apply-patch+yaml"
    )
    assert status == 422
    assert "fieldManager: Required value: is required for apply patch" in message


async def test_deleting_answers_with_a_status_or_the_object(api: Any) -> None:
    made = await api.ok("POST", PATH, {"metadata": {"name": "c"}})
    gone = await api.ok("DELETE", f"{PATH}/c")
    assert gone == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": "c", "kind": "configmaps", "uid": made["metadata"]["uid"]},
    }
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}}
    await api.ok("POST", "/api/v1/namespaces/default/pods", pod)
    marked = await api.ok("DELETE", "/api/v1/namespaces/default/pods/p", {"gracePeriodSeconds": 5})
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 5
    await api.ok("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
    assert api.store.list("pods") == []


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", ["foregroundDeletion"]), ("Orphan", ["orphan"])])
async def test_propagation_is_left_to_garbage_collection(api: Any, policy: str, finalizer: list[str]) -> None:
    await api.ok("POST", PATH, {"metadata": {"name": "c"}})
    held = await api.ok("DELETE", f"{PATH}/c", {"propagationPolicy": policy})
    assert held["metadata"]["finalizers"] == finalizer
    assert held["metadata"]["deletionTimestamp"]
    assert (await api.refused("DELETE", f"{PATH}/c", {"propagationPolicy": "Sideways"}))[0] == 400


async def test_a_collection_is_deleted_by_its_selector(api: Any) -> None:
    for name, app in (("a", "web"), ("b", "web"), ("c", "db")):
        await api.ok("POST", PATH, {"metadata": {"name": name, "labels": {"app": app}}})
    gone = await api.ok("DELETE", f"{PATH}?labelSelector=app%3Dweb")
    assert [one["metadata"]["name"] for one in gone["items"]] == ["a", "b"]
    assert [one["metadata"]["name"] for one in api.store.list("configmaps")] == ["c"]


def _finalize(draft: dict[str, Any]) -> None:
    draft["spec"]["finalizers"] = []


async def test_namespaces_come_first_and_end_last(api: Any) -> None:
    path = "/api/v1/namespaces/team/configmaps"
    assert await api.refused("POST", path, {"metadata": {"name": "c"}}) == (404, 'namespaces "team" not found')
    await api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.ok("POST", path, {"metadata": {"name": "c"}})
    going = await api.ok("DELETE", "/api/v1/namespaces/team")
    assert going["status"]["phase"] == "Terminating"
    status, message = await api.refused("POST", path, {"metadata": {"name": "d"}})
    assert status == 403
    assert message.endswith("unable to create new content in namespace team because it is being terminated")
    # Until the namespace controller has emptied it.
    api.store.mutate("namespaces", None, "team", _finalize, subresource="finalize")
    assert api.store.find("namespaces", None, "team") is None
    refused = await api.refused("DELETE", "/api/v1/namespaces/default")
    assert refused == (403, 'namespaces "default" is forbidden: this namespace may not be deleted')


POD = "/api/v1/namespaces/default/pods"


async def add_pod(api: Any, name: str, **labels: str) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "x"}]}
    made: dict[str, Any] = await api.ok("POST", POD, {"metadata": {"name": name, "labels": labels}, "spec": spec})
    return made


async def run_pod(api: Any, name: str, **labels: str) -> dict[str, Any]:
    made = await add_pod(api, name, **labels)
    await api.ok("POST", f"{POD}/{name}/binding", {"target": {"kind": "Node", "name": "n"}})
    status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await api.ok("PATCH", f"{POD}/{name}/status", status, **MERGE)
    return made


async def test_binding(api: Any) -> None:
    made = await add_pod(api, "p")
    wrong = {"metadata": {"uid": "other"}, "target": {"name": "n"}}
    assert (await api.refused("POST", f"{POD}/p/binding", wrong))[0] == 409
    await api.ok("POST", f"{POD}/p/binding", {"metadata": {"uid": made["metadata"]["uid"]}, "target": {"name": "n"}})
    pod = await api.ok("GET", f"{POD}/p")
    assert pod["spec"]["nodeName"] == "n"
    assert [(c["type"], c["status"]) for c in pod["status"]["conditions"]] == [("PodScheduled", "True")]
    status, message = await api.refused("POST", f"{POD}/p/binding", {"target": {"name": "m"}})
    assert status == 409
    assert message.endswith('pod p is already assigned to node "n"')


def evict(name: str, **options: Any) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}


async def budget(api: Any, name: str, allowed: int, *, observed: int = 1) -> None:
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    await api.ok("POST", path, {"metadata": {"name": name}, "spec": spec})
    counts = {"desiredHealthy": 1, "currentHealthy": 2, "expectedPods": 2}
    status = {"observedGeneration": observed, "disruptionsAllowed": allowed, **counts}
    await api.ok("PATCH", f"{path}/{name}/status", {"status": status}, **MERGE)


async def test_an_eviction_takes_from_the_budget(api: Any) -> None:
    await run_pod(api, "p1", app="web")
    await run_pod(api, "p2", app="web")
    await budget(api, "b", 1)
    await api.ok("POST", f"{POD}/p1/eviction?dryRun=All", evict("p1"))
    assert api.store.get(BUDGETS, "default", "b")["status"]["disruptionsAllowed"] == 1
    done = await api.ok("POST", f"{POD}/p1/eviction", evict("p1"))
    assert done["status"] == "Success"
    left = api.store.get(BUDGETS, "default", "b")["status"]
    assert (left["disruptionsAllowed"], list(left["disruptedPods"])) == (0, ["p1"])
    assert api.store.get("pods", "default", "p1")["metadata"]["deletionTimestamp"]
    assert (await api.refused("POST", f"{POD}/p2/eviction", evict("p2")))[0] == 429
    # A pod that is being deleted anyway takes nothing.
    await api.ok("POST", f"{POD}/p1/eviction", evict("p1"))


async def test_a_budget_that_nobody_has_counted_yet(api: Any) -> None:
    await run_pod(api, "p1", app="web")
    await budget(api, "b", 1, observed=0)
    status, content, headers = await api.raw("POST", f"{POD}/p1/eviction", evict("p1"))
    assert (status, headers["Retry-After"]) == (429, "10")
    assert b"The disruption budget b is still being processed by the server." in content


async def test_two_budgets_on_a_pod_are_more_than_eviction_can_decide(api: Any) -> None:
    await run_pod(api, "p1", app="web")
    await budget(api, "b1", 1)
    await budget(api, "b2", 1)
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert await api.refused("POST", f"{POD}/p1/eviction", evict("p1")) == (500, why)


async def test_evictions_that_are_refused_take_nothing_from_the_budget(api: Any) -> None:
    await run_pod(api, "p1", app="web")
    await budget(api, "b", 1)
    wrong = evict("p1", preconditions={"uid": "other"})
    assert (await api.refused("POST", f"{POD}/p1/eviction", wrong))[0] == 409
    assert (await api.refused("POST", f"{POD}/p1/eviction", evict("p2")))[0] == 400
    assert await api.refused("POST", f"{POD}/nope/eviction", evict("nope")) == (404, 'pods "nope" not found')
    assert api.store.get(BUDGETS, "default", "b")["status"]["disruptionsAllowed"] == 1


async def test_pods_without_a_budget_or_not_running_yet_are_simply_deleted(api: Any) -> None:
    made = await run_pod(api, "p1")
    right = evict("p1", preconditions={"uid": made["metadata"]["uid"]}, gracePeriodSeconds=7)
    await api.ok("POST", f"{POD}/p1/eviction", right)
    assert api.store.get("pods", "default", "p1")["metadata"]["deletionGracePeriodSeconds"] == 7
    await add_pod(api, "p2", app="web")
    await budget(api, "b", 0)
    await api.ok("POST", f"{POD}/p2/eviction", evict("p2"))
    assert api.store.find("pods", "default", "p2") is None
