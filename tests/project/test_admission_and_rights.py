"""On the sandbox: what deploy/ installs keeps approvals honest, and gives the controller the rights it uses alone."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from taintctl.adapters.kubernetes import admission
from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import discover
from taintctl.api.approval import MaintenanceApproval
from taintctl.api.check import KINDS
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Effect
from taintctl.api.rule import RuleManifest
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.main import run
from taintctl.controller.defaults import ACCOUNT
from taintctl.controller.host import ControllerOptions, run_controller
from taintctl.ports.cluster import Cluster, Scope
from taintctl.sandbox.apiserver.rbac import Attributes, Authorizer
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.users import User
from tests.api.builders import Object, a_policy, a_run, a_window, an_approval
from tests.project.owners import give_owners
from tests.project.test_deploy import CONTROLLER, NAMESPACE, OBJECTS, the

OWN = "/apis/taintctl.dev/v1alpha1"
DRIVER = "gpu.example.com"
DEVICE = f"--driver {DRIVER} --pool gpu-worker-01 --device gpu-0"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox(nodes=1, gpus_per_node=2, speed=50) as made:
        made.apply(obj for obj in OBJECTS if obj["kind"] != "Deployment")
        made.users.service_account(NAMESPACE, "taintctl")
        for name, role in (("alice", "approver"), ("bob", "approver"), ("olga", "operator"), ("victor", "viewer")):
            made.users.add(name)
            made.apply([_binding(name, f"taintctl-{role}")])
        yield made


def _binding(user: str, role: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


async def post(sandbox: Sandbox, user: str, plural: str, obj: Object) -> tuple[int, str]:
    known = sandbox.users.get(user)
    assert known is not None
    headers = {"Authorization": f"Bearer {known.token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(f"{sandbox.url}{OWN}/{plural}", json=obj) as answer,
    ):
        return answer.status, str((await answer.json()).get("message", ""))


async def merge(sandbox: Sandbox, user: str, path: str, patch: Object) -> tuple[int, str]:
    known = sandbox.users.get(user)
    assert known is not None
    headers = {"Authorization": f"Bearer {known.token}", "Content-Type": "application/merge-patch+json"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.patch(f"{sandbox.url}{path}", data=json.dumps(patch)) as answer,
    ):
        return answer.status, str((await answer.json()).get("message", ""))


async def test_people_approve_in_their_own_name_only(sandbox: Sandbox) -> None:
    own = an_approval("own", approver={"kind": "Kubernetes", "name": "alice"})
    other = an_approval("other", approver={"kind": "Kubernetes", "name": "bob"})
    assert await post(sandbox, "alice", "maintenanceapprovals", own) == (201, "")
    status, message = await post(sandbox, "alice", "maintenanceapprovals", other)
    assert status == 403
    assert (
        "ValidatingAdmissionPolicy 'taintctl-approvals' with binding 'taintctl-approvals' denied request: " in message
    )
    assert message.endswith("spec.approver.name must be your own name, alice")


@pytest.mark.parametrize("user", ["admin", CONTROLLER])
async def test_neither_an_administrator_nor_the_controller_speaks_for_somebody_else(
    sandbox: Sandbox, user: str
) -> None:
    status, _ = await post(sandbox, user, "maintenanceapprovals", an_approval())
    assert status == 403


SLACK = {"team": "T024BE7LD", "channel": "C0123456789", "ts": "1764622800.000100"}
ANN = {"kind": "Slack", "name": "U024BE7LH"}


async def test_what_was_said_in_slack_is_written_by_the_controller_alone(sandbox: Sandbox) -> None:
    said = an_approval("said", approver=ANN, slack=SLACK)
    for user in ("alice", "admin"):
        status, message = await post(sandbox, user, "maintenanceapprovals", said)
        assert status == 403
        assert "the controller alone writes what was said in Slack" in message
    assert await post(sandbox, CONTROLLER, "maintenanceapprovals", said) == (201, "")


@pytest.mark.parametrize(
    "approver", [{"kind": "Kubernetes", "name": "alice"}, {"kind": "Kubernetes", "name": CONTROLLER}]
)
async def test_the_controller_writes_no_approval_of_a_kubernetes_user(sandbox: Sandbox, approver: Object) -> None:
    status, message = await post(sandbox, CONTROLLER, "maintenanceapprovals", an_approval(approver=approver))
    assert status == 403
    assert "spec.approver.kind must be Kubernetes" in message


async def test_an_approval_of_ones_own_carries_no_slack_identity(sandbox: Sandbox) -> None:
    own = an_approval("own", approver={"kind": "Kubernetes", "name": "alice"}, slack=SLACK)
    status, message = await post(sandbox, "alice", "maintenanceapprovals", own)
    assert status == 403
    assert "spec.slack goes with spec.approver.kind Slack" in message


def test_the_admission_policy_exempts_the_account_that_deploy_runs_the_controller_as() -> None:
    assert admission.CONTROLLER == CONTROLLER == f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"


async def test_others_may_write_what_does_not_change_who_approved(sandbox: Sandbox) -> None:
    """The garbage collector's finalizers and the controller's status go through; the spec stays as its author wrote
    it, whoever writes."""
    own = an_approval("own", approver={"kind": "Kubernetes", "name": "alice"})
    assert await post(sandbox, "alice", "maintenanceapprovals", own) == (201, "")
    stored = sandbox.store.get("maintenanceapprovals.taintctl.dev", None, "own")
    url = f"{OWN}/maintenanceapprovals/own"
    assert await merge(sandbox, "admin", url, {"metadata": {"finalizers": ["foregroundDeletion"]}}) == (200, "")
    conditions = [{"type": "Accepted", "status": "True", "lastTransitionTime": "2026-12-01T21:00:00Z"}]
    assert await merge(sandbox, "admin", f"{url}/status", {"status": {"conditions": conditions}}) == (200, "")
    # Through the status nothing of the spec is written.
    other = {"approver": {"kind": "Kubernetes", "name": "admin"}}
    assert await merge(sandbox, "admin", f"{url}/status", {"spec": other}) == (200, "")
    for spec, why in ((other, "spec is immutable"), (None, "spec: Required value")):
        status, message = await merge(sandbox, "admin", url, {"spec": spec})
        assert status == 422
        assert why in message
    assert sandbox.store.get("maintenanceapprovals.taintctl.dev", None, "own")["spec"] == stored["spec"]


async def test_the_controller_sees_that_approvals_can_be_believed(sandbox: Sandbox) -> None:
    async with controller_cluster(sandbox) as cluster:
        assert await cluster.approvals_verified() is not None
        sandbox.store.delete(
            "validatingadmissionpolicybindings.admissionregistration.k8s.io", None, "taintctl-approvals"
        )
        assert await cluster.approvals_verified() is None


async def test_who_asked_is_the_caller_or_not_said(sandbox: Sandbox) -> None:
    assert await post(sandbox, "olga", "maintenanceruns", a_run("own", requestedBy="olga")) == (201, "")
    assert await post(sandbox, "olga", "maintenanceruns", a_run("unsaid")) == (201, "")
    status, message = await post(sandbox, "olga", "maintenanceruns", a_run("other", requestedBy="alice"))
    assert status == 403
    assert message.endswith("spec.requestedBy must be your own name, olga, or left out")
    # The controller copies what a window's run says.
    assert await post(sandbox, CONTROLLER, "maintenanceruns", a_run("window", requestedBy="olga")) == (201, "")


@pytest.mark.parametrize(
    ("user", "plural", "obj"),
    [
        ("olga", "maintenanceapprovals", an_approval(approver={"kind": "Kubernetes", "name": "olga"})),
        ("olga", "evictionpolicies", a_policy()),
        ("alice", "maintenanceruns", a_run()),
        ("victor", "maintenanceruns", a_run()),
        ("victor", "maintenancewindows", a_window()),
    ],
)
async def test_a_role_does_not_reach_further_than_its_name(
    sandbox: Sandbox, user: str, plural: str, obj: Object
) -> None:
    status, message = await post(sandbox, user, plural, obj)
    assert status == 403
    assert f'User "{user}" cannot create resource "{plural}"' in message


def asks_for_approval(sandbox: Sandbox, name: str) -> None:
    """A run that a controller left asking."""
    sandbox.apply([a_run(name)])
    asked = {"digest": "d" * 64, "devices": "", "pods": {}, "policyUid": "", "policyGeneration": 0}
    status = {"phase": "AwaitingApproval", "reason": "WaitingForApproval", "approval": {"asked": asked, "needed": 1}}
    sandbox.store.mutate(
        "maintenanceruns.taintctl.dev", None, name, lambda r: r.update(status=status), subresource="status"
    )


async def test_approvers_approve_with_taintctl_and_others_do_not(
    sandbox: Sandbox, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asks_for_approval(sandbox, "asks")
    for user, command, status in (
        ("victor", "approve", 1),
        ("olga", "deny", 1),
        ("alice", "approve", 0),
        ("bob", "deny", 0),
    ):
        kubeconfig = sandbox.write_kubeconfig(tmp_path / user, user)
        arguments = [command, "asks", "--yes", "--comment", "seen", "--kubeconfig", str(kubeconfig)]
        assert await asyncio.to_thread(run, arguments) == status, capfd.readouterr()
        if status:
            assert f'User "{user}" cannot create resource "maintenanceapprovals"' in capfd.readouterr().err
    approvals = sandbox.store.list("maintenanceapprovals.taintctl.dev")
    assert sorted((a["spec"]["approver"]["name"], a["spec"]["decision"]) for a in approvals) == [
        ("alice", "Approve"),
        ("bob", "Deny"),
    ]


class controller_cluster:
    """The adapter, with the controller's account."""

    def __init__(self, sandbox: Sandbox) -> None:
        account = sandbox.users.get(CONTROLLER)
        assert account is not None
        self._clock = sandbox.clock
        self._client = Client(Credentials.static(sandbox.url, token=account.token), sandbox.clock)

    async def __aenter__(self) -> KubernetesCluster:
        await self._client.__aenter__()
        return KubernetesCluster(self._client, await discover(self._client), self._clock)

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


Right = tuple[str, str, str, str]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[Right]]:
    """What the controller's account asks for, as (namespace, group, resource, verb); a refusal fails the test."""
    found: set[Right] = set()
    refused: list[str] = []
    really = Authorizer.allows

    def allows(self: Authorizer, user: User, wanted: Attributes) -> bool:
        allowed = really(self, user, wanted)
        if user.name == CONTROLLER and wanted.resource:
            found.add((wanted.namespace, wanted.group, wanted.resource, wanted.verb))
            if not allowed:
                refused.append(wanted.refusal(user))
        return allowed

    monkeypatch.setattr(Authorizer, "allows", allows)
    yield found
    assert refused == []


async def every_call_of_the_port(sandbox: Sandbox, cluster: KubernetesCluster) -> None:
    """Each method of ports.cluster.Cluster once; a method that is not called here fails the test."""
    pods = [p["metadata"] for p in sandbox.store.list("pods") if p["spec"].get("resourceClaims")]
    called: set[str] = set()

    async def call(name: str, *args: Any, **kwargs: Any) -> Any:
        called.add(name)
        return await getattr(cluster, name)(*args, **kwargs)

    for kind, obj in (
        (MaintenanceRun, a_run()),
        (MaintenanceWindow, a_window()),
        (EvictionPolicy, a_policy()),
        (MaintenanceApproval, an_approval(approver=ANN, slack=SLACK)),
    ):
        if kind in (MaintenanceRun, MaintenanceApproval):
            await call("create", kind, obj)
        else:
            sandbox.apply([obj])  # people's to write
        name = obj["metadata"]["name"]
        raw = await call("get", kind, name)
        await call("list", kind)
        meta = raw["metadata"]
        await call(
            "replace_status",
            kind,
            name,
            uid=meta["uid"],
            resource_version=meta["resourceVersion"],
            status={"conditions": []},
        )
    run = await call("patch", MaintenanceRun, "swap-gpu", {"metadata": {"finalizers": ["taintctl.dev/rules"]}})
    rule = await call(
        "create_rule",
        RuleManifest(
            name="taintctl-x-0",
            role="taint",
            round=1,
            run_name="swap-gpu",
            run_uid=run["metadata"]["uid"],
            driver=DRIVER,
            pool="nowhere",
            device=None,
            key="taintctl.dev/maintenance",
            value="swap-gpu",
            effect=Effect.NONE,
        ),
    )
    await call("rules_of", run["metadata"]["uid"])
    (listed,) = await call("own_rules")
    await call(
        "set_rule_effect",
        rule.metadata.name,
        uid=rule.metadata.uid,
        resource_version=listed.metadata.resource_version,
        effect=Effect.NO_SCHEDULE,
    )
    await call("delete_rule", rule.metadata.name, uid=rule.metadata.uid)
    await give_owners(sandbox)
    sandbox.remove_slice("gpu-worker-01")  # no slice names its node any more: who holds its devices is asked by name
    snapshot = await call("snapshot", Scope(driver=DRIVER))
    claim = snapshot.claims[0].metadata
    await call("get_claim", claim.namespace, claim.name)
    await call("evict", pods[0]["namespace"], pods[0]["name"], uid=pods[0]["uid"])
    await call("approvals_verified")
    involved = {
        "kind": "MaintenanceRun",
        "name": "swap-gpu",
        "uid": run["metadata"]["uid"],
        "apiVersion": "taintctl.dev/v1alpha1",
    }
    for _ in range(2):
        await call("record_event", involved, event_type="Normal", reason="Created", message="made")
    await call("patch", MaintenanceRun, "swap-gpu", {"metadata": {"finalizers": []}})
    await call("delete", MaintenanceRun, "swap-gpu", uid=run["metadata"]["uid"])
    methods = {name for name, _ in inspect.getmembers(Cluster, inspect.isfunction) if not name.startswith("_")}
    assert called == methods


async def the_controller_at_work(sandbox: Sandbox, kubeconfig: Path, asked: set[Right]) -> None:
    """Until it has the lease and watches all that it watches, and has renewed the lease; then stopped."""
    stop = asyncio.Event()
    options = ControllerOptions(kubeconfig=str(kubeconfig), speed=50, probes_port=None)
    running = asyncio.create_task(run_controller(options, stop))
    wanted = {("taintctl.dev", kind.PLURAL) for kind in KINDS}
    wanted |= {("resource.k8s.io", name) for name in ("resourceslices", "resourceclaims", "deviceclasses")}
    wanted |= {("", "pods"), ("", "nodes"), ("", "namespaces"), ("policy", "poddisruptionbudgets")}
    lease = (NAMESPACE, "coordination.k8s.io", "leases", "update")
    async with asyncio.timeout(30):
        while not running.done():
            watched = {(group, resource) for _, group, resource, verb in asked if verb == "watch"}
            if wanted <= watched and lease in asked:
                break
            await asyncio.sleep(0.02)
        stop.set()
        assert await running == 0


def granted() -> set[Right]:
    """What deploy/ gives the controller, as (namespace, group, resource, verb)."""
    roles = [("", the("ClusterRole", "taintctl-controller"))]
    roles += [(obj["metadata"]["namespace"], obj) for obj in OBJECTS if obj["kind"] == "Role"]
    return {
        (namespace, group, resource, verb)
        for namespace, role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


async def test_the_controller_has_the_rights_that_it_uses_and_no_others(
    sandbox: Sandbox, asked: set[Right], tmp_path: Path
) -> None:
    kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig", CONTROLLER)
    await the_controller_at_work(sandbox, kubeconfig, asked)
    async with controller_cluster(sandbox) as cluster:
        await every_call_of_the_port(sandbox, cluster)
    rights = granted()
    clusterwide = {right for right in rights if right[0] == ""}
    used = {("", *right[1:]) if ("", *right[1:]) in clusterwide else right for right in asked}
    for what, them in (("not granted", used - rights), ("not used", rights - used)):
        assert not them, what + ":\n" + "\n".join(" ".join(right) for right in sorted(them))


@pytest.mark.parametrize(
    ("user", "commands"),
    [
        (
            "victor",
            [
                "devices",
                f"plan {DEVICE}",
                "status",
                "schedule nightly",
                "explain swap-gpu",
            ],
        ),
        (
            "olga",
            [
                f"start {DEVICE} --name own",
                "status own",
                "pause own",
                "resume own",
                "cancel own --now",
            ],
        ),
        ("alice", ["status", "status swap-gpu", "explain swap-gpu", "explain nightly"]),
    ],
)
async def test_a_role_reaches_as_far_as_its_commands(
    sandbox: Sandbox, tmp_path: Path, capfd: pytest.CaptureFixture[str], user: str, commands: list[str]
) -> None:
    sandbox.apply([a_run(), a_window()])
    kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig", user)
    for command in commands:
        name, *rest = command.split()
        arguments = [name, *rest, "--kubeconfig", str(kubeconfig)]
        status = await asyncio.to_thread(run, arguments)
        said = capfd.readouterr()
        assert status == 0, f"taintctl {command}: {said.err}{said.out}"
        if name in ("status", "explain", "start"):
            heard = " ".join((said.out + said.err).split())
            assert "No controller is at work (nobody holds the Lease taintctl-system/taintctl)" in heard, command
