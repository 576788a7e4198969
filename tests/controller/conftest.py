from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
import yaml

from tests.adapters.server import ROOT, Server


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    """An API server with our CRDs, and with deploy's namespace, rights and admission policies."""
    async with Server() as made:
        made.install()
        for file in ("namespace", "service-account", "rbac", "admission"):
            for obj in yaml.safe_load_all((ROOT / "deploy" / f"{file}.yaml").read_text()):
                info = made.store.resources.find_kind(obj["apiVersion"], obj["kind"])
                assert info is not None
                made.store.create(info.key, obj)
        yield made
