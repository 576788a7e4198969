"""Clicks over HTTP: each request is signed by Slack, fresh and small, or it is refused unread."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import parse_qs

from aiohttp import web
from slack_sdk.signature import Clock as SignatureClock
from slack_sdk.signature import SignatureVerifier

from taintctl.adapters.slack.interactions import Busy, Interactions
from taintctl.ports.clock import Clock

PATH = "/slack/interactions"
MAX_BODY = 1024 * 1024
"""Bytes; a payload repeats the message or the window that was clicked in."""
READ_TIMEOUT = 5.0


class _Clock(SignatureClock):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> float:
        return self._clock.now().timestamp()


def interactions_app(secret: str, interactions: Interactions, clock: Clock) -> web.Application:
    verifier = SignatureVerifier(secret, _Clock(clock))

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.content_length is not None and request.content_length > MAX_BODY:
            return _refused(413, "the body is too large")
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                body = await request.read()  # client_max_size ends it with 413
        except TimeoutError:
            return _refused(408, "the body did not arrive")
        if not _signed(verifier, body, request):
            return _refused(401, "no valid signature of Slack's, or older than five minutes")
        try:
            form = parse_qs(body.decode(), max_num_fields=10)
            payload = json.loads(form["payload"][0])
        except (KeyError, ValueError, RecursionError):
            return _refused(400, "no payload")
        try:
            taken = interactions.take(payload)
        except Busy:
            return _refused(503, "too many clicks at once")
        response = web.json_response(taken.ack) if taken.ack else web.Response()
        await response.prepare(request)
        await response.write_eof()
        taken.start()
        return response

    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_post(PATH, answer)
    return app


def _signed(verifier: SignatureVerifier, body: bytes, request: web.Request) -> bool:
    """The library takes only well-formed headers; others raise there."""
    stamp, signature = (request.headers.get(f"X-Slack-{name}", "") for name in ("Request-Timestamp", "Signature"))
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16 and signature.isascii()):
        return False
    try:
        return verifier.is_valid(body, stamp, signature)
    except UnicodeDecodeError:
        return False


def _refused(status: int, why: str) -> web.Response:
    return web.Response(status=status, text=f"{why}\n")
