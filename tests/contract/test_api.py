"""What the product needs of the API itself: preconditions, watches, lists, dry runs, CRDs and admission policies."""

from __future__ import annotations

import pytest

from taintctl.sandbox.cluster import Sandbox
from tests.contract.client import Answer, Obj
from tests.contract.lab import NAMESPACES, Lab

NOBODY = "00000000-0000-0000-0000-000000000000"


def maps(lab: Lab) -> str:
    return f"{NAMESPACES}/{lab.namespace}/configmaps"


async def config(lab: Lab, name: str, **data: str) -> Obj:
    return await lab.api.must(lab.api.post(maps(lab), {"metadata": {"name": name}, "data": data}))


async def test_a_stale_resource_version_is_a_conflict(lab: Lab) -> None:
    old = await config(lab, "c", a="1")
    await lab.api.must(lab.api.patch(f"{maps(lab)}/c", {"data": {"a": "2"}}))
    put = await lab.api.put(f"{maps(lab)}/c", {**old, "data": {"a": "3"}})
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"a": "3"}}
    patched = await lab.api.patch(f"{maps(lab)}/c", stale)
    for refused in (put, patched):
        assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert (await lab.api.get(f"{maps(lab)}/c")).body["data"] == {"a": "2"}


async def test_deletions_and_evictions_take_a_uid(lab: Lab) -> None:
    pod = await lab.pod("p")
    preconditions = {"preconditions": {"uid": NOBODY}}
    refused = await lab.api.delete(f"{lab.pods}/p", {"kind": "DeleteOptions", "apiVersion": "v1", **preconditions})
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": lab.namespace}}
    refused = await lab.api.post(f"{lab.pods}/p/eviction", {**eviction, "deleteOptions": preconditions})
    assert (refused.status, refused.body["reason"]) == (409, "Conflict")
    assert await lab.state("p") == "Running"
    right = {"deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}}}
    assert (await lab.api.post(f"{lab.pods}/p/eviction", {**eviction, **right})).status == 201
    assert await lab.state("p") == "Terminating"
    await lab.gone("p")


async def test_a_watch_goes_on_from_a_resource_version(lab: Lab) -> None:
    await config(lab, "before")
    listed = await lab.api.must(lab.api.get(maps(lab)))
    since = listed["metadata"]["resourceVersion"]
    await config(lab, "during")
    await lab.api.must(lab.api.patch(f"{maps(lab)}/during", {"data": {"a": "1"}}))
    await lab.api.must(lab.api.delete(f"{maps(lab)}/before"))
    async with lab.api.watch(maps(lab), resourceVersion=since) as watch:
        events = [await watch.next() for _ in range(3)]
    told = [(e["type"], e["object"]["metadata"]["name"]) for e in events]
    assert told == [("ADDED", "during"), ("MODIFIED", "during"), ("DELETED", "before")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(versions)
    assert versions[0] > int(since)


async def test_a_watch_sends_bookmarks(lab: Lab) -> None:
    listed = await lab.api.must(lab.api.get(maps(lab)))
    query = {"resourceVersion": listed["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
    # A server sends one a minute.
    async with lab.api.watch(maps(lab), timeoutSeconds="90", **query) as watch:
        event = await watch.next(90)
    assert event["type"] == "BOOKMARK"
    assert int(event["object"]["metadata"]["resourceVersion"]) >= int(query["resourceVersion"])


async def test_a_watch_from_forgotten_times_is_gone(lab: Lab, sandbox: Sandbox | None) -> None:
    first = await config(lab, "c")
    since = first["metadata"]["resourceVersion"]
    if sandbox is not None:
        await lab.api.must(lab.api.patch(f"{maps(lab)}/c", {"data": {"a": "1"}}))
        sandbox.store.compact()
    else:
        since = "1"
    async with lab.api.watch(maps(lab), resourceVersion=since, timeoutSeconds="5") as watch:
        try:
            found = await watch.next()
        except EOFError:
            found = {}
    code = found.get("code") or (found.get("object") or {}).get("code")
    if sandbox is None and code != 410:
        pytest.skip("this cluster still remembers its first change: nothing is compacted yet")
    assert code == 410


async def test_a_list_comes_in_chunks_of_one_moment(lab: Lab) -> None:
    for index in range(5):
        await config(lab, f"chunk-{index}", n=str(index))
    first = await lab.api.must(lab.api.get(maps(lab), limit="2"))
    await config(lab, "chunk-9")
    found, page = [m["metadata"]["name"] for m in first["items"]], first
    while page["metadata"].get("continue"):
        page = await lab.api.must(lab.api.get(maps(lab), **{"limit": "2", "continue": page["metadata"]["continue"]}))
        assert len(page["items"]) <= 2
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        found += [m["metadata"]["name"] for m in page["items"]]
    assert [n for n in found if n.startswith("chunk")] == [f"chunk-{i}" for i in range(5)]


async def test_a_dry_run_writes_nothing(lab: Lab) -> None:
    kept = await config(lab, "kept", a="1")
    created = await lab.api.post(maps(lab), {"metadata": {"name": "ghost"}}, dryRun="All")
    assert created.status == 201
    patched = await lab.api.patch(f"{maps(lab)}/kept", {"data": {"a": "2"}}, dryRun="All")
    assert (patched.status, patched.body["data"]) == (200, {"a": "2"})
    assert (await lab.api.delete(f"{maps(lab)}/kept", dryRun="All")).status == 200
    assert (await lab.api.get(f"{maps(lab)}/ghost")).status == 404
    assert (await lab.api.get(f"{maps(lab)}/kept")).body == kept


async def test_finalizers_hold_a_deleted_object(lab: Lab) -> None:
    body = {"metadata": {"name": "held", "finalizers": ["contract.example.com/hold"]}}
    await lab.api.must(lab.api.post(maps(lab), body))
    await lab.api.must(lab.api.delete(f"{maps(lab)}/held"))
    assert (await lab.api.get(f"{maps(lab)}/held")).body["metadata"]["deletionTimestamp"]
    await lab.api.must(lab.api.patch(f"{maps(lab)}/held", {"metadata": {"finalizers": None}}))
    assert (await lab.api.get(f"{maps(lab)}/held")).status == 404


async def test_dependents_go_with_their_owner(lab: Lab) -> None:
    owner = await config(lab, "owner")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    body = {"metadata": {"name": "dependent", "ownerReferences": [reference]}}
    await lab.api.must(lab.api.post(maps(lab), body))
    await lab.api.must(lab.api.delete(f"{maps(lab)}/owner", {"propagationPolicy": "Background"}))

    async def away() -> bool:
        return (await lab.api.get(f"{maps(lab)}/dependent")).status == 404

    await lab.eventually(away)


async def test_an_event_can_be_written(lab: Lab) -> None:
    involved = {"kind": "Namespace", "apiVersion": "v1", "name": lab.namespace}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": involved,
        "reason": "Tested",
        "message": "m",
        "type": "Normal",
    }
    events = f"{NAMESPACES}/{lab.namespace}/events"
    assert (await lab.api.post(events, event)).status == 201
    listed = await lab.api.must(lab.api.get(events, fieldSelector="reason=Tested"))
    assert [e["metadata"]["name"] for e in listed["items"]] == ["e"]


async def widgets(lab: Lab) -> str:
    """A custom kind with CEL rules such as ours; its path once it is served."""
    spec = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {
            "size": {"type": "integer", "minimum": 1, "default": 3},
            "a": {"type": "string", "maxLength": 10},
            "b": {"type": "string", "maxLength": 10},
        },
        "x-kubernetes-validations": [
            {"rule": "has(self.a) || has(self.b)", "message": "a or b is required"},
            {"rule": "self.size == oldSelf.size", "message": "size is immutable"},
        ],
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}, "required": ["spec"]}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    crd: Obj = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    crd["metadata"] = {"name": f"widgets.{lab.driver}"}
    crd["spec"] = {"group": lab.driver, "scope": "Cluster", "names": names, "versions": [version]}
    await lab.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    path = f"/apis/{lab.driver}/v1/widgets"

    async def served() -> bool:
        return (await lab.api.get(path)).status == 200

    await lab.eventually(served)
    return path


def widget(lab: Lab, name: str, **spec: object) -> Obj:
    return {"apiVersion": f"{lab.driver}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}


async def test_a_custom_kind_is_validated_defaulted_and_keeps_unknown_fields(lab: Lab) -> None:
    path = await widgets(lab)
    refused = await lab.api.post(path, widget(lab, "w", size=2))
    assert (refused.status, refused.body["reason"]) == (422, "Invalid")
    assert "a or b is required" in refused.body["message"]
    refused = await lab.api.post(path, widget(lab, "w", a="x", size=0))
    assert refused.status == 422
    assert "spec.size" in refused.body["message"]
    made = await lab.make(path, {**widget(lab, "w", a="x", misspelt="kept"), "status": {"phase": "dropped"}})
    assert made["spec"] == {"a": "x", "size": 3, "misspelt": "kept"}
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    refused = await lab.api.patch(f"{path}/w", {"spec": {"size": 4}})
    assert refused.status == 422
    assert "size is immutable" in refused.body["message"]


async def test_the_status_of_a_custom_kind_is_apart(lab: Lab) -> None:
    path = await widgets(lab)
    await lab.make(path, widget(lab, "w", a="x"))
    told = await lab.api.must(lab.api.patch(f"{path}/w/status", {"status": {"phase": "Up"}, "spec": {"a": "y"}}))
    assert (told["status"], told["spec"]["a"], told["metadata"]["generation"]) == ({"phase": "Up"}, "x", 1)
    changed = await lab.api.must(lab.api.patch(f"{path}/w", {"spec": {"a": "y"}, "status": {"phase": "Down"}}))
    assert (changed["status"], changed["spec"]["a"], changed["metadata"]["generation"]) == ({"phase": "Up"}, "y", 2)


async def test_an_admission_policy_holds_a_field_to_the_callers_name(lab: Lab) -> None:
    path = await widgets(lab)
    admission = "/apis/admissionregistration.k8s.io/v1"
    rules = {"apiGroups": [lab.driver], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["widgets"]}
    check = {"expression": "object.spec.a == request.userInfo.username", "message": "a has to be your own name"}
    policy = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rules]}, "validations": [check]}
    name = {"metadata": {"name": lab.id}}
    await lab.make(f"{admission}/validatingadmissionpolicies", {**name, "spec": policy})
    binding = {"policyName": lab.id, "validationActions": ["Deny"]}
    await lab.make(f"{admission}/validatingadmissionpolicybindings", {**name, "spec": binding})

    async def refused() -> Answer | None:
        # A real server takes a moment to see a new policy: a dry run leaves nothing behind.
        answer = await lab.api.post(path, widget(lab, "w", a="somebody"), dryRun="All")
        return answer if answer.status != 201 else None

    answer: Answer = await lab.eventually(refused)
    assert answer.status == 422
    assert "a has to be your own name" in answer.body["message"]
