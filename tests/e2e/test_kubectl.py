"""A real kubectl against the sandbox's API server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from taintctl.ports.clock import SystemClock
from taintctl.sandbox.apiserver.server import ApiServer
from taintctl.sandbox.faults import Faults
from taintctl.sandbox.store import Event, Store
from taintctl.sandbox.users import User, Users
from tests.processes import BOUND

OLDEST = (1, 27)


def _why_not() -> str:
    """Why kubectl cannot be driven here; empty when it can."""
    found = shutil.which("kubectl")
    if found is None:
        return "there is no kubectl on this machine"
    shown = subprocess.run([found, "version", "--client", "-o", "json"], capture_output=True, text=True, check=False)
    match = re.search(r'"gitVersion":\s*"v(\d+)\.(\d+)', shown.stdout)
    if match is None:
        return "kubectl does not say its version"
    version = (int(match.group(1)), int(match.group(2)))
    return "" if version >= OLDEST else f"kubectl {version[0]}.{version[1]} is older than {OLDEST[0]}.{OLDEST[1]}"


_REASON = _why_not()
pytestmark = [pytest.mark.kubectl, pytest.mark.skipif(bool(_REASON), reason=_REASON)]

CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: widgets, kind: Widget, shortNames: [wi]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        description: A widget to try on.
        required: [spec]
        properties:
          spec:
            type: object
            description: What it is.
            required: [size]
            x-kubernetes-validations: [{rule: self.size >= oldSelf.size, message: a widget does not shrink}]
            properties:
              size: {type: integer, minimum: 1, description: How large it is.}
              color: {type: string, enum: [red, blue], default: red}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {containers: [{name: c, image: "nginx:1", ports: [{containerPort: 80}]}]}
"""


def widget(size: int, **more: object) -> str:
    spec = {"size": size, **more}
    return yaml.safe_dump({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec})


class Kubectl:
    """kubectl as one user, with a home of its own."""

    def __init__(self, server: ApiServer, store: Store, users: Users, home: Path) -> None:
        self.server = server
        self.store = store
        self.users = users
        self._home = home

    def _environment(self, user: User | None) -> dict[str, str]:
        who = user or self.users.admin
        config = self._home / f"{who.name}.yaml"
        config.write_text(yaml.safe_dump(self.server.kubeconfig(who)))
        return {"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": str(config)}

    async def start(self, *arguments: str, user: User | None = None) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=self._environment(user),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            **BOUND,
        )

    async def run(self, *arguments: str, stdin: str = "", user: User | None = None) -> tuple[int, str, str]:
        """Exit status, output and errors."""
        process = await self.start(*arguments, user=user)
        async with asyncio.timeout(120):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()

    async def __call__(self, *arguments: str, stdin: str = "", user: User | None = None) -> str:
        """The output of a command that must succeed."""
        status, out, err = await self.run(*arguments, stdin=stdin, user=user)
        assert status == 0, err or out
        return out

    async def fails(self, *arguments: str, stdin: str = "", user: User | None = None) -> str:
        """The errors of a command that must fail."""
        status, out, err = await self.run(*arguments, stdin=stdin, user=user)
        assert status != 0, out
        return err


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    clock = SystemClock()
    store, users = Store(clock), Users()
    server = ApiServer(store, users, Faults(), clock)
    await server.start()
    yield Kubectl(server, store, users, tmp_path)
    await server.stop()


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


async def test_get_in_its_forms(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    shown = rows(await kubectl("get", "pods"))
    assert shown[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert shown[1][:4] == ["web", "0/1", "Pending", "0"]
    wide = rows(await kubectl("get", "po", "-o", "wide"))
    assert wide[0][5:7] == ["IP", "NODE"]
    assert json.loads(await kubectl("get", "pod", "web", "-o", "json"))["metadata"]["labels"] == {"app": "web"}
    assert await kubectl("get", "pods", "-l", "app=web", "-o", "name") == "pod/web\n"
    assert await kubectl("get", "pods", "-A", "--field-selector", "spec.nodeName=,metadata.name=web", "-o", "name")
    assert [row[0] for row in rows(await kubectl("get", "ns"))[1:]] == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    assert 'pods "nope" not found' in await kubectl.fails("get", "pod", "nope")
    assert 'doesn\'t have a resource type "nopes"' in await kubectl.fails("get", "nopes")
    refused = await kubectl.fails("get", "pods", "--field-selector", "spec.priority=1")
    assert "field label not supported: spec.priority" in refused


async def test_get_watches(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    watch = await kubectl.start("get", "pods", "-w")
    assert watch.stdout is not None
    async with asyncio.timeout(80):
        header = (await watch.stdout.readline()).split()
        first = (await watch.stdout.readline()).split()
        assert (header[0], first[0], first[2]) == (b"NAME", b"web", b"Pending")
        kubectl.store.mutate("pods", "default", "web", _start_running, subresource="status")
        second = (await watch.stdout.readline()).split()
        assert (second[0], second[2]) == (b"web", b"Running")
    watch.kill()
    await watch.wait()


def _start_running(draft: dict[str, dict[str, str]]) -> None:
    draft["status"]["phase"] = "Running"


async def test_create_apply_diff_replace_and_patch(kubectl: Kubectl) -> None:
    assert "configmap/c created" in await kubectl("create", "configmap", "c", "--from-literal=a=1")
    assert "already exists" in await kubectl.fails("create", "configmap", "c")
    manifest = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"a": "1", "b": "1"}}
    )
    assert "created" in await kubectl("apply", "-f", "-", stdin=manifest)
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=manifest)
    changed = manifest.replace("b: '1'", "b: '2'")
    status, shown, _ = await kubectl.run("diff", "-f", "-", stdin=changed)
    assert status == 1
    assert '+  b: "2"' in shown
    assert kubectl.store.get("configmaps", "default", "d")["data"]["b"] == "1"
    assert "configured" in await kubectl("apply", "-f", "-", stdin=changed)
    assert (await kubectl.run("diff", "-f", "-", stdin=changed))[0] == 0
    # What is no longer in the manifest is removed.
    await kubectl("apply", "-f", "-", stdin=manifest.replace("  b: '1'\n", ""))
    assert kubectl.store.get("configmaps", "default", "d")["data"] == {"a": "1"}
    assert "replaced" in await kubectl("replace", "-f", "-", stdin=changed)
    await kubectl("patch", "cm", "d", "-p", '{"data":{"c":"3"}}')
    await kubectl("patch", "cm", "d", "--type=merge", "-p", '{"data":{"a":null}}')
    await kubectl("patch", "cm", "d", "--type=json", "-p", '[{"op":"replace","path":"/data/b","value":"4"}]')
    assert kubectl.store.get("configmaps", "default", "d")["data"] == {"b": "4", "c": "3"}


async def test_apply_of_a_pod_twice_and_server_side(kubectl: Kubectl) -> None:
    assert "pod/web created" in await kubectl("apply", "-f", "-", stdin=POD)
    assert "pod/web unchanged" in await kubectl("apply", "-f", "-", stdin=POD)
    newer = POD.replace("nginx:1", "nginx:2")
    assert "pod/web configured" in await kubectl("apply", "-f", "-", stdin=newer)
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", stdin=POD, user=None)
    again = ("apply", "--server-side", "--field-manager=other", "-f", "-")
    assert 'conflict with "kubectl"' in await kubectl.fails(*again, stdin=newer)
    assert "serverside-applied" in await kubectl(*again, "--force-conflicts", stdin=newer)
    assert kubectl.store.get("pods", "default", "web")["spec"]["containers"][0]["image"] == "nginx:2"


async def test_custom_resources(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=CRD)
    await kubectl("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=10s")
    assert "created" in await kubectl("apply", "-f", "-", stdin=widget(3))
    assert rows(await kubectl("get", "wi")) == [["NAME", "SIZE", "READY"], ["w", "3"]]
    refused = await kubectl.fails("apply", "-f", "-", stdin=widget(2))
    assert 'The Widget "w" is invalid: spec: Invalid value: "object": a widget does not shrink' in refused
    assert 'unknown field "spec.odd"' in await kubectl.fails("apply", "-f", "-", stdin=widget(4, odd=1))
    assert "serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", stdin=widget(4))
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl("patch", "wi", "w", "--subresource=status", "--type=merge", "-p", status)
    assert "condition met" in await kubectl("wait", "--for=condition=Ready", "wi/w", "--timeout=10s")
    assert rows(await kubectl("get", "widgets"))[1] == ["w", "4", "True"]
    shown = await kubectl("describe", "wi", "w")
    assert re.search(r"Color:\s+red", shown)
    explained = await kubectl("explain", "widget.spec.size")
    assert "<integer>" in explained
    assert "How large it is." in explained
    assert "widgets   wi           example.com/v1   false        Widget" in re.sub(
        r" +$", "", await kubectl("api-resources", "--api-group=example.com"), flags=re.M
    )
    await kubectl("delete", "crd", "widgets.example.com")
    assert kubectl.store.find("customresourcedefinitions.apiextensions.k8s.io", None, "widgets.example.com") is None


async def test_label_annotate_describe_and_delete(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin=POD)
    await kubectl("label", "pod", "web", "tier=front")
    await kubectl("annotate", "pod", "web", "note=x")
    meta = kubectl.store.get("pods", "default", "web")["metadata"]
    assert (meta["labels"]["tier"], meta["annotations"]["note"]) == ("front", "x")
    involved = {"kind": "Pod", "name": "web", "namespace": "default", "uid": meta["uid"]}
    event = {
        "metadata": {"name": "web.1"},
        "involvedObject": involved,
        "type": "Normal",
        "reason": "Tried",
        "message": "as a test",
        "count": 1,
        "firstTimestamp": meta["creationTimestamp"],
        "lastTimestamp": meta["creationTimestamp"],
    }
    kubectl.store.create("events", event)
    shown = await kubectl("describe", "pod", "web")
    assert re.search(r"Image:\s+nginx:1", shown)
    assert re.search(r"Normal\s+Tried\s+\S+\s+as a test", shown)
    listed = rows(await kubectl("events"))
    assert listed[0] == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert listed[1][1:] == ["Normal", "Tried", "Pod/web", "as", "a", "test"]
    assert rows(await kubectl("get", "events"))[1][1:4] == ["Normal", "Tried", "pod/web"]
    assert 'pod "web" deleted' in await kubectl("delete", "pod", "web")
    assert kubectl.store.list("pods") == []


async def test_deletion_waits_for_finalizers(kubectl: Kubectl) -> None:
    await kubectl("create", "configmap", "c")
    await kubectl("patch", "cm", "c", "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/x"]}}')
    deletion = await kubectl.start("delete", "cm", "c")
    assert deletion.stdout is not None
    async with asyncio.timeout(80):
        assert b'configmap "c" deleted' in await deletion.stdout.readline()
        await kubectl("patch", "cm", "c", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        assert await deletion.wait() == 0
    assert kubectl.store.find("configmaps", "default", "c") is None


def _let_go(store: Store, event: Event) -> None:
    """A stand-in for a kubelet: what is marked for deletion goes."""
    meta = event.obj["metadata"]
    if event.type == "MODIFIED" and meta.get("deletionTimestamp"):
        store.delete("pods", meta["namespace"], meta["name"], grace_seconds=0)


async def test_nodes_are_cordoned_tainted_and_drained(kubectl: Kubectl) -> None:
    await kubectl("create", "-f", "-", stdin="apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n")
    kubectl.store.create(
        "pods",
        {"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "x"}]}},
    )
    await kubectl("taint", "node", "n1", "a=b:NoSchedule")
    kubectl.store.subscribe("pods", lambda event: _let_go(kubectl.store, event))
    assert "node/n1 drained" in await kubectl("drain", "n1", "--force")
    assert kubectl.store.find("pods", "default", "p") is None
    node = kubectl.store.get("nodes", None, "n1")["spec"]
    assert node["unschedulable"] is True
    assert [(one["key"], one["effect"]) for one in node["taints"] if one["key"] == "a"] == [("a", "NoSchedule")]
    assert "SchedulingDisabled" in await kubectl("get", "nodes")


async def test_who_may_do_what(kubectl: Kubectl) -> None:
    bob = kubectl.users.add("bob")
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    status, out, _ = await kubectl.run("auth", "can-i", "get", "pods", user=bob)
    assert (status, out.split()[0]) == (1, "no")
    await kubectl("create", "clusterrole", "viewer", "--verb=get,list", "--resource=pods")
    await kubectl("create", "clusterrolebinding", "viewer", "--clusterrole=viewer", "--user=bob")
    assert await kubectl("auth", "can-i", "get", "pods", user=bob) == "yes\n"
    whoami = await kubectl("auth", "whoami", user=bob)
    assert re.search(r"Username\s+bob", whoami)
    await kubectl("get", "pods", user=bob)
    refused = await kubectl.fails("delete", "pod", "web", user=bob)
    assert 'User "bob" cannot delete resource "pods"' in refused
    assert 'User "eve" cannot list' in await kubectl.fails("get", "pods", "--as=eve")


def _finalize(store: Store, event: Event) -> None:
    """A stand-in for the namespace controller."""
    if event.type == "MODIFIED" and event.obj["metadata"].get("deletionTimestamp"):
        name = event.obj["metadata"]["name"]
        store.mutate(
            "namespaces", None, name, lambda draft: draft["spec"].update(finalizers=[]), subresource="finalize"
        )


async def test_namespaces_and_versions(kubectl: Kubectl) -> None:
    await kubectl("create", "namespace", "team")
    await kubectl("create", "configmap", "c", "-n", "team")
    kubectl.store.subscribe("namespaces", lambda event: _finalize(kubectl.store, event))
    assert 'namespace "team" deleted' in await kubectl("delete", "namespace", "team")
    assert kubectl.store.find("namespaces", None, "team") is None
    shown = json.loads(await kubectl("version", "-o", "json"))
    assert shown["serverVersion"]["gitVersion"] == "v1.37.0"
    assert "resource.k8s.io/v1" in (await kubectl("api-versions")).splitlines()
    assert "devicetaintrules" in await kubectl("api-resources", "--api-group=resource.k8s.io")
