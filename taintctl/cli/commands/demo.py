"""`taintctl demo`: a whole maintenance window on a sandbox."""

from __future__ import annotations

import asyncio

import click

from taintctl.cli.commands.sandbox import KUBERNETES
from taintctl.cli.options import SpeedType
from taintctl.cli.text import command, heading, line, say, styled


@click.command()
@click.option("--nodes", type=click.IntRange(2, 100), default=3, show_default=True)
@click.option("--gpus-per-node", type=click.IntRange(3, 128), default=4, show_default=True)
@click.option("--kubernetes", type=click.Choice(KUBERNETES), default="1.37", show_default=True)
@click.option(
    "--speed",
    type=SpeedType(1, 20),
    default=10.0,
    show_default=True,
    help="Divides the delays of control plane and controller.",
)
@click.option("--keep", is_flag=True, help="Leave the sandbox up afterwards, and say how to look around.")
def demo(nodes: int, gpus_per_node: int, kubernetes: str, speed: float, keep: bool) -> None:
    """A maintenance window from dry run to release, in about a minute, with no cluster and no input.

    It runs a sandbox, the real controller and real API calls, and asserts each step: exit status 1, with one
    sentence, if anything is not so.
    """
    asyncio.run(_tell(nodes, gpus_per_node, kubernetes, speed, keep))


async def _tell(nodes: int, gpus_per_node: int, kubernetes: str, speed: float, keep: bool) -> None:
    from taintctl.cli.lab import apply_lab_policy, environment, until_interrupted
    from taintctl.cli.story.stage import stage
    from taintctl.cli.story.window import Story

    say(line(heading("taintctl demo"), f": a sandbox of Kubernetes {kubernetes}, {speed:g} times as fast."))
    async with stage(nodes=nodes, gpus_per_node=gpus_per_node, kubernetes=kubernetes, speed=speed) as ready:
        story = Story(ready)
        await story.tell()
        say("")
        say(line(styled("All of it was so.", "green"), " Every step was checked while it was told."))
        if not keep:
            return
        apply_lab_policy(ready.sandbox)
        say(
            [
                line(""),
                line("The sandbox stays up, in memory, until Ctrl-C. Look around in another terminal:"),
                *environment(ready.admin_kubeconfig),
                command("  kubectl get mw,mr,ma,evp"),
                command(f"  kubectl describe mr {story.run}"),
                command(f"  taintctl status {story.run}"),
                command("  taintctl devices"),
                command(f"  taintctl start --driver gpu.example.com --pool {story.pool} --policy lab --wait"),
                command("  kubectl get devicetaintrules -w"),
            ]
        )
        await until_interrupted(asyncio.Event())
