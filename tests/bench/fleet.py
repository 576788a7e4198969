"""A large, fully used fleet, put straight into a sandbox's store: the objects that a scheduler would have left."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

from taintctl.sandbox import fleet as shapes
from taintctl.sandbox.controlplane.objects import BUDGETS, CLAIMS, CLASSES, JOBS, NAMESPACES, NODES, PODS, SLICES
from taintctl.sandbox.store import Store

Obj = dict[str, Any]

NAMESPACES_COUNT = 50
CLASS_OF_SOME = "gpu-generation-b.example.com"
"""Selects, by an attribute, the devices of each tenth node: 8,000 of 80,000, in pools of a rack."""
LONG_AGO = "2026-01-01T00:00:00Z"
_UIDS = uuid.UUID("0d4f2f3c-0a5e-4d0c-9a43-6b1b6b0c7c11")


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def pool_of(number: int) -> str:
    """A node's pool is named after it; each tenth node is in a pool of its rack, of ten such nodes."""
    return f"rack-{(number - 1) // 100:03d}" if number % 10 == 0 else node_name(number)


def device_name(number: int, gpu: int) -> str:
    return f"n{number:05d}-gpu-{gpu}" if number % 10 == 0 else f"gpu-{gpu}"


def namespace_of(number: int) -> str:
    return f"team-{number % NAMESPACES_COUNT:02d}"


def fill(store: Store, *, nodes: int, gpus: int = 8, plain_pods: int = 2, idle_nodes: int = 1) -> None:
    """`nodes` nodes of `gpus` GPUs; on each, a Job with a pod for each GPU, each with a claim of its own, and
    `plain_pods` pods without a device. The first `idle_nodes` nodes have GPUs that nobody uses."""
    store.restore(NAMESPACES, [shapes.namespace(f"team-{n:02d}") for n in range(NAMESPACES_COUNT)])
    store.restore(CLASSES, [shapes.device_class(), _class_of_some()])
    store.restore(BUDGETS, [_budget(f"team-{n:02d}") for n in range(NAMESPACES_COUNT)])
    numbers = range(1, nodes + 1)
    used = range(1 + idle_nodes, nodes + 1)
    store.restore(NODES, (_node(number) for number in numbers))
    in_pool = Counter(pool_of(number) for number in numbers)
    store.restore(SLICES, (_slice(number, gpus, in_pool[pool_of(number)]) for number in numbers))
    store.restore(JOBS, (_job(number, gpus) for number in used))
    store.restore(CLAIMS, (_claim(number, gpu) for number in used for gpu in range(gpus)))
    store.restore(PODS, (pod for number in used for pod in _pods(number, gpus, plain_pods)))


def uid(*parts: object) -> str:
    return str(uuid.uuid5(_UIDS, "/".join(map(str, parts))))


def _class_of_some() -> Obj:
    found = shapes.device_class(CLASS_OF_SOME, extended_resource=None)
    expression = f"device.driver == '{shapes.DRIVER}' && device.attributes['{shapes.DRIVER}'].generation == 'b'"
    found["spec"]["selectors"] = [{"cel": {"expression": expression}}]
    return found


def _budget(namespace: str) -> Obj:
    budget = shapes.budget(namespace, "train", "train", 1)
    return {**budget, "status": {"disruptionsAllowed": 1000, "observedGeneration": 1, "currentHealthy": 1001}}


def _node(number: int) -> Obj:
    node = shapes.node(node_name(number))
    node["status"]["conditions"][0]["lastTransitionTime"] = LONG_AGO
    return node


def _slice(number: int, gpus: int, in_pool: int) -> Obj:
    published = shapes.resource_slice(node_name(number), gpus)
    in_rack = number % 10 == 0
    published["spec"]["pool"] |= {"name": pool_of(number), "resourceSliceCount": in_pool}
    for gpu, device in enumerate(published["spec"]["devices"]):
        device["name"] = device_name(number, gpu)
        device["attributes"]["generation"] = {"string": "b" if in_rack else "a"}
    return published


def _job(number: int, gpus: int) -> Obj:
    return {
        "metadata": {
            "namespace": namespace_of(number),
            "name": f"train-{number:05d}",
            "uid": uid("job", number),
        },
        "spec": {
            "completions": gpus,
            "parallelism": gpus,
            "template": {"metadata": {"labels": {"app": "train"}}, "spec": _job_pod()},
        },
        "status": {"active": gpus},
    }


def _job_pod() -> Obj:
    return {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example.com/workload:1"}]}


def _pods(number: int, gpus: int, plain: int) -> Iterator[Obj]:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"train-{number:05d}",
        "uid": uid("job", number),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    for gpu in range(gpus):
        name = f"train-{number:05d}-{gpu}"
        pod = shapes.pod(namespace_of(number), name, template="one-gpu", app="train")
        pod["metadata"] |= {"uid": uid("pod", number, gpu), "ownerReferences": [owner]}
        pod["spec"]["nodeName"] = node_name(number)
        pod["status"] = {
            "phase": "Running",
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        yield pod
    for index in range(plain):
        pod = shapes.pod(namespace_of(number), f"agent-{number:05d}-{index}", app="agent")
        pod["spec"]["nodeName"] = node_name(number)
        pod["status"] = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        yield pod


def _claim(number: int, gpu: int) -> Obj:
    name = f"train-{number:05d}-{gpu}"
    claim = shapes.claim(namespace_of(number), f"{name}-gpu")
    by = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid("pod", number, gpu), "controller": True}
    claim["metadata"] |= {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "ownerReferences": [by],
    }
    result = {"request": "gpu", "driver": shapes.DRIVER, "pool": pool_of(number), "device": device_name(number, gpu)}
    on_node = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name(number)]}]}]
    claim["status"] = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": on_node},
            "allocationTimestamp": LONG_AGO,
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": by["uid"]}],
    }
    return claim
