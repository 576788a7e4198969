"""Events of the control plane, in the shape of recording 06."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from taintctl.sandbox.apiserver.meta import timestamp
from taintctl.sandbox.controlplane.objects import EVENTS, meta
from taintctl.sandbox.store import ApiError, Store

_log = logging.getLogger(__name__)
MAX_MESSAGE = 1024
"""Longer messages are cut, as client-go's recorder does."""


class Recorder:
    """Writes events under one component's name; a failure to write is logged and nothing more, as in client-go."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._last = 0

    def pod(self, pod: dict[str, Any], kind: str, reason: str, message: str, now: datetime) -> None:
        """An event on a pod; `kind` is Normal or Warning."""
        m = meta(pod)
        nanoseconds = max(int(now.timestamp() * 1e6) * 1000, self._last + 1)
        self._last = nanoseconds
        at = timestamp(now)
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{m['name']}.{nanoseconds:x}", "namespace": m["namespace"]},
            "involvedObject": {
                "kind": "Pod",
                "namespace": m["namespace"],
                "name": m["name"],
                "uid": m["uid"],
                "apiVersion": "v1",
            },
            "reason": reason,
            "message": message[:MAX_MESSAGE],
            "source": {"component": self._component},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        try:
            self._store.create(EVENTS, event)
        except ApiError as error:
            _log.debug("event %s on %s/%s: %s", reason, m["namespace"], m["name"], error)
