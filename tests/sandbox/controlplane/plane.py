"""A control plane without its HTTP server, in virtual time, and what restores recorded objects into it."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from taintctl.ports.clock import LoopClock
from taintctl.sandbox import fleet
from taintctl.sandbox.controlplane.manager import ControllerManager
from taintctl.sandbox.controlplane.objects import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, RULES, SLICES
from taintctl.sandbox.store import Store

Obj = dict[str, Any]
RECORDINGS = Path(__file__).parents[2] / "recordings"
START = datetime(2026, 11, 30, 20, 12, tzinfo=UTC)
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def recorded(name: str) -> list[Obj]:
    """A recording as a list of entries."""
    found: Any = json.loads((RECORDINGS / name).read_text())
    return found if isinstance(found, list) else [found]


def entry(recording: list[Obj], case: str, what: str) -> Obj:
    [found] = [e for e in recording if e["case"] == case and e["what"].startswith(what)]
    return found


def normal(value: Any) -> Any:
    """The object without what differs from one cluster to the next: uids, revisions and instants."""
    if isinstance(value, dict):
        return {k: "-" if k in ("uid", "resourceVersion") else normal(v) for k, v in value.items()}
    if isinstance(value, list):
        return [normal(item) for item in value]
    return "-" if isinstance(value, str) and INSTANT.fullmatch(value) else value


class Plane:
    """Store and controllers of a 1.36 cluster, as the recordings are of one."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.clock = LoopClock(START, speed)
        self.store = Store(self.clock, kubernetes="1.36")
        self.manager = ControllerManager(self.store, self.clock)

    # Filling ---------------------------------------------------------------------------------------------------------

    def nodes(self, count: int = 1, gpus: int = 4) -> None:
        """Nodes n1, n2 and so on, the class of their GPUs, and the namespace `team`."""
        self.store.create(CLASSES, fleet.device_class())
        self.store.create(NAMESPACES, fleet.namespace("team"))
        for number in range(1, count + 1):
            fleet.add_node(self.store, f"n{number}", gpus)

    def recorded_fleet(self, *, pods: bool = True) -> None:
        """The nodes, slices and class of recording 01; with its pods and claims if wanted."""
        for listed in recorded("01-objects.json"):
            items = listed["response"]["items"]
            match listed["response"]["kind"]:
                case "ResourceSliceList":
                    for item in items:
                        self.put(SLICES, item)
                case "DeviceClassList":
                    for item in items:
                        self.put(CLASSES, item)
                case "NodeList":
                    for item in items:
                        self.put(NODES, item)
                case "ResourceClaimList":
                    claims = items
                case "PodList":
                    recorded_pods = items
        if pods:
            self.holders(recorded_pods, claims)

    def put(self, key: str, obj: Obj) -> Obj:
        """Stores an object as recorded, with its status."""
        metadata = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
        created = self.store.create(key, {**obj, "metadata": metadata})
        if "status" not in obj:
            return created
        m = created["metadata"]
        return self.store.mutate(
            key,
            m.get("namespace"),
            m["name"],
            lambda current: current.update(status=obj["status"]),
            subresource="status",
        )

    def holders(self, pods: list[Obj], claims: list[Obj]) -> None:
        """Pods and the claims they hold; the uids are new, and references follow them."""
        uids = {pod["metadata"]["uid"]: self.put(PODS, pod)["metadata"]["uid"] for pod in pods}
        text = json.dumps(claims)
        for old, new in uids.items():
            text = text.replace(old, new)
        for claim in json.loads(text):
            self.put(CLAIMS, claim)

    def rule(self, name: str, effect: str, **selector: str) -> Obj:
        return self.store.create(RULES, rule(name, effect, **selector))

    # Doing -----------------------------------------------------------------------------------------------------------

    def set_effect(self, name: str, effect: str) -> Obj:
        return self.store.mutate(RULES, None, name, lambda current: current["spec"]["taint"].update(effect=effect))

    async def settle(self, seconds: float = 0.01) -> None:
        await asyncio.sleep(seconds)

    # Looking ---------------------------------------------------------------------------------------------------------

    def get(self, key: str, name: str, namespace: str | None = None) -> Obj:
        return self.store.get(key, namespace, name)

    def condition(self, rule_name: str) -> Obj:
        conditions = self.get(RULES, rule_name).get("status", {}).get("conditions", [])
        return conditions[0] if conditions else {}

    def pod(self, namespace: str, name: str) -> str:
        """Running, Pending, Succeeded, Terminating, or gone."""
        found = self.store.find(PODS, namespace, name)
        if found is None:
            return "gone"
        return "Terminating" if "deletionTimestamp" in found["metadata"] else str(found["status"]["phase"])

    def pods(self) -> dict[str, str]:
        found = [(p["metadata"]["namespace"], p["metadata"]["name"]) for p in self.store.list(PODS)]
        return {f"{namespace}/{name}": self.pod(namespace, name) for namespace, name in found}

    def devices(self, namespace: str, claim: str) -> list[str]:
        found = self.get(CLAIMS, claim, namespace)
        allocation = found.get("status", {}).get("allocation") or {"devices": {"results": []}}
        return [f"{r['pool']}/{r['device']}" for r in allocation["devices"]["results"]]

    def allocated(self) -> list[str]:
        return [
            f"{c['metadata']['namespace']}/{c['metadata']['name']}"
            for c in self.store.list(CLAIMS)
            if c.get("status", {}).get("allocation")
        ]


def rule(name: str, effect: str, **selector: str) -> Obj:
    taint = {"key": "gpu.example.com/maintenance", "value": "planned", "effect": effect}
    return {"metadata": {"name": name}, "spec": {"taint": taint, "deviceSelector": selector}}


def holder(claim: Obj, template: str, *, labels: dict[str, str] | None = None) -> Obj:
    """The running pod that a recorded claim is reserved for, in the shape of recording 01's pods."""
    [consumer] = claim["status"]["reservedFor"]
    node = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
    metadata = {"name": consumer["name"], "namespace": claim["metadata"]["namespace"], "uid": consumer["uid"]}
    if labels:
        metadata["labels"] = labels
    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "g0"}]}}
    ready = {"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 2,
            "nodeName": node,
            "resourceClaims": [{"name": "g0", "resourceClaimTemplateName": template}],
        },
        "status": {
            "phase": "Running",
            "conditions": [ready],
            "qosClass": "BestEffort",
            "resourceClaimStatuses": [{"name": "g0", "resourceClaimName": claim["metadata"]["name"]}],
        },
    }
