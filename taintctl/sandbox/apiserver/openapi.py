"""OpenAPI v3, as much as kubectl reads of it: `apply`, `diff`, `explain` and the check for `fieldValidation`.

Custom resources get their definition's schema. Built-in kinds get an open one: their fields are Kubernetes' own, and
kubectl knows those it patches strategically.
"""

from __future__ import annotations

import hashlib
from typing import Any

from taintctl.sandbox.apiserver.discovery import REVIEWS, group_versions, resources
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.strategies.custom import CustomStrategy
from taintctl.sandbox.resources import Registry, ResourceInfo

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

_TYPE_META: Object = {
    "apiVersion": {"type": "string", "description": "The version of the schema of this object."},
    "kind": {"type": "string", "description": "What this object is."},
    "metadata": {
        "description": "Standard object metadata.",
        "allOf": [{"$ref": f"#/components/schemas/{_META}"}],
        "default": {},
    },
}

_OBJECT_META: Object = {
    "type": "object",
    "description": "ObjectMeta is metadata that all persisted resources must have.",
    "properties": {
        "name": {"type": "string", "description": "Unique within a namespace."},
        "generateName": {"type": "string", "description": "A prefix for a name made by the server."},
        "namespace": {"type": "string", "description": "The space in which the name is unique."},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Keys to select by."},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Other data."},
        "finalizers": {"type": "array", "items": {"type": "string"}, "description": "Must be empty before deletion."},
        "ownerReferences": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "description": "Objects this object depends on.",
        },
        "uid": {"type": "string", "description": "Unique in time and space, set by the server."},
        "resourceVersion": {"type": "string", "description": "Changes with every write, set by the server."},
        "generation": {"type": "integer", "format": "int64", "description": "Changes with the desired state."},
        "creationTimestamp": {"type": "string", "format": "date-time", "description": "Set by the server."},
        "deletionTimestamp": {"type": "string", "format": "date-time", "description": "Set by the server."},
        "deletionGracePeriodSeconds": {"type": "integer", "format": "int64", "description": "Set by the server."},
        "managedFields": {
            "type": "array",
            "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "description": "Who applied what.",
        },
    },
}


class OpenAPI:
    """The documents, built when first asked for and again when what is served changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._documents: dict[str, Object] = {}
        self._generation = -1

    def index(self) -> Object:
        """/openapi/v3: the documents there are. The hash lets clients cache them."""
        self._refresh()
        paths = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={self._hash(path)}"} for path in self._documents}
        return {"paths": paths}

    def document(self, path: str) -> Object | None:
        """/openapi/v3/<path>, such as apis/apps/v1; None when nothing is served there."""
        self._refresh()
        return self._documents.get(path)

    def _hash(self, path: str) -> str:
        # Not for security: it only has to change when the document does.
        return hashlib.sha256(f"{path} {self._generation}".encode()).hexdigest().upper()

    def _refresh(self) -> None:
        if self._generation == self._registry.generation:
            return
        self._generation = self._registry.generation
        self._documents = {}
        for group, versions in group_versions(self._registry).items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                self._documents[path] = self._built(group, version, path)

    def _built(self, group: str, version: str, base: str) -> Object:
        schemas: Object = {_META: _OBJECT_META}
        paths: Object = {}
        for info in resources(self._registry):
            if info.group != group or version not in info.versions:
                continue
            name = _schema_name(info, version)
            schemas[name] = self._schema(info, version)
            paths |= _paths(info, version, base, name)
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": f"v{self._registry.kubernetes}.0"},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _schema(self, info: ResourceInfo, version: str) -> Object:
        gvk = [{"group": info.group, "version": version, "kind": info.kind}]
        strategy = self._registry.strategy(info.key)
        if isinstance(strategy, CustomStrategy):
            schema: Object = _published(strategy.openapi)
            schema["properties"] = {**(schema.get("properties") or {}), **_TYPE_META}
            return schema | {"x-kubernetes-group-version-kind": gvk}
        opened = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        properties = {**_TYPE_META, "spec": opened, "status": opened}
        return {
            "type": "object",
            "description": f"{info.kind} as in Kubernetes {self._registry.kubernetes}.",
            "properties": properties,
            "x-kubernetes-preserve-unknown-fields": True,
            "x-kubernetes-group-version-kind": gvk,
        }


def _published(schema: Any) -> Any:
    """A schema as OpenAPI takes it: int-or-string becomes a choice, CEL rules stay with the server."""
    if isinstance(schema, list):
        return [_published(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    published = {key: _published(value) for key, value in schema.items() if key != "x-kubernetes-validations"}
    if schema.get("x-kubernetes-int-or-string") is True:
        published.setdefault("oneOf", [{"type": "integer"}, {"type": "string"}])
        published["format"] = "int-or-string"
    return published


def _schema_name(info: ResourceInfo, version: str) -> str:
    group = ".".join(reversed((info.group or "core.api.k8s.io").split(".")))
    return f"{group}.{version}.{info.kind}"


def _paths(info: ResourceInfo, version: str, base: str, schema: str) -> Object:
    gvk = {"group": info.group, "version": version, "kind": info.kind}
    reference = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    answers = {"200": {"description": "OK", "content": reference}}
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]

    def operation(action: str, *, writes: bool) -> Object:
        found: Object = {
            "responses": answers,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }
        if writes:
            found["parameters"] = parameters
        return found

    scope = "namespaces/{namespace}/" if info.namespaced else ""
    collection = f"/{base}/{scope}{info.plural}"
    if info in REVIEWS:
        return {collection: {"post": operation("post", writes=True)}}
    paths = {
        collection: {"get": operation("list", writes=False), "post": operation("post", writes=True)},
        f"{collection}/{{name}}": {
            "get": operation("get", writes=False),
            "put": operation("put", writes=True),
            "patch": operation("patch", writes=True),
            "delete": operation("delete", writes=False),
        },
    }
    if info.namespaced:
        paths[f"/{base}/{info.plural}"] = {"get": operation("list", writes=False)}
    return paths
