"""The store: what happens to metadata, deletion and the order of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.sandbox.store import MAX_EVENTS, ApiError, Event, Store

SLICES = "resourceslices.resource.k8s.io"


class HandClock:
    """A clock that a test moves."""

    speed = 1.0

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 30, 21, 0, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the store never waits")

    def scaled(self, delay: timedelta) -> timedelta:
        return delay


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> Store:
    return Store(clock)


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x"}]
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"containers": containers, **spec}}


def test_a_pod_on_a_node_ends_gracefully(store: Store, clock: HandClock) -> None:
    store.create("pods", pod(nodeName="n"))
    marked = store.delete("pods", "a", "p")["metadata"]
    assert marked["deletionTimestamp"] == "2026-11-30T21:00:30Z"
    assert marked["deletionGracePeriodSeconds"] == 30
    assert marked["generation"] == 2
    clock.at += timedelta(seconds=5)
    again = store.delete("pods", "a", "p")["metadata"]
    assert again == marked
    shorter = store.delete("pods", "a", "p", grace_seconds=10)["metadata"]
    assert shorter["deletionTimestamp"] == "2026-11-30T21:00:10Z"
    assert store.delete("pods", "a", "p", grace_seconds=20)["metadata"] == shorter
    store.delete("pods", "a", "p", grace_seconds=0)
    assert store.find("pods", "a", "p") is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_goes_at_once(store: Store, phase: str) -> None:
    store.create("pods", pod(nodeName="n"))
    store.mutate("pods", "a", "p", lambda draft: draft["status"].update(phase=phase), subresource="status")
    store.delete("pods", "a", "p")
    assert store.find("pods", "a", "p") is None


def test_a_pod_without_a_node_goes_at_once(store: Store) -> None:
    store.create("pods", pod())
    store.delete("pods", "a", "p")
    assert store.find("pods", "a", "p") is None


def test_finalizers_hold_an_object_until_the_last_is_gone(store: Store) -> None:
    store.create("configmaps", {"metadata": {"name": "c", "namespace": "a", "finalizers": ["x/1", "x/2"]}})
    store.delete("configmaps", "a", "c")
    held = store.get("configmaps", "a", "c")
    assert held["metadata"]["deletionTimestamp"] == "2026-11-30T21:00:00Z"

    with pytest.raises(ApiError, match=r"no new finalizers can be added .* found new finalizers \[\]string\{\"x/3\"\}"):
        store.mutate("configmaps", "a", "c", lambda draft: draft["metadata"]["finalizers"].append("x/3"))
    store.mutate("configmaps", "a", "c", lambda draft: draft["metadata"]["finalizers"].remove("x/1"))
    assert store.find("configmaps", "a", "c") is not None
    store.mutate("configmaps", "a", "c", lambda draft: draft["metadata"].pop("finalizers") and None)
    assert store.find("configmaps", "a", "c") is None


def test_a_pod_with_finalizers_stays_after_its_kubelet_let_it_go(store: Store) -> None:
    body = pod(nodeName="n")
    body["metadata"]["finalizers"] = ["x/1"]
    store.create("pods", body)
    store.delete("pods", "a", "p")
    # While it is terminating, removing the finalizer does not remove it: its kubelet has to.
    store.mutate("pods", "a", "p", lambda draft: draft["metadata"].update(finalizers=[]))
    assert store.find("pods", "a", "p") is not None
    store.delete("pods", "a", "p", grace_seconds=0)
    assert store.find("pods", "a", "p") is None


def test_the_generation_follows_the_spec_only(store: Store) -> None:
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    store.create(SLICES, {"metadata": {"name": "s"}, "spec": spec})
    labelled = store.mutate(SLICES, None, "s", lambda draft: draft["metadata"].update(labels={"a": "b"}))
    assert labelled["metadata"]["generation"] == 1
    changed = store.mutate(SLICES, None, "s", lambda draft: draft["spec"]["pool"].update(generation=2))
    assert changed["metadata"]["generation"] == 2


def test_binding_a_pod_does_not_bump_its_generation(store: Store) -> None:
    store.create("pods", pod())
    bound = store.mutate("pods", "a", "p", lambda draft: draft["spec"].update(nodeName="n"), subresource="binding")
    assert bound["spec"]["nodeName"] == "n"
    assert bound["metadata"]["generation"] == 1


def test_status_and_spec_are_written_apart(store: Store) -> None:
    claim = {"metadata": {"name": "c", "namespace": "a"}, "spec": {}, "status": {"reservedFor": []}}
    key = "resourceclaims.resource.k8s.io"
    assert store.create(key, claim)["status"] == {}

    def both(draft: dict[str, Any]) -> None:
        draft["spec"] = {"devices": {"requests": []}}
        draft["status"] = {"allocation": {"devices": {"results": []}}}
        draft["metadata"]["labels"] = {"a": "b"}

    written = store.mutate(key, "a", "c", both, subresource="status")
    assert written["spec"] == {}
    assert written["status"] == {"allocation": {"devices": {"results": []}}}
    assert "labels" not in written["metadata"]
    with pytest.raises(ApiError, match="field is immutable"):
        store.mutate(key, "a", "c", both)


def test_a_write_that_changes_nothing_is_none(store: Store) -> None:
    store.create("configmaps", {"metadata": {"name": "c", "namespace": "a"}, "data": {"k": "v"}})
    before = store.resource_version
    store.mutate("configmaps", "a", "c", lambda draft: draft["data"].update(k="v"))
    assert store.resource_version == before


def test_a_stale_write_is_a_conflict_and_one_without_a_revision_is_not(store: Store) -> None:
    first = store.create("configmaps", {"metadata": {"name": "c", "namespace": "a"}})
    store.mutate("configmaps", "a", "c", lambda draft: draft.update(data={"k": "1"}))
    with pytest.raises(ApiError) as refused:
        store.update("configmaps", first | {"data": {"k": "2"}})
    assert (refused.value.status, refused.value.reason) == (409, "Conflict")
    loose = {"metadata": {"name": "c", "namespace": "a"}, "data": {"k": "2"}}
    assert store.update("configmaps", loose)["data"] == {"k": "2"}


def test_preconditions_of_a_deletion(store: Store) -> None:
    made = store.create("configmaps", {"metadata": {"name": "c", "namespace": "a"}})["metadata"]
    with pytest.raises(ApiError, match="the UID in the precondition"):
        store.delete("configmaps", "a", "c", uid="other")
    with pytest.raises(ApiError, match="the ResourceVersion in the precondition"):
        store.delete("configmaps", "a", "c", uid=made["uid"], resource_version="1")
    store.delete("configmaps", "a", "c", uid=made["uid"], resource_version=made["resourceVersion"])
    assert store.list("configmaps") == []


def test_generated_names_differ(store: Store) -> None:
    template = {"metadata": {"generateName": "x-", "namespace": "a"}}
    names = {store.create("configmaps", template)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


def test_dry_runs_write_nothing(store: Store) -> None:
    seen: list[Event] = []
    store.create("configmaps", {"metadata": {"name": "c", "namespace": "a"}})
    store.subscribe(None, seen.append)
    before = store.resource_version
    store.create("configmaps", {"metadata": {"name": "d", "namespace": "a"}}, dry_run=True)
    store.update("configmaps", {"metadata": {"name": "c", "namespace": "a"}, "data": {"k": "v"}}, dry_run=True)
    store.delete("configmaps", "a", "c", dry_run=True)
    assert [one["metadata"]["name"] for one in store.list("configmaps")] == ["c"]
    assert "data" not in store.get("configmaps", "a", "c")
    assert (store.resource_version, seen) == (before, [])


def test_subscribers_see_every_write_in_order_even_when_they_write_themselves(store: Store) -> None:
    seen: list[tuple[str, str, str]] = []

    def second_one(event: Event) -> None:
        if event.type == "ADDED" and event.obj["metadata"]["name"] == "one":
            store.create("configmaps", {"metadata": {"name": "two", "namespace": "a"}}, user="follower")

    store.subscribe("configmaps", second_one)
    end = store.subscribe(None, lambda event: seen.append((event.type, event.obj["metadata"]["name"], event.user)))
    store.create("configmaps", {"metadata": {"name": "one", "namespace": "a"}}, user="somebody")
    store.delete("configmaps", "a", "one", user="somebody")
    assert seen == [("ADDED", "one", "somebody"), ("ADDED", "two", "follower"), ("DELETED", "one", "somebody")]
    end()
    store.delete("configmaps", "a", "two")
    assert len(seen) == 3


def test_a_failing_subscriber_keeps_nobody_from_the_event(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise ValueError("broken")

    store.subscribe("configmaps", broken)
    store.subscribe("configmaps", lambda event: seen.append(event.type))
    store.create("configmaps", {"metadata": {"name": "c", "namespace": "a"}})
    assert seen == ["ADDED"]
    assert "a subscriber failed on ADDED of configmaps" in caplog.text


def test_history_is_bounded_and_says_so(clock: HandClock) -> None:
    store = Store(clock, history=3)
    start = store.resource_version
    for index in range(5):
        store.create("configmaps", {"metadata": {"name": f"c{index}", "namespace": "a"}})
    assert [event.obj["metadata"]["name"] for event in store.changes_since("configmaps", start + 2)] == [
        "c2",
        "c3",
        "c4",
    ]
    with pytest.raises(ApiError) as refused:
        store.changes_since("configmaps", start + 1)
    assert (refused.value.status, refused.value.reason) == (410, "Expired")
    store.compact()
    assert store.changes_since("configmaps", start + 5) == []
    with pytest.raises(ApiError, match="too old resource version"):
        store.changes_since("configmaps", start + 4)


def test_the_oldest_events_go_first(store: Store) -> None:
    for index in range(MAX_EVENTS + 2):
        store.create("events", {"metadata": {"name": f"e{index}", "namespace": "a"}})
    names = {one["metadata"]["name"] for one in store.list("events")}
    assert len(names) == MAX_EVENTS
    assert not names & {"e0", "e1"}


@pytest.mark.parametrize(
    ("key", "obj", "message"),
    [
        (
            "pods",
            {"metadata": {"name": "P"}, "spec": {"containers": [{"name": "c", "image": "x"}]}},
            "RFC 1123 subdomain",
        ),
        ("pods", {"metadata": {"name": "p"}, "spec": {}}, 'Pod "p" is invalid: spec.containers: Required value'),
        ("configmaps", {"metadata": {}}, "metadata.name: Required value: name or generateName is required"),
        ("configmaps", {"metadata": {"name": "c", "labels": {"a b": "c"}}}, 'metadata.labels: Invalid value: "a b"'),
        (
            "pods",
            {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "g"}]}}]},
            },
            'spec.containers[0].resources.claims[0].name: Not found: "g"',
        ),
        (
            "resourceclaims.resource.k8s.io",
            {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "g", "exactly": {}}]}}},
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
        ),
        (
            "poddisruptionbudgets.policy",
            {"metadata": {"name": "b"}, "spec": {"minAvailable": "101%"}},
            'spec.minAvailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            "clusterrolebindings.rbac.authorization.k8s.io",
            {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole"}},
            "roleRef.name: Required value",
        ),
    ],
)
def test_what_is_not_valid_is_refused(store: Store, key: str, obj: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as refused:
        store.create(key, obj)
    assert refused.value.status == 422
    assert message in refused.value.message


def test_a_pods_spec_does_not_change_but_for_images_and_more_tolerations(store: Store) -> None:
    store.create("pods", pod())
    store.mutate("pods", "a", "p", lambda draft: draft["spec"]["containers"][0].update(image="y"))
    more = {"key": "k", "operator": "Exists"}
    store.mutate("pods", "a", "p", lambda draft: draft["spec"]["tolerations"].append(more))
    for change in (
        lambda draft: draft["spec"].update(nodeName="n"),
        lambda draft: draft["spec"]["tolerations"].clear(),
    ):
        with pytest.raises(ApiError, match="pod updates may not change fields other than"):
            store.mutate("pods", "a", "p", change)


def test_kubernetes_releases_serve_the_rule_in_their_own_version(clock: HandClock) -> None:
    assert Store(clock, kubernetes="1.36").resources.get("devicetaintrules.resource.k8s.io").versions == ("v1beta2",)
    assert Store(clock).resources.get("devicetaintrules.resource.k8s.io").versions == ("v1",)
    with pytest.raises(ValueError, match=r"Kubernetes 1\.35 is not one of 1\.37, 1\.36"):
        Store(clock, kubernetes="1.35")
