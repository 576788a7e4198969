"""Deployments, ReplicaSets, StatefulSets and Jobs: defaults, and what their controllers could not work with."""

from __future__ import annotations

from datetime import datetime

from taintctl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, required, unsupported
from taintctl.sandbox.apiserver.meta import Object, copied
from taintctl.sandbox.apiserver.selectors import label_selector
from taintctl.sandbox.apiserver.strategies.base import StatusStrategy
from taintctl.sandbox.apiserver.strategies.pods import PodStrategy

_POD = PodStrategy()


class WorkloadStrategy(StatusStrategy):
    """A kind of apps/v1 that keeps replicas of a template."""

    def __init__(self, initial: Object | None = None, **defaults: object) -> None:
        super().__init__(initial)
        self._defaults = {"replicas": 1, **defaults}

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        for field, value in self._defaults.items():
            spec.setdefault(field, copied(value) if isinstance(value, dict) else value)

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if subresource is not None:
            return []
        spec, template = obj["spec"], obj["spec"].get("template") or {}
        labels = (template.get("metadata") or {}).get("labels") or {}
        errors = []
        if spec["replicas"] < 0:
            errors.append(invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        if not spec.get("selector"):
            errors.append(required("spec.selector"))
        elif old is not None and spec["selector"] != old["spec"].get("selector"):
            errors.append(invalid_value("spec.selector", spec["selector"], "field is immutable"))
        elif not label_selector(spec["selector"])({"metadata": {"labels": labels}}):
            why = "`selector` does not match template `labels`"
            errors.append(invalid_value("spec.template.metadata.labels", labels, why))
        policy = (template.get("spec") or {}).get("restartPolicy", "Always")
        if policy != "Always":
            errors.append(unsupported("spec.template.spec.restartPolicy", policy, ("Always",)))
        return errors + template_problems(template)


class JobStrategy(StatusStrategy):
    """A Job; its template never changes."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = 1
        for field, value in (
            ("parallelism", 1),
            ("backoffLimit", 6),
            ("completionMode", "NonIndexed"),
            ("podReplacementPolicy", "TerminatingOrFailed"),
            ("suspend", False),
        ):
            spec.setdefault(field, value)

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if subresource is not None:
            return []
        spec, template = obj["spec"], obj["spec"].get("template") or {}
        errors = [
            invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
            for field in ("parallelism", "completions", "backoffLimit")
            if spec.get(field, 0) < 0
        ]
        if spec["completionMode"] not in ("Indexed", "NonIndexed"):
            errors.append(unsupported("spec.completionMode", spec["completionMode"], ("Indexed", "NonIndexed")))
        elif spec["completionMode"] == "Indexed" and "completions" not in spec:
            errors.append(required("spec.completions", "when completion mode is Indexed"))
        policy = (template.get("spec") or {}).get("restartPolicy", "Always")
        if policy not in ("Never", "OnFailure"):
            field = "spec.template.spec.restartPolicy"
            errors.append(required(field, 'valid values: "OnFailure", "Never"'))
        if old is not None and template != old["spec"].get("template"):
            errors.append(forbidden_field("spec.template", "field is immutable"))
        return errors + template_problems(template)


def template_problems(template: Object) -> list[FieldError]:
    """What a pod of this template would be refused for."""
    found = _POD.validate({"spec": template.get("spec") or {}}, None, None)
    return [FieldError(e.reason, f"spec.template.{e.field}", e.text) for e in found]
