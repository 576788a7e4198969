"""What a real 1.36.2 API server answered is what the sandbox answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from taintctl.sandbox.store import Store

RULES = "devicetaintrules.resource.k8s.io"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def normalised(value: Any) -> Any:
    """Times, uids and revisions differ from run to run; everything else must not."""
    if isinstance(value, dict):
        return {k: "N" if k == "resourceVersion" else normalised(v) for k, v in value.items()}
    if isinstance(value, list):
        return [normalised(one) for one in value]
    if isinstance(value, str):
        zero = "00000000-0000-0000-0000-000000000000"
        return _UID.sub(lambda found: zero if found.group() == zero else "UID", _TIME.sub("TIME", value))
    return value


async def test_invalid_rules_are_refused_in_the_same_words(make_api: Any, recording: Callable[..., Any]) -> None:
    cases = [one for one in recording("04-errors.json") if one["case"] == "invalid"]
    assert len(cases) == 9
    async with make_api("1.36") as api:
        for case in cases:
            request = case["request"]
            status, answer = await api.ask(request["method"], request["path"], request["body"])
            assert (status, answer) == (case["status"], case["response"]), case["what"]


def _controller_writes_status(store: Store, status: dict[str, Any]) -> None:
    """What the eviction controller had written by then in the recording."""
    if store.find(RULES, None, "conflict") is not None:
        store.mutate(RULES, None, "conflict", lambda draft: draft | {"status": status}, subresource="status")


async def test_conflicts_preconditions_and_patches(make_api: Any, recording: Callable[..., Any]) -> None:
    cases = [one for one in recording("04-errors.json") if one["case"] == "conflict"]
    assert len(cases) == 12
    stale = ""
    async with make_api("1.36") as api:
        for case in cases:
            request, expected = case["request"], case["response"]
            if case["what"] == "patch with a stale resourceVersion":
                # The controller writes the status; then somebody sets a label, and the revision before is stale.
                _controller_writes_status(api.store, {"conditions": []})
                stale = api.store.get(RULES, None, "conflict")["metadata"]["resourceVersion"]
                label = {"metadata": {"labels": {"x": "1"}}}
                await api.ok("PATCH", request["path"], label, content_type="application/merge-patch+json")
            if expected.get("status", {}) and isinstance(expected["status"], dict):
                _controller_writes_status(api.store, expected["status"])
            body = request["body"]
            if isinstance(body, dict) and body.get("metadata", {}).get("resourceVersion"):
                body["metadata"]["resourceVersion"] = stale
            if isinstance(body, list):
                body[0]["value"] = stale
            status, answer = await api.ask(
                request["method"], request["path"], body, content_type=request["contentType"]
            )
            assert status == case["status"], (case["what"], answer)
            assert normalised(answer) == normalised(expected), case["what"]


async def test_the_effect_moves_the_time_of_the_taint(make_api: Any) -> None:
    async with make_api("1.37") as api:
        path = "/apis/resource.k8s.io/v1/devicetaintrules"
        rule = {
            "metadata": {"name": "r"},
            "spec": {"taint": {"key": "a/b", "effect": "None", "timeAdded": "2020-01-01T00:00:00Z"}},
        }
        created = await api.ok("POST", path, rule)
        assert created["spec"]["taint"]["timeAdded"] == "2020-01-01T00:00:00Z"
        merge = {"content_type": "application/merge-patch+json"}
        same = await api.ok("PATCH", f"{path}/r", {"spec": {"taint": {"value": "x"}}}, **merge)
        assert same["spec"]["taint"]["timeAdded"] == "2020-01-01T00:00:00Z"
        assert same["metadata"]["generation"] == 2
        moved = await api.ok("PATCH", f"{path}/r", {"spec": {"taint": {"effect": "NoExecute"}}}, **merge)
        assert moved["spec"]["taint"]["timeAdded"] > "2026"
        assert moved["metadata"]["generation"] == 3


async def test_slices_and_nodes_are_stored_as_recorded(api: Any, recording: Callable[..., Any]) -> None:
    for case in recording("01-objects.json"):
        path = case["request"]["path"]
        if not path.endswith(("resourceslices", "nodes", "deviceclasses")):
            continue
        for item in case["response"]["items"]:
            await api.ok("POST", path, {"metadata": {"name": item["metadata"]["name"]}} | _sent(item))
        assert normalised(await api.ok("GET", path)) == normalised(case["response"]), path


def _sent(item: dict[str, Any]) -> dict[str, Any]:
    sent = {"spec": item["spec"]}
    if "status" in item:
        sent["status"] = {k: v for k, v in item["status"].items() if k not in ("daemonEndpoints", "nodeInfo")}
    return sent


async def test_slices_with_shared_counters(api: Any, recording: Callable[..., Any]) -> None:
    cases = [one for one in recording("07-partitions-budgets-cancel.json") if one["case"] == "partitionable"]
    assert len(cases) == 2
    for case in cases:
        answer = await api.ok("POST", case["request"]["path"], case["request"]["body"])
        assert normalised(answer) == normalised(case["response"])


@pytest.mark.parametrize("name", ["claim-0", "shared-0", "two-0", "ext-0"])
async def test_pods_get_the_recorded_defaults(api: Any, recording: Callable[..., Any], name: str) -> None:
    pods = next(one for one in recording("01-objects.json") if one["request"]["path"] == "/api/v1/pods")
    recorded = next(one for one in pods["response"]["items"] if one["metadata"]["name"] == name)
    spec = recorded["spec"]
    container = {part: spec["containers"][0][part] for part in ("name", "image", "resources")}
    # Requests of extended resources are filled in from the limits.
    container["resources"] = {k: v for k, v in container["resources"].items() if k != "requests"}
    sent = {"containers": [container], "terminationGracePeriodSeconds": 2}
    if "resourceClaims" in spec:
        sent["resourceClaims"] = spec["resourceClaims"]
    created = await api.ok("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": sent})
    assert created["spec"] == {k: v for k, v in spec.items() if k != "nodeName"}
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created["metadata"]["generation"] == 1


async def test_claims_get_the_recorded_defaults(api: Any, recording: Callable[..., Any]) -> None:
    claims = next(one for one in recording("01-objects.json") if one["request"]["path"].endswith("resourceclaims"))
    for recorded in claims["response"]["items"]:
        requests = recorded["spec"]["devices"]["requests"]
        bare = [
            {
                "name": one["name"],
                "exactly": {k: v for k, v in one["exactly"].items() if k not in ("allocationMode", "count")},
            }
            for one in requests
        ]
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        body = {"metadata": {"generateName": "c-"}, "spec": {"devices": {"requests": bare}}}
        created = await api.ok("POST", path, body)
        assert created["spec"] == recorded["spec"]
        assert created["status"] == {}
        assert "generation" not in created["metadata"]


async def test_a_budget_refuses_an_eviction_in_the_recorded_words(api: Any, recording: Callable[..., Any]) -> None:
    cases = {one["what"]: one for one in recording("07-partitions-budgets-cancel.json") if one["case"] == "pdb"}
    before = cases["the budget before"]["response"]
    refused = cases["Eviction API on the same pod: refused by the budget"]
    api.store.create("namespaces", {"metadata": {"name": "team-a"}})
    labels = before["spec"]["selector"]["matchLabels"]
    container = {"name": "c", "image": "x"}
    pod = {
        "metadata": {"name": "claim-0", "namespace": "team-a", "labels": labels},
        "spec": {"containers": [container]},
    }
    api.store.create("pods", pod)
    api.store.mutate("pods", "team-a", "claim-0", _running, subresource="binding")
    api.store.create(
        "poddisruptionbudgets.policy",
        {"metadata": {"name": "web", "namespace": "team-a"}, "spec": before["spec"]},
    )
    api.store.mutate(
        "poddisruptionbudgets.policy",
        "team-a",
        "web",
        lambda draft: draft | {"status": before["status"]},
        subresource="status",
    )
    status, answer = await api.ask("POST", refused["request"]["path"], refused["request"]["body"])
    assert (status, answer) == (refused["status"], refused["response"])


def _running(draft: dict[str, Any]) -> None:
    draft["spec"]["nodeName"] = "n"
    draft["status"]["phase"] = "Running"
    draft["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
