"""Namespaces, nodes and RBAC objects."""

from __future__ import annotations

from datetime import datetime

from taintctl.sandbox.apiserver.errors import FieldError, invalid_value, required, unsupported
from taintctl.sandbox.apiserver.meta import Object, dns_label_problems, path_segment_problems
from taintctl.sandbox.apiserver.strategies.base import Strategy


class NamespaceStrategy(Strategy):
    """A deleted namespace stays, Terminating, until its `kubernetes` finalizer in the spec is gone."""

    name_problems = staticmethod(dns_label_problems)

    def default(self, obj: Object, now: datetime) -> None:
        meta = obj["metadata"]
        meta["labels"] = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta.get("name", "")}

    def prepare_create(self, obj: Object, now: datetime) -> None:
        obj["spec"] = {"finalizers": ["kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def prepare_update(self, obj: Object, old: Object, subresource: str | None, now: datetime) -> None:
        if subresource != "finalize":
            obj["spec"] = old["spec"]

    def mark_deleted(self, obj: Object) -> None:
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}

    def held(self, obj: Object) -> bool:
        return bool(obj.get("spec", {}).get("finalizers"))


class NodeStrategy(Strategy):
    """Nodes get the structs that a kubelet fills later, so that clients find them."""

    status_takes_metadata = True
    creates_with_status = True

    def default(self, obj: Object, now: datetime) -> None:
        obj["spec"] = obj.get("spec") or {}
        status = obj["status"] = dict(obj.get("status") or {})
        status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
        status.setdefault(
            "nodeInfo",
            dict.fromkeys(
                (
                    "machineID",
                    "systemUUID",
                    "bootID",
                    "kernelVersion",
                    "osImage",
                    "containerRuntimeVersion",
                    "kubeletVersion",
                    "kubeProxyVersion",
                    "operatingSystem",
                    "architecture",
                ),
                "",
            ),
        )

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, taint in enumerate(obj["spec"].get("taints") or []):
            field = f"spec.taints[{index}]"
            if not taint.get("key"):
                errors.append(required(f"{field}.key"))
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                supported = ("NoSchedule", "PreferNoSchedule", "NoExecute")
                errors.append(unsupported(f"{field}.effect", taint.get("effect", ""), supported))
        return errors


class RBACStrategy(Strategy):
    """Roles and bindings; a binding's roleRef never changes."""

    name_problems = staticmethod(path_segment_problems)

    def default(self, obj: Object, now: datetime) -> None:
        if not obj["kind"].endswith("Binding"):
            return
        if isinstance(obj.get("roleRef"), dict):
            obj["roleRef"].setdefault("apiGroup", "rbac.authorization.k8s.io")
        for subject in obj.get("subjects") or []:
            if subject.get("kind") in ("User", "Group"):
                subject.setdefault("apiGroup", "rbac.authorization.k8s.io")

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if not obj["kind"].endswith("Binding"):
            return [
                required(f"rules[{index}].verbs", "verbs must contain at least one value")
                for index, rule in enumerate(obj.get("rules") or [])
                if not rule.get("verbs")
            ]
        errors: list[FieldError] = []
        role = obj.get("roleRef") or {}
        if role.get("kind") not in ("Role", "ClusterRole"):
            errors.append(unsupported("roleRef.kind", role.get("kind", ""), ("ClusterRole", "Role")))
        if not role.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or []):
            field = f"subjects[{index}]"
            if subject.get("kind") not in ("User", "Group", "ServiceAccount"):
                errors.append(
                    unsupported(f"{field}.kind", subject.get("kind", ""), ("ServiceAccount", "User", "Group"))
                )
            if not subject.get("name"):
                errors.append(required(f"{field}.name"))
            if subject.get("kind") == "ServiceAccount" and not subject.get("namespace"):
                errors.append(required(f"{field}.namespace"))
        if old is not None and obj.get("roleRef") != old.get("roleRef"):
            errors.append(invalid_value("roleRef", obj.get("roleRef"), "cannot change roleRef"))
        return errors
