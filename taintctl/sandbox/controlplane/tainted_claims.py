"""Which allocated claims have to be given up, when, and because of which taints.

The part of pkg/controller/devicetainteviction that only computes: it follows slices, rules and claims, and answers
for a claim, a rule or a pod.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver.meta import parse_time
from taintctl.sandbox.controlplane.inventory import Inventory
from taintctl.sandbox.controlplane.objects import Obj, meta
from taintctl.sandbox.controlplane.podclaims import allocation_results, is_for_pod, reserved_for, used_claims
from taintctl.sandbox.controlplane.taints import NO_EXECUTE, DeviceID, rule_matches, tolerated_seconds

ClaimKey = tuple[str, str]
MAX_SEEN = 10_000
"""Taints whose exact time is remembered."""


@dataclass(frozen=True)
class Eviction:
    """When the pods of a claim have to go, and the rules (by uid) that ask for it; empty for a driver's own taint."""

    when: datetime
    rules: frozenset[str]

    def joined(self, other: Eviction) -> Eviction:
        return Eviction(min(self.when, other.when), self.rules | other.rules)


class TaintedClaims:
    """All allocated claims, with the eviction that each is under."""

    def __init__(self, clock: Clock) -> None:
        self.inventory = Inventory()
        self.claims: dict[ClaimKey, Obj] = {}
        self.evictions: dict[ClaimKey, Eviction] = {}
        self._clock = clock
        self._evicting: dict[str, Obj] = {}
        self._by_pool: dict[tuple[str, str], set[ClaimKey]] = defaultdict(set)
        self._seen: dict[tuple[str, str], datetime] = {}

    def put_claim(self, claim: Obj) -> None:
        """Takes an allocated claim, new or changed."""
        key = _key(claim)
        old = self.claims.get(key)
        if old is not None and (meta(old)["uid"] != meta(claim)["uid"] or _devices(old) != _devices(claim)):
            self.drop_claim(old)
            old = None
        self.claims[key] = claim
        if old is None:
            for device in _devices(claim):
                self._by_pool[device.driver, device.pool].add(key)
            self.recompute(key)

    def drop_claim(self, claim: Obj) -> None:
        """The claim is gone or deallocated."""
        key = _key(claim)
        old = self.claims.pop(key, None)
        self.evictions.pop(key, None)
        for device in _devices(old) if old is not None else ():
            self._by_pool[device.driver, device.pool].discard(key)

    def put_rule(self, old: Obj | None, new: Obj | None) -> set[ClaimKey]:
        """Takes a changed rule; returns the claims whose eviction is another one now."""
        affected = {key for rule in (old, new) if rule is not None for key in self._selected(rule)}
        if old is not None:
            self._evicting.pop(meta(old)["name"], None)
        if new is not None and new["spec"]["taint"]["effect"] == NO_EXECUTE:
            self._evicting[meta(new)["name"]] = new
        return {key for key in affected if self.recompute(key)}

    def put_slice(self, old: Obj | None, new: Obj | None) -> set[ClaimKey]:
        """Takes a changed slice; returns the claims whose eviction is another one now."""
        self.inventory.change(old, new)
        pools = {(s["spec"]["driver"], s["spec"]["pool"]["name"]) for s in (old, new) if s is not None}
        return {key for pool in pools for key in tuple(self._by_pool.get(pool, ())) if self.recompute(key)}

    def recompute(self, key: ClaimKey) -> bool:
        """Works out the eviction of one claim; says whether it changed."""
        before = self.evictions.pop(key, None)
        after = self.eviction_of(self.claims[key], self._evicting)
        if after is not None:
            self.evictions[key] = after
        return before != after

    def eviction_of(self, claim: Obj, evicting: Mapping[str, Obj]) -> Eviction | None:
        """The earliest moment at which a NoExecute taint of an allocated device is no longer tolerated."""
        found: Eviction | None = None
        for result in allocation_results(claim):
            device = DeviceID(result["driver"], result["pool"], result["device"])
            for taint, origin, rule_uid in self._taints_on(device, evicting):
                seconds = tolerated_seconds(taint, result.get("tolerations") or ())
                if seconds is None:
                    continue
                when = self._since(origin, taint["timeAdded"]) + self._clock.scaled(timedelta(seconds=seconds))
                eviction = Eviction(when, frozenset({rule_uid} if rule_uid else ()))
                found = eviction if found is None else found.joined(eviction)
        return found

    def eviction_of_pod(self, pod: Obj) -> Eviction | None:
        """Only claims that the pod's spec names count, so never one behind an extended resource (recording 02)."""
        if not pod["spec"].get("nodeName"):
            return None
        found: Eviction | None = None
        for used in used_claims(pod):
            key = (meta(pod)["namespace"], used.name or "")
            claim, eviction = self.claims.get(key), self.evictions.get(key)
            if claim is None or eviction is None:
                continue
            if is_for_pod(claim, pod, used.must_own) and reserved_for(claim, pod):
                found = eviction if found is None else found.joined(eviction)
        return found

    def under(self, rule: Obj, *, simulate: bool) -> list[ClaimKey]:
        """The claims that a rule evicts, or would evict if its effect was NoExecute."""
        uid = meta(rule)["uid"]
        if not simulate:
            return [key for key in self._selected(rule) if uid in self._rules_of(key)]
        taint = {**rule["spec"]["taint"], "effect": NO_EXECUTE}
        pretended = {meta(rule)["name"]: {**rule, "spec": {**rule["spec"], "taint": taint}}}
        result = []
        for key in self._selected(rule):
            eviction = self.eviction_of(self.claims[key], pretended)
            if eviction is not None and uid in eviction.rules:
                result.append(key)
        return result

    def selected_counts(self, rule: Obj) -> tuple[int, int]:
        """Published devices and allocation results that a rule selects."""
        published = sum(rule_matches(rule, device) for device in self.inventory.devices())
        allocated = sum(
            rule_matches(rule, device) for key in self._selected(rule) for device in _devices(self.claims[key])
        )
        return published, allocated

    def _rules_of(self, key: ClaimKey) -> frozenset[str]:
        eviction = self.evictions.get(key)
        return eviction.rules if eviction is not None else frozenset()

    def _selected(self, rule: Obj) -> list[ClaimKey]:
        selector = rule["spec"].get("deviceSelector")
        if selector is None:
            return []
        if selector.get("driver") and selector.get("pool"):
            candidates = sorted(self._by_pool.get((selector["driver"], selector["pool"]), ()))
        else:
            candidates = list(self.claims)
        return [key for key in candidates if any(rule_matches(rule, d) for d in _devices(self.claims[key]))]

    def _taints_on(self, device: DeviceID, evicting: Mapping[str, Obj]) -> Iterator[tuple[Obj, str, str]]:
        """The NoExecute taints on a device: the taint, the uid of what carries it, and that uid again for a rule."""
        published = self.inventory.device(device)
        for taint in (published or {}).get("taints") or ():
            if taint.get("effect") == NO_EXECUTE:
                yield taint, f"{device.driver}/{device.pool}/{device.device}/{taint['key']}", ""
        for rule in evicting.values():
            if rule_matches(rule, device):
                uid = meta(rule)["uid"]
                yield rule["spec"]["taint"], uid, uid

    def _since(self, origin: str, time_added: str) -> datetime:
        """When a taint was set: to the second as stored, as upstream reads it.

        When delays are shortened, a second is long: then it is the moment this controller saw the taint, unless it
        came late.
        """
        added = parse_time(time_added)
        if self._clock.speed <= 1:
            return added
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        seen = self._seen.setdefault((origin, time_added), self._clock.now())
        return seen if seen - added < timedelta(seconds=1) else added


def _key(claim: Mapping[str, Any]) -> ClaimKey:
    return meta(claim)["namespace"], meta(claim)["name"]


def _devices(claim: Mapping[str, Any]) -> list[DeviceID]:
    return [DeviceID(r["driver"], r["pool"], r["device"]) for r in allocation_results(claim)]
