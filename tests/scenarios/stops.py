"""How a run is brought to a phase and kept there, for stories in which something happens to it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taintctl.api.base import FINALIZER, LABEL_RUN
from taintctl.api.reasons import Phase
from tests.scenarios.world import DRIVER, LENIENT, NODE, RULES, RUNS, World

EVICTION = "taint-eviction"
BEFORE_NO_EXECUTE = (Phase.DRY_RUN, Phase.BLOCKED, Phase.AWAITING_APPROVAL, Phase.NOTICE)
WITH_RULES_BEFORE_MAINTENANCE = (*BEFORE_NO_EXECUTE, Phase.EVICTING, Phase.DRAINING)
BEFORE_MAINTENANCE = (Phase.PENDING, *WITH_RULES_BEFORE_MAINTENANCE)
TAKING_OFF = (Phase.RELEASING, Phase.ROLLING_BACK)
EVERY_PHASE = (*BEFORE_MAINTENANCE, Phase.IN_MAINTENANCE, *TAKING_OFF)
HOLD = "example.com/hold"
SLOW, PATIENT = "team-a/slow", "team-a/patient"
"""One takes 25 s to stop, the other tolerates the taint for 20 s: while a run drains, SLOW is marked for deletion and
PATIENT is not yet."""


async def bring_to(world: World, phase: Phase, **spec: Any) -> None:
    """Starts a controller and the run `run`, and returns when the run is in the phase and stays there for a while.

    DryRun and Evicting stay for the 30 s that the eviction controller may be silent, Draining for 20 s.
    Every phase from Notice on evicts two pods more than the fleet has: SLOW and PATIENT.
    """
    manager = world.sandbox.manager
    match phase:
        case Phase.PENDING:
            world.policy()
            world.policy("asks", budgets="Ignore")
            await world.control()
            await world.start("earlier", policyName="asks")
            await world.until_phase(Phase.AWAITING_APPROVAL, name="earlier")
        case Phase.DRY_RUN:
            world.policy()
            await world.control()
            manager.pause(EVICTION)
        case Phase.BLOCKED:
            world.policy(limits={"maxPods": 1}, budgets="Ignore")
            await world.control()
        case Phase.AWAITING_APPROVAL:
            world.policy(budgets="Ignore")
            await world.control()
        case _:
            await _more_pods(world)
            world.policy(**{**LENIENT, **spec.pop("policy", {})})
            await world.control()
    if phase is Phase.NOTICE:
        spec = {"notice": "30m", **spec}
    if phase is Phase.EVICTING:
        when_effect(world, "NoExecute", lambda: manager.pause(EVICTION))
    await world.start(**{"policyName": "policy", **spec})
    if phase in TAKING_OFF:
        await _taking_off(world, phase)
    await world.until_phase(phase)
    if phase is Phase.PENDING:
        await world.until(lambda: world.run().status.reason == "DeviceInOtherRun")
    if phase is Phase.NOTICE:
        await world.until(lambda: {rule["spec"]["taint"]["effect"] for rule in rules_of(world)} == {"NoSchedule"})
    if phase is Phase.DRY_RUN:
        await world.until(lambda: effects_of(world) == {"None"})
        await world.wait(3)  # until it has been seen to be there
    if phase is Phase.EVICTING:
        await world.until(lambda: manager[EVICTION].paused and len(rules_of(world)) == 1)
    if phase is Phase.DRAINING:
        await world.until(lambda: SLOW in world.deleted_pods and "team-b/notebook-0" in world.deleted_pods)
        assert PATIENT in world.pods()


async def _more_pods(world: World) -> None:
    world.sandbox.start_pod("team-a", "slow", on=NODE, template="one-gpu", stop_after="25s")
    world.sandbox.start_pod("team-a", "patient", on=NODE, template="patient")
    await world.until(lambda: {SLOW, PATIENT} <= world.pods_on(NODE))


async def _taking_off(world: World, phase: Phase) -> None:
    """A finalizer that is not ours keeps the rules from going."""
    await world.until_phase(Phase.IN_MAINTENANCE if phase is Phase.RELEASING else Phase.DRAINING)
    for rule in rules_of(world):
        world.store.mutate(
            RULES, None, rule["metadata"]["name"], lambda r: r["metadata"].setdefault("finalizers", []).append(HOLD)
        )
    await world.patch(**({"workCompleted": True} if phase is Phase.RELEASING else {"cancelled": True}))


def let_rules_go(world: World) -> None:
    """Takes off what held the rules back."""
    for rule in rules_of(world):
        if HOLD in rule["metadata"].get("finalizers", ()):
            world.store.mutate(
                RULES, None, rule["metadata"]["name"], lambda r: r["metadata"]["finalizers"].remove(HOLD)
            )


def roomy() -> World:
    """A world whose first node has room for the two pods more."""
    return World(gpus_per_node=6)


def rules_of(world: World, run: str = "run") -> list[dict[str, Any]]:
    return [r for r in world.rules() if r["metadata"].get("labels", {}).get(LABEL_RUN) == run]


def effects_of(world: World, run: str = "run") -> set[str]:
    return {rule["spec"]["taint"]["effect"] for rule in rules_of(world, run)}


def gone(world: World, name: str = "run") -> bool:
    return world.store.find(RUNS, None, name) is None


def has_finalizer(world: World, name: str = "run") -> bool:
    return FINALIZER in world.raw(name)["metadata"].get("finalizers", ())


def warnings(world: World, reason: str, run: str = "run") -> list[str]:
    """The messages of the Warning events with that reason on the run."""
    return [
        event.get("message") or event.get("note") or ""
        for event in world.store.list("events")
        if event.get("type") == "Warning"
        and event.get("reason") == reason
        and (event.get("involvedObject") or event.get("regarding") or {}).get("name") == run
    ]


def when_effect(world: World, effect: str, do: Callable[[], None], *, run: str = "run") -> None:
    """Calls `do` once, in the moment in which a rule of the run gets that effect and before anybody acts on it."""
    done: list[bool] = []

    def look(event: Any) -> None:
        labels = event.obj["metadata"].get("labels") or {}
        if (
            event.type != "DELETED"
            and labels.get(LABEL_RUN) == run
            and event.obj["spec"]["taint"]["effect"] == effect
            and not done
        ):
            done.append(True)
            do()

    world.store.subscribe(RULES, look)


def no_execute_since(world: World, moment: Any) -> list[tuple[Any, str, str]]:
    return [e for e in world.effects if e[2] == "NoExecute" and e[0] > moment]


ONE_DEVICE = {"driver": DRIVER, "pool": NODE, "device": "gpu-0"}
