"""`taintctl plan --from-dump`: the same plan from what kubectl wrote down; one line for a dump that is not whole."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from taintctl.sandbox.apiserver.meta import Object
from tests.cli.conftest import Lab, _serve

GROUPS = {
    "resourceslices": "resource.k8s.io",
    "resourceclaims": "resource.k8s.io",
    "deviceclasses": "resource.k8s.io",
    "poddisruptionbudgets": "policy",
    "maintenancewindows": "taintctl.dev",
    "evictionpolicies": "taintctl.dev",
    "devicetaintrules": "resource.k8s.io",
    "replicasets": "apps",
    "deployments": "apps",
}
NEEDED = ("resourceslices", "resourceclaims", "deviceclasses", "pods", "nodes", "namespaces", "poddisruptionbudgets")
TARGET = ("--driver", "gpu.example.com", "--pool", "gpu-worker-01")
Captured = pytest.CaptureFixture[str]

TRAIN: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "serve", "namespace": "team-a"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "serve"}},
        "template": {
            "metadata": {"labels": {"app": "serve"}},
            "spec": {
                "nodeName": "",
                "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            },
        },
    },
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A fleet of its own with a Deployment that uses GPUs, which nothing changes."""
    for lab in _serve(tmp_path_factory.mktemp("fleet"), controller=False):
        lab.call(lambda lab=lab: lab.sandbox.apply([TRAIN]))

        def there(lab: Lab = lab) -> bool:
            pods = lab.sandbox.store.list("pods")
            return (
                sum(
                    p["metadata"].get("labels", {}).get("app") == "serve" and p["status"].get("phase") == "Running"
                    for p in pods
                )
                == 2
            )

        lab.until(there)
        yield lab


def listed(lab: Lab, resource: str) -> dict[str, Any]:
    """As `kubectl get RESOURCE --all-namespaces -o json` writes it: a List that does not say of what it is."""
    group = GROUPS.get(resource, "")
    items = lab.call(lambda: lab.sandbox.store.list(f"{resource}.{group}" if group else resource))
    return {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}


@pytest.fixture
def dump(fleet: Lab, tmp_path: Path) -> Path:
    for resource in NEEDED:
        (tmp_path / f"{resource}.json").write_text(json.dumps(listed(fleet, resource)))
    return tmp_path


def add(fleet: Lab, dump: Path, *resources: str) -> None:
    for resource in resources:
        (dump / f"{resource}.json").write_text(json.dumps(listed(fleet, resource)))


def plan(fleet: Lab, capsys: Captured, *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = fleet.run("plan", *arguments, "-o", "json")
    return status, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "target",
    [
        TARGET,
        (*TARGET, "--device", "gpu-0"),
        ("--node-selector", "kubernetes.io/hostname=gpu-worker-02"),
        ("--device-class", "gpu.example.com", "--whole-driver"),
        ("--driver", "gpu.example.com", "--whole-driver", "--policy", "policies/training.yaml"),
    ],
    ids=["pool", "device", "labels", "class", "whole driver and a policy that is not applied"],
)
def test_a_plan_from_a_dump_is_the_plan_of_the_cluster(
    fleet: Lab, dump: Path, capsys: Captured, target: tuple[str, ...]
) -> None:
    add(fleet, dump, "replicasets", "deployments", "devicetaintrules")
    status, live = plan(fleet, capsys, *target)
    offline, dumped = plan(fleet, capsys, *target, "--from-dump", str(dump))
    assert dumped.pop("computedAt")
    assert live.pop("computedAt")
    assert dumped == live
    assert offline == status


def test_a_driver_that_is_not_there_is_said_of_a_dump_as_of_a_cluster(fleet: Lab, dump: Path, capsys: Captured) -> None:
    """Neither knows of drivers that were not asked about."""
    target = ("--driver", "gpu.example.org", "--pool", "gpu-worker-01")
    assert fleet.run("plan", *target) == 1
    of_cluster = capsys.readouterr().err
    assert fleet.run("plan", *target, "--from-dump", str(dump)) == 1
    assert capsys.readouterr().err == of_cluster
    assert "No ResourceSlice is of driver gpu.example.org; is it running?" in of_cluster


def test_owners_are_followed_through_the_files_that_are_there(fleet: Lab, dump: Path, capsys: Captured) -> None:
    everything = ("--driver", "gpu.example.com", "--whole-driver", "--from-dump", str(dump))

    def owners() -> set[tuple[str, str | None]]:
        pods = plan(fleet, capsys, *everything)[1]["pods"]
        return {(p["owner"], p.get("ownerUnread") or None) for p in pods if p["name"].startswith("serve-")}

    [(name, why)] = owners()
    assert name.startswith("ReplicaSet/serve-")
    assert why == "UnknownKind"
    add(fleet, dump, "replicasets")
    assert owners() == {("Deployment/serve", "UnknownKind")}
    add(fleet, dump, "deployments")
    assert owners() == {("Deployment/serve", None)}


def test_policies_and_windows_come_from_the_dump_too(fleet: Lab, dump: Path, capsys: Captured) -> None:
    assert fleet.run("plan", *TARGET, "--from-dump", str(dump), "--policy", "careful") == 1
    assert capsys.readouterr().err.startswith("taintctl: there is no EvictionPolicy careful;")
    policy = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "EvictionPolicy", "metadata": {"name": "careful"}}
    policy["spec"] = {"limits": {"maxPods": 1}}
    (dump / "evictionpolicies.json").write_text(json.dumps({"kind": "List", "items": [policy]}))
    status, judged = plan(fleet, capsys, *TARGET, "--from-dump", str(dump), "--policy", "careful")
    assert status == 1
    assert [v["check"] for v in judged["violations"]] == ["maxPods", "budgets"]


def test_no_cluster_is_asked(fleet: Lab, dump: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    from taintctl.cli.main import run

    assert run(["plan", *TARGET, "--device", "gpu-3", "--from-dump", str(dump)]) == 0
    assert "Nothing was changed." in capsys.readouterr().out


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _part(text: str) -> str:
    return json.dumps({**json.loads(text), "metadata": {"continue": "eyJ2IjoibWV0YS5rOHMuaW8"}})


def _first(text: str) -> str:
    return json.dumps(json.loads(text)["items"][0])


def _without_items(text: str) -> str:
    return json.dumps({"kind": "List"})


def _without_name(text: str) -> str:
    found = json.loads(text)
    del found["items"][0]["spec"]
    return json.dumps(found)


@pytest.mark.parametrize(
    ("resource", "damage", "said"),
    [
        ("resourceclaims", _cut, "resourceclaims.json is cut off, or no JSON of kubectl's"),
        ("pods", lambda _: "", "pods.json is cut off, or no JSON of kubectl's"),
        ("pods", _part, "pods.json is a part of a list (metadata.continue); write all of it"),
        ("nodes", _first, "nodes.json holds one Node, and a list is wanted"),
        ("nodes", _without_items, "nodes.json is a list without items"),
        ("resourceslices", _without_name, "resourceslices.json holds a ResourceSlice that can't be read"),
        ("pods", lambda _: json.dumps({"kind": "List", "items": []}), "does not hold pod gpu-monitoring/dcgm-0, for"),
    ],
    ids=["cut off", "empty", "part of a list", "one object", "no items", "a field missing", "pods missing"],
)
def test_a_dump_that_is_not_whole_is_one_line(
    fleet: Lab, dump: Path, capsys: Captured, resource: str, damage: Any, said: str
) -> None:
    file = dump / f"{resource}.json"
    file.write_text(damage(file.read_text()))
    assert fleet.run("plan", *TARGET, "--from-dump", str(dump)) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("resource", NEEDED)
def test_a_file_that_is_missing_is_named_with_the_command_that_writes_it(
    fleet: Lab, dump: Path, capsys: Captured, resource: str
) -> None:
    (dump / f"{resource}.json").unlink()
    assert fleet.run("plan", *TARGET, "--from-dump", str(dump)) == 2
    error = capsys.readouterr().err
    assert f"write it: kubectl get {resource} --all-namespaces -o json > {dump}/{resource}.json" in error
    assert error.count("\n") == 1


def test_a_file_with_other_objects_is_refused(fleet: Lab, dump: Path, capsys: Captured) -> None:
    (dump / "nodes.json").write_text((dump / "pods.json").read_text())
    assert fleet.run("plan", *TARGET, "--from-dump", str(dump)) == 2
    assert "nodes.json holds a Pod, where Nodes belong" in capsys.readouterr().err


def test_a_policy_file_is_refused_by_its_field(fleet: Lab, tmp_path: Path, capsys: Captured) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: EvictionPolicy\nmetadata: {name: bad}\nspec: {limits: {maxDevices: 101%}}\n")
    assert fleet.run("plan", *TARGET, "--policy", str(bad)) == 2
    error = capsys.readouterr().err
    assert f"{bad}: spec.limits.maxDevices" in error
    assert error.count("\n") == 1
    assert fleet.run("plan", *TARGET, "--policy", str(tmp_path / "none.yaml")) == 2
    assert "can't be read" in capsys.readouterr().err


def test_the_shape_of_the_document_is_the_one_that_is_documented(fleet: Lab, dump: Path, capsys: Captured) -> None:
    found = plan(fleet, capsys, "--driver", "gpu.example.com", "--whole-driver", "--from-dump", str(dump))[1]
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    rows = dict(re.findall(r"^\| (`.*?`(?:, `.*?`)*) \| (.*) \|$", page, flags=re.M))
    documented = {
        name.removesuffix("[]"): text for names, text in rows.items() for name in re.findall("`(.*?)`", names)
    }
    assert set(found) == set(documented)
    for field in ("counts", "devices", "pods", "rules", "budgets", "violations"):
        part = found[field] if isinstance(found[field], dict) else found[field][0]
        assert set(part) <= set(re.findall("`(.*?)`", documented[field])), field
