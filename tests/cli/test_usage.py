"""Wrong use, bad files and no cluster: one line on stderr, the right exit status, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taintctl.cli import main as cli_main
from taintctl.cli.errors import BadFile, Failure, sentence
from taintctl.cli.main import COMMANDS, run
from taintctl.cli.output import manifests
from taintctl.ports.errors import Conflict, Forbidden, NotFound, Unavailable

WINDOW = """\
apiVersion: taintctl.dev/v1alpha1
kind: MaintenanceWindow
metadata: {name: nightly}
spec:
  schedule: {cron: "0 21 * * *", timeZone: Europe/Berlin, duration: 8h}
  target: {driver: gpu.example.com, pool: node-1}
"""


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("TAINTCTL_TRACEBACK", raising=False)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nothing"], 2, "No such command 'nothing'"),
        (["status", "--wrong"], 2, "No such option '--wrong'"),
        (["status", "-o", "xml"], 2, "'xml' is not one of"),
        (["status", "--watch"], 2, "name it"),
        (["approve"], 2, "Missing argument 'RUN'"),
        (["schedule"], 2, "name a window, or give a file with -f"),
        (["schedule", "x", "-n", "0"], 2, "0 is not in the range"),
        (["start", "--driver", "d", "--notice", "soon"], 2, "'soon' is not a duration such as 1h30m or 45s"),
        (["start", "--driver", "d", "--deadline", "2026-12-01"], 2, "has no time zone"),
        (["start", "--driver", "d", "--duration", "0s"], 2, "--duration 0s leaves no time"),
        (["start"], 2, "--selector, --uuid, or --window (see"),
        (["run", "--lease-namespace", ""], 2, "--lease-namespace is the name of a namespace"),
        (["run", "--lease-namespace", "a/b"], 2, "--lease-namespace is the name of a namespace"),
        (["start", "--pool", "p"], 2, "spec.target: pool and device need a driver"),
        (["start", "--selector", "device.driver =="], 2, "spec.target.selectors[0].cel.expression: does not compile"),
        (["start", "--node-selector", "zone"], 2, "--node-selector takes key=value, each key once, not 'zone'"),
        (["start", "--node-selector", "a=b,a=c"], 2, "--node-selector takes key=value, each key once, not 'a=c'"),
        (["plan", "--node-selector", "a b=c"], 2, "spec.target.nodeSelector: 'a b' is no label key"),
        (["plan"], 2, "--selector, --uuid, or --window, or -f (see"),
        (["start", "--driver", "d", "--name", "Not A Name"], 2, "--name 'Not A Name' is no Kubernetes name"),
        (["start", "--driver", "d", "--deadline", "tomorrow"], 2, "is not an RFC 3339 time"),
        (["sandbox", "--kubernetes", "1.30"], 2, "'1.30' is not one of"),
        (["sandbox", "--speed", "0"], 2, "0 is not in the range"),
        (["sandbox", "--partitions", "8"], 2, "8 is not in the range 0<=x<=7"),
        (["run", "--speed", "nan"], 2, "nan is not a number"),
        (["status"], 1, "No cluster is configured"),
        (["plan", "--driver", "d", "--pool", "p"], 1, "No cluster is configured"),
        (["--kubeconfig", "/does/not/exist", "status"], 2, "/does/not/exist"),
        (["status", "--kubeconfig", "/does/not/exist"], 2, "/does/not/exist"),
    ],
)
def test_one_line_and_the_right_status(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == status
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("taintctl")
    assert captured.out == ""


def test_no_argument_is_help_and_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: taintctl" in capsys.readouterr().out


def test_every_command_is_there_with_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    for section in COMMANDS.values():
        for name in section:
            assert run([name, "--help"]) == 0, name
            assert f"Usage: taintctl {name}" in capsys.readouterr().out


def test_a_broken_kubeconfig_is_one_line_without_its_secrets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "config"
    broken.write_text("users:\n- name: x\n  user: {token: geheim\nclusters: [")
    assert run(["status", "--kubeconfig", str(broken)]) == 2
    error = capsys.readouterr().err
    assert str(broken) in error
    assert error.count("\n") == 1
    assert "geheim" not in error


def test_a_server_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    away = tmp_path / "config"
    away.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {token: t}}],"
        " clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}],"
        " contexts: [{name: c, context: {cluster: c, user: u}}]}"
    )
    assert run(["status", "--kubeconfig", str(away)]) == 1
    error = capsys.readouterr().err
    assert "127.0.0.1:9" in error
    assert "is up, then try again" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (WINDOW, 0, "Window nightly: 0 21 * * * Europe/Berlin, for 8h"),
        (WINDOW.replace("0 21 * * *", "0 25 * * *"), 2, "nightly"),
        (WINDOW.replace("Europe/Berlin", "Europe/Nowhere"), 2, "Europe/Nowhere"),
        (WINDOW.replace("pool", "pol"), 2, "window nightly: spec.target.pol: is not a field of this API"),
        (WINDOW.replace("8h", "long"), 2, "spec.schedule.duration: 'long' is not a duration such as 1h30m or 45s"),
        ("kind: Pod", 2, "holds no MaintenanceWindow"),
        ("a: [", 2, "is not valid YAML (line 1)"),
        ("- 1", 2, "holds something that is not an object"),
    ],
)
def test_a_schedule_from_a_file(
    text: str, status: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "window.yaml"
    file.write_text(text)
    assert run(["schedule", "-f", str(file), "-n", "2"]) == status
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert captured.err.count("\n") == (1 if status else 0)


def test_a_suspended_window_says_so_and_json_has_iso_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json
    from datetime import datetime

    file = tmp_path / "window.yaml"
    file.write_text(WINDOW + "  suspend: true\n")
    assert run(["schedule", "-f", str(file)]) == 0
    assert "It is suspended: none of these starts makes a run." in capsys.readouterr().out
    assert run(["schedule", "-f", str(file), "-o", "json", "-n", "400"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["window"], found["suspended"]) == ("Schedule", "nightly", True)
    starts = [datetime.fromisoformat(item["start"]) for item in found["starts"]]
    # 21:00 in Berlin is 20:00 UTC in winter and 19:00 in summer; 400 nights have both.
    assert {start.hour for start in starts} == {19, 20}


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule", "-f", "/nowhere/w.yaml"]) == 2
    assert capsys.readouterr().err == "taintctl: /nowhere/w.yaml can't be read: No such file or directory\n"


def test_an_error_of_our_own_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(**_: object) -> None:
        raise KeyError("what\x1b[2J")

    monkeypatch.setattr(cli_main.cli, "main", broken)
    assert run(["status"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("taintctl: internal error, KeyError: ")
    assert captured.err.count("\n") == 1
    assert "\x1b" not in captured.err
    monkeypatch.setenv("TAINTCTL_TRACEBACK", "1")
    run(["status"])
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_main.cli, "main", interrupted)
    assert run(["status"]) == 130
    assert capsys.readouterr().err == "taintctl: interrupted\n"


@pytest.mark.parametrize(
    ("error", "next_step"),
    [
        (Failure("said"), "said"),
        (Forbidden("pods is forbidden.", status=403), "pods is forbidden; ask for that right"),
        (Unavailable("away."), "away; check that the cluster of this kubeconfig is up"),
        (NotFound("no x"), "no x; it was deleted meanwhile"),
        (Conflict("changed"), "look again, then repeat the command"),
        (OSError("disk full"), "disk full"),
    ],
)
def test_errors_say_the_next_step(error: Exception, next_step: str) -> None:
    assert next_step in sentence(error)


def test_simple_commands_load_neither_kopf_nor_the_kubernetes_library() -> None:
    code = (
        "import sys; from taintctl.cli.main import run; "
        "[run([c, '--help']) for c in ('status', 'schedule', 'run', 'sandbox', 'demo', 'plan')]; "
        "heavy = {'kopf', 'kubernetes'} & set(sys.modules); print('heavy:', heavy)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "heavy: set()", done.stderr


def test_help_itself_loads_next_to_nothing() -> None:
    code = (
        "import sys; from taintctl.cli.main import run; run(['--help']); "
        "print('heavy:', {'pydantic', 'aiohttp', 'rich', 'yaml'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "heavy: set()", done.stderr


def test_shell_completion_names_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "taintctl.cli.main"],
        env={"_TAINTCTL_COMPLETE": "bash_complete", "COMP_WORDS": "taintctl exp", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "explain" in done.stdout


def test_a_file_that_is_nested_too_deeply_is_one_line(tmp_path: Path) -> None:
    deep = tmp_path / "deep.yaml"
    deep.write_text("[" * 5000 + "]" * 5000)
    with pytest.raises(BadFile, match="is nested too deeply"):
        manifests(str(deep))


@pytest.mark.parametrize("terminal", [True, False])
def test_an_interrupt_at_the_question_ends_it_at_once(terminal: bool) -> None:
    """As ^C sends it, inside the event loop that a command runs in; whatever stdin is."""
    code = (
        "import asyncio, os, signal, sys, threading\n"
        "from taintctl.cli import main\n"
        "from taintctl.cli.commands.approval import confirmed\n"
        "def reads(*_, **__):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    threading.Event().wait(60)\n"
        "import click.termui\n"
        "click.termui.visible_prompt_func = reads\n"
        f"sys.stdin.isatty = lambda: {terminal}\n"
        "async def whole():\n"
        "    confirmed('sure?')\n"
        "main.cli.main = lambda **_: asyncio.run(whole())\n"
        "sys.exit(main.run(['approve', 'r']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (130, "taintctl: interrupted\n")
