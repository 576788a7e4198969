"""Which tolerations keep a pod, as Kubernetes 1.36.2 really reads them.

Upstream: claimEvictionTime in pkg/controller/devicetainteviction and ToleratesTaint in
k8s.io/dynamic-resource-allocation/resourceclaim; seen in recording 08.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from taintctl.api.objects import Toleration
from taintctl.api.reasons import Effect, PodEffect


@dataclass(frozen=True)
class Fate:
    """What becomes of a pod, and for EvictedLater after how many seconds."""

    effect: PodEffect
    seconds: int | None = None


TOLERATES = Fate(PodEffect.TOLERATES)
EVICTED = Fate(PodEffect.EVICTED)
NOT_REACHED = Fate(PodEffect.NOT_REACHED_BY_TAINT)
RANK = {effect: rank for rank, effect in enumerate(PodEffect)}
"""Worst first."""


def tolerates(toleration: Toleration, *, key: str, value: str) -> bool:
    """Whether it matches our NoExecute taint.

    Only an effect spelled `NoExecute` does: the documentation says that one without an effect matches every effect,
    1.36.2 evicts its pod all the same (recording 08, tol-any).
    """
    if toleration.effect != Effect.NO_EXECUTE or (toleration.key and toleration.key != key):
        return False
    if toleration.operator == "Exists":
        return True
    return (toleration.operator or "Equal") == "Equal" and (toleration.value or "") == value


def fate(tolerations: Sequence[Toleration], *, key: str, value: str) -> Fate:
    """What becomes of a pod for one device: one toleration without seconds keeps it, even beside shorter ones
    (recording 08, tol-two); else the shortest of them counts; zero and less is at once."""
    matching = [t for t in tolerations if tolerates(t, key=key, value=value)]
    if any(t.toleration_seconds is None for t in matching):
        return TOLERATES
    seconds = min((t.toleration_seconds for t in matching if t.toleration_seconds is not None), default=0)
    return Fate(PodEffect.EVICTED_LATER, seconds) if seconds > 0 else EVICTED


def worst(fates: Iterable[Fate]) -> Fate:
    """Over all devices of a pod: the worst effect, and the shortest time. Of none: it tolerates."""
    return min(fates, key=lambda f: (RANK[f.effect], f.seconds or 0), default=TOLERATES)
