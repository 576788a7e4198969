"""deploy/ renders, holds to its own rules, and its admission policies and rights do what they are for."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from taintctl.api.crds import manifests
from taintctl.cli.commands.run import run
from taintctl.controller.defaults import ACCOUNT, LEASE, NAMESPACE, PROBES_PORT
from taintctl.controller.host import ControllerOptions

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
Object = dict[str, Any]
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:taintctl"
NAMESPACED = {"ServiceAccount", "Role", "RoleBinding", "Deployment"}


def resources(kustomization: Path) -> list[Object]:
    """What `kubectl apply -k` would apply, read by hand."""
    found: list[Object] = []
    for name in yaml.safe_load(kustomization.read_text())["resources"]:
        path = kustomization.parent / name
        if path.is_dir():
            found += resources(path / "Kustomization")
        else:
            found += [obj for obj in yaml.safe_load_all(path.read_text()) if obj]
    return found


OBJECTS = resources(DEPLOY / "kustomization.yaml")


def the(kind: str, name: str) -> Object:
    (found,) = [obj for obj in OBJECTS if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return found


def test_every_manifest_is_part_of_the_base() -> None:
    listed = set(yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"])
    assert listed == {"../crds"} | {path.name for path in DEPLOY.glob("*.yaml")} - {"kustomization.yaml"}


def test_the_base_holds_the_generated_crds() -> None:
    crds = [obj for obj in OBJECTS if obj["kind"] == "CustomResourceDefinition"]
    assert sorted(crds, key=lambda crd: str(crd["metadata"]["name"])) == sorted(
        manifests().values(), key=lambda crd: str(crd["metadata"]["name"])
    )


def test_each_object_says_its_namespace_itself() -> None:
    for obj in OBJECTS:
        assert ("namespace" in obj["metadata"]) is (obj["kind"] in NAMESPACED), obj["metadata"]["name"]


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
def test_kubectl_renders_the_base() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    key = lambda obj: (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])  # noqa: E731
    assert sorted(map(key, rendered)) == sorted(map(key, OBJECTS))
    (deployment,) = [obj for obj in rendered if obj["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "taintctl:0.1.0"


def test_the_controller_runs_once_and_with_nothing_it_does_not_need() -> None:
    spec = the("Deployment", "taintctl")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}
    pod = spec["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()


def test_what_the_controller_and_its_manifests_agree_on() -> None:
    (container,) = the("Deployment", "taintctl")["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in container["ports"]] == [PROBES_PORT]
    assert {container[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} == {"probes"}
    assert not [argument for argument in container["args"] if "port" in argument]
    asked = {option.name: option.default for option in run.params}
    options = ControllerOptions()
    assert (asked["probes_port"], asked["lease_namespace"]) == (options.probes_port, options.lease_namespace)
    assert (options.probes_port, options.lease_namespace) == (PROBES_PORT, NAMESPACE)
    assert the("ServiceAccount", ACCOUNT)["metadata"]["namespace"] == NAMESPACE
    named = [rule["resourceNames"] for rule in the("Role", "taintctl-lease")["rules"] if "resourceNames" in rule]
    assert named == [[LEASE]]


def rights(role: Object) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_no_role_has_a_wildcard() -> None:
    for obj in OBJECTS:
        if obj["kind"] in {"Role", "ClusterRole"}:
            assert not any("*" in right for right in rights(obj)), obj["metadata"]["name"]


def test_the_controller_can_neither_delete_a_pod_nor_write_a_rule_s_status() -> None:
    held = rights(the("ClusterRole", "taintctl-controller"))
    for resource in ("pods", "nodes", "resourceclaims", "resourceslices"):
        assert {verb for _, name, verb in held if name == resource} <= {"get", "list", "watch"}
    # It writes down what people said in Slack, and the admission policy lets it write nothing else.
    approvals = {verb for group, name, verb in held if (group, name) == ("taintctl.dev", "maintenanceapprovals")}
    assert approvals == {"get", "list", "watch", "create"}
    assert not [name for _, name, _ in held if name.startswith("devicetaintrules/")]


def test_an_operator_can_not_approve_and_an_approver_can_not_start() -> None:
    operator = rights(the("ClusterRole", "taintctl-operator"))
    approver = rights(the("ClusterRole", "taintctl-approver"))
    assert ("taintctl.dev", "maintenanceapprovals", "create") not in operator
    assert ("taintctl.dev", "maintenanceapprovals", "create") in approver
    assert ("taintctl.dev", "maintenanceruns", "create") not in approver
    for held in (operator, approver):
        assert ("taintctl.dev", "evictionpolicies", "create") not in held
        assert ("taintctl.dev", "evictionpolicies", "patch") not in held


def test_the_image_has_what_the_lock_has() -> None:
    def pinned(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text().splitlines()
        pins = (line.split(" ")[0].split("==") for line in lines if "==" in line and not line.startswith((" ", "#")))
        return {pin[0]: pin[1] for pin in pins}

    runtime, whole = pinned("requirements-runtime.lock"), pinned("requirements.lock")
    assert runtime
    assert runtime.items() <= whole.items()
    for tool in ("pytest", "mypy", "ruff"):
        assert tool in whole
        assert tool not in runtime
    assert "setuptools" in whole  # what the Dockerfile builds the package with


def test_the_image_is_built_from_all_that_the_package_needs() -> None:
    """The wheel of the Dockerfile is made from its COPY lines, of what .dockerignore lets through."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    data = [name for names in project["tool"]["setuptools"]["data-files"].values() for name in names]
    needed = [*data, "taintctl", "pyproject.toml", project["project"]["readme"], *project["project"]["license-files"]]
    build, _ = (DEPLOY / "Dockerfile").read_text().rsplit("\nFROM ", 1)
    copied = {name for line in build.splitlines() if line.startswith("COPY ") for name in line.split()[1:-1]}
    let_in = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines()}
    for name in needed:
        assert name.partition("/")[0] in copied, name
        assert name in let_in, name
    assert {name.partition("/")[0] for name in data} == {"deploy", "policies"}
