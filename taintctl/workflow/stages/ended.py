"""Succeeded, Failed, Cancelled, Expired: none of our rules is left, so the run is let go: whoever deletes it later
needs no controller."""

from __future__ import annotations

from taintctl.api.base import FINALIZER
from taintctl.workflow.look import Look
from taintctl.workflow.model import Decision, RemoveFinalizer


def decide(look: Look) -> Decision:
    meta = look.obs.run.metadata
    if look.obs.rules:
        # One was put back by hand, or by a create that outlived its caller; it is taken off like the others.
        return Decision(look.status, requeue_after=look.poll)
    if FINALIZER in meta.finalizers:
        return Decision(look.status, (RemoveFinalizer(),))
    return Decision(look.status)
