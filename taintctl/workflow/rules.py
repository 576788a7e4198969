"""Our DeviceTaintRules: what the status asks for, what is there, and the actions that bring the one to the other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from taintctl.api.base import ANNOTATION_ROUND, LABEL_MANAGED_BY, LABEL_ROLE, LABEL_RUN, MANAGED_BY
from taintctl.api.objects import DeviceTaintRule
from taintctl.api.plan import PlannedRule
from taintctl.api.reasons import ENDED, Effect, Phase, Reason
from taintctl.api.rule import RuleManifest, rule_name, run_label
from taintctl.api.run import MaintenanceRun, RuleStatus, RunStatus
from taintctl.api.text import some
from taintctl.impact.message import parse
from taintctl.workflow.look import HandEdit
from taintctl.workflow.model import Action, CreateRule, DeleteRule, Observation, SetEffect
from taintctl.workflow.text import short

TAINT = "taint"
DRY_RUN = "dry-run"
RULE_MESSAGE_MAX = 240
"""Of a condition's message in the status: with 256 rules the status must stay a few hundred kilobytes."""

TAKING_OFF = frozenset({Phase.RELEASING, Phase.ROLLING_BACK, *ENDED})
"""Phases in which no rule of ours is wanted."""

Selector = tuple[str, str, str | None]


def taint_value(run: MaintenanceRun) -> str:
    """The taint's value: as the spec says, else the run's name as a label value."""
    return run.spec.taint.value if run.spec.taint.value is not None else run_label(run.name)


def selector(rule: RuleStatus | PlannedRule) -> Selector:
    return rule.driver, rule.pool, rule.device


def main_rules(status: RunStatus) -> tuple[RuleStatus, ...]:
    return tuple(rule for rule in status.rules if rule.role == TAINT)


def beside(status: RunStatus) -> tuple[RuleStatus, ...]:
    """The rules of the second look."""
    return tuple(rule for rule in status.rules if rule.role == DRY_RUN)


def manifest(run: MaintenanceRun, entry: RuleStatus, round_: int) -> RuleManifest:
    """The rule as it is to be made. A rule is never made with an effect other than None."""
    return RuleManifest(
        name=entry.name,
        role=entry.role,
        round=round_,
        run_name=run.name,
        run_uid=run.metadata.uid,
        driver=entry.driver,
        pool=entry.pool,
        device=entry.device,
        key=run.spec.taint.key,
        value=taint_value(run),
        effect=Effect.NONE,
    )


def to_be_made(run: MaintenanceRun, selectors: Iterable[Selector]) -> tuple[RuleStatus, ...]:
    """The run's rules, named and numbered, none of them there yet."""
    return tuple(
        RuleStatus(name=rule_name(run.metadata.uid, n), driver=driver, pool=pool, device=device)
        for n, (driver, pool, device) in enumerate(selectors)
    )


def to_be_made_beside(rules: Iterable[RuleStatus]) -> tuple[RuleStatus, ...]:
    """For every rule one of effect None beside it, with the same selector."""
    return tuple(
        RuleStatus(name=f"{rule.name}-dry", role=DRY_RUN, driver=rule.driver, pool=rule.pool, device=rule.device)
        for rule in rules
    )


def observe(obs: Observation, now: datetime) -> tuple[RunStatus, HandEdit | None]:
    """The status with what is seen of the rules worked in, and what somebody did to them by hand.

    A rule that is to be made counts once one of this round is there; its uid is recorded, and from then on it is that
    very rule or none.
    """
    status = obs.run.status
    there = {rule.metadata.name: rule for rule in obs.rules}
    if status.phase in TAKING_OFF:
        left = tuple(_seen(entry, there[entry.name]) for entry in status.rules if entry.name in there)
        return status.model_copy(update={"rules": left}), None
    entries, deleted, changed = [], [], []
    for entry in status.rules:
        rule = there.get(entry.name)
        if entry.uid == "":
            if rule is None or _deleting(rule) or _round(rule) != status.dry_run.round:
                entries.append(entry)
                continue
            entry = entry.model_copy(
                update={"uid": rule.metadata.uid, "generation": rule.metadata.generation, "effect_since": now}
            )
        if rule is None or _deleting(rule) or rule.metadata.uid != entry.uid:
            deleted.append(entry.name)
        elif _differs(obs.run, entry, rule) or not _follows(entry, rule):
            changed.append(entry.name)
        elif entry.effect_since is None and rule.spec.taint.effect == entry.effect:
            entry = entry.model_copy(update={"effect_since": now, "generation": rule.metadata.generation})
        if rule is not None and rule.metadata.uid == entry.uid:
            entry = _seen(entry, rule)
        entries.append(entry)
    return status.model_copy(update={"rules": tuple(entries)}), _edit(deleted, changed)


def _edit(deleted: list[str], changed: list[str]) -> HandEdit | None:
    if not deleted and not changed:
        return None
    reason, names, verb = (
        (Reason.RULE_DELETED, deleted, "deleted") if deleted else (Reason.RULE_CHANGED, changed, "changed")
    )
    sentence = f"Somebody {verb} DeviceTaintRule {some(names)} by hand, which the run takes as a decision to stop."
    return HandEdit(reason, sentence, frozenset([*deleted, *changed]))


def _seen(entry: RuleStatus, rule: DeviceTaintRule) -> RuleStatus:
    """What the control plane says of the rule. The numbers are those of the dry run: under another effect the message
    has none, and those stay."""
    condition = rule.eviction
    current = condition is not None and condition.observed_generation == rule.metadata.generation
    if condition is None or not current:
        return entry.model_copy(update={"eviction_in_progress": None, "message": ""})
    message = condition.message or ""
    changes: dict[str, object] = {"eviction_in_progress": condition.status, "message": short(message, RULE_MESSAGE_MAX)}
    if rule.spec.taint.effect == Effect.NONE and entry.effect is Effect.NONE:
        said = parse(message)
        changes |= {
            "published": said.published if said else None,
            "allocated": said.allocated if said else None,
            "pods": said.pods if said else None,
            "namespaces": said.namespaces if said else None,
        }
    return entry.model_copy(update=changes)


def _deleting(rule: DeviceTaintRule) -> bool:
    return rule.metadata.deletion_timestamp is not None


def _round(rule: DeviceTaintRule) -> int | None:
    text = (rule.metadata.annotations or {}).get(ANNOTATION_ROUND, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _differs(run: MaintenanceRun, entry: RuleStatus, rule: DeviceTaintRule) -> bool:
    """Selector, taint or labels are not those we made; the effect is looked at apart."""
    chosen, taint, labels = rule.spec.device_selector, rule.spec.taint, rule.metadata.labels or {}
    meant = {LABEL_RUN: run_label(run.name), LABEL_ROLE: entry.role, LABEL_MANAGED_BY: MANAGED_BY}
    return (
        chosen is None
        or (chosen.driver, chosen.pool, chosen.device) != selector(entry)
        or taint.key != run.spec.taint.key
        or (taint.value or "") != taint_value(run)
        or any(labels.get(key) != value for key, value in meant.items())
    )


def _follows(entry: RuleStatus, rule: DeviceTaintRule) -> bool:
    """Whether the effect is the one we asked for, or, where that has not been seen yet, the one from before.

    Status is stored before the patch, so a rule that was not patched yet still has the generation we recorded. Any
    other generation is somebody else's edit, also one that was taken back: what it was meanwhile nobody knows.
    """
    as_asked = rule.spec.taint.effect == entry.effect
    untouched = rule.metadata.generation == entry.generation
    return as_asked or untouched if entry.effect_since is None else as_asked and untouched


@dataclass(frozen=True)
class Work:
    """What brings the rules about: `first` makes things safer and goes before all else."""

    first: tuple[Action, ...] = ()
    then: tuple[Action, ...] = ()


def bring_about(obs: Observation, status: RunStatus, edit: HandEdit | None, *, held: bool) -> Work:
    """The actions that bring the rules to what `status` asks for. NoExecute is never among them: that is the gate's.

    A rule of ours that the status does not ask for is deleted. While a run is held, only what is NoExecute is taken
    back; a rule that was edited by hand in maintenance is left alone.
    """
    if status.phase in (None, Phase.PENDING):
        return Work()
    wanted = {} if status.phase in TAKING_OFF else {entry.name: entry for entry in status.rules}
    touched = edit.names if edit is not None and status.phase is Phase.IN_MAINTENANCE else frozenset()
    first: list[Action] = []
    then: list[Action] = []
    in_the_way: set[str] = set()
    for rule in sorted(obs.rules, key=lambda r: (r.spec.taint.effect != Effect.NO_EXECUTE, r.metadata.name)):
        meta, evicting = rule.metadata, rule.spec.taint.effect == Effect.NO_EXECUTE
        if _deleting(rule):
            in_the_way.add(meta.name)
        if meta.name in touched:
            continue
        if _deleting(rule):
            # Deletion alone ends no taint: a rule with somebody's finalizer is in force until that is off.
            if evicting or (status.phase in TAKING_OFF and rule.spec.taint.effect != Effect.NONE):
                first.append(SetEffect(meta.name, meta.uid, meta.resource_version, Effect.NONE))
            continue
        entry = wanted.get(meta.name)
        if entry is None or entry.uid == "":
            if held and not evicting and status.phase not in TAKING_OFF:
                continue
            (first if evicting else then).append(DeleteRule(meta.name, meta.uid))
        elif (
            meta.uid == entry.uid
            and rule.spec.taint.effect != entry.effect
            and entry.effect is not Effect.NO_EXECUTE
            and (evicting or not held)
        ):
            (first if evicting else then).append(SetEffect(meta.name, meta.uid, meta.resource_version, entry.effect))
    if not held:
        then.extend(
            CreateRule(manifest(obs.run, entry, status.dry_run.round))
            for entry in wanted.values()
            if entry.uid == "" and entry.name not in in_the_way
        )
    return Work(tuple(first), tuple(then))
