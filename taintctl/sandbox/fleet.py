"""A believable fleet of GPU nodes for demonstrations: nodes, slices, a class, two teams and their pods.

Names, devices and uuids depend on the numbers alone, and so does what runs where: the first node's pool has one of
everything that a maintenance window can meet.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from taintctl.sandbox import partitions as mig
from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.controlplane.objects import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    STOP_AFTER,
    TEMPLATES,
    Obj,
)
from taintctl.sandbox.store import Store

DRIVER = "gpu.example.com"
EXTENDED_RESOURCE = "example.com/gpu"
PARTITION_CLASS = "mig.example.com"
"""The class of partitions, in a fleet that has them; DRIVER is then the class of whole GPUs alone."""
MODEL = "H100"
MAX_DEVICES = 128
"""ResourceSliceMaxDevices of resource.k8s.io: more GPUs do not fit into one slice."""
MAX_NODES = 10_000
READY_FOR = timedelta(hours=1)
"""How long the nodes of a new fleet have been ready. A node that became ready in the very second in which an eviction
begins can't be told from one that was away meanwhile."""
_UUIDS = uuid.UUID("6f1d5a52-8c6f-4a0e-9b5e-2f6a7f1f0c11")


def node_name(number: int) -> str:
    """`gpu-worker-01` for node 1."""
    return f"gpu-worker-{number:02d}"


def node(name: str) -> Obj:
    """A node that is ready from the start."""
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "example.com/accelerator": MODEL}},
        "spec": {},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def add_node(store: Store, name: str, gpus: int, *, partitions: int = 0, ready_for: timedelta = timedelta(0)) -> None:
    """A node with its GPUs, each in so many `partitions` too, ready at once, and for `ready_for` already."""
    wanted = node(name)
    now = store.clock.now()
    wanted["status"]["conditions"][0] |= {
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": timestamp(now - ready_for),
    }
    wanted["status"]["nodeInfo"] = {
        "architecture": "amd64",
        "bootID": "",
        "containerRuntimeVersion": "sandbox://1",
        "kernelVersion": "",
        "kubeProxyVersion": "",
        "kubeletVersion": f"v{store.resources.kubernetes}.0",
        "machineID": "",
        "operatingSystem": "linux",
        "osImage": "sandbox",
        "systemUUID": "",
    }
    store.create(NODES, wanted)
    for published in resource_slices(name, gpus, partitions):
        store.create(SLICES, published)


def resource_slices(node_name: str, gpus: int, partitions: int = 0) -> list[Obj]:
    """All slices of a node's pool."""
    whole = resource_slice(node_name, gpus)
    if not partitions:
        return [whole]
    return mig.resource_slices(node_name, DRIVER, whole["spec"]["devices"], partitions)


def resource_slice(node_name: str, gpus: int, *, driver: str = DRIVER) -> Obj:
    """The slice of a node's GPUs: the pool is named after the node, the devices are gpu-0 onwards."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-gpu"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(node_name, index) for index in range(gpus)],
        },
    }


def _device(node_name: str, index: int) -> Obj:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "uuid": {"string": f"GPU-{uuid.uuid5(_UUIDS, f'{node_name}/gpu-{index}')}"},
            "model": {"string": MODEL},
            "type": {"string": "gpu"},
            "resource.kubernetes.io/pciBusID": {"string": f"0000:{0x17 + index:02x}:00.0"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


def device_class(
    name: str = DRIVER,
    *,
    driver: str = DRIVER,
    extended_resource: str | None = EXTENDED_RESOURCE,
    of_type: str | None = None,
) -> Obj:
    """The class of a driver's devices, or of those whose attribute `type` is gpu or mig."""
    expression = f"device.driver == '{driver}'"
    if of_type is not None:
        expression += f" && device.attributes['{driver}'].type == '{of_type}'"
    spec: Obj = {"selectors": [{"cel": {"expression": expression}}]}
    if extended_resource is not None:
        spec["extendedResourceName"] = extended_resource
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }


def claim_spec(**exactly: Any) -> Obj:
    """A claim for one device of the class, with more fields of `exactly` where given."""
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER, **exactly}}]}}


def claim(namespace: str, name: str, **exactly: Any) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name},
        "spec": claim_spec(**exactly),
    }


def template(namespace: str, name: str, **exactly: Any) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"spec": claim_spec(**exactly)},
    }


def pod(
    namespace: str,
    name: str,
    *,
    on: str | None = None,
    template: str | None = None,
    claim: str | None = None,
    gpus: int = 0,
    app: str | None = None,
    stop_after: str | None = None,
    grace_seconds: int = 30,
) -> Obj:
    """A pod with one container that holds a claim of a template, a named claim, or GPUs as extended resource.

    `on` keeps it on one node, `stop_after` is how long it takes to stop (bounded by its grace period).
    """
    container: Obj = {"name": "main", "image": "registry.example.com/workload:1"}
    spec: Obj = {"containers": [container], "terminationGracePeriodSeconds": grace_seconds}
    if on is not None:
        spec["nodeSelector"] = {"kubernetes.io/hostname": on}
    if template is not None or claim is not None:
        source = {"resourceClaimTemplateName": template} if template is not None else {"resourceClaimName": claim}
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", **source}]
    if gpus:
        container["resources"] = {"limits": {EXTENDED_RESOURCE: str(gpus)}}
    metadata: Obj = {"namespace": namespace, "name": name}
    if app is not None:
        metadata["labels"] = {"app": app}
    if stop_after is not None:
        metadata["annotations"] = {STOP_AFTER: stop_after}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def budget(namespace: str, name: str, app: str, min_available: int) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


def namespace(name: str, **labels: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def build(store: Store, *, nodes: int, gpus_per_node: int, partitions: int = 0) -> None:
    """Fills an empty store; ValueError for numbers that make no fleet.

    What runs on the first node, as far as its GPUs reach: a training pod with a claim of its own, an inference claim
    that three pods share, a pod with an extended resource, and a monitor beside them that tolerates everything. On
    other nodes: a training pod each, and on the second a training pod that asks for 20 more seconds.

    With partitions the last GPU of the first node is left to pods that hold one of them each. There is no monitor then:
    an adminAccess claim needs the counters a second time (kubernetes#140729), so it would wait for ever.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"nodes: {nodes} is not between 1 and {MAX_NODES}")
    if not 1 <= gpus_per_node <= MAX_DEVICES:
        raise ValueError(f"GPUs per node: {gpus_per_node} is not between 1 and {MAX_DEVICES}")
    if partitions:
        mig.profile(partitions)  # Refuses before anything is made.
    names = [node_name(number) for number in range(1, nodes + 1)]
    for one in _classes(partitions):
        store.create(CLASSES, one)
    for name in ("team-a", "team-b"):
        store.create(NAMESPACES, namespace(name))
    store.create(NAMESPACES, namespace("gpu-monitoring", **{"resource.kubernetes.io/admin-access": "true"}))
    for name in names:
        add_node(store, name, gpus_per_node, partitions=partitions, ready_for=READY_FOR)
    forever = {"operator": "Exists", "effect": "NoExecute"}
    store.create(TEMPLATES, template("team-a", "one-gpu"))
    store.create(TEMPLATES, template("team-a", "patient", tolerations=[{**forever, "tolerationSeconds": 20}]))
    watch_all = {"allocationMode": "All", "adminAccess": True, "tolerations": [{"operator": "Exists"}, forever]}
    store.create(TEMPLATES, template("gpu-monitoring", "all-gpus", **watch_all))
    store.create(BUDGETS, budget("team-b", "inference", "inference", 2))
    whole = gpus_per_node - 1 if partitions else gpus_per_node
    pods = _first_node(names[0], whole)
    pods += _in_partitions(names[0], gpus_per_node, partitions) if partitions else [_monitor(names[0])]
    for obj in pods:
        store.create(_KEYS[obj["kind"]], obj)
    for number, name in enumerate(names[1:], start=2):
        shape = "patient" if number == 2 else "one-gpu"
        store.create(PODS, pod("team-a", f"train-{number:02d}", on=name, template=shape, app="train"))


_KEYS = {"Pod": PODS, "ResourceClaim": CLAIMS, "ResourceClaimTemplate": TEMPLATES}


def _classes(partitions: int) -> list[Obj]:
    if not partitions:
        return [device_class()]
    return [device_class(of_type="gpu"), device_class(PARTITION_CLASS, extended_resource=None, of_type="mig")]


def _first_node(name: str, gpus: int) -> list[Obj]:
    """Who holds whole GPUs of the first node."""
    found = []
    if gpus >= 1:
        found.append(pod("team-a", "train-01", on=name, template="one-gpu", app="train", stop_after="4s"))
    if gpus >= 2:
        found.append(claim("team-b", "shared-gpu"))
        found += [pod("team-b", f"inference-{i}", on=name, claim="shared-gpu", app="inference") for i in range(3)]
    if gpus >= 3:
        found.append(pod("team-b", "notebook-0", on=name, gpus=1, app="notebook"))
    return found


def _monitor(name: str) -> Obj:
    return pod("gpu-monitoring", "dcgm-0", on=name, template="all-gpus", app="dcgm")


def _in_partitions(name: str, gpus: int, partitions: int) -> list[Obj]:
    """Up to two pods on partitions of the node's last GPU."""
    parent = resource_slice(name, gpus)["spec"]["devices"][-1]["attributes"]["uuid"]["string"]
    of_parent = {"cel": {"expression": f"device.attributes['{DRIVER}'].parentUUID == '{parent}'"}}
    shape = template("team-b", "one-partition", deviceClassName=PARTITION_CLASS, selectors=[of_parent])
    batch = [
        pod("team-b", f"batch-{i}", on=name, template="one-partition", app="batch") for i in range(min(2, partitions))
    ]
    return [shape, *batch]
