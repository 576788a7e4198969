"""ValidatingAdmissionPolicies: asked before a write is validated and stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from taintctl.cel.environment import CelError, compile_rule
from taintctl.sandbox.apiserver.errors import ApiError, forbidden
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.requests import Request
from taintctl.sandbox.apiserver.selectors import label_selector
from taintctl.sandbox.apiserver.strategies.policy import ADMISSION_VARIABLES
from taintctl.sandbox.store import Store

_GROUP = "admissionregistration.k8s.io"
_VARIABLE = re.compile(r"\bvariables\.(\w+)")
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
MAX_DEPTH = 20
"""How deep variables may refer to each other."""


@dataclass
class Attributes:
    """One write as the policies see it, and the warnings they gave."""

    request: Request
    operation: str
    """CREATE, UPDATE or DELETE."""
    obj: Object | None
    old: Object | None
    warnings: list[str] = field(default_factory=list)

    @property
    def subject(self) -> Object:
        one = self.obj if self.obj is not None else self.old
        return one if one is not None else {"metadata": {}}

    def to_request(self) -> Object:
        """The `AdmissionRequest`, as `request` in expressions."""
        request = self.request
        info, user = request.info, request.user
        return {
            "uid": str(uuid4()),
            "kind": {"group": info.group, "version": request.version, "kind": info.kind},
            "resource": {"group": info.group, "version": request.version, "resource": info.plural},
            "subResource": request.subresource,
            "name": self.subject["metadata"].get("name", ""),
            "namespace": request.namespace,
            "operation": self.operation,
            "userInfo": {"username": user.name, "uid": user.uid, "groups": list(user.groups)},
            "dryRun": request.dry_run,
        }


class Admission:
    """The policies and bindings in the store, applied."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def check(self, attributes: Attributes) -> None:
        """ApiError when a policy denies the write; warnings go into the attributes."""
        for binding in self._store.list(f"validatingadmissionpolicybindings.{_GROUP}"):
            spec = binding["spec"]
            policy = self._store.find(f"validatingadmissionpolicies.{_GROUP}", None, spec.get("policyName", ""))
            if policy is None:
                continue
            constraints = (policy["spec"].get("matchConstraints"), spec.get("matchResources"))
            if all(one is None or self._matches(one, attributes) for one in constraints):
                self._apply(policy, binding, attributes)

    def _matches(self, match: Object, attributes: Attributes) -> bool:
        rules = match.get("resourceRules")
        if rules is not None and not any(_rule_matches(rule, attributes) for rule in rules):
            return False
        if any(_rule_matches(rule, attributes) for rule in match.get("excludeResourceRules") or []):
            return False
        selector = match.get("objectSelector")
        if selector and not any(label_selector(selector)(one) for one in (attributes.obj, attributes.old) if one):
            return False
        selector = match.get("namespaceSelector")
        if selector and attributes.request.namespace:
            namespace = self._store.find("namespaces", None, attributes.request.namespace)
            return namespace is not None and label_selector(selector)(namespace)
        return True

    def _apply(self, policy: Object, binding: Object, attributes: Attributes) -> None:
        name, bound = policy["metadata"]["name"], binding["metadata"]["name"]
        for params in self._params(policy, binding, attributes):
            for message, reason in _Evaluation(
                policy["spec"], attributes, params, self._namespace(attributes)
            ).failures():
                text = f"ValidatingAdmissionPolicy '{name}' with binding '{bound}' denied request: {message}"
                actions = binding["spec"].get("validationActions") or ["Deny"]
                if "Warn" in actions:
                    attributes.warnings.append(
                        f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{bound}': {message}"
                    )
                if "Deny" in actions:
                    raise _denied(attributes, text, reason)

    def _namespace(self, attributes: Attributes) -> Object | None:
        where = attributes.request.namespace
        return self._store.find("namespaces", None, where) if where else None

    def _params(self, policy: Object, binding: Object, attributes: Attributes) -> list[Object | None]:
        kind, reference = policy["spec"].get("paramKind"), binding["spec"].get("paramRef")
        if not kind or not reference:
            return [None]
        info = self._store.resources.find_kind(kind.get("apiVersion", ""), kind.get("kind", ""))
        found: list[Object | None] = []
        if info is not None:
            namespace = reference.get("namespace") or attributes.request.namespace if info.namespaced else None
            if reference.get("name"):
                one = self._store.find(info.key, namespace, reference["name"])
                found = [one] if one is not None else []
            else:
                wanted = label_selector(reference.get("selector"))
                found = [one for one in self._store.list(info.key, namespace) if wanted(one)]
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            name, bound = policy["metadata"]["name"], binding["metadata"]["name"]
            why = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise _denied(
                attributes,
                f"ValidatingAdmissionPolicy '{name}' with binding '{bound}' denied request: {why}",
                "Invalid",
            )
        return found


def _rule_matches(rule: Object, attributes: Attributes) -> bool:
    request = attributes.request
    info = request.info

    def has(part: str, value: str) -> bool:
        listed = rule.get(part) or []
        return "*" in listed or value in listed

    if not has("operations", attributes.operation) or not has("apiGroups", info.group):
        return False
    if not has("apiVersions", request.version):
        return False
    names = rule.get("resourceNames") or []
    if names and attributes.subject["metadata"].get("name") not in names:
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != info.namespaced:
        return False
    return any(_resource_matches(one, info.plural, request.subresource) for one in rule.get("resources") or [])


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    resource, slash, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    if not slash:
        return not subresource
    return sub == "*" or sub == subresource


class _Evaluation:
    """One policy asked about one write; variables are worked out when an expression names them."""

    def __init__(self, spec: Object, attributes: Attributes, params: Object | None, namespace: Object | None) -> None:
        self._spec = spec
        self._values: dict[str, Any] = {
            "object": attributes.obj,
            "oldObject": attributes.old,
            "request": attributes.to_request(),
            "params": params,
            "namespaceObject": namespace,
            "variables": {},
        }

    def failures(self) -> Iterator[tuple[str, str]]:
        """Message and reason of each validation that does not hold."""
        ignores = self._spec.get("failurePolicy") == "Ignore"
        try:
            conditions = self._spec.get("matchConditions") or []
            if not all(self._evaluate(one["expression"]) is True for one in conditions):
                return
        except CelError as error:
            if not ignores:
                yield f"match condition resulted in error: {error}", "Invalid"
            return
        for validation in self._spec.get("validations") or []:
            expression = validation["expression"]
            try:
                holds = self._evaluate(expression)
            except CelError as error:
                if not ignores:
                    yield f"expression '{expression}' resulted in error: {error}", "Invalid"
                continue
            if holds is not True:
                yield self._message(validation), validation.get("reason") or "Invalid"

    def _message(self, validation: Object) -> str:
        if validation.get("messageExpression"):
            try:
                text = self._evaluate(validation["messageExpression"])
            except CelError:
                text = ""
            if isinstance(text, str) and text.strip():
                return text.strip()[:5120]
        return str(validation.get("message") or f"failed expression: {validation['expression'].strip()}")

    def _evaluate(self, expression: str, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise CelError("the variables refer to each other without end")
        for name in _VARIABLE.findall(expression):
            if name not in self._values["variables"]:
                definition = next((one for one in self._spec.get("variables") or [] if one["name"] == name), None)
                if definition is None:
                    raise CelError(f"undefined variable {name}")
                self._values["variables"][name] = self._evaluate(definition["expression"], depth + 1)
        return compile_rule(expression, ADMISSION_VARIABLES)(**self._values)


def _denied(attributes: Attributes, text: str, reason: str) -> ApiError:
    info = attributes.request.info
    error = forbidden(info.plural, info.group, attributes.subject["metadata"].get("name", ""), text)
    details = error.details | {"causes": [{"message": text}]}
    return ApiError(_CODES.get(reason, 422), reason, error.message, details)
