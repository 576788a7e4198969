"""Where it can not work the controller says so in one line and ends with status 1; a missing right it names."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taintctl.cli.lab import CONTROLLER
from tests.e2e.town import RULES, Town, town

pytestmark = pytest.mark.process

CRDS = "customresourcedefinitions.apiextensions.k8s.io"
ROLES = "clusterroles.rbac.authorization.k8s.io"
BINDINGS = "rolebindings.rbac.authorization.k8s.io"


def before_the_effect_none(place: Town) -> None:
    """1.34 serves resource.k8s.io/v1, and rules at most at v1alpha3 behind a gate."""
    place.sandbox.store.resources.unregister(RULES)
    place.sandbox.store.resources.kubernetes = "1.34"


def without_a_crd(place: Town) -> None:
    place.sandbox.store.delete(CRDS, None, "maintenancewindows.taintctl.dev")


def without_the_lease(place: Town) -> None:
    place.sandbox.store.delete(BINDINGS, "taintctl-system", "taintctl-lease")


@pytest.mark.parametrize(
    ("world", "said"),
    [
        (before_the_effect_none, "This cluster is v1.34.0; taintctl needs Kubernetes 1.35 or later"),
        (without_a_crd, "taintctl's CRDs are not installed (maintenancewindows.taintctl.dev missing)"),
        (without_the_lease, 'cannot get resource "leases" in API group "coordination.k8s.io"'),
    ],
)
async def test_one_line_and_status_1(tmp_path: Path, world: Callable[[Town], None], said: str) -> None:
    async with town(tmp_path, nodes=1, gpus=1, kubernetes="1.36") as place:
        world(place)
        process = await place.controller(CONTROLLER, "--no-probes")
        assert await process.ended() == 1
        line = process.said().splitlines()[-1]
        assert " ERROR taintctl.controller: " in line
        assert said in line
        assert [other for other in process.said().splitlines()[:-1] if " ERROR " in other] == []
        place.assert_nothing_odd_said()


def set_rights(place: Town, rules: list[dict[str, Any]]) -> None:
    place.sandbox.store.mutate(ROLES, None, "taintctl-controller", lambda role: role.update(rules=rules))


@pytest.mark.parametrize("resource", ["devicetaintrules", "pods", "maintenanceruns", "maintenanceruns/status"])
async def test_a_missing_right_is_named_and_once_it_is_given_the_run_goes_on(tmp_path: Path, resource: str) -> None:
    async with town(tmp_path) as place:
        place.policy()
        rights = place.get("taintctl-controller", ROLES)["rules"]
        set_rights(place, [rule for rule in rights if resource not in rule["resources"]])
        place.start()
        process = await place.controller()
        await process.says(f'cannot \\w+ resource "{resource}"')
        assert place.made_rules() == []
        set_rights(place, rights)
        await place.reaches("AwaitingApproval")
        await process.probes("/readyz", 200)
        place.assert_nothing_odd_said()


async def test_a_missing_right_to_watch_our_own_kinds_is_named(tmp_path: Path) -> None:
    async with town(tmp_path) as place:
        rights = copy.deepcopy(place.get("taintctl-controller", ROLES)["rules"])
        for rule in rights:
            if "maintenancewindows" in rule["resources"]:
                rule["verbs"].remove("watch")
        set_rights(place, rights)
        process = await place.controller()
        await process.says(
            r'the watch of our objects ended \(.*cannot watch resource "\w+" in API group "taintctl.dev"'
        )
        place.assert_nothing_odd_said()
