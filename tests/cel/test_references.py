"""What an expression reads of a device is told from its text only where the text leaves no doubt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taintctl.cel.environment import CelError, compile_device_selector
from taintctl.cel.references import References, references

GPU = "gpu.example.com"


def reads(*attributes: tuple[str, str], capacity: tuple[tuple[str, str], ...] = ()) -> References:
    return References(frozenset(attributes), frozenset(capacity))


@pytest.mark.parametrize(
    ("expression", "read"),
    [
        ("device.driver == 'gpu.example.com'", reads()),
        ("device.allowMultipleAllocations", reads()),
        ("device.attributes['gpu.example.com'].model == 'H100'", reads((GPU, "model"))),
        ('device.attributes["gpu.example.com"]["model"] == "H100"', reads((GPU, "model"))),
        ("device . attributes [ 'gpu.example.com' ] . model == 'H100'", reads((GPU, "model"))),
        ("device.attributes['gpu.example.com'].?model.orValue('') == ''", reads((GPU, "model"))),
        ("has(device.attributes['a'].b) && device.attributes['c'].d", reads(("a", "b"), ("c", "d"))),
        (
            "device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('1Gi'))",
            reads(capacity=((GPU, "memory"),)),
        ),
        ("device.driver == 'a' ? device.attributes['b'].c : device.attributes['d'].e", reads(("b", "c"), ("d", "e"))),
        ("device.driver.startsWith('device.attributes')", reads()),
        ("true", reads()),
    ],
)
def test_what_the_text_names_is_what_is_read(expression: str, read: References) -> None:
    assert references(expression) == read


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes['gpu.example.com'].exists(k, k == 'uuid')",
        "device.attributes['gpu.example.com'].map(k, k).size() > 2",
        "'uuid' in device.attributes['gpu.example.com']",
        "device.attributes['gpu.' + 'example.com'].model == 'H100'",
        "device.attributes['gpu.example.com']['mo' + 'del'] == 'H100'",
        "device.attributes[device.driver].model == 'H100'",
        "device.attributes['gpu.example.com'][?'model'].hasValue()",
        "device.attributes['gpu\\x2eexample.com'].model == 'H100'",
        "device.attributes[r'gpu.example.com'].model == 'H100'",
        "device.attributes['gpu.example.com'] == {}",
        "device.attributes.size() == 1",
        "device == device",
        "[device].exists(d, d.driver == 'x')",
        "cel.bind(d, device, d.attributes['gpu.example.com'].uuid == '1')",
        "true ? .device.attributes['gpu.example.com'].uuid == '1' : false",
        "device.?attributes['gpu.example.com'].uuid == '1'",
        "{'a': 1}.?device.hasValue()",
        "[{'device': 1}][0].device == 1",
        "device['attributes']['gpu.example.com'].uuid == '1'",
        "device.taints.size() == 0",
        "device.driver == 'x' // device.attributes['a'].b",
        "device.driver == '''x'''",
        "device.attributes['gpu.example.com'].`uuid` == '1'",
        "device.attributes",
        "device.",
        "device",
    ],
)
def test_what_the_text_does_not_tell_is_left_open(expression: str) -> None:
    assert references(expression) is None


NAMES = ("model", "uuid", "index")
TERMS = st.sampled_from(
    [
        f"device.attributes['{GPU}'].model == 'H100'",
        f"device.attributes['{GPU}'].uuid == 'u-1'",
        f"has(device.attributes['{GPU}'].index)",
        f"device.attributes['{GPU}'].index > 1",
        f"device.attributes['{GPU}'].?model.orValue('none') != 'none'",
        f"device.driver == '{GPU}'",
    ]
)
VALUES = {
    "model": st.sampled_from(["H100", "A100"]).map(lambda v: {"string": v}),
    "uuid": st.sampled_from(["u-1", "u-2"]).map(lambda v: {"string": v}),
    "index": st.integers(0, 3).map(lambda v: {"int": v}),
}


@given(
    st.lists(st.tuples(TERMS, st.sampled_from([" && ", " || "])), min_size=1, max_size=4),
    st.fixed_dictionaries({}, optional=VALUES),
)
def test_the_rest_of_a_device_changes_no_answer(terms: list[tuple[str, str]], attributes: dict[str, Any]) -> None:
    """Whole, or with only what the text names: the same value or the same error."""
    expression = "".join(f"({term}){joint}" for term, joint in terms) + "true"
    read = references(expression)
    assert read is not None
    named = {name for _, name in read.attributes}
    part = {name: value for name, value in attributes.items() if name in named}

    def answer(given_: dict[str, Any]) -> object:
        try:
            return compile_device_selector(expression)(GPU, given_)
        except CelError as error:
            return str(error)

    assert answer(attributes) == answer(part)
