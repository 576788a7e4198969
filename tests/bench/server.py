"""A sandbox with a large fleet, as a process of its own: `python -m tests.bench.server --nodes 10000 --folder DIR`.

It writes the kubeconfigs `admin` and `controller` into the folder and prints one line when it serves.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import sys
from pathlib import Path

import yaml

from taintctl.cli.manifests import installation, shipped
from taintctl.controller.defaults import ACCOUNT, NAMESPACE
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.apiserver.server import ApiServer
from taintctl.sandbox.controlplane.objects import CLAIMS
from taintctl.sandbox.controlplane.taint_eviction import TaintEviction
from taintctl.sandbox.faults import Faults
from taintctl.sandbox.store import Store
from taintctl.sandbox.users import Users
from tests.bench import fleet

TOUCHED = 500
"""Claims that change when the process gets SIGUSR1."""


def touch(store: Store) -> None:
    """One more reservation on each, as when a pod joins a claim that is allocated already."""
    for record in store.records(CLAIMS)[:TOUCHED]:
        meta = record.obj["metadata"]
        status = record.obj["status"]
        joined = {
            "resource": "pods",
            "name": "joined",
            "uid": fleet.uid("joined", meta["uid"], meta["resourceVersion"]),
        }
        changed = {**record.obj, "status": {**status, "reservedFor": [*status["reservedFor"][:1], joined]}}
        store.update(CLAIMS, changed, subresource="status")


async def serve(nodes: int, gpus: int, folder: Path) -> None:
    """The API server and what answers DeviceTaintRules: what a scheduler and kubelets would have left is in the store
    already."""
    clock = SystemClock()
    store, users = Store(clock), Users()
    fleet.fill(store, nodes=nodes, gpus=gpus)
    server = ApiServer(store, users, Faults(), clock)
    await server.start()
    eviction = TaintEviction(store, clock)
    await eviction.start()
    try:
        for manifest in installation():
            store.create(store.resources.find_kind(manifest["apiVersion"], manifest["kind"]).key, manifest)
        store.create("evictionpolicies.taintctl.dev", next(iter(shipped("policies", "lab.yaml"))))
        account = users.service_account(NAMESPACE, ACCOUNT)
        for name, user in (("admin", users.get("admin")), ("controller", account)):
            (folder / name).write_text(yaml.safe_dump(server.kubeconfig(user)))
        # What is there stays: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        print("serving", flush=True)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, touch, store)
        await stop.wait()
    finally:
        await eviction.stop()
        await server.stop()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(given.nodes, given.gpus, given.folder))


if __name__ == "__main__":
    main(sys.argv[1:])
