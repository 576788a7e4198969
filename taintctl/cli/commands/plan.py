"""`taintctl plan`: what a target would hit. Reads, and changes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from taintctl.adapters.kubernetes.dump import Dump
from taintctl.api.base import API_VERSION, format_time
from taintctl.api.objects import DeviceSelector
from taintctl.api.plan import LostWith, Plan, PlanCounts, PlanLost, PlannedDevice, Problem
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Effect, PodEffect, Reason
from taintctl.api.text import plural
from taintctl.cli.errors import DONE, FAILED, BadFile, Failure
from taintctl.cli.options import on_cluster, output_option, target_options
from taintctl.cli.output import emit
from taintctl.cli.session import Reading
from taintctl.cli.targets import Template, from_file, from_flags, from_window, policy_from_file, target_of
from taintctl.cli.text import BAD, GOOD, Line, heading, line, say, styled, table
from taintctl.cli.views import plan as plan_view
from taintctl.cli.views.run import target_text
from taintctl.impact import build_plan
from taintctl.policy import Evaluation, digest, evaluate, people_needed
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import Invalid
from taintctl.reconcile.gather import scope_of

DEFAULT_TIME = timedelta(hours=1)
"""How long a run is taken to have where neither a window nor a file says it: what `taintctl start` takes too."""
NO_RUN_YET = "not-a-run-yet"
"""Stands for the taint's default value, the name of a run that is not made yet; no toleration names it."""


@dataclass(frozen=True)
class Judged:
    """A plan, and what the policy says of it."""

    template: Template
    plan: Plan
    policy: EvictionPolicy
    evaluation: Evaluation
    needed: int

    @property
    def digest(self) -> str:
        return digest(self.plan, self.policy)

    @property
    def counts(self) -> PlanCounts:
        return PlanCounts(
            devices=len(self.plan.devices),
            unavailable=self.plan.unavailable,
            published=self.plan.published,
            pods=len(self.plan.counted_pods),
            namespaces=len(self.plan.namespaces),
            workloads=len(self.plan.workloads),
            tolerating_pods=sum(pod.effect is PodEffect.TOLERATES for pod in self.plan.pods),
            lost_pods=self.plan.lost_pods,
        )


@dataclass(frozen=True)
class _DeviceRow:
    pool: str
    device: str
    uuid: str
    node: str


def _usage(**given: Any) -> None:
    target = target_of(given)
    if sum(map(bool, (target, given["window"], given["filename"]))) > 1:
        raise click.UsageError("give one of: target flags, --window, -f")
    if not given["window"] and not given["filename"]:
        from_flags(target, "--window, or -f")


def _dump(from_dump: str | None, **_: Any) -> Reading | None:
    return Reading(Dump(Path(from_dump), SystemClock())) if from_dump is not None else None


def _is_file(policy: str) -> bool:
    return "/" in policy or policy == "-" or policy.endswith((".yaml", ".yml", ".json"))


@click.command()
@target_options
@click.option("--window", help="The target, policy and times of this MaintenanceWindow.")
@click.option("-f", "--filename", help="A file with one MaintenanceRun or MaintenanceWindow; - is stdin.")
@click.option("--policy", help="Judge it by this EvictionPolicy instead: a name, or a file (with a / or .yaml in it).")
@click.option(
    "--from-dump",
    type=click.Path(exists=True, file_okay=False),
    help="Plan from a folder of `kubectl get … -o json` files instead of a cluster.",
)
@output_option
@partial(on_cluster, usage=_usage, instead=_dump)
async def plan(
    session: Reading,
    window: str | None,
    filename: str | None,
    policy: str | None,
    from_dump: str | None,
    output: str,
    **given: Any,
) -> int:
    """What a target would hit: devices, pods by what would happen to them, budgets, counts against limits, and
    whether somebody would be asked. Changes nothing, and makes no rule.

    Exit status 1 where the policy would not let the plan pass.

    \b
      taintctl plan --driver gpu.nvidia.com --pool node-7
      taintctl plan --window nightly --policy careful
      taintctl plan --uuid GPU-5bff3524-f6f6 --policy policies/strict.yaml
      taintctl plan --from-dump DIR --node-selector kubernetes.io/hostname=node-7

    --from-dump needs DIR/RESOURCE.json for each RESOURCE of resourceslices, resourceclaims, deviceclasses, pods, nodes,
    namespaces and poddisruptionbudgets, as `kubectl get RESOURCE --all-namespaces -o json` writes it. Files of other
    resources there may be, such as replicasets, jobs or evictionpolicies, are used for owners, policies and windows.
    """
    if window:
        template = await from_window(session, window)
    elif filename:
        template = from_file(filename)
    else:
        template = from_flags(target_of(given))
    try:
        judged = await judge(session, template, policy)
    except Invalid as error:
        if from_dump is None:
            raise
        raise BadFile(error.message) from None
    if output in ("json", "yaml"):
        emit(document(judged), output)
    else:
        say(render(judged, wide=output == "wide"))
    return DONE if judged.evaluation.allowed else FAILED


async def judge(session: Reading, template: Template, policy_name: str | None) -> Judged:
    """Reads the cluster live and plans as the controller does. Raises Failure where there can be no plan."""
    if policy_name is not None and _is_file(policy_name):
        policy = policy_from_file(policy_name)
    else:
        policy = await session.policy(policy_name or template.spec.policy_name)
    target = template.spec.target
    snapshot = await session.source.snapshot(scope_of(target))
    taint = template.spec.taint
    value = taint.value if taint.value is not None else NO_RUN_YET
    rules = await session.source.own_rules() if policy.minds_other_runs else ()
    out = [r.spec.device_selector or DeviceSelector() for r in rules if r.spec.taint.effect != Effect.NONE]
    found = build_plan(snapshot, target, key=taint.key, value=value, others=out)
    if isinstance(found, Problem):
        raise Failure(problem_text(found))
    evaluation = evaluate(
        found,
        policy,
        drain_timeout=template.spec.drain.timeout,
        drain_mode=template.spec.drain.mode,
        time_left=template.lasts or DEFAULT_TIME,
    )
    needed = people_needed(found, policy, protected=bool(evaluation.protected))
    return Judged(template, found, policy, evaluation, needed)


def problem_text(problem: Problem) -> str:
    """Why there can be no plan, and the flag where there is one."""
    flag = " On the command line that is --whole-driver." if problem.reason == Reason.WHOLE_DRIVER else ""
    return f"{problem.reason}: {problem.message}{flag}"


def render(judged: Judged, *, wide: bool = False) -> list[Line]:
    plan, policy, mode = judged.plan, judged.policy, judged.template.spec.drain.mode
    lines = [line(heading("Plan"), f" for {target_text(judged.template.spec.target)}, judged by policy {policy.name}")]
    lines += plan_view.counts(judged.counts, policy.spec)
    lines += [line(""), heading("Devices")]
    lines += plan_view.devices([_device(d) for d in plan.devices], wide=wide)
    lines += [line(""), heading("Pods"), *plan_view.pods(plan.pods, wide=wide, notes=_notes(plan), mode=mode)]
    for found in (
        plan_view.lost([_lost(gang) for gang in plan.lost_with], wide=wide),
        plan_view.budgets(plan.budgets, multiple=plan.multiple_budgets, mode=mode, policy=policy.spec),
    ):
        lines += [line(""), *found] if found else []
    rows = [
        (
            f"{r.pool}/{r.device}" if r.device else r.pool,
            str(r.published),
            str(r.allocated),
            str(r.pods),
            str(r.namespaces),
        )
        for r in plan.rules
    ]
    shown = rows if wide else rows[: plan_view.SHOWN]
    lines += [line(""), heading("Rules that would be made, and what their dry run must say")]
    lines += table(("SELECTOR", "PUBLISHED", "ALLOCATED", "PODS", "NAMESPACES"), shown, indent=2)
    if len(rows) > len(shown):
        lines.append(line(f"  and {len(rows) - len(shown)} more (-o wide shows them)"))
    lines.append(line(""))
    lines += plan_view.violations(judged.evaluation.warnings, "Warning")
    lines += plan_view.violations(judged.evaluation.violations)
    lines.append(_verdict(judged))
    return lines


def _verdict(judged: Judged) -> Line:
    if not judged.evaluation.allowed:
        if not judged.evaluation.blocking:
            people = plural(judged.needed, "person", "people")
            how = f": the policy protects pods of it, so {people} must approve, with at least one Break. "
            return line(styled("Would wait for a Break", BAD), how, "Nothing was changed.")
        count = plural(len(judged.evaluation.violations), "violation")
        return line(styled("Would be blocked", BAD), f": {count} of policy {judged.policy.name}. Nothing was changed.")
    sentence = plan_view.approval_sentence(judged.needed, judged.policy.spec)
    return line(styled("Within policy", GOOD), f". {sentence} Nothing was changed.")


def _device(found: PlannedDevice) -> _DeviceRow:
    node = found.node if found.published else f"{found.node} (no longer published)".strip()
    device = f"{found.id.device} (same hardware)" if found.along else found.id.device
    return _DeviceRow(found.id.pool, device, found.uuid, node)


def _lost(gang: LostWith) -> PlanLost:
    return PlanLost(
        namespace=gang.namespace,
        owner=gang.owner,
        part=gang.part or None,
        hit=gang.hit,
        count=len(gang.pods),
        pods=tuple(pod.name for pod in gang.pods),
    )


def _notes(plan: Plan) -> dict[str, str]:
    """What to say beside a pod: when it goes, and what it is."""
    notes = {}
    for pod in plan.pods:
        said = [f"{', '.join(d.device for d in pod.devices[:4])}"] if pod.devices else []
        said += [f"after {pod.toleration_seconds}s"] if pod.toleration_seconds is not None else []
        said += ["terminating, not counted"] if pod.terminating else []
        said += ["adminAccess: keeps no device busy"] if pod.admin_access and pod.effect is PodEffect.TOLERATES else []
        notes[pod.key] = "; ".join(said)
    return notes


def document(judged: Judged) -> dict[str, Any]:
    """For scripts. The shape is kept within v1alpha1: fields are added, not renamed."""
    plan, policy = judged.plan, judged.policy
    return {
        "apiVersion": API_VERSION,
        "kind": "Plan",
        "target": judged.template.spec.target.dump(),
        "policy": {"name": policy.name, "generation": policy.metadata.generation},
        "drain": {"mode": str(judged.template.spec.drain.mode), "forceAtTimeout": policy.spec.drain.force_at_timeout},
        "digest": judged.digest,
        "computedAt": format_time(plan.computed_at) if plan.computed_at else None,
        "counts": judged.counts.dump(),
        "devices": [
            {
                "driver": d.id.driver,
                "pool": d.id.pool,
                "device": d.id.device,
                "uuid": d.uuid,
                "node": d.node,
                "published": d.published,
                "pciBusID": d.pci_bus_id,
                "along": d.along,
            }
            for d in plan.devices
        ],
        "pods": [
            {
                "namespace": p.namespace,
                "name": p.name,
                "uid": p.uid,
                "owner": p.owner,
                "ownerUnread": p.owner_unread or None,
                "node": p.node,
                "effect": str(p.effect),
                "tolerationSeconds": p.toleration_seconds,
                "terminating": p.terminating,
                "adminAccess": p.admin_access,
                "priority": p.priority,
                "priorityClassName": p.priority_class,
                "claims": list(p.claims),
                "devices": [str(d) for d in p.devices],
            }
            for p in plan.pods
        ],
        "lostWith": [
            {
                "namespace": g.namespace,
                "owner": g.owner,
                "part": g.part or None,
                "hit": g.hit,
                "pods": [{"name": p.name, "uid": p.uid, "node": p.node} for p in g.pods],
            }
            for g in plan.lost_with
        ],
        "rules": [
            {
                "driver": r.driver,
                "pool": r.pool,
                "device": r.device,
                "published": r.published,
                "allocated": r.allocated,
                "pods": r.pods,
                "namespaces": r.namespaces,
            }
            for r in plan.rules
        ],
        "budgets": [
            {"namespace": b.namespace, "name": b.name, "allowed": b.allowed, "needed": b.needed} for b in plan.budgets
        ],
        "multipleBudgets": list(plan.multiple_budgets),
        "violations": [_said(v) for v in judged.evaluation.violations],
        "warnings": [_said(v) for v in judged.evaluation.warnings],
        "approval": {"needed": judged.needed, "breakNeeded": bool(judged.evaluation.protected)},
    }


def _said(violation: Any) -> dict[str, str]:
    return {
        "check": violation.check,
        "limit": violation.limit,
        "actual": violation.actual,
        "message": violation.message,
    }
