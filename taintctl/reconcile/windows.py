"""A MaintenanceWindow makes its runs, as a CronJob makes Jobs."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta

from taintctl.api.base import LABEL_WINDOW
from taintctl.api.check import check
from taintctl.api.run import MaintenanceRun, Trigger, TriggerType
from taintctl.api.window import MaintenanceWindow
from taintctl.impact import target_problems
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cluster
from taintctl.ports.errors import Conflict
from taintctl.reconcile.apply import involved
from taintctl.reconcile.small import window_refused
from taintctl.workflow import WindowObservation, decide_window
from taintctl.workflow.model import Settings

log = logging.getLogger("taintctl.reconcile")


async def reconcile_window(cluster: Cluster, clock: Clock, settings: Settings, name: str) -> timedelta | None:
    """One look at a window. The run is made before the status says so: a crash between the two finds the name taken."""
    raw = await cluster.get(MaintenanceWindow, name)
    if raw is None:
        return None
    checked = check(MaintenanceWindow, raw)
    if checked.obj is None:
        status = window_refused(raw, checked.problems, clock.now())
        if status != raw.get("status"):
            metadata = raw["metadata"]
            await cluster.replace_status(
                MaintenanceWindow,
                name,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                status=status,
            )
        return None
    window = checked.obj
    runs = tuple(
        run
        for found in await cluster.list(MaintenanceRun, label_selector=f"{LABEL_WINDOW}={name}")
        if (run := check(MaintenanceRun, found).obj) is not None
    )
    problems = checked.problems + target_problems(window.spec.target)
    observation = WindowObservation(window, problems, runs, settings)
    decision = decide_window(observation, clock.now())
    if decision.create is not None:
        try:
            await cluster.create(MaintenanceRun, decision.create)
        except Conflict:
            observation = await _in_the_way(cluster, observation, str(decision.create["metadata"]["name"]))
            decision = decide_window(observation, clock.now())
    for run in runs:
        if run.name in decision.cancel:
            # Only as it was read: by now it may have begun to evict, and then it is not ours to replace.
            await cluster.patch(
                MaintenanceRun,
                run.name,
                {"spec": {"cancelled": True}},
                uid=run.metadata.uid,
                resource_version=run.metadata.resource_version,
            )
    if decision.status.dump() != window.status.dump():
        await cluster.replace_status(
            MaintenanceWindow,
            name,
            uid=window.metadata.uid,
            resource_version=window.metadata.resource_version,
            status=decision.status.dump(),
        )
    for run_name, uid in decision.delete:
        await cluster.delete(MaintenanceRun, run_name, uid=uid)
    for event in decision.events:
        await cluster.record_event(involved(window), event_type=event.type, reason=event.reason, message=event.message)
    return decision.requeue_after


async def _in_the_way(cluster: Cluster, observation: WindowObservation, name: str) -> WindowObservation:
    """The name of a start's run is taken: by the run itself, whose label somebody took off, or by another."""
    raw = await cluster.get(MaintenanceRun, name)
    run = check(MaintenanceRun, raw).obj if raw is not None else None
    ours = Trigger(type=TriggerType.SCHEDULE, window_name=observation.window.name)
    if run is not None and run.spec.trigger == ours:
        log.info("window %s: its run for this start is there already", observation.window.name)
        return replace(observation, runs=(*observation.runs, run))
    return replace(observation, taken=name)
