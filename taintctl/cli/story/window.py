"""The first whole story: a maintenance window opens over one node's GPUs, and everything on them goes safely.

Nothing that is told is known beforehand: every number is read from the API, and every step is required to be so.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taintctl.api.approval import ApprovalDecision
from taintctl.api.base import API_VERSION, LABEL_WINDOW, condition, format_time
from taintctl.api.reasons import Agreement, ConditionType, Phase, PodEffect
from taintctl.api.run import MaintenanceRun
from taintctl.api.text import plural, some
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.commands.approval import approval, decide
from taintctl.cli.commands.devices import read as read_devices
from taintctl.cli.commands.plan import Judged, judge
from taintctl.cli.errors import Failure
from taintctl.cli.fleet import Device
from taintctl.cli.lab import CONTROLLER
from taintctl.cli.manifests import shipped
from taintctl.cli.story.channel import approve_in_slack, thread
from taintctl.cli.story.slack import CHANNEL, GROUP
from taintctl.cli.story.stage import APPROVER, OPERATOR, Stage
from taintctl.cli.story.witness import PODS
from taintctl.cli.targets import from_window
from taintctl.cli.text import span
from taintctl.cli.views import plan as plan_view
from taintctl.cli.views.devices import device_table, user_text
from taintctl.cli.views.ladder import RUNGS, ladder
from taintctl.ports.errors import Forbidden, Invalid
from taintctl.sandbox.fleet import DRIVER, node_name

WINDOW, POLICY, NEWCOMER = "firmware-night", "night-shift", "newcomer"
LEAD = timedelta(seconds=12)
"""How long before its start the window is made; the dry run and the approval happen in it (planAhead)."""
NO_SLACK = "(No Slack here, slack-sdk is missing: pip install 'taintctl[slack]' shows the approval in it.)"
WAY = (Phase.PENDING, *RUNGS)


def policy_manifest(*, slack: bool) -> dict[str, Any]:
    """Limits that this plan keeps, an approval above one pod, and budgets told to people instead of respected."""
    asked: dict[str, Any] = {"notifications": {"slack": {"channel": CHANNEL}}} if slack else {}
    approver = {"kind": "SlackGroup", "name": GROUP} if slack else {"kind": "Kubernetes", "name": APPROVER}
    return {
        "apiVersion": API_VERSION,
        "kind": "EvictionPolicy",
        "metadata": {"name": POLICY},
        "spec": {
            "limits": {"maxPods": 8, "maxNamespaces": 3, "maxDevices": 128},
            "autoApprove": {"maxPods": 1},
            "budgets": "Warn",
            "approval": {"approvers": [approver], "expiresAfter": "2h"},
            **asked,
        },
    }


def window_manifest(start: datetime, pool: str) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "MaintenanceWindow",
        "metadata": {"name": WINDOW},
        "spec": {
            "schedule": {"start": format_time(start), "duration": "1h", "planAhead": "10m"},
            "target": {"driver": DRIVER, "pool": pool},
            "policyName": POLICY,
            "notice": "20s",
            "drain": {"timeout": "10m"},
            "work": {"mode": "Duration", "duration": "90s"},
        },
    }


@dataclass
class Story:
    stage: Stage
    pool: str = node_name(1)
    run: str = ""

    async def tell(self) -> None:
        before = await self.fleet()
        elsewhere = self.pods_elsewhere(before)
        await self.window()
        plan = await self.dry_run()
        await self.policy(plan)
        await self.approval()
        await self.notice(plan)
        await self.eviction(plan)
        await self.maintenance(plan)
        await self.release()
        await self.look_back(plan, elsewhere)

    async def now(self) -> MaintenanceRun:
        return await self.stage.operator.run(self.run)

    async def until(self, what: str, *phases: Phase) -> MaintenanceRun:
        """Until the run is, or was, in one of the phases. Raises Failure where it ended or got stuck instead."""

        async def look() -> MaintenanceRun | None:
            run = await self.now()
            been = {entry.to for entry in run.status.history}
            if been & set(map(str, phases)):
                return run
            if run.status.phase in (Phase.BLOCKED, Phase.ROLLING_BACK) or (run.status.phase and run.status.phase.ended):
                raise Failure(f"step {self.stage.step}: the run is {run.status.phase}: {run.status.message}")
            return None

        return await self.stage.until(what, look)

    async def devices(self) -> list[Device]:
        return await read_devices(self.stage.operator, DRIVER)

    async def fleet(self) -> list[Device]:
        stage = self.stage
        stage.title("A fleet")
        devices = await self.devices()
        nodes = {device.node for device in devices}
        here = [device for device in devices if device.pool == self.pool]
        stage.tell(
            f"{plural(len(nodes), 'node')} with {plural(len(devices), 'GPU')}. {self.pool} is to get new firmware; "
            f"this is what uses its {plural(len(here), 'device')}:"
        )
        stage.show(device_table(here))
        users = [user for device in here for user in device.users]
        stage.require(any(user.extended for user in users), f"a pod on {self.pool} has its GPU as an extended resource")
        stage.require(all(user.state == "Running" for user in users), f"every pod on {self.pool} runs")
        stage.require(any(d.users for d in devices if d.pool != self.pool), "pods use GPUs on other nodes too")
        return devices

    def pods_elsewhere(self, devices: list[Device]) -> dict[str, str]:
        """Every pod that no device of the pool belongs to: uid by name."""
        here = {user.uid for device in devices if device.pool == self.pool for user in device.users}
        pods = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p["metadata"]["uid"] for p in self._pods()}
        return {name: uid for name, uid in pods.items() if uid not in here}

    def _pods(self) -> list[dict[str, Any]]:
        return self.stage.sandbox.store.list(PODS)

    async def window(self) -> None:
        stage = self.stage
        stage.title("A window")
        start = stage.operator.clock.now().replace(microsecond=0) + LEAD
        stage.sandbox.apply([policy_manifest(slack=stage.slack is not None), *shipped("policies", "careful.yaml")])
        await stage.operator.cluster.create(MaintenanceWindow, window_manifest(start, self.pool))

        async def made() -> str | None:
            label = f"{LABEL_WINDOW}={WINDOW}"
            runs = await stage.operator.cluster.list(MaintenanceRun, label_selector=label)
            return str(runs[0]["metadata"]["name"]) if runs else None

        stage.tell(
            f"{OPERATOR} makes MaintenanceWindow {WINDOW}: it opens in {span(start - stage.operator.clock.now())}, "
            f"and planAhead lets planning begin now."
        )
        self.run = await stage.until("a run of the window", made)
        run = await self.now()
        stage.require(run.spec.start_at == start, "the run starts when its window opens")
        stage.tell(f"The controller made MaintenanceRun {self.run}: no eviction before {start:%H:%M:%S} UTC.")

    async def dry_run(self) -> MaintenanceRun:
        stage = self.stage
        stage.title("The dry run")
        run = await self.until("an agreed dry run", Phase.AWAITING_APPROVAL)
        plan = run.status.plan
        stage.require(plan is not None and bool(run.status.rules), "the run has a plan and rules")
        assert plan is not None
        rules = await stage.operator.cluster.rules_of(run.metadata.uid)
        messages = [rule.eviction.message or "" for rule in rules if rule.eviction]
        stage.tell(f"{plural(len(rules), 'DeviceTaintRule')} of effect None asks the control plane. It answers:")
        for message in messages:
            stage.tell(f"“{message.split(' This information')[0]}”")
        counted = sum(rule.pods or 0 for rule in run.status.rules)
        reached = [p for p in plan.pods if p.effect in (PodEffect.EVICTED, PodEffect.EVICTED_LATER)]
        missed = [p for p in plan.pods if p.effect is PodEffect.NOT_REACHED_BY_TAINT]
        if sum(rule.allocated or 0 for rule in run.status.rules) > plan.counts.devices:
            stage.tell("(Allocated counts claims: a GPU that two claims hold, as its monitor's, is there twice.)")
        stage.tell("taintctl counts for itself, and finds what the control plane does not:")
        stage.show(plan_view.pods(plan.pods, plan.more_pods))
        stage.require(
            all(rule.spec.taint.effect == "None" for rule in rules), "the dry run's rules have the effect None"
        )
        stage.require(all(r.agreement is Agreement.AGREED for r in run.status.rules), "message and prediction agree")
        stage.require(counted == len(reached), "the message counts just the pods that the taint reaches")
        stage.require(bool(missed), "the pod with an extended resource is named, though the message leaves it out")
        stage.require(not stage.witness.marked, "no pod was touched by the dry run")
        names = some([f"{p.namespace}/{p.name}" for p in missed])
        stage.tell(
            f"The message's {plural(counted, 'pod')} are agreed on. {names} would have kept its GPU while the control "
            f"plane says “Completed”: taintctl evicts it itself."
        )
        return run

    async def policy(self, run: MaintenanceRun) -> None:
        stage = self.stage
        stage.title("The policy")
        template = await from_window(stage.operator, WINDOW)
        careful, own = [await judge(stage.operator, template, name) for name in ("careful", POLICY)]
        stage.tell(f"Counts against the limits of EvictionPolicy {POLICY}:")
        stage.show(plan_view.counts(own.counts, own.policy.spec))
        stage.show(plan_view.violations(own.evaluation.warnings, "Warning"))
        stage.tell(
            f"Under policies/careful.yaml, which respects budgets, this plan would be blocked: {_first(careful)}"
        )
        assert run.status.plan is not None
        stage.require(own.evaluation.allowed, f"the plan is within policy {POLICY}")
        stage.require(not careful.evaluation.allowed, "policy careful would block the plan for its budget")
        stage.require(own.counts.pods == run.status.plan.counts.pods, "`taintctl plan` and the run count the same pods")
        stage.require(
            run.status.approval is not None and run.status.approval.needed == own.needed == 1, "one must approve"
        )
        stage.tell(plan_view.approval_sentence(own.needed, own.policy.spec))

    async def approval(self) -> None:
        stage = self.stage
        stage.title("The approval")
        run = await self.now()
        assert run.status.approval is not None
        assert run.status.approval.asked is not None
        digest = run.status.approval.asked.digest
        forged = approval(self.run, digest, ApprovalDecision.APPROVE, APPROVER, None)
        refused = await self._refusal(stage.operator, forged)
        stage.tell(f"{OPERATOR} may start runs, not approve them: {refused}.")
        as_somebody = approval(self.run, digest, ApprovalDecision.APPROVE, OPERATOR, None)
        refused = await self._refusal(stage.approver, as_somebody)
        stage.tell(f"Nor can {APPROVER} sign for somebody else: {refused}.")
        if stage.slack is not None:
            await approve_in_slack(stage, stage.slack, self.now)
        else:
            await self._approve_by_command()
        stage.require(not stage.witness.marked, "nothing is evicted for an approval alone")
        stage.tell("It counts. The run waits for its window.")

    async def _approve_by_command(self) -> None:
        stage = self.stage
        stage.tell(NO_SLACK)
        stage.tell(f"{APPROVER} runs `taintctl approve {self.run} --yes`:")
        await decide(stage.approver, self.run, ApprovalDecision.APPROVE, "firmware 7.2", yes=True)

        async def counted() -> MaintenanceRun | None:
            found = await self.now()
            given = found.status.approval.given if found.status.approval else ()
            return found if [g.approver for g in given] == [APPROVER] else None

        await stage.until("the approval to count", counted)

    async def _refusal(self, session: Any, body: dict[str, Any]) -> str:
        """What the API server says to an approval that must not be; Failure where it takes it."""
        from taintctl.api.approval import MaintenanceApproval

        try:
            await session.cluster.create(MaintenanceApproval, body)
        except (Forbidden, Invalid) as error:
            return f"“{error.message.split(' (POST')[0]}”"
        raise Failure(f"step {self.stage.step}: it is not so that {body['metadata']['name']} is refused")

    async def notice(self, planned: MaintenanceRun) -> None:
        stage = self.stage
        stage.title("NoSchedule, and the second look")
        run = await self.until("the notice", Phase.NOTICE)
        assert run.spec.start_at is not None
        at = next(entry.at for entry in reversed(run.status.history) if entry.to == Phase.NOTICE)
        stage.require(at >= run.spec.start_at, "NoSchedule waits for the window's start")
        stage.tell(
            f"The window opened at {run.spec.start_at:%H:%M:%S}; since {at:%H:%M:%S} nothing new lands on the GPUs."
        )
        run = await self.until("the gate", Phase.EVICTING)
        gate = next(entry.at for entry in run.status.history if entry.to == Phase.EVICTING)
        effects = [effect for _, effect in stage.witness.effects]
        executed = effects.index("NoExecute") if "NoExecute" in effects else len(effects)
        no_schedule = effects.index("NoSchedule")
        second = [name for name, effect in stage.witness.effects[no_schedule:executed] if effect == "None"]
        stage.require(bool(second), "a fresh rule of effect None was made beside the one at NoSchedule")
        settled = (gate - at) * stage.speed
        stage.require(settled >= timedelta(seconds=10), "NoSchedule stood for 10 s at least (by the sandbox's speed)")
        stage.tell(
            f"After {span(settled)} of the sandbox's time a second rule of effect None ({some(second)}) gave a fresh "
            f"message. Plan, policy and approval were read live once more, and still hold."
        )

    async def eviction(self, planned: MaintenanceRun) -> None:
        stage = self.stage
        stage.title("Eviction, and the proof that the devices are idle")
        run = await self.until("idle devices", Phase.IN_MAINTENANCE)
        assert planned.status.plan is not None
        status, marked = run.status, {pod.key: pod for pod in stage.witness.marked}
        expected = {
            f"{p.namespace}/{p.name}": p.effect for p in planned.status.plan.pods if p.effect is not PodEffect.TOLERATES
        }
        for name, effect in sorted(expected.items()):
            pod = marked.get(name)
            stage.require(pod is not None, f"{name} of the plan was evicted")
            assert pod is not None
            by_us = pod.by == CONTROLLER
            stage.require(pod.under == "NoExecute", f"{name} was evicted only under NoExecute")
            stage.require(by_us == (effect is PodEffect.NOT_REACHED_BY_TAINT), f"{name} was evicted by the right one")
        stage.require(set(marked) == set(expected), "no pod went that was not in the plan")
        stage.require(status.eviction is not None, "the run tells of its eviction")
        assert status.eviction is not None
        ours = sorted(name for name, pod in marked.items() if pod.by == CONTROLLER)
        stage.tell(
            f"NoExecute: the taint evicted {plural(len(marked) - len(ours), 'pod')}, and taintctl evicted "
            f"{some(ours)} through the Eviction API, which honours budgets."
        )
        for kind in (ConditionType.EVICTED, ConditionType.DEVICES_IDLE):
            found = condition(status.conditions, kind)
            stage.require(found is not None and found.status == "True", f"the condition {kind} is True")
            assert found is not None
            stage.tell(f"{kind}: {found.message}")

    async def maintenance(self, planned: MaintenanceRun) -> None:
        stage = self.stage
        stage.title("The work")
        stage.sandbox.start_pod("team-a", NEWCOMER, on=self.pool, template="one-gpu", app="train")
        devices = [device for device in await self.devices() if device.pool == self.pool]
        busy = [user for device in devices for user in device.users if not user.admin_access]
        stage.require(not busy, f"no pod uses a device of {self.pool}")
        monitors = sorted({user_text(user) for device in devices for user in device.users})
        watching = f" (only {some(monitors)} still watches)" if monitors else ""
        stage.tell(f"{plural(len(devices), 'GPU')} of {self.pool} are empty{watching}; their firmware is changed now.")

        async def turned_away() -> str | None:
            pod = stage.sandbox.store.get(PODS, "team-a", NEWCOMER)
            found = [c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"]
            return str(found[0].get("message", "")) if found and found[0]["status"] == "False" else None

        message = await stage.until("the newcomer to be turned away", turned_away)
        run = await self.now()
        stage.require(run.status.phase is Phase.IN_MAINTENANCE, "the devices are still in maintenance")
        stage.tell(f"A new pod, team-a/{NEWCOMER}, wants a GPU there and has to wait: “{message}”")
        stage.show([ladder(run.status)])

    async def release(self) -> None:
        stage = self.stage
        stage.title("Release")
        run = await self.until("the end", Phase.SUCCEEDED)
        rules = await stage.operator.cluster.own_rules()
        stage.require(not rules, "none of our rules is left")
        tainted = [device for device in await self.devices() if device.taints]
        stage.require(not tainted, "no device is tainted any more")

        async def runs() -> bool | None:
            return stage.sandbox.store.get(PODS, "team-a", NEWCOMER)["status"].get("phase") == "Running" or None

        await stage.until(f"team-a/{NEWCOMER} to run", runs)
        stage.tell(
            f"The work took its time, the devices were idle by one more live look, and the taint came off: "
            f"{run.status.phase}. team-a/{NEWCOMER} runs now."
        )

    async def look_back(self, planned: MaintenanceRun, elsewhere: dict[str, str]) -> None:
        stage = self.stage
        stage.title("Looking back")
        run = await self.now()
        been = [entry.to for entry in run.status.history]
        steps = iter(been)
        stage.require(all(any(phase == seen for seen in steps) for phase in WAY), "every phase came, in order")
        now = {f"{p['metadata']['namespace']}/{p['metadata']['name']}": p["metadata"] for p in self._pods()}
        untouched = [n for n, uid in elsewhere.items() if n in now and now[n]["uid"] == uid]
        stage.require(set(untouched) == set(elsewhere), "pods on other nodes were not touched")
        stage.require(not any("deletionTimestamp" in now[n] for n in untouched), "none of them is terminating")
        stage.show([ladder(run.status)])
        if stage.slack is not None:
            await thread(stage, stage.slack)
        stage.tell(
            f"{' → '.join(been)}. {plural(len(stage.witness.marked), 'pod')} went, each of them in the approved plan; "
            f"{plural(len(untouched), 'pod')} elsewhere did not notice. Nothing of ours is left."
        )


def _first(judged: Judged) -> str:
    return judged.evaluation.violations[0].message if judged.evaluation.violations else "no violation"
