"""InMaintenance: the devices are empty and stay so. They are released when the work is done (or somebody says so) and
they are idle by a live look; in doubt the taint stays."""

from __future__ import annotations

from dataclasses import replace

from taintctl.api.base import condition
from taintctl.api.plan import Verdict
from taintctl.api.reasons import ConditionType, Effect, Phase, Reason
from taintctl.api.run import AtDeadline, Ending, WorkMode
from taintctl.api.text import moment, some
from taintctl.policy import other_hardware
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision, Event
from taintctl.workflow.next_step import on_use
from taintctl.workflow.text import EVENT_MAX, MESSAGE_MAX, short


def decide(look: Look) -> Decision:
    if not look.live_now:
        return look.look_live()
    spec, idle = look.obs.run.spec, look.obs.idleness
    look = look.with_condition(ConditionType.DEVICES_IDLE, idle.verdict, idle.reason, idle.message)
    done = work_done(look)
    if done:
        look = look.with_condition(ConditionType.WORK_DONE, True, Reason.WORK_DONE, "The work is done.")
    waiting = _waiting(look, done)
    if waiting is not None:
        reason, message, next_step = waiting
        return _told_of_use(look, _stay(look, reason, message, next_step))
    tainting = any(rule.spec.taint.effect != Effect.NONE for rule in look.obs.rules)
    if idle.verdict is not Verdict.TRUE and spec.released and look.edit is not None and not tainting:
        return _let_go(look)
    if idle.verdict is not Verdict.TRUE:
        what = "The taint stays" if tainting else "The run stays, though somebody took its taint off"
        return _stay(
            look,
            idle.reason,
            f"{what}, for the devices are not proven idle: {idle.message}",
            on_use(look, idle.reason),
        )
    return _release(look, Reason.RELEASED if spec.released else Reason.WORK_DONE)


def work_done(look: Look) -> bool:
    """`workCompleted`, or for mode Duration its time since maintenance began."""
    spec = look.obs.run.spec
    if spec.work_completed:
        return True
    if spec.work.mode is WorkMode.DURATION and spec.work.duration is not None:
        return look.past(look.status.work_started_at, spec.work.duration)
    return False


def _waiting(look: Look, done: bool) -> tuple[Reason, str, str] | None:
    """What has to come before release, other than idle devices; None: nothing."""
    spec, name, edit = look.obs.run.spec, look.name, look.edit
    if spec.released:
        return None
    release, complete = f"taintctl release {name}", f"taintctl complete {name}"
    deleted = look.obs.run.metadata.deletion_timestamp is not None
    if spec.cancelled and not deleted:
        return (
            Reason.WAITING_FOR_RELEASE,
            "The run was cancelled while its devices were in maintenance; the taint stays until somebody releases.",
            release,
        )
    if spec.cancelled:
        return _other_hardware(look) if spec.work_completed else _deleted(name, complete)
    if edit is not None:
        if spec.work_completed:
            return _other_hardware(look)
        return edit.reason, f"{edit.message} Nothing more happens by itself until the run is released.", release
    passed = spec.deadline <= look.now
    if passed and spec.at_deadline is AtDeadline.KEEP_TAINTED:
        return Reason.KEPT_TAINTED, "The deadline has passed; the taint stays until somebody releases.", release
    if done:
        return _other_hardware(look)
    if look.deadline <= look.now:
        when = moment(look.deadline)
        return (
            Reason.WORK_NOT_DONE,
            f"The deadline {when} has passed and the work is not done; the taint stays.",
            complete,
        )
    if deleted:
        return _deleted(name, complete)
    if passed:
        when = moment(look.deadline)
        return Reason.DEADLINE_EXTENDED, f"The deadline has passed and was extended to {when} for the work.", complete
    if spec.work.mode is WorkMode.DURATION and spec.work.duration is not None:
        begun = look.status.work_started_at
        until = f" until {moment(begun + look.scaled(spec.work.duration))}" if begun is not None else ""
        return Reason.WAITING_FOR_WORK, f"The devices are in maintenance{until}.", ""
    return (
        Reason.WAITING_FOR_WORK,
        "The devices are in maintenance until somebody says that the work is done.",
        complete,
    )


def _other_hardware(look: Look) -> tuple[Reason, str, str] | None:
    """The work is done, but a name under our taint stands for another device than the one that was emptied: a driver
    that renumbers, or a new card. Which it is only somebody there can say."""
    asked = look.status.approval.asked if look.status.approval is not None else None
    changed = other_hardware(asked, look.obs.idleness.devices) if asked is not None else ()
    if not changed:
        return None
    now = some([f"{device.id} (now {device.uuid or device.pci_bus_id or 'without UUID'})" for device in changed])
    return (
        Reason.HARDWARE_CHANGED,
        f"The work is done, but other hardware than was planned is under the taint: {now}; it stays until somebody "
        "who knows why releases.",
        f"taintctl release {look.name}",
    )


def _deleted(name: str, next_step: str) -> tuple[Reason, str, str]:
    return (
        Reason.WAITING_FOR_RELEASE,
        f"The run is deleted while its devices are in maintenance; it goes after taintctl complete {name} "
        "(the work is done) or taintctl release.",
        next_step,
    )


def _stay(look: Look, reason: str, message: str, next_step: str) -> Decision:
    check, spec = look.scaled(look.obs.settings.idle_check), look.obs.run.spec
    requeue = check
    begun = look.status.work_started_at
    if spec.work.duration is not None and begun is not None and not look.past(begun, spec.work.duration):
        requeue = min(check, look.until(begun, spec.work.duration))
    return look.stay(reason, message, next_step=next_step, requeue=requeue)


def _told_of_use(look: Look, decision: Decision) -> Decision:
    """Somebody works on these devices: a pod that came to them is a Warning, once, and part of the message."""
    idle = look.obs.idleness
    if idle.verdict is not Verdict.FALSE:
        return decision
    sentence = f"The devices are in use again: {idle.message}"
    message = short(f"{decision.status.message} {sentence}", MESSAGE_MAX)
    status = decision.status.model_copy(update={"message": message})
    before = condition(look.obs.run.status.conditions, ConditionType.DEVICES_IDLE)
    known = before is not None and before.status == str(Verdict.FALSE)
    event = Event("Warning", Reason.DEVICES_IN_USE, short(sentence, EVENT_MAX))
    return replace(decision, status=status, events=(*decision.events, *(() if known else (event,))))


def _let_go(look: Look) -> Decision:
    """Every rule was deleted by hand, or its effect set to None (`cancel --now`), and then somebody said release: no
    taint is left to take off, and to wait for devices that are in use again would hold the run for ever. That is no
    release, so it ends as rolled back."""
    message = f"{look.obs.idleness.message} No taint of the run was left to take off: that had been done by hand."
    return look.roll_back(Reason.RULE_DELETED, Phase.CANCELLED, message, ending=Reason.CANCELLED)


def _release(look: Look, reason: Reason) -> Decision:
    """All of our rules come off in this decision, on the live look it rests on."""
    if look.obs.run.spec.cancelled:
        message = "The run was cancelled in maintenance, and its devices were released."
        ending = Ending(phase=Phase.CANCELLED, reason=Reason.CANCELLED, message=message)
        look = look.with_status(ending=ending)
    return look.go(Phase.RELEASING, reason, "The devices are idle; the taint is taken off.")
