"""May we? An ordered chain of named checks, approvals and their digest, windows and time. Pure."""

from taintctl.policy.approval import Tally, Terms, objection, people_needed, tally
from taintctl.policy.checks import CHECKS, Evaluation, evaluate
from taintctl.policy.digest import compact, covers, digest, newly_protected, other_hardware, uncovered
from taintctl.policy.schedule import Due, Occurrence, due, next_occurrences, run_name, schedule_problem

__all__ = [
    "CHECKS",
    "Due",
    "Evaluation",
    "Occurrence",
    "Tally",
    "Terms",
    "compact",
    "covers",
    "digest",
    "due",
    "evaluate",
    "newly_protected",
    "next_occurrences",
    "objection",
    "other_hardware",
    "people_needed",
    "run_name",
    "schedule_problem",
    "tally",
    "uncovered",
]
