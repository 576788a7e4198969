"""The contract suite: against the sandbox, or against any cluster with `pytest tests/contract --kubeconfig FILE`.

With a kubeconfig it needs the rights of an administrator. It makes a node, a namespace, a slice and a class under a
driver name of its own for each test and removes them; no other object of the cluster is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from taintctl.sandbox.cluster import Sandbox
from tests.contract.client import Api
from tests.contract.lab import Lab

SPEED = 20.0
"""How much faster than real time the sandbox goes."""
VERSIONS = ("v1", "v1beta2")
"""Where DeviceTaintRules with the effect None can be, newest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kubeconfig", metavar="FILE", help="run the contract suite against this cluster, not the sandbox"
    )


def given_kubeconfig(config: pytest.Config) -> Path | None:
    # The option is known only where tests/contract is named on the command line.
    found = config.getoption("--kubeconfig", default=None)
    return Path(found) if found else None


@pytest_asyncio.fixture
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox | None]:
    """The sandbox, or None where a kubeconfig was given."""
    if given_kubeconfig(request.config):
        yield None
        return
    async with Sandbox(fleet=False, speed=SPEED) as made:
        yield made


@pytest_asyncio.fixture
async def api(request: pytest.FixtureRequest, sandbox: Sandbox | None) -> AsyncIterator[Api]:
    given = given_kubeconfig(request.config)
    content = yaml.safe_load(given.read_text()) if given else sandbox.kubeconfig() if sandbox else {}
    async with Api(content) as made:
        yield made


@pytest_asyncio.fixture
async def rules(api: Api) -> str | None:
    """The path of DeviceTaintRules in the newest version that serves them, by discovery."""
    group = await api.must(api.get("/apis/resource.k8s.io"))
    served = {v["version"] for v in group["versions"]}
    for version in VERSIONS:
        if version in served:
            resources = await api.must(api.get(f"/apis/resource.k8s.io/{version}"))
            if any(r["name"] == "devicetaintrules" for r in resources["resources"]):
                return f"/apis/resource.k8s.io/{version}/devicetaintrules"
    return None


@pytest_asyncio.fixture
async def lab(api: Api, rules: str | None, sandbox: Sandbox | None) -> AsyncIterator[Lab]:
    """A furnished corner of the cluster, with somebody who acts as its node's kubelet."""
    made = Lab(api, speed=SPEED if sandbox else 1.0, rules=rules, stand_in=sandbox is None)
    kubelet: asyncio.Task[None] | None = None
    try:
        await made.furnish()
        if sandbox is None:
            kubelet = asyncio.ensure_future(made.be_kubelet())
        yield made
    finally:
        if kubelet is not None:
            kubelet.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await kubelet
        await made.clear()


@pytest_asyncio.fixture
async def taint_lab(lab: Lab) -> Lab:
    """The same, where DeviceTaintRules are served."""
    if not lab.rules:
        pytest.skip("this cluster serves no DeviceTaintRule: DRADeviceTaintRules is off, or it is older than 1.35")
    return lab


@pytest_asyncio.fixture
async def split_lab(taint_lab: Lab) -> Lab:
    """The same, with a GPU that is published whole and in two halves."""
    if not await taint_lab.partition_a_gpu():
        pytest.skip("this cluster drops shared counters: DRAPartitionableDevices is off")
    return taint_lab
