"""CEL as device selectors, CRD rules and admission policies use it."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.cel.environment import MAX_EXPRESSION, CelError, compile_device_selector, compile_rule
from taintctl.cel.quantity import parse_quantity, semver_key

ATTRIBUTES = {
    "type": {"string": "gpu"},
    "index": {"int": 3},
    "healthy": {"bool": True},
    "driverVersion": {"version": "570.10.2"},
    "resource.kubernetes.io/pciBusID": {"string": "0000:17:00.0"},
    "tags": {"strings": ["a", "b"]},
}
CAPACITY = {"memory": {"value": "80Gi"}, "slices": {"value": "7"}}


def selects(expression: str) -> bool:
    return compile_device_selector(expression)("gpu.example.com", ATTRIBUTES, CAPACITY)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # As recorded in 01-objects.json.
        ("device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu'", True),
        ("device.driver == 'mig.example.com'", False),
        ("device.attributes['gpu.example.com'].index > 2", True),
        ("device.attributes['gpu.example.com'].healthy", True),
        ("device.attributes['resource.kubernetes.io'].pciBusID == '0000:17:00.0'", True),
        ("device.attributes['resource.kubernetes.io'].pciBusID.startsWith('0000:18')", False),
        # A domain that the device does not have is an empty map.
        ("has(device.attributes['other.example.com'].type)", False),
        ("'other.example.com' in device.attributes", False),
        ("'other.example.com' in device.attributes && device.attributes['other.example.com'].x == 1", False),
        ("device.attributes['gpu.example.com'].?nope.orValue('x') == 'x'", True),
        ("cel.bind(dra, device.attributes['gpu.example.com'], dra.type == 'gpu' && dra.index == 3)", True),
        ("device.capacity['gpu.example.com'].memory.compareTo(quantity('80Gi')) == 0", True),
        ("device.capacity['gpu.example.com'].memory.isGreaterThan(quantity('40Gi'))", True),
        ("device.capacity['gpu.example.com'].memory.isLessThan(quantity('40Gi'))", False),
        ("device.capacity['gpu.example.com'].memory == quantity('81920Mi')", True),
        ("device.capacity['gpu.example.com'].memory.sub(quantity('79Gi')) == quantity('1Gi')", True),
        ("device.capacity['gpu.example.com'].slices.asInteger() == 7", True),
        ("device.attributes['gpu.example.com'].driverVersion.compareTo(semver('570.9.0')) > 0", True),
        ("device.attributes['gpu.example.com'].driverVersion.isLessThan(semver('570.10.2-rc.1'))", False),
        ("device.attributes['gpu.example.com'].driverVersion.major() == 570", True),
        ("device.attributes['gpu.example.com'].tags.includes('b')", True),
        ("device.attributes['gpu.example.com'].type.includes('gpu')", True),
        ("device.allowMultipleAllocations", False),
        # A string that looks like an index is a string.
        ("\"device.attributes['x']\".size() == 22", True),
    ],
)
def test_device_selectors(expression: str, expected: bool) -> None:
    assert selects(expression) is expected


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("device.attributes['gpu.example.com'].nope == 1", "nope"),
        ("device.driver", "not true or false"),
        ("device.capacity['gpu.example.com'].memory.compareTo(semver('1.0.0')) == 0", "cannot be compared"),
        ("quantity('eighty') == quantity('80')", "no quantity such as 80Gi or 500m"),
    ],
)
def test_a_selector_that_does_not_evaluate_is_an_error(expression: str, sentence: str) -> None:
    with pytest.raises(CelError, match=sentence):
        selects(expression)


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("device.driver ==", "Syntax error"),
        ("devices.driver == 'x'", "undeclared reference to 'devices.driver'"),
        ("device.driver.isSorted()", "undeclared reference to 'isSorted'"),
        ("", "empty"),
        ("true" + " " * MAX_EXPRESSION, "longer than 10240 bytes"),
    ],
)
def test_a_selector_that_does_not_compile_is_refused_with_a_sentence(expression: str, sentence: str) -> None:
    with pytest.raises(CelError, match=sentence) as refused:
        compile_device_selector(expression)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        # Those of design/api.md that a real 1.36.2 accepted.
        ("has(self.driver) || has(self.pool)", {"self": {"pool": "p"}}, True),
        ("has(self.driver) || has(self.pool)", {"self": {}}, False),
        ("!(has(self.cron) && has(self.start)) && (has(self.cron) || has(self.start))", {"self": {"cron": "x"}}, True),
        ("type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')", {"self": "25%"}, True),
        ("type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')", {"self": -1}, False),
        ("self.target == oldSelf.target", {"self": {"target": {"a": [1]}}, "oldSelf": {"target": {"a": [1]}}}, True),
        ("self.names.all(n, n.size() <= 3)", {"self": {"names": ["abc", "abcd"]}}, False),
        ("duration(self) <= duration('1h')", {"self": "59m"}, True),
        ("'%s-%d'.format([self.a, 3])", {"self": {"a": "x"}}, "x-3"),
    ],
)
def test_rules(rule: str, values: dict[str, Any], expected: Any) -> None:
    assert compile_rule(rule)(**values) == expected


def test_a_rule_over_a_missing_field_is_an_error() -> None:
    with pytest.raises(CelError, match="nope"):
        compile_rule("self.nope == 1")(self={})


def test_admission_variables() -> None:
    rule = compile_rule("object.spec.approver.name == request.userInfo.username", ("object", "request"))
    request = {"userInfo": {"username": "bob"}}
    assert rule(object={"spec": {"approver": {"name": "bob"}}}, request=request) is True
    assert rule(object={"spec": {"approver": {"name": "eve"}}}, request=request) is False
    assert compile_rule("oldObject == null", ("oldObject",))(oldObject=None) is True


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("80Gi", 80 * 2**30), ("500m", 0.5), ("1.5k", 1500), ("2e3", 2000), ("-3Mi", -3 * 2**20), (".5", 0.5)],
)
def test_quantities(text: str, number: float) -> None:
    assert parse_quantity(text) == number


@pytest.mark.parametrize("text", ["", "Gi", "1.2.3", "1 Gi", "0x1", "1KiB", "1" * 65])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        parse_quantity(text)


def test_semantic_versions_sort_as_their_specification_says() -> None:
    # semver.org, 11.4.
    order = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"]
    assert sorted(set(order), key=semver_key) == order
    with pytest.raises(ValueError, match="no semantic version"):
        semver_key("1.0")
