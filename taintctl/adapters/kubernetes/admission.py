"""Whether an approval's `approver` can be believed: the admission policy that holds it to the caller's own name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from taintctl.adapters.kubernetes.client import Client, path
from taintctl.api.approval import MaintenanceApproval
from taintctl.api.base import GROUP, VERSION
from taintctl.ports.errors import Forbidden

POLICY_NAME = "taintctl-approvals"
GROUP_VERSION = ("apis", "admissionregistration.k8s.io", "v1")
RESOLUTION = timedelta(seconds=1)
CONTROLLER = "system:serviceaccount:taintctl-system:taintctl"
"""Who writes what people said in Slack (deploy/service-account.yaml)."""
CALLER = "request.userInfo.username"
APPROVER = "object.spec.approver.name"
KIND = "object.spec.approver.kind"
SHARED = frozenset(
    {
        f"{KIND} == ({CALLER} == '{CONTROLLER}' ? 'Slack' : 'Kubernetes')",
        f"({KIND} == 'Slack') == has(object.spec.slack)",
        f"{KIND} == 'Slack' || {APPROVER} == {CALLER}",
    }
)
"""Validations that must hold together: the controller writes approvals of kind Slack and no others, nobody else writes
those, and everybody else writes in their own name."""


class _Part(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of the admission API."""


class _Rule(_Part, frozen=True):
    api_groups: tuple[str, ...] = ()
    api_versions: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] | None = None
    scope: str | None = None


class _Selector(_Part, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[msgspec.Raw, ...] | None = None

    @property
    def selects_all(self) -> bool:
        return not self.match_labels and not self.match_expressions


class _Match(_Part, frozen=True):
    resource_rules: tuple[_Rule, ...] | None = None
    exclude_resource_rules: tuple[_Rule, ...] | None = None
    namespace_selector: _Selector | None = None
    object_selector: _Selector | None = None


class _Validation(_Part, frozen=True):
    expression: str = ""


class _PolicySpec(_Part, frozen=True):
    failure_policy: str | None = None
    match_constraints: _Match | None = None
    match_conditions: tuple[msgspec.Raw, ...] | None = None
    param_kind: msgspec.Raw | None = None
    validations: tuple[_Validation, ...] | None = None


class _ManagedFields(_Part, frozen=True):
    time: datetime | None = None
    subresource: str | None = None


class _Meta(_Part, frozen=True):
    name: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    managed_fields: tuple[_ManagedFields, ...] | None = None


class _Policy(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _PolicySpec = _PolicySpec()


class _BindingSpec(_Part, frozen=True):
    policy_name: str = ""
    validation_actions: tuple[str, ...] | None = None
    match_resources: _Match | None = None
    param_ref: msgspec.Raw | None = None


class _Binding(_Part, frozen=True):
    metadata: _Meta = _Meta()
    spec: _BindingSpec = _BindingSpec()


async def approvals_verified(client: Client) -> datetime | None:
    """Since when the policy and a binding of it have been there as they are; None where they are not, or let something
    past. Raises ClusterError."""
    try:
        policy = await client.get(path(*GROUP_VERSION, "validatingadmissionpolicies", POLICY_NAME), _Policy)
        if policy is None or not policy_holds(policy.spec):
            return None
        bindings = await client.list(path(*GROUP_VERSION, "validatingadmissionpolicybindings"), _Binding)
    except Forbidden:
        return None  # what can't be looked at is not verified
    since = [_written(binding.metadata) for binding in bindings.items if binding_holds(binding.spec)]
    return max(_written(policy.metadata), min(since)) if since else None


def _written(meta: _Meta) -> datetime:
    """When it was last written, other than its status: until then it may have let something past. Who wrote which field
    when stands in managedFields; times are whole seconds, cut, so the next one counts. One that was changed and does
    not say when proves nothing, ever."""
    created = meta.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    if meta.generation <= 1:
        return created
    times = [field.time for field in meta.managed_fields or () if field.time is not None and not field.subresource]
    return max(times) + RESOLUTION if times else datetime.max.replace(tzinfo=UTC)


def policy_holds(spec: _PolicySpec) -> bool:
    """It sees every create of an approval, holds its author to the caller, and fails closed.

    Updates need no comparison: the CRD's own rule keeps the whole spec as it was created."""
    match = spec.match_constraints
    return (
        spec.failure_policy in (None, "Fail")
        and not spec.match_conditions
        and spec.param_kind is None
        and match is not None
        and _excludes_nothing(match)
        and any(_sees_approvals(rule) for rule in match.resource_rules or ())
        and _hold_caller(v.expression for v in spec.validations or ())
    )


def binding_holds(spec: _BindingSpec) -> bool:
    """It binds our policy with Deny and narrows it nowhere."""
    match = spec.match_resources
    return (
        spec.policy_name == POLICY_NAME
        and "Deny" in (spec.validation_actions or ())
        and spec.param_ref is None
        and (
            match is None
            or (
                _excludes_nothing(match)
                and (not match.resource_rules or any(_sees_approvals(rule) for rule in match.resource_rules))
            )
        )
    )


def _excludes_nothing(match: _Match) -> bool:
    selectors = (match.namespace_selector, match.object_selector)
    return not match.exclude_resource_rules and all(s is None or s.selects_all for s in selectors)


def _sees_approvals(rule: _Rule) -> bool:
    return (
        _has(rule.api_groups, GROUP)
        and _has(rule.api_versions, VERSION)
        and _has(rule.resources, MaintenanceApproval.PLURAL)
        and _has(rule.operations, "CREATE")
        and not rule.resource_names
        and rule.scope in (None, "*", "Cluster")
    )


def _has(values: tuple[str, ...], value: str) -> bool:
    return value in values or "*" in values


def _hold_caller(expressions: Iterable[str]) -> bool:
    """The validations of deploy/admission.yaml, to the word but for white space; or, where no approval comes from
    Slack, those that let everybody write in their own name only. Further ones can only refuse more."""
    said = {" ".join(expression.split()) for expression in expressions}
    if said >= SHARED:
        return True
    # Terms that must hold; an `||` could let others past.
    terms = {term.strip().strip("()").strip() for one in said if "||" not in one for term in one.split("&&")}
    named = {f"{APPROVER} == {CALLER}", f"{CALLER} == {APPROVER}"} & terms
    return bool(named) and f"{KIND} == 'Kubernetes'" in terms
