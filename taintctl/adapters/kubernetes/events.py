"""Kubernetes events on our objects: counted where they repeat, bounded for each object, never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from taintctl.adapters.kubernetes.client import MERGE_PATCH, Client, path
from taintctl.api.base import format_time
from taintctl.api.text import one_line
from taintctl.ports.clock import Clock
from taintctl.ports.errors import ClusterError

log = logging.getLogger("taintctl.events")

NAMESPACE = "default"
"""Where events of cluster-scoped objects live: the API server takes them nowhere else but kube-system, and
`kubectl describe` looks for them by name and uid in all namespaces."""
COMPONENT = "taintctl"
MAX_TEXT = 1024
"""The API server's own limit for an event's message."""
BURST = 25
"""Events that an object may have at once; after that one a second. client-go allows as many, and then far fewer."""
REPEATS_WITHIN = timedelta(minutes=10)
TIMEOUT = 5.0
"""Seconds that an event may hold up a run."""
MAX_OBJECTS = 1000
MAX_KINDS = 50
"""Different events remembered for each object."""

EventKey = tuple[str, str, str]


@dataclass(frozen=True)
class _Written:
    name: str
    count: int
    first: datetime
    last: datetime


class _Object:
    def __init__(self, now: datetime) -> None:
        self.tokens = float(BURST)
        self.filled_at = now
        self.written: OrderedDict[EventKey, _Written] = OrderedDict()


class EventRecorder:
    """Writes core/v1 events. The same event again within ten minutes raises the count of the first."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._objects: OrderedDict[str, _Object] = OrderedDict()

    async def record(self, involved: dict[str, Any], *, event_type: str, reason: str, message: str) -> None:
        """Never raises ClusterError: what can't be written is logged."""
        now = self._clock.now()
        known = self._remember(str(involved.get("uid", "")), now)
        if not self._may(known, now):
            log.debug("event %s on %s left out: too many at once", reason, involved.get("name"))
            return
        text = one_line(message, MAX_TEXT)
        key: EventKey = (event_type, reason, text)
        before = known.written.get(key)
        try:
            async with asyncio.timeout(TIMEOUT):
                fresh = before is not None and now - before.last <= REPEATS_WITHIN
                if before is None or not fresh or not await self._again(known, key, before, now):
                    await self._first(known, key, involved, now)
        except ClusterError as error:
            log.warning("event %s on %s could not be written: %s", reason, involved.get("name"), error.message)
        except TimeoutError:
            log.warning("event %s on %s could not be written in time", reason, involved.get("name"))

    def _remember(self, uid: str, now: datetime) -> _Object:
        known = self._objects.setdefault(uid, _Object(now))
        self._objects.move_to_end(uid)
        while len(self._objects) > MAX_OBJECTS:
            self._objects.popitem(last=False)
        return known

    def _may(self, known: _Object, now: datetime) -> bool:
        passed = (now - known.filled_at) / self._clock.scaled(timedelta(seconds=1))
        known.tokens = min(float(BURST), known.tokens + max(0.0, passed))
        known.filled_at = now
        if known.tokens < 1:
            return False
        known.tokens -= 1
        return True

    async def _again(self, known: _Object, key: EventKey, before: _Written, now: datetime) -> bool:
        """False where the first event has gone meanwhile (they live an hour)."""
        answer = await self._client.call(
            "PATCH",
            path("api", "v1", "namespaces", NAMESPACE, "events", before.name),
            body={"count": before.count + 1, "lastTimestamp": format_time(now.replace(microsecond=0))},
            content_type=MERGE_PATCH,
            retry=False,
        )
        if answer.refused is not None:
            known.written.pop(key, None)
            return False
        known.written[key] = _Written(before.name, before.count + 1, before.first, now)
        return True

    async def _first(self, known: _Object, key: EventKey, involved: dict[str, Any], now: datetime) -> None:
        event_type, reason, text = key
        name = f"{str(involved.get('name', ''))[:230].rstrip('-.')}.{secrets.token_hex(8)}"
        stamp = format_time(now.replace(microsecond=0))
        answer = await self._client.call(
            "POST",
            path("api", "v1", "namespaces", NAMESPACE, "events"),
            body={
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "involvedObject": involved,
                "type": event_type,
                "reason": reason,
                "message": text,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": COMPONENT,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            },
            retry=False,
        )
        if answer.refused is not None:
            log.warning("event %s on %s was refused: %s", reason, involved.get("name"), answer.refused.text)
            return
        known.written[key] = _Written(name, 1, now, now)
        while len(known.written) > MAX_KINDS:
            known.written.popitem(last=False)
