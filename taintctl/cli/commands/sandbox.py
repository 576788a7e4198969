"""`taintctl sandbox`: a cluster to try on."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from taintctl.api.text import plural
from taintctl.cli.errors import FAILED, Failure
from taintctl.cli.options import SpeedType
from taintctl.cli.text import Line, command, heading, line, say

KUBERNETES = ("1.37", "1.36")


@click.command()
@click.option("--nodes", type=click.IntRange(1, 10_000), default=3, show_default=True)
@click.option("--gpus-per-node", type=click.IntRange(1, 128), default=4, show_default=True)
@click.option(
    "--partitions",
    type=click.IntRange(0, 7),
    default=0,
    show_default=True,
    help="Publish each GPU whole and in so many partitions too.",
)
@click.option(
    "--kubernetes",
    type=click.Choice(KUBERNETES),
    default="1.37",
    show_default=True,
    help="1.37 serves DeviceTaintRule at v1, 1.36 at v1beta2.",
)
@click.option(
    "--speed",
    type=SpeedType(0, 1000, min_open=True),
    default=1.0,
    show_default=True,
    help="Divides the control plane's delays; timestamps stay the wall's.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free port.")
@click.option("--kubeconfig-out", type=click.Path(dir_okay=False), help="Where the kubeconfig goes while it runs.")
@click.option("--controller", is_flag=True, help="Run the controller here too, with the same speed.")
def sandbox(
    nodes: int,
    gpus_per_node: int,
    partitions: int,
    kubernetes: str,
    speed: float,
    port: int,
    kubeconfig_out: str | None,
    controller: bool,
) -> int | None:
    """A whole cluster in this process: API server, scheduler, kubelets, device taint eviction, and a fleet of GPUs.

    kubectl and taintctl work against it, and taintctl's CRDs, roles and admission policies are installed. Its state is
    in memory and gone when it stops. It listens on 127.0.0.1 only.
    """
    fleet = {"nodes": nodes, "gpus_per_node": gpus_per_node, "partitions": partitions}
    return asyncio.run(_serve(fleet, kubernetes, speed, port, kubeconfig_out, controller))


async def _serve(
    fleet: dict[str, int], kubernetes: str, speed: float, port: int, out: str | None, controller: bool
) -> int | None:
    from taintctl.cli.lab import CONTROLLER, apply_lab_policy, kubeconfig_file, lab, until_interrupted

    stop = asyncio.Event()
    async with lab(**fleet, kubernetes=kubernetes, speed=speed, port=port) as running:
        apply_lab_policy(running)
        with ExitStack() as files:
            folder = Path(files.enter_context(tempfile.TemporaryDirectory(prefix="taintctl-sandbox-")))
            admin = files.enter_context(kubeconfig_file(running, Path(out) if out else folder / "kubeconfig"))
            account = files.enter_context(kubeconfig_file(running, folder / "controller.kubeconfig", CONTROLLER))
            size = f"{plural(fleet['nodes'], 'node')} of {plural(fleet['gpus_per_node'], 'GPU')}"
            if fleet["partitions"]:
                size += f", each also in {plural(fleet['partitions'], 'partition')}"
            say(line(heading("Sandbox"), f": Kubernetes {kubernetes} at {running.url}, {size}."))
            say(_introduction(admin, account, speed, controller, fleet["nodes"]))
            if not controller:
                await until_interrupted(stop)
                return None
            return await _with_controller(account, speed, stop)


async def _with_controller(account: Path, speed: float, stop: asyncio.Event) -> int | None:
    """The controller in this very event loop. It takes the signals; when it ends, so does the sandbox."""
    from taintctl.controller.host import ControllerOptions, run_controller

    status = await run_controller(ControllerOptions(kubeconfig=str(account), speed=speed, probes_port=None), stop)
    if status == FAILED:
        raise Failure("the controller ended, and the sandbox with it; its log above says why")
    return None


def _introduction(admin: Path, account: Path, speed: float, controller: bool, nodes: int) -> list[Line]:
    from taintctl.cli.lab import environment, program

    factor = f" --speed {speed:g}" if speed != 1 else ""
    lines = [
        line("Its state is in memory and gone when it stops (Ctrl-C). taintctl is installed on it. Look around:"),
        line(""),
        *environment(admin),
        command("  kubectl get nodes,resourceslices"),
        command("  kubectl get pods -A -o wide"),
        command("  taintctl devices"),
        command("  taintctl plan --driver gpu.example.com --pool gpu-worker-01"),
    ]
    if nodes > 1:  # policy lab lets half of the fleet out of service
        lines.append(command("  taintctl start --driver gpu.example.com --pool gpu-worker-02 --policy lab --wait"))
    lines.append(line(""))
    if controller:
        lines.append(line("The controller runs here too; its log follows."))
    else:
        lines.append(line("No controller runs yet; in another terminal:"))
        lines.append(command(f"  {program()} run --kubeconfig {account}{factor} --probes-host 127.0.0.1"))
    return lines
