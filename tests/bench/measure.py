"""What a command costs: wall time, CPU and the peak of its resident memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TIMEOUT = 600.0


@dataclass(frozen=True)
class Cost:
    wall: float
    """Seconds."""
    cpu: float
    """Seconds, user and system."""
    peak: float
    """MB of resident memory."""

    def __add__(self, other: Cost) -> Cost:
        """One after the other."""
        return Cost(self.wall + other.wall, self.cpu + other.cpu, max(self.peak, other.peak))


def run(command: Sequence[str], environment: Mapping[str, str]) -> tuple[Cost, int]:
    """The command's cost and exit status; its output goes nowhere. Raises TimeoutError after ten minutes."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() - begin > TIMEOUT:
            process.kill()
            raise TimeoutError(f"{command[0]} took longer than {TIMEOUT:.0f} s")
        time.sleep(0.005)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024), process.returncode


def resident(pid: int) -> float:
    """MB of resident memory of a running process."""
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
