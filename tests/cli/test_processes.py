"""`taintctl demo` and `taintctl sandbox` as processes of their own, as somebody types them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.processes import BOUND

pytestmark = pytest.mark.process
TAINTCTL = [sys.executable, "-m", "taintctl.cli.main"]


def test_the_demo_tells_the_whole_story_with_its_approval_in_slack_and_stays_up_when_asked(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with (
        subprocess.Popen(
            [*TAINTCTL, "demo", "--speed", "20", "--keep"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            **BOUND,
        ) as process,
        ended(process),
    ):
        out = read_until(process, "kubectl get devicetaintrules -w")
        if process.poll() is None:
            kubeconfig = re.search(r"export KUBECONFIG=(\S+)", out)
            assert kubeconfig is not None
            status = subprocess.run(
                [*TAINTCTL, "status", "--kubeconfig", kubeconfig[1]], capture_output=True, text=True, timeout=60
            )
            assert "Succeeded" in status.stdout, status.stderr
            process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        assert process.stderr is not None
        assert process.stderr.read() == "", out[-3000:]
        assert process.returncode == 0, out[-3000:]
    titles = re.findall(r"^\d+\. (.*)$", out, re.MULTILINE)
    assert titles == [
        "A fleet",
        "A window",
        "The dry run",
        "The policy",
        "The approval",
        "NoSchedule, and the second look",
        "Eviction, and the proof that the devices are idle",
        "The work",
        "Release",
        "Looking back",
    ]
    assert "4 pods would be evicted in 2" in out
    assert "NotReachedByTaint (1)" in out
    assert re.search(r"taintctl\s+evicted\s+team-b/notebook-0", out)
    assert "This is what #gpu-maintenance shows:" in out
    assert re.search(r"│ \[ Approve \]  \[ Deny \]  \[ Details \]", out)
    assert re.search(r"│ Olga \(U0OLGAOPS in Slack\) is not among the approvers", out)
    assert re.search(r"│ You approved run \S+ for the plan shown", out)
    assert "│ Succeeded (Completed): " in out
    assert re.search(r"│ • gpu-monitoring dcgm-0, no owner$", out, re.MULTILINE)
    assert "All of it was so. Every step was checked while it was told." in out
    assert "\x1b" not in out
    assert list(tmp_path.iterdir()) == []


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leaving a Popen waits for it: a test that fails inside must not wait for what nobody stops."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def read_until(process: subprocess.Popen[str], last: str) -> str:
    """What it prints up to the line with `last`, or to its end."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if last in line:
            break
    return "".join(lines)


@pytest.mark.parametrize(
    ("fleet", "size", "listed"),
    [
        (["--gpus-per-node", "2"], "1 node of 2 GPUs.", "team-b/inference-0"),
        # The last GPU is left to the pods on partitions.
        (
            ["--gpus-per-node", "1", "--partitions", "2"],
            "1 node of 1 GPU, each also in 2 partitions.",
            "gpu-0-mig-3g40gb-9-4",
        ),
    ],
)
def test_a_sandbox_serves_until_it_is_interrupted(fleet: list[str], size: str, listed: str, tmp_path: Path) -> None:
    out = tmp_path / "kubeconfig"
    arguments = ["sandbox", "--nodes", "1", *fleet, "--speed", "40", "--kubeconfig-out", str(out)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (
        subprocess.Popen(
            [*TAINTCTL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **BOUND
        ) as process,
        ended(process),
    ):
        text = read_until(process, "taintctl run --kubeconfig")
        assert "Its state is in memory and gone when it stops" in text
        assert size in text
        assert f"export KUBECONFIG={out}" in text
        assert "taintctl start" not in text  # its only node is all of the fleet, which policy lab keeps half of
        assert oct(out.stat().st_mode & 0o777) == "0o600"
        assert yaml.safe_load(out.read_text())["current-context"] == "sandbox"
        plan = subprocess.run(
            [*TAINTCTL, "devices", "--kubeconfig", str(out)], capture_output=True, text=True, timeout=60
        )
        assert plan.returncode == 0, plan.stderr
        assert listed in plan.stdout
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
        assert process.returncode == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kubeconfig-out", "{mine}"], "is there already and is no sandbox's kubeconfig; choose another file"),
        (["--kubeconfig-out", "/nowhere/kubeconfig"], "can't be written: No such file or directory"),
    ],
)
def test_a_sandbox_never_replaces_a_kubeconfig_of_somebody_else(
    arguments: list[str], said: str, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("clusters: [{name: production}]\n")
    filled = [argument.format(mine=mine) for argument in arguments]
    done = subprocess.run(
        [*TAINTCTL, "sandbox", "--nodes", "1", "--gpus-per-node", "1", "--speed", "40", *filled],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert mine.read_text() == "clusters: [{name: production}]\n"


def test_a_taken_port_is_one_line() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [*TAINTCTL, "sandbox", "--nodes", "1", "--gpus-per-node", "1", "--port", port],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"taintctl: port {port} can't be served on 127.0.0.1")
    assert done.stderr.count("\n") == 1
