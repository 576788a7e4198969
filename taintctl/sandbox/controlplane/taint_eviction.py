"""The device taint eviction controller: deletes pods under NoExecute taints and tells it in each rule's condition.

It follows pkg/controller/devicetainteviction of Kubernetes 1.36 in what it looks at, what it ignores and when it
writes; the recordings 02 to 09 are its measure. What it knows of finished evictions lives in memory only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver.meta import parse_time, timestamp
from taintctl.sandbox.controlplane.events import Recorder
from taintctl.sandbox.controlplane.objects import (
    CLAIMS,
    PODS,
    RULES,
    SLICES,
    Obj,
    Ref,
    condition,
    deleting,
    meta,
    node_name,
    ref,
    set_condition,
)
from taintctl.sandbox.controlplane.podclaims import allocation_results, is_for_pod, used_claims
from taintctl.sandbox.controlplane.rule_status import CONDITION, Counts
from taintctl.sandbox.controlplane.rule_status import condition as rule_condition
from taintctl.sandbox.controlplane.tainted_claims import ClaimKey, Eviction, TaintedClaims
from taintctl.sandbox.controlplane.worker import Controller
from taintctl.sandbox.store import ApiError, Event, Store

STATUS_PERIOD = 10.0
"""Seconds between two updates of a rule's condition for one generation (ruleStatusPeriod)."""
MAX_EVICTED = 500
"""Evicted pods remembered, so that none is handled twice (maxUIDCacheEntries)."""
REASON = "DeviceTaintManagerEviction"


@dataclass(frozen=True)
class RuleItem:
    """A rule whose condition may have to be written."""

    name: str
    uid: str


class TaintEviction(Controller):
    """See the module's text."""

    name = "taint-eviction"
    watches = frozenset({SLICES, RULES, CLAIMS, PODS})

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock)
        self._events = Recorder(store, "device-taint-eviction-controller")

    def reset(self) -> None:
        self._claims = TaintedClaims(self.clock)
        self._delete_at: dict[Ref, Eviction] = {}
        self._evicted_pods: OrderedDict[str, None] = OrderedDict()
        self._evicted: Counter[str] = Counter()
        self._rule_names: dict[str, str] = {}
        self._written: dict[str, tuple[str, timedelta]] = {}

    def sync(self) -> None:
        for resource_slice in self.store.list(SLICES):
            self._claims.put_slice(None, resource_slice)
        for rule in self.store.list(RULES):
            self._take_rule(None, rule)
        for claim in self.store.list(CLAIMS):
            self._take_claim(None, claim)
        for pod in self.store.list(PODS):
            self._take_pod(None, pod)

    def on_event(self, event: Event) -> None:
        old, new = event.old, None if event.type == "DELETED" else event.obj
        match event.key:
            case "pods":
                self._take_pod(old, new)
            case "resourceclaims.resource.k8s.io":
                self._take_claim(old, new)
            case "devicetaintrules.resource.k8s.io":
                self._take_rule(old, new)
            case "resourceslices.resource.k8s.io":
                self._handle_claims(self._claims.put_slice(old, new))

    def _take_rule(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            if old is not None:
                self._rule_names.pop(meta(old)["uid"], None)
                self._evicted.pop(meta(old)["uid"], None)
                self._written.pop(meta(old)["uid"], None)
        elif old is None or old["spec"] != new["spec"]:
            # At once, and before any pod is evicted: the queue keeps the order.
            self._rule_names[meta(new)["uid"]] = meta(new)["name"]
            self.queue.add(RuleItem(meta(new)["name"], meta(new)["uid"]))
        else:
            return
        self._handle_claims(self._claims.put_rule(old, new))

    def _take_claim(self, old: Obj | None, new: Obj | None) -> None:
        for claim, taken in ((old, False), (new, True)):
            if claim is None or not allocation_results(claim):
                continue
            if taken:
                self._claims.put_claim(claim)
            elif new is None or not allocation_results(new):
                self._claims.drop_claim(claim)
        if old is None and new is not None and not allocation_results(new):
            return
        same = old is not None and new is not None and _consumers(old) == _consumers(new)
        for claim in (new,) if same else (old, new):
            if claim is not None:
                self._handle_pods(claim)

    def _take_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            if old is not None:
                self._delete_at.pop(ref(old), None)
            return
        # Pods change often. Only a new node or new claims matter: in particular neither a deletion by somebody else
        # nor the end of a pod updates a rule's condition (recording 09).
        if old is not None and node_name(old) == node_name(new) and _statuses(old) == _statuses(new):
            return
        self._handle_pod(new)

    def _handle_claims(self, keys: set[ClaimKey]) -> None:
        for key in sorted(keys):
            self._handle_pods(self._claims.claims[key])

    def _handle_pods(self, claim: Obj) -> None:
        for consumer in _consumers(claim):
            if consumer.get("apiGroup") or consumer.get("resource") != "pods":
                continue
            pod = self.store.find(PODS, meta(claim)["namespace"], consumer["name"])
            if pod is not None and meta(pod)["uid"] == consumer["uid"]:
                self._handle_pod(pod)

    def _handle_pod(self, pod: Obj) -> None:
        key = ref(pod)
        eviction = self._claims.eviction_of_pod(pod)
        if eviction is None:
            if self._delete_at.pop(key, None) is not None:
                self.queue.add(("cancelled", key))
            return
        self._delete_at[key] = eviction
        self.queue.add_after(key, self._until(eviction))
        for uid in sorted(eviction.rules):
            self._update_later(uid)

    def _update_later(self, rule_uid: str) -> None:
        name = self._rule_names.get(rule_uid)
        if name is not None:
            self.queue.add_after(RuleItem(name, rule_uid), STATUS_PERIOD)

    def _until(self, eviction: Eviction) -> float:
        """Seconds until the eviction is due, in those of the queue."""
        return (eviction.when - self.clock.now()).total_seconds() * self.clock.speed

    async def handle(self, item: Hashable) -> float | None:
        if isinstance(item, RuleItem):
            return self._update_status(item)
        if isinstance(item, Ref):
            return self._delete_pod(item)
        if isinstance(item, tuple) and item[0] == "cancelled":
            pod = self.store.find(PODS, item[1].namespace, item[1].name)
            if pod is not None and ref(pod) == item[1]:
                self._events.pod(pod, "Normal", REASON, "Cancelling deletion", self.clock.now())
        return None

    def _delete_pod(self, key: Ref) -> float | None:
        eviction = self._delete_at.get(key)
        if eviction is None or key.uid in self._evicted_pods:
            return None
        wait = self._until(eviction)
        if wait > 0:
            return wait
        deleted = self._mark_for_deletion(key)
        self._delete_at.pop(key, None)
        self._evicted_pods[key.uid] = None
        while len(self._evicted_pods) > MAX_EVICTED:
            self._evicted_pods.popitem(last=False)
        if deleted:
            for uid in sorted(eviction.rules):
                self._evicted[uid] += 1
                self._update_later(uid)
        return None

    def _mark_for_deletion(self, key: Ref) -> bool:
        """Deletes the pod, with its uid as precondition and without asking budgets; False when it is gone already."""
        pod = self.store.find(PODS, key.namespace, key.name)
        if pod is None or ref(pod) != key:
            return False
        if deleting(pod):
            return True
        now = self.clock.now()
        self._events.pod(pod, "Normal", REASON, "Marking for deletion", now)

        def disrupt(current: Obj) -> None:
            target = {
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": None,
                "reason": "DeletionByDeviceTaintManager",
                "message": "Device Taint manager: deleting due to NoExecute taint",
            }
            set_condition(current, target, now)

        try:
            self.store.mutate(PODS, key.namespace, key.name, disrupt, subresource="status")
            self.store.delete(PODS, key.namespace, key.name, uid=key.uid)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def _update_status(self, item: RuleItem) -> float | None:
        rule = self.store.find(RULES, None, item.name)
        if rule is None or meta(rule)["uid"] != item.uid:
            return None
        existing = condition(rule, CONDITION)
        now = self.clock.now()
        if existing is not None and existing.get("observedGeneration") == meta(rule)["generation"]:
            # Looked at before counting: so False comes with a delay, not right after the last deletion.
            since = (now - self._last_write(item.uid, existing)).total_seconds() * self.clock.speed
            if since < STATUS_PERIOD:
                return STATUS_PERIOD - since
        wanted = rule_condition(rule, self._count(rule))
        if existing is not None and {**wanted, "lastTransitionTime": existing.get("lastTransitionTime")} == existing:
            return None
        written = timestamp(now)

        def write(current: Obj) -> None:
            if meta(current)["uid"] != item.uid:
                raise ApiError(409, "Conflict", f"devicetaintrule {item.name} was replaced", {})
            conditions = current.setdefault("status", {}).setdefault("conditions", [])
            conditions[:] = [c for c in conditions if c.get("type") != CONDITION]
            ordered = {k: wanted[k] for k in ("type", "status", "observedGeneration")}
            conditions.append(
                {**ordered, "lastTransitionTime": written, **{k: wanted[k] for k in ("reason", "message")}}
            )

        self.store.mutate(RULES, None, item.name, write, subresource="status")
        self._written[item.uid] = (written, now - parse_time(written))
        return None

    def _last_write(self, uid: str, existing: Obj) -> datetime:
        """When the condition was written: to the second as stored, exactly where this controller wrote it."""
        text = existing["lastTransitionTime"]
        written, fraction = self._written.get(uid, ("", timedelta()))
        return parse_time(text) + (fraction if written == text else timedelta())

    def _count(self, rule: Obj) -> Counts:
        effect = rule["spec"]["taint"]["effect"]
        evicted = self._evicted[meta(rule)["uid"]]
        if effect not in ("None", "NoExecute"):
            return Counts(evicted=evicted)
        pods: set[Ref] = set()
        for key in self._claims.under(rule, simulate=effect == "None"):
            claim = self._claims.claims[key]
            for consumer in _consumers(claim):
                pod = self.store.find(PODS, key[0], consumer["name"])
                if pod is None or meta(pod)["uid"] != consumer["uid"] or deleting(pod) or not node_name(pod):
                    continue
                if any(used.name == key[1] and is_for_pod(claim, pod, used.must_own) for used in used_claims(pod)):
                    pods.add(ref(pod))
        published, allocated = self._claims.selected_counts(rule) if effect == "None" else (0, 0)
        return Counts(published, allocated, len(pods), len({pod.namespace for pod in pods}), evicted)


def _consumers(claim: Obj) -> list[Obj]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def _statuses(pod: Obj) -> list[Obj]:
    return list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
