from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.cluster import KubernetesCluster
from tests.adapters.server import Server


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with Server() as made:
        yield made


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with server.client() as made:
        yield made


@pytest_asyncio.fixture
async def cluster(server: Server) -> AsyncIterator[KubernetesCluster]:
    server.install()
    async with server.cluster() as made:
        yield made
