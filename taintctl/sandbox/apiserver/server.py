"""The HTTP server: authentication, faults, authorization, and on to what a path is for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from taintctl.ports.clock import Clock
from taintctl.sandbox.apiserver import discovery, errors, namespaces, reviews
from taintctl.sandbox.apiserver.admission import Admission
from taintctl.sandbox.apiserver.crds import DEFINITIONS, resource_of
from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.apiserver.openapi import OpenAPI
from taintctl.sandbox.apiserver.rbac import Attributes, Authorizer
from taintctl.sandbox.apiserver.requests import MAX_BODY, Request, Route, decode, route, verb_of
from taintctl.sandbox.apiserver.selectors import matcher
from taintctl.sandbox.apiserver.verbs import Verbs
from taintctl.sandbox.apiserver.views import encode
from taintctl.sandbox.apiserver.watches import DEFAULT_TIMEOUT, Broadcaster
from taintctl.sandbox.faults import Effect, Fault, Faults
from taintctl.sandbox.store import Event, Store
from taintctl.sandbox.users import AUTHENTICATED, TOKEN_PREFIX, User, Users, kubeconfig

_log = logging.getLogger(__name__)

_HEALTH = ("/healthz", "/livez", "/readyz")
_FAULT_REASONS = {
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class _ConnectionClosed(Exception):
    """The connection is closed without an answer, as a fault wants it."""


class ApiServer:
    """A Kubernetes API server on loopback, over a `Store`. `start()` makes `url` known."""

    def __init__(
        self, store: Store, users: Users, faults: Faults, clock: Clock, *, kubernetes: str = "1.37", port: int = 0
    ) -> None:
        store.resources.use_kubernetes(kubernetes)
        self.store = store
        self.users = users
        self.faults = faults
        self._clock = clock
        self._port = port
        self._authorizer = Authorizer(store)
        self._verbs = Verbs(store, Admission(store))
        self._openapi = OpenAPI(store.resources)
        self._broadcaster: Broadcaster | None = None
        self._runner: web.AppRunner | None = None
        self._endings: list[Callable[[], None]] = []

    @property
    def url(self) -> str:
        """Where the server listens; RuntimeError before it has started."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the API server has not been started")
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def kubeconfig(self, user: User) -> dict[str, Any]:
        """A kubeconfig that makes kubectl act as `user`."""
        return kubeconfig(user, self.url)

    async def start(self) -> None:
        """Listens on 127.0.0.1; OSError when the port is taken."""
        namespaces.ensure_initial(self.store)
        broadcaster = Broadcaster(self.store, self._clock)
        self._broadcaster = broadcaster
        self._endings = [
            self.store.subscribe(DEFINITIONS, self._on_definition),
            self.faults.on_cut(broadcaster.cut),
        ]
        application = web.Application(client_max_size=MAX_BODY)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Ends the watches and listens no more. What the store holds stays."""
        for end in self._endings:
            end()
        self._endings = []
        if self._broadcaster is not None:
            self._broadcaster.close()
            self._broadcaster = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def _on_definition(self, event: Event) -> None:
        if event.type == "DELETED" and self._broadcaster is not None:
            # Soon: the deletions of its objects are delivered first.
            asyncio.get_running_loop().call_soon(self._broadcaster.end_of, resource_of(event.obj).key)

    # Requests ------------------------------------------------------------------------------------------------------

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        try:
            if self.faults.away:
                raise _ConnectionClosed
            return await self._answer(http)
        except (_ConnectionClosed, ConnectionError):
            # By us, or by a client that went away in the middle of its request, which is nobody's error.
            if http.transport is not None:
                http.transport.abort()
            return web.Response(status=503)
        except ApiError as error:
            return _refusal(error)
        except web.HTTPRequestEntityTooLarge:
            return _refusal(errors.too_large(MAX_BODY))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            _log.exception("%s %s failed", http.method, http.path)
            text = f"Internal error occurred: {type(error).__name__}: {error}"[:500]
            return _refusal(ApiError(500, "InternalError", text, {"causes": [{"message": text}]}))

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        token, path = _split(http.path)
        if path in _HEALTH:
            return web.Response(text="ok")
        user = self._impersonated(http, self._authenticated(http, token))
        if path in (reviews.ACCESS_REVIEWS, reviews.SELF_REVIEWS) and http.method == "POST":
            body = decode(await http.read(), http.content_type)
            return _json(reviews.review(path, body, user, self._authorizer, self.store), status=201)
        found = route(path, self.store.resources)
        if found is None:
            return self._other(http, path, user)
        verb = verb_of(http.method, found, http.query)
        resource = found.info.key + (f"/{found.subresource}" if found.subresource else "")
        fault = self.faults.meet(verb, resource, user.name, found.name)
        await self._suffer(fault)
        self._authorize(user, verb, found)
        request = await _taken_apart(http, user, verb, found)
        if verb == "watch":
            return await self._watch(http, request)
        answer = self._verbs.handle(request)
        if fault is not None and fault.effect is Effect.LOSE_ANSWER:
            raise _ConnectionClosed
        response = web.Response(status=answer.status, body=answer.body, content_type="application/json")
        for warning in dict.fromkeys(answer.warnings):
            response.headers.add("Warning", f'299 - "{_header_text(warning)}"')
        return response

    def _authenticated(self, http: web.Request, token: str) -> User:
        header = http.headers.get("Authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            token = token.strip() if scheme.lower() == "bearer" else ""
        user = self.users.authenticate(token)
        if user is None:
            raise errors.unauthorized()
        return user

    def _impersonated(self, http: web.Request, user: User) -> User:
        """The user that `kubectl --as` names, where the caller may impersonate."""
        name = http.headers.get("Impersonate-User")
        if not name:
            return user
        groups = http.headers.getall("Impersonate-Group", [])
        for resource, one in [("users", name), *(("groups", group) for group in groups)]:
            wanted = Attributes(verb="impersonate", resource=resource, name=one)
            if not self._authorizer.allows(user, wanted):
                raise errors.forbidden(resource, "", one, wanted.refusal(user))
        return User(name, (*dict.fromkeys((*groups, AUTHENTICATED)),))

    async def _suffer(self, fault: Fault | None) -> None:
        """Does what a fault wants before the request is served."""
        if fault is None or fault.effect is Effect.LOSE_ANSWER:
            return
        if fault.effect is Effect.DELAY:
            await self._clock.sleep(fault.delay)
        elif fault.effect is Effect.DROP:
            raise _ConnectionClosed
        else:
            reason = _FAULT_REASONS.get(fault.status, "Unknown")
            details: dict[str, Any] = {}
            if fault.retry_after is not None:
                details["retryAfterSeconds"] = fault.retry_after
            raise ApiError(fault.status, reason, "the sandbox was told to fail this request", details)

    def _authorize(self, user: User, verb: str, found: Route) -> None:
        info = found.info
        resource = info.plural + (f"/{found.subresource}" if found.subresource else "")
        # A namespace is looked at in itself, as upstream's request info has it.
        namespace = found.name if info.key == "namespaces" else found.namespace
        wanted = Attributes(verb, info.group, resource, namespace, found.name)
        if not self._authorizer.allows(user, wanted):
            raise errors.forbidden(info.plural, info.group, found.name, wanted.refusal(user))

    async def _watch(self, http: web.Request, request: Request) -> web.StreamResponse:
        broadcaster = self._broadcaster
        if broadcaster is None:
            raise _ConnectionClosed
        query = request.query
        view = self._verbs.view(request)
        wanted = matcher(query.get("labelSelector", ""), query.get("fieldSelector", ""), request.info)
        initial = request.flag("sendInitialEvents")
        bookmarks = request.flag("allowWatchBookmarks")
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise errors.bad_request("sendInitialEvents requires resourceVersionMatch=NotOlderThan")
        timeout = request.number("timeoutSeconds") or DEFAULT_TIMEOUT
        since = request.number("resourceVersion") or None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        # Opened before the first await: nothing that happens meanwhile is missed.
        watcher = broadcaster.open(
            request.info.key,
            view,
            namespace=request.namespace,
            name=request.name,
            wanted=wanted,
            since=None if initial else since,
            initial=initial and bookmarks,
        )
        try:
            await response.prepare(http)
            await broadcaster.serve(watcher, response.write, view, timeout=float(timeout), bookmarks=bookmarks)
            await response.write_eof()
        except (ConnectionError, TimeoutError):
            if http.transport is not None:
                http.transport.abort()
        finally:
            broadcaster.forget(watcher)
        return response

    def _other(self, http: web.Request, path: str, user: User) -> web.Response:
        """Paths that are not of a resource: discovery, OpenAPI, the version."""
        wanted = Attributes("get" if http.method in ("GET", "HEAD") else http.method.lower(), path=path)
        if not self._authorizer.allows(user, wanted):
            raise ApiError(403, "Forbidden", f"forbidden: {wanted.refusal(user)}", {})
        registry = self.store.resources
        parts = path.strip("/").split("/")
        accept = http.headers.get("Accept", "")
        if path in ("/api", "/apis") and "as=APIGroupDiscoveryList" in accept and "v=v2;" in accept + ";":
            body = encode(discovery.aggregated(registry, core=path == "/api"))
            return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED})
        found: dict[str, Any] | None = None
        if parts == ["version"]:
            found = _version(registry.kubernetes)
        elif parts == ["api"]:
            found = discovery.api_versions()
        elif parts == ["apis"]:
            found = discovery.group_list(registry)
        elif parts[0] == "apis" and len(parts) == 2:
            found = discovery.group(registry, parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            found = discovery.resource_list(registry, parts[1], parts[2])
        elif parts[0] == "api" and len(parts) == 2:
            found = discovery.resource_list(registry, "", parts[1])
        elif parts == ["openapi", "v3"]:
            found = self._openapi.index()
        elif parts[:2] == ["openapi", "v3"]:
            found = self._openapi.document("/".join(parts[2:]))
        if found is None:
            raise errors.no_such_path()
        return _json(found)


def _split(path: str) -> tuple[str, str]:
    """The token that a path starts with (`users.TOKEN_PREFIX`), and the rest of it."""
    if not path.startswith(TOKEN_PREFIX):
        return "", path
    token, _, rest = path[len(TOKEN_PREFIX) :].partition("/")
    return token, f"/{rest}"


async def _taken_apart(http: web.Request, user: User, verb: str, found: Route) -> Request:
    return Request(
        user=user,
        verb=verb,
        info=found.info,
        version=found.version,
        namespace=found.namespace,
        name=found.name,
        subresource=found.subresource,
        query=http.query,
        accept=http.headers.get("Accept", ""),
        content_type=http.headers.get("Content-Type", ""),
        body=await http.read() if http.can_read_body else b"",
    )


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=encode(value), content_type="application/json")


def _refusal(error: ApiError) -> web.Response:
    response = _json(error.to_status(), status=error.status)
    retry = error.details.get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    return response


def _header_text(text: str) -> str:
    """A warning as a header takes it: one line, quotes escaped."""
    return " ".join(text.split()).replace("\\", "\\\\").replace('"', '\\"')[:500]


def _version(kubernetes: str) -> dict[str, str]:
    major, minor = kubernetes.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{kubernetes}.0",
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "sandbox",
    }
