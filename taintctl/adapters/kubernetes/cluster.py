"""ports.cluster.Cluster over HTTP: live reads, and writes that hit only the very object that was read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from taintctl.adapters.kubernetes.admission import approvals_verified
from taintctl.adapters.kubernetes.client import MERGE_PATCH, Client, path
from taintctl.adapters.kubernetes.discovery import RESOURCE_GROUP, Discovery
from taintctl.adapters.kubernetes.events import EventRecorder
from taintctl.adapters.kubernetes.owners import OwnerReader
from taintctl.adapters.kubernetes.snapshot import read_snapshot
from taintctl.adapters.kubernetes.status import Refusal, to_error
from taintctl.api.base import API_VERSION, GROUP, VERSION
from taintctl.api.check import Own
from taintctl.api.objects import DeviceTaintRule, ResourceClaim, Snapshot
from taintctl.api.reasons import Effect
from taintctl.api.rule import EvictionOutcome, EvictionResult, RuleManifest, run_uid_of
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Scope

MULTIPLE_BUDGETS = "more than one PodDisruptionBudget"
"""In the Eviction API's 500 for a pod that two budgets select (upstream pkg/registry/core/pod/storage/eviction.go)."""


class KubernetesCluster:
    """Implements ports.cluster.Cluster; see there for what each call means and raises."""

    def __init__(self, client: Client, discovery: Discovery, clock: Clock, owners: OwnerReader | None = None) -> None:
        self._client = client
        self._discovery = discovery
        self._clock = clock
        self._events = EventRecorder(client, clock)
        self._owners = owners or OwnerReader(client, clock)

    async def snapshot(self, scope: Scope) -> Snapshot:
        version = self._discovery.require_objects()
        return await read_snapshot(self._client, self._clock, version, scope, self._owners)

    # our own kinds

    async def get(self, kind: type[Own], name: str) -> dict[str, Any] | None:
        return await self._client.get(_own(kind, name), dict[str, Any])

    async def list(self, kind: type[Own], *, label_selector: str = "") -> tuple[dict[str, Any], ...]:
        params = {"labelSelector": label_selector} if label_selector else {}
        return (await self._client.list(_own(kind), dict[str, Any], params=params)).items

    async def create(self, kind: type[Own], body: dict[str, Any]) -> dict[str, Any]:
        return await self._client.request(
            "POST", _own(kind), dict[str, Any], body={**body, "apiVersion": API_VERSION, "kind": kind.KIND}
        )

    async def patch(
        self, kind: type[Own], name: str, body: dict[str, Any], *, uid: str = "", resource_version: str = ""
    ) -> dict[str, Any]:
        metadata = {**(body.get("metadata") or {}), **_only_if(uid, resource_version)}
        return await self._client.request(
            "PATCH",
            _own(kind, name),
            dict[str, Any],
            body={**body, **({"metadata": metadata} if metadata else {})},
            content_type=MERGE_PATCH,
        )

    async def replace_status(
        self, kind: type[Own], name: str, *, uid: str, resource_version: str, status: dict[str, Any]
    ) -> dict[str, Any]:
        # Of a PUT on /status the server takes the status alone; metadata and spec stay as they are.
        return await self._client.request(
            "PUT",
            _own(kind, name, "status"),
            dict[str, Any],
            body={
                "apiVersion": API_VERSION,
                "kind": kind.KIND,
                "metadata": {"name": name, **_only_if(uid, resource_version)},
                "status": status,
            },
        )

    async def delete(self, kind: type[Own], name: str, *, uid: str) -> None:
        await self._delete(_own(kind, name), uid)

    # rules

    async def rules_of(self, run_uid: str) -> tuple[DeviceTaintRule, ...]:
        return tuple(rule for rule in await self.own_rules() if run_uid_of(rule) == run_uid)

    async def own_rules(self) -> tuple[DeviceTaintRule, ...]:
        # All are read: one that lost its labels must not be forgotten, and rules are few.
        found = await self._client.list(self._rule(), DeviceTaintRule)
        return tuple(rule for rule in found.items if run_uid_of(rule) is not None)

    async def create_rule(self, rule: RuleManifest) -> DeviceTaintRule:
        body = {**rule.to_object(), "apiVersion": f"{RESOURCE_GROUP}/{self._discovery.require_rules()}"}
        return await self._client.request("POST", self._rule(), DeviceTaintRule, body=body)

    async def set_rule_effect(self, name: str, *, uid: str, resource_version: str, effect: Effect) -> DeviceTaintRule:
        return await self._client.request(
            "PATCH",
            self._rule(name),
            DeviceTaintRule,
            body={"metadata": _only_if(uid, resource_version), "spec": {"taint": {"effect": str(effect)}}},
            content_type=MERGE_PATCH,
        )

    async def delete_rule(self, name: str, *, uid: str) -> None:
        await self._delete(self._rule(name), uid)

    # pods and claims

    async def get_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        version = self._discovery.require_objects()
        url = path("apis", RESOURCE_GROUP, version, "namespaces", namespace, "resourceclaims", name)
        return await self._client.get(url, ResourceClaim)

    async def evict(self, namespace: str, name: str, *, uid: str) -> EvictionOutcome:
        url = path("api", "v1", "namespaces", namespace, "pods", name, "eviction")
        answer = await self._client.call(
            "POST",
            url,
            body={
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
                # Without it a StatefulSet's replacement of the same name would be hit.
                "deleteOptions": {"preconditions": {"uid": uid}},
            },
            retry=False,
        )
        if answer.refused is None:
            return EvictionOutcome(namespace, name, uid, EvictionResult.EVICTED)
        result, message = _eviction_result(answer.refused)
        if result is None:
            raise to_error(answer.refused, f"POST {url}")
        return EvictionOutcome(namespace, name, uid, result, message)

    # the rest

    async def approvals_verified(self) -> datetime | None:
        return await approvals_verified(self._client)

    async def record_event(self, involved: dict[str, Any], *, event_type: str, reason: str, message: str) -> None:
        await self._events.record(involved, event_type=event_type, reason=reason, message=message)

    def _rule(self, *name: str) -> str:
        return path("apis", RESOURCE_GROUP, self._discovery.require_rules(), "devicetaintrules", *name)

    async def _delete(self, url: str, uid: str) -> None:
        answer = await self._client.call(
            "DELETE",
            url,
            body={"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}},
        )
        if answer.refused is not None and answer.refused.status != 404:
            raise to_error(answer.refused, f"DELETE {url}")


def _own(kind: type[Own], *rest: str) -> str:
    return path("apis", GROUP, VERSION, kind.PLURAL, *rest)


def _only_if(uid: str, resource_version: str) -> dict[str, str]:
    """Metadata that makes the server refuse a write to anything but the object as it was read."""
    wanted = {"uid": uid, "resourceVersion": resource_version}
    return {name: value for name, value in wanted.items() if value}


def _eviction_result(refused: Refusal) -> tuple[EvictionResult | None, str]:
    """What the Eviction API's refusal means; None: it did not decide (overloaded, or down), so ask again."""
    if refused.status == 429:
        budget = refused.cause("DisruptionBudget")
        return (EvictionResult.BUDGET_FORBIDS, budget) if budget is not None else (None, "")
    if refused.status >= 500:
        if MULTIPLE_BUDGETS in refused.text:
            return EvictionResult.MULTIPLE_BUDGETS, refused.text
        return None, ""
    if refused.status == 404 or (refused.status == 409 and "UID in" in refused.text):
        return EvictionResult.GONE, refused.text
    return EvictionResult.FAILED, refused.text
