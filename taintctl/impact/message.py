"""The dry-run message of a DeviceTaintRule with effect None, read back into numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class DryRunMessage:
    published: int
    allocated: int
    """Allocation results: a device that two claims share counts twice."""
    pods: int
    namespaces: int


def _counted(group: str, singular: str, plural: str) -> str:
    return rf"(?:(?P<{group}_one>1) {singular}|(?P<{group}>0|[2-9]|[1-9][0-9]{{1,9}}) {plural})"


_MESSAGE = re.compile(
    _counted("published", "published device selected", "published devices selected")
    + r"\. "
    + _counted("allocated", "allocated device selected", "allocated devices selected")
    + r"\. "
    + _counted("pods", "pod would be evicted in", "pods would be evicted in")
    + " "
    + _counted("namespaces", "namespace", "different namespaces")
    + r" if the effect was NoExecute\. This information will not be updated again\. "
    r"Recreate the DeviceTaintRule to trigger an update\."
    + "(?: "
    + _counted("evicted", "pod evicted", "pods evicted")
    + r" since starting the controller\.)?"
)


def parse(message: str) -> DryRunMessage | None:
    """The numbers, or None for whatever is not exactly the wording of 1.36 and 1.37 (recordings 02, 03, 07, 08;
    upstream maybeUpdateRuleStatus). The wording is no API: what does not parse is a no, never a zero."""
    match = _MESSAGE.fullmatch(message)
    if match is None:
        return None

    def number(group: str) -> int:
        return int(match[group] or match[f"{group}_one"])

    return DryRunMessage(number("published"), number("allocated"), number("pods"), number("namespaces"))
