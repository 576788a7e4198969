"""What telemetry said, as every source's adapter hands it on and the verdicts take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class SourceKind(StrEnum):
    RESOURCE_SLICE_TAINTS = "resourceSliceTaints"
    DCGM_EXPORTER = "dcgmExporter"
    PROMETHEUS = "prometheus"
    ALERTMANAGER = "alertmanager"
    NODE_CONDITIONS = "nodeConditions"


class SourceState(StrEnum):
    FRESH = "Fresh"
    """It answered at its last turn."""
    STALE = "Stale"
    """It answered before, and not for three turns: what it said then is Unknown now."""
    FAILING = "Failing"
    """It never answered, or refuses: `error` says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled value."""

    signal: str
    """A metric's name; a taint's key; the name of the rule whose PromQL query it answers; an alert's name; the type of
    a node condition."""
    labels: Mapping[str, str]
    """As the source wrote them: hostile, bounded by the adapter."""
    value: float | None
    """None: the exporter's "no data" (NaN, or a blank value of DCGM, from 2^63-16 up)."""
    at: datetime
    """When the value was true by the source's word, where it has one (a taint's timeAdded, an alert's startsAt, a
    sample's own time), else when it was read."""
    text: str = ""
    """What is no number: a taint's value and effect (`79:NoSchedule`), a condition's status."""


@dataclass(frozen=True)
class Endpoint:
    """What of a source answers by itself, with its own state: one exporter, one server, the slices of one pool."""

    source: int
    """The index in the policy's `sources`."""
    kind: SourceKind
    name: str
    """For people: `10.0.3.7:9400`, `prometheus.monitoring:9090`."""
    node: str = ""
    """The node that an exporter's pod runs on, by the API server's word; empty where nobody said."""


@dataclass(frozen=True)
class Scrape:
    """One answer of one endpoint, or the lack of one."""

    endpoint: Endpoint
    state: SourceState
    at: datetime
    """When it was asked."""
    answered_at: datetime | None
    """When it last answered; None: never."""
    samples: tuple[Sample, ...] = ()
    """Whole: what an endpoint that is Fresh does not say is not so any more. Empty where it is not Fresh."""
    skipped: int = 0
    """Lines that could not be read; they spoil no other."""
    truncated: bool = False
    """It said more than is taken: what is missing is Unknown, not absent."""
    error: str = ""
    """One sentence, without secrets."""
    complaints: tuple[str, ...] = field(default=())
    """The first few of the skipped lines, shortened."""
