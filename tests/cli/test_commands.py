"""The commands against a sandbox with the real controller, over HTTP."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from taintctl.api.approval import ApprovalDecision
from taintctl.cli.commands.approval import approval
from tests.cli.conftest import Lab

Captured = pytest.CaptureFixture[str]


def started(lab: Lab, capsys: Captured, *arguments: str) -> str:
    """Starts a run over a node with one pod on it and waits until it asks for approval."""
    assert lab.run("start", "--driver", "gpu.example.com", *arguments) == 0
    found = re.match(r"Run (\S+) is made", capsys.readouterr().out)
    assert found is not None
    lab.until_phase(found[1], "AwaitingApproval")
    return found[1]


def finish(lab: Lab, name: str) -> None:
    assert lab.run("cancel", name, "--wait") == 0


def test_the_rest_of_a_gang_is_shown_wherever_a_plan_is(controlled: Lab, capsys: Captured) -> None:
    gang = {"scheduling.x-k8s.io/pod-group": "big"}
    controlled.new_pod("big-0", "gpu-worker-04", labels=gang)
    controlled.new_pod("big-1", "gpu-worker-03", labels=gang)
    said = "1 more pod of PodGroup.scheduling.x-k8s.io team-a/big runs elsewhere and is lost with it: big-1"
    target = ("--pool", "gpu-worker-04")
    assert controlled.run("plan", "--driver", "gpu.example.com", *target) == 0
    assert said in capsys.readouterr().out
    assert controlled.run("plan", "--driver", "gpu.example.com", *target, "-o", "json") == 0
    (lost,) = json.loads(capsys.readouterr().out)["lostWith"]
    (pod,) = lost.pop("pods")
    assert lost == {"namespace": "team-a", "owner": "PodGroup.scheduling.x-k8s.io/big", "part": None, "hit": 1}
    assert (pod["name"], pod["node"]) == ("big-1", "gpu-worker-03")
    name = started(controlled, capsys, *target, "--name", "gang")
    assert controlled.run("status", name) == 0
    assert said in capsys.readouterr().out
    assert controlled.run("deny", name, "--yes") == 0
    assert said in capsys.readouterr().out
    controlled.until_phase(name, "Cancelled")
    for left in ("big-0", "big-1"):
        controlled.call(lambda left=left: controlled.sandbox.store.delete("pods", "team-a", left, grace_seconds=0))


def test_a_run_from_start_to_the_end_by_hand(controlled: Lab, capsys: Captured) -> None:
    controlled.new_pod("job", "gpu-worker-04")
    name = started(controlled, capsys, "--pool", "gpu-worker-04", "--name", "whole", "--reason", "fans")
    raw = controlled.get("maintenanceruns", name)
    assert raw is not None
    assert raw["spec"]["requestedBy"] == "admin"
    assert raw["spec"]["trigger"] == {"type": "Manual", "reason": "fans"}

    assert controlled.run("explain", name) == 0
    assert "Next:       taintctl approve whole" in capsys.readouterr().out
    assert controlled.run("approve", name, "--yes", "--comment", "go", user="ada@example.com") == 0
    out = capsys.readouterr().out
    assert "team-a/job" in out
    assert "Written as ada@example.com: MaintenanceApproval whole-approve-" in out
    controlled.until_phase(name, "InMaintenance")

    assert controlled.run("status", name) == 0
    page = capsys.readouterr().out
    assert "[>] InMaintenance" in page
    assert "Approval: 1 of 1 given" in page
    assert "  ada@example.com at " in page
    assert controlled.run("status") == 0
    assert "taintctl complete whole" in capsys.readouterr().out
    assert controlled.run("devices", "--node", "gpu-worker-04") == 0
    out = capsys.readouterr().out
    assert out.count("NoExecute by run whole") == 4
    # Once for the node's four devices.
    assert re.search(r"^  taintctl.dev/maintenance=whole:NoExecute +run whole +4$", out, re.MULTILINE)

    assert controlled.run("complete", name, "--wait") == 0
    assert "Releasing -> Succeeded (Completed)" in capsys.readouterr().out
    assert controlled.run("status", name, "--watch") == 0
    lines = capsys.readouterr().out.splitlines()
    moves = [found[1] for line in lines if (found := re.search(r"-> (\w+) \(", line))]
    assert moves[0] == "DryRun"
    assert moves[-2:] == ["Releasing", "Succeeded"]
    for verb in ("pause", "resume", "complete", "release", "cancel", "approve", "deny"):
        assert controlled.run(verb, name) == 1
        assert "run whole has ended (Succeeded, Completed)" in capsys.readouterr().err
    assert controlled.rules() == []


def test_approving_twice_is_approving_once(controlled: Lab, capsys: Captured) -> None:
    controlled.new_pod("twice", "gpu-worker-04")
    assert (
        controlled.run(
            "start",
            "--driver",
            "gpu.example.com",
            "--pool",
            "gpu-worker-04",
            "--name",
            "double",
            "--start-at",
            "2999-01-01T00:00:00Z",
        )
        == 0
    )
    controlled.until_phase("double", "AwaitingApproval")
    assert controlled.run("approve", "double", "--yes", user="ada@example.com") == 0
    capsys.readouterr()
    assert controlled.run("approve", "double", "--yes", user="ada@example.com") == 0
    out = capsys.readouterr().out
    assert "ada@example.com said that already: MaintenanceApproval double-approve-" in out
    assert out.endswith("Next: taintctl status double --watch\n")
    finish(controlled, "double")


def test_deny_ends_the_run_and_watch_says_so(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-04", "--device", "gpu-0", "--name", "denied")
    assert controlled.run("deny", name, "--yes", user="ada@example.com") == 0
    assert controlled.run("status", name, "--watch") == 1
    captured = capsys.readouterr()
    assert "-> Cancelled (Denied)" in captured.out
    assert captured.err.startswith("Run denied ended as Cancelled: ")


def test_no_answer_decides_nothing(controlled: Lab, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-04", "--device", "gpu-1", "--name", "asked")
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert controlled.run("approve", name, user="ada@example.com") == 1
    assert capsys.readouterr().err == "taintctl: nothing was decided\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert controlled.run("approve", name, user="ada@example.com") == 2
    assert "there is no terminal to ask on; use --yes" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", Terminal(""))
    assert controlled.run("approve", name, user="ada@example.com") == 130
    assert controlled.get("maintenanceruns", name)["status"]["approval"].get("given", []) == []  # type: ignore[index]
    finish(controlled, name)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_page_itself_follows(
    controlled: Lab, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-03", "--device", "gpu-1", "--name", "seen")
    finish(controlled, name)
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    assert controlled.run("status", name, "--watch") == 1
    page = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "Run seen: Cancelled (Cancelled)" in page
    assert "Next: " in page


def test_who_may_not_approve_is_told_in_one_line(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-04", "--device", "gpu-2", "--name", "viewer")
    capsys.readouterr()
    assert controlled.run("approve", name, "--yes", user="nobody@example.com") == 1
    error = capsys.readouterr().err
    assert 'User "nobody@example.com" cannot create resource "maintenanceapprovals"' in error
    assert "ask for that right" in error
    assert error.count("\n") == 1
    finish(controlled, name)


def test_pause_and_resume(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-04", "--device", "gpu-3", "--name", "paused")
    assert controlled.run("resume", name) == 1
    assert "run paused is not paused" in capsys.readouterr().err
    assert controlled.run("pause", name, "--wait") == 0
    capsys.readouterr()
    assert controlled.run("explain", name) == 0
    assert "Paused: Somebody paused the run." in capsys.readouterr().out
    assert controlled.run("pause", name) == 0
    assert "is paused already" in capsys.readouterr().out
    for verb in ("complete", "release"):
        assert controlled.run(verb, name) == 1
    assert capsys.readouterr().err.count("\n") == 2
    assert controlled.run("resume", name, "--wait") == 0
    controlled.until_phase(name, "AwaitingApproval")
    finish(controlled, name)
    assert controlled.get("maintenanceruns", name)["status"]["phase"] == "Cancelled"  # type: ignore[index]


def test_plan_says_what_it_would_hit_and_changes_nothing(controlled: Lab, capsys: Captured) -> None:
    writes: list[str] = []
    stop = controlled.call(lambda: controlled.sandbox.store.subscribe(None, lambda event: writes.append(event.user)))
    # The built-in policy respects budgets, and inference's budget allows one disruption of the three.
    assert controlled.run("plan", "--driver", "gpu.example.com", "--pool", "gpu-worker-01") == 1
    out = capsys.readouterr().out
    assert "NotReachedByTaint (1)" in out
    assert "team-b/notebook-0" in out
    assert "Would be blocked: 1 violation of policy (built in). Nothing was changed." in out
    assert controlled.run("plan", "--driver", "gpu.example.com", "--pool", "gpu-worker-02") == 0
    out = capsys.readouterr().out
    assert "Needs the approval of 1 person: the policy approves nothing by itself. Nothing was changed." in out
    assert controlled.run("plan", "--driver", "gpu.example.com", "--pool", "gpu-worker-01", "-o", "json") == 1
    plan = json.loads(capsys.readouterr().out)
    assert plan["kind"] == "Plan"
    assert plan["counts"] == {
        "devices": 4,
        "unavailable": 4,
        "published": 16,
        "pods": 5,
        "namespaces": 2,
        "workloads": 5,  # none of the fleet's pods has an owner
        "toleratingPods": 1,
        "lostPods": 0,
    }
    assert plan["rules"] == [
        {"driver": "gpu.example.com", "pool": "gpu-worker-01", "device": None}
        | {"published": 4, "allocated": 7, "pods": 4, "namespaces": 2}
    ]
    assert {p["name"]: p["effect"] for p in plan["pods"]}["notebook-0"] == "NotReachedByTaint"
    controlled.call(stop)
    assert "admin" not in writes


def test_a_plan_that_policy_forbids_is_exit_status_1(controlled: Lab, capsys: Captured, tmp_path: Path) -> None:
    policy = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": "tight"},
        "spec": {"limits": {"maxPods": 2}, "budgets": "Warn"},
    }
    controlled.call(lambda: controlled.sandbox.apply([policy]))
    arguments = ("plan", "--driver", "gpu.example.com", "--pool", "gpu-worker-01", "--policy", "tight")
    assert controlled.run(*arguments) == 1
    out = capsys.readouterr().out
    assert "over the limit" in out
    assert "Would be blocked: 1 violation of policy tight. Nothing was changed." in out
    assert "Warning budgets" in out
    assert controlled.run(*arguments[:-1], "loose") == 1
    assert "there is no EvictionPolicy loose; `kubectl get evp` lists what there is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("plan", "--driver", "gpu.example.com"), 1, "WholeDriver: "),
        (("plan", "--driver", "gpu.nowhere.com"), 1, "NoDevices: "),
        (("plan",), 2, "name the devices: --driver with --pool or --device, --node-selector"),
        (("plan", "--pool", "x"), 2, "spec.target: pool and device need a driver"),
        (("plan", "--device-class", "none"), 1, "DeviceClassNotFound: There is no DeviceClass none"),
        (("plan", "--uuid", "GPU-typo"), 1, "NoDevices: None of the "),
        (("plan", "--selector", "device.driver"), 1, "SelectorFailed: target.selectors[0] cannot be decided for"),
        (("plan", "--driver", "GPU!"), 2, "spec.target.driver"),
        (("plan", "--driver", "d", "--window", "w"), 2, "give one of"),
        (("plan", "--window", "nightly"), 1, "there is no MaintenanceWindow nightly; `taintctl status` lists"),
        (("start", "--driver", "d", "--window", "w"), 2, "not both"),
        (("start", "--driver", "d", "--duration", "1h", "--deadline", "2999-01-01T00:00:00Z"), 2, "not both"),
        (("start", "--driver", "d", "--start-at", "2999-01-02T00:00:00Z", "--deadline", "2999-01-01T00:00:00Z"), 2,
         "spec.deadline: must be after spec.startAt"),
        (("start", "--driver", "d", "--name", "Not A Name"), 2, "--name 'Not A Name' is no Kubernetes name"),
        (("start", "--driver", "d", "--deadline", "2020-01-01T00:00:00Z"), 2,
         "the deadline 2020-01-01 00:00:00 UTC has passed"),
        (("status", "none"), 1, "there is no MaintenanceRun none; `taintctl status` lists what there is"),
        (("explain", "none"), 1, "there is no run and no window none"),
        (("status", ""), 1, "there is no MaintenanceRun ;"),
        (("status", "../evictionpolicies/careful"), 1, "there is no MaintenanceRun ../evictionpolicies/careful;"),
        (("explain", "\x1b[2J"), 1, "there is no run and no window \\x1b[2J;"),
        (("approve", "none"), 1, "there is no MaintenanceRun none"),
        (("cancel", "none", "--now"), 1, "there is no MaintenanceRun none"),
        (("schedule", "none"), 1, "there is no MaintenanceWindow none"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    controlled: Lab, arguments: tuple[str, ...], status: int, said: str, capsys: Captured
) -> None:
    assert controlled.run(*arguments) == status
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_start_refuses_what_can_come_to_no_plan_as_plan_does_and_warns_of_what_may_come(
    controlled: Lab, capsys: Captured
) -> None:
    said = []
    for verb in ("plan", "start"):
        assert controlled.run(verb, "--driver", "gpu.example.com") == 1
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert said[0].err.startswith("taintctl: WholeDriver: The target comes to every device of driver gpu.example.com")
    assert said[0].err.endswith(" On the command line that is --whole-driver.\n")
    assert controlled.run("start", "--driver", "gpu.example.com", "--pool", "later", "--name", "early") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("NoDevices: ")
    assert captured.err.endswith("The run is made and looks again until its deadline.\n")
    assert captured.out.endswith("Next: taintctl status early --watch\n")
    assert controlled.run("cancel", "early") == 0
    assert capsys.readouterr().out == "Run early is asked to end.\nNext: taintctl status early --watch\n"
    controlled.until_phase("early", "Cancelled")


def test_windows_are_listed_explained_scheduled_and_started(controlled: Lab, capsys: Captured) -> None:
    window = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "MaintenanceWindow",
        "metadata": {"name": "yearly"},
        "spec": {
            "schedule": {"cron": "30 2 1 1 *", "timeZone": "America/New_York", "duration": "2h"},
            "target": {"driver": "gpu.example.com", "pool": "gpu-worker-03"},
            "notice": "5m",
            "drain": {"mode": "Evict", "timeout": "1h"},
        },
    }
    controlled.call(lambda: controlled.sandbox.apply([window]))
    controlled.until(
        lambda: (
            "nextStart"
            in controlled.sandbox.store.get("maintenancewindows.taintctl.dev", None, "yearly").get("status", {})
        )
    )
    assert controlled.run("status", "-o", "wide") == 0
    assert "30 2 1 1 * America/New_York" in capsys.readouterr().out
    assert controlled.run("explain", "yearly") == 0
    assert "Window yearly: it waits for its next start." in capsys.readouterr().out
    assert controlled.run("schedule", "yearly", "-n", "2", "-o", "yaml") == 0
    starts = yaml.safe_load(capsys.readouterr().out)["starts"]
    assert [start["start"][4:] for start in starts] == ["-01-01T07:30:00Z"] * 2
    assert controlled.run("start", "--window", "yearly", "--reason", "now", "--drain-timeout", "5m") == 0
    found = re.match(r"Run (yearly-\w+) is made", capsys.readouterr().out)
    assert found is not None
    raw = controlled.get("maintenanceruns", found[1])
    assert raw is not None
    assert raw["spec"]["notice"] == "5m"
    assert raw["spec"]["drain"] == {"mode": "Evict", "timeout": "5m"}, "what was not said is the window's"
    target = raw["spec"]["target"]
    assert (target["driver"], target["pool"], target["wholeDriver"]) == ("gpu.example.com", "gpu-worker-03", False)
    assert raw["spec"]["trigger"]["windowName"] == "yearly"
    assert controlled.run("start", "--window", "yearly", "--name", found[1]) == 1
    assert f"there is a run {found[1]} already" in capsys.readouterr().err
    finish(controlled, found[1])
    capsys.readouterr()
    assert controlled.run("status", "-o", "json") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert {item["kind"] for item in items} == {"MaintenanceWindow", "MaintenanceRun"}
    assert controlled.run("status", found[1], "-o", "yaml") == 0
    assert yaml.safe_load(capsys.readouterr().out)["status"]["phase"] == "Cancelled"


def test_plan_from_a_file(controlled: Lab, capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    spec: dict[str, Any] = {"target": {"driver": "gpu.example.com", "pool": "gpu-worker-02"}}
    spec["deadline"] = "2999-01-01T00:00:00Z"
    body = {"apiVersion": "taintctl.dev/v1alpha1", "kind": "MaintenanceRun", "metadata": {"name": "x"}, "spec": spec}
    file.write_text(yaml.safe_dump(body))
    assert controlled.run("plan", "-f", str(file)) == 0
    assert "team-a/train-02" in capsys.readouterr().out
    spec["target"]["devcie"] = "gpu-0"
    file.write_text(yaml.safe_dump(body))
    assert controlled.run("plan", "-f", str(file)) == 2
    assert "spec.target.devcie: is not a field of this API" in capsys.readouterr().err


def test_a_window_whose_schedule_cannot_be_is_neither_planned_nor_started(
    controlled: Lab, capsys: Captured, tmp_path: Path
) -> None:
    window = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "MaintenanceWindow",
        "metadata": {"name": "never"},
        "spec": {
            "schedule": {"cron": "61 * * * *", "duration": "2h"},
            "target": {"driver": "gpu.example.com", "pool": "gpu-worker-02"},
        },
    }
    file = tmp_path / "window.yaml"
    file.write_text(yaml.safe_dump(window))
    said = "spec.schedule: 61 is out of range for the minute (0 to 59)"
    assert controlled.run("plan", "-f", str(file)) == 2
    assert capsys.readouterr() == ("", f"taintctl: {file}: {said}\n")
    controlled.call(lambda: controlled.sandbox.apply([window]))
    for command in ("plan", "start"):
        assert controlled.run(command, "--window", "never") == 1
        error = f"taintctl: window never is not valid: {said}; correct it: kubectl edit mw never\n"
        assert capsys.readouterr() == ("", error)


def test_devices_names_users_taints_and_who_set_them(controlled: Lab, capsys: Captured) -> None:
    controlled.call(
        lambda: controlled.sandbox.taint_device("gpu-worker-03", "gpu-3", "gpu.example.com/xid", "NoSchedule", "79")
    )
    assert controlled.run("devices") == 0
    out = capsys.readouterr().out
    assert "NoSchedule by its driver" in out
    assert re.search(r"^  gpu.example.com/xid=79:NoSchedule +its driver +1$", out, re.MULTILINE)
    assert "team-b/notebook-0 (extended resource)" in out
    assert controlled.run("devices", "--driver", "gpu.example.com", "-o", "json") == 0
    items = json.loads(capsys.readouterr().out)["items"]
    assert len(items) == 16
    shared = next(item for item in items if item["pool"] == "gpu-worker-01" and item["device"] == "gpu-1")
    names = [user["name"] for user in shared["users"]]
    assert names == ["dcgm-0", "inference-0", "inference-1", "inference-2"]
    assert controlled.run("devices", "--driver", "gpu.nowhere.com") == 0
    assert capsys.readouterr().out == "No device matches; `taintctl devices` without options lists all there are.\n"


def test_the_name_of_an_approval_follows_from_what_it_says() -> None:
    same = [approval("r", "a" * 64, ApprovalDecision.APPROVE, "ada", comment) for comment in ("x", None)]
    other = [
        approval("r", "a" * 64, ApprovalDecision.DENY, "ada", None),
        approval("r", "b" * 64, ApprovalDecision.APPROVE, "ada", None),
        approval("r", "a" * 64, ApprovalDecision.APPROVE, "bob", None),
        approval("r" * 253, "a" * 64, ApprovalDecision.APPROVE, "ada", None),
    ]
    assert same[0]["metadata"] == same[1]["metadata"]
    names = {body["metadata"]["name"] for body in (*same, *other)}
    assert len(names) == 5
    assert max(map(len, names)) <= 253


def test_every_flag_of_start_reaches_the_run(controlled: Lab, capsys: Captured) -> None:
    assert controlled.run(
        *("start", "--driver", "gpu.example.com", "--pool", "gpu-worker-02", "--device", "gpu-1", "--policy", "nights"),
        *("--notice", "90s", "--work-duration", "2h", "--reason", "fans"),
        *("--drain-mode", "Evict", "--drain-timeout", "5m"),
        *("--start-at", "2999-01-01T00:00:00+01:00", "--duration", "3h"),
    ) == 0  # fmt: skip
    out = capsys.readouterr().out
    found = re.match(
        r"Run (gpu-worker-02-gpu-1-\w+) is made; nothing is evicted before 2998-12-31 23:00:00 UTC and", out
    )
    assert found is not None
    raw = controlled.get("maintenanceruns", found[1])
    assert raw is not None
    spec = raw["spec"]
    assert (spec["policyName"], spec["notice"], spec["drain"]) == (
        "nights",
        "1m30s",
        {"mode": "Evict", "timeout": "5m"},
    )
    assert (spec["startAt"], spec["deadline"]) == ("2998-12-31T23:00:00Z", "2999-01-01T02:00:00Z")
    assert spec["work"] == {"mode": "Duration", "duration": "2h"}
    assert (spec["target"]["driver"], spec["target"]["device"]) == ("gpu.example.com", "gpu-1")
    controlled.until_phase(found[1], "Blocked")
    assert controlled.run("explain", found[1]) == 0
    assert "PolicyNotFound: The EvictionPolicy that the run names does not exist." in capsys.readouterr().out
    finish(controlled, found[1])


def test_where_two_must_approve_the_first_is_told_so(controlled: Lab, capsys: Captured) -> None:
    policy = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": "pairs"},
        "spec": {"approval": {"count": 2, "required": "Always"}},
    }
    window = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "MaintenanceWindow",
        "metadata": {"name": "paired"},
        "spec": {
            "suspend": True,
            "schedule": {"cron": "0 3 * * *", "duration": "1h"},
            "target": {"driver": "gpu.example.com", "pool": "gpu-worker-02"},
            "policyName": "pairs",
        },
    }
    controlled.call(lambda: controlled.sandbox.apply([policy, window]))
    assert controlled.run("plan", "--window", "paired") == 0
    assert "Needs the approval of 2 people: the policy always asks." in capsys.readouterr().out
    assert controlled.run("start", "--window", "paired", "--name", "pair") == 0
    controlled.until_phase("pair", "AwaitingApproval")
    capsys.readouterr()
    assert controlled.run("approve", "pair", "--yes", user="ada@example.com") == 0
    assert "1 more person must approve." in capsys.readouterr().out
    assert controlled.run("approve", "pair", "--yes", user="ada@example.com") == 0
    out = capsys.readouterr().out
    assert "ada@example.com said that already" in out
    assert out.endswith("1 more person must approve.\nNext: taintctl status pair --watch\n")
    assert controlled.run("status") == 0
    assert "suspended" in capsys.readouterr().out
    finish(controlled, "pair")


def test_who_started_a_run_is_told_that_another_person_has_to_approve_it(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-03", "--device", "gpu-3", "--name", "own")
    assert controlled.run("approve", name, "--yes") == 1
    assert (
        "you (admin) asked for run own, and policy (built in) has no approval.selfApproval" in capsys.readouterr().err
    )
    assert controlled.run("deny", name, "--yes") == 0
    controlled.until_phase(name, "Cancelled")


def test_protected_pods_are_shown_and_go_with_a_break(controlled: Lab, capsys: Captured) -> None:
    policy = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": "guarded"},
        "spec": {
            "limits": {"maxDevices": "25%", "maxUnavailable": "50%"},
            "autoApprove": {"maxPods": 100},
            "protected": {"namespaces": ["team-a"]},
        },
    }
    controlled.call(lambda: controlled.sandbox.apply([policy]))
    target = ("--driver", "gpu.example.com", "--pool", "gpu-worker-02", "--policy", "guarded")
    assert controlled.run("plan", *target) == 1
    out = capsys.readouterr().out
    # 16 devices are published; what other tests' runs keep out, if anything, is beside these four.
    assert re.search(r"^  devices +4 +4 \(25% of 16\) +- ", out, re.MULTILINE)
    assert re.search(r"^  out of service +\d+ +8 \(50% of 16\) +- ", out, re.MULTILINE)
    assert "Violation protected: The policy protects 1 pod of the plan by namespaces team-a" in " ".join(out.split())
    assert "Would wait for a Break: the policy protects pods of it" in out
    assert controlled.run("plan", *target, "-o", "json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["approval"] == {"needed": 1, "breakNeeded": True}
    assert [v["limit"] for v in document["violations"]] == ["namespaces team-a"]
    assert controlled.run("start", *target, "--name", "guarded", "--start-at", "2999-01-01T00:00:00Z") == 0
    controlled.until_phase("guarded", "AwaitingApproval")
    capsys.readouterr()
    assert controlled.run("explain", "guarded") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "one of the approvals must be a Break" in out
    assert "taintctl approve guarded --break" in out
    assert controlled.run("approve", "guarded", "--yes", user="ada@example.com") == 0
    out = capsys.readouterr().out
    assert "Violation protected" in out
    assert "somebody has to give a Break: taintctl approve guarded --break" in " ".join(out.split())
    assert controlled.run("approve", "guarded", "--break", "--yes", user="ada@example.com") == 0
    assert "MaintenanceApproval guarded-break-" in capsys.readouterr().out

    def broken() -> bool:
        run = controlled.sandbox.store.get("maintenanceruns.taintctl.dev", None, "guarded")
        return any(given["breaks"] for given in run["status"]["approval"].get("given", ()))

    controlled.until(broken)
    assert controlled.run("status", "guarded") == 0
    assert "ada@example.com (Break) at" in capsys.readouterr().out
    finish(controlled, "guarded")


def test_watching_outlives_an_api_server_that_is_away_for_a_while(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-03", "--device", "gpu-2", "--name", "outage")
    runs = "maintenanceruns.taintctl.dev"

    def away_then_cancelled() -> None:
        # As often as the client tries one read, so that one look fails and the next is answered.
        controlled.sandbox.faults.fail(503, verbs=["get"], resources=[runs], users=["admin"], names=[name], times=4)
        controlled.sandbox.store.mutate(runs, None, name, lambda run: run["spec"].update(cancelled=True))

    controlled.loop.call_soon_threadsafe(lambda: controlled.loop.call_later(0.2, away_then_cancelled))
    assert controlled.run("status", name, "--watch") == 1
    out = capsys.readouterr().out
    assert out.count("Trying again.") == 1
    assert "-> Cancelled (Cancelled)" in out


def test_a_run_that_is_deleted_while_it_is_watched(controlled: Lab, capsys: Captured) -> None:
    name = started(controlled, capsys, "--pool", "gpu-worker-03", "--device", "gpu-0", "--name", "deleted")
    delete = lambda: controlled.sandbox.store.delete("maintenanceruns.taintctl.dev", None, name)  # noqa: E731
    controlled.loop.call_soon_threadsafe(lambda: controlled.loop.call_later(0.2, delete))
    assert controlled.run("status", name, "--watch") == 1
    error = capsys.readouterr().err
    assert "run deleted was deleted meanwhile" in error or "ended as Cancelled" in error


def test_somebody_whom_the_policy_does_not_name_is_told_so(controlled: Lab, capsys: Captured) -> None:
    policy = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": "named"},
        "spec": {"approval": {"required": "Always", "approvers": [{"name": "cid@example.com"}]}, "budgets": "Ignore"},
    }
    controlled.call(lambda: controlled.sandbox.apply([policy]))
    name = started(controlled, capsys, "--pool", "gpu-worker-03", "--policy", "named", "--name", "notyours")
    for verb in ("approve", "deny"):
        assert controlled.run(verb, name, "--yes", user="ada@example.com") == 1
        error = capsys.readouterr().err
        assert error == (
            "taintctl: policy named counts what cid@example.com decides, and you are ada@example.com; "
            "ask them, or stop the run: taintctl cancel\n"
        )
    finish(controlled, name)


def test_a_run_that_is_deleted_and_then_completed_is_done_when_it_is_gone(controlled: Lab, capsys: Captured) -> None:
    policy = {
        "apiVersion": "taintctl.dev/v1alpha1",
        "kind": "EvictionPolicy",
        "metadata": {"name": "at-once"},
        "spec": {"approval": {"required": "Never"}, "budgets": "Ignore"},
    }
    controlled.call(lambda: controlled.sandbox.apply([policy]))
    target = ("--pool", "gpu-worker-03", "--device", "gpu-3", "--policy", "at-once")
    assert controlled.run("start", "--driver", "gpu.example.com", *target, "--name", "goes", "--wait") == 0
    controlled.call(lambda: controlled.sandbox.store.delete("maintenanceruns.taintctl.dev", None, "goes"))
    capsys.readouterr()
    assert controlled.run("complete", "goes", "--wait") == 0
    assert "Run goes has ended" in capsys.readouterr().out or controlled.get("maintenanceruns", "goes") is None
