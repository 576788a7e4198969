"""Pods under owners of every kind that the controller may read."""

from __future__ import annotations

from taintctl.sandbox import fleet
from taintctl.sandbox.cluster import Sandbox
from tests.api.builders import Object

OWNERS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
    ("apps", "v1", "ReplicaSet"),
    ("apps", "v1", "Deployment"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("kubeflow.org", "v1", "JAXJob"),
    ("kubeflow.org", "v1", "MPIJob"),
    ("kubeflow.org", "v1", "PaddleJob"),
    ("kubeflow.org", "v1", "PyTorchJob"),
    ("kubeflow.org", "v1", "TFJob"),
    ("kubeflow.org", "v1", "XGBoostJob"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    ("ray.io", "v1", "RayCluster"),
    ("ray.io", "v1", "RayJob"),
    ("ray.io", "v1", "RayService"),
)
"""What well-known owners are, and how their makers spell them; taken together seven links above a pod."""

CONTAINERS = [{"name": "c", "image": "registry.example.com/workload:1"}]


def definition(group: str, version: str, kind: str) -> Object:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


async def give_owners(sandbox: Sandbox) -> None:
    """Pods that hold a device, with every known kind above them, and in a PodGroup."""
    group = ("scheduling.k8s.io", "v1beta1", "PodGroup")
    sandbox.apply(definition(*known) for known in (*OWNERS, group) if known[0] not in ("apps", "batch"))
    sandbox.apply([{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}])
    names = [f"owned-{number}" for number in range(3)]
    for number, pod_name in enumerate(names):
        above: list[Object] = []
        for api_group, version, kind in reversed(OWNERS[number * 7 : number * 7 + 7]):
            name = f"{kind.lower()}-{number}"
            metadata = {"name": name, "namespace": "team-b", "ownerReferences": above}
            # Here each owns another kind, and wants no pods.
            template: Object = {"metadata": {"labels": {"is": name}}, "spec": {"containers": CONTAINERS}}
            spec: Object = {"replicas": 0, "selector": {"matchLabels": {"is": name}}, "template": template}
            if kind == "Job":
                template["spec"]["restartPolicy"] = "Never"
                spec = {"parallelism": 0, "suspend": True, "template": template}
            reference = {"apiVersion": f"{api_group}/{version}", "kind": kind}
            (made,) = sandbox.apply([{**reference, "metadata": metadata, "spec": spec}])
            above = [{**reference, "name": name, "uid": made["metadata"]["uid"], "controller": True}]
        owned = fleet.pod("team-b", pod_name, on="gpu-worker-01", claim="shared-gpu")
        owned["metadata"]["ownerReferences"] = above
        owned["spec"]["schedulingGroup"] = {"podGroupName": "g"}
        sandbox.store.create("pods", owned)

    def hold() -> bool:
        claim = sandbox.store.get("resourceclaims.resource.k8s.io", "team-b", "shared-gpu")
        return set(names) <= {consumer["name"] for consumer in claim["status"]["reservedFor"]}

    assert await sandbox.until(hold, 60)
