"""A run that can't be read at all, as CRDs that somebody loosened let through: said on it, and let go when deleted."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.api.base import FINALIZER
from tests.scenarios.world import RUNS, World

pytestmark = pytest.mark.looptime


def loosen(crd: dict[str, Any]) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": anything}


async def test_a_deleted_run_that_cannot_be_read_is_let_go_where_none_of_its_rules_is_left() -> None:
    async with World() as world:
        world.store.mutate("customresourcedefinitions.apiextensions.k8s.io", None, RUNS, loosen)
        run = {
            "apiVersion": "taintctl.dev/v1alpha1",
            "kind": "MaintenanceRun",
            "metadata": {"name": "run", "finalizers": [FINALIZER, "other.example/one"]},
            "spec": {"target": {"driver": "gpu.example.com"}, "deadline": "soon"},
        }
        world.sandbox.apply([run])
        await world.control()
        await world.until(lambda: "can't be read" in ((world.raw().get("status") or {}).get("message") or ""))
        await world.delete()
        await world.until(lambda: world.raw()["metadata"]["finalizers"] == ["other.example/one"], 30)
