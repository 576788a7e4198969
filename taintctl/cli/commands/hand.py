"""The operator's hand on one run: pause, resume, complete, release, cancel."""

from __future__ import annotations

from typing import Any

import click

from taintctl.api.check import Checked
from taintctl.api.objects import DeviceTaintRule
from taintctl.api.reasons import Effect, Phase, Reason
from taintctl.api.run import MaintenanceRun
from taintctl.api.text import plural
from taintctl.cli.errors import DONE, Failure
from taintctl.cli.follow import Gone, Reached, ended, follow, outcome
from taintctl.cli.options import on_cluster
from taintctl.cli.session import Session
from taintctl.cli.text import clean, command, line, say
from taintctl.cli.views.words import START
from taintctl.ports.errors import ClusterError, Conflict, NotFound

wait_option = click.option("--wait", is_flag=True, help="Follow the run until that has come about.")


@click.command()
@click.argument("run")
@wait_option
@on_cluster
async def pause(session: Session, run: str, wait: bool) -> int | None:
    """No further step; a run that is evicting goes back to NoSchedule. Deadline and cancel still act."""
    found = await _under_way(session, run, "pause")
    if found.status.phase in (Phase.RELEASING, Phase.ROLLING_BACK):
        raise Failure(f"run {run} is taking its taints off ({found.status.phase}); that is not paused")
    if found.spec.paused:
        say(f"Run {run} is paused already. Next: taintctl resume {run}")
        return None
    await session.patch_spec(MaintenanceRun, run, uid=found.metadata.uid, paused=True)
    say(f"Run {run} is asked to pause. Next: taintctl resume {run}")
    return await _wait(session, run, wait, lambda now: ended(now) or _stands_paused(now), lambda now: not ended(now))


@click.command()
@click.argument("run")
@wait_option
@on_cluster
async def resume(session: Session, run: str, wait: bool) -> int | None:
    """Go on after a pause: the dry run and the approval check are made again first."""
    found = await _under_way(session, run, "resume")
    if not found.spec.paused:
        raise Failure(f"run {run} is not paused; it is in {_phase(found)}: taintctl explain {run}")
    await session.patch_spec(MaintenanceRun, run, uid=found.metadata.uid, paused=False)
    say(f"Run {run} is asked to go on. Next: taintctl status {run} --watch")
    return await _wait(
        session, run, wait, lambda now: ended(now) or not _stands_paused(now), lambda now: not ended(now)
    )


@click.command()
@click.argument("run")
@wait_option
@on_cluster
async def complete(session: Session, run: str, wait: bool) -> int | None:
    """The work on the devices is done: give them back when they are idle."""
    found = await _under_way(session, run, "complete")
    if found.status.phase is not Phase.IN_MAINTENANCE:
        raise Failure(
            f"the devices of run {run} are not in maintenance: it is in {_phase(found)}; taintctl explain {run}"
        )
    if found.spec.work_completed:
        say(f"Run {run} is completed already. Next: taintctl explain {run}")
        return None
    await session.patch_spec(MaintenanceRun, run, uid=found.metadata.uid, workCompleted=True)
    say(f"The work of run {run} is done; its devices are given back when they are idle.")
    if not wait:
        await say_next(session, f"taintctl status {run} --watch")
    return await _wait(session, run, wait, ended, lambda now: now.status.phase is Phase.SUCCEEDED)


@click.command()
@click.argument("run")
@wait_option
@on_cluster
async def release(session: Session, run: str, wait: bool) -> int | None:
    """Give the devices back without waiting for the work. They must still be idle."""
    found = await _under_way(session, run, "release")
    if found.status.phase is not Phase.IN_MAINTENANCE and found.status.reason != Reason.WAITING_FOR_RELEASE:
        raise Failure(
            f"run {run} has no devices in maintenance to release: it is in {_phase(found)}; "
            f"to stop it: taintctl cancel {run}"
        )
    if found.spec.released:
        say(f"Run {run} is released already. Next: taintctl explain {run}")
        return None
    await session.patch_spec(MaintenanceRun, run, uid=found.metadata.uid, released=True)
    say(f"Run {run} is asked to release its devices, without waiting for the work.")
    if not wait:
        await say_next(session, f"taintctl status {run} --watch")
    return await _wait(session, run, wait, ended, ended)


@click.command()
@click.argument("run")
@click.option(
    "--now", "at_once", is_flag=True, help="Take the taints off with your own rights, without the controller."
)
@wait_option
@on_cluster
async def cancel(session: Session, run: str, at_once: bool, wait: bool) -> int | None:
    """End RUN: before maintenance its taints come off; in maintenance the devices wait for `taintctl release`.

    --now is for when the controller does not answer: it sets the effect of every rule of this run to None itself,
    which stops all evictions that are still to come.
    """
    if at_once:
        return await _cancel_now(session, run, wait)
    found = await _under_way(session, run, "cancel")
    if found.spec.cancelled:
        say(f"Run {run} is cancelled already. Next: taintctl explain {run}")
        return None
    await session.patch_spec(MaintenanceRun, run, uid=found.metadata.uid, cancelled=True)
    say(f"Run {run} is asked to end.")
    if found.status.phase is Phase.IN_MAINTENANCE:
        say(f"Its devices are in maintenance and keep the taint until: taintctl release {run}")
        return None
    if not wait:
        await say_next(session, f"taintctl status {run} --watch")
    return await _wait(session, run, wait, ended, ended)


async def say_next(session: Session, step: str) -> None:
    """The next step: `step`, or first a controller where none is at work."""
    note = await session.controller_note()
    if note:
        say(note, stderr=True)
    say(line("Next: ", command(START if note else step)))


async def _under_way(session: Session, name: str, verb: str) -> MaintenanceRun:
    run = await session.run(name)
    if ended(run):
        raise Failure(f"run {name} has ended ({run.status.phase}, {run.status.reason}); there is nothing to {verb}")
    return run


def _phase(run: MaintenanceRun) -> Phase:
    return run.status.phase or Phase.PENDING


def _stands_paused(run: MaintenanceRun) -> bool:
    """The controller has seen the newest spec and says that it paused."""
    return run.status.observed_generation == run.metadata.generation and run.status.reason == Reason.PAUSED


async def _wait(session: Session, name: str, wait: bool, reached: Reached, good: Reached) -> int | None:
    if not wait:
        return None
    try:
        run = await follow(session, name, reached)
    except Gone:
        say(f"Run {name} has ended and is gone; none of its rules is left.")
        return DONE
    return DONE if good(run) else outcome(run)


async def _cancel_now(session: Session, name: str, wait: bool) -> int | None:
    """Rules first: what matters is that nothing more is evicted. Only rules of this very run."""
    checked: Checked[MaintenanceRun] = await session.checked(MaintenanceRun, name)
    uid = checked.metadata.uid
    rules = await session.cluster.rules_of(uid)
    failed = 0
    for rule in rules:
        try:
            say(f"{rule.metadata.name}: {await _take_off(session, rule, name, uid)}")
        except ClusterError as error:
            failed += 1
            say(f"{rule.metadata.name}: not done: {clean(error.message)}", stderr=True)
    if not rules:
        say(f"Run {name} has no rule; nothing is tainted by it.")
    over = checked.obj is not None and ended(checked.obj)
    if not over:
        await session.patch_spec(MaintenanceRun, name, uid=uid, cancelled=True)
        say(f"Run {name} is asked to end.")
    if failed:
        left = plural(failed, "rule")
        raise Failure(
            f"{left} of run {name} could not be set to None; repeat the command, or: kubectl edit devicetaintrule"
        )
    if over or not wait:
        if not over:
            await say_next(session, f"taintctl status {name} --watch")
        return None
    return await _wait(session, name, wait, ended, ended)


async def _take_off(session: Session, rule: DeviceTaintRule, run: str, run_uid: str) -> str:
    """Sets the effect to None, of that very rule; read again once where it changed meanwhile."""
    current: DeviceTaintRule | None = rule
    for attempt in (1, 2, 3):
        if current is None:
            return "gone already"
        if current.spec.taint.effect == Effect.NONE:
            return "already None"
        before = current.spec.taint.effect
        meta = current.metadata
        try:
            await session.cluster.set_rule_effect(
                meta.name, uid=meta.uid, resource_version=meta.resource_version, effect=Effect.NONE
            )
        except NotFound:
            return "gone already"
        except Conflict:
            if attempt == 3:
                raise
            again: Any = await session.cluster.rules_of(run_uid)
            current = next((r for r in again if r.metadata.uid == meta.uid), None)
            continue
        return f"{before} -> None"
    raise AssertionError("three attempts end above")
