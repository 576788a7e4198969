"""The controller's cache of a large fleet: how long a plan takes from it, and what an event costs.

A process of its own, `python -m tests.bench.cached --kubeconfig FILE --server PID --nodes N`; prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import time
from contextlib import suppress

from taintctl.adapters.kubernetes.cache import LeanCache
from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import discover
from taintctl.api.target import Target
from taintctl.controller.host import spare_collector
from taintctl.impact import build_plan
from taintctl.ports.clock import SystemClock
from taintctl.reconcile.gather import scope_of
from taintctl.sandbox.fleet import DRIVER
from tests.bench.fleet import CLASS_OF_SOME, pool_of
from tests.bench.server import TOUCHED

REPEATS = 21


async def measure(kubeconfig: str, server: int, nodes: int) -> dict[str, float]:
    clock = SystemClock()
    async with Client(Credentials.from_environment(kubeconfig, None), clock) as client:
        cache = LeanCache(client, (await discover(client)).require_objects(), clock)
        running = asyncio.create_task(cache.run())
        began = time.monotonic()
        await cache.until_filled()
        filled = time.monotonic() - began
        spare_collector()
        one = [Target(driver=DRIVER, pool=pool_of(number)) for number in range(1, nodes, max(1, nodes // REPEATS))]
        await _plan(cache, one[0])  # owners are asked for once and remembered for a while: not the cache's time
        for target in one:
            await _plan(cache, target)
        node = [await _plan(cache, target) for target in one]
        some = Target(device_class_name=CLASS_OF_SOME)
        await _plan(cache, some)
        of_class = [await _plan(cache, some) for _ in range(5)]
        event = await _events(cache, server)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return {
        "filled_s": filled,
        "node_plan_s": statistics.median(node),
        "node_plan_worst_s": max(node),
        "class_plan_s": statistics.median(of_class),
        "event_cpu_s": event,
    }


async def _plan(cache: LeanCache, target: Target) -> float:
    """Seconds for a snapshot of the cache and the plan of it."""
    began = time.monotonic()
    snapshot = await cache.snapshot(scope_of(target))
    plan = build_plan(snapshot, target, key="taintctl.dev/maintenance", value="run")
    took = time.monotonic() - began
    assert getattr(plan, "devices", None), plan
    return took


async def _events(cache: LeanCache, server: int) -> float:
    """Seconds of CPU for one changed claim, from the bytes on the wire to the runs it concerns."""
    left = TOUCHED
    all_heard = asyncio.Event()

    def changed(driver: str, pool: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            all_heard.set()

    cache.on_change = changed
    before = time.process_time()
    os.kill(server, signal.SIGUSR1)
    await all_heard.wait()
    return (time.process_time() - before) / TOUCHED


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--server", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    given = parser.parse_args(arguments)
    print(json.dumps(asyncio.run(measure(given.kubeconfig, given.server, given.nodes))))


if __name__ == "__main__":
    main(sys.argv[1:])
