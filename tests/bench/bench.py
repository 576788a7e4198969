"""`make bench`: what taintctl costs on a fleet of 10,000 nodes, beside kubectl on the same server.

Prints the page docs/benchmarks.md; `--write` writes it. Nothing here fails for being slow: a goal that is not met is
said so. `--nodes` makes it smaller, to try.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from taintctl.sandbox.fleet import DRIVER
from tests.bench.fleet import pool_of
from tests.bench.measure import Cost, resident, run

ROOT = Path(__file__).resolve().parents[2]
TAINTCTL = str(Path(sys.executable).parent / "taintctl")
NODES = 10_000
GPUS = 8
LOADING = 300.0
"""Seconds that the server, and the controller's cache, may take to be filled."""
REPEATS = 2
NODE = 5
"""The number of the node that is planned for."""


@dataclass(frozen=True)
class Goal:
    what: str
    limit: str
    actual: str
    met: bool


@dataclass(frozen=True)
class Measured:
    plan: Cost
    claims: Cost
    slices: Cost
    resident: float
    """MB, of a controller that holds the fleet."""
    cached: dict[str, float]
    way: dict[str, float]
    """Seconds from a run's start to NoExecute beyond the prescribed wait, and of the same with kubectl."""

    @property
    def kubectl(self) -> Cost:
        return self.claims + self.slices


@contextmanager
def server(nodes: int, folder: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.server", "--nodes", str(nodes), "--folder", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "serving\n":
            raise SystemExit("the server did not start; its error is above")
        yield process
    finally:
        process.terminate()
        process.wait()


def measure(nodes: int) -> Measured:
    """All on one server, one after the other."""
    with tempfile.TemporaryDirectory(prefix="taintctl-bench-") as name, server(nodes, Path(name)) as process:
        folder = Path(name)
        environment = {"KUBECONFIG": str(folder / "admin")}
        tell(f"{nodes} nodes: taintctl plan")
        plan = best([TAINTCTL, "plan", "--driver", DRIVER, "--pool", pool_of(NODE)], environment)
        tell(f"{nodes} nodes: kubectl get")
        claims = best(["kubectl", "get", "resourceclaims", "-A", "-o", "json"], environment)
        slices = best(["kubectl", "get", "resourceslices", "-o", "json"], environment)
        tell(f"{nodes} nodes: the controller")
        held, way = controller(folder)
        command = [sys.executable, "-m", "tests.bench.cached", "--kubeconfig", str(folder / "controller")]
        command += ["--server", str(process.pid), "--nodes", str(nodes)]
        found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return Measured(plan, claims, slices, held, json.loads(found.stdout), way)


def best(command: list[str], environment: dict[str, str]) -> Cost:
    """The quickest of some: what else the machine does only adds."""
    costs = []
    for _ in range(REPEATS):
        cost, status = run(command, environment)
        if status != 0:
            raise SystemExit(f"{' '.join(command)} failed with {status}")
        costs.append(cost)
    return min(costs, key=lambda cost: cost.wall)


def controller(folder: Path) -> tuple[float, dict[str, float]]:
    """MB that `taintctl run` holds once its cache is filled and its probes say ready, and how long a run then takes."""
    port = 18_081
    command = [TAINTCTL, "run", "--kubeconfig", str(folder / "controller"), "--probes-host", "127.0.0.1"]
    process = subprocess.Popen([*command, "--probes-port", str(port)], stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + LOADING
        while not ready(port):
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit("the controller did not become ready")
            time.sleep(0.5)
        time.sleep(5)
        held = resident(process.pid)
        command = [sys.executable, "-m", "tests.bench.path", "--folder", str(folder)]
        found = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return held, json.loads(found.stdout)
    finally:
        process.terminate()
        process.wait()


def ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def tell(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def goals(large: Measured, small: Measured, factor: float) -> list[Goal]:
    """What the figures come to. `factor`: how many times larger the large fleet is."""
    wall, peak = large.plan.wall / large.kubectl.wall, large.plan.peak / large.kubectl.peak
    more_wall, more_peak = large.plan.wall / small.plan.wall, large.plan.peak / small.plan.peak
    node, of_class, event = (large.cached[name] for name in ("node_plan_s", "class_plan_s", "event_cpu_s"))
    flat = node / small.cached["node_plan_s"]
    share, share_small = (found.way["run_s"] / found.way["kubectl_s"] for found in (large, small))
    return [
        Goal("plan of one node: wall time, of kubectl's", "1/5", f"{wall:.2f}", wall <= 0.2),
        Goal("plan of one node: peak memory, of kubectl's", "1/5", f"{peak:.2f}", peak <= 0.2),
        Goal("the controller's resident memory", "400 MB", f"{large.resident:.0f} MB", large.resident <= 400),
        Goal("a node's plan from the cache", "20 ms", f"{node * 1000:.1f} ms", node <= 0.02),
        Goal(f"the same, of that with {factor:.0f} times fewer devices", "flat", f"{flat:.2f}", flat <= 1.5),
        Goal("a class of a tenth of the devices, from the cache", "1 s", f"{of_class:.2f} s", of_class <= 1),
        Goal("CPU for one changed claim", "200 µs", f"{event * 1e6:.0f} µs", event <= 200e-6),
        Goal(f"plan: wall time for {factor:.0f} times the devices", f"{factor:.0f}", f"{more_wall:.1f}",
             more_wall <= factor),
        Goal(f"plan: memory for {factor:.0f} times the devices", f"{factor:.0f}", f"{more_peak:.1f}",
             more_peak <= factor),
        Goal("start to NoExecute beyond the wait, of kubectl's", "1/2", f"{share:.2f}", share <= 0.5),
        Goal(f"the same with {factor:.0f} times fewer devices", "1/2", f"{share_small:.2f}", share_small <= 0.5),
    ]  # fmt: skip


def page(nodes: int, few: int, large: Measured, small: Measured) -> str:
    kubectl = json.loads(
        subprocess.run(["kubectl", "version", "--client", "-o", "json"], check=True, stdout=subprocess.PIPE).stdout
    )["clientVersion"]["gitVersion"]
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench WRITE=1`; read the figures as ratios. The server is the sandbox's, with "
        f"{nodes:,} nodes of {GPUS} GPUs, {(nodes - 1) * GPUS:,} allocated claims and {(nodes - 1) * (GPUS + 2):,} "
        "pods; all was run in turn on one machine.",
        "",
        f"- {datetime.now(UTC).date()}, {processor()}, {os.cpu_count()} CPUs, {platform.system()} {platform.machine()}",
        f"- Python {platform.python_version()}, taintctl {version('taintctl')}, msgspec {version('msgspec')}, "
        f"aiohttp {version('aiohttp')}, kubectl {kubectl}",
        "",
        "| | goal | measured | |",
        "|---|---|---|---|",
        *(
            f"| {goal.what} | {goal.limit} | {goal.actual} | {'met' if goal.met else 'not met'} |"
            for goal in goals(large, small, (nodes - 1) / (few - 1))
        ),
        "",
        f"| command | {few:,} nodes: wall, CPU, peak | {nodes:,} nodes: wall, CPU, peak |",
        "|---|---|---|",
        *(
            f"| `{name}` | {cost(getattr(small, part))} | {cost(getattr(large, part))} |"
            for name, part in (
                ("taintctl plan --driver … --pool …", "plan"),
                ("kubectl get resourceclaims -A -o json", "claims"),
                ("kubectl get resourceslices -o json", "slices"),
            )
        ),
        "",
        "| in the controller | " + f"{few:,} nodes | {nodes:,} nodes |",
        "|---|---|---|",
        f"| resident memory | {small.resident:.0f} MB | {large.resident:.0f} MB |",
        *(
            f"| {name} | {figure(small.cached[part])} | {figure(large.cached[part])} |"
            for name, part in (
                ("filling the cache", "filled_s"),
                ("plan of one node from it, median", "node_plan_s"),
                ("plan of one node from it, slowest", "node_plan_worst_s"),
                ("plan of a class of a tenth of the devices from it", "class_plan_s"),
                ("CPU for one changed claim", "event_cpu_s"),
            )
        ),
        "",
        "| on an idle pool | " + f"{few:,} nodes | {nodes:,} nodes |",
        "|---|---|---|",
        "| from a run's start to NoExecute, beyond the 10 s that NoSchedule has to stand | "
        f"{figure(small.way['run_s'])} | {figure(large.way['run_s'])} |",
        "| kubectl: apply, wait, read, delete, apply, wait, patch, wait | "
        f"{figure(small.way['kubectl_s'])} | {figure(large.way['kubectl_s'])} |",
        "",
        "The live reads before NoExecute grow with the fleet: each takes about what `taintctl plan` takes, for only "
        "all claims together tell who holds a device. kubectl looks at no claim.",
        "",
        "A plan of a class is measured without the owners' requests (they are remembered for a minute), from the cache "
        "of a controller as it is after its start.",
        "",
    ]
    return "\n".join(lines)


def cost(found: Cost) -> str:
    return f"{found.wall:.1f} s, {found.cpu:.1f} s, {found.peak:.0f} MB"


def figure(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 0.1 else f"{seconds:.2f} s"


def processor() -> str:
    try:
        found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    except OSError:
        found = []
    return found[0].partition(":")[2].strip() if found else platform.processor() or "unknown processor"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    given: Any = parser.parse_args(arguments)
    if shutil.which("kubectl") is None:
        raise SystemExit("there is no kubectl to compare with; install one (.ci/run brings one)")
    few = max(given.nodes // 80, 125)
    text = page(given.nodes, few, measure(given.nodes), measure(few))
    print(text)
    if given.write:
        (ROOT / "docs" / "benchmarks.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
