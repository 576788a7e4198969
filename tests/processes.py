"""Processes that a test starts die with the tests' own process, should that be killed."""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Any

_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
PR_SET_PDEATHSIG = 1


def with_us() -> None:
    """To be called in the child, before it becomes another program. The kernel sends the signal when the thread that
    started it ends."""
    assert _prctl is not None
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


BOUND: dict[str, Any] = {"preexec_fn": with_us if _prctl is not None else None}
"""For subprocess and asyncio's create_subprocess_exec."""
