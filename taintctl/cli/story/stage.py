"""What a story stands on: the sandbox, the controller as a process of its own, people with their own rights."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.text import Text

from taintctl.cli.errors import Failure
from taintctl.cli.fit import moved, wrap
from taintctl.cli.lab import CONTROLLER, bind, kubeconfig_file, lab
from taintctl.cli.session import Session
from taintctl.cli.story.slack import Workspace, installed, surroundings, workspace
from taintctl.cli.story.witness import Witness
from taintctl.cli.text import HEAD, Line, clean, console, say
from taintctl.sandbox.cluster import Sandbox

T = TypeVar("T")

OPERATOR, APPROVER = "olga@example.com", "ada@example.com"
PATIENCE = 60.0
"""Real seconds that one step of a story may take on a slow machine, beside its waits (300 s of the sandbox's time)."""
POLL = 0.1
INDENT = 3
"""Columns that everything below a title is moved to the right."""
BAR = "│ "
STOP_TIMEOUT = 10.0


@dataclass
class Stage:
    """`operator` may start and stop runs, `approver` may approve them; neither may do the other's part."""

    sandbox: Sandbox
    operator: Session
    approver: Session
    admin_kubeconfig: Path
    speed: float
    witness: Witness
    controller: Controller
    slack: Workspace | None = None
    """None where slack-sdk is not installed."""
    step: int = 0

    def title(self, text: str) -> None:
        self.step += 1
        say(Text(""))
        say(Text(f"{self.step}. {text}", style=HEAD))

    def tell(self, text: str) -> None:
        """A sentence or two, wrapped at 100 columns, or at the terminal's width where that is less."""
        out = console()
        width = min(100, out.width) if out.is_terminal else 100
        for part in wrap(Text(clean(text, 2000)), width - INDENT):
            say(moved(part, INDENT))

    def show(self, lines: Iterable[Line]) -> None:
        """A table beside what is told."""
        say(moved(row, INDENT) for row in lines)

    def quote(self, lines: Iterable[str]) -> None:
        """What a person reads elsewhere, with a bar at its left."""
        out = console()
        width = min(100, out.width) if out.is_terminal else 100
        for each in lines:
            for part in wrap(Text(clean(each, 2000)), width - INDENT - len(BAR)):
                say(moved(Text(BAR).append_text(part), INDENT))

    async def until(self, what: str, look: Callable[[], Awaitable[T | None]]) -> T:
        """Looks again and again until there is something. Raises Failure with what was waited for, and what is."""
        loop = asyncio.get_running_loop()
        patience = PATIENCE + 300 / self.speed
        end = loop.time() + patience
        while True:
            found = await look()
            if found is not None:
                return found
            self.controller.must_run()
            if loop.time() > end:
                raise Failure(f"step {self.step}: {what} did not come about in {patience:.0f} s")
            await asyncio.sleep(POLL)

    def require(self, holds: bool, sentence: str) -> None:
        """The story's own test. Raises Failure that says what is not so."""
        if not holds:
            raise Failure(f"step {self.step}: it is not so that {sentence}")


class Controller:
    """`taintctl run` under the service account of deploy/, with its log in a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, kubeconfig: Path, speed: float, log: Path, slack: Workspace | None) -> Controller:
        arguments = ["-m", "taintctl.cli.main", "run", "--kubeconfig", str(kubeconfig), "--speed", f"{speed:g}"]
        if slack is not None:
            arguments += ["--slack-api-url", slack.server.api_url]
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *arguments,
                "--no-probes",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=surroundings(slack),
            )
        return cls(process, log)

    def must_run(self) -> None:
        if self._process.returncode is not None:
            raise Failure(f"the controller ended with status {self._process.returncode}: {self.last_line()}")

    def last_line(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return clean(lines[-1], 400) if lines else "its log is empty"

    async def stop(self) -> None:
        """SIGTERM, as a cluster would; SIGKILL for one that does not go."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def stage(*, nodes: int, gpus_per_node: int, kubernetes: str, speed: float) -> AsyncIterator[Stage]:
    """Everything up, and down again at the end."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taintctl-demo-")))
        sandbox = await stack.enter_async_context(
            lab(nodes=nodes, gpus_per_node=gpus_per_node, kubernetes=kubernetes, speed=speed, port=0)
        )
        for person, role in ((OPERATOR, "taintctl-operator"), (APPROVER, "taintctl-approver")):
            sandbox.users.add(person)
            sandbox.apply([bind(role, person)])
        admin = stack.enter_context(kubeconfig_file(sandbox, folder / "kubeconfig"))
        sessions = []
        for person in (OPERATOR, APPROVER):
            path = stack.enter_context(kubeconfig_file(sandbox, folder / person, person))
            sessions.append(await stack.enter_async_context(Session.open(str(path), None)))
        account = stack.enter_context(kubeconfig_file(sandbox, folder / "controller", CONTROLLER))
        witness = Witness.of(sandbox)
        stack.callback(witness.stop)
        slack = await stack.enter_async_context(workspace()) if installed() else None
        controller = await Controller.start(account, speed, folder / "controller.log", slack)
        stack.push_async_callback(controller.stop)
        yield Stage(sandbox, sessions[0], sessions[1], admin, speed, witness, controller, slack)
