"""Where a run is on its way, in one line that reads the same without colour."""

from __future__ import annotations

from taintctl.api.reasons import Phase
from taintctl.api.run import RunStatus
from taintctl.cli.text import BAD, DIM, GOOD, STRONG, Line, line, styled

RUNGS = (
    Phase.DRY_RUN,
    Phase.AWAITING_APPROVAL,
    Phase.NOTICE,
    Phase.EVICTING,
    Phase.DRAINING,
    Phase.IN_MAINTENANCE,
    Phase.RELEASING,
    Phase.SUCCEEDED,
)
"""The straight way. AwaitingApproval is also where a run waits for its start."""


def ladder(status: RunStatus) -> Line:
    """`[x] DryRun  [>] AwaitingApproval  [ ] Notice …`: x done, > here, ! not on the way any more."""
    phase = status.phase or Phase.PENDING
    if phase in RUNGS:
        here = RUNGS.index(phase)
        marks = ["x" if i < here or phase.ended else ">" if i == here else " " for i in range(len(RUNGS))]
        return _line(marks, None)
    if phase is Phase.PENDING:
        return _line([" "] * len(RUNGS), (Phase.PENDING, ">"))
    if phase is Phase.BLOCKED:
        return _line(["!"] + [" "] * (len(RUNGS) - 1), (Phase.BLOCKED, ">"))
    reached = _reached(status)
    marks = ["x" if i < reached else " " for i in range(len(RUNGS))]
    return _line(marks, (phase, "x" if phase.ended else ">"))


def _reached(status: RunStatus) -> int:
    """How many rungs the run had climbed since its last dry run, by its history."""
    highest = 0
    for entry in status.history:
        rung = next((i for i, phase in enumerate(RUNGS) if phase == entry.to), None)
        if rung == 0 or entry.to == Phase.BLOCKED:
            highest = 1 if rung == 0 else 0
        elif rung is not None:
            highest = max(highest, rung + 1)
    return highest


def _line(marks: list[str], aside: tuple[Phase, str] | None) -> Line:
    styles = {"x": GOOD, ">": STRONG, "!": BAD, " ": DIM}
    parts = [styled(f"[{mark}] {phase}", styles[mark]) for mark, phase in zip(marks, RUNGS, strict=True)]
    if aside:
        phase, mark = aside
        style = STRONG if phase is Phase.PENDING else BAD
        aside_part = styled(f"[{mark}] {phase}", style)
        parts = [aside_part, *parts] if phase in (Phase.PENDING, Phase.BLOCKED) else [*parts, aside_part]
    spaced = [piece for part in parts for piece in ("  ", part)]
    return line(*spaced[1:])
