"""The whole sandbox: its fleet, its helpers, its end."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from taintctl.ports.clock import SystemClock
from taintctl.sandbox import fleet
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.controlplane.objects import BUDGETS, CLAIMS, NODES, PODS, RULES, SLICES
from taintctl.sandbox.controlplane.podclaims import allocation_results
from taintctl.sandbox.store import ApiError, Store
from tests.sandbox.controlplane.plane import rule

SPEED = 50.0


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(speed=SPEED) as made:
        yield made


def on_first_node(sandbox: Sandbox) -> dict[str, list[str]]:
    """The devices of the first node's pool that each claim's pods hold."""
    held: dict[str, list[str]] = {}
    for claim in sandbox.store.list(CLAIMS):
        devices = [r["device"] for r in allocation_results(claim) if r["pool"] == "gpu-worker-01"]
        for consumer in claim["status"].get("reservedFor", ()) if devices else ():
            held[consumer["name"]] = devices
    return held


async def test_the_fleet_shows_everything_on_its_first_node(sandbox: Sandbox) -> None:
    assert {p["status"]["phase"] for p in sandbox.store.list(PODS)} == {"Running"}
    held = on_first_node(sandbox)
    assert held.pop("dcgm-0") == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert set(held) == {"train-01", "inference-0", "inference-1", "inference-2", "notebook-0"}
    assert held["inference-0"] == held["inference-1"] == held["inference-2"]
    assert held["train-01"] != held["inference-0"] != held["notebook-0"]
    budget = sandbox.store.get(BUDGETS, "team-b", "inference")["status"]
    assert (budget["expectedPods"], budget["desiredHealthy"], budget["disruptionsAllowed"]) == (3, 2, 1)


async def test_a_dry_run_over_the_first_pool(sandbox: Sandbox) -> None:
    sandbox.store.create(RULES, rule("dry", "None", driver=fleet.DRIVER, pool="gpu-worker-01"))
    await sandbox.until(lambda: bool(sandbox.store.get(RULES, None, "dry")["status"]), 10)
    [told] = sandbox.store.get(RULES, None, "dry")["status"]["conditions"]
    # One training pod and three that share; neither the notebook (extended resource) nor the monitor (tolerates).
    # Allocated: one device each for train-01, the shared claim and the notebook, and all four for the monitor.
    assert told["message"].startswith(
        "4 published devices selected. 7 allocated devices selected. 4 pods would be evicted in 2 different namespaces "
    )


async def test_two_fleets_are_the_same() -> None:
    stores = [Store(SystemClock()) for _ in range(2)]
    for store in stores:
        fleet.build(store, nodes=2, gpus_per_node=2)
    shapes = [
        [(key, o["metadata"]["name"], o["spec"]) for key in (SLICES, PODS, CLAIMS, NODES) for o in store.list(key)]
        for store in stores
    ]
    assert shapes[0] == shapes[1]
    uuids = {d["attributes"]["uuid"]["string"] for s in stores[0].list(SLICES) for d in s["spec"]["devices"]}
    assert len(uuids) == 4


@pytest.mark.parametrize("gpus", [1, 2, 8])
async def test_every_size_of_node_settles(gpus: int) -> None:
    async with Sandbox(nodes=1, gpus_per_node=gpus, speed=SPEED) as made:
        assert {p["status"]["phase"] for p in made.store.list(PODS)} == {"Running"}


def devices_of(slices: list[dict[str, Any]]) -> dict[str, Any]:
    return {d["name"]: d for s in slices for d in s["spec"].get("devices", ())}


def memory_slices(device: dict[str, Any]) -> tuple[str, list[int]]:
    """The counter set that a device consumes from, and which eighths of the memory."""
    [consumed] = device["consumesCounters"]
    places = [int(name.removeprefix("memory-slice-")) for name in consumed["counters"] if name != "memory"]
    return consumed["counterSet"], sorted(places)


def test_gpus_in_partitions_are_published_as_the_driver_does() -> None:
    # generateSplitResourceSlices of NVIDIA's driver: the counters in slices of up to 8 sets, then a slice a GPU.
    slices = fleet.resource_slices("n1", 9, 2)
    assert [s["metadata"]["name"] for s in slices] == [
        "n1-counters-0",
        "n1-counters-1",
        *(f"n1-gpu-{i}" for i in range(9)),
    ]
    assert {s["spec"]["pool"]["resourceSliceCount"] for s in slices} == {11}
    assert [len(s["spec"].get("sharedCounters", ())) for s in slices[:3]] == [8, 1, 0]
    devices = devices_of(slices)
    assert len(devices) == 27
    plain = devices_of(fleet.resource_slices("n1", 9))
    whole, first, second = (devices[f"gpu-8{name}"] for name in ("", "-mig-3g40gb-9-0", "-mig-3g40gb-9-4"))
    assert {k: v for k, v in whole.items() if k != "consumesCounters"} == plain["gpu-8"]
    assert memory_slices(whole) == ("gpu-8-counter-set", [0, 1, 2, 3, 4, 5, 6, 7])
    assert memory_slices(first) == ("gpu-8-counter-set", [0, 1, 2, 3])
    assert memory_slices(second) == ("gpu-8-counter-set", [4, 5, 6, 7])
    assert first["attributes"] == {
        "type": {"string": "mig"},
        "parentUUID": whole["attributes"]["uuid"],
        "profile": {"string": "3g.40gb"},
        "model": {"string": "H100"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:1f:00.0"},
    }
    assert first["capacity"] == {"memory": {"value": "40Gi"}}


@pytest.mark.parametrize(
    ("partitions", "profile", "starts"),
    [
        # The placements of an H100 with 80 GB: NVIDIA MIG User Guide, supported profiles.
        (1, "7g80gb-0", [0]),
        (2, "3g40gb-9", [0, 4]),
        (3, "2g20gb-14", [0, 2, 4]),
        (4, "1g20gb-15", [0, 2, 4, 6]),
        (5, "1g10gb-19", [0, 1, 2, 3, 4]),
        (6, "1g10gb-19", [0, 1, 2, 3, 4, 5]),
        (7, "1g10gb-19", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_each_number_of_partitions_fits_its_gpu(partitions: int, profile: str, starts: list[int]) -> None:
    devices = devices_of(fleet.resource_slices("n1", 1, partitions))
    assert set(devices) == {"gpu-0", *(f"gpu-0-mig-{profile}-{start}" for start in starts)}
    used = [place for name, device in devices.items() if name != "gpu-0" for place in memory_slices(device)[1]]
    assert len(used) == len(set(used))
    assert set(used) <= set(range(8))


async def test_a_fleet_in_partitions_runs_both_kinds_beside_each_other() -> None:
    async with Sandbox(nodes=2, gpus_per_node=4, partitions=7, speed=SPEED) as made:
        assert {p["status"]["phase"] for p in made.store.list(PODS)} == {"Running"}
        held = on_first_node(made)
        whole = {held.pop(name)[0] for name in ("train-01", "inference-0", "notebook-0")}
        assert whole == {"gpu-0", "gpu-1", "gpu-2"}
        parts = [held.pop("batch-0"), held.pop("batch-1")]
        assert sorted(parts) == [["gpu-3-mig-1g10gb-19-0"], ["gpu-3-mig-1g10gb-19-1"]]
        assert set(held) == {"inference-1", "inference-2"}
        made.taint_device("gpu-worker-01", "gpu-3-mig-1g10gb-19-4", "k", "NoSchedule")
        slices = [s for s in made.store.list(SLICES) if s["spec"]["nodeName"] == "gpu-worker-01"]
        tainted = [name for name, device in devices_of(slices).items() if "taints" in device]
        assert tainted == ["gpu-3-mig-1g10gb-19-4"]
        made.add_node("late", 1)
        assert {s["metadata"]["name"] for s in made.store.list(SLICES)} >= {"late-counters-0", "late-gpu-0"}
        made.remove_slice("gpu-worker-01")
        left = {s["spec"]["nodeName"] for s in made.store.list(SLICES)}
        assert left == {"gpu-worker-02", "late"}


@pytest.mark.parametrize("gpus", [1, 2, 9])
async def test_every_size_of_node_in_partitions_settles(gpus: int) -> None:
    async with Sandbox(nodes=2, gpus_per_node=gpus, partitions=1, speed=SPEED) as made:
        assert {p["status"]["phase"] for p in made.store.list(PODS)} == {"Running"}
        assert on_first_node(made)["batch-0"] == [f"gpu-{gpus - 1}-mig-7g80gb-0-0"]


@pytest.mark.parametrize("partitions", [-1, 8])
def test_partitions_that_cannot_be(partitions: int) -> None:
    store = Store(SystemClock())
    with pytest.raises(ValueError, match=f"partitions: {partitions} is not between 1 and 7"):
        fleet.build(store, nodes=1, gpus_per_node=1, partitions=partitions)
    assert store.list(NODES) == []


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 4), (3, 0), (3, 129), (10_001, 1)])
def test_fleets_that_cannot_be(nodes: int, gpus: int) -> None:
    with pytest.raises(ValueError, match="is not between 1 and"):
        fleet.build(Store(SystemClock()), nodes=nodes, gpus_per_node=gpus)


async def get(sandbox: Sandbox, path: str, token: str) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as session, session.get(sandbox.url + path, headers=headers) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(("kubernetes", "version"), [("1.37", "v1"), ("1.36", "v1beta2")])
async def test_which_version_serves_the_rules(kubernetes: str, version: str) -> None:
    async with Sandbox(kubernetes=kubernetes, speed=SPEED, fleet=False) as made:
        token = made.kubeconfig()["users"][0]["user"]["token"]
        status, body = await get(made, f"/apis/resource.k8s.io/{version}/devicetaintrules", token)
        assert (status, body["kind"]) == (200, "DeviceTaintRuleList")
        other = "v1" if version == "v1beta2" else "v1beta2"
        status, _ = await get(made, f"/apis/resource.k8s.io/{other}/devicetaintrules", token)
        assert status == 404
        assert made.store.list(NODES) == []


async def test_a_kubeconfig_file_is_for_its_owner_only(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "config"
    target.write_text("old and readable")
    os.chmod(target, 0o644)
    written = sandbox.write_kubeconfig(target)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert yaml.safe_load(written.read_text()) == sandbox.kubeconfig()
    with pytest.raises(KeyError, match="no user nobody"):
        sandbox.kubeconfig("nobody")


async def test_apply_creates_and_merges(sandbox: Sandbox) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1", "b": "2"}}
    [first] = sandbox.apply([manifest])
    [second] = sandbox.apply([{**manifest, "data": {"a": "3", "b": None}}])
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert second["data"] == {"a": "3"}
    with pytest.raises(ValueError, match=r"serves no example\.com"):
        sandbox.apply([{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}}])


async def test_what_a_driver_does_to_its_slice(sandbox: Sandbox) -> None:
    sandbox.taint_device("gpu-worker-02", "gpu-1", "gpu.example.com/xid", "NoSchedule", "79")
    device = sandbox.store.get(SLICES, None, "gpu-worker-02-gpu")["spec"]["devices"][1]
    [taint] = device["taints"]
    assert (taint["key"], taint["value"], taint["effect"]) == ("gpu.example.com/xid", "79", "NoSchedule")
    sandbox.untaint_device("gpu-worker-02", "gpu-1", "gpu.example.com/xid")
    assert "taints" not in sandbox.store.get(SLICES, None, "gpu-worker-02-gpu")["spec"]["devices"][1]
    with pytest.raises(ApiError, match="publishes no device gpu-9"):
        sandbox.taint_device("gpu-worker-02", "gpu-9", "k", "NoSchedule")
    sandbox.remove_slice("gpu-worker-02")
    with pytest.raises(ApiError, match="not found"):
        sandbox.taint_device("gpu-worker-02", "gpu-1", "k", "NoSchedule")


async def test_the_nodes_of_a_fleet_have_been_ready_for_a_while(sandbox: Sandbox) -> None:
    sandbox.add_node("extra", 2)
    ready = {node["metadata"]["name"]: node["status"]["conditions"][0] for node in sandbox.store.list("nodes")}
    now = sandbox.clock.now()
    for name, condition in ready.items():
        assert (condition["type"], condition["status"]) == ("Ready", "True")
        since = now - datetime.fromisoformat(condition["lastTransitionTime"])
        assert (since < timedelta(minutes=5)) is (name == "extra"), name


async def test_a_new_node_takes_pods(sandbox: Sandbox) -> None:
    sandbox.add_node("extra", 2)
    sandbox.start_pod("team-a", "p", on="extra", gpus=2)
    running = await sandbox.until(lambda: sandbox.store.get(PODS, "team-a", "p")["status"]["phase"] == "Running", 10)
    assert running


async def test_until_gives_up(sandbox: Sandbox) -> None:
    assert await sandbox.until(lambda: False, 1) is False


async def test_nothing_is_left_running_after_the_end() -> None:
    before = asyncio.all_tasks()
    async with Sandbox(speed=SPEED) as made:
        url = made.url
    assert asyncio.all_tasks() == before
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{url}/healthz")


def test_a_clock_brings_its_own_speed() -> None:
    with pytest.raises(ValueError, match="a clock brings its own speed"):
        Sandbox(clock=SystemClock(), speed=2.0)


def test_an_unknown_controller_is_named_with_those_there_are() -> None:
    with pytest.raises(KeyError, match="no controller nonsense; there are claims, scheduler"):
        Sandbox().manager["nonsense"]
