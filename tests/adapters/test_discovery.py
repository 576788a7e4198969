"""The newest version that is served, and one sentence where this cluster will not do."""

from __future__ import annotations

import pytest
from aiohttp import web

from taintctl.adapters.kubernetes.client import Client
from taintctl.adapters.kubernetes.config import Credentials
from taintctl.adapters.kubernetes.discovery import Discovery, discover
from taintctl.ports.clock import SystemClock
from taintctl.ports.errors import NotFound, Unsupported
from tests.adapters.server import SPEED, Server


@pytest.mark.parametrize(("kubernetes", "version"), [("1.37", "v1"), ("1.36", "v1beta2")])
async def test_the_newest_served_version_is_found(kubernetes: str, version: str) -> None:
    async with Server(kubernetes=kubernetes) as server, server.client() as client:
        found = await discover(client)
        assert found.require_rules() == version
        assert found.require_objects() == "v1"
        with pytest.raises(NotFound, match=r"CRDs are not installed .*kubectl apply -k deploy/"):
            found.require_kinds()
        server.install()
        (await discover(client)).require_kinds()


async def found_on(minor: str, rules: tuple[str, ...], objects: tuple[str, ...]) -> Discovery:
    """Discovery against a server that says only which versions it has."""
    kinds = ["resourceslices", "resourceclaims", "deviceclasses"]

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"})
        if request.path == "/apis/resource.k8s.io":
            return web.json_response({"versions": [{"version": v} for v in dict.fromkeys((*rules, *objects))]})
        version = request.path.removeprefix("/apis/resource.k8s.io/")
        names = (kinds if version in objects else []) + (["devicetaintrules"] if version in rules else [])
        if not names:
            return web.Response(status=404)
        return web.json_response({"resources": [{"name": name} for name in names]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Client(Credentials.static(url), SystemClock(SPEED)) as client:
            return await discover(client)
    finally:
        await runner.cleanup()


async def test_v1_is_preferred_to_older_versions_beside_it() -> None:
    found = await found_on("37+", ("v1alpha3", "v1beta2", "v1"), ("v1beta1", "v1beta2", "v1"))
    assert (found.rule_version, found.object_version, found.release) == ("v1", "v1", (1, 37))


async def test_a_cluster_before_1_35_is_refused_although_it_has_rules() -> None:
    found = await found_on("34", ("v1alpha3",), ("v1",))
    with pytest.raises(Unsupported, match=r"This cluster is v1\.34\.0; taintctl needs Kubernetes 1\.35 or later"):
        found.require_rules()


async def test_rules_of_1_35_are_used() -> None:
    assert (await found_on("35", ("v1alpha3",), ("v1",))).require_rules() == "v1alpha3"


async def test_a_cluster_with_the_feature_off_says_which_switch() -> None:
    found = await found_on("36", (), ("v1",))
    with pytest.raises(Unsupported, match="DRADeviceTaintRules"):
        found.require_rules()


async def test_slices_with_another_layout_are_refused() -> None:
    found = await found_on("36", ("v1beta2",), ("v1beta1",))
    with pytest.raises(Unsupported, match=r"neither resource\.k8s\.io/v1 nor v1beta2"):
        found.require_objects()


async def test_an_unreadable_version_counts_as_too_old() -> None:
    with pytest.raises(Unsupported):
        (await found_on("x", ("v1",), ("v1",))).require_rules()
