"""A test that hangs costs itself alone, with its name; a process that a test started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tests.logs import as_it_was

LIMIT = float(os.environ.get("TAINTCTL_TEST_LIMIT", "400"))
"""Seconds for one test: over ten times what the longest takes on two cores. faulthandler_timeout in pyproject.toml is
longer, for what not even a signal can end; that costs its worker too."""
AGAIN = 5.0
"""A background task may have swallowed the first failure."""

_started: list[subprocess.Popen[Any]] = []


class Recorded(subprocess.Popen):  # type: ignore[type-arg]
    """What subprocess and asyncio start."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _started.append(self)


subprocess.Popen = Recorded  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    with as_it_was():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        _end_processes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """In the call alone: a failure there is the test's own, and its fixtures are still taken down."""
    if threading.current_thread() is not threading.main_thread():
        return (yield)

    def too_long(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"{item.nodeid} took longer than {LIMIT:g}s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, LIMIT, AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _end_processes() -> None:
    while _started:
        process = _started.pop()
        if process.poll() is None:
            print(f"a process of the test was left: {process.args}", file=sys.stderr)
            process.kill()
            process.wait(timeout=30)
