"""/healthz and /readyz for the kubelet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

Check = Callable[[], str | None]
"""None where all is well, else why not."""


class Probes:
    """Serves until `stop`. `port` is the one that is really listened on (0 asks for a free one)."""

    def __init__(self, host: str, port: int, *, alive: Check, ready: Check) -> None:
        self._host = host
        self.port = port
        app = web.Application()
        app.router.add_get("/healthz", _handler(alive))
        app.router.add_get("/readyz", _handler(ready))
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> None:
        """Raises OSError where the port is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()


def _handler(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(_: web.Request) -> web.StreamResponse:
        problem = check()
        return web.Response(text=(problem or "ok") + "\n", status=503 if problem else 200)

    return answer
