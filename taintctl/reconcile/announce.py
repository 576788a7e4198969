"""Tells people of runs: one message a run in a chat that follows it, and events to a webhook.

It works beside the runs, on a queue of its own: a chat that is slow or gone holds no run up. What was told stands in
the run's status.notifications, which it alone writes, so that a restart goes on with the same message.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import dataclass
from datetime import timedelta

from taintctl.api.base import format_time
from taintctl.api.check import check
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun, Notification
from taintctl.ports.chat import Chat, ChatError, Posted, RunView
from taintctl.ports.clock import Clock
from taintctl.ports.cluster import Cluster
from taintctl.ports.errors import ClusterError, Conflict
from taintctl.ports.webhook import Webhook
from taintctl.reconcile.gather import Reader
from taintctl.reconcile.news import UNTOLD, event, event_id, last_step, lines, origin, steps
from taintctl.reconcile.queue import WorkQueue
from taintctl.workflow.model import Settings

log = logging.getLogger("taintctl.notify")

MAX_RUNS = 1000
"""Runs with something to tell at a time; what is beyond is found again by a resync."""
FIRST_BACKOFF = timedelta(seconds=2)
LAST_BACKOFF = timedelta(minutes=5)
LAST_RETRY_AFTER = timedelta(hours=1)
MAX_PASS = timedelta(minutes=2)
"""How long one pass over one run may take, not scaled; every call inside has its own, shorter bound."""
STALE = timedelta(minutes=10)
"""A run that ended longer ago, and of which nobody was told, is not told of any more."""
GIVE_UP = timedelta(days=1)
"""After a run's end."""
MAX_ERROR = 512
STORES = 5
GONE = frozenset({"message_not_found"})
"""Somebody deleted the message: another one is posted."""


@dataclass(frozen=True)
class _Wanted:
    """Where a policy wants its runs told of."""

    slack: str | None
    url: str | None


class Announcer:
    def __init__(
        self,
        cluster: Cluster,
        reader: Reader,
        clock: Clock,
        settings: Settings,
        *,
        chat: Chat | None = None,
        webhook: Webhook | None = None,
    ) -> None:
        self._cluster = cluster
        self._reader = reader
        self._clock = clock
        self._settings = settings
        self._chat = chat
        self._webhook = webhook
        self._queue: WorkQueue[str] = WorkQueue()
        self._waiting: set[str] = set()
        self._failures: dict[str, int] = {}

    def tell(self, name: str) -> None:
        """Something of that run may have changed. Returns at once."""
        if name in self._waiting or len(self._waiting) < MAX_RUNS:
            self._waiting.add(name)
            self._queue.add(name)

    async def run(self, workers: int = 2) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._queue.work(self._one))

    async def _one(self, name: str) -> timedelta | None:
        """Returns when to try again, at the latest; None: all is told."""
        try:
            async with asyncio.timeout(MAX_PASS.total_seconds()):
                again = await self.announce(name)
        except (ClusterError, TimeoutError) as error:
            log.info("run %s: people are not told now, trying again: %s", name, error or "no answer in time")
        except Exception:  # one run must not stop the others
            log.exception("run %s: an error of ours; people are not told of it now", name)
        else:
            if again is None:
                self._waiting.discard(name)
                self._failures.pop(name, None)
            return again
        self._failures[name] = min(self._failures.get(name, 0) + 1, 16)
        return self._backoff(self._failures[name])

    def _backoff(self, failures: int) -> timedelta:
        return self._settings.scaled(min(FIRST_BACKOFF * 2 ** min(failures - 1, 16), LAST_BACKOFF))

    async def announce(self, name: str) -> timedelta | None:
        """Everything that there is to tell of one run now."""
        raw = await self._cluster.get(MaintenanceRun, name)
        run = check(MaintenanceRun, raw).obj if raw is not None else None
        if run is None or (not run.status.notifications and self._not_worth_it(run)):
            return None
        policy, _ = await self._reader.policy(run)
        wanted = _wanted(run, policy)
        entries = {entry.kind: entry for entry in run.status.notifications}
        view = RunView(run, policy)
        again: list[timedelta] = []
        if wanted.slack is not None:
            old = entries.get("Slack") or Notification(kind="Slack", target=wanted.slack)
            if not old.ts and not old.nonce:
                old = old.model_copy(update={"target": wanted.slack, "channel": wanted.slack})
            if (wait := self._wait(run, old)) is None:
                others = tuple(entry for kind, entry in entries.items() if kind != "Slack")
                entries["Slack"] = await self._slack(view, old, others)
                wait = self._wait(run, entries["Slack"])
            again += [wait] if wait is not None else []
        elif policy is not None:
            entries.pop("Slack", None)
        if wanted.url is not None:
            old = entries.get("Webhook") or Notification(kind="Webhook", target=origin(wanted.url))
            if (wait := self._wait(run, old)) is None:
                entries["Webhook"] = await self._hook(run, old, wanted.url)
                wait = self._wait(run, entries["Webhook"])
            again += [wait] if wait is not None else []
        elif policy is not None:
            entries.pop("Webhook", None)
        await self._store(run, tuple(entries.values()))
        live = [wait for wait in again if wait < GIVE_UP]
        return min(live) if live else None

    def _not_worth_it(self, run: MaintenanceRun) -> bool:
        status = run.status
        if status.phase in UNTOLD:
            return True
        since = status.phase_since
        ended = status.phase is not None and status.phase.ended
        return ended and since is not None and since + self._settings.scaled(STALE) < self._clock.now()

    def _wait(self, run: MaintenanceRun, entry: Notification) -> timedelta | None:
        """Until the next try after a failure; None: now, or nothing to do."""
        now, status = self._clock.now(), run.status
        if entry.failing_since is None or entry.next_try_at is None:
            return None
        ended = status.phase is not None and status.phase.ended
        if ended and status.phase_since is not None and status.phase_since + GIVE_UP < now:
            return GIVE_UP
        return entry.next_try_at - now if entry.next_try_at > now else None

    async def _slack(self, view: RunView, entry: Notification, others: tuple[Notification, ...]) -> Notification:
        """The entry after one try; never raises ChatError."""
        if self._chat is None:
            why = "the controller has no Slack tokens; set them as docs/slack.md says, and restart it"
            return self._failed(entry, ChatError(why))
        told, chat = entry, self._chat
        try:
            if not told.ts:
                told = await self._found(chat, view.run, told)
            if not told.ts:
                # Stored before it is posted: after a crash the message is found by it.
                told = told.model_copy(update={"nonce": secrets.token_hex(16), "posting_since": self._clock.now()})
                await self._store(view.run, (told, *others))
                told = await self._posted(chat, view, told)
                await self._store(view.run, (told, *others))
            posted = Posted(told.channel, told.ts)
            shown = chat.shown(view)
            if shown != told.shown:
                await chat.update(posted, view)
                told = told.model_copy(update={"shown": shown, "delivered_at": self._clock.now()})
            new = steps(view.run, told)
            for line in lines(view.run, new):
                await chat.reply(posted, line)
            if new:
                told = told.model_copy(update={"told": new[-1].at, "delivered_at": self._clock.now()})
            return _worked(told)
        except ChatError as error:
            if error.code in GONE:
                told = told.model_copy(update={"ts": "", "nonce": "", "posting_since": None, "shown": ""})
            elif error.code and not told.ts:
                # It answered no: no message was posted that had to be looked for.
                told = told.model_copy(update={"nonce": "", "posting_since": None})
            return self._failed(told, error)

    async def _found(self, chat: Chat, run: MaintenanceRun, entry: Notification) -> Notification:
        """With the message that was posted before a crash, where there is one. Raises ChatError."""
        if not entry.nonce or entry.posting_since is None:
            return entry
        found = await chat.find(entry.channel, nonce=entry.nonce, since=entry.posting_since)
        if found is None:
            return entry
        log.info("run %s: its message was posted before; going on with it", run.name)
        return entry.model_copy(update={"channel": found.channel, "ts": found.ts, "told": entry.posting_since})

    async def _posted(self, chat: Chat, view: RunView, entry: Notification) -> Notification:
        shown = chat.shown(view)
        posted = await chat.post(entry.channel, view, nonce=entry.nonce)
        return entry.model_copy(
            update={
                "channel": posted.channel,
                "ts": posted.ts,
                "shown": shown,
                "told": last_step(view.run),
                "delivered_at": self._clock.now(),
            }
        )

    async def _hook(self, run: MaintenanceRun, entry: Notification, url: str) -> Notification:
        entry = entry.model_copy(update={"target": origin(url)})
        this = event_id(run)
        if entry.shown == this:
            return entry
        if self._webhook is None:
            why = "the controller has no webhook key; give it one (--webhook-key-file), and restart it"
            return self._failed(entry, ChatError(why))
        now = self._clock.now()
        try:
            await self._webhook.send(url, event(run, format_time(now)))
        except ChatError as error:
            return self._failed(entry, error)
        return _worked(entry.model_copy(update={"shown": this, "told": last_step(run), "delivered_at": now}))

    def _failed(self, entry: Notification, error: ChatError) -> Notification:
        now, failures = self._clock.now(), entry.failures + 1
        wait = self._backoff(failures)
        if error.retry_after is not None:
            wait = max(wait, min(error.retry_after, LAST_RETRY_AFTER))
        if error.message[:MAX_ERROR] != entry.error:  # once, not at every try
            log.warning("%s: people are not told of a run, trying again: %s", entry.kind, error.message)
        return entry.model_copy(
            update={
                "failing_since": entry.failing_since or now,
                "failures": failures,
                "next_try_at": now + wait,
                "error": error.message[:MAX_ERROR],
            }
        )

    async def _store(self, run: MaintenanceRun, entries: tuple[Notification, ...]) -> None:
        """Writes status.notifications alone, into the run as it is by now. Raises ClusterError."""
        wanted = [entry.dump() for entry in entries]
        for left in reversed(range(STORES)):
            raw = await self._cluster.get(MaintenanceRun, run.name)
            if raw is None or raw["metadata"]["uid"] != run.metadata.uid:
                raise Conflict(f"run {run.name} is gone", status=409)
            status = dict(raw.get("status") or {})
            if status.get("notifications", []) == wanted:
                return
            status["notifications"] = wanted
            try:
                await self._cluster.replace_status(
                    MaintenanceRun,
                    run.name,
                    uid=run.metadata.uid,
                    resource_version=raw["metadata"]["resourceVersion"],
                    status=status,
                )
                return
            except Conflict:
                if not left:
                    raise


def _worked(entry: Notification) -> Notification:
    return entry.model_copy(update={"failing_since": None, "failures": 0, "next_try_at": None, "error": ""})


def _wanted(run: MaintenanceRun, policy: EvictionPolicy | None) -> _Wanted:
    """Without a policy that can be read, a message that is there goes on; what a webhook's URL is stands there only."""
    if policy is None:
        slack = next(
            (entry.channel or entry.target for entry in run.status.notifications if entry.kind == "Slack"), None
        )
        return _Wanted(slack, None)
    notifications = policy.spec.notifications
    return _Wanted(
        notifications.slack.channel if notifications.slack is not None else None,
        notifications.webhook.url if notifications.webhook is not None else None,
    )
