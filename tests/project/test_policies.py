"""The policies to start from are good, and do what their head comments say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from taintctl.api.check import KINDS, check
from taintctl.api.crds import manifests
from taintctl.api.plan import DeviceID, Plan, PlannedDevice, PlannedPod
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.window import MaintenanceWindow
from taintctl.policy import evaluate, next_occurrences, people_needed
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.store import Store

FOLDER = Path(__file__).resolve().parents[2] / "policies"
FILES = sorted(FOLDER.glob("*.yaml"))
BY_KIND = {kind.KIND: kind for kind in KINDS}


def read(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return loaded


def policy(name: str) -> EvictionPolicy:
    obj = check(EvictionPolicy, read(name)).obj
    assert obj is not None
    return obj


@pytest.fixture(scope="module")
def store() -> Store:
    store = Store(SystemClock())
    for crd in manifests().values():
        store.create("customresourcedefinitions.apiextensions.k8s.io", crd)
    return store


def test_there_are_two_policies_and_a_window() -> None:
    assert sorted(read(path.name)["kind"] for path in FILES) == [
        "EvictionPolicy",
        "EvictionPolicy",
        "MaintenanceWindow",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_explains_itself_and_is_taken_by_an_api_server(store: Store, path: Path) -> None:
    assert path.read_text().startswith("# ")
    obj = read(path.name)
    kind = BY_KIND[obj["kind"]]
    before, stored = check(kind, obj), check(kind, store.create(f"{kind.PLURAL}.taintctl.dev", obj))
    assert before.problems == stored.problems == ()
    assert before.obj is not None
    assert stored.obj is not None
    assert stored.obj.spec == before.obj.spec


def test_the_window_evicts_nothing_by_being_applied() -> None:
    window = read("nightly-window.yaml")
    assert window["spec"]["suspend"] is True
    assert window["spec"]["policyName"] in {read(p.name)["metadata"]["name"] for p in FILES}


def test_the_window_opens_when_its_comments_say() -> None:
    window = check(MaintenanceWindow, read("nightly-window.yaml")).obj
    assert window is not None
    (night,) = next_occurrences(window.spec.schedule, datetime(2026, 12, 1, tzinfo=UTC), 1)
    # Berlin is an hour ahead of UTC in winter.
    assert night.opens == datetime(2026, 12, 1, 19, tzinfo=UTC)
    assert night.start == datetime(2026, 12, 1, 20, tzinfo=UTC)
    assert night.latest == datetime(2026, 12, 1, 22, tzinfo=UTC)
    assert night.closes == datetime(2026, 12, 2, 4, tzinfo=UTC)


def a_plan(*, pods: int, namespaces: int = 1, devices: int = 1) -> Plan:
    ids = [DeviceID("gpu.example.com", "node-1", f"gpu-{number}") for number in range(devices)]
    return Plan(
        devices=tuple(PlannedDevice(device) for device in ids),
        pods=tuple(
            PlannedPod(f"team-{number % namespaces}", f"pod-{number}", f"uid-{number}", PodEffect.EVICTED)
            for number in range(pods)
        ),
        rules=(),
    )


def violations(plan: Plan, name: str) -> tuple[str, ...]:
    evaluation = evaluate(plan, policy(name), drain_timeout=timedelta(minutes=30), time_left=timedelta(hours=8))
    return tuple(violation.check for violation in evaluation.violations)


@pytest.mark.parametrize(
    ("plan", "people"),
    [
        (a_plan(pods=2, devices=4), 0),
        (a_plan(pods=3), 1),
        (a_plan(pods=2, namespaces=2), 1),
        (a_plan(pods=1, devices=5), 1),
    ],
)
def test_careful_asks_above_two_pods_one_namespace_or_four_devices(plan: Plan, people: int) -> None:
    assert people_needed(plan, policy("careful.yaml")) == people


@pytest.mark.parametrize(
    ("name", "within", "beyond"),
    [
        ("careful.yaml", a_plan(pods=50, namespaces=5, devices=16), a_plan(pods=51)),
        ("careful.yaml", a_plan(pods=50), a_plan(pods=6, namespaces=6)),
        ("careful.yaml", a_plan(pods=0, devices=16), a_plan(pods=0, devices=17)),
        ("autopilot-small.yaml", a_plan(pods=5, namespaces=2, devices=8), a_plan(pods=6)),
        ("autopilot-small.yaml", a_plan(pods=5), a_plan(pods=3, namespaces=3)),
        ("autopilot-small.yaml", a_plan(pods=0), a_plan(pods=0, devices=9)),
    ],
)
def test_limits_block_what_is_beyond_them(name: str, within: Plan, beyond: Plan) -> None:
    assert violations(within, name) == ()
    assert len(violations(beyond, name)) == 1


def test_autopilot_small_asks_nobody() -> None:
    assert people_needed(a_plan(pods=5, namespaces=2, devices=8), policy("autopilot-small.yaml")) == 0
