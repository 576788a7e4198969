"""Who would be hit: devices, claims, pods, budgets, and what the control plane must say of them. Pure."""

from taintctl.impact.allocations import selects
from taintctl.impact.criteria import pools_meant, target_problems
from taintctl.impact.idle import idleness
from taintctl.impact.message import DryRunMessage, parse
from taintctl.impact.plan import build_plan, predict
from taintctl.impact.targets import may_mean

__all__ = [
    "DryRunMessage",
    "build_plan",
    "idleness",
    "may_mean",
    "parse",
    "pools_meant",
    "predict",
    "selects",
    "target_problems",
]
