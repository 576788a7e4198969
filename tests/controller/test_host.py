"""`taintctl run` from start to stop."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from taintctl.controller.host import ControllerOptions, run_controller
from tests.adapters.server import SPEED, Server
from tests.processes import BOUND

POLICIES = "evictionpolicies.taintctl.dev"
LEASES = "leases.coordination.k8s.io"


async def until(condition: Callable[[], Any], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (what is waited for is in another thread or process)
            await asyncio.sleep(0.01)


class Controller:
    """A controller in this process, as deploy's service account."""

    def __init__(self, server: Server, directory: Path, **options: Any) -> None:
        account = server.users.service_account("taintctl-system", "taintctl")
        config = directory / "kubeconfig"
        config.write_text(yaml.safe_dump(server.http.kubeconfig(account)))
        self.stop = asyncio.Event()
        chosen = ControllerOptions(**{"kubeconfig": str(config), "speed": SPEED, "probes_port": None, **options})
        self.task = asyncio.create_task(run_controller(chosen, self.stop))

    async def ended(self) -> int:
        return await asyncio.wait_for(self.task, 120)

    async def stopped(self) -> int:
        self.stop.set()
        return await self.ended()


def holder(server: Server) -> str:
    lease = server.store.find(LEASES, "taintctl-system", "taintctl")
    return str(lease["spec"].get("holderIdentity", "")) if lease else ""


def policy(server: Server, name: str) -> None:
    server.store.create(POLICIES, {"metadata": {"name": name}, "spec": {}})


def looked_at(server: Server, name: str) -> bool:
    return bool(server.store.get(POLICIES, None, name).get("status", {}).get("observedGeneration"))


async def test_it_works_with_the_rights_of_deploy_and_no_more_are_missing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy(server, "there")
    controller = Controller(server, tmp_path)
    await until(lambda: looked_at(server, "there"))
    policy(server, "new")
    await until(lambda: looked_at(server, "new"))
    assert await controller.stopped() == 0
    assert holder(server) == ""
    said = capsys.readouterr().err
    assert "forbidden" not in said.lower()
    assert "Traceback" not in said


async def test_a_second_one_waits_and_takes_over(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Controller(server, tmp_path)
    await until(lambda: holder(server))
    one = holder(server)
    second = Controller(server, tmp_path)
    policy(server, "p")
    await until(lambda: looked_at(server, "p"))
    await asyncio.sleep(0.5)
    assert holder(server) == one
    assert await first.stopped() == 0
    await until(lambda: holder(server) not in ("", one))
    policy(server, "q")
    await until(lambda: looked_at(server, "q"))
    assert await second.stopped() == 0
    assert f"another controller ({one}) is at work; waiting" in capsys.readouterr().err


async def test_one_that_waits_can_be_stopped(server: Server, tmp_path: Path) -> None:
    first = Controller(server, tmp_path)
    await until(lambda: holder(server))
    second = Controller(server, tmp_path)
    await asyncio.sleep(0.3)
    assert await second.stopped() == 0
    assert holder(server)
    assert await first.stopped() == 0


async def test_losing_the_lease_ends_all_work_with_status_1(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(server, tmp_path)
    policy(server, "before")
    await until(lambda: looked_at(server, "before"))
    server.store.mutate(
        LEASES, "taintctl-system", "taintctl", lambda lease: lease["spec"].update(holderIdentity="thief")
    )
    assert await controller.ended() == 1
    assert holder(server) == "thief"
    policy(server, "after")
    await asyncio.sleep(0.3)
    assert not looked_at(server, "after")
    said = capsys.readouterr().err
    assert "the lease was taken by thief" in said
    assert "work has stopped, since the lease is lost" in said


async def test_it_outlives_an_api_server_that_goes_away_for_a_moment(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller = Controller(server, tmp_path)
    policy(server, "before")
    await until(lambda: looked_at(server, "before"))
    one = holder(server)
    server.faults.go_away()
    await asyncio.sleep(1.0)  # the lease of a controller at this speed lasts 2 s without a renewal
    server.faults.clear()
    policy(server, "after")
    await until(lambda: looked_at(server, "after"))
    assert holder(server) == one
    assert await controller.stopped() == 0
    assert "Traceback" not in capsys.readouterr().err


async def test_it_waits_for_an_api_server_that_is_not_up_yet(server: Server, tmp_path: Path) -> None:
    server.faults.go_away()
    controller = Controller(server, tmp_path)
    await asyncio.sleep(0.3)
    assert not controller.task.done()
    server.faults.clear()
    await until(lambda: holder(server))
    assert await controller.stopped() == 0


async def test_a_cluster_without_the_crds_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Server() as bare:
        assert await Controller(bare, tmp_path).ended() == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "CRDs are not installed" in line


async def test_a_missing_kubeconfig_is_refused_in_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await Controller(server, tmp_path, kubeconfig=str(tmp_path / "missing")).ended() == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "There is no kubeconfig at" in line


async def test_a_tls_server_name_is_refused_in_one_line(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = server.http.kubeconfig(server.users.admin)
    config["clusters"][0]["cluster"]["tls-server-name"] = "api.example.com"
    (tmp_path / "named").write_text(yaml.safe_dump(config))
    assert await Controller(server, tmp_path, kubeconfig=str(tmp_path / "named")).ended() == 1
    [line] = capsys.readouterr().err.splitlines()
    assert "tls-server-name" in line


async def test_probes_tell_a_controller_that_works_from_one_that_can_not(
    server: Server, tmp_path: Path, unused_tcp_port: int
) -> None:
    server.faults.go_away()
    controller = Controller(server, tmp_path, probes_port=unused_tcp_port, probes_host="127.0.0.1")

    async with aiohttp.ClientSession() as session:

        async def probe(path: str) -> tuple[int, str]:
            async with session.get(f"http://127.0.0.1:{unused_tcp_port}{path}") as answer:
                return answer.status, (await answer.text()).strip()

        async def becomes(path: str, status: int) -> str:
            async with asyncio.timeout(80):
                while True:
                    try:
                        found, text = await probe(path)
                    except aiohttp.ClientConnectorError:
                        found, text = 0, ""
                    if found == status:
                        return text
                    await asyncio.sleep(0.01)

        assert await becomes("/readyz", 503) == "waiting for the API server"
        assert await probe("/healthz") == (200, "ok")
        server.faults.clear()
        assert await becomes("/readyz", 200) == "ok"
        assert await probe("/healthz") == (200, "ok")
        # Pods can't be listed any more, and so their watch stays silent: not ready, but restarting would not help.
        # (One that still waits for its lease is ready too, and has no cache yet: then once more.)
        silent = ""
        for _ in range(10):
            server.faults.fail(500, resources=["pods"])
            server.faults.cut_watches()
            silent = await becomes("/readyz", 503)
            if silent != "the cache is not filled yet":
                break
            server.faults.clear()
            assert await becomes("/readyz", 200) == "ok"
        assert silent.startswith("the API server has been silent for")
        assert await probe("/healthz") == (200, "ok")
    assert await controller.stopped() == 0


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_process_and_releases_the_lease(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    account = server.users.service_account("taintctl-system", "taintctl")
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(server.http.kubeconfig(account)))
    code = (
        "import asyncio, sys\n"
        "from taintctl.controller.host import ControllerOptions, run_controller\n"
        f"options = ControllerOptions(kubeconfig=sys.argv[1], speed={SPEED}, probes_port=None, log_format='json')\n"
        "sys.exit(asyncio.run(run_controller(options)))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(config), stderr=asyncio.subprocess.PIPE, **BOUND
    )
    policy(server, "p")
    await until(lambda: looked_at(server, "p"), 120)
    process.send_signal(number)
    _, said = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0
    assert holder(server) == ""
    lines = [json.loads(line) for line in said.decode().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert lines[-1]["message"] == "the lease is released"
    assert account.token not in said.decode()
