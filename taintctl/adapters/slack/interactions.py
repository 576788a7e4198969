"""What people do with buttons and windows: acknowledged at once, each once, and then handed to the Desk."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from taintctl.adapters.slack import blocks as kit
from taintctl.adapters.slack import modals, value
from taintctl.adapters.slack.client import SlackClient
from taintctl.adapters.slack.identity import Identity, Stranger
from taintctl.adapters.slack.limits import Block
from taintctl.adapters.slack.payload import Act, Submit, read
from taintctl.adapters.slack.render import superseded
from taintctl.adapters.slack.text import plain, prose, redact
from taintctl.adapters.slack.value import Subject
from taintctl.api.approval import ApprovalDecision
from taintctl.ports.chat import Answered, ChatError, Click, Desk, Person, Posted

log = logging.getLogger(__name__)
REMEMBERED = 2000
"""Deliveries whose repetition is noticed."""
AT_ONCE = 32
"""Clicks that are worked on at a time; more are not acknowledged, and Slack tells the person."""
PATIENCE = 60.0
"""Seconds that one click may take."""
DECIDING = 40.0
"""Of these, what the cluster may take to write a decision."""
DECISIONS = {value.APPROVE: ApprovalDecision.APPROVE, value.BREAK: ApprovalDecision.BREAK}
UNCHECKED = "Who you are could not be checked with Slack, so nothing changed: click once more."
Work = Callable[[], Coroutine[Any, Any, None]]


class Busy(Exception):
    """Too much at once: do not acknowledge."""


@dataclass(frozen=True)
class Taken:
    """What to acknowledge with, and what to do after that; `forget` where the acknowledgement could not be sent."""

    ack: Block | None
    start: Callable[[], None]
    forget: Callable[[], None]


class Interactions:
    def __init__(self, client: SlackClient, identity: Identity, desk: Desk) -> None:
        self._client = client
        self._identity = identity
        self._desk = desk
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, payload: Any, envelope_id: str = "") -> Taken:
        """Raises Busy; never waits. A repeated delivery is acknowledged and does nothing."""
        if len(self._tasks) >= AT_ONCE:
            raise Busy
        event = read(payload)
        trigger = event.trigger_id if event else ""
        keys = [key for key in (envelope_id and f"e:{envelope_id[:100]}", trigger and f"t:{trigger[:200]}") if key]
        if any(key in self._seen for key in keys):
            return Taken(None, _nothing, _nothing)
        for key in keys:
            self._seen[key] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        ack: Block | None = None
        work: Work | None = None
        if isinstance(event, Submit):
            comment = event.comment.strip()
            if comment:
                work = partial(self._decide, event, ApprovalDecision.DENY, comment)
            else:
                ack = {"response_action": "errors", "errors": {value.COMMENT: "Say why, in a few words."}}
        elif isinstance(event, Act):
            work = self._work(event)
        return Taken(ack, partial(self._begin, work), partial(self._forget, keys))

    async def drain(self) -> None:
        """Until everything that was taken is done."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _work(self, event: Act) -> Work | None:
        match event.action:
            case value.APPROVE | value.BREAK:
                return partial(self._decide, event, DECISIONS[event.action])
            case value.DENY:
                return partial(self._ask_why, event)
            case value.DETAILS:
                return partial(self._open, event)
            case value.PREVIOUS | value.NEXT if event.view_id:
                return partial(self._turn, event)
        return None

    def _begin(self, work: Work | None) -> None:
        if work is None:
            return
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, keys: list[str]) -> None:
        for key in keys:
            self._seen.pop(key, None)

    async def _guarded(self, work: Work) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                await work()
        except TimeoutError:
            log.warning("Slack: a click took longer than %d s and was given up.", PATIENCE)
        except Stranger:
            log.info("Slack: somebody of another workspace turned a page.")
        except ChatError as error:
            log.warning("Slack: a click could not be answered: %s", error.message)
        except Exception as error:
            log.error("Slack: a click failed: %s: %s", type(error).__name__, redact(str(error))[:300])

    async def _decide(self, event: Act | Submit, decision: ApprovalDecision, comment: str = "") -> None:
        person = await self._person(event)
        if person is None:
            return
        subject = event.subject
        message = Posted(subject.channel, subject.ts)
        click = Click(subject.run, subject.uid, subject.digest, decision, person, message, comment)
        try:
            async with asyncio.timeout(DECIDING):
                answer = await self._desk.decide(click)
        except TimeoutError:
            await self._tell(event, f"The cluster is slow. Whether this counts, taintctl status {subject.run} says.")
            return
        if answer.result in (Answered.SUPERSEDED, Answered.GONE) and subject.channel and subject.ts:
            try:
                await self._client.call(
                    "chat.update", channel=subject.channel, ts=subject.ts, **superseded(answer.text)
                )
            except ChatError as error:
                log.warning("Slack: a message that no longer counts still has its buttons: %s", error.message)
        await self._tell(event, answer.text)

    async def _person(self, event: Act | Submit) -> Person | None:
        """None: refused, and told so."""
        try:
            groups = await self._desk.groups(event.subject.run)
            return await self._identity.person(event.user_id, event.team_id, groups)
        except Stranger as stranger:
            await self._tell(event, str(stranger))
        except ChatError as error:
            log.warning("Slack: who clicked on %s could not be checked: %s", event.subject.run, error.message)
            await self._tell(event, UNCHECKED)
        return None

    async def _of_this_team(self, event: Act) -> bool:
        """By a first look, quick enough for a window to open; False: they are told."""
        try:
            self._identity.same_team(await self._client.who(), event.team_id)
        except Stranger as stranger:
            await self._tell(event, str(stranger))
            return False
        return True

    async def _ask_why(self, event: Act) -> None:
        if not await self._of_this_team(event):
            return
        await self._window(event, modals.deny(event.subject))

    async def _open(self, event: Act) -> None:
        """The window first, since a click's trigger is good for 3 s; then who it is, and only then what there is."""
        if not await self._of_this_team(event):
            return
        view_id = await self._window(event, modals.loading(event.subject))
        try:
            await self._identity.person(event.user_id, event.team_id, ())
        except Stranger as stranger:
            await self._show(view_id, modals.refused(event.subject, str(stranger)))
        except ChatError as error:
            log.warning("Slack: who asks for details could not be checked: %s", error.message)
            await self._show(view_id, modals.refused(event.subject, UNCHECKED))
        else:
            await self._page(view_id, event.subject)

    async def _window(self, event: Act, view: Block) -> str:
        """Opens it; says so to the person and raises ChatError where it can't be."""
        try:
            opened = (await self._client.call("views.open", trigger_id=event.trigger_id, view=view)).get("view")
        except ChatError as error:
            await self._tell(event, f"The window could not be opened: {error.message}")
            raise
        view_id = opened.get("id") if isinstance(opened, dict) else None
        if not isinstance(view_id, str):
            raise ChatError("Slack opened a window and gave it no id.")
        return view_id

    async def _turn(self, event: Act) -> None:
        self._identity.same_team(await self._client.who(), event.team_id)
        await self._page(event.view_id, event.subject)

    async def _page(self, view_id: str, subject: Subject) -> None:
        found = await self._desk.details(subject.run, subject.uid)
        await self._show(view_id, modals.details(subject, found))

    async def _show(self, view_id: str, view: Block) -> None:
        await self._client.call("views.update", patient=True, view_id=view_id, view=view)

    async def _tell(self, event: Act | Submit, text: str) -> None:
        """To the person alone: in the channel, or by the click's own address where that fails."""
        said = plain(text, 2000)
        channel = event.subject.channel
        try:
            if not channel:
                raise ChatError("The click came from no channel.")
            await self._client.call(
                "chat.postEphemeral",
                channel=channel,
                user=event.user_id,
                text=said,
                blocks=[{"type": "section", "text": kit.plain_text(said)}],
                parse="none",
                link_names=False,
            )
        except ChatError as error:
            if not event.subject.response_url:
                raise
            log.info("Slack: answered by response_url: %s", error.message)
            await self._client.respond(event.subject.response_url, prose(text, 2000))


def _nothing() -> None:
    return
