"""A sandbox with taintctl installed on it as `kubectl apply -k deploy/` would, for `taintctl sandbox` and `demo`."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from taintctl.cli.errors import Failure
from taintctl.cli.fit import Command
from taintctl.cli.manifests import installation, shipped
from taintctl.cli.text import command
from taintctl.controller.defaults import ACCOUNT, NAMESPACE
from taintctl.sandbox.cluster import Sandbox

CONTROLLER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@asynccontextmanager
async def lab(
    *, nodes: int, gpus_per_node: int, kubernetes: str, speed: float, port: int, partitions: int = 0
) -> AsyncIterator[Sandbox]:
    """The running sandbox. Raises Failure where the port is taken."""
    wanted = installation()
    sandbox = Sandbox(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        partitions=partitions,
        kubernetes=kubernetes,
        speed=speed,
        port=port,
    )
    try:
        await sandbox.start()
    except OSError as error:
        await sandbox.stop()
        raise Failure(f"port {port} can't be served on 127.0.0.1 ({error.strerror}); choose another --port") from None
    try:
        sandbox.apply(wanted)
        sandbox.users.service_account(NAMESPACE, ACCOUNT)
        yield sandbox
    finally:
        await sandbox.stop()


@contextmanager
def kubeconfig_file(sandbox: Sandbox, path: Path, user: str = "admin") -> Iterator[Path]:
    """The user's kubeconfig at `path`, gone with the sandbox. A file that is not a sandbox's is never replaced."""
    if path.exists() and not _of_a_sandbox(path):
        raise Failure(f"{path} is there already and is no sandbox's kubeconfig; choose another file")
    try:
        written = sandbox.write_kubeconfig(path, user)
    except OSError as error:
        raise Failure(f"{path} can't be written: {error.strerror}") from None
    try:
        yield written
    finally:
        written.unlink(missing_ok=True)


def _of_a_sandbox(path: Path) -> bool:
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and [c.get("name") for c in found.get("clusters") or ()] == ["sandbox"]


def apply_lab_policy(sandbox: Sandbox) -> None:
    """EvictionPolicy `lab`, with which one person alone gets a run through; as `kubectl apply` would have made it, so
    that applying policies/ later warns of nothing."""
    for manifest in shipped("policies", "lab.yaml"):
        annotations = {LAST_APPLIED: json.dumps(manifest)}
        sandbox.apply([{**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}])


def program() -> str:
    """How this taintctl is called in another terminal: by its path where the name alone would not find it."""
    own = Path(sys.executable).parent / "taintctl"
    return str(own) if shutil.which("taintctl") is None and own.exists() else "taintctl"


def environment(kubeconfig: Path) -> list[Command]:
    """The exports with which the commands that follow work in another terminal."""
    lines = [command(f"  export KUBECONFIG={kubeconfig}")]
    if program() != "taintctl":
        lines.append(command(f"  export PATH={Path(program()).parent}:$PATH"))
    return lines


def bind(role: str, user: str) -> dict[str, Any]:
    """A ClusterRoleBinding of one of deploy/roles-for-people.yaml."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{role}-{user}"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


async def until_interrupted(stop: asyncio.Event) -> None:
    """Until SIGINT, SIGTERM or `stop`."""
    import signal

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    try:
        await stop.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
