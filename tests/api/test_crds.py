"""The generated CustomResourceDefinitions: structural, bounded, committed, and in agreement with check()."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from pydantic import Field

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import SpecModel
from taintctl.api.check import KINDS, Own, check
from taintctl.api.crds import COLUMNS, manifests
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun
from taintctl.api.schema import _immutability, schema
from taintctl.api.window import MaintenanceWindow
from taintctl.sandbox.store import ApiError, Store
from tests.api.builders import a_policy, a_run, a_window, an_approval
from tests.api.cases import BAD, GOOD, UNKNOWN_FIELDS, Case
from tools.crds import differences, render

Schema = dict[str, Any]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
RUNS = "maintenanceruns.taintctl.dev"


def nodes(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from nodes(schema[key], f"{path}[]")


ALL_NODES = [node for kind in KINDS for node in nodes(schema(kind), kind.KIND)]


@pytest.mark.parametrize(("path", "node"), ALL_NODES, ids=[path for path, _ in ALL_NODES])
def test_every_node_is_structural_and_bounded(path: str, node: Schema) -> None:
    # https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
    if node.get("x-kubernetes-int-or-string"):
        # Bounded by its rule, and it has no type: that is what int-or-string is for.
        assert set(node) == {"description", "x-kubernetes-int-or-string", "x-kubernetes-validations"}
        return
    assert node["type"] in {"object", "array", "string", "integer", "boolean"}
    assert not node.keys() & {"$ref", "anyOf", "allOf", "oneOf", "not", "title", "const", "nullable"}
    assert node.get("default", "") is not None
    if node["type"] == "string" and path.count(".") > 1:
        assert "maxLength" in node or "enum" in node
    if node["type"] == "array":
        assert node["maxItems"] > 0
    if node["type"] == "object" and "properties" not in node and path.count(".") > 1:
        assert node["maxProperties"] > 0
    if "additionalProperties" in node:
        assert "properties" not in node
    for name in node.get("required", []):
        assert name in node["properties"]


def test_every_level_of_a_spec_keeps_unknown_fields_and_no_level_of_a_status_does() -> None:
    for path, node in ALL_NODES:
        if node.get("type") == "object" and "properties" in node and path.count(".") > 0:
            assert node.get("x-kubernetes-preserve-unknown-fields", False) is (".spec" in path), path


def test_a_status_has_no_defaults() -> None:
    assert [path for path, node in ALL_NODES if ".status" in path and "default" in node] == []


def test_the_committed_files_are_the_generated_ones() -> None:
    assert differences(render()) == []


def test_a_difference_is_named(tmp_path: Path) -> None:
    files = render()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "taintctl.dev_maintenanceruns.yaml").write_text("edited: true\n")
    (tmp_path / "taintctl.dev_evictionpolicies.yaml").unlink()
    (tmp_path / "taintctl.dev_healthpolicies.yaml").write_text("old: true\n")
    assert differences(files, tmp_path) == [
        "taintctl.dev_evictionpolicies.yaml: missing",
        "taintctl.dev_healthpolicies.yaml: not made by any model",
        "taintctl.dev_maintenanceruns.yaml: differs",
    ]


def test_the_files_hold_what_is_generated() -> None:
    read = {name: yaml.safe_load(text) for name, text in render().items() if name.endswith(".yaml")}
    assert read == manifests()


def test_names_are_those_of_the_api_s_description() -> None:
    names = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in manifests().values()}
    assert {kind: spec["names"]["shortNames"] for kind, spec in names.items()} == {
        "MaintenanceWindow": ["mw"],
        "MaintenanceRun": ["mr"],
        "EvictionPolicy": ["evp"],
        "MaintenanceApproval": ["ma"],
    }
    for spec in names.values():
        assert spec["group"] == "taintctl.dev"
        assert spec["scope"] == "Cluster"
        assert spec["names"]["categories"] == ["taintctl"]
        assert [version["name"] for version in spec["versions"]] == ["v1alpha1"]
        assert spec["versions"][0]["subresources"] == {"status": {}}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.KIND)
def test_every_printer_column_points_at_a_field(kind: type[Own]) -> None:
    root = schema(kind)
    for column in COLUMNS[kind]:
        path = column["jsonPath"]
        if path == ".metadata.creationTimestamp":
            continue
        node = root
        for part in path.split("[?")[0].strip(".").split("."):
            node = node["properties"][part]
        if "[?" in path:
            node = node["items"]["properties"][path.rpartition(".")[2]]
        # An int-or-string is shown as text: a column of integers leaves a percentage out.
        assert node.get("type", "string") == column["type"], path
        assert "[" not in path or '@.type=="' in path


def test_a_field_of_a_spec_without_a_bound_is_an_error() -> None:
    class LooseSpec(SpecModel):
        comment: str = ""

    class Loose(MaintenanceRun):
        KIND: ClassVar = "Loose"
        spec: LooseSpec  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"Loose\.spec\.comment has no maxLength"):
        schema(Loose)  # type: ignore[arg-type]


def test_an_immutable_field_that_does_not_exist_is_an_error() -> None:
    class Renamed(SpecModel):
        IMMUTABLE: ClassVar[tuple[str, ...]] = ("target",)
        goal: int = 0

    with pytest.raises(ValueError, match=r"names \['target'\], which are not its fields"):
        _immutability(Renamed)


def created(store: Store, case: Case) -> dict[str, Any]:
    return store.create(f"{case.kind.PLURAL}.taintctl.dev", case.obj)


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_an_api_server_takes_a_good_object_and_its_defaults_are_the_models(store: Store, case: Case) -> None:
    stored = created(store, case)
    checked = check(case.kind, stored)
    assert checked.problems == ()
    before = check(case.kind, case.obj)
    assert checked.obj is not None
    assert before.obj is not None
    assert checked.obj.spec == before.obj.spec
    assert stored["spec"] == {**stored["spec"], **checked.obj.spec.dump()} or _has_zone(stored)


def _has_zone(stored: dict[str, Any]) -> bool:
    """We write times in UTC; the server keeps them as they came."""
    return "+01:00" in stored["spec"].get("startAt", "")


@pytest.mark.parametrize("case", BAD, ids=str)
def test_an_api_server_refuses_a_bad_object_by_the_field(store: Store, case: Case) -> None:
    if case.kept_by_server:
        assert check(case.kind, created(store, case)).problems
        return
    with pytest.raises(ApiError) as refused:
        created(store, case)
    assert refused.value.status == 422
    name = "metadata.name" if case.field == "metadata.name" else f"{case.field}: "
    assert name in refused.value.message


@pytest.mark.parametrize("case", UNKNOWN_FIELDS, ids=str)
def test_an_api_server_keeps_a_misspelt_field_for_the_controller_to_refuse(store: Store, case: Case) -> None:
    assert [p.field for p in check(case.kind, created(store, case)).problems] == [case.field]


FULL = {
    MaintenanceRun: a_run(),
    MaintenanceWindow: a_window(),
    EvictionPolicy: a_policy(),
    MaintenanceApproval: an_approval(),
}
FIELDS = [
    (kind, path) for kind in KINDS for path, _ in nodes(schema(kind)["properties"]["spec"], "spec") if "[]" not in path
]
STRANGERS = [None, True, False, 0, 1, 3, 3.0, 2.5, -1, "", "yes", "true", "3", "5m\n", "1h", [], ["a"], {}, {"a": 1}]


@pytest.mark.parametrize(("kind", "at"), FIELDS, ids=lambda one: one if isinstance(one, str) else one.KIND)
def test_check_and_an_api_server_agree_on_every_type_in_every_field(store: Store, kind: type[Own], at: str) -> None:
    *way, last = at.split(".")
    for value in STRANGERS:
        obj = copy.deepcopy(FULL[kind])
        place = obj
        for name in way:
            place = place.setdefault(name, {})
        place[last] = value
        assert bool(check(kind, obj).problems) is not _accepted(store, kind, obj), f"{at}: {value!r}"


def _accepted(store: Store, kind: type[Own], obj: dict[str, Any]) -> bool:
    """By the API server, and of what that leaves to the controller (unknown fields) by the controller."""
    key = f"{kind.PLURAL}.taintctl.dev"
    try:
        stored = store.create(key, obj)
    except ApiError:
        return False
    store.delete(key, "", obj["metadata"]["name"])
    return not check(kind, stored).problems


def test_the_names_of_python_are_no_fields_of_the_api(store: Store) -> None:
    """`work_completed` is unknown to an API server, so nothing of it is immutable or validated there."""
    for misspelt in ({"work_completed": True}, {"policy_name": "lenient"}):
        stored = store.create(RUNS, a_run(**misspelt))
        assert [p.field for p in check(MaintenanceRun, stored).problems] == [f"spec.{next(iter(misspelt))}"]
        store.delete(RUNS, "", "swap-gpu")


def test_a_failure_named_twice_is_refused_by_both(store: Store) -> None:
    run = a_run(target={"uuids": ["GPU-1", "GPU-1"]})
    assert [str(p) for p in check(MaintenanceRun, run).problems] == ["spec.target.uuids: names one UUID twice"]
    with pytest.raises(ApiError, match=r"spec\.target\.uuids\[1\]: Duplicate value"):
        store.create(RUNS, run)
    policy = a_policy(rollbackOn=["Cancelled", "Cancelled"])
    assert [str(p) for p in check(EvictionPolicy, policy).problems] == ["spec.rollbackOn: names one failure twice"]
    with pytest.raises(ApiError, match=r"spec\.rollbackOn\[1\]: Duplicate value"):
        store.create("evictionpolicies.taintctl.dev", policy)


@pytest.mark.parametrize("field", ["namespaces", "priorityClassNames"])
def test_a_name_that_is_protected_twice_is_refused_by_both(store: Store, field: str) -> None:
    policy = a_policy(protected={field: ["prod", "prod"]})
    assert [str(p) for p in check(EvictionPolicy, policy).problems] == [
        f"spec.protected.{field}: names one of them twice"
    ]
    with pytest.raises(ApiError, match=rf"spec\.protected\.{field}\[1\]: Duplicate value"):
        store.create("evictionpolicies.taintctl.dev", policy)


FULL_RUN: dict[str, Any] = {
    "policyName": "careful",
    "notice": "5m",
    "taint": {"key": "maintenance", "value": "x"},
    "drain": {"timeout": "1h"},
    "work": {"mode": "Duration", "duration": "2h"},
    "atDeadline": "Extend",
    "extendBy": "1h",
    "trigger": {"type": "Schedule", "windowName": "nightly"},
    "requestedBy": "alice",
    "startAt": "2026-12-01T21:00:00Z",
}
CHANGES: dict[str, Any] = {
    "target": {"driver": "gpu.example.com", "pool": "node-2"},
    "policyName": "other",
    "notice": "0s",
    "taint": {"key": "other"},
    "drain": {"timeout": "2h"},
    "work": {"mode": "Manual"},
    "atDeadline": "Release",
    "extendBy": "2h",
    "trigger": {"type": "Manual"},
    "requestedBy": "mallory",
    "startAt": "2026-12-01T20:00:00Z",
}


@pytest.mark.parametrize("field", MaintenanceRun.model_fields["spec"].annotation.IMMUTABLE)  # type: ignore[union-attr]
def test_a_run_s_field_can_neither_be_changed_nor_taken_away(store: Store, field: str) -> None:
    run = store.create(RUNS, a_run(**FULL_RUN))

    def change(obj: dict[str, Any]) -> None:
        obj["spec"][field] = CHANGES[field]

    def remove(obj: dict[str, Any]) -> None:
        del obj["spec"][field]

    for edit in (change, remove):
        with pytest.raises(ApiError) as refused:
            store.mutate(RUNS, "", "swap-gpu", edit)
        assert refused.value.status == 422
        # A field that is required, or that goes with another one, is refused for that as well or instead.
        assert field in refused.value.message
    assert store.get(RUNS, "", "swap-gpu")["spec"] == run["spec"]


@pytest.mark.parametrize("field", ["policyName", "requestedBy", "startAt", "extendBy"])
def test_a_run_s_immutable_field_can_not_be_added_later(store: Store, field: str) -> None:
    store.create(RUNS, a_run())
    with pytest.raises(ApiError, match=f"{field} is immutable"):
        store.mutate(RUNS, "", "swap-gpu", lambda obj: obj["spec"].update({field: FULL_RUN[field]}))


@pytest.mark.parametrize(
    "change",
    [
        {"paused": True},
        {"cancelled": True},
        {"workCompleted": True},
        {"released": True},
        {"deadline": "2026-12-03T05:00:00Z"},
    ],
    ids=str,
)
def test_the_operator_s_hand_and_the_deadline_stay_free(store: Store, change: dict[str, Any]) -> None:
    store.create(RUNS, a_run(**FULL_RUN))
    updated = store.mutate(RUNS, "", "swap-gpu", lambda obj: obj["spec"].update(change))
    assert updated["spec"] == {**updated["spec"], **change}


def test_an_approval_is_immutable_unknown_fields_included(store: Store) -> None:
    key = "maintenanceapprovals.taintctl.dev"
    store.create(key, an_approval(comment="fine"))
    for change in ({"decision": "Deny"}, {"comment": "really"}, {"note": "new"}):
        with pytest.raises(ApiError, match="spec is immutable"):
            store.mutate(key, "", "swap-gpu-alice", lambda obj, change=change: obj["spec"].update(change))
    with pytest.raises(ApiError, match="spec is immutable"):
        store.mutate(key, "", "swap-gpu-alice", lambda obj: obj["spec"].__delitem__("comment"))


def test_windows_and_policies_can_be_edited(store: Store) -> None:
    store.create("maintenancewindows.taintctl.dev", a_window())
    store.create("evictionpolicies.taintctl.dev", a_policy())
    store.mutate("maintenancewindows.taintctl.dev", "", "nightly", lambda obj: obj["spec"].update(suspend=True))
    store.mutate("evictionpolicies.taintctl.dev", "", "careful", lambda obj: obj["spec"].update(budgets="Warn"))
    assert store.get("maintenancewindows.taintctl.dev", "", "nightly")["metadata"]["generation"] == 2
    assert store.get("evictionpolicies.taintctl.dev", "", "careful")["metadata"]["generation"] == 2


def test_a_status_of_ten_thousand_pods_fits(store: Store) -> None:
    # 8 bytes a pod in base64: 4 characters for 3 bytes.
    packed = "A" * (10_000 * 8 * 4 // 3)
    asked = {"digest": "0f" * 32, "devices": packed, "pods": {"Evicted": packed}}
    status = {"phase": "AwaitingApproval", "approval": {"asked": asked, "needed": 1}}
    store.create(RUNS, a_run())
    stored = store.mutate(RUNS, "", "swap-gpu", lambda obj: obj.update(status=status), subresource="status")
    assert stored["status"] == status


def test_what_no_structural_schema_has_is_an_error() -> None:
    class OddSpec(SpecModel):
        either: Annotated[int, Field(multiple_of=2)] = 2

    class Odd(MaintenanceRun):
        KIND: ClassVar = "Odd"
        spec: OddSpec  # type: ignore[assignment]

    with pytest.raises(ValueError, match=r"Odd\.spec\.either: \['multipleOf'\] is not part of a structural schema"):
        schema(Odd)  # type: ignore[arg-type]
