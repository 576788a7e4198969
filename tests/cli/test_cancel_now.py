"""`taintctl cancel --now`: with no controller, the caller's own rights take the taints off."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.api.base import format_time
from taintctl.api.reasons import Effect
from taintctl.api.rule import RuleManifest, rule_name
from taintctl.cli.lab import bind
from tests.cli.conftest import Lab

Captured = pytest.CaptureFixture[str]
RULES = "devicetaintrules.resource.k8s.io"


def tainted(lab: Lab, name: str, *, status: dict[str, Any] | None = None) -> list[str]:
    """A run as a controller left it in the middle of an eviction: two rules at NoExecute; and a third of the same
    label that belongs to an earlier run of the same name."""
    capacity = {"driver": "gpu.example.com", "pool": "gpu-worker-03"}
    spec = {"target": capacity, "deadline": "2999-01-01T00:00:00Z"}
    body = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "metadata": {"name": name}, "spec": spec}
    uid = lab.call(lambda: lab.sandbox.apply([body]))[0]["metadata"]["uid"]
    if status is not None:
        lab.call(
            lambda: lab.sandbox.store.mutate(
                "maintenanceruns.taintctl.dev", None, name, lambda run: run.update(status=status), subresource="status"
            )
        )
    names = []
    for number, owner in enumerate((uid, uid, f"earlier-{name}")):
        manifest = RuleManifest(
            name=rule_name(owner, number),
            role="taint",
            round=1,
            run_name=name,
            run_uid=owner,
            driver="gpu.example.com",
            pool="gpu-worker-03",
            device=f"gpu-{number}",
            key="taintctl.dev/maintenance",
            value=name,
            effect=Effect.NO_EXECUTE,
        )
        rule = {"apiVersion": "resource.k8s.io/v1", **manifest.to_object()}
        lab.call(lambda rule=rule: lab.sandbox.store.create(RULES, rule))
        names.append(manifest.name)
    return names


def effect(lab: Lab, name: str) -> str:
    found = lab.call(lambda: lab.sandbox.store.get(RULES, None, name))
    return str(found["spec"]["taint"]["effect"])


def test_its_own_rules_go_to_none_and_the_run_is_cancelled(uncontrolled: Lab, capsys: Captured) -> None:
    first, second, foreign = tainted(uncontrolled, "stuck")
    assert uncontrolled.run("cancel", "stuck", "--now") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"{first}: NoExecute -> None",
        f"{second}: NoExecute -> None",
        "Run stuck is asked to end.",
        "Next: taintctl run (or kubectl -n taintctl-system rollout status deployment/taintctl)",
    ]
    assert captured.err == (
        "No controller is at work (nobody holds the Lease taintctl-system/taintctl); "
        "look at kubectl -n taintctl-system get pods, or start `taintctl run`.\n"
    )
    assert [effect(uncontrolled, name) for name in (first, second, foreign)] == ["None", "None", "NoExecute"]
    run = uncontrolled.get("maintenanceruns", "stuck")
    assert run is not None
    assert run["spec"]["cancelled"] is True
    assert uncontrolled.run("cancel", "stuck", "--now") == 0
    assert f"{first}: already None" in capsys.readouterr().out


def test_what_could_not_be_done_is_listed_and_is_exit_status_1(uncontrolled: Lab, capsys: Captured) -> None:
    first, second, _ = tainted(uncontrolled, "partly")
    uncontrolled.call(
        lambda: uncontrolled.sandbox.faults.fail(403, verbs=["patch"], resources=[RULES], names=[first], times=1)
    )
    assert uncontrolled.run("cancel", "partly", "--now") == 1
    captured = capsys.readouterr()
    assert f"{second}: NoExecute -> None" in captured.out
    assert f"{first}: not done: " in captured.err
    assert "1 rule of run partly could not be set to None; repeat the command" in captured.err
    assert effect(uncontrolled, first) == "NoExecute"
    assert uncontrolled.run("cancel", "partly", "--now") == 0
    assert effect(uncontrolled, first) == "None"


def test_without_rights_nothing_is_done_and_it_says_so(uncontrolled: Lab, capsys: Captured) -> None:
    first, second, _ = tainted(uncontrolled, "viewed")
    assert uncontrolled.run("cancel", "viewed", "--now", user="nobody@example.com") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("not done: ") == 2
    assert 'cannot patch resource "devicetaintrules"' in captured.err
    assert [effect(uncontrolled, name) for name in (first, second)] == ["NoExecute", "NoExecute"]


def test_a_rule_that_changes_meanwhile_is_read_again(uncontrolled: Lab, capsys: Captured) -> None:
    first, *_ = tainted(uncontrolled, "racing")
    uncontrolled.call(
        lambda: uncontrolled.sandbox.faults.fail(409, verbs=["patch"], resources=[RULES], names=[first], times=1)
    )
    assert uncontrolled.run("cancel", "racing", "--now") == 0
    assert f"{first}: NoExecute -> None" in capsys.readouterr().out
    assert effect(uncontrolled, first) == "None"


def test_the_hand_reaches_a_run_in_maintenance(uncontrolled: Lab, capsys: Captured) -> None:
    status = {"phase": "InMaintenance", "reason": "WaitingForWork", "observedGeneration": 1}
    tainted(uncontrolled, "working", status=status)
    assert uncontrolled.run("complete", "working") == 0
    assert uncontrolled.run("release", "working") == 0
    assert capsys.readouterr().out.count("\nNext: taintctl run (or ") == 2
    assert uncontrolled.run("cancel", "working") == 0
    out = capsys.readouterr().out
    assert "Its devices are in maintenance and keep the taint until: taintctl release working" in out
    run = uncontrolled.get("maintenanceruns", "working")
    assert run is not None
    assert {k: run["spec"][k] for k in ("workCompleted", "released", "cancelled")} == {
        "workCompleted": True,
        "released": True,
        "cancelled": True,
    }
    for verb in ("complete", "release", "cancel"):
        assert uncontrolled.run(verb, "working") == 0
        assert "already" in capsys.readouterr().out


def test_a_run_that_takes_its_taints_off_is_not_paused(uncontrolled: Lab, capsys: Captured) -> None:
    tainted(uncontrolled, "leaving", status={"phase": "RollingBack", "reason": "Cancelled"})
    assert uncontrolled.run("pause", "leaving") == 1
    assert "is taking its taints off (RollingBack); that is not paused" in capsys.readouterr().err


def test_explain_finds_that_no_controller_answers(uncontrolled: Lab, capsys: Captured) -> None:
    tainted(uncontrolled, "unseen", status={"phase": "Notice", "phaseSince": datetime.now(UTC).isoformat()})
    assert uncontrolled.run("explain", "unseen") == 0
    said = capsys.readouterr().out
    assert said.count("No controller is at work") == 1
    assert "has not seen the newest spec" not in said  # the same once more


def test_a_plan_that_changed_while_it_was_shown_is_not_approved(
    uncontrolled: Lab, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    import click

    def asking(digest: str) -> dict[str, Any]:
        approval = {"asked": {"digest": digest}, "needed": 1}
        return {"phase": "AwaitingApproval", "observedGeneration": 1, "approval": approval}

    tainted(uncontrolled, "moving", status=asking("a" * 64))

    def changed_meanwhile(*_: object, **__: object) -> bool:
        uncontrolled.call(
            lambda: uncontrolled.sandbox.store.mutate(
                "maintenanceruns.taintctl.dev",
                None,
                "moving",
                lambda run: run.update(status=asking("b" * 64)),
                subresource="status",
            )
        )
        return True

    monkeypatch.setattr(click, "confirm", changed_meanwhile)
    assert uncontrolled.run("approve", "moving") == 1
    assert "the plan of run moving changed while it was shown; look again" in capsys.readouterr().err
    assert uncontrolled.call(lambda: uncontrolled.sandbox.store.list("maintenanceapprovals.taintctl.dev")) == []


def test_a_cluster_without_our_kinds_says_how_to_install(uncontrolled: Lab, capsys: Captured) -> None:
    crd = "customresourcedefinitions.apiextensions.k8s.io"
    name = "evictionpolicies.taintctl.dev"
    kept = uncontrolled.call(lambda: uncontrolled.sandbox.store.get(crd, None, name))
    uncontrolled.call(lambda: uncontrolled.sandbox.store.delete(crd, None, name))
    try:
        uncontrolled.until(lambda: uncontrolled.sandbox.store.find(crd, None, name) is None)
        assert uncontrolled.run("status") == 1
        error = capsys.readouterr().err
        assert "taintctl is not installed on 127.0.0.1:" in error
        assert "kubectl apply -k deploy/" in error
    finally:
        fresh = {"apiVersion": kept["apiVersion"], "kind": kept["kind"], "spec": kept["spec"]}
        fresh["metadata"] = {"name": name}
        uncontrolled.call(lambda: uncontrolled.sandbox.apply([fresh]))


def _may_only_list(lab: Lab, user: str) -> None:
    rule = {"apiGroups": ["taintctl.dev"], "resources": ["maintenanceruns", "maintenancewindows"], "verbs": ["list"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}}
    lab.sandbox.users.add(user)
    lab.sandbox.apply([{**role, "rules": [rule]}, bind(user, user)])
    lab.sandbox.write_kubeconfig(lab.folder / user, user)


def test_without_a_controller_it_is_seen_that_a_cancel_was_asked_for_and_what_has_to_be_started(
    uncontrolled: Lab, capsys: Captured
) -> None:
    rules = [{"name": "r", "driver": "d", "pool": "p", "effect": "NoExecute", "evictionInProgress": "True"}]
    status = {"phase": "Draining", "reason": "PodsPending", "rules": rules, "observedGeneration": 1}
    tainted(uncontrolled, "alone", status=status)
    assert uncontrolled.run("cancel", "alone", "--now") == 0
    capsys.readouterr()
    assert uncontrolled.run("status", "alone") == 0
    page = capsys.readouterr().out
    assert "It is asked to end (taintctl cancel)." in page
    assert "as the controller last saw them" in page
    assert "Next: taintctl run (or kubectl -n taintctl-system rollout status deployment/taintctl)" in page
    assert "goes on by itself" not in page
    assert uncontrolled.run("explain", "alone") == 0
    said = capsys.readouterr().out
    assert "it is asked to end (taintctl cancel)" in said
    assert "Until:" not in said
    assert re.search(r"Next: +taintctl run \(or kubectl", said)


def test_without_a_controller_status_explain_and_start_say_so(uncontrolled: Lab, capsys: Captured) -> None:
    nobody = "No controller is at work (nobody holds the Lease taintctl-system/taintctl); "
    assert uncontrolled.run("start", "--driver", "gpu.example.com", "--pool", "gpu-worker-02", "--name", "early") == 0
    assert capsys.readouterr().err.startswith(nobody)
    assert uncontrolled.run("status") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(nobody)
    assert uncontrolled.run("explain", "early") == 0
    assert f"Also:  {nobody}" in capsys.readouterr().out
    assert uncontrolled.run("status", user="nobody@example.com") == 0  # a viewer
    assert nobody in capsys.readouterr().out
    # Who may not read Leases is told nothing, right or wrong.
    uncontrolled.call(lambda: _may_only_list(uncontrolled, "lister"))
    assert uncontrolled.run("status", user="lister") == 0
    assert "No controller" not in capsys.readouterr().out
    lease: dict[str, Any] = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "taintctl-system", "name": "taintctl"},
        "spec": {"holderIdentity": "gone", "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
    uncontrolled.call(lambda: uncontrolled.sandbox.apply([lease]))
    assert uncontrolled.run("status", "early") == 0
    assert "the Lease taintctl-system/taintctl was last renewed" in capsys.readouterr().out
    # Judged by the Lease's own length, which a fast sandbox's controller shortens.
    lease["spec"] |= {"renewTime": format_time(datetime.now(UTC) - timedelta(seconds=20)), "leaseDurationSeconds": 3}
    lease["metadata"]["annotations"] = {"taintctl.dev/speed": "5"}
    uncontrolled.call(lambda: uncontrolled.sandbox.apply([lease]))
    assert uncontrolled.run("status", "early") == 0
    assert "was last renewed 20s ago" in capsys.readouterr().out
    lease["spec"]["renewTime"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    uncontrolled.call(lambda: uncontrolled.sandbox.apply([lease]))
    assert uncontrolled.run("status", "early") == 0
    assert "No controller is at work" not in capsys.readouterr().out


def test_rules_whose_run_is_gone_are_named_with_what_takes_them_off(uncontrolled: Lab, capsys: Captured) -> None:
    names = tainted(uncontrolled, "lost")[:2]
    assert uncontrolled.run("status") == 0
    assert names[0] not in capsys.readouterr().out
    uncontrolled.call(lambda: uncontrolled.sandbox.store.delete("maintenanceruns.taintctl.dev", None, "lost"))
    assert uncontrolled.run("status") == 0
    said = capsys.readouterr().out
    assert "of runs that are gone may still taint devices; take them off: kubectl delete devicetaintrule " in said
    assert all(name in said for name in names)
    # What scripts read keeps its shape, so that people are told beside it.
    assert uncontrolled.run("status", "-o", "json") == 0
    captured = capsys.readouterr()
    assert set(json.loads(captured.out)) == {"apiVersion", "kind", "items"}
    assert all(name in captured.err for name in names)


def test_of_many_forgotten_rules_some_are_named_and_all_are_counted(uncontrolled: Lab, capsys: Captured) -> None:
    before = _forgotten(uncontrolled, capsys)
    for number in range(9):
        tainted(uncontrolled, f"gone-{number}")
        uncontrolled.call(
            lambda number=number: uncontrolled.sandbox.store.delete(
                "maintenanceruns.taintctl.dev", None, f"gone-{number}"
            )
        )
    # Each leaves two rules, and one of an earlier run.
    assert _forgotten(uncontrolled, capsys) == before + 27
    assert uncontrolled.run("status") == 0
    said = capsys.readouterr().out
    assert "(the first 20 of them): kubectl delete devicetaintrule " in said
    assert len(said.partition("kubectl delete devicetaintrule ")[2].splitlines()[0].split()) == 20


def _forgotten(lab: Lab, capsys: Captured) -> int:
    assert lab.run("status") == 0
    found = re.search(r"^(\d+) DeviceTaintRules? of runs that are gone", capsys.readouterr().out, re.MULTILINE)
    return int(found[1]) if found else 0
