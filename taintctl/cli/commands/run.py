"""`taintctl run`: the controller."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Literal
from urllib.parse import urlsplit

import click

from taintctl.cli.options import SpeedType, connection_of, connection_options
from taintctl.controller.defaults import NAMESPACE, PROBES_PORT

NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@click.command()
@click.option("--lease-namespace", default=NAMESPACE, show_default=True, help="Where the one Lease lives.")
@click.option(
    "--probes-port",
    type=click.IntRange(0, 65535),
    default=PROBES_PORT,
    show_default=True,
    help="/healthz and /readyz; 0 takes any free port and logs it.",
)
@click.option(
    "--probes-host",
    default="0.0.0.0",  # noqa: S104 (the kubelet asks from outside the pod)
    show_default=True,
    help="127.0.0.1 keeps them, and --slack-http-port, to this machine.",
)
@click.option("--no-probes", is_flag=True, help="Serve no probes.")
@click.option("--workers", type=click.IntRange(1, 64), default=4, show_default=True, help="Runs worked on at once.")
@click.option(
    "--slack-http-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Where Slack posts clicks to; 0: they come through a websocket (Socket Mode). Tokens: docs/slack.md.",
)
@click.option("--slack-api-url", default="", hidden=True, help="Another Slack, for tests: https, or this machine.")
@click.option(
    "--webhook-key-file",
    type=click.Path(dir_okay=False),
    default="",
    help="What webhook events are signed with; else TAINTCTL_WEBHOOK_KEY or TAINTCTL_WEBHOOK_KEY_FILE.",
)
@click.option(
    "--allow-unverified-approvals",
    is_flag=True,
    help="Count approvals although no admission policy holds the approver to the caller's name.",
)
@click.option(
    "--speed",
    type=SpeedType(0, 1000, min_open=True),
    default=1.0,
    show_default=True,
    help="Divides every wait. Only for a sandbox of the same speed.",
)
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(("debug", "info", "warning")), default="info", show_default=True)
@connection_options
@click.pass_context
def run(
    ctx: click.Context,
    lease_namespace: str,
    probes_port: int,
    probes_host: str,
    no_probes: bool,
    workers: int,
    slack_http_port: int,
    slack_api_url: str,
    webhook_key_file: str,
    allow_unverified_approvals: bool,
    speed: float,
    log_format: Literal["text", "json"],
    log_level: str,
    kubeconfig: str | None,
    context_name: str | None,
) -> int:
    """The controller. One works at a time; a second one waits for the first one's Lease. Logs to stderr.

    It needs Kubernetes 1.35 or later (tested with 1.36 and 1.37) with DeviceTaintRule served, and taintctl's CRDs.
    """
    from taintctl.controller.host import ControllerOptions, run_controller
    from taintctl.controller.people import PeopleOptions

    if slack_api_url and not _private(slack_api_url):
        raise click.UsageError("--slack-api-url is an https URL, or an http one of this machine (127.0.0.1)")
    if not NAMESPACE_NAME.fullmatch(lease_namespace):
        raise click.UsageError("--lease-namespace is the name of a namespace, such as taintctl-system")
    kubeconfig, context_name = connection_of(ctx, kubeconfig, context_name)
    return asyncio.run(
        run_controller(
            ControllerOptions(
                kubeconfig=kubeconfig,
                context=context_name,
                speed=speed,
                allow_unverified_approvals=allow_unverified_approvals,
                lease_namespace=lease_namespace,
                probes_host=probes_host,
                probes_port=None if no_probes else probes_port,
                workers=workers,
                people=PeopleOptions(
                    slack_http_port=slack_http_port or None,
                    slack_http_host=probes_host,
                    slack_api_url=slack_api_url,
                    webhook_key_file=webhook_key_file,
                ),
                log_format=log_format,
                log_level=logging.getLevelNamesMapping()[log_level.upper()],
            )
        )
    )


def _private(url: str) -> bool:
    """Whether tokens may go there."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"))
