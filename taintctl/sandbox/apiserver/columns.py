"""What `kubectl get` shows of each kind: the columns of `pkg/printers/internalversion`, and those of definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from taintctl.sandbox.apiserver import jsonpath
from taintctl.sandbox.apiserver.ages import since
from taintctl.sandbox.apiserver.meta import Object, parse_time

Cell = Callable[[Object, datetime], Any]


@dataclass(frozen=True)
class Column:
    """One column. Those with a priority are for `-o wide`."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or f"{self.name} of the object",
            "priority": self.priority,
        }


def at(path: str, empty: Any = "<none>") -> Cell:
    """The value of a field, `empty` when it is not there."""

    def cell(obj: Object, now: datetime) -> Any:
        found = jsonpath.find(obj, path)
        return found[0] if found and found[0] not in (None, "") else empty

    return cell


def count(path: str) -> Cell:
    def cell(obj: Object, now: datetime) -> Any:
        found = jsonpath.find(obj, path)
        return len(found[0]) if found and isinstance(found[0], (list, dict)) else 0

    return cell


NAME = Column("Name", lambda obj, now: obj["metadata"]["name"], format="name")
AGE = Column("Age", lambda obj, now: since(obj["metadata"].get("creationTimestamp"), now))
CREATED = Column("Created At", lambda obj, now: obj["metadata"].get("creationTimestamp", ""))

DEFAULT_COLUMNS = (NAME, AGE)


def _node_status(node: Object, now: datetime) -> str:
    ready = [c for c in node.get("status", {}).get("conditions") or [] if c.get("type") == "Ready"]
    words = ["Ready" if ready[0].get("status") == "True" else "NotReady"] if ready else ["Unknown"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(node: Object, now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = [key.removeprefix(prefix) for key in node["metadata"].get("labels") or {} if key.startswith(prefix)]
    return ",".join(sorted(role for role in roles if role)) or "<none>"


def _node_address(kind: str) -> Cell:
    return at(f'.status.addresses[?(@.type=="{kind}")].address')


def _pod_ready(pod: Object, now: datetime) -> str:
    containers = pod["spec"].get("containers") or []
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return f"{sum(1 for one in statuses if one.get('ready'))}/{len(containers)}"


def _pod_status(pod: Object, now: datetime) -> str:
    status = pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    text = str(status.get("reason") or status.get("phase") or "Unknown")
    for one in status.get("containerStatuses") or []:
        state = one.get("state") or {}
        for kind in ("waiting", "terminated"):
            if (state.get(kind) or {}).get("reason"):
                text = state[kind]["reason"]
    if any(c.get("reason") == "SchedulingGated" for c in status.get("conditions") or []):
        text = "SchedulingGated"
    return text


def _pod_restarts(pod: Object, now: datetime) -> str:
    return str(sum(one.get("restartCount", 0) for one in pod.get("status", {}).get("containerStatuses") or []))


def _claim_state(claim: Object, now: datetime) -> str:
    status = claim.get("status") or {}
    words = []
    if claim["metadata"].get("deletionTimestamp"):
        words.append("deleted")
    if status.get("allocation"):
        words.append("allocated")
    elif not words:
        words.append("pending")
    if status.get("reservedFor"):
        words.append("reserved")
    return ",".join(words)


def _event_object(event: Object, now: datetime) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_seen(event: Object, now: datetime) -> str:
    series = (event.get("series") or {}).get("lastObservedTime")
    return since(series or event.get("lastTimestamp") or event.get("eventTime"), now)


def _event_source(event: Object, now: datetime) -> str:
    source = event.get("source") or {}
    return ", ".join(str(one) for one in (source.get("component"), source.get("host")) if one) or str(
        event.get("reportingComponent", "")
    )


def _service_ports(service: Object, now: datetime) -> str:
    ports = service.get("spec", {}).get("ports") or []
    return ",".join(f"{one.get('port')}/{one.get('protocol', 'TCP')}" for one in ports) or "<none>"


def _ready_of(wanted: str) -> Cell:
    def cell(obj: Object, now: datetime) -> str:
        return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj.get('spec', {}).get(wanted, 1)}"

    return cell


def _job_status(job: Object, now: datetime) -> str:
    """As printJob says it: the last word first."""
    true = {c.get("type") for c in job.get("status", {}).get("conditions") or [] if c.get("status") == "True"}
    for kind in ("Complete", "Failed"):
        if kind in true:
            return kind
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    if job.get("spec", {}).get("suspend"):
        return "Suspended"
    return "FailureTarget" if "FailureTarget" in true else "Running"


def _job_duration(job: Object, now: datetime) -> str:
    status = job.get("status", {})
    if not status.get("startTime"):
        return ""
    end = parse_time(status["completionTime"]) if status.get("completionTime") else now
    return since(status["startTime"], end)


def _number(path: str) -> Cell:
    return at(path, 0)


_ROLE = Column("Role", lambda obj, now: f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}")

COLUMNS: dict[str, tuple[Column, ...]] = {
    "namespaces": (NAME, Column("Status", at(".status.phase", "")), AGE),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", at(".status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", at(".status.nodeInfo.osImage", "<unknown>"), priority=1),
        Column("Kernel-Version", at(".status.nodeInfo.kernelVersion", "<unknown>"), priority=1),
        Column("Container-Runtime", at(".status.nodeInfo.containerRuntimeVersion", "<unknown>"), priority=1),
    ),
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", at(".status.podIP"), priority=1),
        Column("Node", at(".spec.nodeName"), priority=1),
        Column("Nominated Node", at(".status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", lambda obj, now: "<none>", priority=1),
    ),
    "events": (
        Column("Last Seen", _event_seen),
        Column("Type", at(".type", "")),
        Column("Reason", at(".reason", "")),
        Column("Object", _event_object),
        Column("Subobject", at(".involvedObject.fieldPath", ""), priority=1),
        Column("Source", _event_source, priority=1),
        Column("Message", lambda obj, now: str(obj.get("message", "")).strip()),
        Column(
            "First Seen", lambda obj, now: since(obj.get("firstTimestamp") or obj.get("eventTime"), now), priority=1
        ),
        Column("Count", at(".count", 1), type="string", priority=1),
        Column("Name", NAME.cell, format="name", priority=1),
    ),
    "serviceaccounts": (NAME, AGE),
    "configmaps": (NAME, Column("Data", count(".data")), AGE),
    "secrets": (NAME, Column("Type", at(".type", "Opaque")), Column("Data", count(".data"), type="integer"), AGE),
    "services": (
        NAME,
        Column("Type", at(".spec.type", "ClusterIP")),
        Column("Cluster-IP", at(".spec.clusterIP")),
        Column("External-IP", lambda obj, now: "<none>"),
        Column("Port(s)", _service_ports),
        AGE,
    ),
    "resourceslices.resource.k8s.io": (
        NAME,
        Column("Node", at(".spec.nodeName", "<unset>")),
        Column("Driver", at(".spec.driver", "")),
        Column("Pool", at(".spec.pool.name", "")),
        AGE,
    ),
    "resourceclaims.resource.k8s.io": (NAME, Column("State", _claim_state), AGE),
    "devicetaintrules.resource.k8s.io": (
        NAME,
        AGE,
        Column("Driver", at(".spec.deviceSelector.driver"), priority=1),
        Column("Pool", at(".spec.deviceSelector.pool"), priority=1),
        Column("Device", at(".spec.deviceSelector.device"), priority=1),
        Column("Taint", at(".spec.taint.key", ""), priority=1),
        Column("Effect", at(".spec.taint.effect", ""), priority=1),
    ),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", at(".spec.minAvailable", "N/A")),
        Column("Max Unavailable", at(".spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _number(".status.disruptionsAllowed"), type="integer"),
        AGE,
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", at(".spec.holderIdentity", "")), AGE),
    "deployments.apps": (
        NAME,
        Column("Ready", _ready_of("replicas")),
        Column("Up-to-date", _number(".status.updatedReplicas")),
        Column("Available", _number(".status.availableReplicas")),
        AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _ready_of("replicas")), AGE),
    "replicasets.apps": (
        NAME,
        Column("Desired", _number(".spec.replicas"), type="integer"),
        Column("Current", _number(".status.replicas"), type="integer"),
        Column("Ready", _number(".status.readyReplicas"), type="integer"),
        AGE,
    ),
    "daemonsets.apps": (
        NAME,
        Column("Desired", _number(".status.desiredNumberScheduled"), type="integer"),
        Column("Current", _number(".status.currentNumberScheduled"), type="integer"),
        Column("Ready", _number(".status.numberReady"), type="integer"),
        AGE,
    ),
    "jobs.batch": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", lambda obj, now: f"{obj.get('status', {}).get('succeeded', 0)}/{_completions(obj)}"),
        Column("Duration", _job_duration),
        AGE,
    ),
    "cronjobs.batch": (
        NAME,
        Column("Schedule", at(".spec.schedule", "")),
        Column("Timezone", at(".spec.timeZone")),
        Column("Suspend", lambda obj, now: "True" if obj.get("spec", {}).get("suspend") else "False"),
        Column("Active", count(".status.active"), type="integer"),
        Column("Last Schedule", lambda obj, now: _last_schedule(obj, now)),
        AGE,
    ),
    "clusterroles.rbac.authorization.k8s.io": (NAME, CREATED),
    "roles.rbac.authorization.k8s.io": (NAME, CREATED),
    "clusterrolebindings.rbac.authorization.k8s.io": (NAME, _ROLE, AGE),
    "rolebindings.rbac.authorization.k8s.io": (NAME, _ROLE, AGE),
    "customresourcedefinitions.apiextensions.k8s.io": (NAME, CREATED),
    "validatingadmissionpolicies.admissionregistration.k8s.io": (
        NAME,
        Column("Validations", count(".spec.validations"), type="integer"),
        Column("ParamKind", at(".spec.paramKind.kind", "<unset>")),
        AGE,
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": (
        NAME,
        Column("PolicyName", at(".spec.policyName", "")),
        Column("ParamRef", at(".spec.paramRef.name", "<unset>")),
        AGE,
    ),
}


def _last_schedule(job: Object, now: datetime) -> str:
    last = job.get("status", {}).get("lastScheduleTime")
    return since(last, now) if last else "<none>"


def _completions(job: Object) -> Any:
    """`1 of 3` where a work queue of three pods decides itself when it is done."""
    spec = job.get("spec", {})
    if "completions" in spec:
        return spec["completions"]
    parallelism = spec.get("parallelism", 1)
    return f"1 of {parallelism}" if parallelism > 1 else 1


def custom_columns(version: Object) -> tuple[Column, ...]:
    """The columns of a definition's version: its name, its printer columns, or the age when it has none."""
    printed = version.get("additionalPrinterColumns") or []
    if not printed:
        return DEFAULT_COLUMNS
    return (NAME, *(_custom_column(one) for one in printed))


def _custom_column(printed: Object) -> Column:
    path, kind = printed["jsonPath"], printed.get("type", "string")

    def cell(obj: Object, now: datetime) -> Any:
        found = [one for one in jsonpath.find(obj, path) if one is not None]
        if not found:
            return None
        if kind == "date":
            return since(str(found[0]), now)
        if kind in ("integer", "number", "boolean"):
            return found[0]
        return ",".join(_text(one) for one in found)

    return Column(
        printed["name"],
        cell,
        # Ages are worked out here; a client would take a date for a timestamp.
        type="string" if kind == "date" else kind,
        format=printed.get("format", ""),
        priority=printed.get("priority", 0),
        description=printed.get("description", ""),
    )


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
