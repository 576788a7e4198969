"""What happens next: phases, the transition table as data, one file a stage, decide(observation, now). Pure."""

from taintctl.workflow.decide import decide
from taintctl.workflow.transitions import TRANSITIONS, ImpossibleTransition, mermaid, move
from taintctl.workflow.window import WindowDecision, WindowObservation, decide_window

__all__ = [
    "TRANSITIONS",
    "ImpossibleTransition",
    "WindowDecision",
    "WindowObservation",
    "decide",
    "decide_window",
    "mermaid",
    "move",
]
