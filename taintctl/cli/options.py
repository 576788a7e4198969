"""Options and parameter types that several commands share."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from taintctl.cli.session import Reading

F = TypeVar("F", bound=Callable[..., Any])


class DurationType(click.ParamType[timedelta]):
    """A duration as Kubernetes writes it, such as 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        from taintctl.api.base import parse_duration

        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class SpeedType(click.FloatRange):
    """A factor that divides waits; a range lets NaN through, which is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        speed: float = super().convert(value, param, ctx)
        if math.isnan(speed):
            self.fail(f"{value} is not a number", param, ctx)
        return speed


class TimeType(click.ParamType[datetime]):
    """An RFC 3339 time with a zone."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from taintctl.api.base import parse_time

        if isinstance(value, datetime):
            return value
        try:
            return parse_time(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION, TIME = DurationType(), TimeType()


def output_option(function: F) -> F:
    """`-o`, for what lists or shows objects."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(("table", "wide", "json", "yaml")),
        default="table",
        show_default=True,
        help="json and yaml are for scripts.",
    )(function)


def target_options(function: F) -> F:
    """The devices, as a MaintenanceRun's spec.target names them."""
    for option in (
        click.option("--whole-driver", is_flag=True, help="The target may be every device of a driver."),
        click.option(
            "--partitions",
            type=click.Choice(("Include", "Exact")),
            help="Whether other devices on the same hardware go along; default: Include.",
        ),
        click.option("--uuid", multiple=True, help="The hardware's UUID; may be given several times."),
        click.option(
            "--selector", multiple=True, help="A CEL expression, as in a ResourceClaim's request; repeatable."
        ),
        click.option("--device-class", help="Devices that this DeviceClass selects."),
        click.option("--node-selector", multiple=True, metavar="KEY=VALUE", help="Labels of the devices' node."),
        click.option("--device", help="The device's name in its pool, such as gpu-0."),
        click.option("--pool", help="The driver's pool, for node-local devices usually the node's name."),
        click.option("--driver", help="The DRA driver, such as gpu.nvidia.com."),
    ):
        function = option(function)
    return function


def connection_options(function: F) -> F:
    """--kubeconfig and --context behind the command too, where kubectl's users put them."""
    function = click.option("--context", "context_name", help="The kubeconfig's context; default: its current one.")(
        function
    )
    return click.option("--kubeconfig", type=click.Path(), help="Default: $KUBECONFIG, then ~/.kube/config.")(function)


def connection_of(
    ctx: click.Context, kubeconfig: str | None, context_name: str | None
) -> tuple[str | None, str | None]:
    """What was said behind the command wins over what was said before it."""
    settings = ctx.obj or {}
    return kubeconfig or settings.get("kubeconfig"), context_name or settings.get("context")


def on_cluster(
    function: Callable[..., Awaitable[int | None]],
    usage: Callable[..., None] | None = None,
    instead: Callable[..., Reading | None] | None = None,
) -> Callable[..., int | None]:
    """Makes a coroutine that takes a Session a click callback with connection options; it gives the exit status.

    `usage` is called with the parameters first, and raises click.UsageError before any cluster is asked. `instead` is
    called with them too, and may give what to look at in place of a cluster.
    """

    @click.pass_context
    @wraps(function)
    def command(
        ctx: click.Context, /, *, kubeconfig: str | None, context_name: str | None, **kwargs: Any
    ) -> int | None:
        from taintctl.adapters.kubernetes.config import ConfigError
        from taintctl.cli.errors import BadFile
        from taintctl.cli.session import Session

        if usage is not None:
            usage(**kwargs)
        reading = instead(**kwargs) if instead is not None else None

        async def whole() -> int | None:
            if reading is not None:
                return await function(reading, **kwargs)
            asked = connection_of(ctx, kubeconfig, context_name)
            try:
                async with Session.open(*asked) as session:
                    return await function(session, **kwargs)
            except ConfigError as error:
                if any(asked):
                    raise BadFile(error.message) from None  # an option that can't be meant
                raise

        return asyncio.run(whole())

    return connection_options(command)
