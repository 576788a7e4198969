"""A status stays small: an API server refuses objects beyond 1.5 MB, and every store is sent to every watcher."""

from __future__ import annotations

import json
from time import process_time

from taintctl.api.plan import DeviceID
from taintctl.api.reasons import Phase, PodEffect
from tests.workflow.builders import DRIVER, World, make_plan, make_pod, make_policy, make_run


def size(world: World) -> int:
    return len(json.dumps(world.status.dump()))


def test_ten_thousand_pods_stay_under_300_kilobytes_in_every_phase() -> None:
    pods = [
        make_pod(
            f"a-team-with-a-long-name-{n % 40}/a-pod-with-a-rather-long-name-{n:05}-x7k2q",
            PodEffect.NOT_REACHED_BY_TAINT if n % 10 == 0 else PodEffect.EVICTED,
            devices=(DeviceID(DRIVER, f"node-{n % 20:02}", f"gpu-{n % 8}"),),
        )
        for n in range(10_000)
    ]
    pools = [f"node-{n:02}" for n in range(20)]
    world = World(
        run=make_run(target={"driver": DRIVER, "wholeDriver": True}),
        plan=make_plan(pods, pools=pools, gpus=8),
        policy=make_policy(approval={"required": "Always"}),
    )
    world.outcome = lambda a: None
    largest = 0
    begun = process_time()
    for phase in (Phase.AWAITING_APPROVAL, Phase.NOTICE, Phase.EVICTING, Phase.DRAINING):
        world.until(phase)
        if phase is Phase.AWAITING_APPROVAL:
            world.approve()
        largest = max(largest, size(world))
    assert largest < 300_000
    assert process_time() - begun < 30, "seconds of work, not minutes"


def test_256_rules_stay_a_few_hundred_kilobytes_with_the_second_look_beside_them() -> None:
    pools = [f"a-node-name-of-a-usual-length-{n:03}.cluster.example.com" for n in range(256)]
    world = World(
        run=make_run(target={"driver": DRIVER, "wholeDriver": True}), plan=make_plan([], pools=pools, gpus=8)
    ).until(Phase.NOTICE)
    while len(world.rules) < 512:
        world.pass_time(world.step().requeue_after or 0)
    world.settle() if world.phase is not Phase.NOTICE else world.step()
    assert size(world) < 500_000
