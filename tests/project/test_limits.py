"""A test that hangs fails alone, with its name, and takes its processes along; a killed test process does too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import BOUND

ROOT = Path(__file__).resolve().parents[2]
HANGS = """
import asyncio, subprocess, sys

CHILD = [sys.executable, "-c", "import time; time.sleep(600)"]

def test_waits():
    subprocess.Popen(CHILD).wait()

def test_awaits():
    async def whole():
        await (await asyncio.create_subprocess_exec(*CHILD)).wait()
    asyncio.run(whole())

def test_goes_on():
    pass
"""


def test_a_test_that_hangs_costs_itself_and_its_processes(tmp_path: Path) -> None:
    """The output ends when the last process that could write to it is gone."""
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider", "test_hangs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TAINTCTL_TEST_LIMIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    for name in ("waits", "awaits"):
        assert f"test_hangs.py::test_{name} took longer than 1s" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_a_process_dies_with_the_tests_own() -> None:
    code = (
        "import subprocess, sys, time\n"
        "from tests.processes import BOUND\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], **BOUND)\n"
        "print('begun', flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, text=True, **BOUND,
    )  # fmt: skip
    assert parent.stdout is not None
    assert parent.stdout.readline() == "begun\n"
    parent.send_signal(signal.SIGKILL)
    # What it started could write there too, for as long as it lives.
    said, _ = parent.communicate(timeout=60)
    assert said == ""
