"""The fleet as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from taintctl.api.text import plural, some
from taintctl.cli.fleet import Device, SetTaint, User
from taintctl.cli.text import WARN, Cell, Line, heading, line, styled, table


def device_table(devices: Sequence[Device], *, wide: bool = False) -> list[Line]:
    """A row a device, with its taints by effect and setter; below it each taint whole, once."""
    if not devices:
        return [line("No devices match.")]
    header = ["NODE", "POOL", "DEVICE", *(["UUID", "DRIVER"] if wide else []), "USED BY", "TAINTS"]
    # Where pools are named after their nodes, one of the two is enough.
    spare = ["NODE"] if all(device.node == device.pool for device in devices) else []
    rows = [_row(device, wide) for device in devices]
    lines = table(header, rows, whole=("POOL", "DEVICE"), optional=["DRIVER"] if wide else [], spare=spare)
    tainted = Counter(taint for device in devices for taint in device.taints)
    if tainted:
        lines += [line(""), heading("Taints")]
        lines += table(
            ("TAINT", "SET BY", "DEVICES"),
            [
                (styled(taint.text, WARN), taint.setter, str(count))
                for taint, count in sorted(tainted.items(), key=_name)
            ],
            indent=2,
        )
        lines.append(line(""))
    used = sum(any(not user.admin_access for user in device.users) for device in devices)
    marked = sum(bool(device.taints) for device in devices)
    lines.append(line(f"{plural(len(devices), 'device')}: {used} in use, {marked} tainted."))
    return lines


def _name(found: tuple[SetTaint, int]) -> tuple[str, str]:
    return found[0].setter, found[0].text


def _row(device: Device, wide: bool) -> list[Cell]:
    row: list[Cell] = [
        device.node or ("-" if device.published else styled("no longer published", WARN)),
        device.pool,
        device.device,
    ]
    row += [device.uuid or "-", device.driver] if wide else []
    users = [user_text(user) for user in device.users]
    users += [f"claim {name} (no pod)" for name in device.idle_claims]
    taints = [f"{taint.effect} by {taint.setter}" for taint in device.taints]
    limit = 1000 if wide else 3
    return [*row, some(users, limit) or "-", styled(some(taints, limit), WARN) if taints else "-"]


def user_text(user: User) -> str:
    notes = ["extended resource"] if user.extended else []
    notes += ["adminAccess"] if user.admin_access else []
    notes += [user.state.lower()] if user.state != "Running" else []
    return f"{user.key} ({', '.join(notes)})" if notes else user.key
