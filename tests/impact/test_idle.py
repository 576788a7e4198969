"""Whether the devices are free, by the objects alone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from taintctl.api.objects import ConsumerReference, Snapshot
from taintctl.api.plan import Idleness, Verdict
from taintctl.api.reasons import Reason
from taintctl.impact import idleness
from tests.impact.fleet import (
    DRIVER,
    FOREVER,
    KEY,
    NOW,
    VALUE,
    claim,
    device_class,
    node,
    pod,
    pool,
    result,
    snapshot,
)

EVICTING = NOW
LATER = msgspec.structs.replace(FOREVER, toleration_seconds=20)
SLICES = (pool("n1", "gpu-0", "gpu-1"),)
NODES = (node("n1"),)


def look(
    cluster: Snapshot,
    *selectors: tuple[str, str, str | None],
    nodes: frozenset[str] = frozenset(),
    evicting_since: datetime | None = EVICTING,
    proven_at: datetime | None = None,
) -> Idleness:
    return idleness(
        cluster,
        selectors or ((DRIVER, "n1", None),),
        key=KEY,
        value=VALUE,
        nodes=nodes,
        evicting_since=evicting_since,
        proven_at=proven_at,
    )


def cluster(**parts: Any) -> Snapshot:
    return snapshot(**{"slices": SLICES, "nodes": NODES, **parts})


def said(found: Idleness) -> tuple[str, str]:
    return found.verdict, found.reason


def test_nothing_allocated_on_a_ready_node_is_idle() -> None:
    found = look(cluster())
    assert said(found) == (Verdict.TRUE, Reason.DEVICES_IDLE)
    assert found.message == "No pod holds a target device."
    assert [d.id.device for d in found.devices] == ["gpu-0", "gpu-1"]


def test_a_pod_that_holds_a_device_keeps_it_busy() -> None:
    found = look(cluster(claims=(claim("c", result("n1", "gpu-0"), users=("p",)),), pods=(pod("p"),)))
    assert said(found) == (Verdict.FALSE, Reason.DEVICES_IN_USE)
    assert found.message == "Target devices are held by team-a/p."
    assert [(p.namespace, p.name, p.uid) for p in found.holders] == [("team-a", "p", "uid-p")]
    assert found.terminating == ()


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed", "Pending"])
def test_a_reserved_pod_counts_in_every_phase(phase: str) -> None:
    found = look(cluster(claims=(claim("c", result("n1", "gpu-0"), users=("p",)),), pods=(pod("p", phase=phase),)))
    assert found.verdict is Verdict.FALSE


def test_an_extended_resource_pod_keeps_its_device_busy() -> None:
    held = claim("c", result("n1", "gpu-0"), users=("p",), extended=True)
    found = look(cluster(claims=(held,), pods=(pod("p", backed_by="c"),)))
    assert said(found) == (Verdict.FALSE, Reason.DEVICES_IN_USE)


def test_a_terminating_pod_is_still_there() -> None:
    held = claim("c", result("n1", "gpu-0"), users=("p", "q"))
    found = look(cluster(claims=(held,), pods=(pod("p", terminating=True),)))
    assert said(found) == (Verdict.FALSE, Reason.PODS_TERMINATING)
    assert found.message == "Still terminating: team-a/p."
    assert [p.name for p in found.holders] == [p.name for p in found.terminating] == ["p"]
    both = look(cluster(claims=(held,), pods=(pod("p", terminating=True), pod("q"))))
    assert said(both) == (Verdict.FALSE, Reason.DEVICES_IN_USE)
    assert both.message == "Target devices are held by team-a/q; 1 more terminating."
    assert ([p.name for p in both.holders], [p.name for p in both.terminating]) == (["p", "q"], ["p"])


def test_a_claim_reserved_for_a_pod_that_is_gone_is_not_released_yet() -> None:
    found = look(cluster(claims=(claim("c", result("n1", "gpu-0"), users=("gone",)),)))
    assert said(found) == (Verdict.FALSE, Reason.DEVICES_IN_USE)
    assert found.message == (
        "ResourceClaim team-a/c is still reserved for pod gone; the control plane has to release it."
    )
    assert found.holders == ()


def test_a_claim_reserved_for_a_pod_group_keeps_its_device_busy() -> None:
    group = ConsumerReference(api_group="scheduling.k8s.io", resource="podgroups", name="train", uid="u")
    held = claim("c", result("n1", "gpu-0"))
    held = msgspec.structs.replace(held, status=msgspec.structs.replace(held.status, reserved_for=(group,)))
    found = look(cluster(claims=(held,)))
    assert found.verdict is Verdict.FALSE
    assert "reserved for podgroup train" in found.message


def test_an_allocated_claim_that_nobody_holds_is_fine() -> None:
    assert look(cluster(claims=(claim("c", result("n1", "gpu-0")),))).verdict is Verdict.TRUE


def test_another_device_does_not_matter() -> None:
    busy = cluster(claims=(claim("c", result("n1", "gpu-1"), users=("p",)),), pods=(pod("p"),))
    assert look(busy, (DRIVER, "n1", "gpu-0")).verdict is Verdict.TRUE
    assert look(busy, (DRIVER, "n1", "gpu-1")).verdict is Verdict.FALSE
    assert look(busy, (DRIVER, "n1", "gpu-0"), (DRIVER, "n1", "gpu-1")).verdict is Verdict.FALSE


def test_a_device_whose_slice_is_gone_is_busy_all_the_same() -> None:
    busy = cluster(slices=(), claims=(claim("c", result("n1", "gpu-0"), users=("p",)),), pods=(pod("p"),))
    assert look(busy).verdict is Verdict.FALSE


def test_a_monitor_is_one_that_tolerates_for_ever_with_admin_access() -> None:
    def held_by(*tolerations: Any, admin: bool | None = True, there: bool = True, extended: bool = False) -> Verdict:
        held = claim("c", result("n1", "gpu-0", *tolerations, admin=admin), users=("m",), extended=extended)
        return look(cluster(claims=(held,), pods=(pod("m"),) if there else ())).verdict

    assert held_by(FOREVER) is Verdict.TRUE
    assert held_by(FOREVER, there=False) is Verdict.TRUE
    assert held_by(LATER) is Verdict.FALSE
    assert held_by() is Verdict.FALSE
    assert held_by(FOREVER, admin=False) is Verdict.FALSE
    assert held_by(FOREVER, admin=None) is Verdict.FALSE
    assert held_by(FOREVER, extended=True) is Verdict.FALSE


def test_a_monitor_that_also_uses_a_device_keeps_it_busy() -> None:
    held = claim("c", result("n1", "gpu-0", FOREVER, admin=True), result("n1", "gpu-1", FOREVER), users=("m",))
    assert look(cluster(claims=(held,), pods=(pod("m"),))).verdict is Verdict.FALSE


@pytest.mark.parametrize("ready", ["False", "Unknown", None])
@pytest.mark.parametrize("proven_at", [None, NOW])
def test_a_node_that_is_not_ready_leaves_doubt(ready: str | None, proven_at: datetime | None) -> None:
    found = look(cluster(nodes=(node("n1", ready=ready),)), proven_at=proven_at)
    assert said(found) == (Verdict.UNKNOWN, Reason.NODE_NOT_READY)
    assert found.message.startswith("Node n1 is not Ready: a pod that was deleted there may still run")


def test_a_node_taken_out_of_the_cluster_after_it_was_proven_empty_leaves_none() -> None:
    assert said(look(cluster(nodes=()), proven_at=NOW)) == (Verdict.TRUE, Reason.DEVICES_IDLE)


def test_a_node_that_is_missing_leaves_doubt() -> None:
    found = look(cluster(nodes=()))
    assert said(found) == (Verdict.UNKNOWN, Reason.NODE_NOT_READY)
    assert found.message.startswith("Node n1 is not in the cluster")


@pytest.mark.parametrize(
    ("since", "verdict"),
    [
        (EVICTING - timedelta(hours=1), Verdict.TRUE),
        (EVICTING - timedelta(seconds=1), Verdict.TRUE),
        # Cut to whole seconds: this may have been just after the eviction began.
        (EVICTING, Verdict.UNKNOWN),
        (EVICTING + timedelta(seconds=5), Verdict.UNKNOWN),
        (None, Verdict.UNKNOWN),
    ],
)
def test_a_node_must_have_been_ready_since_the_eviction_began(since: datetime | None, verdict: Verdict) -> None:
    back = cluster(nodes=(node("n1", since=since),))
    assert look(back).verdict is verdict
    if verdict is Verdict.UNKNOWN:
        assert "n1 was not Ready at some time since the eviction began" in look(back).message
    # Reboots in maintenance are normal, and before the eviction there is nothing that could still run.
    assert look(back, proven_at=NOW).verdict is Verdict.TRUE
    assert look(back, evicting_since=None).verdict is Verdict.TRUE


def test_the_nodes_that_the_plan_knew_are_asked_too_and_those_of_other_devices_not() -> None:
    elsewhere = cluster(nodes=(*NODES, node("n2", ready="False")), slices=(*SLICES, pool("n2", "gpu-0")))
    assert look(elsewhere).verdict is Verdict.TRUE
    assert look(elsewhere, nodes=frozenset({"n2"})).verdict is Verdict.UNKNOWN
    assert look(elsewhere, (DRIVER, "n2", "gpu-9")).verdict is Verdict.TRUE
    assert look(elsewhere, (DRIVER, "n2", "gpu-0")).verdict is Verdict.UNKNOWN
    assert look(cluster(slices=()), (DRIVER, "gone", None)).verdict is Verdict.TRUE


def test_a_device_that_is_local_to_no_node_needs_none() -> None:
    fabric = msgspec.structs.replace(SLICES[0], spec=msgspec.structs.replace(SLICES[0].spec, node_name=None))
    assert look(cluster(slices=(fabric,), nodes=())).verdict is Verdict.TRUE


@pytest.mark.parametrize(
    ("resource", "verdict"),
    [
        ("gpu.example.com/gpu", Verdict.UNKNOWN),
        ("example.com/gpu", Verdict.UNKNOWN),
        ("com/gpu", Verdict.UNKNOWN),
        ("ample.com/gpu", Verdict.TRUE),
        ("other.org/nic", Verdict.TRUE),
        ("vendor.org/by-class", Verdict.UNKNOWN),
        ("memory", Verdict.TRUE),
    ],
)
def test_a_device_plugin_pod_of_the_same_hardware_leaves_doubt(resource: str, verdict: Verdict) -> None:
    classes = (device_class("gpu", "vendor.org/by-class"), device_class("none", None))
    found = look(cluster(pods=(pod("p", requests={resource: "1"}),), classes=classes))
    assert found.verdict is verdict
    if verdict is Verdict.UNKNOWN:
        assert found.reason == Reason.DEVICE_PLUGIN_POD
        assert f"Pod team-a/p on node n1 uses {resource} through a device plugin" in found.message


def test_which_pods_can_hold_a_device_through_a_plugin() -> None:
    plugin = {"example.com/gpu": "1"}

    def verdict(**how: Any) -> Verdict:
        return look(cluster(pods=(pod("p", **how),))).verdict

    assert verdict(requests=plugin) is Verdict.UNKNOWN
    assert verdict(limits=plugin) is Verdict.UNKNOWN
    assert verdict(init_requests=plugin) is Verdict.UNKNOWN
    assert verdict(requests={"example.com/gpu": 1}) is Verdict.UNKNOWN
    assert verdict(requests=plugin, phase="Pending") is Verdict.UNKNOWN
    assert verdict(requests=plugin, terminating=True) is Verdict.UNKNOWN
    assert verdict(requests={"example.com/gpu": "0"}) is Verdict.TRUE
    assert verdict(requests={"example.com/gpu": 0}) is Verdict.TRUE
    assert verdict(requests=plugin, phase="Succeeded") is Verdict.TRUE
    assert verdict(requests=plugin, node="n2") is Verdict.TRUE
    assert verdict(requests=plugin, node=None) is Verdict.TRUE
    assert verdict(requests=plugin, backed_by="c", mapped=("example.com/gpu",)) is Verdict.TRUE
    assert verdict(requests=plugin, backed_by="c") is Verdict.TRUE
    more = {**plugin, "example.com/old-gpu": "1"}
    assert verdict(requests=more, backed_by="c", mapped=("example.com/gpu",)) is Verdict.UNKNOWN
    assert verdict(requests=plugin, init_requests=plugin, backed_by="c", mapped=("example.com/gpu",)) is Verdict.UNKNOWN


def test_in_use_beats_doubt_and_silent_nodes_come_before_plugins() -> None:
    doubtful = {"nodes": (node("n1", ready="Unknown"),), "pods": (pod("p", requests={"example.com/gpu": "1"}),)}
    held = (claim("c", result("n1", "gpu-0"), users=("p",)),)
    assert look(cluster(**doubtful, claims=held)).verdict is Verdict.FALSE
    assert look(cluster(**doubtful)).reason == Reason.NODE_NOT_READY


def test_messages_name_three_and_how_many_more() -> None:
    users = tuple(f"p{i}" for i in range(6))
    held = (claim("c", result("n1", "gpu-0"), users=users),)
    found = look(cluster(claims=held, pods=tuple(pod(u) for u in users)))
    assert found.message == "Target devices are held by team-a/p0, team-a/p1, team-a/p2 and 3 more."
    assert len(found.holders) == 6
    down = cluster(nodes=tuple(node(f"n{i}", ready="Unknown") for i in range(1, 7)))
    assert "node n3 is not Ready and 2 more:" in look(down, nodes=frozenset(f"n{i}" for i in range(1, 6))).message
