"""Label selectors: as our own specs hold them, and what any of them selects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from taintctl.api import objects
from taintctl.api.base import SpecModel
from taintctl.api.target import KEY_PATTERN, TaintKey, TaintValue

LabelKey = TaintKey
LabelValue = TaintValue
MAX_TERMS = 20
MAX_LABELS = 8
"""A map has no bound for its keys, so the rule over them costs an API server much: it takes such a rule for eight."""
_KEY = re.compile(KEY_PATTERN.removesuffix("$"), re.ASCII)
_IN_CEL = KEY_PATTERN.replace("\\.", "[.]")
_WITH_VALUES = ("In", "NotIn")


def selects_labels(selector: objects.LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """metav1: an empty selector selects everything, an absent one nothing."""
    if selector is None:
        return False
    wanted = (selector.match_labels or {}).items()
    return all(labels.get(key) == value for key, value in wanted) and all(
        _meets(requirement, labels) for requirement in selector.match_expressions or ()
    )


def _meets(requirement: objects.LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    # An operator of a later Kubernetes: a budget too many asks once too often, one too few evicts.
    return True


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(SpecModel):
    """One label that must have, or not have, one of some values."""

    validations: ClassVar = (
        (
            "(self.operator in ['In', 'NotIn']) == has(self.values)",
            "values go with the operators In and NotIn, and only with them",
        ),
    )

    key: LabelKey = Field(description="The label's key.")
    operator: Operator = Field(description="In, NotIn, Exists or DoesNotExist.")
    values: Annotated[tuple[LabelValue, ...], Field(min_length=1, max_length=MAX_TERMS)] | None = Field(
        None, description="With In and NotIn."
    )

    @model_validator(mode="after")
    def _values_with_operator(self) -> Requirement:
        if (self.operator in _WITH_VALUES) != (self.values is not None):
            raise ValueError("values go with the operators In and NotIn, and only with them")
        return self


def _keys(labels: dict[str, str]) -> dict[str, str]:
    for key in labels:
        if len(key) > 317 or not _KEY.fullmatch(key):
            raise ValueError(f"{key[:64]!r} is not a label's key")
    return labels


MatchLabels = Annotated[
    dict[str, LabelValue],
    Field(
        min_length=1,
        max_length=MAX_LABELS,
        json_schema_extra={
            "x-kubernetes-validations": [
                {"rule": f"self.all(k, k.size() <= 317 && k.matches('{_IN_CEL}'))", "message": "not a label's key"}
            ]
        },
    ),
    AfterValidator(_keys),
]


class LabelSelector(SpecModel):
    """Labels that something must have: all of them. An empty one, which would select everything, is refused."""

    validations: ClassVar = (
        (
            "has(self.matchLabels) || has(self.matchExpressions)",
            "a selector must name at least one label: an empty one would select everything",
        ),
    )

    match_labels: MatchLabels | None = Field(None, description="Labels with their values.")
    match_expressions: Annotated[tuple[Requirement, ...], Field(min_length=1, max_length=MAX_TERMS)] | None = Field(
        None, description="Labels with operators."
    )

    @model_validator(mode="after")
    def _not_empty(self) -> LabelSelector:
        if self.match_labels is None and self.match_expressions is None:
            raise ValueError("a selector must name at least one label: an empty one would select everything")
        return self

    def selects(self, labels: Mapping[str, str]) -> bool:
        return selects_labels(
            objects.LabelSelector(
                match_labels=self.match_labels,
                match_expressions=tuple(
                    objects.LabelSelectorRequirement(key=term.key, operator=term.operator, values=term.values)
                    for term in self.match_expressions or ()
                ),
            ),
            labels,
        )
