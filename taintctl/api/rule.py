"""The DeviceTaintRules we make, and what came of an eviction: values that the workflow and the adapters exchange."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from taintctl.api.base import ANNOTATION_ROUND, LABEL_MANAGED_BY, LABEL_ROLE, LABEL_RUN, MANAGED_BY
from taintctl.api.objects import DeviceTaintRule
from taintctl.api.reasons import Effect

_NAME = re.compile(r"taintctl-(?P<uid>.+)-[0-9]+(-dry)?")


@dataclass(frozen=True)
class RuleManifest:
    """A DeviceTaintRule to be made. It always names driver and pool, so that no rule of ours can ever mean more.

    It has no owner reference: the garbage collector takes an owner's dependents off before the owner goes
    (`--cascade=foreground`, as GitOps tools delete), and would free devices in maintenance. The run's finalizer sees to
    it that its rules go with it.
    """

    name: str
    role: str
    round: int
    run_name: str
    run_uid: str
    driver: str
    pool: str
    device: str | None
    key: str
    value: str
    effect: Effect

    def __post_init__(self) -> None:
        if not self.driver or not self.pool:
            raise ValueError("a DeviceTaintRule of ours names driver and pool")

    def to_object(self) -> dict[str, Any]:
        """The object without its apiVersion, which discovery decides."""
        selector = {"driver": self.driver, "pool": self.pool}
        if self.device is not None:
            selector["device"] = self.device
        return {
            "kind": "DeviceTaintRule",
            "metadata": {
                "name": self.name,
                "labels": {
                    LABEL_RUN: run_label(self.run_name),
                    LABEL_ROLE: self.role,
                    LABEL_MANAGED_BY: MANAGED_BY,
                },
                "annotations": {ANNOTATION_ROUND: str(self.round)},
            },
            "spec": {
                "deviceSelector": selector,
                "taint": {"key": self.key, "value": self.value, "effect": str(self.effect)},
            },
        }


def run_label(run_name: str) -> str:
    """The run's name as a label value: at most 63 characters, ending in a letter or digit."""
    return run_name if len(run_name) <= 63 else run_name[:63].rstrip("-.")


def rule_name(run_uid: str, number: int) -> str:
    """What a run calls its rules; the run's uid in it makes it nobody else's."""
    return f"taintctl-{run_uid}-{number}"


def run_uid_of(rule: DeviceTaintRule) -> str | None:
    """The uid of the run that made the rule, by its name, which stays when labels are edited away; None: not ours."""
    match = _NAME.fullmatch(rule.metadata.name)
    return match["uid"] if match else None


class EvictionResult(StrEnum):
    EVICTED = "Evicted"
    GONE = "Gone"
    """Not there any more, or another pod of that name, or it no longer holds the device."""
    BUDGET_FORBIDS = "BudgetForbids"
    MULTIPLE_BUDGETS = "MultipleBudgets"
    FAILED = "Failed"


@dataclass(frozen=True)
class EvictionOutcome:
    """What the Eviction API answered for one pod; `message` is the server's own, shortened."""

    namespace: str
    name: str
    uid: str
    result: EvictionResult
    message: str = ""
