"""The sandbox's store with our CRDs in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taintctl.api.check import KINDS
from taintctl.api.crds import manifests
from taintctl.ports.clock import SystemClock
from taintctl.sandbox.store import Store

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


@pytest.fixture(scope="session")
def server() -> Store:
    """One for all: its rules are compiled once."""
    store = Store(SystemClock())
    for manifest in manifests().values():
        created = store.create(DEFINITIONS, manifest)
        conditions = {c["type"]: c["status"] for c in created["status"]["conditions"]}
        assert conditions["Established"] == "True"
    return store


@pytest.fixture
def store(server: Store) -> Iterator[Store]:
    yield server
    for kind in KINDS:
        key = f"{kind.PLURAL}.taintctl.dev"
        for obj in list(server.list(key)):
            server.delete(key, "", obj["metadata"]["name"])
