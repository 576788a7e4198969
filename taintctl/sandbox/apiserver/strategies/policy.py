"""PodDisruptionBudgets and ValidatingAdmissionPolicies."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from taintctl.cel.environment import CelError, compile_rule
from taintctl.sandbox.apiserver.errors import FieldError, invalid_value, required
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.strategies.base import StatusStrategy

_PERCENT = re.compile(r"[0-9]+%")


class BudgetStrategy(StatusStrategy):
    """A budget's counts exist from the start; the disruption controller fills them in."""

    def __init__(self) -> None:
        super().__init__({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})

    def default(self, obj: Object, now: datetime) -> None:
        obj["spec"] = obj.get("spec") or {}

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            given = {part: spec[part] for part in ("minAvailable", "maxUnavailable")}
            errors.append(invalid_value("spec", given, "minAvailable and maxUnavailable cannot be both set"))
        for part in ("minAvailable", "maxUnavailable"):
            if part in spec:
                errors += _count_problems(f"spec.{part}", spec[part])
        return errors


ADMISSION_VARIABLES = ("object", "oldObject", "request", "params", "namespaceObject", "variables")


class AdmissionPolicyStrategy(StatusStrategy):
    """ValidatingAdmissionPolicy: expressions that do not compile are refused when the policy is stored."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        spec.setdefault("failurePolicy", "Fail")
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or []:
            rule.setdefault("scope", "*")
        if isinstance(spec.get("matchConstraints"), dict):
            spec["matchConstraints"].setdefault("matchPolicy", "Equivalent")

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        spec = obj["spec"]
        errors: list[FieldError] = []
        if not (spec.get("matchConstraints") or {}).get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        if not spec.get("validations"):
            errors.append(
                required("spec.validations", "validations or auditAnnotations must contain at least one item")
            )
        for part, fields in (
            ("matchConditions", ("expression",)),
            ("variables", ("expression",)),
            ("validations", ("expression", "messageExpression")),
        ):
            for index, item in enumerate(spec.get(part) or []):
                for field in fields:
                    errors += _expression_problems(f"spec.{part}[{index}].{field}", item.get(field), field)
        return errors


def _expression_problems(path: str, text: Any, field: str) -> list[FieldError]:
    if not text:
        return [required(path)] if field == "expression" else []
    try:
        compile_rule(text, ADMISSION_VARIABLES)
    except CelError as error:
        return [invalid_value(path, text, f"compilation failed: {error}")]
    return []


def _count_problems(field: str, value: Any) -> list[FieldError]:
    if isinstance(value, int) and not isinstance(value, bool):
        return [] if value >= 0 else [invalid_value(field, value, "must be greater than or equal to 0")]
    if not isinstance(value, str) or not _PERCENT.fullmatch(value):
        why = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            "regex used for validation is '[0-9]+%')"
        )
        return [invalid_value(field, value, why)]
    return [] if int(value[:-1]) <= 100 else [invalid_value(field, value, "must not be greater than 100%")]
