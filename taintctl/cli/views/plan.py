"""A plan as people read it: devices, pods by effect, budgets, counts against limits (`plan`, `status`, `approve`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from taintctl.api.objects import Unread
from taintctl.api.plan import PlanCounts, PlanLost
from taintctl.api.policy import ApprovalRequired, Limits, PolicySpec
from taintctl.api.reasons import PodEffect
from taintctl.api.run import DrainMode
from taintctl.api.text import plural, some
from taintctl.cli.text import BAD, GOOD, WARN, Cell, Line, heading, line, styled, table

EFFECTS: dict[PodEffect, tuple[str, str]] = {
    PodEffect.EVICTED: ("the taint deletes them at once", ""),
    PodEffect.EVICTED_LATER: ("the taint deletes them after their tolerationSeconds", ""),
    PodEffect.NOT_REACHED_BY_TAINT: (
        "extended resource: the taint neither counts nor deletes them; taintctl evicts them",
        WARN,
    ),
    PodEffect.TOLERATES: ("they tolerate the taint and stay; without adminAccess they keep their devices busy", WARN),
}
EFFECTS_BY_API: dict[PodEffect, tuple[str, str]] = {
    **EFFECTS,
    PodEffect.EVICTED: ("taintctl evicts them through the Eviction API", ""),
    PodEffect.EVICTED_LATER: ("taintctl evicts them through the Eviction API after their tolerationSeconds", ""),
    PodEffect.NOT_REACHED_BY_TAINT: ("extended resource: taintctl evicts them too, the taint never would", WARN),
}
"""With drain.mode Evict."""
UNREAD: dict[str, str] = {
    Unread.FORBIDDEN: "you may not get it",
    Unread.NOT_FOUND: "it is gone",
    Unread.UNKNOWN_KIND: "the API server has no such kind",
    Unread.UNREADABLE: "it can't be read",
    Unread.NOT_ASKED: "too many owners to ask for",
}
"""Why the chain of owners ends."""
SHOWN = 20
SHOWN_LOST = 5


class PodLike(Protocol):
    """What PlanPod and PlannedPod have in common."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def owner_unread(self) -> str | None: ...
    @property
    def effect(self) -> PodEffect: ...


class BudgetLike(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def allowed(self) -> int: ...
    @property
    def needed(self) -> int: ...


class DeviceLike(Protocol):
    """What PlanDevice and a PlannedDevice's row have in common."""

    @property
    def pool(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def uuid(self) -> str: ...
    @property
    def node(self) -> str: ...


def pods(
    items: Sequence[PodLike],
    more: int = 0,
    *,
    wide: bool = False,
    notes: dict[str, str] | None = None,
    mode: DrainMode = DrainMode.TAINT,
    most: int = SHOWN,
) -> list[Line]:
    """Pods under a heading for each effect, worst first. `notes` says something beside a pod, by `namespace/name`."""
    lines: list[Line] = []
    for effect, (meaning, style) in (EFFECTS if mode is DrainMode.TAINT else EFFECTS_BY_API).items():
        group = [pod for pod in items if pod.effect is effect]
        if not group:
            continue
        lines.append(line(styled(f"{effect} ({len(group)})", style or "bold"), f": {meaning}"))
        shown = group if wide else group[:most]
        rows: list[list[Cell]] = []
        for pod in shown:
            key = f"{pod.namespace}/{pod.name}"
            stays = effect is PodEffect.TOLERATES
            owner = pod.owner or ("no owner" if stays else "no owner: nothing brings it back")
            owner += f" (as far as known: {UNREAD.get(pod.owner_unread, '?')})" if pod.owner_unread else ""
            rows.append([key, owner, (notes or {}).get(key, "")])
        lines.extend(table(("POD", "OWNER", "HOLDS" if notes else ""), rows, indent=2))
        if len(group) > len(shown):
            lines.append(line(f"  and {len(group) - len(shown)} more (-o wide shows them)"))
    if more:
        lines.append(line(f"and {plural(more, 'pod')} more that the status does not list"))
    return lines or [line("No pod holds one of these devices.")]


def lost(items: Sequence[PlanLost], more: int = 0, *, wide: bool = False) -> list[Line]:
    """Pods of gangs that run elsewhere. A status names the first of them and counts the rest."""
    if not items:
        return []
    lines = [heading("Lost with them (other pods of their gangs: not evicted, and counted by no limit)")]
    for item in items:
        kind, _, name = item.owner.partition("/")
        part = f", replica {item.part}" if item.part else ""
        runs, are = ("runs", "is") if item.count == 1 else ("run", "are")
        said = f"{plural(item.count, 'more pod')} of {kind} {item.namespace}/{name}{part} {runs} elsewhere and {are}"
        names = item.pods if wide else item.pods[:SHOWN_LOST]
        rest = f" and {item.count - len(names)} more" if len(names) < item.count else ""
        lines.append(line("  ", styled(f"{said} lost with it", WARN), f": {', '.join(names)}{rest}"))
    if more:
        lines.append(line(f"  and pods of {plural(more, 'more gang')}"))
    return lines


def devices(items: Sequence[DeviceLike], more: int = 0, *, wide: bool = False) -> list[Line]:
    shown = items if wide else items[:SHOWN]
    lines = table(
        ("POOL", "DEVICE", "NODE", "UUID"),
        [(d.pool, d.device, d.node or "-", d.uuid or "-") for d in shown],
        indent=2,
    )
    if more + len(items) > len(shown):
        lines.append(line(f"  and {more + len(items) - len(shown)} more"))
    return lines


def budgets(
    items: Sequence[BudgetLike],
    more: int = 0,
    *,
    multiple: Sequence[str] = (),
    mode: DrainMode = DrainMode.TAINT,
    policy: PolicySpec | None = None,
) -> list[Line]:
    """What they allow and the plan needs. `multiple` are the pods that more than one selects. Through the Eviction API
    alone none can break: it is waited for."""
    if not items:
        return []
    forced = policy is not None and policy.drain.force_at_timeout
    waits = mode is DrainMode.EVICT and not forced
    lacking = styled("is waited for", WARN) if waits else styled("would break", BAD)
    words = {
        DrainMode.TAINT: "the taint itself does not honour them",
        DrainMode.EVICT: "the Eviction API honours them"
        + (" until drain.timeout, NoExecute after it does not" if forced else ""),
    }
    rows: list[list[Cell]] = [
        [
            f"{b.namespace}/{b.name}",
            str(b.needed),
            str(b.allowed),
            lacking if b.needed > b.allowed else styled("holds", GOOD),
        ]
        for b in items
    ]
    lines = [heading(f"Budgets (PodDisruptionBudgets; {words[mode]})")]
    lines += table(("BUDGET", "NEEDED", "ALLOWED", ""), rows, indent=2)
    if more:
        lines.append(line(f"  and {more} more"))
    if multiple:
        lines.append(
            line("  ", styled("Several budgets select ", WARN), f"{some(multiple)}: the Eviction API never decides.")
        )
    return lines


def counts(found: PlanCounts, policy: PolicySpec | None) -> list[Line]:
    """Counts against limits; `-` is no limit. Without a policy the counts alone."""
    limits = policy.limits if policy else Limits()
    auto = policy.auto_approve if policy else Limits()
    required = policy.approval.required if policy else ApprovalRequired.NEVER
    always = required is ApprovalRequired.ALWAYS
    asks = always or (required is ApprovalRequired.ABOVE_AUTO_APPROVE and auto.empty)
    rows: list[list[Cell]] = []
    for name, value, limit, below in (
        ("pods", found.pods, limits.max_pods, auto.max_pods),
        ("namespaces", found.namespaces, limits.max_namespaces, auto.max_namespaces),
        ("workloads", found.workloads, limits.max_workloads, auto.max_workloads),
    ):
        rows.append([name, str(value), _number(limit), _number(below), _verdict(value, limit, below, asks)])
    for name, value, most, without in (
        ("devices", found.devices, limits.max_devices, auto.max_devices),
        ("out of service", found.unavailable, limits.max_unavailable, auto.max_unavailable),
    ):
        if name == "out of service" and most is None and without is None:
            continue  # not asked for, so what other runs keep out was not read
        limit, limit_text = _devices(limits, most, found.published)
        below, below_text = _devices(auto, without, found.published)
        rows.append([name, str(value), limit_text, below_text, _verdict(value, limit, below, asks)])
    return table(("COUNT", "PLAN", "LIMIT", "AUTO-APPROVE", ""), rows, indent=2)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _devices(limits: Limits, amount: int | str | None, published: int) -> tuple[int | None, str]:
    """What a number or percentage comes to, and both as people read it."""
    if amount is None:
        return None, "-"
    number = limits.devices(amount, published)
    return number, str(amount) if isinstance(amount, int) else f"{number} ({amount} of {published})"


def _verdict(value: int, limit: int | None, auto: int | None, asks: bool) -> Cell:
    """`asks`: the policy asks about every plan, however small."""
    if limit is None and auto is None:
        return styled("asks for approval", WARN) if asks else "no limit"
    if limit is not None and value > limit:
        return styled("over the limit", BAD)
    if auto is not None and value > auto:
        return styled("asks for approval", WARN)
    return styled("within", GOOD)


def approval_sentence(needed: int, policy: PolicySpec) -> str:
    """Whether somebody would be asked, and why."""
    if needed:
        people = plural(needed, "person", "people")
        if policy.approval.required is ApprovalRequired.ALWAYS:
            return f"Needs the approval of {people}: the policy always asks."
        if policy.auto_approve.empty:
            return f"Needs the approval of {people}: the policy approves nothing by itself."
        return f"Needs the approval of {people}: the plan is above autoApprove."
    if policy.approval.required is ApprovalRequired.NEVER:
        return "Needs no approval: the policy never asks."
    return "Needs no approval: the plan is at or below autoApprove."


def violations(items: Iterable[object], word: str = "Violation") -> list[Line]:
    """What speaks against the plan, each in its own line."""
    style = BAD if word == "Violation" else WARN
    return [line(styled(word, style), f" {getattr(v, 'check', '')}: {getattr(v, 'message', v)}") for v in items]
