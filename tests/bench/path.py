"""How long an idle pool takes from the wish to NoExecute: a run, and the documented procedure with kubectl.

A process of its own, `python -m tests.bench.path --folder DIR`, against the server of that folder; prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import discover
from taintctl.api.base import format_time, parse_time
from taintctl.api.run import MaintenanceRun
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.fleet import DRIVER
from tests.bench.fleet import pool_of

IDLE = pool_of(1)
PRESCRIBED = 10.0
"""Seconds that NoSchedule stands before eviction (api.md: notice)."""
REPEATS = 3
LONG = 120.0
WAIT = ("kubectl", "wait", "--for=condition=EvictionInProgress=false", "devicetaintrule/by-hand")


async def measure(folder: Path) -> dict[str, float]:
    """A controller has to be at work."""
    clock = SystemClock()
    admin = str(folder / "admin")
    async with Client(Credentials.from_environment(admin, None), clock) as client:
        cluster = KubernetesCluster(client, await discover(client), clock)
        runs = [await _run(cluster, clock, f"run-{number}") for number in range(REPEATS)]
    by_hand = [_by_hand(folder, admin) for _ in range(REPEATS)]
    return {"run_s": statistics.median(runs) - PRESCRIBED, "kubectl_s": statistics.median(by_hand)}


async def _run(cluster: KubernetesCluster, clock: SystemClock, name: str) -> float:
    """Seconds from the run's creation to the moment when NoExecute was set, the prescribed wait among them. It is ended
    then, so that the next one finds the pool free."""
    began = clock.now()
    spec = {
        "target": {"driver": DRIVER, "pool": IDLE},
        "policyName": "lab",
        "deadline": format_time(began + timedelta(hours=1)),
    }
    body = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "metadata": {"name": name}, "spec": spec}
    await cluster.create(MaintenanceRun, body)
    status = await _until(cluster, name, lambda status: bool(_set_at(status)))
    await cluster.patch(MaintenanceRun, name, {"spec": {"cancelled": True}})
    await _until(cluster, name, lambda status: status.get("phase") == "Cancelled")
    return (parse_time(_set_at(status)) - began).total_seconds()


async def _until(cluster: KubernetesCluster, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        status = (await cluster.get(MaintenanceRun, name) or {}).get("status") or {}
        if holds(status):
            return dict(status)
        if status.get("phase") in ("Blocked", "Failed"):
            raise SystemExit(f"{name} is {status['phase']}: {status.get('message')}")
        await asyncio.sleep(0.05)
    raise SystemExit(f"{name} did not come to NoExecute in {LONG:.0f} s")


def _set_at(status: dict[str, Any]) -> str:
    since = [rule.get("effectSince") for rule in status.get("rules") or () if rule["effect"] == "NoExecute"]
    return str(since[0] or "") if since else ""


def _by_hand(folder: Path, kubeconfig: str) -> float:
    """Seconds for: apply, wait, read, delete, apply, wait, patch, wait."""
    manifest = folder / "rule.json"
    taint = {"key": "example.com/by-hand", "value": "x", "effect": "None"}
    manifest.write_text(
        json.dumps(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceTaintRule",
                "metadata": {"name": "by-hand"},
                "spec": {"deviceSelector": {"driver": DRIVER, "pool": IDLE}, "taint": taint},
            }
        )
    )
    apply = ("kubectl", "apply", "-f", str(manifest))
    patch = '{"spec":{"taint":{"effect":"NoExecute"}}}'
    steps = (
        apply,
        WAIT,
        ("kubectl", "get", "devicetaintrule/by-hand", "-o", "yaml"),
        ("kubectl", "delete", "devicetaintrule/by-hand"),
        apply,
        WAIT,
        ("kubectl", "patch", "devicetaintrule/by-hand", "--type=merge", "-p", patch),
        WAIT,
    )
    began = time.monotonic()
    for step in steps:
        _call(kubeconfig, *step)
    took = time.monotonic() - began
    _call(kubeconfig, "kubectl", "delete", "devicetaintrule/by-hand")
    return took


def _call(kubeconfig: str, *command: str) -> None:
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=LONG)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args(arguments)
    print(json.dumps(asyncio.run(measure(given.folder))))


if __name__ == "__main__":
    main(sys.argv[1:])
