"""One test's own corner of a cluster: namespaces, a node, a driver's slice and a class, all removed afterwards."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from tests.contract.client import Answer, Api, Obj

NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
DRA = "/apis/resource.k8s.io/v1"
STOPPING = 3.0
GPUS = 4

MESSAGE = re.compile(
    r"(?P<published>\d+) published devices? selected\. (?P<allocated>\d+) allocated devices? selected\. "
    r"(?P<pods>\d+) pods? would be evicted in (?P<namespaces>\d+) (?:different )?namespaces? "
    r"if the effect was NoExecute\. This information will not be updated again\. "
    r"Recreate the DeviceTaintRule to trigger an update\."
)


class Lab:
    """Makes objects under a name of its own, and remembers how to remove them."""

    def __init__(self, api: Api, *, speed: float, rules: str | None, stand_in: bool) -> None:
        self.api = api
        self.stand_in = stand_in
        """A real cluster: nobody but `be_kubelet` acts for the node, and pods need a service account."""
        self.speed = speed
        """How much faster than real time the cluster is: delays are divided by it."""
        self.id = f"contract-{secrets.token_hex(3)}"
        self.driver = f"{self.id}.example.com"
        self.resource = f"{self.id}.example.com/gpu"
        self.node = f"{self.id}-node"
        self.split = f"{self.id}-split"
        """The pool of the GPU that is published in partitions too."""
        self.namespace = self.id
        self.rules = rules or ""
        """The path of DeviceTaintRules in the newest served version; empty where they are not served."""
        self._made: list[str] = []

    # Time ------------------------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)

    async def eventually(self, look: Callable[[], Awaitable[Any]], seconds: float = 30) -> Any:
        """The first true result of `look`; AssertionError with the last one when none comes in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + max(seconds / self.speed, 2.0)
        while True:
            found = await look()
            if found:
                return found
            assert loop.time() < end, f"still {found!r} after {seconds} s"
            await asyncio.sleep(0.2 / self.speed)

    # Making ----------------------------------------------------------------------------------------------------------

    async def make(self, collection: str, body: Obj) -> Obj:
        made = await self.api.must(self.api.post(collection, body))
        self._made.append(f"{collection}/{made['metadata']['name']}")
        return made

    async def furnish(self) -> None:
        """The node, the namespace, the slice and the class."""
        await self.make(NAMESPACES, {"metadata": {"name": self.namespace}})
        if self.stand_in:

            async def account() -> bool:
                path = f"{NAMESPACES}/{self.namespace}/serviceaccounts/default"
                return (await self.api.get(path)).status == 200

            await self.eventually(account)
        labels = {"kubernetes.io/hostname": self.node}
        # Nobody else's pods come here.
        taint = {"key": self.driver, "effect": "NoSchedule"}
        await self.make(NODES, {"metadata": {"name": self.node, "labels": labels}, "spec": {"taints": [taint]}})
        await self.heartbeat()
        devices = [{"name": f"gpu-{i}", "attributes": {"type": {"string": "gpu"}}} for i in range(GPUS)]
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": self.driver, "nodeName": self.node, "pool": pool, "devices": devices}
        await self.make(f"{DRA}/resourceslices", {"metadata": {"name": self.id}, "spec": spec})
        selector = {"cel": {"expression": f"device.driver == '{self.driver}'"}}
        shape = {"selectors": [selector], "extendedResourceName": self.resource}
        await self.make(f"{DRA}/deviceclasses", {"metadata": {"name": self.id}, "spec": shape})

    async def clear(self) -> None:
        """Removes all that was made, the newest first."""
        for path in reversed(self._made):
            await self.api.delete(path)
        for pod in (await self.api.get(self.pods)).body.get("items", ()):
            # The stand-in kubelet is about to stop: nobody else would finalise them.
            await self.api.delete(f"{self.pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})

    async def heartbeat(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "stand-in"}
        ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        await self.api.must(self.api.patch(f"{NODES}/{self.node}/status", {"status": status}))

    @property
    def pods(self) -> str:
        return f"{NAMESPACES}/{self.namespace}/pods"

    @property
    def claims(self) -> str:
        return f"{DRA}/namespaces/{self.namespace}/resourceclaims"

    async def partition_a_gpu(self) -> bool:
        """A pool of its own with a GPU, whole and in two halves, and their classes; False where the cluster can't.

        The classes are named after `whole` and `half`, the devices gpu-0, gpu-0-half-0 and gpu-0-half-1.
        """
        half, full = {"memory": {"value": "40Gi"}}, {"memory": {"value": "80Gi"}}
        pool = {"name": self.split, "generation": 1, "resourceSliceCount": 2}
        base = {"driver": self.driver, "nodeName": self.node, "pool": pool}
        sets = {"sharedCounters": [{"name": "gpu-0", "counters": full}]}
        made = await self.make(f"{DRA}/resourceslices", {"metadata": {"name": f"{self.split}-c"}, "spec": base | sets})
        if "sharedCounters" not in made["spec"]:
            return False
        kinds = {"gpu-0": ("whole", full), "gpu-0-half-0": ("half", half), "gpu-0-half-1": ("half", half)}
        devices = [
            {
                "name": name,
                "attributes": {"type": {"string": kind}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": consumed}],
            }
            for name, (kind, consumed) in kinds.items()
        ]
        spec = {**base, "devices": devices}
        await self.make(f"{DRA}/resourceslices", {"metadata": {"name": f"{self.split}-d"}, "spec": spec})
        for kind in ("whole", "half"):
            expression = f"device.driver == '{self.driver}' && device.attributes['{self.driver}'].type == '{kind}'"
            shape = {"selectors": [{"cel": {"expression": expression}}]}
            await self.make(f"{DRA}/deviceclasses", {"metadata": {"name": f"{self.id}-{kind}"}, "spec": shape})
        return True

    async def device_of(self, claim: str) -> str | None:
        """The one device that a claim has got."""
        status = (await self.api.get(f"{self.claims}/{claim}")).body.get("status") or {}
        results = (status.get("allocation") or {"devices": {"results": []}})["devices"]["results"]
        assert len(results) <= 1
        return results[0]["device"] if results else None

    async def claim(self, name: str, **exactly: Any) -> None:
        request = {"name": "gpu", "exactly": {"deviceClassName": self.id, **exactly}}
        await self.api.must(
            self.api.post(self.claims, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})
        )

    async def ask(self, name: str, *, claim: str | None = None, gpus: int = 0, app: str | None = None) -> None:
        """A pod that may have to wait for what it asks for."""
        container: Obj = {"name": "c", "image": "registry.example.com/x:1"}
        tolerations = [{"key": self.driver, "operator": "Exists"}]
        spec: Obj = {"containers": [container], "tolerations": tolerations, "terminationGracePeriodSeconds": 2}
        spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        if claim is not None:
            container["resources"] = {"claims": [{"name": "gpu"}]}
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        if gpus:
            container["resources"] = {"limits": {self.resource: str(gpus)}}
        metadata: Obj = {"name": name, "labels": {"app": app}} if app else {"name": name}
        await self.api.must(self.api.post(self.pods, {"metadata": metadata, "spec": spec}))

    async def pod(self, name: str, *, claim: str | None = None, gpus: int = 0, app: str | None = None) -> Obj:
        """A running pod; it comes back when its node's kubelet has started it."""
        await self.ask(name, claim=claim, gpus=gpus, app=app)
        return await self.runs(name)

    async def runs(self, name: str) -> Obj:
        """The pod, once it runs."""

        async def running() -> Obj | None:
            found = (await self.api.get(f"{self.pods}/{name}")).body
            return found if found["status"].get("phase") == "Running" else None

        started: Obj = await self.eventually(running, 60)
        return started

    async def holder(self, name: str, *, app: str | None = None, **exactly: Any) -> Obj:
        """A running pod with a claim of its own, of the same name."""
        await self.claim(name, **exactly)
        return await self.pod(name, claim=name, app=app)

    async def rule(self, name: str, effect: str, **selector: str) -> Obj:
        taint = {"key": "contract.example.com/maintenance", "value": "planned", "effect": effect}
        where = {"driver": self.driver, "pool": self.node, **selector}
        body = {"metadata": {"name": f"{self.id}-{name}"}, "spec": {"deviceSelector": where, "taint": taint}}
        return await self.make(self.rules, body)

    async def set_effect(self, name: str, effect: str) -> Obj:
        return await self.api.must(
            self.api.patch(f"{self.rules}/{self.id}-{name}", {"spec": {"taint": {"effect": effect}}})
        )

    # Looking ---------------------------------------------------------------------------------------------------------

    async def condition(self, name: str) -> Obj:
        """The condition of a rule, once it is about the rule as it is now."""

        async def observed() -> Obj | None:
            rule = (await self.api.get(f"{self.rules}/{self.id}-{name}")).body
            for found in (rule.get("status") or {}).get("conditions") or ():
                if found["type"] == "EvictionInProgress":
                    current = found["observedGeneration"] == rule["metadata"]["generation"]
                    result: Obj | None = found if current else None
                    return result
            return None

        found: Obj = await self.eventually(observed)
        return found

    async def becomes(self, name: str, reason: str, seconds: float = 30) -> Obj:
        """The condition of a rule, once it has that reason."""

        async def there() -> Obj | None:
            found = await self.condition(name)
            return found if found["reason"] == reason else None

        result: Obj = await self.eventually(there, seconds)
        return result

    async def counts(self, name: str) -> dict[str, int]:
        """What the message of a dry run says."""
        told = await self.condition(name)
        match = MESSAGE.fullmatch(told["message"])
        assert match is not None, told["message"]
        return {part: int(count) for part, count in match.groupdict().items()}

    async def state(self, pod: str) -> str:
        """Running, Terminating and so on, or gone."""
        found: Answer = await self.api.get(f"{self.pods}/{pod}")
        if found.status == 404:
            return "gone"
        return "Terminating" if "deletionTimestamp" in found.body["metadata"] else str(found.body["status"]["phase"])

    async def gone(self, pod: str, seconds: float = 30) -> None:
        async def away() -> bool:
            return await self.state(pod) == "gone"

        await self.eventually(away, seconds)

    # The stand-in for a kubelet --------------------------------------------------------------------------------------

    async def be_kubelet(self) -> None:
        """Until cancelled: the node is ready, bound pods run, deleted ones are gone after three seconds."""
        loop = asyncio.get_running_loop()
        stopping: dict[str, float] = {}
        beaten = 0.0
        while True:
            if loop.time() - beaten > 10:
                await self.heartbeat()
                beaten = loop.time()
            listed = await self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.node}")
            for pod in listed.body.get("items", ()):
                path = f"{NAMESPACES}/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
                if "deletionTimestamp" in pod["metadata"]:
                    if loop.time() - stopping.setdefault(pod["metadata"]["uid"], loop.time()) >= STOPPING:
                        await self.api.delete(path, {"gracePeriodSeconds": 0})
                elif pod["status"].get("phase") == "Pending":
                    ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
                    told = [
                        c
                        for c in pod["status"].get("conditions") or ()
                        if c["type"] not in ("Ready", "ContainersReady")
                    ]
                    status = {"phase": "Running", "conditions": [*told, *ready]}
                    await self.api.patch(f"{path}/status", {"status": status})
            await asyncio.sleep(0.2)
