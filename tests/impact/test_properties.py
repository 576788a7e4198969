"""What must hold of the plan in any cluster."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from taintctl.api.objects import DeviceSelector, ResourceClaim, Snapshot, Toleration
from taintctl.api.plan import DeviceID, Plan, Verdict
from taintctl.api.pools import published_pools
from taintctl.api.reasons import PodEffect
from taintctl.api.target import Target
from taintctl.impact import build_plan, idleness, predict, selects
from tests.impact.fleet import DRIVER, FOREVER, KEY, VALUE, claim, node, pod, pool, result, snapshot

POOLS = ("n1", "n2", "n3")
DEVICES = ("gpu-0", "gpu-1")
PODS = tuple(f"p{i}" for i in range(6))
LATER = Toleration(operator="Exists", effect="NoExecute", toleration_seconds=20)

results = st.builds(
    lambda where, device, tolerations, admin: result(where, device, *tolerations, admin=admin),
    st.sampled_from(POOLS),
    st.sampled_from(DEVICES),
    st.lists(st.sampled_from([FOREVER, LATER, Toleration(operator="Exists")]), max_size=2),
    st.booleans(),
)
claims = st.lists(
    st.builds(
        lambda held, users, extended: (tuple(held), tuple(users), extended),
        st.lists(results, max_size=3),
        st.lists(st.sampled_from([*PODS, "gone"]), max_size=3, unique=True),
        st.booleans(),
    ),
    max_size=6,
).map(
    lambda parts: tuple(
        claim(f"c{i}", *held, users=users, extended=extended) for i, (held, users, extended) in enumerate(parts)
    )
)
pods = st.tuples(*(st.tuples(st.booleans(), st.sampled_from(["Running", "Pending", "Failed"])) for _ in PODS)).map(
    lambda parts: tuple(
        pod(name, terminating=terminating, phase=phase, node=None if phase == "Pending" else "n1")
        for name, (terminating, phase) in zip(PODS, parts, strict=True)
    )
)
clusters = st.builds(
    lambda c, p: snapshot(
        slices=tuple(pool(name, *DEVICES) for name in POOLS),
        claims=c,
        pods=p,
        nodes=tuple(node(name, since=datetime(2026, 1, 1, tzinfo=UTC)) for name in POOLS),
    ),
    claims,
    pods,
)
targets = st.sampled_from(
    [
        Target(driver=DRIVER, whole_driver=True),
        Target(driver=DRIVER, pool="n1"),
        Target(driver=DRIVER, pool="n2", device="gpu-1"),
        Target(driver=DRIVER, device="gpu-0"),
    ]
)
selectors = st.builds(
    DeviceSelector,
    driver=st.sampled_from([None, DRIVER]),
    pool=st.sampled_from([None, *POOLS]),
    device=st.sampled_from([None, *DEVICES]),
)


def plan_of(cluster: Snapshot, target: Target) -> Plan:
    found = build_plan(cluster, target, key=KEY, value=VALUE)
    assert isinstance(found, Plan)
    return found


def one_more(cluster: Snapshot, extra: tuple[ResourceClaim, ...]) -> Snapshot:
    renamed = tuple(
        msgspec.structs.replace(c, metadata=msgspec.structs.replace(c.metadata, name=f"more{i}"))
        for i, c in enumerate(extra)
    )
    return msgspec.structs.replace(cluster, claims=cluster.claims + renamed)


@settings(max_examples=100, deadline=None)
@given(clusters, claims, selectors)
def test_one_more_claim_never_lowers_a_count(
    cluster: Snapshot, extra: tuple[ResourceClaim, ...], selector: DeviceSelector
) -> None:
    before = predict(cluster, selector, key=KEY, value=VALUE)
    after = predict(one_more(cluster, extra), selector, key=KEY, value=VALUE)
    assert after.published == before.published
    assert after.allocated >= before.allocated
    assert after.pods >= before.pods
    assert after.namespaces >= before.namespaces


@settings(max_examples=100, deadline=None)
@given(clusters, targets)
def test_the_union_over_the_rules_is_what_the_taint_reaches_of_the_plan(cluster: Snapshot, target: Target) -> None:
    plan = plan_of(cluster, target)
    bound = {p.metadata.uid for p in cluster.pods if p.spec.node_name}
    reached = {
        p.uid
        for p in plan.pods
        if p.effect in (PodEffect.EVICTED, PodEffect.EVICTED_LATER) and not p.terminating and p.uid in bound
    }
    # A device of the plan counts for exactly one rule, so each reached pod is counted by one at least...
    assert max((rule.pods for rule in plan.rules), default=0) <= len(reached) <= sum(rule.pods for rule in plan.rules)
    # ... and a rule over all of them counts each once.
    whole = predict(
        cluster, DeviceSelector(driver=DRIVER, pool=target.pool, device=target.device), key=KEY, value=VALUE
    )
    assert whole.pods == len(reached)
    assert whole.published == sum(rule.published for rule in plan.rules) == len(plan.devices)
    assert whole.allocated == sum(rule.allocated for rule in plan.rules)


@settings(max_examples=100, deadline=None)
@given(clusters, targets)
def test_no_pod_and_no_device_is_in_the_plan_twice(cluster: Snapshot, target: Target) -> None:
    plan = plan_of(cluster, target)
    assert len({p.uid for p in plan.pods}) == len(plan.pods)
    assert len({d.id for d in plan.devices}) == len(plan.devices)
    assert list(plan.pods) == sorted(plan.pods)


@settings(max_examples=150, deadline=None)
@given(clusters, targets)
def test_idle_means_that_the_plan_has_nobody_but_monitors(cluster: Snapshot, target: Target) -> None:
    plan = plan_of(cluster, target)
    found = idleness(
        cluster,
        [(rule.driver, rule.pool, rule.device) for rule in plan.rules],
        key=KEY,
        value=VALUE,
        nodes=frozenset(),
        evicting_since=datetime(2026, 12, 1, tzinfo=UTC),
        proven_at=None,
    )
    others = [p for p in plan.pods if not (p.effect is PodEffect.TOLERATES and p.admin_access)]
    assert {p.uid for p in found.holders} == {p.uid for p in others}
    if found.verdict is Verdict.TRUE:
        assert others == []
    else:
        assert found.verdict is Verdict.FALSE


def _target(parts: dict[str, object]) -> Target:
    return Target.model_validate({"wholeDriver": True, **parts})


some_target = st.fixed_dictionaries(
    {"driver": st.just(DRIVER)},
    optional={
        "pool": st.sampled_from(POOLS),
        "device": st.sampled_from(DEVICES),
        "nodeSelector": st.sampled_from([{"zone": "a"}, {"zone": "b"}]),
        "selectors": st.sampled_from(
            [
                [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid.endsWith('gpu-0')"}}],
                [{"cel": {"expression": f"device.attributes['{DRIVER}'].uuid.contains('n1')"}}],
            ]
        ),
        "uuids": st.lists(
            st.sampled_from([f"GPU-{where}-{device}" for where in POOLS for device in DEVICES]),
            min_size=1,
            max_size=3,
            unique=True,
        ),
        "partitions": st.sampled_from(["Include", "Exact"]),
    },
).map(_target)


@settings(max_examples=200, deadline=None)
@given(clusters, some_target, claims)
def test_the_rules_select_exactly_the_devices_of_the_plan(
    cluster: Snapshot, target: Target, stray: tuple[ResourceClaim, ...]
) -> None:
    """Published or only still allocated: claims may name devices that no slice has (any more)."""
    gone = tuple(
        msgspec.structs.replace(
            c,
            metadata=msgspec.structs.replace(c.metadata, name=f"stray{i}"),
            status=claim("x", result("n2", f"gone-{i}"), users=("p0",)).status,
        )
        for i, c in enumerate(stray)
    )
    zones = tuple(
        msgspec.structs.replace(n, metadata=msgspec.structs.replace(n.metadata, labels={"zone": zone}))
        for n, zone in zip(cluster.nodes, "aab", strict=True)
    )
    cluster = msgspec.structs.replace(cluster, claims=cluster.claims + gone, nodes=zones)
    plan = build_plan(cluster, target, key=KEY, value=VALUE)
    if not isinstance(plan, Plan):
        return
    published = {device.id for p in published_pools(cluster.slices).values() for device, _ in p.devices}
    allocated = {
        DeviceID(r.driver, r.pool, r.device)
        for c in cluster.claims
        if c.status.allocation is not None
        for r in c.status.allocation.devices.results or ()
    }
    rules = [DeviceSelector(driver=r.driver, pool=r.pool, device=r.device) for r in plan.rules]
    chosen = {id_ for id_ in published | allocated if any(selects(rule, id_) for rule in rules)}
    assert chosen == {device.id for device in plan.devices}
    # And no device by two of them.
    assert all(sum(selects(rule, id_) for rule in rules) == 1 for id_ in chosen)
