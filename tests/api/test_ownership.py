"""Whose a pod is, by the owner references that Kubernetes' and others' controllers write."""

from __future__ import annotations

import msgspec
import pytest

from taintctl.api.objects import GangPolicy, KnownOwner, Owner, OwnerSpec, Pod, SchedulingPolicy, Unread
from taintctl.api.ownership import MAX_DEPTH, Gang, Ownership, groups_of, may_be_in_a_gang, owner_text
from tests.impact.fleet import known, owner, pod

JOBSET, RAY, LWS = "jobset.x-k8s.io/v1alpha2", "ray.io/v1", "leaderworkerset.x-k8s.io/v1"
GROUP_LABEL = "leaderworkerset.sigs.k8s.io/group-index"


def chain(*links: Owner, unread: Unread | None = None) -> tuple[Pod, Ownership]:
    """A pod under `links`, nearest first, all of them read; or all but the last one."""
    above = (*links[1:], None)
    read = [known(link, up) for link, up in zip(links, above, strict=True)]
    if unread is not None:
        read[-1] = known(links[-1], unread=unread)
    return pod("p", owner=links[0]), Ownership(read)


def top_of(of: Pod, owners: Ownership) -> tuple[str, str, Unread | None]:
    top = owners.top(of)
    assert top is not None
    return top.owner.kind, top.owner.name, top.unread


@pytest.mark.parametrize(
    "links",
    [
        (owner("StatefulSet", "top"),),
        (owner("ReplicaSet", "rs"), owner("Deployment", "top")),
        (owner("Job", "j"), owner("CronJob", "top")),
        (owner("Job", "j"), owner("JobSet", "top", JOBSET)),
        (owner("RayCluster", "c", RAY), owner("RayJob", "top", RAY)),
        # A worker of a LeaderWorkerSet: its StatefulSet belongs to the leader's pod.
        (
            owner("StatefulSet", "w"),
            owner("Pod", "leader"),
            owner("StatefulSet", "s"),
            owner("LeaderWorkerSet", "top", LWS),
        ),
    ],
)
def test_the_top_is_where_the_controllers_end(links: tuple[Owner, ...]) -> None:
    assert top_of(*chain(*links)) == (links[-1].kind, "top", None)


def test_a_pod_without_a_controller_has_no_top_whoever_else_owns_it() -> None:
    referred = pod("p", owner=owner("ReplicaSet", "rs"))
    only = tuple(o for o in referred.metadata.owner_references or () if not o.controller)
    assert [o.kind for o in only] == ["Node"]
    alone = msgspec.structs.replace(
        referred, metadata=msgspec.structs.replace(referred.metadata, owner_references=only)
    )
    assert Ownership(()).top(alone) is None
    assert Ownership(()).top(pod("p")) is None


@pytest.mark.parametrize("why", [Unread.FORBIDDEN, Unread.NOT_FOUND, Unread.UNKNOWN_KIND, Unread.UNREADABLE])
def test_what_can_not_be_read_ends_the_chain_and_says_why(why: Unread) -> None:
    assert top_of(*chain(owner("Job", "j"), owner("Flow", "f", "flows.example.com/v1"), unread=why)) == (
        "Flow",
        "f",
        why,
    )


def test_what_was_not_asked_for_ends_the_chain_too() -> None:
    assert top_of(pod("p", owner=owner("Job", "j")), Ownership(())) == ("Job", "j", Unread.NOT_ASKED)


def test_owners_that_own_each_other_end_somewhere() -> None:
    a, b = owner("Flow", "a", "x.example.com/v1"), owner("Flow", "b", "x.example.com/v1")
    round_and_round = Ownership((known(a, b), known(b, a)))
    assert len(round_and_round.chain(pod("p", owner=a))) == MAX_DEPTH
    assert top_of(pod("p", owner=a), round_and_round)[2] is Unread.NOT_ASKED


def test_an_owner_of_the_same_name_and_uid_in_another_namespace_is_another() -> None:
    there = Ownership((known(owner("Job", "j"), owner("CronJob", "c"), namespace="team-b"),))
    assert top_of(pod("p", owner=owner("Job", "j")), there) == ("Job", "j", Unread.NOT_ASKED)


# --- gangs


def gang_of(of: Pod, owners: Ownership) -> Gang:
    found = owners.gang(of)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "links",
    [
        (owner("PyTorchJob", "gang", "kubeflow.org/v1"),),
        (owner("MPIJob", "gang", "kubeflow.org/v2beta1"),),
        (owner("Job", "gang", "batch.volcano.sh/v1alpha1"),),
        (owner("Job", "j"), owner("JobSet", "gang", JOBSET)),
        (owner("Job", "j"), owner("JobSet", "s", JOBSET), owner("TrainJob", "gang", "trainer.kubeflow.org/v1alpha1")),
        (owner("RayCluster", "gang", RAY), owner("RayService", "top", RAY)),
        (owner("Job", "j"), owner("JobSet", "gang", JOBSET), owner("Workflow", "w", "flows.example.com/v1")),
    ],
)
def test_the_outermost_owner_of_a_gang_kind_is_the_gang(links: tuple[Owner, ...]) -> None:
    gang = gang_of(*chain(*links))
    assert (gang.owner.name, gang.part) == ("gang", "")


@pytest.mark.parametrize(
    "links",
    [
        (owner("ReplicaSet", "rs"), owner("Deployment", "d")),
        (owner("StatefulSet", "s"),),
        (owner("Job", "j"),),
        (owner("PyTorchJob", "look-alike", "other.example.com/v1"),),
    ],
)
def test_other_owners_make_no_gang(links: tuple[Owner, ...]) -> None:
    of, owners = chain(*links)
    assert owners.gang(of) is None
    assert Ownership(()).gang(pod("alone")) is None


def test_each_replica_of_a_leader_worker_set_is_a_gang_by_itself() -> None:
    leaders = owner("StatefulSet", "lws")
    above = Ownership((known(leaders, owner("LeaderWorkerSet", "lws", LWS)),))
    first, second, same = (
        pod(n, owner=leaders, labels={GROUP_LABEL: g}) for n, g in (("a", "0"), ("b", "1"), ("c", "0"))
    )
    assert gang_of(first, above).key == gang_of(same, above).key != gang_of(second, above).key
    assert gang_of(second, above).part == "1"


def pod_group(policy: SchedulingPolicy | None, unread: Unread | None = None) -> KnownOwner:
    return known(
        owner("PodGroup", "g", "scheduling.k8s.io/v1beta1"), unread=unread, spec=OwnerSpec(scheduling_policy=policy)
    )


@pytest.mark.parametrize(
    ("groups", "is_gang"),
    [
        ((pod_group(SchedulingPolicy(gang=GangPolicy())),), True),
        ((pod_group(SchedulingPolicy()),), False),  # basic: each pod for itself (KEP-4671)
        ((pod_group(None, Unread.FORBIDDEN),), True),
        ((), True),
    ],
)
def test_a_pod_group_is_a_gang_unless_it_is_known_to_be_none(groups: tuple[KnownOwner, ...], is_gang: bool) -> None:
    grouped = pod("p", owner=owner("Job", "j"), group="g")
    found = Ownership(groups).gang(grouped)
    assert (found is not None) is is_gang
    if found is not None:
        assert found.key == gang_of(pod("q", group="g"), Ownership(groups)).key


@pytest.mark.parametrize("label", ["scheduling.x-k8s.io/pod-group", "kueue.x-k8s.io/pod-group-name"])
def test_labels_of_gang_schedulers_make_a_gang(label: str) -> None:
    one, other = (pod(n, labels={label: g}) for n, g in (("a", "one"), ("b", "other")))
    gangs = [gang_of(p, Ownership(())) for p in (one, other)]
    assert [g.owner.name for g in gangs] == ["one", "other"]
    assert Ownership(()).gang(pod("c", labels={label: ""})) is None


@pytest.mark.parametrize(
    ("spec", "is_gang"),
    [
        (OwnerSpec(completion_mode="Indexed", completions=4, parallelism=4), True),
        (OwnerSpec(completion_mode="Indexed", completions=100, parallelism=4), False),
        (OwnerSpec(completion_mode="Indexed", completions=1, parallelism=1), False),
        (OwnerSpec(completion_mode="Indexed", completions=1), False),
        (OwnerSpec(completion_mode="NonIndexed", completions=4, parallelism=4), False),
        (OwnerSpec(parallelism=4), False),
    ],
)
def test_an_indexed_job_that_runs_all_at_once_is_a_gang(spec: OwnerSpec, is_gang: bool) -> None:
    """KEP-5547: what the Job controller itself makes a gang of."""
    job = owner("Job", "j")
    indexed = pod("p", owner=job, labels={"batch.kubernetes.io/job-completion-index": "0"})
    assert (Ownership((known(job, spec=spec),)).gang(indexed) is not None) is is_gang


def test_where_a_job_can_not_be_read_an_index_makes_a_gang() -> None:
    job = owner("Job", "j")
    indexed = pod("p", owner=job, labels={"batch.kubernetes.io/job-completion-index": "0"})
    for owners in (Ownership(()), Ownership((known(job, unread=Unread.FORBIDDEN),))):
        assert owners.gang(indexed) is not None
        assert owners.gang(pod("q", owner=job)) is None


def test_who_is_looked_at_for_a_gang() -> None:
    job, replicas = owner("Job", "j"), owner("ReplicaSet", "rs")
    assert may_be_in_a_gang(pod("p", owner=job))
    assert may_be_in_a_gang(pod("p", group="g"))
    assert may_be_in_a_gang(pod("p", owner=replicas, labels={GROUP_LABEL: "0"}))
    assert not may_be_in_a_gang(pod("p", owner=replicas))
    assert not may_be_in_a_gang(pod("p"))
    assert not may_be_in_a_gang(pod("p", owner=job, node=None))
    assert not may_be_in_a_gang(pod("p", owner=job, phase="Succeeded"))
    assert not may_be_in_a_gang(pod("p", owner=job, terminating=True))


# --- as people read it


def test_a_kind_is_qualified_where_it_could_be_taken_for_another() -> None:
    volcano = owner("Job", "j", "batch.volcano.sh/v1alpha1")
    assert owner_text(owner("Job", "j"), {}) == "Job/j"
    assert owner_text(volcano, {}) == "Job.batch.volcano.sh/j"
    ours, theirs = owner("Cluster", "c", "a.example.com/v1"), owner("Cluster", "c", "b.example.com/v1")
    assert owner_text(ours, groups_of([ours])) == "Cluster/c"
    assert [owner_text(o, groups_of([ours, theirs])) for o in (ours, theirs)] == [
        "Cluster.a.example.com/c",
        "Cluster.b.example.com/c",
    ]
    core = Owner(api_version="v1", kind="Job", name="odd")
    assert owner_text(core, {}) == "Job/odd"


def test_long_names_are_cut() -> None:
    long = Owner(api_version="x.example.com/v1", kind="K" * 9000, name="n" * 9000)
    assert len(owner_text(long, {})) == 63 + 1 + 253
