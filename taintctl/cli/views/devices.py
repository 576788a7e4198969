"""The fleet as a table."""

from __future__ import annotations

from collections.abc import Sequence

from taintctl.api.text import plural, some
from taintctl.cli.fleet import Device, User
from taintctl.cli.text import WARN, Cell, Line, line, styled, table


def device_table(devices: Sequence[Device], *, wide: bool = False) -> list[Line]:
    if not devices:
        return [line("No devices match.")]
    header = ["NODE", "POOL", "DEVICE", *(["UUID", "DRIVER"] if wide else []), "USED BY", "TAINTS"]
    lines = table(header, [_row(device, wide) for device in devices])
    used = sum(any(not user.admin_access for user in device.users) for device in devices)
    tainted = sum(bool(device.taints) for device in devices)
    lines.append(line(f"{plural(len(devices), 'device')}: {used} in use, {tainted} tainted."))
    return lines


def _row(device: Device, wide: bool) -> list[Cell]:
    row: list[Cell] = [
        device.node or ("-" if device.published else styled("no longer published", WARN)),
        device.pool,
        device.device,
    ]
    row += [device.uuid or "-", device.driver] if wide else []
    users = [user_text(user) for user in device.users]
    users += [f"claim {name} (no pod)" for name in device.idle_claims]
    taints = [str(taint) for taint in device.taints]
    limit = 1000 if wide else 3
    return [*row, some(users, limit) or "-", styled(some(taints, limit), WARN) if taints else "-"]


def user_text(user: User) -> str:
    notes = ["extended resource"] if user.extended else []
    notes += ["adminAccess"] if user.admin_access else []
    notes += [user.state.lower()] if user.state != "Running" else []
    return f"{user.key} ({', '.join(notes)})" if notes else user.key
