"""Events are one thing under two names: core/v1 is how they are kept, events.k8s.io/v1 is another way to write them."""

from __future__ import annotations

from taintctl.sandbox.apiserver.meta import Object

_PAIRS = (
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
)


def to_events_v1(obj: Object) -> Object:
    """A core event in the words of events.k8s.io/v1, without kind and apiVersion."""
    names = {core: new for new, core in _PAIRS}
    return {names.get(part, part): value for part, value in obj.items() if part not in ("kind", "apiVersion")}


def from_events_v1(obj: Object) -> Object:
    """The reverse of `to_events_v1`."""
    names = dict(_PAIRS)
    return {names.get(part, part): value for part, value in obj.items()}
