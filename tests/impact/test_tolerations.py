"""Tolerations, as 1.36.2 reads them."""

from __future__ import annotations

import msgspec
import pytest

from taintctl.api.objects import AllocationResult, ResourceClaim, Toleration
from taintctl.api.reasons import PodEffect
from taintctl.impact import parse
from taintctl.impact.tolerations import EVICTED, NOT_REACHED, TOLERATES, Fate, fate, worst
from tests.impact.fleet import FOREVER, KEY, VALUE, entries

NO_EXECUTE = "NoExecute"


def later(seconds: int) -> Fate:
    return Fate(PodEffect.EVICTED_LATER, seconds)


def recorded() -> list[tuple[str, tuple[Toleration, ...], int]]:
    """(case, the claim's tolerations, how many pods the control plane would evict) of recording 08."""
    found: dict[str, AllocationResult] = {}
    for entry in entries("08-tolerations"):
        response = entry["response"]
        if response.get("kind") == "ResourceClaim":
            claim = msgspec.convert(response, ResourceClaim, strict=False)
            assert claim.status.allocation is not None
            (found[entry["case"]],) = claim.status.allocation.devices.results or ()
    out = []
    for entry in entries("08-tolerations"):
        for condition in entry["response"].get("status", {}).get("conditions", ()):
            message = parse(condition["message"])
            assert message is not None
            held = found[entry["case"].removeprefix("dry-")]
            out.append((entry["case"], held.tolerations or (), message.pods))
    return out


def test_all_five_cases_were_recorded() -> None:
    assert len(recorded()) == 5


@pytest.mark.parametrize(("case", "tolerations", "pods"), recorded())
def test_recorded_tolerations_keep_or_lose_the_pod(case: str, tolerations: tuple[Toleration, ...], pods: int) -> None:
    assert (fate(tolerations, key=KEY, value=VALUE) != TOLERATES) == (pods == 1)


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], EVICTED),
        ([FOREVER], TOLERATES),
        ([Toleration(operator="Exists")], EVICTED),
        ([Toleration(operator="Exists", effect="")], EVICTED),
        ([Toleration(operator="Exists", effect="noexecute")], EVICTED),
        ([Toleration(key=KEY, operator="Exists", effect=NO_EXECUTE)], TOLERATES),
        ([Toleration(key="other", operator="Exists", effect=NO_EXECUTE)], EVICTED),
        ([Toleration(key=KEY, operator="Equal", value=VALUE, effect=NO_EXECUTE)], TOLERATES),
        ([Toleration(key=KEY, value=VALUE, effect=NO_EXECUTE)], TOLERATES),
        ([Toleration(key=KEY, operator="", value=VALUE, effect=NO_EXECUTE)], TOLERATES),
        ([Toleration(key=KEY, operator="Equal", effect=NO_EXECUTE)], EVICTED),
        ([Toleration(key=KEY, operator="In", value=VALUE, effect=NO_EXECUTE)], EVICTED),
        # An empty key with Equal matches by value alone: upstream's ToleratesTaint does not ask for Exists.
        ([Toleration(operator="Equal", value=VALUE, effect=NO_EXECUTE)], TOLERATES),
        ([Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=20)], later(20)),
        (
            [
                Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=20),
                Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=5),
            ],
            later(5),
        ),
        ([Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=5), FOREVER], TOLERATES),
        ([Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=0)], EVICTED),
        ([Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=-3)], EVICTED),
        (
            [
                Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=20),
                Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=-3),
            ],
            EVICTED,
        ),
    ],
)
def test_what_becomes_of_the_pod(tolerations: list[Toleration], expected: Fate) -> None:
    assert fate(tolerations, key=KEY, value=VALUE) == expected


def test_a_taint_without_a_value_is_tolerated_by_an_empty_one() -> None:
    assert fate([Toleration(key=KEY, operator="Equal", effect=NO_EXECUTE)], key=KEY, value="") == TOLERATES


def test_over_several_devices_the_worst_counts_and_the_shortest_time() -> None:
    assert worst([]) == TOLERATES
    assert worst([TOLERATES, NOT_REACHED]) == NOT_REACHED
    assert worst([NOT_REACHED, later(9), TOLERATES, later(4)]) == later(4)
    assert worst([later(4), EVICTED, TOLERATES]) == EVICTED
