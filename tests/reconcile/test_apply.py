"""The writer: the status first, if the run is as it was read; then the actions in turn. What takes a taint back is done
wherever it can be; what evicts only while nobody says otherwise."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from taintctl.api.base import FINALIZER
from taintctl.api.objects import ResourceClaim
from taintctl.api.plan import DeviceID
from taintctl.api.reasons import Effect, Phase
from taintctl.api.rule import EvictionOutcome, EvictionResult
from taintctl.api.run import MaintenanceRun
from taintctl.ports.errors import ClusterError, Conflict, Unavailable
from taintctl.reconcile.apply import Writer
from taintctl.workflow.model import AddFinalizer, Decision, DeleteRule, Event, EvictPod, RemoveFinalizer, SetEffect

NOW = datetime(2026, 12, 1, 21, 0, tzinfo=UTC)
GPU = DeviceID("gpu.example.com", "node-1", "gpu-0")


class Clock:
    speed = 1.0

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def scaled(self, delay: timedelta) -> timedelta:
        return delay


class FakeCluster:
    """Writes down every call; `fail` holds what a call answers instead."""

    def __init__(self, *, run_version: str = "7", claims: dict[str, dict[str, Any]] | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fail: dict[str, Exception] = {}
        self.run_version = run_version
        self.claims = claims or {}
        self.meanwhile: dict[str, dict[str, Any]] = {}
        """After a call of that name the run's metadata has these."""
        self._meta: dict[str, Any] = {"uid": "u", "generation": 3}
        self.under_way = 0
        self.most_under_way = 0

    def _call(self, name: str, *args: Any) -> None:
        self.calls.append((name, *args))
        self._meta |= self.meanwhile.get(name, {})
        for failing in (name, f"{name} {args[0] if args else ''}"):
            if failing in self.fail:
                raise self.fail[failing]

    async def get(self, kind: Any, name: str) -> dict[str, Any] | None:
        if self._meta.get("uid") is None:
            return None
        return {"metadata": {"name": name, "resourceVersion": self.run_version, **self._meta}}

    async def replace_status(self, kind: Any, name: str, *, uid: str, resource_version: str, status: Any) -> Any:
        self._call("status", resource_version, status["phase"])
        return {"metadata": {"resourceVersion": "8"}}

    async def patch(self, kind: Any, name: str, body: Any, *, uid: str = "", resource_version: str = "") -> Any:
        self._call("patch", body, resource_version)
        return {}

    async def set_rule_effect(self, name: str, *, uid: str, resource_version: str, effect: Effect) -> None:
        self._call("effect", name, uid, resource_version, effect)

    async def delete_rule(self, name: str, *, uid: str) -> None:
        self._call("delete", name, uid)

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        if "claim" in self.fail:
            raise self.fail["claim"]
        raw = self.claims.get(f"{namespace}/{name}")
        return None if raw is None else msgspec.convert(raw, ResourceClaim)

    async def evict(self, namespace: str, name: str, *, uid: str) -> EvictionOutcome:
        self._call("evict", namespace, name, uid)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return EvictionOutcome(namespace, name, uid, EvictionResult.EVICTED)

    async def record_event(self, involved: Any, *, event_type: str, reason: str, message: str) -> None:
        self._call("event", involved["name"], event_type, reason)


def run(phase: Phase = Phase.NOTICE) -> MaintenanceRun:
    return MaintenanceRun.model_validate(
        {
            "metadata": {
                "name": "r",
                "uid": "u",
                "resourceVersion": "7",
                "generation": 3,
                "finalizers": ["other/one"],
            },
            "spec": {"target": {"driver": "gpu.example.com", "pool": "node-1"}, "deadline": "2026-12-02T00:00:00Z"},
            "status": {"phase": phase},
        }
    )


def claim(uid: str, device: str = "gpu-0") -> dict[str, Any]:
    return {
        "metadata": {"name": "c", "namespace": "team-a"},
        "status": {
            "allocation": {"devices": {"results": [{"driver": GPU.driver, "pool": GPU.pool, "device": device}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": uid}],
        },
    }


NO_EXECUTE = SetEffect("rule", "ru", "5", Effect.NO_EXECUTE, not_after=NOW + timedelta(seconds=10))
EVICT = EvictPod("team-a", "p", "pu", ("c",), (GPU,), not_after=NOW + timedelta(seconds=10))


def moved(to: Phase, *actions: Any, events: tuple[Event, ...] = ()) -> Decision:
    return Decision(run().status.model_copy(update={"phase": to}), actions, events)


async def test_the_status_is_stored_before_the_first_action_and_events_come_last() -> None:
    cluster = FakeCluster()
    decision = moved(Phase.EVICTING, NO_EXECUTE, DeleteRule("dry", "du"), events=(Event("Normal", "GatePassed", "x"),))
    applied = await Writer(cluster, Clock()).apply(run(), decision)  # type: ignore[arg-type]
    assert applied.complete
    assert [c[0] for c in cluster.calls] == ["status", "effect", "delete", "event"]
    assert cluster.calls[0] == ("status", "7", "Evicting")
    assert cluster.calls[1] == ("effect", "rule", "ru", "5", Effect.NO_EXECUTE)


async def test_a_run_that_changed_since_it_was_read_has_nothing_done_to_it() -> None:
    cluster = FakeCluster()
    cluster.fail["status"] = Conflict("changed", status=409)
    applied = await Writer(cluster, Clock()).apply(run(), moved(Phase.EVICTING, NO_EXECUTE))  # type: ignore[arg-type]
    assert not applied.complete
    assert [c[0] for c in cluster.calls] == ["status"]


async def test_no_execute_without_a_status_to_store_still_asks_whether_the_run_changed() -> None:
    cluster = FakeCluster(run_version="9")
    applied = await Writer(cluster, Clock()).apply(run(), Decision(run().status, (NO_EXECUTE,)))  # type: ignore[arg-type]
    assert not applied.complete
    assert cluster.calls == []


async def test_no_execute_on_reads_that_are_too_old_is_not_done_nor_anything_after_it() -> None:
    cluster, clock = FakeCluster(), Clock()
    clock.time = NOW + timedelta(seconds=11)
    decision = moved(Phase.EVICTING, NO_EXECUTE, DeleteRule("dry", "du"))
    applied = await Writer(cluster, clock).apply(run(), decision)  # type: ignore[arg-type]
    assert not applied.complete
    assert [c[0] for c in cluster.calls] == ["status"]


NO_SCHEDULE = SetEffect("tainted", "tu", "6", Effect.NO_SCHEDULE)


@pytest.mark.parametrize("error", [Conflict("changed", status=409), Unavailable("no answer")])
async def test_after_a_rule_that_cannot_be_written_nothing_evicts_and_what_is_to_be_taken_back_is(
    error: ClusterError,
) -> None:
    cluster = FakeCluster(claims={"team-a/c": claim("pu")})
    cluster.fail["effect rule"] = error
    decision = moved(
        Phase.EVICTING,
        NO_EXECUTE,
        SetEffect("other", "ou", "6", Effect.NO_EXECUTE, not_after=NO_EXECUTE.not_after),
        EVICT,
        AddFinalizer(),
        NO_SCHEDULE,
        DeleteRule("dry", "du"),
        events=(Event("Normal", "X", "x"),),
    )
    applied = await Writer(cluster, Clock()).apply(run(), decision)  # type: ignore[arg-type]
    assert not applied.complete
    assert [c[:2] for c in cluster.calls[1:]] == [("effect", "rule"), ("effect", "tainted"), ("delete", "dry")]
    # Somebody's change is looked at again at once; what the server refuses is said, and tried again.
    assert applied.error is (None if isinstance(error, Conflict) else error)


async def test_of_rules_to_be_taken_back_one_that_cannot_be_written_keeps_no_other() -> None:
    cluster = FakeCluster()
    cluster.fail["effect tainted"] = Conflict("changed", status=409)
    cluster.fail["delete a"] = Unavailable("etcd is away")
    back = (NO_SCHEDULE, DeleteRule("a", "au"), DeleteRule("b", "bu"), SetEffect("c", "cu", "6", Effect.NONE))
    applied = await Writer(cluster, Clock()).apply(run(), moved(Phase.ROLLING_BACK, *back))  # type: ignore[arg-type]
    assert [c[:2] for c in cluster.calls[1:]] == [
        ("effect", "tainted"),
        ("delete", "a"),
        ("delete", "b"),
        ("effect", "c"),
    ]
    assert not applied.complete
    assert applied.error is cluster.fail["delete a"]


@pytest.mark.parametrize(
    "change",
    [{"generation": 4}, {"deletionTimestamp": "2026-12-01T21:00:00Z"}, {"uid": "another run"}, {"uid": None}],
    ids=["spec changed", "deleted", "replaced", "gone"],
)
@pytest.mark.parametrize("first", ["effect", "evict"])
async def test_a_hand_on_the_run_in_the_middle_stops_whatever_would_still_evict(
    first: str, change: dict[str, Any]
) -> None:
    cluster = FakeCluster(claims={"team-a/c": claim("pu")})
    cluster.meanwhile[first] = change
    other = SetEffect("other", "ou", "6", Effect.NO_EXECUTE, not_after=NO_EXECUTE.not_after)
    # Pods go eight at a time: those that are under way can't be called back, and the ninth is not begun.
    actions = (NO_EXECUTE, other, EVICT) if first == "effect" else (*[EVICT] * 9, NO_EXECUTE)
    applied = await Writer(cluster, Clock()).apply(run(), moved(Phase.DRAINING, *actions, DeleteRule("dry", "du")))  # type: ignore[arg-type]
    done = {"effect": 1, "evict": 8}[first]
    assert [c[0] for c in cluster.calls] == ["status", *[first] * done, "delete"]
    assert not applied.complete
    assert applied.error is None
    assert len(applied.outcomes) == (done if first == "evict" else 0)


@pytest.mark.parametrize("hours", [0, 4], ids=["reads of eleven seconds ago", "after the deadline"])
async def test_nobody_is_evicted_too_late(hours: int) -> None:
    cluster, clock = FakeCluster(claims={"team-a/c": claim("pu")}), Clock()
    clock.time = NOW + timedelta(hours=hours, seconds=11)
    late = EvictPod("team-a", "p", "pu", ("c",), (GPU,), not_after=NOW + timedelta(hours=hours, seconds=10 + hours))
    applied = await Writer(cluster, clock).apply(run(), moved(Phase.DRAINING, late))  # type: ignore[arg-type]
    assert [c[0] for c in cluster.calls] == ["status"]
    assert not applied.complete


@pytest.mark.parametrize("failing", ["evict", "claim"])
async def test_a_pod_that_nobody_answers_for_keeps_no_other_waiting(failing: str) -> None:
    cluster = FakeCluster(claims={"team-a/c": claim("pu")})
    cluster.fail[failing] = Unavailable("the webhook is away", status=503)
    applied = await Writer(cluster, Clock()).apply(run(), moved(Phase.DRAINING, EVICT, EVICT))  # type: ignore[arg-type]
    assert applied.complete
    assert [(o.result, o.message) for o in applied.outcomes] == [(EvictionResult.FAILED, "the webhook is away")] * 2


@pytest.mark.parametrize(
    ("claims", "evicted"),
    [
        ({"team-a/c": claim("pu")}, True),
        ({"team-a/c": claim("another pod of that name")}, False),
        ({"team-a/c": claim("pu", device="gpu-1")}, False),
        ({"team-a/c": {"metadata": {"name": "c", "namespace": "team-a"}}}, False),
        ({}, False),
    ],
    ids=["holds it", "reserved for another uid", "another device", "deallocated", "claim gone"],
)
async def test_a_pod_is_evicted_only_while_a_claim_of_its_own_holds_a_target_device(
    claims: dict[str, Any], evicted: bool
) -> None:
    cluster = FakeCluster(claims=claims)
    applied = await Writer(cluster, Clock()).apply(run(Phase.DRAINING), moved(Phase.DRAINING, EVICT))  # type: ignore[arg-type]
    assert [c[0] for c in cluster.calls] == (["evict"] if evicted else [])
    assert [o.result for o in applied.outcomes] == [EvictionResult.EVICTED if evicted else EvictionResult.GONE]


async def test_pods_are_evicted_eight_at_a_time_and_a_pause_lets_no_further_eight_go() -> None:
    many = tuple(EvictPod("team-a", f"p{n}", f"u{n}", (f"c{n}",), (GPU,), EVICT.not_after) for n in range(20))
    claims = {f"team-a/c{n}": claim(f"u{n}") for n in range(20)}
    cluster = FakeCluster(claims=claims)
    applied = await Writer(cluster, Clock()).apply(run(Phase.DRAINING), moved(Phase.DRAINING, *many))  # type: ignore[arg-type]
    assert cluster.most_under_way == 8
    assert [outcome.name for outcome in applied.outcomes] == [f"p{n}" for n in range(20)]
    paused = FakeCluster(claims=claims)
    paused.meanwhile["evict"] = {"generation": 4}
    applied = await Writer(paused, Clock()).apply(run(Phase.DRAINING), moved(Phase.DRAINING, *many))  # type: ignore[arg-type]
    assert [outcome.name for outcome in applied.outcomes] == [f"p{n}" for n in range(8)], "those that were under way"
    assert not applied.complete


async def test_our_finalizer_comes_and_goes_and_others_stay() -> None:
    cluster = FakeCluster()
    await Writer(cluster, Clock()).apply(run(), Decision(run().status, (AddFinalizer(),)))  # type: ignore[arg-type]
    assert cluster.calls == [("patch", {"metadata": {"finalizers": ["other/one", FINALIZER]}}, "7")]
    ours = run().model_copy(
        update={"metadata": run().metadata.model_copy(update={"finalizers": ("other/one", FINALIZER)})}
    )
    cluster = FakeCluster()
    await Writer(cluster, Clock()).apply(ours, Decision(ours.status, (RemoveFinalizer(),)))  # type: ignore[arg-type]
    assert cluster.calls == [("patch", {"metadata": {"finalizers": ["other/one"]}}, "7")]
