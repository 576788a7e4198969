"""Devices, users and taints from recorded objects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from taintctl.api.objects import DeviceTaintRule, Pod, ResourceClaim, ResourceSlice, Snapshot
from taintctl.cli.fit import fit
from taintctl.cli.fleet import Device, SetTaint, User, document, fleet
from taintctl.cli.views.devices import device_table
from tests.cli.builders import plain

RECORDING = Path(__file__).parent.parent / "recordings" / "01-objects.json"
DRIVER = "gpu.example.com"


def recorded(kind: str, typ: Any) -> tuple[Any, ...]:
    found: list[Any] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if value.get("kind") == kind and "metadata" in value:
                found.append(value)
            elif value.get("kind") == f"{kind}List":
                found.extend(value["items"])
            else:
                for inner in value.values():
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(json.loads(RECORDING.read_text()))
    return tuple(msgspec.convert(item, typ) for item in found)


def snapshot(**changes: Any) -> Snapshot:
    parts: dict[str, Any] = {
        "slices": recorded("ResourceSlice", ResourceSlice),
        "published": {},
        "claims": recorded("ResourceClaim", ResourceClaim),
        "pods": recorded("Pod", Pod),
        "nodes": (),
        "budgets": (),
        "classes": (),
        "taken_at": datetime(2026, 1, 1, tzinfo=UTC),
        "live": True,
    }
    return Snapshot(**{**parts, **changes})


def rule(name: str, selector: dict[str, str] | None, *, run: str = "") -> DeviceTaintRule:
    raw: dict[str, Any] = {
        "metadata": {"name": name},
        "spec": {"taint": {"key": "k", "value": "v", "effect": "NoSchedule"}},
    }
    if selector is not None:
        raw["spec"]["deviceSelector"] = selector
    if run:
        raw["metadata"]["labels"] = {"taintctl.dev/run": run}
        raw["metadata"]["name"] = "taintctl-u-0"
    return msgspec.convert(raw, DeviceTaintRule)


def users(devices: list[Device]) -> dict[str, int]:
    return {f"{d.pool}/{d.device}": len(d.users) for d in devices if d.users}


def test_recorded_pods_are_found_on_their_devices() -> None:
    found = fleet(snapshot(), (), DRIVER)
    # Whatever the recording holds: each allocation result with a reservation is a user, none is lost or doubled.
    expected: dict[str, int] = {}
    for claim in recorded("ResourceClaim", ResourceClaim):
        for result in (claim.status.allocation.devices.results if claim.status.allocation else None) or ():
            key = f"{result.pool}/{result.device}"
            expected[key] = expected.get(key, 0) + len(claim.status.reserved_for or ())
    assert expected
    assert users(found) == {key: count for key, count in expected.items() if count}
    extended = [user.key for device in found for user in device.users if user.extended]
    assert len(extended) == 1


def test_a_pod_that_is_gone_and_a_claim_without_pod_are_told_apart() -> None:
    gone = fleet(snapshot(pods=()), (), DRIVER)
    assert {user.state for device in gone for user in device.users} == {"Gone"}
    claims = tuple(
        msgspec.structs.replace(c, status=msgspec.structs.replace(c.status, reserved_for=None))
        for c in recorded("ResourceClaim", ResourceClaim)
    )
    idle = fleet(snapshot(claims=claims), (), DRIVER)
    assert not users(idle)
    assert any(device.idle_claims for device in idle)
    assert "(no pod)" in plain(device_table(idle))


def test_a_device_that_only_an_allocation_names_is_shown() -> None:
    found = fleet(snapshot(slices=()), (), DRIVER)
    assert found
    assert not any(device.published for device in found)
    assert "no longer published" in plain(device_table(found))


def test_taints_say_who_set_them_and_a_missing_selector_means_nobody() -> None:
    pool = next(iter(fleet(snapshot(), (), DRIVER))).pool
    rules = [
        rule("by-hand", {"driver": DRIVER, "pool": pool}),
        rule("ours", {"driver": DRIVER}, run="nightly"),
        rule("nobody", None),
        rule("elsewhere", {"driver": "other.example.com"}),
    ]
    found = fleet(snapshot(), rules, DRIVER)
    here = next(device for device in found if device.pool == pool)
    assert [(taint.text, taint.setter) for taint in here.taints] == [
        ("k=v:NoSchedule", "rule by-hand"),
        ("k=v:NoSchedule", "run nightly"),
    ]
    items = document(found)["items"]
    assert items[0]["taints"][1]["setBy"] == {"kind": "MaintenanceRun", "name": "nightly"}


def test_only_the_newest_generation_of_a_pool_counts() -> None:
    slices = recorded("ResourceSlice", ResourceSlice)
    newer = msgspec.structs.replace(
        slices[0],
        spec=msgspec.structs.replace(
            slices[0].spec,
            devices=slices[0].spec.devices[:1],
            pool=msgspec.structs.replace(slices[0].spec.pool, generation=slices[0].spec.pool.generation + 1),
        ),
    )
    found = fleet(snapshot(slices=(*slices, newer), claims=()), (), slices[0].spec.driver)
    names = [d.device for d in found if d.pool == newer.spec.pool.name]
    assert names == [newer.spec.devices[0].name]


def test_on_eighty_columns_a_device_is_a_line_or_two_and_a_taint_is_said_once() -> None:
    taint = SetTaint("taintctl.dev/maintenance", "nightly-29567890", "NoExecute", "MaintenanceRun", "nightly-29567890")
    user = User("team-a", "train-01", "u", "c", False, False, "Running")
    devices = [
        Device(DRIVER, "gpu-worker-01", f"gpu-{n}", "gpu-worker-01", "", True, (user,), (), (taint,)) for n in range(2)
    ]
    # The taint is 51 wide, its setter 20 (16 without a break in a word) and the count 7: 72 are there for them.
    shown = [part.plain for row in device_table(devices) for part in fit(row, 80)]
    assert shown == [
        "POOL            DEVICE   USED BY           TAINTS",
        "gpu-worker-01   gpu-0    team-a/train-01   NoExecute by run nightly-29567890",
        "gpu-worker-01   gpu-1    team-a/train-01   NoExecute by run nightly-29567890",
        "",
        "Taints",
        "  TAINT                                               SET BY             DEVICES",
        "  taintctl.dev/maintenance=nightly-29567890:          run                2",
        "  NoExecute                                           nightly-29567890",
        "",
        "2 devices: 2 in use, 2 tainted.",
    ]
    # A pool that is not named after its node needs both.
    elsewhere = Device(DRIVER, "rack-7", "gpu-0", "gpu-worker-01", "", True, (), (), (taint,))
    assert "gpu-worker-01" in plain([part for row in device_table([elsewhere]) for part in fit(row, 60)])
