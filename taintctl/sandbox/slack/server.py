"""A Slack to try on: the Web API and Socket Mode over loopback, with one workspace and no way out.

It takes only what the real one takes: tokens, scopes, Block Kit's limits, triggers that end after three seconds."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from taintctl.sandbox.slack.blocks import Refused
from taintctl.sandbox.slack.methods import METHODS, SCOPES
from taintctl.sandbox.slack.people import TEAM, Channel, Group, Message, User, View
from taintctl.sandbox.slack.sockets import Sockets
from taintctl.sandbox.slack.transcript import entry

TRIGGER_LIFE = 3.0
MAX_BODY = 2 * 1024 * 1024
KEPT = 2000


@dataclass
class Fault:
    """What a method answers instead, so many times (None: until it is taken away)."""

    error: str
    times: int | None = 1
    retry_after: int = 0


@dataclass
class Trigger:
    user: str
    until: float
    used: bool = False


@dataclass
class Recorded:
    """A call that came."""

    method: str
    arguments: dict[str, Any] = field(repr=False)


class FakeSlack:
    """`start`, then give `api_url` and the tokens to an app; `click`, `submit` and the rest are what people do."""

    def __init__(self, *, speed: float = 1.0) -> None:
        self.speed = speed
        self.bot_token = f"xoxb-{secrets.randbelow(10**10)}-{secrets.token_hex(12)}"
        self.app_token = f"xapp-1-{secrets.token_hex(16)}"
        self.scopes = {"users:read.email", *SCOPES.values()}
        self.users: dict[str, User] = {}
        self.groups: dict[str, Group] = {}
        self.channels: dict[str, Channel] = {}
        self.views: dict[str, View] = {}
        self.faults: dict[str, Fault] = {}
        self.calls: deque[Recorded] = deque(maxlen=KEPT)
        self.count: Counter[str] = Counter()
        self.revoked = False
        self.sockets = Sockets()
        self.responded: list[dict[str, Any]] = []
        """What came to a response_url."""
        self.api_url = ""
        self._said: deque[str] = deque(maxlen=KEPT)
        self._triggers: dict[str, Trigger] = {}
        self._last_ts = 0.0
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        app = web.Application(client_max_size=MAX_BODY)
        app.router.add_route("*", "/api/{method}", self._call)
        app.router.add_get("/socket/{ticket}", self.sockets.serve)
        app.router.add_post("/respond/{id}", self._respond)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self._origin = f"{host}:{self._runner.addresses[0][1]}"
        self.api_url = f"http://{self._origin}/api/"

    async def stop(self) -> None:
        await self.sockets.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # the workspace

    def add_user(self, user_id: str, name: str, **more: Any) -> User:
        self.users[user_id] = User(user_id, name, **more)
        return self.users[user_id]

    def add_group(self, group_id: str, handle: str, *users: str) -> Group:
        self.groups[group_id] = Group(group_id, handle, list(users))
        return self.groups[group_id]

    def add_channel(self, channel_id: str, name: str, **more: Any) -> Channel:
        self.channels[channel_id] = Channel(channel_id, name, **more)
        return self.channels[channel_id]

    def fail(self, method: str, error: str, *, times: int | None = 1, retry_after: int = 0) -> None:
        """`ratelimited` is answered as 429 with Retry-After."""
        self.faults[method] = Fault(error, times, retry_after)

    def transcript(self) -> str:
        return "\n\n".join(self._said)

    def record(self, what: str, channel: Channel, message: Message) -> None:
        to = self.users[message.to].name if message.to else ""
        self._said.append(entry(what, channel, message, to=to))

    # what people do

    async def click(self, user_id: str, where: Message | View, text: str, *, copies: int = 1) -> dict[str, Any]:
        """Presses the button that reads `text` and, where it asks, confirms. Returns the payload as it was sent, with
        `copies` deliveries of one envelope. Raises TimeoutError where nobody acknowledges within 3 s."""
        payload = self.payload(user_id, where, text)
        self._said.append(f"{self.users[user_id].name} clicks [ {text} ]")
        await self.sockets.deliver(payload, copies=copies, patience=TRIGGER_LIFE)
        return payload

    async def submit(self, user_id: str, view: View, values: dict[str, str]) -> dict[str, Any] | None:
        """Sends the window; returns what the acknowledgement said (an error beside an input), else None."""
        if "submit" not in view.view:
            raise ValueError("the window has nothing to send")
        inputs = {name: {name: {"type": "plain_text_input", "value": value}} for name, value in values.items()}
        payload = {
            "type": "view_submission",
            "team": {"id": TEAM},
            "user": self._who(user_id),
            "trigger_id": self._trigger(user_id),
            "view": {"id": view.id, **view.view, "state": {"values": inputs}},
            "response_urls": [],
        }
        self._said.append(f"{self.users[user_id].name} sends: {' '.join(values.values())}")
        return await self.sockets.deliver(payload, patience=TRIGGER_LIFE)

    def payload(self, user_id: str, where: Message | View, text: str) -> dict[str, Any]:
        """A block_actions payload, as docs.slack.dev has it."""
        pressed = next((one for one in where.buttons() if one["text"]["text"] == text), None)
        if pressed is None:
            raise ValueError(f"there is no button {text}, but {[one['text']['text'] for one in where.buttons()]}")
        payload: dict[str, Any] = {
            "type": "block_actions",
            "team": {"id": TEAM, "domain": "sandbox"},
            "user": self._who(user_id),
            "trigger_id": self._trigger(user_id),
            "actions": [{"type": "button", "action_id": pressed["action_id"], "value": pressed["value"]}],
        }
        if isinstance(where, View):
            payload["container"] = {"type": "view", "view_id": where.id}
            payload["view"] = {"id": where.id, **where.view}
        else:
            payload["container"] = {"type": "message", "channel_id": where.channel, "message_ts": where.ts}
            payload["channel"] = {"id": where.channel}
            payload["response_url"] = f"http://{self._origin}/respond/{secrets.token_hex(8)}"
        return payload

    def _who(self, user_id: str) -> dict[str, str]:
        user = self.users[user_id]
        return {"id": user_id, "username": user.name, "name": user.name, "team_id": user.team_id}

    # what the methods use

    def next_ts(self) -> str:
        self._last_ts = max(time.time(), self._last_ts + 0.000001)
        return f"{self._last_ts:.6f}"

    def socket_url(self) -> str:
        return f"ws://{self._origin}/socket/{self.sockets.ticket()}"

    def add_view(self, user_id: str, view: dict[str, Any]) -> View:
        made = View(f"V{len(self.views) + 1:08d}", user_id, view)
        self.views[made.id] = made
        while len(self.views) > KEPT:
            del self.views[next(iter(self.views))]
        return made

    def _trigger(self, user_id: str) -> str:
        trigger = f"{secrets.randbelow(10**12)}.{secrets.token_hex(12)}"
        self._triggers[trigger] = Trigger(user_id, time.monotonic() + TRIGGER_LIFE / self.speed)
        while len(self._triggers) > KEPT:
            del self._triggers[next(iter(self._triggers))]
        return trigger

    def use_trigger(self, trigger_id: str) -> str:
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise Refused("invalid_trigger_id")
        if time.monotonic() > trigger.until:
            raise Refused("expired_trigger_id")
        if trigger.used:
            raise Refused("exchanged_trigger_id")
        trigger.used = True
        return trigger.user

    # HTTP

    async def _respond(self, request: web.Request) -> web.Response:
        self.responded.append(await request.json())
        del self.responded[:-KEPT]
        return web.Response(text="ok")

    async def _call(self, request: web.Request) -> web.Response:
        name = request.match_info["method"]
        arguments: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json":
            arguments |= await request.json(loads=json.loads)
        else:
            arguments |= dict(await request.post())
        self.calls.append(Recorded(name, arguments))
        self.count[name] += 1
        try:
            self._allowed(name, request.headers.get("Authorization", ""))
            fault = self._fault(name)
            if fault is not None and fault.error == "ratelimited":
                headers = {"Retry-After": str(fault.retry_after)}
                return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
            if fault is not None:
                raise Refused(fault.error)
            return web.json_response({"ok": True, **METHODS[name](self, arguments)})
        except Refused as refused:
            messages = {"messages": list(refused.messages)}
            return web.json_response({"ok": False, "error": refused.code, "response_metadata": messages})

    def _allowed(self, name: str, authorization: str) -> None:
        if name not in METHODS:
            raise Refused("unknown_method")
        token = authorization.removeprefix("Bearer ")
        if self.revoked:
            raise Refused("token_revoked")
        if token not in (self.bot_token, self.app_token):
            raise Refused("invalid_auth" if token else "not_authed")
        if (token == self.app_token) != (name == "apps.connections.open"):
            raise Refused("not_allowed_token_type")
        if name in SCOPES and SCOPES[name] not in self.scopes:
            raise Refused("missing_scope")

    def _fault(self, name: str) -> Fault | None:
        fault = self.faults.get(name)
        if fault is not None and fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                del self.faults[name]
        return fault

    async def connected(self, patience: float = 10.0) -> None:
        """Until an app has a socket open."""
        async with asyncio.timeout(patience):
            await self.sockets.open.wait()
