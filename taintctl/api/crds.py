"""The CustomResourceDefinitions, made from the models: what an API server refuses is what `check()` refuses.

`crds/` holds them as files; the build fails when the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import GROUP, VERSION
from taintctl.api.check import KINDS, Own
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun
from taintctl.api.schema import Schema, schema
from taintctl.api.window import MaintenanceWindow


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False, about: str = "") -> Schema:
    column: Schema = {"name": name, "type": kind, "jsonPath": path}
    if about:
        column["description"] = about
    if wide:
        column["priority"] = 1
    return column


def _condition(kind: str, field: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_AGE = _column("Age", ".metadata.creationTimestamp", "date")

COLUMNS: Mapping[type[Own], tuple[Schema, ...]] = {
    MaintenanceWindow: (
        _column("Schedule", ".spec.schedule.cron"),
        _column("Timezone", ".spec.schedule.timeZone"),
        _column("Next", ".status.nextStart", about="When the next run starts, in UTC."),
        _column("Duration", ".spec.schedule.duration"),
        _column("Active", ".status.activeRun", about="The run that has not ended."),
        _column("Suspend", ".spec.suspend", "boolean"),
        _column("Ready", _condition("Ready", "reason")),
        _column("Once", ".spec.schedule.start", wide=True, about="The one start of a window without cron."),
        _column("Last", ".status.lastStart", wide=True),
        _column("Policy", ".spec.policyName", wide=True),
        _AGE,
    ),
    MaintenanceRun: (
        _column("Phase", ".status.phase"),
        _column("Reason", ".status.reason"),
        _column("Devices", ".status.plan.counts.devices", "integer"),
        _column("Pods", ".status.plan.counts.pods", "integer", about="Pods that would go."),
        _column("Policy", ".spec.policyName"),
        _column("Start", ".spec.startAt"),
        _column("Deadline", ".spec.deadline"),
        _column("Window", ".spec.trigger.windowName", wide=True),
        _column("Message", ".status.message", wide=True),
        _column("Next", ".status.nextStep", wide=True, about="What a person would do next."),
        _AGE,
    ),
    EvictionPolicy: (
        _column("Max-Pods", ".spec.limits.maxPods", "integer", about="More are never evicted by one run."),
        _column("Auto-Pods", ".spec.autoApprove.maxPods", "integer", about="Up to so many need no approval."),
        _column("Approval", ".spec.approval.required"),
        _column("People", ".spec.approval.count", "integer"),
        _column("Budgets", ".spec.budgets"),
        _column("Accepted", _condition("Accepted", "status")),
        # Text: it may be a percentage.
        _column("Max-Devices", ".spec.limits.maxDevices", wide=True),
        _column("Max-Unavailable", ".spec.limits.maxUnavailable", wide=True, about="Devices out, over all runs."),
        _column("Max-Namespaces", ".spec.limits.maxNamespaces", "integer", wide=True),
        _AGE,
    ),
    MaintenanceApproval: (
        _column("Run", ".spec.runName"),
        _column("Decision", ".spec.decision"),
        _column("Approver", ".spec.approver.name"),
        _column("Accepted", _condition("Accepted", "status")),
        _column("Reason", _condition("Accepted", "reason")),
        _column("Comment", ".spec.comment", wide=True),
        _AGE,
    ),
}


def manifests() -> dict[str, dict[str, Any]]:
    """Every CustomResourceDefinition by its file name. Raises ValueError where a model's `spec` leaves a string,
    list or map without a bound."""
    return {f"{GROUP}_{kind.PLURAL}.yaml": crd(kind) for kind in KINDS}


def crd(kind: type[Own]) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster",
            "names": {
                "kind": kind.KIND,
                "listKind": f"{kind.KIND}List",
                "plural": kind.PLURAL,
                "singular": kind.KIND.lower(),
                "shortNames": list(kind.SHORT_NAMES),
                "categories": ["taintctl"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [dict(column) for column in COLUMNS[kind]],
                    "schema": {"openAPIV3Schema": schema(kind)},
                }
            ],
        },
    }
