from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.sandbox.controlplane.plane import Plane


@pytest_asyncio.fixture
async def plane() -> AsyncIterator[Plane]:
    """A control plane that is not started yet; it is stopped after the test."""
    made = Plane()
    yield made
    await made.manager.stop()
