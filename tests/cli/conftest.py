"""A sandbox with the controller in a thread of its own, so that commands can be called as a terminal calls them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from taintctl.cli.lab import CONTROLLER, bind, lab
from taintctl.cli.main import run
from taintctl.controller.host import ControllerOptions, run_controller
from taintctl.sandbox.cluster import Sandbox
from taintctl.sandbox.fleet import pod
from tests.logs import as_it_was

SPEED = 40.0


@dataclass
class Lab:
    """`call` runs something in the sandbox's own loop; `run` is one command line, as `user`."""

    sandbox: Sandbox
    loop: asyncio.AbstractEventLoop
    folder: Path

    def call(self, work: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()

        def inside() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        self.loop.call_soon_threadsafe(inside)
        return done.result(timeout=120)

    def await_(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout=120)

    def run(self, *arguments: str, user: str = "admin") -> int:
        return run(["--kubeconfig", str(self.folder / user), *arguments])

    def until(self, condition: Callable[[], bool], seconds: float = 2400.0) -> None:
        """Waits in the sandbox's time."""
        assert self.await_(self.sandbox.until(condition, seconds)), "it did not come about"

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.call(lambda: self.sandbox.store.find(f"{kind}.taintctl.dev", None, name))
        return found

    def until_phase(self, name: str, phase: str) -> None:
        def there() -> bool:
            found = self.sandbox.store.find("maintenanceruns.taintctl.dev", None, name)
            return found is not None and found.get("status", {}).get("phase") == phase

        self.until(there)

    def new_pod(self, name: str, node: str, *, labels: dict[str, str] | None = None) -> None:
        made = pod("team-a", name, on=node, template="one-gpu")
        made["metadata"]["labels"] = labels or {}
        self.call(lambda: self.sandbox.store.create("pods", made))
        self.until(lambda: self.sandbox.store.get("pods", "team-a", name)["status"].get("phase") == "Running")

    def rules(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call(lambda: self.sandbox.store.list("devicetaintrules.resource.k8s.io"))
        return found


def _serve(folder: Path, *, controller: bool) -> Iterator[Lab]:
    started: Future[Lab] = Future()
    stop = asyncio.Event()

    async def serve() -> None:
        async with lab(nodes=4, gpus_per_node=4, kubernetes="1.37", speed=SPEED, port=0) as sandbox:
            sandbox.users.add("nobody@example.com")
            sandbox.users.add("ada@example.com")
            sandbox.apply([bind("taintctl-approver", "ada@example.com"), bind("taintctl-viewer", "nobody@example.com")])
            for user in ("admin", "nobody@example.com", "ada@example.com"):
                sandbox.write_kubeconfig(folder / user, user)
            account = sandbox.write_kubeconfig(folder / "controller", CONTROLLER)
            started.set_result(Lab(sandbox, asyncio.get_running_loop(), folder))
            if controller:
                options = ControllerOptions(str(account), speed=SPEED, probes_port=None, log_level=logging.CRITICAL)
                await run_controller(options, stop)
            else:
                await stop.wait()

    def thread() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if not started.done():
                started.set_exception(error)
            raise

    worker = threading.Thread(target=thread, name="sandbox", daemon=True)
    with as_it_was():
        worker.start()
        ready = started.result(timeout=120)
        yield ready
        ready.loop.call_soon_threadsafe(stop.set)
        worker.join(timeout=30)
    assert not worker.is_alive()


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """With a controller."""
    yield from _serve(tmp_path_factory.mktemp("controlled"), controller=True)


@pytest.fixture(scope="module")
def uncontrolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Nobody reconciles."""
    yield from _serve(tmp_path_factory.mktemp("uncontrolled"), controller=False)
