"""The demo's own assertions: where something is not so, it ends with one sentence that says what."""

from __future__ import annotations

from pathlib import Path

import pytest

from taintctl.api.check import check
from taintctl.api.policy import EvictionPolicy
from taintctl.api.window import MaintenanceWindow
from taintctl.cli import manifests
from taintctl.cli.errors import Failure
from taintctl.cli.story import slack as story_slack
from taintctl.cli.story import stage as story_stage
from taintctl.cli.story.slack import GROUP, MOST_CHARACTERS, MOST_LINES, OLGA, seen, surroundings, workspace
from taintctl.cli.story.stage import Stage, stage
from taintctl.cli.story.window import Story, policy_manifest, window_manifest
from taintctl.cli.story.witness import Marked, Witness
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.slack.people import Message
from tests.cli.builders import NOW

pytestmark = pytest.mark.process


async def failure(ready: Stage) -> str:
    with pytest.raises(Failure) as caught:
        await Story(ready).tell()
    return str(caught.value)


async def test_a_silent_eviction_controller_is_not_papered_over() -> None:
    async with stage(nodes=2, gpus_per_node=3, kubernetes="1.37", speed=40) as ready:
        ready.sandbox.manager.pause("taint-eviction")
        said = await failure(ready)
    assert said.startswith("step 3: the run is Blocked: ")


async def test_a_controller_that_dies_ends_the_story() -> None:
    async with stage(nodes=2, gpus_per_node=3, kubernetes="1.37", speed=40) as ready:
        await ready.controller.stop()
        said = await failure(ready)
    assert said.startswith("the controller ended with status ")


async def test_a_pod_that_goes_outside_the_plan_is_noticed() -> None:
    async with stage(nodes=2, gpus_per_node=3, kubernetes="1.37", speed=40) as ready:
        ready.witness.marked.append(Marked("team-a", "train-02", "uid", "somebody", "None"))
        said = await failure(ready)
    assert said == "step 3: it is not so that no pod was touched by the dry run"


async def test_a_click_that_counts_and_should_not_is_noticed() -> None:
    pytest.importorskip("slack_sdk")
    async with stage(nodes=2, gpus_per_node=3, kubernetes="1.37", speed=40) as ready:
        assert ready.slack is not None
        ready.slack.server.groups[GROUP].users.append(OLGA)
        said = await failure(ready)
    assert said == "step 5: it is not so that Olga is told that she is not among the approvers"


async def test_without_slack_sdk_the_demo_says_so_and_approves_by_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(story_stage, "installed", lambda: False)
    async with stage(nodes=2, gpus_per_node=3, kubernetes="1.37", speed=40) as ready:
        story = Story(ready)
        await story.window()
        await story.dry_run()
        await story.approval()
        approval = (await story.now()).status.approval
    assert approval is not None
    assert [(given.kind, given.approver) for given in approval.given] == [("Kubernetes", "ada@example.com")]
    out = capsys.readouterr().out
    assert "pip install 'taintctl[slack]'" in next(line for line in out.splitlines() if "slack-sdk" in line)
    assert f"ada@example.com runs `taintctl approve {story.run} --yes`:" in out


async def test_the_demos_controller_has_the_demos_tokens_and_never_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-of-the-user")
    monkeypatch.setenv("SLACK_SIGNING_SECRET_FILE", "/of/the/user")
    monkeypatch.setenv("TAINTCTL_WEBHOOK_KEY_FILE", "/of/the/user")
    without = surroundings(None)
    assert not [name for name in without if name.startswith(("SLACK_", "TAINTCTL_WEBHOOK_"))]
    assert "PATH" in without
    async with workspace() as made:
        given = surroundings(made)
    assert given["SLACK_BOT_TOKEN"] == made.server.bot_token
    assert "SLACK_SIGNING_SECRET_FILE" not in given


def test_what_is_retold_of_a_message_is_bounded() -> None:
    lines = seen(Message("C0", "1.0", "\n".join(["*x*" * 1000] * 100)))
    assert lines[-1] == "… and 60 lines more"
    assert len(lines) == MOST_LINES + 1
    assert max(map(len, lines)) == MOST_CHARACTERS


def test_slack_is_there_just_where_slack_sdk_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "slack_sdk" else object())
    assert not story_slack.installed()


async def test_the_witness_sees_effects_deletions_and_who_did_it() -> None:
    sandbox = Sandbox(nodes=1, gpus_per_node=1, clock=SystemClock(40))
    async with sandbox:
        witness = Witness.of(sandbox)
        rule = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": "r"},
            "spec": {"deviceSelector": {"pool": "gpu-worker-01"}, "taint": {"key": "k", "effect": "None"}},
        }
        sandbox.apply([rule])
        rule["spec"]["taint"]["effect"] = "NoSchedule"  # type: ignore[index]
        sandbox.apply([rule])
        sandbox.store.delete("pods", "team-a", "train-01", user="somebody")
        sandbox.store.delete("devicetaintrules.resource.k8s.io", None, "r")
        witness.stop()
        sandbox.store.delete("pods", "gpu-monitoring", "dcgm-0", user="unseen")
    assert witness.effects == [("r", "None"), ("r", "NoSchedule"), ("r", "deleted")]
    assert [(pod.key, pod.by, pod.under) for pod in witness.marked] == [("team-a/train-01", "somebody", "NoSchedule")]
    assert witness.strongest() == "no rule"


def test_the_storys_own_objects_are_valid() -> None:
    for slack in (True, False):
        assert check(EvictionPolicy, policy_manifest(slack=slack)).problems == ()
    assert check(MaintenanceWindow, window_manifest(NOW, "p")).problems == ()


def test_an_installed_taintctl_finds_its_manifests_or_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifests, "CHECKOUT", tmp_path)
    with pytest.raises(Failure, match="install it again, or run it from a checkout"):
        manifests.shipped("deploy", "rbac.yaml")
    info, data = tmp_path / "taintctl-9.dist-info", tmp_path / "share" / "taintctl" / "deploy"
    info.mkdir()
    data.mkdir(parents=True)
    (data / "rbac.yaml").write_text("kind: Role\n---\n---\nkind: RoleBinding\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: taintctl\nVersion: 9\n")
    (info / "RECORD").write_text("share/taintctl/deploy/rbac.yaml,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [found["kind"] for found in manifests.shipped("deploy", "rbac.yaml")] == ["Role", "RoleBinding"]
