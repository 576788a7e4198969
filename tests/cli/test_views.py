from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from taintctl.api.approval import ApprovalDecision
from taintctl.api.check import check
from taintctl.api.objects import Unread
from taintctl.api.reasons import Phase, Reason
from taintctl.api.run import MaintenanceRun
from taintctl.api.window import MaintenanceWindow
from taintctl.cli.commands.approval import approval
from taintctl.cli.follow import News
from taintctl.cli.views.explain import explain_run, explain_window, next_command, time_limit
from taintctl.cli.views.ladder import ladder
from taintctl.cli.views.lists import run_list, window_list
from taintctl.cli.views.run import run_view
from taintctl.cli.views.words import WORDS
from tests.cli.builders import AWAITING, NOW, at, plain, policy, run, window

PAGE = """\
Run nightly-1: AwaitingApproval (WaitingForApproval) for 60s
  1 approval needed.
  [x] DryRun  [>] AwaitingApproval  [ ] Notice  [ ] Evicting  [ ] Draining  [ ] InMaintenance  [ ] Releasing  \
[ ] Succeeded

  Target:        gpu.example.com, pool node-1
  Taint:         taintctl.dev/maintenance=nightly-1
  Policy:        careful
  Asked for by:  olga: firmware
  Start:         as soon as it may
  Deadline:      2026-12-02 05:00:00 UTC (in 7h57m), then Release
  Notice:        0s (at least 10s), then pods may take 30m
  Work:          until `taintctl complete nightly-1`

Plan (made at 2026-12-01 21:01:59 UTC)
  COUNT        PLAN   LIMIT   AUTO-APPROVE
  pods         2      1       -              over the limit
  namespaces   2      -       1              asks for approval
  workloads    2      2       -              within
  devices      1      4       2              within

Devices
  POOL     DEVICE   NODE     UUID
  node-1   gpu-0    node-1   GPU-1

Pods
Evicted (1): the taint deletes them at once
  POD       OWNER
  a/train   Job/train
NotReachedByTaint (1): extended resource: the taint neither counts nor deletes them; taintctl evicts them
  POD      OWNER
  b/book   no owner: nothing brings it back

Lost with them (other pods of their gangs: not evicted, and counted by no limit)
  3 more pods of PyTorchJob a/big run elsewhere and are lost with it: big-worker-1, big-worker-2 and 1 more

Budgets (PodDisruptionBudgets; the taint itself does not honour them)
  BUDGET   NEEDED   ALLOWED
  a/pdb    1        0         would break

Rules (what the control plane's dry run says, beside our own count of pods)
  SELECTOR   EFFECT   PODS   PREDICTED            EVICTING
  node-1     None     1      1           agreed   False

Approval: 1 of 2 given
  ada at 2026-12-01 21:02:30 UTC: go
  1 more wanted, until 2026-12-01 21:32:00 UTC (in 29m)

Conditions
  TYPE       STATUS   FOR   REASON     MESSAGE
  Accepted   True     60s   Accepted   Fine.

History
  AT                        FROM      TO                 REASON
  2026-12-01 21:01:58 UTC   -         Pending            Created
  2026-12-01 21:01:59 UTC   Pending   DryRun             WaitingForDryRun
  2026-12-01 21:02:00 UTC   DryRun    AwaitingApproval   WaitingForApproval

Next: taintctl approve nightly-1"""


def test_the_page_of_a_run_that_waits_for_approval() -> None:
    limits = policy(
        limits={"maxPods": 1, "maxWorkloads": 2, "maxDevices": 4}, autoApprove={"maxNamespaces": 1, "maxDevices": 2}
    )
    assert plain(run_view(run(**AWAITING), limits, NOW)) == PAGE


EVICTS = {"drain": {"mode": "Evict", "timeout": "10m"}}
FORCES = {"drain": {"forceAtTimeout": True}}


def test_a_run_that_drains_by_the_eviction_api_says_what_becomes_of_pods_and_budgets() -> None:
    plan = {**AWAITING["plan"], "multipleBudgets": ["a/train"]}
    page = plain(run_view(run(**{**AWAITING, "plan": plan}, spec=EVICTS), policy(), NOW))
    assert "  Drain:         through the Eviction API, and by NoExecute never" in page
    assert "Evicted (1): taintctl evicts them through the Eviction API" in page
    assert "Budgets (PodDisruptionBudgets; the Eviction API honours them)" in page
    assert "a/pdb    1        0         is waited for" in page
    assert "  Several budgets select a/train: the Eviction API never decides." in page
    forced = plain(run_view(run(**AWAITING, spec=EVICTS), policy(**FORCES), NOW))
    assert "  Drain:         through the Eviction API, then NoExecute for what is left" in forced
    assert "the Eviction API honours them until drain.timeout, NoExecute after it does not" in forced
    assert "a/pdb    1        0         would break" in forced


def test_what_was_forced_or_was_not_is_on_the_page() -> None:
    draining: dict[str, Any] = {"phase": "Draining", "phaseSince": at(60)}
    eviction = {"startedAt": at(900), "forcedAt": at(60)}
    page = plain(run_view(run(**draining, eviction=eviction, spec=EVICTS), policy(**FORCES), NOW))
    assert "NoExecute for what was left, 2026-12-01 21:02:00 UTC (60s ago)" in page
    why = "NoExecute was not set for what is left (PlanChanged): A pod came."
    eviction = {"startedAt": at(900), "notForcedAt": at(60), "notForced": why}
    page = plain(run_view(run(**draining, eviction=eviction, spec=EVICTS), policy(**FORCES), NOW))
    assert why in page


def test_explain_says_when_a_drain_is_forced() -> None:
    begun: dict[str, Any] = {"phase": "Draining", "eviction": {"startedAt": at(60)}}
    limit = time_limit(run(**begun, spec=EVICTS), policy(**FORCES))
    assert limit is not None
    assert (limit.at, limit.then) == (
        NOW + timedelta(minutes=9),
        "what is left then gets NoExecute, if a second look and the gate let it",
    )
    unforced = time_limit(run(**begun, spec=EVICTS), policy())
    assert unforced is not None
    assert "the taint comes off" in unforced.then
    begun["eviction"]["forcedAt"] = at(0)
    again = time_limit(run(**begun, spec=EVICTS), policy(**FORCES))
    assert again is not None
    assert again.at == NOW + timedelta(minutes=10)
    assert "the taint comes off" in again.then


def test_a_run_that_no_controller_has_seen_says_so() -> None:
    page = plain(run_view(run(), None, NOW))
    assert "No controller has looked at this run yet; is `taintctl run` running?" in page
    assert "careful (not readable)" in page
    assert "[>] Pending  [ ] DryRun" in page


def test_hostile_names_stay_in_their_line() -> None:
    status = {**AWAITING, "plan": {**AWAITING["plan"], "pods": [_pod("[red]\x1b[2Jx\nRun fake: Succeeded")]}}
    page = plain(run_view(run(**status), None, NOW))
    assert "\x1b" not in page
    assert "  a/[red]\\x1b[2Jx Run fake: Succeeded   no owner" in page


def _pod(name: str) -> dict[str, str]:
    return {"namespace": "a", "name": name, "uid": "p", "effect": "Evicted"}


def test_a_long_plan_is_shortened_unless_wide() -> None:
    pods = [_pod(f"pod-{i:02d}") for i in range(25)]
    status = {**AWAITING, "plan": {**AWAITING["plan"], "pods": pods, "morePods": 7}}
    short, wide = (plain(run_view(run(**status), None, NOW, wide=w)) for w in (False, True))
    assert "pod-19" in short
    assert "pod-20" not in short
    assert "  and 5 more (-o wide shows them)" in short
    assert "pod-24" in wide
    assert "and 7 pods more that the status does not list" in wide


def test_eviction_says_who_evicted_and_what_blocks() -> None:
    eviction = {
        "startedAt": at(20),
        "pending": 2,
        "terminating": [{"namespace": "a", "name": "slow", "uid": "s"}],
        "late": [{"namespace": "c", "name": "late", "uid": "l"}],
        "evictedByTaint": 3,
        "evictedByTaintctl": 1,
        "blockedBy": ["a/book: budget a/pdb"],
    }
    page = plain(run_view(run(**{**AWAITING, "phase": "Draining", "eviction": eviction}), None, NOW))
    assert "  Evicted:      3 by the taint, 1 by taintctl" in page
    assert "  Still there:  2 to go, 1 terminating" in page
    assert "  Terminating:  a/slow" in page
    assert "  Came late:    c/late: not in the approved plan, so taintctl leaves them" in page
    assert "  Blocked by:   a/book: budget a/pdb" in page


@pytest.mark.parametrize(
    ("phase", "history", "shown"),
    [
        ("Pending", [], "[>] Pending  [ ] DryRun  [ ] AwaitingApproval"),
        ("Blocked", ["DryRun", "Blocked"], "[>] Blocked  [!] DryRun  [ ] AwaitingApproval"),
        (
            "Evicting",
            ["DryRun", "Evicting"],
            "[x] DryRun  [x] AwaitingApproval  [x] Notice  [>] Evicting  [ ] Draining",
        ),
        ("RollingBack", ["DryRun", "AwaitingApproval", "RollingBack"], "[x] AwaitingApproval  [ ] Notice"),
        ("Cancelled", ["DryRun", "AwaitingApproval", "RollingBack", "Cancelled"], "[ ] Succeeded  [x] Cancelled"),
        ("Succeeded", ["Releasing", "Succeeded"], "[x] Releasing  [x] Succeeded"),
        # A new dry run starts the ladder over.
        ("Failed", ["DryRun", "Notice", "DryRun", "RollingBack", "Failed"], "[x] DryRun  [ ] AwaitingApproval"),
    ],
)
def test_the_ladder_shows_where_a_run_is(phase: str, history: list[str], shown: str) -> None:
    entries = [{"at": at(1), "to": to, "reason": "x"} for to in history]
    assert shown in ladder(run(phase=phase, history=entries).status).plain


def test_every_reason_has_its_words() -> None:
    assert set(WORDS) == set(Reason)


def test_explain_says_why_until_when_and_what_next() -> None:
    assert plain(explain_run(run(**AWAITING), policy(), NOW)) == (
        "Run nightly-1 is in AwaitingApproval, for 60s.\n"
        "  Why:        WaitingForApproval: Somebody has to approve the plan.\n"
        "  In detail:  1 approval needed.\n"
        "  Also:       1 approval of 2 missing\n"
        "  Until:      2026-12-01 21:32:00 UTC (in 29m); without approval the run is then cancelled\n"
        "  Next:       taintctl approve nightly-1"
    )


def test_explain_sends_to_the_controller_where_it_does_not_look() -> None:
    stale = run(**AWAITING, metadata={"generation": 2})
    text = plain(explain_run(stale, None, NOW))
    assert "the controller has not seen the newest spec of this run" in text
    assert next_command(stale, NOW).startswith("taintctl run ")
    fresh = run(metadata={"creationTimestamp": at(2)})
    assert next_command(fresh, NOW) == "taintctl status nightly-1 --watch"
    assert next_command(run(), NOW).startswith("taintctl run ")


@pytest.mark.parametrize(
    ("status", "spec", "expected"),
    [
        ({"phase": "AwaitingApproval", "reason": "WaitingForStart"}, {"startAt": "2026-12-01T22:00:00Z"}, 57 * 60),
        ({"phase": "Blocked"}, {}, 477 * 60),
        ({"phase": "Notice", "rules": [{"name": "r", "effect": "NoSchedule", "effectSince": at(4)}]}, {}, 6),
        (
            {"phase": "Notice", "rules": [{"name": "r", "effect": "NoSchedule", "effectSince": at(4)}]},
            {"notice": "5m"},
            296,
        ),
        ({"phase": "Draining", "eviction": {"startedAt": at(60)}}, {"drain": {"timeout": "2m"}}, 60),
        ({"phase": "InMaintenance", "reason": "WaitingForWork", "workStartedAt": at(60)}, {}, 477 * 60),
        (
            {"phase": "InMaintenance", "reason": "WaitingForWork", "workStartedAt": at(60)},
            {"work": {"mode": "Duration", "duration": "10m"}},
            540,
        ),
        ({"phase": "InMaintenance"}, {"atDeadline": "Extend", "extendBy": "1h"}, 537 * 60),
    ],
)
def test_what_ends_a_wait_by_itself(status: dict[str, Any], spec: dict[str, Any], expected: int) -> None:
    limit = time_limit(run(**status, spec=spec), policy())
    assert limit is not None
    assert limit.at - NOW == timedelta(seconds=expected)


@pytest.mark.parametrize(
    ("status", "spec", "expected"),
    [
        ({"phase": "Notice", "rules": [{"name": "r", "effect": "NoSchedule", "effectSince": at(0)}]}, {}, 2),
        ({"phase": "Draining", "eviction": {"startedAt": at(0)}}, {"drain": {"timeout": "10m"}}, 120),
        (
            {"phase": "InMaintenance", "reason": "WaitingForWork", "workStartedAt": at(0)},
            {"work": {"mode": "Duration", "duration": "10m"}},
            120,
        ),
        ({"phase": "Blocked"}, {}, 477 * 60),
    ],
)
def test_on_a_sandbox_five_times_as_fast_waits_are_a_fifth_and_deadlines_stay(
    status: dict[str, Any], spec: dict[str, Any], expected: int
) -> None:
    limit = time_limit(run(**status, spec=spec), policy(), 5)
    assert limit is not None
    assert limit.at - NOW == timedelta(seconds=expected)


def test_a_drain_that_may_take_until_the_deadline_says_so() -> None:
    draining = run(phase="Draining", eviction={"startedAt": at(60)}, spec={"drain": {"timeout": "2m"}})
    limit = time_limit(draining, policy(rollbackOn=[]))
    assert limit is not None
    assert limit.at == draining.spec.deadline


def test_an_ended_run_waits_for_nothing() -> None:
    over = run(phase="Succeeded", phaseSince=at(5), reason="Completed")
    assert time_limit(over, policy()) is None
    assert plain(explain_run(over, policy(), NOW)).startswith("Run nightly-1 ended as Succeeded, for 5s.")
    assert next_command(over, NOW) == "nothing to do"


def test_explain_a_window() -> None:
    text = plain(explain_window(window(spec={"suspend": True}, nextStart=at(-3600)), (), NOW))
    assert text.splitlines()[0] == "Window nightly: it is suspended and makes no run."
    assert "Next start:  2026-12-01 22:03:00 UTC (in 60m)" in text
    assert "kubectl patch mw nightly" in text
    assert "no controller has looked at it yet" in text
    assert "it has a mistake" in plain(explain_window(window(), ("spec.foo: is not a field",), NOW))
    assert "taintctl explain r" in plain(explain_window(window(activeRun="r"), (), NOW))


def test_a_window_that_the_controller_refuses_is_to_be_edited() -> None:
    refused = {
        "type": "Accepted",
        "status": "False",
        "reason": "InvalidSpec",
        "message": "spec.schedule: 61 is out of range for the minute (0 to 59)",
        "observedGeneration": 1,
    }
    text = plain(explain_window(window(conditions=[refused], metadata={"generation": 1}), (), NOW))
    assert text.splitlines()[0] == "Window nightly: it has a mistake and makes no run."
    assert text.splitlines()[-1].split() == ["Next:", "kubectl", "edit", "mw", "nightly"]
    corrected = plain(explain_window(window(conditions=[refused], metadata={"generation": 2}), (), NOW))
    assert "it has a mistake" not in corrected


def test_the_lists() -> None:
    checked = [
        check(MaintenanceRun, run("old", phase="Succeeded", metadata={"creationTimestamp": at(7200)}).dump()),
        check(MaintenanceRun, run(**AWAITING).dump()),
        check(MaintenanceRun, {"metadata": {"name": "broken"}, "spec": {"target": {"devcie": "x"}}}),
    ]
    lines = plain(run_list(checked, NOW)).splitlines()
    assert [row.split()[0] for row in lines[2:]] == ["nightly-1", "broken", "old"]
    assert lines[2].split() == [
        *("nightly-1", "AwaitingApproval", "WaitingForApproval", "1", "2", "60s", "3m"),
        *("taintctl", "approve", "nightly-1"),
    ]
    assert "unreadable" in lines[3]
    windows = [check(MaintenanceWindow, window(nextStart=at(-600)).dump())]
    assert plain(window_list(windows, NOW)).splitlines() == [
        "Windows",
        "  WINDOW    SCHEDULE                   LASTS   NEXT START   ACTIVE RUN   READY",
        "  nightly   0 21 * * * Europe/Berlin   8h      in 10m       -            ?",
    ]
    assert "No runs." in plain(run_list([], NOW))
    assert "No windows." in plain(window_list([], NOW))


def test_watching_appends_what_is_new_once() -> None:
    news = News()
    first = plain(news.of(run(**AWAITING), "", NOW))
    assert first.splitlines() == [
        "21:01:58  Pending (Created)",
        "21:01:59  Pending -> DryRun (WaitingForDryRun)",
        "21:02:00  DryRun -> AwaitingApproval (WaitingForApproval)",
        "21:03:00  1 approval needed.",
    ]
    assert news.of(run(**AWAITING), "", NOW) == []
    assert plain(news.of(run(**AWAITING), "The API server is away.", NOW)) == "21:03:00  The API server is away."
    assert news.of(run(**AWAITING), "The API server is away.", NOW) == []
    gone = "No controller is at work."
    assert plain(news.of(run(**AWAITING), "", NOW, gone)) == "21:03:00  No controller is at work."
    assert news.of(run(**AWAITING), "", NOW, gone) == []
    moved = {**AWAITING, "history": [*AWAITING["history"], {"at": at(0), "from": "X", "to": "Notice", "reason": "r"}]}
    assert plain(news.of(run(**moved), "", NOW)) == "21:03:00  X -> Notice (r)"


def test_phases_are_all_known_to_the_ladder() -> None:
    for phase in Phase:
        assert f"] {phase}" in ladder(run(phase=str(phase)).status).plain


def test_a_question_that_is_asked_again_is_answered_with_another_approval() -> None:
    """One of the same name would be taken for said already, and what was said before the asking does not count."""

    def name(asked_at: datetime | None) -> str:
        said = approval("run", "d" * 64, ApprovalDecision.APPROVE, "alice@example.com", None, asked_at)
        return str(said["metadata"]["name"])

    first, again = datetime(2026, 12, 1, 21, 0, tzinfo=UTC), datetime(2026, 12, 1, 21, 30, tzinfo=UTC)
    assert name(first) == name(first)
    assert len({name(None), name(first), name(again)}) == 3


@pytest.mark.parametrize("why", list(Unread))
def test_an_owner_that_is_known_in_part_says_why(why: Unread) -> None:
    pod = {"namespace": "a", "name": "p", "uid": "u", "owner": "Flow/f", "ownerUnread": why, "effect": "Evicted"}
    page = plain(run_view(run(phase="DryRun", plan={"pods": [pod]}), None, NOW))
    assert "  a/p   Flow/f (as far as known: " in page
    assert "?)" not in page


def test_a_reason_that_a_later_release_gives_does_not_break_the_page() -> None:
    pod = {"namespace": "a", "name": "p", "uid": "u", "owner": "Flow/f", "ownerUnread": "Later", "effect": "Evicted"}
    assert "Flow/f (as far as known: ?)" in plain(run_view(run(phase="DryRun", plan={"pods": [pod]}), None, NOW))


def test_what_is_lost_with_gangs_is_cut_and_counted() -> None:
    gang = {"namespace": "a", "owner": "LeaderWorkerSet/serve", "part": "2", "hit": 1, "count": 12}
    plan = {"lostWith": [{**gang, "pods": [f"p{n}" for n in range(10)]}], "moreLostWith": 3}
    waiting = run(phase="DryRun", plan=plan)
    page = plain(run_view(waiting, None, NOW))
    said = "12 more pods of LeaderWorkerSet a/serve, replica 2 run elsewhere and are lost with it: p0, p1, p2, p3, p4"
    assert f"  {said} and 7 more\n  and pods of 3 more gangs\n" in page + "\n"
    assert f"{said}, p5, p6, p7, p8, p9 and 2 more" in plain(run_view(waiting, None, NOW, wide=True))


def test_devices_out_of_service_stand_beside_their_limits_and_a_break_is_asked_for() -> None:
    counts = {"devices": 1, "unavailable": 5, "published": 12, "pods": 2, "namespaces": 2}
    asked = {**AWAITING["approval"], "breakNeeded": True}
    waiting = run(**{**AWAITING, "plan": {**AWAITING["plan"], "counts": counts}, "approval": asked})
    mixed = policy(
        limits={"maxDevices": "25%", "maxUnavailable": "33%"}, autoApprove={"maxUnavailable": "1%", "min": 6}
    )
    page = plain(run_view(waiting, mixed, NOW))
    # A quarter of 12 is 3, a third is 3.96, and a hundredth comes to min.
    assert "  devices          1      3 (25% of 12)   -              within" in page
    assert "  out of service   5      3 (33% of 12)   6 (1% of 12)   over the limit" in page
    assert "A Break is wanted: the policy protects pods of the plan." in page
    assert "one of the approvals must be a Break" in plain(explain_run(waiting, mixed, NOW))
    given = {**asked, "given": [{"approval": "x", "approver": "ada", "breaks": True}]}
    broken = run(**{**AWAITING, "approval": given})
    assert "  ada (Break)\n" in plain(run_view(broken, mixed, NOW))
    for said in (plain(run_view(broken, mixed, NOW)), plain(explain_run(broken, mixed, NOW))):
        assert "must be a Break" not in said
        assert "Break is wanted" not in said


def test_explain_says_every_violation_and_how_many_more_there_are() -> None:
    found = [{"check": f"c{n}", "limit": "1", "actual": "2", "message": f"Violation number {n}."} for n in range(22)]
    blocked = run(phase="Blocked", reason="PolicyViolated", plan={**AWAITING["plan"], "violations": found})
    said = plain(explain_run(blocked, policy(), NOW))
    assert "c19: Violation number 19." in said
    assert "c20: " not in said
    assert "and 2 violations more" in said


def test_explain_says_what_the_policy_lets_follow_a_wait() -> None:
    waiting = run(**AWAITING)
    for on_expiry, then in (("Cancel", "the run is then cancelled"), ("AskAgain", "it is asked again")):
        limit = time_limit(waiting, policy(approval={"onExpiry": on_expiry}))
        assert limit is not None
        assert limit.then == f"without approval {then}"
    draining = run(phase="Draining", eviction={"startedAt": at(60)})
    for mode, those in (("Wait", "then make"), ("Ignore", "then and do not tolerate the taint make")):
        limit = time_limit(draining, policy(toleratingPods=mode))
        assert limit is not None
        assert limit.then == f"pods that are still there {those} the run fail, and the taint comes off"


def test_a_paused_run_does_not_say_that_it_goes_on() -> None:
    for phase, then in (
        ("Notice", "nothing happens before somebody resumes it; then the run expires"),
        ("Blocked", "nothing happens before somebody resumes it; then the run expires"),
        ("Draining", "then the taint comes off and the run fails"),
    ):
        paused = run(phase=phase, reason="Paused", spec={"paused": True}, eviction={"startedAt": at(60)})
        limit = time_limit(paused, policy())
        assert limit is not None
        assert limit.then == then
        assert limit.at == paused.spec.deadline


def test_devices_that_wait_for_a_release_are_given_back_by_no_deadline() -> None:
    for reason in ("WaitingForRelease", "RuleDeleted", "HardwareChanged"):
        assert time_limit(run(phase="InMaintenance", reason=reason), policy()) is None
    assert time_limit(run(phase="InMaintenance", reason="WaitingForWork"), policy()) is not None


def test_explain_says_when_a_blocked_run_is_looked_at_again_and_nothing_twice() -> None:
    message = "EvictionPolicy careful does not allow it: Too many pods."
    violation = {"check": "maxPods", "limit": "1", "actual": "2", "message": "Too many pods."}
    plan = {**AWAITING["plan"], "violations": [violation]}
    blocked = run(phase="Blocked", phaseSince=at(20), reason="PolicyViolated", message=message, plan=plan)
    said = plain(explain_run(blocked, policy(), NOW))
    assert said.count("Too many pods.") == 1
    # Every maxAge, which is a minute where the policy says nothing else.
    assert "2026-12-01 21:03:40 UTC (in 40s); it is looked at again then" in said


def test_what_is_over_is_not_said_of_a_run_that_has_ended() -> None:
    unknown = {"type": "DevicesIdle", "status": "Unknown", "reason": "ProvingIdle", "message": "the proof waits"}
    over = run(phase="Cancelled", reason="Denied", conditions=[unknown], approval={"needed": 2, "given": []})
    assert "Also:" not in plain(explain_run(over, policy(), NOW))


def test_who_has_approved_is_not_asked_again() -> None:
    asked = {**AWAITING, "approval": {"needed": 2, "given": [{"approval": "a", "approver": "ada"}]}}
    said = plain(explain_run(run(**asked), policy(), NOW, person="ada"))
    assert re.search(r"Next: +somebody else: taintctl approve nightly-1", said)
    assert "somebody else" not in plain(explain_run(run(**asked), policy(), NOW, person="bob"))


def test_a_window_that_nobody_looked_at_is_not_without_starts() -> None:
    fresh = window()
    fresh = fresh.model_copy(update={"status": fresh.status.model_copy(update={"conditions": (), "next_start": None})})
    assert "no controller has looked at it yet." in plain(explain_window(fresh, (), NOW))


def test_a_policy_that_asks_about_everything_is_not_without_limits() -> None:
    page = plain(run_view(run(**AWAITING), policy(), NOW))
    for count in ("pods         2", "namespaces   2", "workloads    2", "devices      1"):
        assert f"  {count}      -       -              asks for approval\n" in page
    never = plain(run_view(run(**AWAITING), policy(approval={"required": "Never"}), NOW))
    assert "asks for approval" not in never
    assert never.count("   no limit\n") == 4


def test_a_run_that_is_blocked_again_and_again_is_told_once() -> None:
    def looked_at(seconds: float, phase: str, message: str) -> MaintenanceRun:
        moves = [("", "Pending", "Created", 90), ("Pending", "DryRun", "WaitingForDryRun", 89)]
        moves += [("DryRun", "Blocked", "PolicyViolated", 88), ("Blocked", "DryRun", "WaitingForDryRun", seconds)]
        moves += [("DryRun", "Blocked", "PolicyViolated", seconds)] if phase == "Blocked" else []
        history = [{"at": at(ago), "from": start, "to": to, "reason": why} for start, to, why, ago in moves]
        return run(phase=phase, reason="PolicyViolated", message=message, history=history)

    news = News()
    first = plain(news.of(looked_at(80, "Blocked", "Too many pods."), "", NOW))
    assert first.count("Blocked") > 1
    for ago in (70, 60, 50):
        assert news.of(looked_at(ago, "DryRun", "Waiting."), "", NOW) == []
        assert news.of(looked_at(ago, "Blocked", "Too many pods."), "", NOW) == []
    assert "Fewer pods" in plain(news.of(looked_at(40, "Blocked", "Fewer pods."), "", NOW))


def test_wide_shows_all_numbers_of_a_rule() -> None:
    page = plain(run_view(run(**AWAITING), policy(), NOW, wide=True))
    assert (
        "  SELECTOR   EFFECT   PUBLISHED   ALLOCATED   NAMESPACES   PODS   PREDICTED            EVICTING\n"
        "  node-1     None     1           2           1            1      1           agreed   False\n"
    ) in page
