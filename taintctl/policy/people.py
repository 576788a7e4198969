"""Who is who among those that approve: what the policy's approvers name, and which names are one person's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from taintctl.api.approval import ApprovalSpec
from taintctl.api.policy import MAIL, Approver, ApproverKind, EvictionPolicy
from taintctl.api.run import shown

SERVICE_ACCOUNT = "system:serviceaccount:"

Mark = tuple[str, str]
"""What a person is known by: ("user", "alice"), ("slack", "U024BE7LH"), ("mail", "alice@example.com")."""


def who(spec: ApprovalSpec) -> str:
    """The approver, for people."""
    name = spec.slack.display_name or "" if spec.slack is not None else ""
    return shown(str(spec.approver.kind), spec.approver.name, name)


def entries(spec: ApprovalSpec, policy: EvictionPolicy) -> tuple[Approver, ...]:
    """The policy's approvers that mean whoever wrote it."""
    return tuple(approver for approver in policy.spec.approval.approvers if _means(approver, spec))


def _means(approver: Approver, spec: ApprovalSpec) -> bool:
    if spec.slack is None or approver.kind is ApproverKind.KUBERNETES:
        return (approver.kind, approver.name) == (spec.approver.kind, spec.approver.name)
    if approver.kind is ApproverKind.SLACK:
        return approver.name == spec.approver.name
    if approver.kind is ApproverKind.SLACK_GROUP:
        return approver.name in spec.slack.groups
    return approver.name.lower() == _mail(spec)


def not_among(spec: ApprovalSpec, policy: EvictionPolicy) -> str:
    """Why they may not decide; empty: they may. Without approvers RBAC decides who may write an approval in Kubernetes,
    and in Slack nobody may."""
    if entries(spec, policy):
        return ""
    if policy.spec.approval.approvers:
        return f"{who(spec)} is not among the approvers of EvictionPolicy {policy.name}; ask one of those who are."
    if spec.slack is None:
        return ""
    return (
        f"EvictionPolicy {policy.name} names no approvers, so nobody approves in Slack; use taintctl approve "
        f"{spec.run_name}, or add approvers of kind Slack, SlackGroup or Email to the policy."
    )


def marks(spec: ApprovalSpec, policy: EvictionPolicy) -> frozenset[Mark]:
    """All that the person is known by."""
    if spec.slack is None:
        name = spec.approver.name
        return frozenset({("user", name), *([("mail", name.lower())] if _is_mail(name) else [])})
    mail = _mail(spec)
    users = {("user", user) for user in _users(spec, policy)}
    return frozenset({("slack", spec.approver.name), *([("mail", mail)] if mail else []), *users})


def same_people(specs: Iterable[ApprovalSpec], policy: EvictionPolicy) -> tuple[frozenset[Mark], ...]:
    """The marks of each person: two that have one in common are one person, also through a third."""
    people: list[frozenset[Mark]] = []
    for known in {marks(spec, policy) for spec in specs}:
        same = [person for person in people if person & known]
        people = [person for person in people if not person & known]
        people.append(known.union(*same))
    return tuple(people)


def asked_themself(
    spec: ApprovalSpec, person: frozenset[Mark], policy: EvictionPolicy, requested_by: str | None
) -> str:
    """Why the approver counts as the one who asked for the run; empty: they are somebody else, or may all the same.

    Somebody in Slack who can't be told from a person who asked in Kubernetes does not count."""
    if requested_by is None or policy.spec.approval.self_approval:
        return ""
    name = who(spec)
    if ("user", requested_by) in person or ("mail", requested_by.lower()) in person:
        return (
            f"{name} asked for the run and EvictionPolicy {policy.name} has no approval.selfApproval; another person "
            "has to approve."
        )
    if spec.slack is None or requested_by.startswith(SERVICE_ACCOUNT) or _users(spec, policy):
        return ""
    if _is_mail(requested_by) and _mail(spec):
        return ""  # two addresses
    return (
        f"Nothing tells whether {name} is {requested_by}, who asked for the run; set kubernetesUser beside them in "
        f"EvictionPolicy {policy.name}'s approval.approvers (kind Slack or Email), or approval.selfApproval: true."
    )


def _users(spec: ApprovalSpec, policy: EvictionPolicy) -> Sequence[str]:
    return [entry.kubernetes_user for entry in entries(spec, policy) if entry.kubernetes_user is not None]


def _mail(spec: ApprovalSpec) -> str:
    return (spec.slack.email or "").lower() if spec.slack is not None else ""


def _is_mail(name: str) -> bool:
    return re.fullmatch(MAIL, name, re.ASCII) is not None
