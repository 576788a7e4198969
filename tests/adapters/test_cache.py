"""The cache equals a live look once it has heard everything, and knows when it has not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta

import msgspec
import pytest
import pytest_asyncio

from taintctl.adapters.kubernetes.cache import LeanCache
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from taintctl.api.objects import DeviceClass, Snapshot
from taintctl.api.pools import PoolKey, PublishedPool
from taintctl.ports.cluster import Scope
from taintctl.ports.errors import Unavailable
from tests.adapters.server import (
    BUDGETS,
    CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    Obj,
    Server,
    budget,
    claim,
    node,
    pod,
    slice_of,
)
from tests.adapters.test_snapshot import DRIVER, fill, names


class Cached:
    """A running cache, and the pools it told of."""

    def __init__(self, server: Server, cache: LeanCache) -> None:
        self.server = server
        self.cache = cache
        self.told: set[tuple[str, str]] = set()
        cache.on_change = lambda driver, pool: self.told.add((driver, pool))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(40):
            while not condition():  # noqa: ASYNC110 (the cache has no event to wait for)
                await asyncio.sleep(0.005)

    async def filled(self) -> None:
        await self.until(lambda: self.cache.age() is not None)

    async def equal(self, scope: Scope, live: KubernetesCluster) -> Snapshot:
        """Waits until a snapshot from the cache is the live one."""
        wanted = comparable(await live.snapshot(scope))
        async with asyncio.timeout(40):
            while (found := comparable(await self.cache.snapshot(scope))) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return found


def comparable(found: Snapshot) -> Snapshot:
    """Without when and how it was read."""
    return msgspec.structs.replace(found, taken_at=None, live=False)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def cached(server: Server) -> AsyncIterator[Cached]:
    async with server.client() as client:
        made = Cached(server, LeanCache(client, "v1", server.clock))
        running = asyncio.create_task(made.cache.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_it_is_not_used_before_it_is_filled(server: Server) -> None:
    async with server.client() as client:
        cache = LeanCache(client, "v1", server.clock)
        assert cache.age() is None
        with pytest.raises(Unavailable):
            await cache.snapshot(Scope(DRIVER))


async def test_a_namespace_s_labels_are_as_new_as_a_live_look_s(
    server: Server, cached: Cached, cluster: KubernetesCluster
) -> None:
    fill(server)
    await cached.filled()
    server.store.mutate(NAMESPACES, None, "team-1", lambda n: n["metadata"].update(labels={"env": "prod"}))
    found = await cached.equal(Scope(DRIVER, "n1"), cluster)
    assert [n.metadata.labels for n in found.namespaces if n.metadata.name == "team-1"] == [
        {"env": "prod", "kubernetes.io/metadata.name": "team-1"}
    ]


async def test_it_holds_what_a_live_look_holds(server: Server, cached: Cached, cluster: KubernetesCluster) -> None:
    fill(server)
    await cached.filled()
    server.put(NODES, {**node("n7"), "metadata": {"name": "n7", "labels": {"zone": "a"}}})
    server.put(SLICES, slice_of("n7"))
    for scope in (
        Scope(),
        Scope(DRIVER),
        Scope(DRIVER, "n1"),
        Scope(DRIVER, "gone", nodes=("n2",)),
        Scope("nobody"),
        Scope(node_selector={"zone": "a"}),
        Scope(DRIVER, node_selector={"zone": "b"}),
        Scope(DRIVER, pick=_every_other),
        Scope(DRIVER, node_selector={"zone": "a"}, pools=frozenset({(DRIVER, "n0"), (DRIVER, "gone")})),
    ):
        await cached.equal(scope, cluster)
    found = await cached.cache.snapshot(Scope(DRIVER))
    assert not found.live
    assert found.taken_at <= server.clock.now()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_it_equals_a_live_look_after_any_changes(
    server: Server, cached: Cached, cluster: KubernetesCluster, seed: int
) -> None:
    rng = random.Random(seed)
    fill(server)
    await cached.filled()
    for step in range(120):
        change(server, rng, step)
        if step in (30, 60, 90):
            [server.faults.cut_watches, server.faults.expire_watches, server.faults.go_away][step // 30 - 1]()
        if step % 40 == 39:
            await asyncio.sleep(0.02)
            server.faults.clear()
            for scope in (
                Scope(),
                Scope(DRIVER),
                Scope(DRIVER, f"n{rng.randrange(6)}"),
                Scope(DRIVER, "n0", nodes=("n5",)),
                Scope(DRIVER, pick=_every_other),
            ):
                await cached.equal(scope, cluster)


def _every_other(pools: Mapping[PoolKey, PublishedPool], _classes: Iterable[DeviceClass]) -> frozenset[PoolKey]:
    return frozenset(sorted(pools)[::2])


def change(server: Server, rng: random.Random, step: int) -> None:
    """One thing that happens in a cluster."""
    here = f"n{rng.randrange(6)}"
    pods = server.store.list(PODS)
    claims = server.store.list(CLAIMS)
    some_pod: Obj | None = rng.choice(pods) if pods else None
    some_claim: Obj | None = rng.choice(claims) if claims else None
    what = rng.randrange(8)
    if what == 0:
        made = server.put(PODS, pod(f"team-{rng.randrange(3)}", f"p{step}", here, app="user"))
        server.put(CLAIMS, claim(made["metadata"]["namespace"], f"c{step}", [(here, "gpu-1")], made))
    elif what == 1 and some_pod is not None:
        meta = some_pod["metadata"]
        server.store.delete(PODS, meta["namespace"], meta["name"], grace_seconds=rng.choice([0, 30]))
    elif what == 2 and some_claim is not None:
        meta = some_claim["metadata"]
        server.set_status(CLAIMS, meta["namespace"], meta["name"], {})
    elif what == 3 and some_claim is not None:
        meta = some_claim["metadata"]
        neighbours = [p for p in pods if p["metadata"]["namespace"] == meta["namespace"]]
        status = claim("", "", [(here, "gpu-2")], *rng.sample(neighbours, min(2, len(neighbours))))["status"]
        old = some_claim.get("status", {}).get("allocation")
        status["allocation"] = old or status["allocation"]  # an allocation is immutable
        server.set_status(CLAIMS, meta["namespace"], meta["name"], status)
    elif what == 4:
        if server.store.find(SLICES, None, f"{here}-{DRIVER}"):
            server.store.delete(SLICES, None, f"{here}-{DRIVER}")
        else:
            server.put(SLICES, slice_of(here))
    elif what == 5:
        if server.store.find(NODES, None, here):
            server.store.delete(NODES, None, here)
        else:
            server.put(NODES, node(here, rng.choice(["True", "False", "Unknown"])))
    elif what == 6:
        server.put(BUDGETS, budget(f"team-{rng.randrange(3)}", f"b{step}", app="user"))
    elif some_claim is not None:
        server.store.delete(CLAIMS, some_claim["metadata"]["namespace"], some_claim["metadata"]["name"])


async def test_it_says_which_pools_changed(server: Server, cached: Cached) -> None:
    pods = fill(server)
    await cached.filled()
    await cached.until(lambda: {(DRIVER, "n0"), (DRIVER, "n1"), (DRIVER, "n2")} <= cached.told)

    async def told(*pools: str) -> None:
        await cached.until(lambda: cached.told == {(DRIVER, p) for p in pools})
        cached.told.clear()

    await asyncio.sleep(0.05)
    cached.told.clear()
    server.store.delete(PODS, "team-1", pods["n1"]["metadata"]["name"], grace_seconds=30)
    await told("n1")
    server.set_status(NODES, None, "n2", node("n2", "Unknown")["status"])
    await told("n2")
    server.put(CLAIMS, claim("team-0", "more", [("n0", "gpu-3"), ("n2", "gpu-3")]))
    await told("n0", "n2")
    server.store.delete(SLICES, None, f"n0-{DRIVER}")
    await told("n0")
    # a heartbeat of a node and a pod that holds nothing concern nobody
    server.set_status(NODES, None, "n1", {**node("n1")["status"], "capacity": {"cpu": "1"}})
    server.store.delete(PODS, "kube-system", "agent-1", grace_seconds=0)
    server.put(CLAIMS, claim("team-0", "last", [("n0", "gpu-1")]))
    await told("n0")


async def test_it_grows_old_while_the_server_is_away_and_young_again_after(
    server: Server, cached: Cached, cluster: KubernetesCluster
) -> None:
    fill(server)
    await cached.filled()
    server.faults.go_away()
    went = server.clock.now()
    await server.clock.sleep(90)
    age = cached.cache.age()
    assert age is not None
    assert age >= server.clock.now() - went - timedelta(milliseconds=50)
    server.put(PODS, pod("team-1", "meanwhile", "n1"))
    server.faults.clear()
    back = server.clock.now()
    await cached.until(lambda: server.clock.now() - (cached.cache.age() or timedelta(1)) >= back)
    assert "meanwhile" in names((await cached.equal(Scope(DRIVER, "n1"), cluster)).pods)


async def test_a_quiet_cluster_stays_young_by_bookmarks(server: Server, cached: Cached) -> None:
    await cached.filled()
    await server.clock.sleep(200)
    age = cached.cache.age()
    assert age is not None
    # a bookmark a minute
    assert age < server.clock.scaled(timedelta(seconds=90))


async def test_an_object_that_does_not_fit_empties_nothing(
    server: Server, cached: Cached, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relist that fails leaves what was known, and its age."""
    fill(server)
    await cached.filled()
    before = await cached.cache.snapshot(Scope(DRIVER))
    server.faults.fail(403, verbs=["list"], resources=[CLAIMS])
    server.faults.expire_watches()
    await server.clock.sleep(5)
    after = await cached.cache.snapshot(Scope(DRIVER))
    assert names(after.claims) == names(before.claims)
    assert after.taken_at <= server.clock.now()
