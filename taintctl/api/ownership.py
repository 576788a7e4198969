"""Whose pod is it: the chain of controllers above a pod, and the gang it belongs to. Pure.

Both who reads a cluster and who plans need it: the one to know which other pods to look for, the other to say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from taintctl.api.objects import KnownOwner, Meta, Owner, OwnerSpec, Pod, Unread

MAX_DEPTH = 8
"""Links of a chain that are followed. LeaderWorkerSet's is the longest known: a worker's StatefulSet, the leader's pod,
its StatefulSet, the LeaderWorkerSet."""
BATCH = "batch"
SCHEDULING = "scheduling.k8s.io"
POD_GROUP = "PodGroup"

GANG_KINDS: frozenset[tuple[str, str]] = frozenset(
    {
        ("batch.volcano.sh", "Job"),
        ("jobset.x-k8s.io", "JobSet"),
        ("kubeflow.org", "JAXJob"),
        ("kubeflow.org", "MPIJob"),
        ("kubeflow.org", "MXJob"),
        ("kubeflow.org", "PaddleJob"),
        ("kubeflow.org", "PyTorchJob"),
        ("kubeflow.org", "TFJob"),
        ("kubeflow.org", "XGBoostJob"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("ray.io", "RayCluster"),
        ("ray.io", "RayJob"),
        ("trainer.kubeflow.org", "TrainJob"),
    }
)
"""API group and kind, in whatever version: what they run works together, and stops where a part of it goes."""
LWS_GROUP = "leaderworkerset.sigs.k8s.io/group-index"
"""On a pod of a LeaderWorkerSet: which of its replicas (a leader and its workers) it is of. Each is its own gang."""
GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name")
"""Labels by which schedulers before scheduling.k8s.io are told of a gang (coscheduling, Kueue)."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
NO_GANGS = frozenset({("apps", "ReplicaSet"), ("apps", "DaemonSet")})
"""Controllers whose pods stand each for itself, unless a label says otherwise."""

Key = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Top:
    """The owner at the end of a pod's chain."""

    owner: Owner
    namespace: str
    unread: Unread | None
    """Why there may be another above it; None: it is the top."""

    @property
    def key(self) -> Key:
        return key_of(self.namespace, self.owner)


@dataclass(frozen=True)
class Gang:
    """Pods that work together: where one goes, the work of all is lost."""

    namespace: str
    owner: Owner
    part: str = ""
    """Of a LeaderWorkerSet: which replica."""

    @property
    def key(self) -> tuple[Key, str]:
        return key_of(self.namespace, self.owner), self.part


class Ownership:
    """The owners that are known, followed from any pod."""

    def __init__(self, owners: Iterable[KnownOwner]) -> None:
        self._known: dict[Key, KnownOwner] = {}
        self._groups: dict[tuple[str, str], KnownOwner] = {}
        self._chains: dict[tuple[str, Owner], tuple[Owner, ...]] = {}
        """By namespace and controller, for the pods of one workload have one."""
        for known in owners:
            if is_pod_group(known.owner):
                self._groups[known.namespace, known.owner.name] = known
            self._known[key_of(known.namespace, known.owner)] = known

    def chain(self, pod: Pod) -> tuple[Owner, ...]:
        """The controllers above a pod, nearest first, as far as they are known."""
        owner = controller_of(pod.metadata)
        if owner is None:
            return ()
        begin = pod.metadata.namespace, owner
        if begin not in self._chains:
            self._chains[begin] = self._chain(pod, owner)
        return self._chains[begin]

    def _chain(self, pod: Pod, owner: Owner | None) -> tuple[Owner, ...]:
        found: list[Owner] = []
        while owner is not None and len(found) < MAX_DEPTH:
            found.append(owner)
            known = self._known.get(key_of(pod.metadata.namespace, owner))
            owner = known.controller if known is not None else None
        return tuple(found)

    def top(self, pod: Pod) -> Top | None:
        """The end of the chain; None for a pod without a controller."""
        chain = self.chain(pod)
        if not chain:
            return None
        namespace, last = pod.metadata.namespace, chain[-1]
        known = self._known.get(key_of(namespace, last))
        if known is None or known.controller is not None:  # the latter: deeper than is followed
            return Top(last, namespace, Unread.NOT_ASKED)
        return Top(last, namespace, known.unread)

    def gang(self, pod: Pod) -> Gang | None:
        """The gang that a pod is of, by the first of these that says so:

        - an owner of a kind that is known to run gangs, the outermost of them;
        - its PodGroup (scheduling.k8s.io), unless that is known to have the basic policy;
        - the label of an older gang scheduler;
        - an Indexed Job that runs all its pods at once, as the Job controller itself takes one for a gang (KEP-5547:
          parallelism above 1 and equal to completions); where the Job can't be read, one whose pods have an index.
        """
        namespace, labels, chain = pod.metadata.namespace, pod.metadata.labels or {}, self.chain(pod)
        for owner in reversed(chain):
            if (owner.group, owner.kind) in GANG_KINDS:
                return Gang(namespace, owner, labels.get(LWS_GROUP, "") if owner.kind == "LeaderWorkerSet" else "")
        group = pod_group_of(pod)
        if group:
            known = self._groups.get((namespace, group))
            policy = known.spec.scheduling_policy if known is not None else None
            return None if policy is not None and policy.gang is None else Gang(namespace, _group(group))
        for label in GROUP_LABELS:
            if labels.get(label):
                return Gang(namespace, _group(labels[label], label))
        if chain and (chain[0].group, chain[0].kind) == (BATCH, "Job"):
            known = self._known.get(key_of(namespace, chain[0]))
            if _indexed_at_once(known.spec) if known and known.unread is None else COMPLETION_INDEX in labels:
                return Gang(namespace, chain[0])
        return None


def key_of(namespace: str, owner: Owner) -> Key:
    """What tells owners apart. The version is left out: one object has many."""
    return namespace, owner.group, owner.kind, owner.name, owner.uid


def controller_of(metadata: Meta) -> Owner | None:
    return next((o for o in metadata.owner_references or () if o.controller), None)


def is_pod_group(owner: Owner) -> bool:
    return (owner.group, owner.kind) == (SCHEDULING, POD_GROUP)


def pod_group_of(pod: Pod) -> str:
    """The PodGroup that a pod names; empty where it names none."""
    group = pod.spec.scheduling_group
    return group.pod_group_name or "" if group is not None else ""


def may_be_in_a_gang(pod: Pod) -> bool:
    """Whether a pod is worth following to find out: it is bound, runs, and something groups it."""
    if not pod.spec.node_name or pod.finished or pod.metadata.deletion_timestamp is not None:
        return False
    owner, labels = controller_of(pod.metadata), pod.metadata.labels or {}
    alone = owner is None or (owner.group, owner.kind) in NO_GANGS
    return not alone or bool(pod_group_of(pod)) or any(label in labels for label in (LWS_GROUP, *GROUP_LABELS))


def owner_text(owner: Owner, groups: Mapping[str, frozenset[str]]) -> str:
    """`Kind/name`, or `Kind.group/name` where `groups` (by kind) says that several groups have such a kind."""
    kind = owner.kind[:63]
    usual = {owner.group, _USUAL.get(owner.kind, owner.group)}
    if len(groups.get(owner.kind, frozenset()) | usual) > 1:
        kind = f"{kind}.{owner.group[:253]}" if owner.group else kind
    return f"{kind}/{owner.name[:253]}"


def groups_of(owners: Iterable[Owner]) -> dict[str, frozenset[str]]:
    """The API groups of each kind, for `owner_text`."""
    found: dict[str, frozenset[str]] = {}
    for owner in owners:
        found[owner.kind] = found.get(owner.kind, frozenset()) | {owner.group}
    return found


_USUAL = {
    "CronJob": BATCH,
    "DaemonSet": "apps",
    "Deployment": "apps",
    "Job": BATCH,
    "Node": "",
    "Pod": "",
    "PodGroup": SCHEDULING,
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
}
"""The group that a reader takes such a kind to be of."""


def _group(name: str, label: str = "") -> Owner:
    group = label.partition("/")[0] or SCHEDULING
    return Owner(api_version=f"{group}/v1", kind=POD_GROUP, name=name)


def _indexed_at_once(spec: OwnerSpec) -> bool:
    parallelism = spec.parallelism or 1
    return spec.completion_mode == "Indexed" and parallelism > 1 and spec.completions == parallelism
