"""`taintctl devices`: the fleet."""

from __future__ import annotations

import click

from taintctl.adapters.kubernetes.discovery import RESOURCE_GROUP
from taintctl.api.objects import DeviceTaintRule, ResourceSlice
from taintctl.cli.fleet import Device, document, fleet
from taintctl.cli.options import on_cluster, output_option
from taintctl.cli.output import emit
from taintctl.cli.session import Session
from taintctl.cli.text import say
from taintctl.cli.views.devices import device_table
from taintctl.ports.cluster import Scope

NO_DRIVER = "No driver publishes devices (no ResourceSlice); is a DRA driver running?"


@click.command()
@click.option("--driver", help="Only this driver's devices.")
@click.option("--node", help="Only devices of this node.")
@output_option
@on_cluster
async def devices(session: Session, driver: str | None, node: str | None, output: str) -> None:
    """Every device: its node, the pods and claims that use it (extended resources too), its taints and who set them."""
    found = await read(session, driver)
    if node is not None:
        found = [device for device in found if device.node == node]
    if output in ("json", "yaml"):
        emit(document(found), output)
    elif not found:
        all_of_them = "`taintctl devices` without options lists all there are"
        say(f"No device matches; {all_of_them}." if driver or node else NO_DRIVER)
    else:
        say(device_table(found, wide=output == "wide"))


async def read(session: Session, driver: str | None) -> list[Device]:
    """The fleet, driver by driver."""
    base = f"/apis/{RESOURCE_GROUP}"
    rules = await session.client.list(f"{base}/{session.discovery.require_rules()}/devicetaintrules", DeviceTaintRule)
    drivers = {driver} if driver else set()
    if not driver:
        version = session.discovery.require_objects()
        slices = await session.client.list(f"{base}/{version}/resourceslices", ResourceSlice)
        drivers = {found.spec.driver for found in slices.items}
    devices: list[Device] = []
    for name in sorted(drivers):
        devices += fleet(await session.cluster.snapshot(Scope(driver=name, owners=False)), rules.items, name)
    return devices
