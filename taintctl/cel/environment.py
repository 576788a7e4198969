"""CEL as Kubernetes uses it, over the C++ implementation (cel-expr-python).

Two dialects: the selectors of device classes and claims (`compile_device_selector`), and the rules of
CustomResourceDefinitions and admission policies (`compile_rule`). What the library cannot do is refused when the
expression is compiled, with a sentence.

Known limits, against upstream: values are dynamically typed, so a field that does not exist is an error when the
expression is evaluated and not when it is compiled; the Kubernetes list, URL, IP and CIDR functions are not there;
a device attribute domain that is computed (not written as a string) is an error where the device does not have it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings

from taintctl.cel.quantity import parse_quantity, semver_key

MAX_EXPRESSION = 10 * 1024
"""Bytes; the limit of `CELSelector.expression` (resource.k8s.io)."""

MAX_CACHED = 4096
"""Results remembered for each selector: the library leaks some memory whenever it calls a function of ours."""

_QUANTITY = "quantity()"
_SEMVER = "semver()"


class CelError(Exception):
    """An expression that does not compile or does not evaluate; one sentence."""


DeviceSelector = Callable[..., bool]
Rule = Callable[..., Any]


def _unwrap(value: Any, kind: str) -> str:
    if isinstance(value, dict) and list(value) == [kind]:
        return str(value[kind])
    raise ValueError(f"{kind} expected")


def _key(value: Any) -> Any:
    """What a quantity or a version is compared by."""
    if isinstance(value, dict) and list(value) == [_SEMVER]:
        return semver_key(value[_SEMVER])
    return parse_quantity(_unwrap(value, _QUANTITY))


def _compare(one: Any, other: Any) -> int:
    left, right = _key(one), _key(other)
    if type(left) is not type(right):
        raise ValueError("a quantity and a version cannot be compared")
    return int(left > right) - int(left < right)


def _quantity(text: Any) -> dict[str, str]:
    """A quantity in canonical form, so that equal ones are equal maps."""
    return {_QUANTITY: _canonical(str(text))}


def _canonical(text: str) -> str:
    value = parse_quantity(text)
    if value.denominator == 1:
        return str(value.numerator)
    nanos = value * 10**9
    # Upstream rounds up what is finer than a nano.
    return f"{-((-nanos.numerator) // nanos.denominator)}n"


def _semver(text: Any) -> dict[str, str]:
    semver_key(str(text))
    return {_SEMVER: str(text)}


def _parses(parse: Callable[[str], object]) -> Callable[[Any], bool]:
    def check(text: Any) -> bool:
        try:
            parse(str(text))
        except ValueError:
            return False
        return True

    return check


def _sum(one: Any, other: Any, sign: int) -> dict[str, str]:
    add = parse_quantity(str(other)) if isinstance(other, int) else parse_quantity(_unwrap(other, _QUANTITY))
    total = parse_quantity(_unwrap(one, _QUANTITY)) + sign * add
    nanos = total * 10**9
    return {_QUANTITY: str(total.numerator) if total.denominator == 1 else f"{nanos.numerator // nanos.denominator}n"}


def _sign(one: Any) -> int:
    value = parse_quantity(_unwrap(one, _QUANTITY))
    return int(value > 0) - int(value < 0)


def _as_integer(one: Any) -> int:
    value = parse_quantity(_unwrap(one, _QUANTITY))
    if value.denominator != 1:
        raise ValueError("the quantity is not an integer")
    return value.numerator


def _includes(values: Any, wanted: Any) -> bool:
    return wanted in values if isinstance(values, list) else bool(values == wanted)


_BOOL, _INT, _DOUBLE, _STRING, _MAP, _LIST, _DYN = (
    cel.Type.BOOL,
    cel.Type.INT,
    cel.Type.DOUBLE,
    cel.Type.STRING,
    cel.Type.MAP,
    cel.Type.LIST,
    cel.Type.DYN,
)

_FUNCTIONS: tuple[tuple[str, bool, tuple[Any, ...], Any, Callable[..., Any]], ...] = (
    ("quantity", False, (_STRING,), _MAP, _quantity),
    ("isQuantity", False, (_STRING,), _BOOL, _parses(parse_quantity)),
    ("semver", False, (_STRING,), _MAP, _semver),
    ("isSemver", False, (_STRING,), _BOOL, _parses(semver_key)),
    ("compareTo", True, (_MAP, _MAP), _INT, _compare),
    ("isGreaterThan", True, (_MAP, _MAP), _BOOL, lambda a, b: _compare(a, b) > 0),
    ("isLessThan", True, (_MAP, _MAP), _BOOL, lambda a, b: _compare(a, b) < 0),
    ("add", True, (_MAP, _MAP), _MAP, lambda a, b: _sum(a, b, 1)),
    ("add", True, (_MAP, _INT), _MAP, lambda a, b: _sum(a, b, 1)),
    ("sub", True, (_MAP, _MAP), _MAP, lambda a, b: _sum(a, b, -1)),
    ("sub", True, (_MAP, _INT), _MAP, lambda a, b: _sum(a, b, -1)),
    ("sign", True, (_MAP,), _INT, _sign),
    ("isInteger", True, (_MAP,), _BOOL, lambda a: parse_quantity(_unwrap(a, _QUANTITY)).denominator == 1),
    ("asInteger", True, (_MAP,), _INT, _as_integer),
    ("asApproximateFloat", True, (_MAP,), _DOUBLE, lambda a: float(parse_quantity(_unwrap(a, _QUANTITY)))),
    ("major", True, (_MAP,), _INT, lambda a: semver_key(_unwrap(a, _SEMVER))[0]),
    ("minor", True, (_MAP,), _INT, lambda a: semver_key(_unwrap(a, _SEMVER))[1]),
    ("patch", True, (_MAP,), _INT, lambda a: semver_key(_unwrap(a, _SEMVER))[2]),
    *(
        ("includes", True, (of, wanted), _BOOL, _includes)
        for wanted in (_STRING, _INT, _BOOL, _MAP)
        for of in (_LIST, wanted)
    ),
)


def _declared(name: str) -> Any:
    """A function with its overloads. The library matches them by the run-time type: DYN would match nothing."""
    overloads = [
        cel.Overload(
            f"kubernetes_{name}_{index}", return_type=returns, parameters=list(takes), is_member=member, impl=impl
        )
        for index, (one, member, takes, returns, impl) in enumerate(_FUNCTIONS)
        if one == name
    ]
    return cel.FunctionDecl(name, overloads)


@lru_cache(maxsize=32)
def _environment(variables: tuple[str, ...]) -> Any:
    return cel.NewEnv(
        variables=dict.fromkeys(variables, _DYN),
        extensions=[
            ext_strings.ExtStrings(),
            ext_bindings.ExtBindings(),
            ext_optional.ExtOptional(),
            ext_math.ExtMath(),
        ],
        functions=[_declared(name) for name in dict.fromkeys(one[0] for one in _FUNCTIONS)],
    )


_POSITION = re.compile(r"^(?:[A-Z_]+: )?(?:ERROR: )?(?:<input>:\d+:\d+: )?")
_STATUS = re.compile(r"\s*\[[A-Z_]+\]\s*$")


def _sentence(error: object) -> str:
    """The library's error without its positions and drawings."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else "unknown error"
    return _STATUS.sub("", _POSITION.sub("", line))[:500]


def _compiled(expression: str, variables: tuple[str, ...]) -> Any:
    if len(expression.encode()) > MAX_EXPRESSION:
        raise CelError(f"the expression is longer than {MAX_EXPRESSION} bytes")
    if not expression.strip():
        raise CelError("the expression is empty")
    try:
        return _environment(variables).compile(expression)
    except (RuntimeError, ValueError) as error:
        raise CelError(_sentence(error)) from None


def _evaluated(program: Any, values: Mapping[str, Any]) -> Any:
    try:
        result = program.eval(data=dict(values))
        kind, plain = result.type(), result.plain_value()
    except (RuntimeError, ValueError, TypeError) as error:
        raise CelError(_sentence(error)) from None
    # The library returns what went wrong instead of raising it.
    if kind.name() in ("ERROR", "UNKNOWN"):
        raise CelError(_sentence(plain))
    return plain


@lru_cache(maxsize=512)
def compile_rule(expression: str, variables: tuple[str, ...] = ("self", "oldSelf")) -> Rule:
    """A rule over plain JSON values: `program(self=…, oldSelf=…)` gives the value of the expression.

    CelError when it does not compile, and from the program when it does not evaluate.
    """
    compiled = _compiled(expression, variables)

    def program(**values: Any) -> Any:
        return _evaluated(compiled, values)

    return program


_LITERAL = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_DOMAIN = re.compile(rf"device\s*\.\s*(attributes|capacity)\s*\[\s*({_LITERAL})\s*\]|{_LITERAL}")


def _with_empty_domains(expression: str) -> str:
    """A domain that a device does not have is an empty map (dra `newStringInterfaceMapWithDefault`)."""

    def replaced(match: re.Match[str]) -> str:
        part, literal = match.group(1), match.group(2)
        return f"device.{part}[?{literal}].orValue(dyn({{}}))" if part else match.group(0)

    return _DOMAIN.sub(replaced, expression)


def _attribute(value: Mapping[str, Any]) -> Any:
    """The CEL value of a `DeviceAttribute`, which has exactly one of int, bool, string, version or a list of them."""
    for kind, inner in value.items():
        if kind == "version":
            return _semver(inner)
        if kind == "versions":
            return [_semver(one) for one in inner]
        return inner
    raise CelError("a device attribute has no value")


def _by_domain(driver: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`domain/name` by domain; a name without one is in the driver's own domain."""
    domains: dict[str, dict[str, Any]] = {}
    for qualified, value in values.items():
        domain, slash, name = qualified.rpartition("/")
        domains.setdefault(domain if slash else driver, {})[name] = value
    return domains


@lru_cache(maxsize=512)
def compile_device_selector(expression: str) -> DeviceSelector:
    """A selector of DRA devices: `program(driver, attributes, capacity, allowMultipleAllocations=False)`.

    `attributes` and `capacity` are as in a ResourceSlice's device. CelError when the expression does not compile,
    and from the program when it does not evaluate to true or false, as where an attribute is missing.
    """
    compiled = _compiled(_with_empty_domains(expression), ("device",))
    known: dict[bytes, bool] = {}

    def program(
        driver: str,
        attributes: Mapping[str, Any] | None = None,
        capacity: Mapping[str, Any] | None = None,
        allowMultipleAllocations: bool = False,
    ) -> bool:
        key = msgspec.json.encode([driver, attributes, capacity, allowMultipleAllocations])
        if key in known:
            return known[key]
        try:
            device = {
                "driver": driver,
                "attributes": _by_domain(driver, {k: _attribute(v) for k, v in (attributes or {}).items()}),
                "capacity": _by_domain(driver, {k: _quantity(v["value"]) for k, v in (capacity or {}).items()}),
                "allowMultipleAllocations": allowMultipleAllocations,
            }
        except ValueError as error:
            raise CelError(str(error)) from None
        result = _evaluated(compiled, {"device": device})
        if not isinstance(result, bool):
            raise CelError(f"the expression gives {type(result).__name__}, not true or false")
        if len(known) >= MAX_CACHED:
            known.clear()
        known[key] = result
        return result

    return program
