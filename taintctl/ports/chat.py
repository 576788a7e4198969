"""What the workflow needs of a chat in which people are told of runs and decide on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from taintctl.api.approval import ApprovalDecision
from taintctl.api.plan import Plan
from taintctl.api.policy import EvictionPolicy
from taintctl.api.run import MaintenanceRun


@dataclass(frozen=True)
class RunView:
    """A run as people are told of it; `policy` is None where it can't be read."""

    run: MaintenanceRun
    policy: EvictionPolicy | None


@dataclass(frozen=True)
class Posted:
    """A message, by the ids that the chat's server gave it."""

    channel: str
    ts: str


class ChatError(Exception):
    """The chat refused or did not answer. `message` is one sentence with the next step and names no secret."""

    def __init__(self, message: str, *, code: str = "", retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        """The chat's own word, such as `channel_not_found`; empty where there was no answer."""
        self.retry_after = retry_after
        """How long the server asked to wait, where it did."""


class Chat(Protocol):
    """One message a run, which follows it, and a thread with its later phases. Every call raises ChatError."""

    def shown(self, view: RunView) -> str:
        """A fingerprint of what the message would show: another one means that `update` is due."""
        ...

    async def post(self, channel: str, view: RunView, *, nonce: str) -> Posted:
        """A new message; `nonce` goes with it, unseen, so that `find` can tell it after a crash."""
        ...

    async def find(self, channel: str, *, nonce: str, since: datetime) -> Posted | None:
        """The message that was posted with `nonce` at `since` or later. None where there is none or it may not look."""
        ...

    async def update(self, posted: Posted, view: RunView) -> None: ...

    async def reply(self, posted: Posted, text: str) -> None:
        """One line in the message's thread; `text` is plain, its markup is escaped by the adapter."""
        ...


@dataclass(frozen=True)
class Person:
    """Who clicked, by the server's word: never by the payload's text."""

    user_id: str
    team_id: str
    name: str = ""
    """For people to read; nothing is decided by it."""
    email: str = ""
    groups: frozenset[str] = frozenset()
    """Ids of those of the policy's user groups that the person is in."""
    is_bot: bool = False
    deleted: bool = False


@dataclass(frozen=True)
class Click:
    """A decision on one plan of one run."""

    run_name: str
    run_uid: str
    digest: str
    decision: ApprovalDecision
    person: Person
    message: Posted
    comment: str = ""


class Answered(StrEnum):
    """What became of a click."""

    RECORDED = "Recorded"
    REPEATED = "Repeated"
    """The same person decided the same before."""
    NOT_ALLOWED = "NotAllowed"
    OTHER_PLAN = "OtherPlan"
    """The plan changed since the message showed it: the approval would be void."""
    EXPIRED = "Expired"
    DECIDED = "Decided"
    """Denied or approved in full, or the run is past the question."""
    SUPERSEDED = "Superseded"
    """Another message stands for the run."""
    GONE = "Gone"
    FAILED = "Failed"
    """It could not be written; nothing changed."""


@dataclass(frozen=True)
class Answer:
    """`text` is one or two plain sentences for the person who clicked, with the next step."""

    result: Answered
    text: str


@dataclass(frozen=True)
class Details:
    """The whole of a plan, computed when it is asked for. `same` says whether it is still the plan that is asked
    about."""

    view: RunView
    plan: Plan | None
    same: bool
    note: str = ""
    """Why there is no plan, or how it differs."""


class Desk(Protocol):
    """What a chat hands on to: it decides who may, and writes MaintenanceApprovals. It never raises."""

    async def groups(self, run_name: str) -> Sequence[str]:
        """The user groups (ids or handles, as the policy lists them) that it matters to be in for this run."""
        ...

    async def decide(self, click: Click) -> Answer: ...

    async def details(self, run_name: str, run_uid: str) -> Details | None:
        """None: the run is gone."""
        ...


@dataclass(frozen=True)
class ChatState:
    """How the chat is, for probes, logs and status pages."""

    connected: bool
    since: datetime | None = None
    error: str = ""
    channels: frozenset[str] = field(default_factory=frozenset)
