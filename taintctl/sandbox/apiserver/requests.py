"""A request taken apart: which resource, which verb, which options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from taintctl.sandbox.apiserver import errors, protobuf
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.shapes import check_shape
from taintctl.sandbox.resources import Registry, ResourceInfo
from taintctl.sandbox.users import User

MAX_BODY = 3 * 1024 * 1024
"""Bytes of a request's body; the limit of a real API server."""

JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}


@dataclass(frozen=True)
class Request:
    """A request for a resource, from an authenticated user."""

    user: User
    verb: str
    """As in RBAC: get, list, watch, create, update, patch, delete, deletecollection."""
    info: ResourceInfo
    version: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    accept: str
    content_type: str
    body: bytes

    @property
    def resource(self) -> str:
        """The key with its subresource, as faults name it."""
        return f"{self.info.key}/{self.subresource}" if self.subresource else self.info.key

    def flag(self, name: str) -> bool:
        """A boolean of the query string; `1`, `true` and an empty value are true."""
        value = self.query.get(name)
        return value is not None and value.lower() in ("1", "true", "")

    def number(self, name: str) -> int | None:
        """A number of the query string; ApiError 400 when it is none."""
        value = self.query.get(name)
        if value is None or value == "":
            return None
        if not value.isdigit() or len(value) > 18:
            raise errors.bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax: give {name} as a number')
        return int(value)

    @property
    def dry_run(self) -> bool:
        value = self.query.get("dryRun")
        return _is_dry_run([] if value in (None, "") else [value])

    @property
    def media_type(self) -> str:
        return self.content_type.partition(";")[0].strip().lower()

    def decoded(self) -> Any:
        """The body as a value, from JSON or YAML; ApiError 400 or 415."""
        return decode(self.body, self.media_type)

    def object(self) -> Object:
        """The body as an object of this resource; ApiError 400 where kind or apiVersion say something else."""
        obj = self.decoded()
        if not isinstance(obj, dict):
            raise errors.bad_request("the request body is not an object: send one Kubernetes object")
        obj["metadata"] = {} if obj.get("metadata") is None else obj["metadata"]
        check_shape(self.info, obj)
        expected = self.info.api_version_of(self.version)
        kind, version = obj.get("kind") or self.info.kind, obj.get("apiVersion") or expected
        if kind != self.info.kind or version != expected:
            raise errors.bad_request(
                f"{kind} in version {version} cannot be handled as a {self.info.kind} in version {expected}"
            )
        return obj


def _is_dry_run(values: list[Any]) -> bool:
    if values and values != ["All"]:
        raise errors.ApiError(422, "Invalid", f'dryRun: Unsupported value: {values}: supported values: "All"')
    return bool(values)


def decode(body: bytes, media_type: str) -> Any:
    """A body's value; a missing content type is taken for JSON."""
    if media_type in (YAML, APPLY_PATCH, "text/yaml"):
        try:
            # JSON's types only: no timestamps, no tags.
            return yaml.load(body, Loader=_JsonLoader)  # noqa: S506 - a subclass of SafeLoader
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise errors.bad_request(f"error decoding YAML: {str(error).splitlines()[0]}") from None
    if media_type == PROTOBUF:
        value = protobuf.decode(body)
        if value is None:
            raise errors.unsupported_media_type(media_type, (JSON, YAML))
        return value
    if media_type not in ("", JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, "text/plain"):
        raise errors.unsupported_media_type(media_type, (JSON, YAML))
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the object provided is unrecognized or not valid JSON: {error}") from None


class _JsonLoader(yaml.SafeLoader):
    """YAML with JSON's types: what looks like a date stays text, as in sigs.k8s.io/yaml."""


_JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True)
class DeleteOptions:
    """What a deletion asks for, from its body or, where it has none, the query string."""

    uid: str | None = None
    resource_version: str | None = None
    grace_seconds: int | None = None
    propagation: str | None = None
    dry_run: bool = False


def delete_options(request: Request, given: Any = None) -> DeleteOptions:
    """The options of a deletion; ApiError 400 or 422 for what is none. `given` is used instead of the body."""
    options = given if given is not None else request.decoded() if request.body else {}
    if options is None:
        options = {}
    if not isinstance(options, dict):
        raise errors.bad_request("the request body is no DeleteOptions")
    preconditions = options.get("preconditions") or {}
    grace = options.get("gracePeriodSeconds")
    grace = request.number("gracePeriodSeconds") if grace is None else grace
    if grace is not None and (not isinstance(grace, int) or grace < 0):
        raise errors.bad_request("gracePeriodSeconds is not a whole number of seconds")
    propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy")
    if propagation not in (None, "", "Background", "Foreground", "Orphan"):
        raise errors.bad_request(f"propagationPolicy {propagation!r} is none of Background, Foreground, Orphan")
    return DeleteOptions(
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        grace_seconds=grace,
        propagation=propagation or None,
        dry_run=request.dry_run or _is_dry_run(list(options.get("dryRun") or [])),
    )


@dataclass(frozen=True)
class Route:
    """Where a path leads."""

    info: ResourceInfo
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def route(path: str, registry: Registry) -> Route | None:
    """The resource that a path names; None for paths that are not of a resource. ApiError 404 for unknown ones."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # /namespaces/x is the namespace itself; /namespaces/x/pods is what is in it.
    if rest[0] == "namespaces" and len(rest) >= 3 and not (group == "" and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    info = registry.find(group, version, rest[0])
    if info is None or len(rest) > 3 or (namespace and not info.namespaced):
        raise errors.no_such_path()
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in info.subresources:
        raise errors.no_such_path()
    name = rest[1] if len(rest) > 1 else ""
    if name and info.namespaced and not namespace:
        raise errors.no_such_path()
    return Route(info, version, namespace, name, subresource)


def verb_of(method: str, found: Route, query: Mapping[str, str]) -> str:
    """The verb of a request; ApiError 405 where the method makes no sense for the path."""
    verb = _VERBS.get(method)
    if verb is None:
        raise errors.method_not_allowed()
    if found.name:
        allowed = verb in ("get", "update", "patch", "delete") if not found.subresource else verb != "delete"
        if found.subresource in ("binding", "eviction"):
            allowed = verb == "create"
        elif verb == "create":
            allowed = False
        if not allowed:
            raise errors.method_not_allowed()
        return "watch" if verb == "get" and query.get("watch") in ("1", "true") and not found.subresource else verb
    if verb == "get":
        return "watch" if query.get("watch") in ("1", "true") else "list"
    if verb == "delete":
        return "deletecollection"
    if verb != "create" or (found.info.namespaced and not found.namespace):
        raise errors.method_not_allowed()
    return verb
