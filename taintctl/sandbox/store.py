"""The cluster's state, in memory: what etcd and the generic registry are to a real API server.

Everything runs in one asyncio thread and no method awaits, so a write is atomic. The control plane writes through the
same methods as the HTTP server; only authorization and admission policies are the server's own. Results of reads are
the stored objects themselves: treat them as read-only.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from uuid import uuid4

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver import errors
from taintctl.sandbox.apiserver.crds import follow_definitions
from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.apiserver.history import Event, Record, Table
from taintctl.sandbox.apiserver.meta import (
    Object,
    copied,
    generated_name,
    timestamp,
    validate_metadata,
    validate_metadata_update,
)
from taintctl.sandbox.apiserver.strategies import strategy_of
from taintctl.sandbox.apiserver.strategies.base import Strategy
from taintctl.sandbox.apiserver.writes import (
    OPTIONAL_META,
    add_propagation_finalizer,
    carry_over,
    check_preconditions,
    content,
    mark_deleted,
    note_write,
    ordered,
)
from taintctl.sandbox.resources import Registry, ResourceInfo

__all__ = ["Admit", "ApiError", "Event", "Record", "Store"]

_log = logging.getLogger(__name__)

HISTORY = 10_000
"""Changes kept for each resource, for watches that resume. Older resume points are answered with 410."""

MAX_EVENTS = 5_000
"""Event objects kept; the oldest go first, as they do after an hour on a real cluster."""

CONTROL_PLANE = "system:kube-controller-manager"

Admit = Callable[[Object, Object | None], None]
"""Called with the new and the old object before validation; raises ApiError to refuse the write."""

Subscriber = Callable[[Event], None]
Objects = list[Object]
Records = Sequence[Record]
Changes = list[Event]


class Store:
    """Objects by resource key, namespace and name; see the module's text."""

    def __init__(self, clock: Clock, *, kubernetes: str = "1.37", history: int = HISTORY) -> None:
        self.clock = clock
        self.resources = Registry(kubernetes)
        self.resource_version = 1
        self._history = history
        self._tables: dict[str, Table] = {}
        self._subscribers: dict[str | None, list[Subscriber]] = {}
        self._undelivered: deque[Event] = deque()
        self._delivering = False
        follow_definitions(self)

    # Reads ---------------------------------------------------------------------------------------------------------

    def get(self, key: str, namespace: str | None, name: str) -> Object:
        """The object; ApiError 404 when there is none."""
        return self.record(key, namespace, name).obj

    def find(self, key: str, namespace: str | None, name: str) -> Object | None:
        info = self._info(key)
        record = self._table(info.storage_key).records.get((namespace or "" if info.namespaced else "", name))
        return None if record is None else record.obj

    def record(self, key: str, namespace: str | None, name: str) -> Record:
        """The stored record; ApiError 404 when there is none."""
        info = self._info(key)
        record = self._table(info.storage_key).records.get((namespace or "" if info.namespaced else "", name))
        if record is None:
            raise errors.not_found(info.plural, info.group, name)
        return record

    def list(self, key: str, namespace: str | None = None) -> Objects:
        """All objects of a resource, or those of one namespace, by namespace and name."""
        return [record.obj for record in self.records(key, namespace)]

    def records(self, key: str, namespace: str | None = None) -> Records:
        """As `list`, as records. Later writes do not change what is returned."""
        records = self._table(self._info(key).storage_key).sorted_records()
        if namespace:
            return [one for one in records if one.obj["metadata"].get("namespace") == namespace]
        return records

    def changes_since(self, key: str, revision: int) -> Changes:
        """What happened to a resource after `revision`; ApiError 410 where the history does not reach back."""
        table = self._table(self._info(key).storage_key)
        if revision < table.dropped:
            raise errors.expired(f"too old resource version: {revision} ({table.dropped})")
        changes: Changes = []
        for event in reversed(table.history):
            if event.revision <= revision:
                break
            changes.append(event)
        changes.reverse()
        return changes

    def compact(self) -> None:
        """Forgets all history, as etcd does every five minutes: resume points before now get 410."""
        for table in self._tables.values():
            table.history.clear()
            table.dropped = self.resource_version

    # Writes --------------------------------------------------------------------------------------------------------

    def create(
        self,
        key: str,
        obj: Object,
        *,
        user: str = CONTROL_PLANE,
        admit: Admit | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Stores a new object; 409 when the name is taken, 422 when it is not valid. `dry_run` stores nothing."""
        info = self._info(key)
        strategy = self._strategy(info)
        now = self.clock.now()
        new = copied(obj)
        new["apiVersion"], new["kind"] = info.api_version, info.kind
        given = new.get("metadata")
        meta: Object = dict(given) if isinstance(given, dict) else {}
        new["metadata"] = meta
        prefix = meta.get("generateName")
        if prefix and not meta.get("name"):
            meta["name"] = generated_name(prefix)
        if meta.get("resourceVersion"):
            raise errors.ApiError(500, "InternalError", "resourceVersion should not be set on objects to be created")
        for part in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"):
            meta.pop(part, None)
        for part in OPTIONAL_META:
            if not meta.get(part):
                meta.pop(part, None)
        if info.namespaced:
            meta["namespace"] = meta.get("namespace") or "default"
        else:
            meta.pop("namespace", None)
        meta["uid"] = str(uuid4())
        meta["creationTimestamp"] = timestamp(now)
        if info.has_generation:
            meta["generation"] = 1
        strategy.default(new, now)
        if admit is not None:
            admit(new, None)
        if info.has_status and not strategy.creates_with_status:
            new.pop("status", None)
        strategy.prepare_create(new, now)
        problems = validate_metadata(new, strategy.name_problems) + strategy.validate(new, None, None)
        if problems:
            raise errors.invalid(info.kind, info.group, meta.get("name", ""), problems)
        table = self._table(info.storage_key)
        place = (meta.get("namespace", ""), meta["name"])
        if place in table.records:
            raise errors.already_exists(info.plural, info.group, meta["name"])
        if dry_run:
            return ordered(new)
        created = self._write("ADDED", info, place, new, None, user)
        if info.storage_key == "events" and len(table.records) > MAX_EVENTS:
            namespace, name = min(table.records, key=lambda k: table.records[k].revision)
            self.delete("events", namespace, name)
        return created

    def restore(self, key: str, objects: Iterable[Object]) -> None:
        """Puts objects in as they are, with their status, as a restored backup of etcd has them: nothing is validated,
        and nobody who subscribed or watches is told. Each is given a uid where it has none."""
        info = self._info(key)
        table = self._table(info.storage_key)
        for obj in objects:
            self.resource_version += 1
            given = obj["metadata"]
            meta: Object = {"uid": str(uuid4()), "creationTimestamp": timestamp(self.clock.now()), **given}
            meta["resourceVersion"] = str(self.resource_version)
            if info.has_generation:
                meta.setdefault("generation", 1)
            whole = ordered({**obj, "apiVersion": info.api_version, "kind": info.kind, "metadata": meta})
            table.put((meta.get("namespace", ""), meta["name"]), Record(whole, self.resource_version))
        table.dropped = self.resource_version

    def update(
        self,
        key: str,
        obj: Object,
        *,
        subresource: str | None = None,
        user: str = CONTROL_PLANE,
        admit: Admit | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Replaces an object: 404, 409 on a stale `metadata.resourceVersion`, 422.

        Without a resourceVersion the write is unconditional. `subresource` is None (everything but the status, where
        the kind has a status subresource), `status` (only the status) or `binding` (pods: the node, no generation).
        A write that changes nothing is none. Removing the last finalizer of a deleted object removes the object.
        """
        info = self._info(key)
        strategy = self._strategy(info)
        given: Object = obj.get("metadata") or {}
        record = self.record(key, given.get("namespace"), given.get("name", ""))
        old = record.obj
        asked = given.get("resourceVersion")
        if asked and asked != old["metadata"]["resourceVersion"]:
            raise errors.conflict(info.plural, info.group, given["name"])
        now = self.clock.now()
        new = copied(obj)
        new["apiVersion"], new["kind"] = info.api_version, info.kind
        carry_over(info, strategy, new, old, subresource)
        strategy.default(new, now)
        strategy.prepare_update(new, old, subresource, now)
        if info.has_generation and subresource is None and content(new) != content(old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
            if info.group == "admissionregistration.k8s.io":
                note_write(info, new, now)
        if admit is not None:
            admit(new, old)
        # Upstream asks both the generic and the kind's own validation for the metadata: recorded as two causes.
        problems = validate_metadata_update(new, old)
        problems += problems if not info.custom else []
        problems += validate_metadata(new, strategy.name_problems) if subresource is None else []
        problems += strategy.validate(new, old, subresource)
        if problems:
            raise errors.invalid(info.kind, info.group, given["name"], problems)
        if dry_run:
            return ordered(new)
        place = (old["metadata"].get("namespace", ""), old["metadata"]["name"])
        meta = new["metadata"]
        ended = meta.get("deletionTimestamp") and not meta.get("deletionGracePeriodSeconds")
        if ended and not meta.get("finalizers") and not strategy.held(new):
            return self._remove(info, place, new, old, user)
        if new == old:
            return old
        return self._write("MODIFIED", info, place, new, old, user)

    def mutate(
        self,
        key: str,
        namespace: str | None,
        name: str,
        fn: Callable[[Object], Object | None],
        *,
        subresource: str | None = None,
        user: str = CONTROL_PLANE,
    ) -> Object:
        """Updates with a function that edits a deep copy in place, or returns another object."""
        draft = copied(self.get(key, namespace, name))
        changed = fn(draft)
        return self.update(key, draft if changed is None else changed, subresource=subresource, user=user)

    def delete(
        self,
        key: str,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
        user: str = CONTROL_PLANE,
        admit: Admit | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Deletes, and returns the object's last state.

        It is gone afterwards, unless finalizers hold it or it is a pod on a node: that one has a deletionTimestamp
        then, until it is deleted with `grace_seconds=0`. `propagation` `Foreground` and `Orphan` add the finalizers
        `foregroundDeletion` and `orphan`, which garbage collection takes off. A precondition that does not hold: 409.
        """
        info = self._info(key)
        strategy = self._strategy(info)
        old = self.get(key, namespace, name)
        check_preconditions(info, old, uid, resource_version)
        if admit is not None:
            admit(old, old)
        new = copied(old)
        meta = new["metadata"]
        add_propagation_finalizer(meta, propagation)
        grace = strategy.grace_seconds(old, grace_seconds)
        running = mark_deleted(new, strategy, grace, asked=grace_seconds is not None, now=self.clock.now())
        if dry_run:
            return ordered(new)
        place = (old["metadata"].get("namespace", ""), old["metadata"]["name"])
        if not running and not meta.get("finalizers") and not strategy.held(new):
            return self._remove(info, place, new, old, user)
        return old if new == old else self._write("MODIFIED", info, place, new, old, user)

    # Changes -------------------------------------------------------------------------------------------------------

    def subscribe(self, key: str | None, callback: Subscriber) -> Callable[[], None]:
        """Calls back after every write of a resource (of all, with None); returns what ends the subscription.

        Callbacks run at once, in the order of the writes: what a callback writes is delivered after it returns.
        An exception in a callback is logged and keeps nobody else from the event.
        """
        storage = None if key is None else self._info(key).storage_key
        self._subscribers.setdefault(storage, []).append(callback)

        def unsubscribe() -> None:
            listeners = self._subscribers.get(storage, [])
            if callback in listeners:
                listeners.remove(callback)

        return unsubscribe

    # Inside --------------------------------------------------------------------------------------------------------

    def _info(self, key: str) -> ResourceInfo:
        try:
            return self.resources.get(key)
        except KeyError:
            raise errors.no_such_path() from None

    def _strategy(self, info: ResourceInfo) -> Strategy:
        return self.resources.strategy(info.key) or strategy_of(info.storage_key)

    def _table(self, key: str) -> Table:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = Table(self._history)
        return table

    def _write(
        self, kind: str, info: ResourceInfo, place: tuple[str, str], new: Object, old: Object | None, user: str
    ) -> Object:
        self.resource_version += 1
        new["metadata"]["resourceVersion"] = str(self.resource_version)
        record = Record(ordered(new), self.resource_version)
        table = self._table(info.storage_key)
        table.put(place, record)
        self._publish(table, Event(kind, info.storage_key, record, old, user))
        return record.obj

    def _remove(self, info: ResourceInfo, place: tuple[str, str], last: Object, old: Object, user: str) -> Object:
        self.resource_version += 1
        last["metadata"]["resourceVersion"] = str(self.resource_version)
        table = self._table(info.storage_key)
        table.remove(place)
        record = Record(ordered(last), self.resource_version)
        self._publish(table, Event("DELETED", info.storage_key, record, old, user))
        return record.obj

    def _publish(self, table: Table, event: Event) -> None:
        if len(table.history) == table.history.maxlen:
            table.dropped = table.history[0].revision
        table.history.append(event)
        self._undelivered.append(event)
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._undelivered:
                self._deliver(self._undelivered.popleft())
        finally:
            self._delivering = False

    def _deliver(self, event: Event) -> None:
        for callback in (*self._subscribers.get(event.key, ()), *self._subscribers.get(None, ())):
            try:
                callback(event)
            except Exception:
                _log.exception("a subscriber failed on %s of %s", event.type, event.key)
