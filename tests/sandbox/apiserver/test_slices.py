"""What a ResourceSlice may hold: bounds and words of pkg/apis/resource/validation of Kubernetes 1.36."""

from __future__ import annotations

from typing import Any

import pytest

PATH = "/apis/resource.k8s.io/v1/resourceslices"
LABEL = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"

Spec = dict[str, Any]


def sliced(**spec: Any) -> Spec:
    """A slice of pool p on node n, with these fields more."""
    base = {"driver": "d.example.com", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}
    kept = {name: value for name, value in {**base, **spec}.items() if value is not None}
    return {"metadata": {"name": "s"}, "spec": kept}


def counters(count: int = 1) -> Spec:
    return {f"c-{index}": {"value": "1"} for index in range(count)}


def sets(*names: str) -> list[Spec]:
    return [{"name": name, "counters": counters()} for name in names]


def devices(count: int, **more: Any) -> list[Spec]:
    """Devices, the first of them with these fields more."""
    found: list[Spec] = [{"name": f"d-{index}"} for index in range(count)]
    found[0] |= more
    return found


def consuming(*names: str) -> list[Spec]:
    return [{"counterSet": name, "counters": counters()} for name in names]


async def words(api: Any, spec: Spec) -> str:
    """The message of a slice that is refused as invalid, after the part that names the object."""
    status, message = await api.refused("POST", PATH, spec)
    assert status == 422
    found: str = message.removeprefix('ResourceSlice.resource.k8s.io "s" is invalid: ')
    return found


@pytest.mark.parametrize(
    "spec",
    [
        sliced(sharedCounters=[{"name": f"s-{i}", "counters": counters(32)} for i in range(8)]),
        sliced(devices=devices(64, consumesCounters=[{"counterSet": s, "counters": counters(32)} for s in "ab"])),
        sliced(devices=devices(128)),
        sliced(devices=devices(64, taints=[{"key": "k", "effect": "NoSchedule"}])),
        # Which counter set it is says another slice of the pool: nobody can check it here (KEP-4815).
        sliced(devices=devices(1, consumesCounters=consuming("elsewhere"))),
        sliced(nodeName=None, perDeviceNodeSelection=True, devices=devices(1, nodeName="n")),
        sliced(nodeName=None, perDeviceNodeSelection=True, devices=devices(1, allNodes=True)),
    ],
)
async def test_slices_up_to_the_bounds_are_taken(api: Any, spec: Spec) -> None:
    created = await api.ok("POST", PATH, spec)
    assert created["spec"].keys() == spec["spec"].keys()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            sliced(sharedCounters=sets("a"), devices=devices(1)),
            'spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed',
        ),
        (sliced(sharedCounters=sets(*"abcdefghi")), "spec.sharedCounters: Too many: 9: must have at most 8 items"),
        (sliced(sharedCounters=sets("a", "a")), 'spec.sharedCounters[1]: Duplicate value: "a"'),
        (sliced(sharedCounters=[{"counters": counters()}]), "spec.sharedCounters[0].name: Required value"),
        (sliced(sharedCounters=[{"name": "a"}]), "spec.sharedCounters[0].counters: Required value"),
        (
            sliced(sharedCounters=[{"name": "a", "counters": counters(33)}]),
            "spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items",
        ),
        (
            sliced(sharedCounters=[{"name": "a", "counters": {"memorySlice0": {"value": "1"}}}]),
            f'spec.sharedCounters[0].counters[memorySlice0]: Invalid value: "memorySlice0": {LABEL}',
        ),
        (sliced(sharedCounters=sets("A")), f'spec.sharedCounters[0].name: Invalid value: "A": {LABEL}'),
        (sliced(devices=devices(129)), "spec.devices: Too many: 129: must have at most 128 items"),
        (
            sliced(devices=devices(65, consumesCounters=consuming("a"))),
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        (
            sliced(devices=devices(65, taints=[{"key": "k", "effect": "NoSchedule"}])),
            "spec.devices: Too many: 65: must have at most 64 items",
        ),
        (sliced(devices=[{"name": "d"}, {"name": "d"}]), 'spec.devices[1]: Duplicate value: "d"'),
        (
            sliced(devices=devices(1, consumesCounters=consuming("a", "b", "c"))),
            "spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items",
        ),
        (
            sliced(devices=devices(1, consumesCounters=consuming("a", "a"))),
            'spec.devices[0].consumesCounters[1]: Duplicate value: "a"',
        ),
        (
            sliced(devices=devices(1, consumesCounters=[{"counterSet": "a"}])),
            "spec.devices[0].consumesCounters[0].counters: Required value",
        ),
        (
            sliced(devices=devices(1, consumesCounters=[{"counters": counters()}])),
            "spec.devices[0].consumesCounters[0].counterSet: Required value",
        ),
        (
            sliced(nodeName=None),
            "spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` "
            "is required",
        ),
        (
            sliced(allNodes=True),
            'spec: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, `allNodes`, '
            "`perDeviceNodeSelection` is required, but multiple fields are set",
        ),
        (
            sliced(nodeName=None, perDeviceNodeSelection=True, devices=devices(1)),
            "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required "
            "when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ),
        (
            sliced(nodeName=None, perDeviceNodeSelection=True, devices=devices(1, nodeName="n", allNodes=True)),
            'spec.devices[0]: Invalid value: "{`nodeName`, `allNodes`}": exactly one of `nodeName`, `nodeSelector`, '
            "or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ),
        (
            sliced(devices=devices(1, nodeName="n")),
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if "
            "`perDeviceNodeSelection` is set to true in the ResourceSlice spec",
        ),
    ],
)
async def test_slices_beyond_them_are_refused(api: Any, spec: Spec, message: str) -> None:
    found = await words(api, spec)
    assert found == message or (message.endswith(LABEL) and found.startswith(message))


async def test_a_false_scope_is_not_the_same_as_none(api: Any) -> None:
    told = await words(api, sliced(allNodes=False, perDeviceNodeSelection=False))
    assert told == (
        "[spec.allNodes: Invalid value: false: must be either unset or set to true, "
        "spec.perDeviceNodeSelection: Invalid value: false: must be either unset or set to true]"
    )


@pytest.mark.parametrize("terms", [[], [{}, {}]])
async def test_the_node_selector_of_a_slice_has_one_term(api: Any, terms: list[Spec]) -> None:
    told = await words(api, sliced(nodeName=None, nodeSelector={"nodeSelectorTerms": terms}))
    assert told.startswith("spec.nodeSelector.nodeSelectorTerms: Invalid value: ")
    assert told.endswith(": must have exactly one node selector term")


@pytest.mark.parametrize("value", ["80 GB", "", "1Zi", True, "9" * 65, [], {}])
async def test_a_counter_that_is_no_quantity_is_not_decoded(api: Any, value: Any) -> None:
    counted = {"counters": {"c": {"value": value}}}
    for spec in (
        sliced(sharedCounters=[{"name": "a", **counted}]),
        sliced(devices=devices(1, consumesCounters=[{"counterSet": "a", **counted}])),
        sliced(sharedCounters=[{"name": "a", "counters": {"c": "1"}}]),
    ):
        status, message = await api.refused("POST", PATH, spec)
        assert status == 400
        assert "counter c: quantities must match the regular expression" in message


@pytest.mark.parametrize(("sent", "stored"), [({"value": 7}, "7"), ({"value": None}, "0"), ({}, "0"), (None, "0")])
async def test_a_quantity_may_be_a_number_or_left_out(api: Any, sent: Any, stored: str) -> None:
    created = await api.ok("POST", PATH, sliced(sharedCounters=[{"name": "a", "counters": {"c": sent}}]))
    assert created["spec"]["sharedCounters"] == [{"name": "a", "counters": {"c": {"value": stored}}}]


@pytest.mark.parametrize(
    "spec",
    [
        sliced(sharedCounters={"name": "a"}),
        sliced(sharedCounters=["a"]),
        sliced(sharedCounters=[{"name": "a", "counters": ["c"]}]),
        sliced(devices=devices(1, consumesCounters=[{"counterSet": 1}])),
        sliced(perDeviceNodeSelection="yes"),
        sliced(nodeName=None, nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [{"key": 1}]}]}),
    ],
)
async def test_a_slice_of_another_shape_is_not_decoded(api: Any, spec: Spec) -> None:
    status, message = await api.refused("POST", PATH, spec)
    assert status == 400
    assert message.startswith("json: cannot unmarshal ")
