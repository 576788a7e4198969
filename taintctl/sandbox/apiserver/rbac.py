"""Who may do what: RBAC over the roles and bindings in the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.store import Store
from taintctl.sandbox.users import AUTHENTICATED, User

_GROUP = "rbac.authorization.k8s.io"

_DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/readyz",
    "/openapi",
    "/openapi/*",
    "/version",
    "/version/",
)
"""What `system:discovery` lets every authenticated user read."""

_SELF = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
}
"""What `system:basic-user` lets every authenticated user create."""


@dataclass(frozen=True)
class Attributes:
    """What somebody wants to do. A request has either a resource or a path."""

    verb: str
    group: str = ""
    resource: str = ""
    """The plural, with its subresource: `pods/eviction`."""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def refusal(self, user: User) -> str:
        """Why not, in upstream's words."""
        if self.path:
            return f'User "{user.name}" cannot {self.verb} path "{self.path}"'
        scope = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user.name}" cannot {self.verb} resource "{self.resource}" in API group "{self.group}" {scope}'


class Authorizer:
    """Asks the roles in the store; members of system:masters may do everything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def allows(self, user: User, wanted: Attributes) -> bool:
        if user.is_master:
            return True
        if AUTHENTICATED in user.groups and _everybody(wanted):
            return True
        return any(_rule_allows(rule, wanted) for rule in self._rules(user, wanted.namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Object]:
        for binding in self._store.list(f"clusterrolebindings.{_GROUP}"):
            if _binds(binding, user, ""):
                yield from self._role_rules(binding["roleRef"], "")
        if not namespace:
            return
        for binding in self._store.list(f"rolebindings.{_GROUP}", namespace):
            if _binds(binding, user, namespace):
                yield from self._role_rules(binding["roleRef"], namespace)

    def _role_rules(self, reference: Object, namespace: str) -> list[Object]:
        if reference["kind"] == "Role":
            role = self._store.find(f"roles.{_GROUP}", namespace, reference["name"])
        else:
            role = self._store.find(f"clusterroles.{_GROUP}", None, reference["name"])
        return list((role or {}).get("rules") or [])


def _everybody(wanted: Attributes) -> bool:
    if wanted.path:
        return wanted.verb == "get" and _path_matches(_DISCOVERY, wanted.path)
    return wanted.verb == "create" and (wanted.group, wanted.resource) in _SELF


def _binds(binding: Object, user: User, namespace: str) -> bool:
    for subject in binding.get("subjects") or []:
        kind, name = subject.get("kind"), subject.get("name")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            where = subject.get("namespace") or namespace
            if user.name == f"system:serviceaccount:{where}:{name}":
                return True
    return False


def _rule_allows(rule: Object, wanted: Attributes) -> bool:
    verbs = rule.get("verbs") or []
    if "*" not in verbs and wanted.verb not in verbs:
        return False
    if wanted.path:
        return _path_matches(rule.get("nonResourceURLs") or [], wanted.path)
    groups = rule.get("apiGroups") or []
    if "*" not in groups and wanted.group not in groups:
        return False
    if not any(_resource_matches(one, wanted.resource) for one in rule.get("resources") or []):
        return False
    names = rule.get("resourceNames") or []
    return not names or wanted.name in names


def _resource_matches(pattern: str, resource: str) -> bool:
    if pattern in ("*", resource):
        return True
    # "*/scale" is that subresource of every resource; "pods" alone is not "pods/status".
    return pattern.startswith("*/") and "/" in resource and pattern[1:] == "/" + resource.partition("/")[2]


def _path_matches(patterns: tuple[str, ...] | list[str], path: str) -> bool:
    return any(one == path or (one.endswith("*") and path.startswith(one[:-1])) for one in patterns)
