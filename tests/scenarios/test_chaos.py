"""Everything at once, at random, from a seed: whatever happens to a run, the promises hold."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import os
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.api.base import format_time, parse_time
from taintctl.api.rule import EvictionOutcome
from taintctl.api.run import MaintenanceRun
from taintctl.ports.errors import ClusterError
from taintctl.reconcile.loop import Reconciler
from taintctl.sandbox.store import ApiError
from tests.scenarios.world import CLAIMS, DRIVER, NODE, POD_KEY, POLICIES, RULES, RUNS, World

pytestmark = pytest.mark.looptime

SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "2 3 4 10 19 21 23 24").split()]
"""Chosen for the many phases they pass; CHAOS_SEEDS="1 2 3" tries others."""
SEEDS_BY_API = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "6 9 10 20 25 33").split()]
"""The same with drain.mode Evict."""
DRAIN_TIMEOUT = {"Taint": timedelta(minutes=5), "Evict": timedelta(seconds=30)}
APPROVER = "boss@example.com"
CONTROLLER = "system:serviceaccount:taintctl-system:taintctl"
SLICES = "resourceslices.resource.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
ENDED = ("Succeeded", "Failed", "Cancelled", "Expired")
RARELY = 0.3
"""How often what ends a run, or nearly, is really done."""


def holders(world: World) -> dict[str, str]:
    """uid -> name of the pods, other than monitors, that an allocation of the target's pool is reserved for."""
    pods = {p["metadata"]["uid"]: p["metadata"] for p in world.store.list(POD_KEY)}
    found = {}
    for claim in world.store.list(CLAIMS):
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        if not any((r["driver"], r["pool"]) == (DRIVER, NODE) for r in results):
            continue
        for consumer in status.get("reservedFor") or ():
            pod = pods.get(consumer["uid"])
            if pod is not None and pod["namespace"] != "gpu-monitoring":
                found[consumer["uid"]] = f"{pod['namespace']}/{pod['name']}"
    return found


def approved(run: dict[str, Any]) -> set[bytes]:
    """The hashes of the pods' uids in the plan that was asked about (api/run.py CompactPlan)."""
    asked = ((run["status"].get("approval") or {}).get("asked") or {}).get("pods") or {}
    packed = [base64.b64decode(part) for part in asked.values()]
    return {raw[start : start + 8] for raw in packed for start in range(0, len(raw), 8)}


def hashed(uid: str) -> bytes:
    return hashlib.sha256(json.dumps([uid], separators=(",", ":")).encode()).digest()[:8]


class Witness:
    """Looks at every write to the API server, and writes down every broken promise."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broken: list[str] = []
        self.effects: dict[str, str] = {}
        self.phases: dict[str, str] = {}
        world.store.subscribe(None, self.see)
        self.evict, world.cluster.evict = world.cluster.evict, self.evicts  # type: ignore[method-assign]

    async def evicts(self, namespace: str, name: str, *, uid: str) -> EvictionOutcome:
        """Whom the controller evicts by its own hand: never somebody whom no plan named that was asked about."""
        runs = [run for run in self.world.store.list(RUNS) if (run.get("status") or {}).get("eviction")]
        if not any(hashed(uid) in approved(run) for run in runs):
            self.broken.append(f"the Eviction API was asked for {namespace}/{name}, which nobody approved")
        return await self.evict(namespace, name, uid=uid)

    def see(self, event: Any) -> None:
        obj = event.obj
        if event.type == "DELETED":
            return
        if event.key == RULES:
            name, effect = obj["metadata"]["name"], obj["spec"]["taint"]["effect"]
            if effect == "NoExecute" and self.effects.get(name) != effect:
                self.no_execute(obj)
            self.effects[name] = effect
        if event.key == RUNS:
            uid, phase = obj["metadata"]["uid"], (obj.get("status") or {}).get("phase")
            before = self.phases.get(uid)
            self.phases[uid] = phase
            if phase != before:
                self.moved(obj, before, phase)

    def moved(self, run: Any, before: str | None, phase: str | None) -> None:
        held = holders(self.world)
        left = [name for r in self.world.rules() if run["metadata"]["uid"] in (name := r["metadata"]["name"])]
        if held and (phase == "InMaintenance" or (before, phase) == ("InMaintenance", "Releasing")):
            self.broken.append(f"{phase} while {held} hold devices")
        if phase in ENDED and left:
            self.broken.append(f"{phase} with rules {left}")

    def no_execute(self, rule: Any) -> None:
        run = next((r for r in self.world.store.list(RUNS) if r["metadata"]["uid"] in rule["metadata"]["name"]), None)
        if run is None:
            self.broken.append("NoExecute for no run")
            return
        spec, known = run["spec"], approved(run)
        going = {p["metadata"]["uid"] for p in self.world.store.list(POD_KEY) if p["metadata"].get("deletionTimestamp")}
        for uid, pod in holders(self.world).items():
            if hashed(uid) not in known and uid not in going:
                self.broken.append(f"NoExecute hits {pod}, which nobody approved")
        if spec.get("paused") or spec.get("cancelled") or run["metadata"].get("deletionTimestamp"):
            self.broken.append("NoExecute on a held run")
        if spec["drain"]["mode"] == "Evict":
            self.forced(run)
        if run["status"]["phase"] != "Evicting":
            self.broken.append(f"NoExecute in {run['status']['phase']}")
        if parse_time(spec["deadline"]) <= self.world.clock.now():
            self.broken.append("NoExecute after the deadline")

    def forced(self, run: Any) -> None:
        """With drain.mode Evict: by a policy that forces it (as it was when the gate was passed), after the timeout."""
        begun = parse_time(run["status"]["eviction"]["startedAt"])
        if self.world.clock.now() < begun + DRAIN_TIMEOUT["Evict"]:
            self.broken.append("NoExecute before drain.timeout")
        if not run["status"]["eviction"].get("forcedAt"):
            self.broken.append("NoExecute was not forced")


class Chaos:
    """What people, nodes and networks do; each has the name of what it did in `did`."""

    def __init__(self, world: World, boss: KubernetesCluster, seed: int, mode: str) -> None:
        self.world = world
        self.boss = boss
        self.random = random.Random(seed)
        self.pods = 0
        self.second: asyncio.Task[None] | None = None
        self.did: list[str] = []
        self.names = ["run"]
        self.drain = {"mode": mode, "timeout": f"{DRAIN_TIMEOUT[mode].seconds}s"}

    async def step(self) -> None:
        often = [self.pod, self.control, self.fault, self.approve, self.approve]
        once = [self.pod, self.unpod, self.pause, self.resume, self.kill, self.control, self.fault, self.clear]
        once += [self.policy, self.approve, self.twice, self.silent, self.back, self.complete, self.eviction]
        once += [self.eviction_back, self.again, self.budget]
        rare = [self.rule, self.cancel, self.deadline, self.delete, self.slices]
        what: Callable[[], Any] = self.random.choice([*often, *once, *rare])
        if what in rare and self.random.random() > RARELY:
            return
        self.did.append(f"{self.world.clock.now():%H:%M:%S} {what.__name__} ({self.phase})")
        try:
            result = what()
            if isinstance(result, Awaitable):
                await result
        except (ClusterError, ApiError, AssertionError) as error:
            # Not possible now: the run is gone, nothing is asked, the object was deleted.
            self.did[-1] += f": {error}"[:100]

    @property
    def phase(self) -> str:
        run = self.world.store.find(RUNS, None, self.names[-1]) or {}
        return str((run.get("status") or {}).get("phase", "-"))

    def pod(self) -> None:
        self.pods += 1
        shapes: list[dict[str, Any]] = [
            {"template": "one-gpu"},
            {"claim": "shared-gpu"},
            {"template": "patient"},
            {"template": "one-gpu", "stop_after": "20s"},
        ]
        shape = self.random.choice(shapes)
        self.world.sandbox.start_pod("team-a", f"new-{self.pods}", on=NODE, **shape)

    def unpod(self) -> None:
        pods = [p for p in self.world.store.list(POD_KEY) if p["spec"].get("nodeName") == NODE]
        if not pods:
            return
        pod = self.random.choice(pods)["metadata"]
        self.world.store.delete(POD_KEY, pod["namespace"], pod["name"], grace_seconds=self.random.choice([None, 0]))

    async def pause(self) -> None:
        await self.world.patch(self.names[-1], paused=True)

    async def resume(self) -> None:
        await self.world.patch(self.names[-1], paused=False)

    async def cancel(self) -> None:
        await self.world.patch(self.names[-1], cancelled=True)

    async def complete(self) -> None:
        await self.world.patch(self.names[-1], workCompleted=True)

    async def delete(self) -> None:
        self.world.store.delete(RUNS, None, self.names[-1], propagation=self.random.choice(["Background", "Orphan"]))

    async def deadline(self) -> None:
        minutes = self.random.choice([0, 1, 10])
        await self.world.patch(
            self.names[-1], deadline=format_time(self.world.clock.now() + timedelta(minutes=minutes))
        )

    async def again(self) -> None:
        if self.phase not in (*ENDED, "-"):
            return
        self.names.append(f"run-{len(self.names)}")
        await self.world.start(self.names[-1], policyName="policy", notice="15s", drain=self.drain)

    async def kill(self) -> None:
        await self.world.kill()

    async def control(self) -> None:
        await self.world.control()

    async def twice(self) -> None:
        if self.second is not None:
            self.second.cancel()
            await asyncio.gather(self.second, return_exceptions=True)
            self.second = None
            return
        other = Reconciler(self.world.cluster, None, self.world.clock, self.world.settings)
        self.second = asyncio.get_running_loop().create_task(other.run())
        for name in self.names:
            other.enqueue(MaintenanceRun, name)

    def fault(self) -> None:
        r, faults = self.random, self.world.sandbox.faults
        verbs = r.choice([(), ("get",), ("list",), ("patch",), ("update",), ("create",), ("delete",)])
        resources = r.choice([(), (RULES,), (f"{RUNS}/status",), (CLAIMS,), ("pods",), ("pods/eviction",), ("nodes",)])
        user = [CONTROLLER]
        times = r.choice([1, 2, 5, None])
        kind = r.randrange(4)
        if kind == 0:
            faults.fail(r.choice([500, 503, 409, 429, 403]), verbs=verbs, resources=resources, users=user, times=times)
        elif kind == 1:
            faults.drop(verbs=verbs, resources=resources, users=user, times=times, after=r.random() < 0.9)
        elif kind == 2:
            faults.slow(r.choice([1, 4, 9, 15]), verbs=verbs, resources=resources, users=user, times=times)
        else:
            faults.fail(429, verbs=verbs, resources=resources, users=user, times=times, retry_after=r.choice([1, 9]))

    def clear(self) -> None:
        self.world.sandbox.faults.clear()

    def policy(self) -> None:
        r = self.random
        limits = r.choice([{}, {}, {"maxPods": 3}, {"maxPods": 20}])
        auto = r.choice([{"maxPods": 20}, {"maxPods": 5}, {}])
        if r.random() < 0.2 and self.world.store.find(POLICIES, None, "policy") is not None:
            self.world.store.delete(POLICIES, None, "policy")
        more = {"drain": {"forceAtTimeout": r.random() < 0.9}} if self.drain["mode"] == "Evict" else {}
        self.world.policy(limits=limits, autoApprove=auto, budgets="Ignore", approval={"expiresAfter": "20m"}, **more)

    async def approve(self) -> None:
        await self.world.decide(self.boss, APPROVER, "Approve", self.names[-1])

    def silent(self) -> None:
        self.world.sandbox.node_silent(NODE)

    def back(self) -> None:
        self.world.sandbox.node_back(NODE)

    def slices(self) -> None:
        def bump(obj: Any) -> None:
            obj["spec"]["pool"]["generation"] += 1

        if self.random.random() < 0.3:
            self.world.sandbox.remove_slice(NODE)
        else:
            self.world.store.mutate(SLICES, None, f"{NODE}-gpu", bump)

    def eviction(self) -> None:
        self.world.sandbox.manager.pause("taint-eviction")

    def eviction_back(self) -> None:
        self.world.sandbox.manager.resume("taint-eviction")

    def budget(self) -> None:
        name = self.random.choice(["one", "two"])
        if self.world.store.find(BUDGETS, "team-b", name) is not None:
            self.world.store.delete(BUDGETS, "team-b", name)
            return
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"namespace": "team-b", "name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "notebook"}}},
        }
        self.world.sandbox.apply([budget])

    def rule(self) -> None:
        rules = self.world.rules()
        if not rules:
            return
        name = self.random.choice(rules)["metadata"]["name"]
        kind = self.random.randrange(4)

        def change(obj: Any) -> None:
            if kind == 0:
                obj["metadata"]["labels"] = {}
            elif kind == 1:
                obj["metadata"].setdefault("labels", {})["example.com/touched"] = "yes"
            else:
                obj["spec"]["taint"]["effect"] = self.random.choice(["None", "NoSchedule"])

        if kind == 3:
            self.world.store.delete(RULES, None, name)
        else:
            self.world.store.mutate(RULES, None, name, change)


def all_ended(world: World) -> bool:
    return all((run.get("status") or {}).get("phase") in ENDED for run in world.store.list(RUNS))


@pytest.mark.parametrize(("mode", "seed"), [("Taint", s) for s in SEEDS] + [("Evict", s) for s in SEEDS_BY_API])
async def test_whatever_happens_the_promises_hold(mode: str, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """No pod is hit that was not approved, no device is let go in use, no rule outlives its run, nothing crashes."""
    async with World() as world:
        boss = await world.user(APPROVER, "taintctl-approver")
        chaos, witness = Chaos(world, boss, seed, mode), Witness(world)
        chaos.policy()
        await world.control()
        await world.start(policyName="policy", notice="15s", drain=chaos.drain)
        for _ in range(60):
            await world.wait(chaos.random.choice([0.3, 1, 2, 5, 10, 20, 60]))
            await chaos.step()
        # The weather clears, and somebody ends what is left.
        if chaos.second is not None:
            await chaos.twice()
        chaos.clear()
        chaos.back()
        chaos.eviction_back()
        await world.control()
        for name in chaos.names:
            if world.store.find(RUNS, None, name) is not None:
                await world.patch(name, cancelled=True, released=True, paused=False)
        ended = await world.sandbox.until(lambda: all_ended(world), 1200)
        story = "\n".join([world.describe(), *chaos.did])
        assert not witness.broken, f"{witness.broken}\n{story}"
        if ended:
            assert world.rules() == [], story
        else:
            # What is held in maintenance stays, and says why.
            left = [run for run in world.store.list(RUNS) if run["status"]["phase"] not in ENDED]
            assert {run["status"]["phase"] for run in left} == {"InMaintenance"}, story
            assert {condition(run, "DevicesIdle") for run in left} <= {"False", "Unknown"}, story
        assert [r.getMessage() for r in caplog.records if r.exc_info or r.levelno >= logging.ERROR] == [], story


def condition(run: dict[str, Any], kind: str) -> str:
    return next(str(c["status"]) for c in run["status"]["conditions"] if c["type"] == kind)
