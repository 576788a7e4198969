"""Approval in Slack from end to end: the controller, a cluster and a Slack, each the real one or stood in for by the
sandbox, over loopback sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.check import check
from taintctl.api.run import MaintenanceRun
from taintctl.cli.main import run
from taintctl.controller.host import ControllerOptions, run_controller
from taintctl.controller.people import PeopleOptions
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.slack.people import Channel, Message
from taintctl.sandbox.slack.server import FakeSlack
from tests.project.test_deploy import CONTROLLER, NAMESPACE, OBJECTS

pytest.importorskip("slack_sdk")

CHANNEL = "C0123456789"
RUNS = "maintenanceruns.taintctl.dev"
ANN, EVE = "U0ANNLEE", "U0EVEEVE"
SPEED = 50


async def until(true: Callable[[], Any], seconds: float = 30, what: Callable[[], str] = str) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 (what is waited for is another side's doing)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what()}") from None


class Town:
    """A cluster, a Slack and a controller between them."""

    def __init__(self, sandbox: Sandbox, slack: FakeSlack, channel: Channel, directory: Path) -> None:
        self.sandbox = sandbox
        self.slack = slack
        self.channel = channel
        self.directory = directory
        self._stop = asyncio.Event()
        self._task: asyncio.Task[int] | None = None

    async def control(self) -> None:
        self._stop = asyncio.Event()
        options = ControllerOptions(
            kubeconfig=str(self.sandbox.write_kubeconfig(self.directory / "controller", CONTROLLER)),
            speed=SPEED,
            probes_port=None,
            log_format="json",
            people=PeopleOptions(slack_api_url=self.slack.api_url),
        )
        self._task = asyncio.create_task(run_controller(options, self._stop))

    async def stop(self) -> None:
        if self._task is not None:
            self._stop.set()
            assert await self._task == 0
            self._task = None

    def start(self, **spec: Any) -> None:
        later = self.sandbox.clock.now().replace(year=2099)
        body = {
            "target": {"driver": "gpu.example.com", "pool": "gpu-worker-01", "device": "gpu-0"},
            "policyName": "asks",
            "deadline": format_time(later),
            "work": {"mode": "Duration", "duration": "10s"},
            **spec,
        }
        self.sandbox.store.create(RUNS, {"metadata": {"name": "night"}, "spec": body})

    @property
    def run(self) -> MaintenanceRun:
        found = check(MaintenanceRun, self.sandbox.store.get(RUNS, None, "night")).obj
        assert found is not None
        return found

    @property
    def messages(self) -> list[Message]:
        return [message for message in self.channel.messages if not message.thread_ts and not message.to]

    @property
    def thread(self) -> list[str]:
        return [message.text for message in self.channel.messages if message.thread_ts]

    async def until_phase(self, *phases: str) -> None:
        await until(lambda: self.run.status.phase in phases, what=lambda: f"{self.run.status.dump()}")

    def notified(self) -> str:
        return next((c.status for c in self.run.status.conditions if c.type == "Notified"), "")


@asynccontextmanager
async def town(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Town]:
    slack = FakeSlack()
    await slack.start()
    slack.add_user(ANN, "Ann", email="ann@example.com")
    slack.add_user(EVE, "Eve", email="eve@example.com")
    channel = slack.add_channel(CHANNEL, "gpu-ops")
    monkeypatch.setenv("SLACK_BOT_TOKEN", slack.bot_token)
    monkeypatch.setenv("SLACK_APP_TOKEN", slack.app_token)
    async with Sandbox(nodes=1, gpus_per_node=2, speed=SPEED) as sandbox:
        sandbox.apply(obj for obj in OBJECTS if obj["kind"] != "Deployment")
        sandbox.users.service_account(NAMESPACE, "taintctl")
        sandbox.apply(
            [
                {
                    "apiVersion": "taintctl.dev/v1alpha1",
                    "kind": "EvictionPolicy",
                    "metadata": {"name": "asks"},
                    "spec": {
                        "budgets": "Ignore",
                        "notifications": {"slack": {"channel": CHANNEL}},
                        "approval": {
                            "approvers": [
                                {"kind": "Slack", "name": ANN},
                                {"kind": "Kubernetes", "name": "system:admin"},
                                {"kind": "Kubernetes", "name": "admin"},
                            ]
                        },
                    },
                }
            ]
        )
        made = Town(sandbox, slack, channel, directory)
        try:
            yield made
        finally:
            await made.stop()
            await slack.stop()


async def test_a_click_in_slack_approves_and_the_thread_tells_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with town(tmp_path, monkeypatch) as place:
        await place.control()
        place.start()
        await place.until_phase("AwaitingApproval")
        await until(lambda: place.messages)
        await until(lambda: place.notified() == "True")
        await place.slack.connected()
        # Somebody else's click is told why it does not count, and writes nothing.
        await place.slack.click(EVE, place.messages[0], "Approve")
        await until(lambda: any("is not among the approvers" in m.text for m in place.channel.ephemeral))
        assert place.sandbox.store.list("maintenanceapprovals.taintctl.dev") == []
        # The controller is restarted, and goes on with the same message.
        await place.stop()
        await place.control()
        await until(lambda: place.slack.count["apps.connections.open"] >= 2)
        await place.slack.connected()
        await place.slack.click(ANN, place.messages[0], "Approve", copies=2)
        await place.until_phase("Succeeded")
        await until(lambda: any(line.startswith("Succeeded (Completed)") for line in place.thread))
        assert len(place.messages) == 1
        approvals = place.sandbox.store.list("maintenanceapprovals.taintctl.dev")
        assert [a["spec"]["approver"] for a in approvals] == [{"kind": "Slack", "name": ANN}]
        approval = place.run.status.approval
        assert approval is not None
        assert [given.who for given in approval.given] == [f"Ann ({ANN} in Slack)"]
        await place.stop()
        said = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
        counted = [line for line in said if line.get("audit") == "approval"]
        assert [(line["kind"], line["approver"], line["decision"]) for line in counted] == [("Slack", ANN, "Approve")]
        assert place.slack.bot_token not in json.dumps(said)
        events = [e for e in place.sandbox.store.list("events") if e["reason"] == "ApprovalRecorded"]
        assert [e["message"] for e in events] == [
            f"Ann ({ANN} in Slack) approved the plan {approval.asked.digest[:12]}."  # type: ignore[union-attr]
        ]


async def test_with_slack_down_the_run_waits_and_is_approved_by_taintctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async with town(tmp_path, monkeypatch) as place:
        await place.slack.stop()
        await place.control()
        place.start()
        await place.until_phase("AwaitingApproval")
        await until(lambda: place.notified() == "False")
        await until(lambda: "Nobody could be told in Slack" in place.run.status.message)
        admin = str(place.sandbox.write_kubeconfig(tmp_path / "admin"))
        assert await asyncio.to_thread(run, ["approve", "night", "--yes", "--kubeconfig", admin]) == 0
        await place.until_phase("InMaintenance", "Releasing", "Succeeded")
        explained = await asyncio.to_thread(run, ["status", "night", "--kubeconfig", admin])
        assert explained == 0
        assert "Told in Slack: no, since " in capfd.readouterr().out
