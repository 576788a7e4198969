"""What the product needs of DeviceTaintRules and of the controllers behind them."""

from __future__ import annotations

import asyncio

from tests.contract.lab import Lab

FOREVER = {"operator": "Exists", "effect": "NoExecute"}


async def test_discovery_says_which_version_serves_the_rules(taint_lab: Lab) -> None:
    rule = await taint_lab.rule("r", "None")
    assert rule["apiVersion"] in taint_lab.rules
    assert rule["metadata"]["generation"] == 1
    assert rule["spec"]["taint"]["timeAdded"]


async def test_a_dry_run_counts_devices_allocations_pods_and_namespaces(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.claim("shared")
    await lab.pod("shared-0", claim="shared")
    await lab.pod("shared-1", claim="shared")
    await lab.holder("alone")
    await lab.rule("all", "None")
    assert await lab.counts("all") == {"published": 4, "allocated": 2, "pods": 3, "namespaces": 1}
    told = await lab.condition("all")
    assert (told["status"], told["reason"]) == ("False", "NoEffect")
    await lab.rule("nowhere", "None", pool=f"{lab.id}-nowhere")
    assert await lab.counts("nowhere") == {"published": 0, "allocated": 0, "pods": 0, "namespaces": 0}


async def test_only_a_new_rule_or_spec_refreshes_the_message(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.rule("r", "None")
    assert (await lab.counts("r"))["pods"] == 0
    await lab.holder("p")
    path = f"{lab.rules}/{lab.id}-r"
    await lab.api.must(lab.api.patch(path, {"metadata": {"labels": {"poke": "1"}}}))
    await lab.sleep(12)
    assert (await lab.counts("r"))["pods"] == 0
    await lab.api.must(lab.api.delete(path))
    await lab.rule("r", "None")
    assert (await lab.counts("r"))["pods"] == 1


async def test_no_execute_is_observed_and_told_in_its_rhythm(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.holder("p")
    rule = await lab.rule("r", "None")
    await lab.condition("r")
    changed = await lab.set_effect("r", "NoExecute")
    assert changed["metadata"]["generation"] == rule["metadata"]["generation"] + 1
    # Still about the old generation: False here would be a trap.
    assert changed["status"]["conditions"][0]["observedGeneration"] == rule["metadata"]["generation"]
    started = asyncio.get_running_loop().time()
    first = await lab.condition("r")
    assert (first["status"], first["reason"]) == ("True", "PodsPendingEviction")
    assert first["message"] == "1 pod needs to be evicted in 1 namespace."
    last = await lab.becomes("r", "Completed")
    # The pod was marked at once; the condition follows ten seconds later, give or take the seconds it is stored in.
    assert (asyncio.get_running_loop().time() - started) * lab.speed >= 8.5
    assert (last["status"], last["message"]) == ("False", "1 pod evicted since starting the controller.")
    await lab.gone("p")


async def test_an_extended_resource_pod_is_neither_counted_nor_evicted(taint_lab: Lab) -> None:
    lab = taint_lab
    pod = await lab.pod("ext", gpus=1)
    name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
    claim = (await lab.api.get(f"{lab.claims}/{name}")).body
    assert claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"] == "true"
    assert [c["name"] for c in claim["status"]["reservedFor"]] == ["ext"]
    await lab.rule("r", "None")
    assert await lab.counts("r") == {"published": 4, "allocated": 1, "pods": 0, "namespaces": 0}
    await lab.set_effect("r", "NoExecute")
    assert (await lab.condition("r"))["reason"] == "NotStarted"
    await lab.sleep(12)
    assert await lab.state("ext") == "Running"


async def test_which_tolerations_keep_a_pod(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.holder("forever", tolerations=[FOREVER])
    await lab.holder("later", tolerations=[{**FOREVER, "tolerationSeconds": 600}])
    await lab.rule("r", "None")
    assert (await lab.counts("r"))["pods"] == 1
    await lab.set_effect("r", "NoExecute")
    await lab.sleep(12)
    assert [await lab.state(p) for p in ("forever", "later")] == ["Running", "Running"]


async def test_going_back_cancels_a_delayed_eviction(taint_lab: Lab) -> None:
    lab = taint_lab
    # Long enough that a fast cluster's whole-second times do not matter.
    await lab.holder("p", tolerations=[{**FOREVER, "tolerationSeconds": 60}])
    await lab.rule("r", "NoExecute")
    assert (await lab.condition("r"))["reason"] == "PodsPendingEviction"
    await lab.set_effect("r", "NoSchedule")
    told = await lab.condition("r")
    assert (told["status"], told["reason"]) == ("False", "OtherEffect")
    await lab.sleep(65)
    assert await lab.state("p") == "Running"


async def test_under_no_schedule_no_new_claim_gets_the_device_but_a_pod_joins_an_allocated_one(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.claim("held")
    await lab.pod("first", claim="held")
    await lab.rule("r", "NoSchedule")
    await lab.condition("r")
    await lab.sleep(2)
    await lab.pod("joiner", claim="held")
    claim = (await lab.api.get(f"{lab.claims}/held")).body
    assert sorted(c["name"] for c in claim["status"]["reservedFor"]) == ["first", "joiner"]
    await lab.claim("fresh")
    spec = (await lab.api.get(f"{lab.pods}/first")).body["spec"]
    refused = {k: spec[k] for k in ("tolerations", "nodeSelector")}
    refused["containers"] = [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]
    refused["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "fresh"}]
    await lab.api.must(lab.api.post(lab.pods, {"metadata": {"name": "refused"}, "spec": refused}))
    await lab.sleep(10)
    assert await lab.state("refused") == "Pending"


async def test_a_budget_stops_the_eviction_api_and_not_a_taint(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.holder("web", app="web")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    path = f"/apis/policy/v1/namespaces/{lab.namespace}/poddisruptionbudgets"
    await lab.api.must(lab.api.post(path, budget))

    async def counted() -> bool:
        status = (await lab.api.get(f"{path}/web")).body.get("status") or {}
        return status.get("observedGeneration") == 1 and status.get("currentHealthy") == 1

    await lab.eventually(counted)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": lab.namespace}}
    refused = await lab.api.post(f"{lab.pods}/web/eviction", eviction)
    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
    assert refused.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await lab.rule("r", "NoExecute")
    await lab.gone("web")


async def test_an_allocated_device_is_free_only_when_the_pod_is_gone(taint_lab: Lab) -> None:
    lab = taint_lab
    await lab.holder("p")
    await lab.rule("r", "NoExecute")
    await lab.becomes("r", "PodsPendingEviction")

    async def terminating() -> bool:
        return await lab.state("p") == "Terminating"

    await lab.eventually(terminating)
    claim = (await lab.api.get(f"{lab.claims}/p")).body
    assert claim["status"]["allocation"]
    await lab.gone("p")

    async def deallocated() -> bool:
        status = (await lab.api.get(f"{lab.claims}/p")).body.get("status") or {}
        return "allocation" not in status

    await lab.eventually(deallocated)
