"""A plan's sections of the message: counts, pods by effect, and what speaks against it."""

from __future__ import annotations

from collections import Counter

from taintctl.adapters.slack.text import code, joined, listed, prose
from taintctl.api.plan import PROTECTED, PlanStatus
from taintctl.api.policy import PolicySpec
from taintctl.api.reasons import PodEffect
from taintctl.api.run import DrainMode
from taintctl.api.text import plural

EFFECTS = {
    PodEffect.EVICTED: "the taint deletes them at once",
    PodEffect.EVICTED_LATER: "the taint deletes them after their tolerationSeconds",
    PodEffect.NOT_REACHED_BY_TAINT: "⚠️ extended resources: the taint does not reach them, taintctl evicts them",
    PodEffect.TOLERATES: "⚠️ they tolerate the taint and stay; without adminAccess they keep their devices busy",
}
BY_API = {
    PodEffect.EVICTED: "taintctl evicts them through the Eviction API",
    PodEffect.EVICTED_LATER: "taintctl evicts them through the Eviction API after their tolerationSeconds",
}
GROUPS = 8
"""Owners that are named for each effect; the window Details has every pod."""


def counts(plan: PlanStatus, policy: PolicySpec | None) -> str:
    found = plan.counts
    limits = policy.limits if policy else None
    rows: list[tuple[str, int, int | None]] = [
        ("pods", found.pods, limits.max_pods if limits else None),
        ("namespaces", found.namespaces, limits.max_namespaces if limits else None),
        ("workloads", found.workloads, limits.max_workloads if limits else None),
    ]
    for name, value, most in (
        ("devices", found.devices, limits.max_devices if limits else None),
        ("devices out of service", found.unavailable, limits.max_unavailable if limits else None),
    ):
        if name == "devices" or (limits and most is not None):
            rows.append((name, value, limits.devices(most, found.published) if limits and most is not None else None))
    lines = []
    for name, value, limit in rows:
        if limit is None:
            lines.append(f"{value} {name}")
        else:
            lines.append(f"{'❗ *over*: ' if value > limit else ''}{value} {name} of at most {limit}")
    unread = "" if policy else "\nThe policy can't be read, so its limits are not shown."
    return f"*Counts* {'; '.join(lines)}{unread}"


def pods(plan: PlanStatus, mode: DrainMode, limit: int) -> str:
    """By effect, worst first, each owner with how many of its pods."""
    if not plan.pods and not plan.more_pods:
        return "*Pods* none: nothing runs on these devices."
    listing: list[str] = []
    for effect, meaning in EFFECTS.items():
        group = [pod for pod in plan.pods if pod.effect is effect]
        if not group:
            continue
        said = BY_API.get(effect, meaning) if mode is DrainMode.EVICT else meaning
        of = " of those listed" if plan.more_pods else ""
        listing.append(f"*{effect}* {len(group)}{of}: {said}")
        owners = Counter((pod.namespace, pod.owner or "", "" if pod.owner else pod.name) for pod in group)
        for (namespace, owner, name), count in owners.most_common(GROUPS):
            alone = "no owner" if effect is PodEffect.TOLERATES else "no owner: nothing brings it back"
            who = code(owner, 90) if owner else f"{code(name, 90)}, {alone}"
            listing.append(f"• {code(namespace, 70)} {who}" + (f": {plural(count, 'pod')}" if owner else ""))
        if len(owners) > GROUPS:
            listing.append(f"• and {plural(len(owners) - GROUPS, 'more owner')}")
    more = f"{plural(plan.more_pods, 'more pod')} in Details" if plan.more_pods else ""
    return joined((listed(listing, limit, noun="more lines"), more))


def trouble(plan: PlanStatus, policy: PolicySpec | None, mode: DrainMode, limit: int) -> str:
    """Protected pods, violations, budgets that would break, and what is lost with the pods."""
    lines = [
        f"🛡️ *Protected pods: a Break is needed.* {prose(v.message, 300)}"
        for v in plan.violations
        if v.check == PROTECTED
    ]
    lines += [
        f"❗ *Violation* {code(v.check, 40)}: {prose(v.message, 300)}" for v in plan.violations if v.check != PROTECTED
    ]
    waits = mode is DrainMode.EVICT and not (policy is not None and policy.drain.force_at_timeout)
    lacking = "is waited for" if waits else "*would break*"
    lines += [
        f"⚠️ Budget {code(f'{b.namespace}/{b.name}', 150)} {lacking}: {b.needed} needed, {b.allowed} allowed"
        for b in plan.budgets
        if b.needed > b.allowed
    ]
    lines += [
        f"⚠️ Several budgets select {code(name, 150)}: the Eviction API never decides"
        for name in plan.multiple_budgets[:3]
    ]
    lines += [
        f"⚠️ {plural(lost.count, 'more pod')} of {code(f'{lost.namespace}: {lost.owner}', 150)} would be lost with it"
        for lost in plan.lost_with
    ]
    return listed(lines, limit, noun="more warnings") if lines else ""
