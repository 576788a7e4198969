"""Kubernetes quantities and semantic versions as comparable values."""

from __future__ import annotations

import re
from fractions import Fraction

_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)")
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


def parse_quantity(text: str) -> Fraction:
    """The exact value of a `resource.Quantity` such as `80Gi`, `1.5` or `2e3`; ValueError when it is none."""
    match = _QUANTITY.fullmatch(text)
    if match is None or len(text) > 64:
        raise ValueError(f"{text[:80]!r} is no quantity such as 80Gi or 500m")
    sign, number, exponent, suffix = match.groups()
    value = Fraction(number)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    else:
        value *= _SUFFIXES[suffix or ""]
    return -value if sign == "-" else value


def semver_key(text: str) -> tuple[object, ...]:
    """What a semantic version sorts by (semver.org, 11); ValueError when it is none."""
    match = _SEMVER.fullmatch(text)
    if match is None or len(text) > 64:
        raise ValueError(f"{text[:80]!r} is no semantic version such as 1.2.3")
    major, minor, patch, pre = match.groups()
    numbers = (int(major), int(minor), int(patch))
    if pre is None:
        return (*numbers, 1, ())
    # A numeric identifier is lower than an alphanumeric one; a release is higher than its pre-releases.
    parts = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in pre.split("."))
    return (*numbers, 0, parts)
