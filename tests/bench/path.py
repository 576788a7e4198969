"""How long an idle pool takes from the wish to NoExecute: a run, and the documented procedure with kubectl.

A process of its own, `python -m tests.bench.path`; prints JSON. The sandbox is whole here, with its control plane.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from taintctl.cli.lab import CONTROLLER, apply_lab_policy, lab
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.fleet import DRIVER

RUNS = "maintenanceruns.taintctl.dev"
IDLE = "idle-node"
PRESCRIBED = 10.0
"""Seconds that NoSchedule stands before eviction (api.md: notice)."""
REPEATS = 3
TAINTCTL = str(Path(sys.executable).parent / "taintctl")


async def measure() -> dict[str, float]:
    async with lab(nodes=20, gpus_per_node=8, kubernetes="1.37", speed=1.0, port=0) as sandbox:
        apply_lab_policy(sandbox)
        sandbox.add_node(IDLE, 8)
        with tempfile.TemporaryDirectory() as folder:
            admin = sandbox.write_kubeconfig(Path(folder) / "admin")
            account = sandbox.write_kubeconfig(Path(folder) / "controller", CONTROLLER)
            controller = await asyncio.create_subprocess_exec(
                TAINTCTL, "run", "--kubeconfig", str(account), "--no-probes", stderr=subprocess.DEVNULL
            )
            try:
                runs = [await _run(sandbox, f"run-{n}", str(admin)) for n in range(REPEATS)]
            finally:
                controller.terminate()
                await controller.wait()
            by_hand = [await _by_hand(folder, str(admin)) for _ in range(REPEATS)]
    return {"run_s": statistics.median(runs) - PRESCRIBED, "kubectl_s": statistics.median(by_hand)}


async def _run(sandbox: Sandbox, name: str, kubeconfig: str) -> float:
    """Seconds from the run's creation to the moment when NoExecute was set, the prescribed wait among them."""
    began: list[float] = []
    unsubscribe = sandbox.store.subscribe(RUNS, lambda event: began.append(time.time()))
    target = ("--driver", DRIVER, "--pool", IDLE)
    await _call(kubeconfig, TAINTCTL, "start", *target, "--policy", "lab", "--duration", "1h", "--name", name)
    set_at = None
    while set_at is None:
        await sandbox.until(lambda: _evicting(sandbox, name) is not None, 60)
        set_at = _evicting(sandbox, name)
    unsubscribe()
    # It goes on to its end, so that the next one finds the pool free.
    await _call(kubeconfig, TAINTCTL, "cancel", name)
    await sandbox.until(lambda: _phase(sandbox, name) == "Cancelled", 60)
    return set_at.timestamp() - began[0]


def _found(sandbox: Sandbox, name: str) -> dict[str, Any]:
    status = (sandbox.store.find(RUNS, None, name) or {}).get("status")
    return status if isinstance(status, dict) else {}


def _phase(sandbox: Sandbox, name: str) -> str:
    return str(_found(sandbox, name).get("phase"))


def _evicting(sandbox: Sandbox, name: str) -> datetime | None:
    since = [r.get("effectSince") for r in _found(sandbox, name).get("rules", ()) if r["effect"] == "NoExecute"]
    return datetime.fromisoformat(since[0]) if since and since[0] else None


async def _by_hand(folder: str, kubeconfig: str) -> float:
    """Seconds for: apply, wait, read, delete, apply, wait, patch, wait."""
    manifest = Path(folder) / "rule.yaml"
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "by-hand"},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": IDLE},
            "taint": {"key": "example.com/by-hand", "value": "x", "effect": "None"},
        },
    }
    manifest.write_text(json.dumps(rule))
    apply = ("kubectl", "apply", "-f", str(manifest))
    wait = ("kubectl", "wait", "--for=condition=EvictionInProgress=false", "devicetaintrule/by-hand")
    began = time.monotonic()
    await _call(kubeconfig, *apply)
    await _call(kubeconfig, *wait)
    await _call(kubeconfig, "kubectl", "get", "devicetaintrule/by-hand", "-o", "yaml")
    await _call(kubeconfig, "kubectl", "delete", "devicetaintrule/by-hand")
    await _call(kubeconfig, *apply)
    await _call(kubeconfig, *wait)
    patch = '{"spec":{"taint":{"effect":"NoExecute"}}}'
    await _call(kubeconfig, "kubectl", "patch", "devicetaintrule/by-hand", "--type=merge", "-p", patch)
    await _call(kubeconfig, *wait)
    took = time.monotonic() - began
    await _call(kubeconfig, "kubectl", "delete", "devicetaintrule/by-hand")
    return took


async def _call(kubeconfig: str, *command: str) -> None:
    """Beside the sandbox, which is in this process."""
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, "KUBECONFIG": kubeconfig}, stdout=subprocess.DEVNULL
    )
    if await process.wait():
        raise RuntimeError(f"{' '.join(command)} failed")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure())))
