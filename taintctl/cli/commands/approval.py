"""`taintctl approve` and `deny`: one person's decision on one plan, written as a MaintenanceApproval."""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
from datetime import datetime
from typing import Any

import click

from taintctl.api.approval import ApprovalAuthor, ApprovalDecision, ApprovalSpec, MaintenanceApproval
from taintctl.api.base import API_VERSION
from taintctl.api.policy import EvictionPolicy
from taintctl.api.reasons import Phase
from taintctl.api.run import MaintenanceRun, shown
from taintctl.api.text import plural, some
from taintctl.cli.errors import Failure
from taintctl.cli.options import on_cluster
from taintctl.cli.session import Session
from taintctl.cli.text import clean, line, say
from taintctl.cli.views import plan as plan_view
from taintctl.cli.views.run import target_text
from taintctl.policy.people import asked_themself, marks, not_among
from taintctl.ports.errors import Conflict


@click.command()
@click.argument("run")
@click.option("--break", "breaks", is_flag=True, help="Let the pods go too that the policy protects.")
@click.option("--comment", help="Why, for whoever reads the approval later.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@on_cluster
async def approve(session: Session, run: str, breaks: bool, comment: str | None, yes: bool) -> None:
    """Shows the plan that RUN asks about, and approves it in your own name.

    The approval holds for this plan and any smaller one; a larger plan is asked about again. With --break it is a
    Break: the protected pods of this plan may be evicted too. It lifts no limit and no budget.
    """
    await decide(session, run, ApprovalDecision.BREAK if breaks else ApprovalDecision.APPROVE, comment, yes)


@click.command()
@click.argument("run")
@click.option("--comment", help="Why, for whoever reads it later.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@on_cluster
async def deny(session: Session, run: str, comment: str | None, yes: bool) -> None:
    """Shows the plan that RUN asks about, and denies it in your own name: the run is cancelled."""
    await decide(session, run, ApprovalDecision.DENY, comment, yes)


async def decide(session: Session, name: str, decision: ApprovalDecision, comment: str | None, yes: bool) -> None:
    run = await session.run(name)
    digest = asked_digest(run)
    policy = await session.policy_of(run)
    plan = run.status.plan
    given = run.status.approval.given if run.status.approval is not None else ()
    if plan is not None:
        say(line(f"Run {name} ({target_text(run.spec.target)}) would do this:"))
        say(plan_view.counts(plan.counts, policy.spec if policy else None))
        mode, spec = run.spec.drain.mode, policy.spec if policy else None
        say(plan_view.violations(plan.violations))
        say(plan_view.pods(plan.pods, plan.more_pods, mode=mode))
        say(plan_view.lost(plan.lost_with, plan.more_lost_with))
        multiple = plan.multiple_budgets
        say(plan_view.budgets(plan.budgets, plan.more_budgets, multiple=multiple, mode=mode, policy=spec))
    person = await session.whoami()
    if given:
        say(line(f"Approved so far by {some([one.who for one in given])}."))
    author = ApprovalAuthor.model_validate({"name": person})
    mine = ApprovalSpec(run_name=name, digest=digest, decision=decision, approver=author)
    _may(policy, mine)
    if decision is not ApprovalDecision.DENY:
        _no_self_approval(run, policy, mine)
    if not yes:
        counts = plan.counts if plan else None
        what = f"{plural(counts.pods, 'pod')} on {plural(counts.devices, 'device')}" if counts else "this plan"
        if not confirmed(f"{decision} {what} as {clean(person)}?"):
            raise Failure("nothing was decided")
    again = await session.run(name)
    if asked_digest(again) != digest:
        raise Failure(
            f"the plan of run {name} changed while it was shown; look again: taintctl {decision.lower()} {name}"
        )
    asked_at = again.status.approval.asked_at if again.status.approval is not None else None
    body = approval(again.name, digest, decision, person, comment, asked_at)
    written = str(body["metadata"]["name"])
    try:
        await session.cluster.create(MaintenanceApproval, body)
    except Conflict:
        say(f"{person} said that already: MaintenanceApproval {written}")
        _say_missing(name, again, decision, person)
        return
    say(f"Written as {person}: MaintenanceApproval {written}")
    _say_missing(name, again, decision, person)


def _say_missing(name: str, run: MaintenanceRun, decision: ApprovalDecision, person: str) -> None:
    asked = run.status.approval
    if decision is not ApprovalDecision.DENY and asked is not None:
        missing = asked.needed - len({given.approver for given in asked.given} | {person})
        if missing > 0:
            say(f"{plural(missing, 'more person', 'more people')} must approve.")
        broken = decision is ApprovalDecision.BREAK or any(given.breaks for given in asked.given)
        if asked.break_needed and not broken:
            say(f"The policy protects pods of this plan: somebody has to give a Break: taintctl approve {name} --break")
    say(f"Next: taintctl status {name} --watch")


def confirmed(question: str) -> bool:
    """Asks on the terminal. Ctrl-C ends the command at once: the event loop around it would only take note of it."""
    here = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.default_int_handler) if here else None
    try:
        return click.confirm(question, default=False)
    except click.Abort as error:
        if sys.stdin.isatty() or isinstance(error.__context__, KeyboardInterrupt):
            raise
        click.echo()
        raise click.UsageError("there is no terminal to ask on; use --yes") from None
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _may(policy: EvictionPolicy | None, spec: ApprovalSpec) -> None:
    """Raises Failure where neither their yes nor their no would count: nobody is to believe that they stopped a run."""
    if policy is None or not not_among(spec, policy):
        return
    names = [shown(str(a.kind), a.name, "") for a in policy.spec.approval.approvers]
    raise Failure(
        f"policy {policy.name} counts what {some(names)} decide{'s' if len(names) == 1 else ''}, and you are "
        f"{spec.approver.name}; ask them, or stop the run: taintctl cancel"
    )


def _no_self_approval(run: MaintenanceRun, policy: EvictionPolicy | None, spec: ApprovalSpec) -> None:
    """Raises Failure where it would not count: better said before than found out at night."""
    if policy is None:
        return
    if asked_themself(spec, marks(spec, policy), policy, run.spec.requested_by):
        raise Failure(
            f"you ({spec.approver.name}) asked for run {run.name}, and policy {policy.name} has no "
            "approval.selfApproval; another person has to approve it"
        )


def asked_digest(run: MaintenanceRun) -> str:
    """The digest that the run asks people about. Raises Failure where it asks nothing."""
    status = run.status
    if status.phase is not None and status.phase.ended:
        raise Failure(f"run {run.name} has ended ({status.phase}, {status.reason}); there is nothing to decide")
    approval = status.approval
    if status.phase is not Phase.AWAITING_APPROVAL or approval is None or approval.asked is None:
        phase = status.phase or Phase.PENDING
        raise Failure(f"run {run.name} asks for no approval now: it is in {phase}; see: taintctl explain {run.name}")
    if approval.needed == 0:
        raise Failure(
            f"run {run.name} needs no approval: the policy lets its plan pass; see: taintctl explain {run.name}"
        )
    return approval.asked.digest


def approval(
    run_name: str,
    digest: str,
    decision: ApprovalDecision,
    person: str,
    comment: str | None,
    asked_at: datetime | None = None,
) -> dict[str, Any]:
    """The MaintenanceApproval. Its name follows from what it says and when that was asked, so that saying it twice is
    saying it once, and a question that is asked again can be answered again."""
    asked = asked_at.isoformat() if asked_at is not None else ""
    said = hashlib.sha256("\0".join((run_name, digest, decision, person, asked)).encode()).hexdigest()[:12]
    spec: dict[str, Any] = {
        "runName": run_name,
        "digest": digest,
        "decision": str(decision),
        "approver": {"kind": "Kubernetes", "name": person},
    }
    if comment:
        spec["comment"] = comment
    name = f"{run_name[:225].rstrip('-.')}-{decision.lower()}-{said}"
    return {"apiVersion": API_VERSION, "kind": MaintenanceApproval.KIND, "metadata": {"name": name}, "spec": spec}
