"""The policies to start from are good, and do what their head comments say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from taintctl.api.check import KINDS, check
from taintctl.api.crds import manifests
from taintctl.api.plan import Budget, DeviceID, Plan, PlannedDevice, PlannedPod
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import PodEffect
from taintctl.api.window import MaintenanceWindow
from taintctl.policy import Evaluation, evaluate, next_occurrences, people_needed
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


def test_there_are_six_policies_and_a_window() -> None:
    assert [(read(path.name)["kind"], path.name) for path in FILES] == [
        ("EvictionPolicy", "autopilot-small.yaml"),
        ("EvictionPolicy", "careful.yaml"),
        ("EvictionPolicy", "inference.yaml"),
        ("EvictionPolicy", "lab.yaml"),
        ("MaintenanceWindow", "nightly-window.yaml"),
        ("EvictionPolicy", "strict.yaml"),
        ("EvictionPolicy", "training.yaml"),
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_policy_is_named_after_its_file_which_says_how_it_is_taken(path: Path) -> None:
    if (obj := read(path.name))["kind"] == "EvictionPolicy":
        assert obj["metadata"]["name"] == path.stem
        assert f"spec.policyName: {path.stem}" in path.read_text()


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


def a_plan(
    *,
    pods: int,
    namespaces: int = 1,
    devices: int = 1,
    published: int = 0,
    elsewhere: int = 0,
    budgets: tuple[Budget, ...] = (),
    **first: Any,
) -> Plan:
    """`first` changes the first pod; `elsewhere`: devices that other runs keep out."""
    ids = [DeviceID("gpu.example.com", "node-1", f"gpu-{number}") for number in range(devices)]
    return Plan(
        devices=tuple(PlannedDevice(device) for device in ids),
        pods=tuple(
            replace(
                PlannedPod(f"team-{number % namespaces}", f"pod-{number}", f"uid-{number}", PodEffect.EVICTED),
                **{"namespace_labels": (), **({} if number else first)},
            )
            for number in range(pods)
        ),
        rules=(),
        budgets=budgets,
        published=published,
        elsewhere=elsewhere,
    )


def judged(plan: Plan, name: str) -> Evaluation:
    return evaluate(plan, policy(name), drain_timeout=timedelta(minutes=30), time_left=timedelta(hours=8))


def violations(plan: Plan, name: str) -> tuple[str, ...]:
    return tuple(violation.check for violation in judged(plan, name).violations)


def people(plan: Plan, name: str) -> int:
    return people_needed(plan, policy(name), protected=bool(judged(plan, name).protected))


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


BROKEN = (Budget("team-0", "web", allowed=0, needed=1),)
STAYS = {"effect": PodEffect.TOLERATES}
# Of 320 devices a twentieth is 16, a tenth 32, a quarter 80, a third (33%) 105.6, half 160; of 24 a twentieth is 1.2, a
# tenth 2.4, a quarter 6.
EXPECTED: list[tuple[str, str, Plan, tuple[str, ...], int]] = [
    # policy, what, plan, violations, people
    ("training", "idle devices", a_plan(pods=0, devices=32, published=320), (), 0),
    ("training", "more idle devices", a_plan(pods=0, devices=33, published=320), (), 1),
    ("training", "one pod", a_plan(pods=1, devices=8, published=320), (), 1),
    ("training", "the largest", a_plan(pods=128, namespaces=4, devices=80, published=320), (), 1),
    ("training", "one device more", a_plan(pods=1, devices=81, published=320), ("maxDevices",), 1),
    ("training", "one pod more", a_plan(pods=129, devices=8, published=320), ("maxPods",), 1),
    ("training", "others are out", a_plan(pods=1, devices=8, published=320, elsewhere=97), (), 1),
    (
        "training",
        "too many others are out",
        a_plan(pods=1, devices=8, published=320, elsewhere=98),
        ("maxUnavailable",),
        1,
    ),
    ("training", "a node of eight in a small cluster", a_plan(pods=1, devices=8, published=24), (), 1),
    (
        "training",
        "uninterrupted",
        a_plan(pods=1, published=320, labels=(("example.com/uninterrupted", "true"),)),
        ("protected",),
        1,
    ),
    ("training", "high priority", a_plan(pods=1, published=320, priority=1_000_000), ("protected",), 1),
    ("training", "a budget", a_plan(pods=1, published=320, budgets=BROKEN), ("budgets",), 1),
    ("training", "a tolerating pod", a_plan(pods=1, published=320, **STAYS), (), 0),
    ("inference", "few replicas", a_plan(pods=8, namespaces=2, devices=16, published=320), (), 0),
    ("inference", "one replica more", a_plan(pods=9, devices=16, published=320), (), 1),
    ("inference", "one device more", a_plan(pods=8, devices=17, published=320), (), 1),
    ("inference", "the largest", a_plan(pods=40, namespaces=10, devices=32, published=320), (), 1),
    (
        "inference",
        "beyond it",
        a_plan(pods=41, namespaces=11, devices=33, published=320),
        ("maxPods", "maxNamespaces", "maxDevices", "maxUnavailable"),
        1,
    ),
    (
        "inference",
        "others are out",
        a_plan(pods=1, devices=16, published=320, elsewhere=17),
        ("maxUnavailable",),
        0,
    ),
    ("inference", "one of three devices", a_plan(pods=1, devices=1, published=3), (), 0),
    ("inference", "two of three", a_plan(pods=1, devices=2, published=3), ("maxDevices", "maxUnavailable"), 1),
    ("inference", "kube-system", a_plan(pods=1, published=320, namespace="kube-system"), ("protected",), 1),
    (
        "inference",
        "a system class",
        a_plan(pods=1, published=320, priority_class="system-node-critical"),
        ("protected",),
        1,
    ),
    ("inference", "a budget", a_plan(pods=1, published=320, budgets=BROKEN), ("budgets",), 0),
    ("inference", "a tolerating pod", a_plan(pods=1, published=320, **STAYS), ("toleratingPods",), 0),
    ("inference", "a monitor", a_plan(pods=1, published=320, admin_access=True, **STAYS), (), 0),
    ("strict", "nobody", a_plan(pods=0, devices=1, published=24), (), 2),
    ("strict", "the largest", a_plan(pods=10, devices=16, published=320), (), 2),
    (
        "strict",
        "beyond it",
        a_plan(pods=11, namespaces=2, devices=17, published=320),
        ("maxPods", "maxNamespaces", "maxDevices", "maxUnavailable"),
        2,
    ),
    (
        "strict",
        "production",
        a_plan(pods=1, published=24, namespace_labels=(("env", "production"),)),
        ("protected",),
        2,
    ),
    ("strict", "staging", a_plan(pods=1, published=24, namespace_labels=(("env", "staging"),)), (), 2),
    ("strict", "an unknown namespace", a_plan(pods=1, published=24, namespace_labels=None), ("protected",), 2),
    ("strict", "priority 999", a_plan(pods=1, published=24, priority=999), (), 2),
    ("strict", "priority 1000", a_plan(pods=1, published=24, priority=1000), ("protected",), 2),
    ("strict", "a tolerating pod", a_plan(pods=1, published=24, **STAYS), ("toleratingPods",), 2),
    ("strict", "a budget", a_plan(pods=1, published=24, budgets=BROKEN), ("budgets",), 2),
    ("lab", "half of all", a_plan(pods=500, namespaces=50, devices=160, published=320), (), 0),
    ("lab", "more than half", a_plan(pods=1, devices=161, published=320), ("maxUnavailable",), 0),
    ("lab", "a budget", a_plan(pods=1, published=8, budgets=BROKEN), (), 0),
    ("lab", "a tolerating pod", a_plan(pods=1, published=8, **STAYS), (), 0),
    ("lab", "kube-system", a_plan(pods=1, published=8, namespace="kube-system"), ("protected",), 1),
]


@pytest.mark.parametrize(
    ("name", "plan", "found", "needed"),
    [(name, plan, found, needed) for name, _, plan, found, needed in EXPECTED],
    ids=[f"{name}: {what}" for name, what, *_ in EXPECTED],
)
def test_a_preset_judges_as_its_head_comment_says(name: str, plan: Plan, found: tuple[str, ...], needed: int) -> None:
    assert violations(plan, f"{name}.yaml") == found
    assert people(plan, f"{name}.yaml") == needed


@pytest.mark.parametrize(
    ("name", "warned"),
    [("training", ("toleratingPods",)), ("lab", ("budgets",))],
)
def test_what_a_preset_only_warns_of(name: str, warned: tuple[str, ...]) -> None:
    plan = replace(a_plan(pods=2, published=320, **STAYS), budgets=BROKEN if name == "lab" else ())
    assert tuple(warning.check for warning in judged(plan, f"{name}.yaml").warnings) == warned


def test_a_question_of_training_is_asked_again_and_in_a_lab_one_person_is_enough() -> None:
    by_name = {name: policy(f"{name}.yaml").spec.approval for name in ("training", "inference", "strict", "lab")}
    assert {name: str(approval.on_expiry) for name, approval in by_name.items()} == {
        "training": "AskAgain",
        "inference": "Cancel",
        "strict": "Cancel",
        "lab": "Cancel",
    }
    assert [name for name, approval in by_name.items() if approval.self_approval] == ["lab"]
