"""Lists, selectors, tables and discovery over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from taintctl.sandbox.apiserver.ages import duration

PODS = "/api/v1/namespaces/default/pods"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def add_pod(api: Any, name: str, *, labels: dict[str, str] | None = None, node: str = "") -> None:
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    api.store.create("pods", {"metadata": {"name": name, "labels": labels or {}}, "spec": spec})


def names(answer: Any) -> list[str]:
    return [one["metadata"]["name"] for one in answer["items"]]


async def test_a_chunked_list_is_of_one_state(api: Any) -> None:
    for index in range(5):
        add_pod(api, f"p{index}")
    first = await api.ok("GET", f"{PODS}?limit=2")
    assert names(first) == ["p0", "p1"]
    assert first["metadata"]["remainingItemCount"] == 3
    # What happens meanwhile is not in the rest of the list.
    api.store.delete("pods", "default", "p2")
    add_pod(api, "p3-later")
    api.store.mutate("pods", "default", "p4", lambda draft: draft["metadata"].update(labels={"new": "1"}))
    token = first["metadata"]["continue"]
    second = await api.ok("GET", f"{PODS}?limit=2&continue={token}")
    assert names(second) == ["p2", "p3"]
    last = await api.ok("GET", f"{PODS}?limit=2&continue={second['metadata']['continue']}")
    assert names(last) == ["p4"]
    assert "labels" not in last["items"][0]["metadata"]
    assert "continue" not in last["metadata"]
    assert {one["metadata"]["resourceVersion"] for one in (first, second, last)} == {
        first["metadata"]["resourceVersion"]
    }


async def test_a_continue_token_that_is_too_old_is_410_and_a_broken_one_400(api: Any) -> None:
    for index in range(3):
        add_pod(api, f"p{index}")
    token = (await api.ok("GET", f"{PODS}?limit=1"))["metadata"]["continue"]
    add_pod(api, "p3")
    api.store.compact()
    status, answer = await api.ask("GET", f"{PODS}?limit=1&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")
    assert "The provided continue parameter is too old" in answer["message"]
    assert (await api.refused("GET", f"{PODS}?continue=nonsense"))[0] == 400


async def test_a_list_at_an_exact_revision(api: Any) -> None:
    add_pod(api, "p0")
    then = api.store.resource_version
    add_pod(api, "p1")
    assert names(await api.ok("GET", f"{PODS}?resourceVersion={then}&resourceVersionMatch=Exact")) == ["p0"]
    assert names(await api.ok("GET", f"{PODS}?resourceVersion=0")) == ["p0", "p1"]
    status, message = await api.refused("GET", f"{PODS}?resourceVersion=999999")
    assert (status, message) == (504, f"Too large resource version: 999999, current: {api.store.resource_version}")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier=1", ["a"]),
        ("app!=web", ["c", "d"]),
        ("app in (web,db)", ["a", "b", "c"]),
        ("app notin (web)", ["c", "d"]),
        ("tier", ["a"]),
        ("!tier", ["b", "c", "d"]),
        ("app in (web, db),!tier", ["b", "c"]),
    ],
)
async def test_label_selectors(api: Any, selector: str, expected: list[str]) -> None:
    add_pod(api, "a", labels={"app": "web", "tier": "1"})
    add_pod(api, "b", labels={"app": "web"})
    add_pod(api, "c", labels={"app": "db"})
    add_pod(api, "d")
    assert names(await api.ok("GET", f"{PODS}?labelSelector={selector.replace(' ', '%20')}")) == expected


async def test_field_selectors(api: Any) -> None:
    add_pod(api, "a", node="n1")
    add_pod(api, "b", node="n2")
    assert names(await api.ok("GET", f"{PODS}?fieldSelector=spec.nodeName=n1")) == ["a"]
    assert names(await api.ok("GET", f"{PODS}?fieldSelector=spec.nodeName!=n1,status.phase=Pending")) == ["b"]
    assert names(await api.ok("GET", "/api/v1/pods?fieldSelector=metadata.namespace=default,metadata.name=a")) == ["a"]
    refused = await api.refused("GET", f"{PODS}?fieldSelector=spec.priority=1")
    assert refused == (400, "field label not supported: spec.priority")


async def test_events_under_both_names(api: Any) -> None:
    involved = {"kind": "Pod", "name": "p", "namespace": "default", "uid": "u"}
    event = {"metadata": {"name": "e"}, "involvedObject": involved, "reason": "R", "message": "m", "type": "Normal"}
    await api.ok("POST", "/api/v1/namespaces/default/events", event)
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    seen = await api.ok("GET", f"{path}/e")
    assert (seen["apiVersion"], seen["note"], seen["regarding"]) == ("events.k8s.io/v1", "m", involved)
    assert names(await api.ok("GET", f"{path}?fieldSelector=regarding.name=p")) == ["e"]
    await api.ok("POST", path, {"metadata": {"name": "f"}, "note": "n", "regarding": involved})
    core = await api.ok("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=p")
    assert [(one["metadata"]["name"], one["message"]) for one in core["items"]] == [("e", "m"), ("f", "n")]


async def test_a_table_of_pods(api: Any) -> None:
    add_pod(api, "a", node="n1")
    status, content, _ = await api.raw("GET", PODS, headers=TABLE)
    table = json.loads(content)
    assert (status, table["kind"]) == (200, "Table")
    columns = [(one["name"], one["priority"]) for one in table["columnDefinitions"]]
    assert columns == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    row = table["rows"][0]
    assert row["cells"][:4] == ["a", "0/1", "Pending", "0"]
    assert row["cells"][5:] == ["<none>", "n1", "<none>", "<none>"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert "spec" not in row["object"]


async def test_only_the_metadata(api: Any) -> None:
    add_pod(api, "a")
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    answer = await api.ok("GET", PODS, headers=accept)
    assert answer["kind"] == "PartialObjectMetadataList"
    assert set(answer["items"][0]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        # k8s.io/apimachinery/pkg/util/duration, duration_test.go.
        (0, "0s"),
        (1, "1s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (28799, "7h59m"),
        (28800, "8h"),
        (172799, "47h"),
        (172800, "2d"),
        (691199, "7d23h"),
        (691200, "8d"),
        (730 * 86400, "2y"),
        (-2, "<invalid>"),
    ],
)
def test_durations_read_as_in_kubectl(seconds: int, text: str) -> None:
    assert duration(seconds) == text


async def test_discovery_says_what_is_served(api: Any) -> None:
    core = await api.ok("GET", "/api/v1")
    by_name = {one["name"]: one for one in core["resources"]}
    assert by_name["pods"]["shortNames"] == ["po"]
    assert by_name["pods/eviction"]["kind"] == "Eviction"
    assert by_name["pods/eviction"]["group"] == "policy"
    assert "shortNames" not in by_name["pods/status"]
    groups = {one["name"] for one in (await api.ok("GET", "/apis"))["groups"]}
    assert {"apps", "resource.k8s.io", "apiextensions.k8s.io", "authorization.k8s.io"} <= groups
    old = await api.ok("GET", "/apis/resource.k8s.io/v1")
    assert {"devicetaintrules", "devicetaintrules/status", "resourceslices"} <= {
        one["name"] for one in old["resources"]
    }
    accept = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    new = await api.ok("GET", "/apis", headers=accept)
    listed = {
        (group["metadata"]["name"], version["version"], one["resource"])
        for group in new["items"]
        for version in group["versions"]
        for one in version["resources"]
    }
    assert ("resource.k8s.io", "v1", "devicetaintrules") in listed


async def test_1_36_serves_rules_at_v1beta2(make_api: Any) -> None:
    async with make_api("1.36") as api:
        group = await api.ok("GET", "/apis/resource.k8s.io")
        assert [one["version"] for one in group["versions"]] == ["v1", "v1beta2"]
        beta = await api.ok("GET", "/apis/resource.k8s.io/v1beta2")
        assert [one["name"] for one in beta["resources"]] == ["devicetaintrules", "devicetaintrules/status"]
        assert (await api.refused("GET", "/apis/resource.k8s.io/v1/devicetaintrules"))[0] == 404
        assert (await api.ok("GET", "/version"))["gitVersion"] == "v1.36.0"


async def test_openapi_has_what_kubectl_looks_for(api: Any) -> None:
    index = await api.ok("GET", "/openapi/v3")
    url = index["paths"]["apis/resource.k8s.io/v1"]["serverRelativeURL"]
    document = await api.ok("GET", url)
    patch = document["paths"]["/apis/resource.k8s.io/v1/devicetaintrules/{name}"]["patch"]
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "resource.k8s.io",
        "version": "v1",
        "kind": "DeviceTaintRule",
    }
    assert {one["name"] for one in patch["parameters"]} >= {"fieldValidation", "dryRun"}
    assert (await api.refused("GET", "/openapi/v3/apis/nope/v1"))[0] == 404


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health(api: Any, path: str) -> None:
    assert (await api.raw("GET", path, token=""))[:2] == (200, b"ok")


async def test_ten_thousand_pods_are_listed_quickly(api: Any) -> None:
    body = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    for index in range(10_000):
        api.store.create("pods", {"metadata": {"name": f"p{index:05}"}, **body})
    started = datetime.now(UTC)
    seen, token = 0, ""
    while True:
        answer = await api.ok("GET", f"/api/v1/pods?limit=500{'&continue=' + token if token else ''}")
        seen += len(answer["items"])
        token = answer["metadata"].get("continue", "")
        if not token:
            break
    assert seen == 10_000
    # It takes about half a second; a machine under load gets ten times that.
    assert (datetime.now(UTC) - started).total_seconds() < 5
