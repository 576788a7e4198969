"""Objects that nobody can read, a fleet of thousands of devices: the controller goes on with what it can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from taintctl.api.base import API_VERSION
from tests.e2e.town import APPROVALS, POLICIES, RUNS, WINDOWS, Town, town

pytestmark = pytest.mark.process

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def accept_anything(place: Town) -> None:
    """As where somebody loosened the CRDs by hand, or objects are older than their schema."""

    def loosen(crd: dict[str, Any]) -> None:
        for version in crd["spec"]["versions"]:
            version["schema"] = {"openAPIV3Schema": ANYTHING}

    for key in (RUNS, WINDOWS, POLICIES, APPROVALS):
        place.sandbox.store.mutate(CRDS, None, key, loosen)


def accepted(place: Town, key: str, name: str) -> tuple[str, str]:
    """Status and message of the first condition that has them (Accepted); empty where there is none."""
    status: Any = place.status(name, key)
    conditions = (status.get("conditions") or ()) if isinstance(status, dict) else ()
    return next(((c["status"], c["message"]) for c in conditions if "message" in c), ("", ""))


TARGET = {"driver": "gpu.example.com", "pool": "gpu-worker-02"}
BAD_SPECS: dict[tuple[str, str, str], tuple[Any, str]] = {
    ("MaintenanceRun", RUNS, "misspelt"): (
        {
            "target": {"driver": "gpu.example.com", "pool": "gpu-worker-01", "devcie": "gpu-0"},
            "deadline": "2030-01-01T00:00:00Z",
        },
        "spec.target.devcie",
    ),
    ("MaintenanceRun", RUNS, "empty"): ({"target": {}, "deadline": "2030-01-01T00:00:00Z"}, "spec.target"),
    ("MaintenanceRun", RUNS, "list"): (["a", 1], "spec"),
    ("MaintenanceRun", RUNS, "no-deadline"): ({"target": TARGET}, "spec.deadline"),
    ("MaintenanceWindow", WINDOWS, "cron"): (
        {"schedule": {"cron": "0 21 * * 8-99", "duration": "8h"}, "target": TARGET},
        "spec.schedule: 8 is out of range",
    ),
    ("MaintenanceWindow", WINDOWS, "zone"): (
        {"schedule": {"cron": "0 21 * * *", "timeZone": "Europe/Atlantis", "duration": "8h"}, "target": TARGET},
        "spec.schedule",
    ),
    ("MaintenanceWindow", WINDOWS, "text"): ("nightly", "spec"),
    ("EvictionPolicy", POLICIES, "many"): ({"limits": {"maxPods": "many"}}, "spec.limits.maxPods"),
    ("EvictionPolicy", POLICIES, "misspelt"): ({"limts": {"maxPods": 1}}, "spec.limts"),
    ("MaintenanceApproval", APPROVALS, "nobody"): ({"runName": "run", "decision": "Perhaps"}, "spec"),
}


async def test_a_misbehaving_object_stops_nothing_else(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        accept_anything(place)
        for (kind, _, name), (spec, _) in BAD_SPECS.items():
            place.sandbox.apply([{"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}])
        odd = {"phase": "Dancing", "history": 7, "conditions": [{"type": "Accepted"}]}
        place.start("odd-status", target=TARGET)
        for name, status in {"odd-status": odd, "list": "fine"}.items():
            place.sandbox.store.mutate(
                RUNS, None, name, lambda run, status=status: run.update(status=status), subresource="status"
            )
        process = await place.controller()
        await process.says("the lease is ours")
        for (kind, key, name), (_, where) in BAD_SPECS.items():
            await place.until(lambda key=key, name=name: accepted(place, key, name)[0] == "False", f"{kind} {name}")
            assert where in accepted(place, key, name)[1], (kind, name, accepted(place, key, name))
        await place.until(lambda: accepted(place, RUNS, "odd-status")[0] == "False", "the run of an odd status")
        assert "status.phase" in accepted(place, RUNS, "odd-status")[1]
        place.policy()
        place.start()
        await place.hands()
        await place.reaches("Succeeded")
        place.assert_ended_well()
        place.assert_nothing_odd_said()
        assert process.process.returncode is None


async def test_a_fleet_of_four_thousand_devices_is_planned_whole(tmp_path: Path) -> None:
    """500 nodes with 8 devices each, 505 pods: one pool, and then, node by node, the whole driver."""
    async with town(tmp_path, nodes=500, gpus=8) as place:
        place.policy(limits={"maxPods": 1000}, budgets="Ignore")
        process = await place.controller()
        await process.probes("/readyz", 200)
        place.start()
        await place.reaches("AwaitingApproval")
        counts = place.status()["plan"]["counts"]
        assert (counts["devices"], counts["pods"], counts["namespaces"]) == (8, 5, 2)
        place.start("whole", target={"driver": "gpu.example.com", "wholeDriver": True})
        # What can never be is said at once, though another run is under way.
        await place.until(lambda: place.status("whole").get("phase") == "Blocked", "a plan that is too large")
        assert place.status("whole")["reason"] == "TooManyRules"
        assert "needs 500 DeviceTaintRules" in place.status("whole")["message"]
        place.patch(cancelled=True)
        await place.reaches("Cancelled")
        assert place.sandbox.store.list("devicetaintrules.resource.k8s.io") == []
        assert place.evicted == []
        place.assert_nothing_odd_said()
