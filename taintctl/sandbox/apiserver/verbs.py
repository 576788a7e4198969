"""The verbs on resources, but for watch: from a request to what is stored and what is answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from taintctl.sandbox.apiserver import errors, namespaces, pods
from taintctl.sandbox.apiserver.admission import Admission, Attributes
from taintctl.sandbox.apiserver.apply import applied_object, builtin_list_keys, schema_list_keys
from taintctl.sandbox.apiserver.events_v1 import from_events_v1, to_events_v1
from taintctl.sandbox.apiserver.lists import listed
from taintctl.sandbox.apiserver.meta import Object, timestamp
from taintctl.sandbox.apiserver.patch import json_patch, merge_patch
from taintctl.sandbox.apiserver.requests import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    DeleteOptions,
    Request,
    delete_options,
)
from taintctl.sandbox.apiserver.selectors import matcher
from taintctl.sandbox.apiserver.shapes import check_shape
from taintctl.sandbox.apiserver.strategic import strategic_merge
from taintctl.sandbox.apiserver.strategies.custom import CustomStrategy
from taintctl.sandbox.apiserver.views import ListMeta, View, encode, view_for
from taintctl.sandbox.store import Admit, Record, Store

_RETURNS_DELETED = frozenset(
    {
        "pods",
        "serviceaccounts",
        "resourceslices.resource.k8s.io",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "deviceclasses.resource.k8s.io",
        "devicetaintrules.resource.k8s.io",
    }
)
"""Kinds whose deletion answers with the object (`ReturnDeletedObject` upstream); others answer with a Status."""


@dataclass
class Answer:
    """What goes back to the client."""

    status: int
    body: bytes
    warnings: list[str] = field(default_factory=list)


class Verbs:
    """Requests for resources, served from the store."""

    def __init__(self, store: Store, admission: Admission) -> None:
        self._store = store
        self._admission = admission

    def handle(self, request: Request) -> Answer:
        """The answer to any verb but watch; ApiError for what is refused."""
        warnings: list[str] = []
        if request.subresource in ("binding", "eviction"):
            return self._pod_subresource(request, warnings)
        handler = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }[request.verb]
        answer = handler(request, warnings)
        answer.warnings = warnings
        return answer

    def view(self, request: Request) -> View:
        """How this request wants its objects."""
        include = request.query.get("includeObject", "")
        return view_for(request.accept, include, request.info, request.version, self._store)

    # Reads ---------------------------------------------------------------------------------------------------------

    def _get(self, request: Request, warnings: list[str]) -> Answer:
        record = self._store.record(request.info.key, request.namespace, request.name)
        return Answer(200, self.view(request).item(record))

    def _list(self, request: Request, warnings: list[str]) -> Answer:
        return Answer(200, listed(self._store, request, self.view(request)))

    # Writes --------------------------------------------------------------------------------------------------------

    def _create(self, request: Request, warnings: list[str]) -> Answer:
        obj = self._received(request, warnings)
        return Answer(201, self._item(request, self._created(request, obj, warnings)))

    def _created(self, request: Request, obj: Object, warnings: list[str]) -> Object:
        name = obj["metadata"].get("name") or ""
        namespaces.check_creation(self._store, request.info, request.namespace, name)
        return self._store.create(
            request.info.storage_key,
            self._to_storage(request, obj),
            user=request.user.name,
            admit=self._admit(request, "CREATE", warnings),
            dry_run=request.dry_run,
        )

    def _update(self, request: Request, warnings: list[str]) -> Answer:
        obj = self._received(request, warnings)
        meta = obj["metadata"]
        current = self._store.get(request.info.key, request.namespace, request.name)
        if request.info.custom and not meta.get("resourceVersion"):
            problem = errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise errors.invalid(request.info.kind, request.info.group, request.name, [problem])
        if meta.get("uid") and meta["uid"] != current["metadata"]["uid"]:
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
            why += str(current["metadata"]["uid"])
            raise errors.conflict(request.info.plural, request.info.group, request.name, why)
        return Answer(200, self._item(request, self._updated(request, obj, warnings)))

    def _updated(self, request: Request, obj: Object, warnings: list[str]) -> Object:
        return self._store.update(
            request.info.storage_key,
            self._to_storage(request, obj),
            subresource=request.subresource or None,
            user=request.user.name,
            admit=self._admit(request, "UPDATE", warnings),
            dry_run=request.dry_run,
        )

    def _patch(self, request: Request, warnings: list[str]) -> Answer:
        kind = request.media_type
        if kind == APPLY_PATCH:
            return self._apply(request, warnings)
        accepted: tuple[str, ...] = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
        if not request.info.custom:
            accepted = (*accepted, STRATEGIC_PATCH)
        if kind not in accepted:
            raise errors.unsupported_media_type(request.content_type, accepted)
        current = self._from_storage(request, self._store.get(request.info.key, request.namespace, request.name))
        patch = request.decoded()
        if kind == JSON_PATCH:
            patched = json_patch(current, patch)
        elif not isinstance(patch, dict):
            raise errors.bad_request("error decoding patch: a patch is an object")
        else:
            patched = merge_patch(current, patch) if kind == MERGE_PATCH else strategic_merge(current, patch)
        if not isinstance(patched, dict) or not isinstance(patched.get("metadata"), dict):
            raise errors.rejected()
        check_shape(request.info, patched)
        self._check_names(request, patched)
        self._check_fields(request, patched, warnings)
        return Answer(200, self._item(request, self._updated(request, patched, warnings)))

    def _apply(self, request: Request, warnings: list[str]) -> Answer:
        manager = request.query.get("fieldManager", "")
        if not manager:
            problem = errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid("PatchOptions", "meta.k8s.io", "", [problem])
        config = self._received(request, warnings)
        live = self._store.find(request.info.key, request.namespace, request.name)
        if live is None and request.subresource:
            raise errors.not_found(request.info.plural, request.info.group, request.name)
        strategy = self._store.resources.strategy(request.info.key)
        keys = schema_list_keys(strategy.openapi) if isinstance(strategy, CustomStrategy) else builtin_list_keys
        applied = applied_object(
            None if live is None else self._from_storage(request, live),
            config,
            manager=manager,
            force=request.flag("force"),
            info=request.info,
            keys=keys,
            now=timestamp(self._store.clock.now()),
            status=request.subresource == "status",
        )
        if live is None:
            return Answer(201, self._item(request, self._created(request, applied, warnings)))
        return Answer(200, self._item(request, self._updated(request, applied, warnings)))

    def _delete(self, request: Request, warnings: list[str]) -> Answer:
        options = delete_options(request)
        namespaces.check_deletion(request.info, request.name)
        deleted = self._deleted(request, request.namespace, request.name, options, warnings)
        left = self._store.find(request.info.key, request.namespace, request.name)
        if request.info.storage_key in _RETURNS_DELETED or (left is not None and not options.dry_run):
            return Answer(200, self._item(request, deleted))
        details = {"name": request.name, "group": request.info.group, "kind": request.info.plural}
        details |= {"uid": deleted["metadata"]["uid"]}
        success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        return Answer(200, encode(success | {"details": {k: v for k, v in details.items() if v}}))

    def _delete_collection(self, request: Request, warnings: list[str]) -> Answer:
        options = delete_options(request)
        wanted = matcher(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""), request.info)
        gone: list[Record] = []
        for record in self._store.records(request.info.key, request.namespace or None):
            meta = record.obj["metadata"]
            if wanted is not None and not wanted(record.obj):
                continue
            namespaces.check_deletion(request.info, meta["name"])
            namespace = meta.get("namespace", "")
            if self._store.find(request.info.key, namespace, meta["name"]) is None:
                # Its owner went just before, and took it along.
                continue
            last = self._deleted(request, namespace, meta["name"], options, warnings)
            gone.append(Record(last, int(last["metadata"]["resourceVersion"])))
        return Answer(200, self.view(request).list(gone, ListMeta(self._store.resource_version)))

    def _deleted(
        self, request: Request, namespace: str, name: str, options: DeleteOptions, warnings: list[str]
    ) -> Object:
        return self._store.delete(
            request.info.storage_key,
            namespace,
            name,
            uid=options.uid,
            resource_version=options.resource_version,
            grace_seconds=options.grace_seconds,
            propagation=options.propagation,
            user=request.user.name,
            admit=self._admit(request, "DELETE", warnings),
            dry_run=options.dry_run,
        )

    def _pod_subresource(self, request: Request, warnings: list[str]) -> Answer:
        if request.subresource == "binding":
            return Answer(201, encode(pods.handle_binding(self._store, request)), warnings)
        admit = self._admit(request, "CREATE", warnings)
        return Answer(201, encode(pods.handle_eviction(self._store, request, admit)), warnings)

    # Inside --------------------------------------------------------------------------------------------------------

    def _admit(self, request: Request, operation: str, warnings: list[str]) -> Admit:
        def admit(new: Object, old: Object | None) -> None:
            obj = None if operation == "DELETE" else new
            attributes = Attributes(request, operation, obj, old if operation != "CREATE" else None, warnings)
            self._admission.check(attributes)

        return admit

    def _received(self, request: Request, warnings: list[str]) -> Object:
        """The object in the body, with the name and namespace of the path."""
        obj = request.object()
        self._check_names(request, obj)
        self._check_fields(request, obj, warnings)
        return obj

    def _check_names(self, request: Request, obj: Object) -> None:
        meta = obj["metadata"]
        if request.info.namespaced:
            if meta.get("namespace") not in (None, "", request.namespace):
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = request.namespace
        if request.name:
            if meta.get("name") not in (None, "", request.name):
                raise errors.bad_request(
                    f"the name of the object ({meta['name']}) does not match the name on the URL ({request.name})"
                )
            meta["name"] = request.name

    def _check_fields(self, request: Request, obj: Object, warnings: list[str]) -> None:
        """`fieldValidation` of custom resources: fields the schema does not know are refused, warned of or dropped."""
        strategy = self._store.resources.strategy(request.info.key)
        level = request.query.get("fieldValidation", "Warn")
        if level not in ("Strict", "Warn", "Ignore"):
            raise errors.bad_request(f"fieldValidation {level!r} is none of Strict, Warn, Ignore")
        if not isinstance(strategy, CustomStrategy) or level == "Ignore":
            return
        unknown = [f'unknown field "{path}"' for path in strategy.unknown_fields(obj)[:20]]
        if unknown and level == "Strict":
            kind, version = request.info.kind, request.version
            raise errors.bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
                + ", ".join(unknown)
            )
        warnings += unknown

    def _to_storage(self, request: Request, obj: Object) -> Object:
        return from_events_v1(obj) if request.info.storage else obj

    def _from_storage(self, request: Request, obj: Object) -> Object:
        if not request.info.storage:
            return obj
        head = {"kind": request.info.kind, "apiVersion": request.info.api_version}
        return head | to_events_v1(obj)

    def _item(self, request: Request, obj: Object) -> bytes:
        revision = int(obj["metadata"].get("resourceVersion") or 0)
        return self.view(request).item(Record(obj, revision))
