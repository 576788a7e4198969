"""Who would be hit: devices, claims, pods, budgets, and what the control plane must say of them. Pure."""

from taintctl.impact.idle import idleness
from taintctl.impact.message import DryRunMessage, parse
from taintctl.impact.plan import build_plan, predict

__all__ = ["DryRunMessage", "build_plan", "idleness", "parse", "predict"]
