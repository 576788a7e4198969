"""Who may talk to the sandbox: users and service accounts, each with a bearer token."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

MAX_USERS = 1000

MASTERS = "system:masters"
"""Members of this group may do everything; RBAC is not asked."""

AUTHENTICATED = "system:authenticated"

_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")


@dataclass(frozen=True)
class User:
    """An identity as authentication sees it."""

    name: str
    groups: tuple[str, ...]
    uid: str = ""
    token: str = ""

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups


class Users:
    """The users the API server knows; `admin` is there from the start."""

    def __init__(self) -> None:
        self._by_token: dict[str, User] = {}
        self._by_name: dict[str, User] = {}
        self.admin = self.add("admin", groups=(MASTERS,))

    def add(self, name: str, *, groups: tuple[str, ...] = (), token: str = "") -> User:
        """A user with a token, made up unless given. Asked again for the same name, it replaces groups and token."""
        if not name:
            raise ValueError("a user needs a name")
        if token and not _TOKEN.fullmatch(token):
            raise ValueError("a token has letters, digits and -._~ only, since it is part of a path")
        known = self._by_name.get(name)
        if known is None and len(self._by_name) >= MAX_USERS:
            raise ValueError(f"the sandbox keeps at most {MAX_USERS} users")
        if known is not None:
            del self._by_token[known.token]
        secret = token or secrets.token_urlsafe(24)
        user = User(name, (*dict.fromkeys((*groups, AUTHENTICATED)),), known.uid if known else str(uuid4()), secret)
        self._by_name[name] = self._by_token[secret] = user
        return user

    def service_account(self, namespace: str, name: str) -> User:
        """The identity of a service account; the same one, with the same token, when asked again."""
        full = f"system:serviceaccount:{namespace}:{name}"
        known = self._by_name.get(full)
        if known is not None:
            return known
        return self.add(full, groups=("system:serviceaccounts", f"system:serviceaccounts:{namespace}"))

    def authenticate(self, token: str) -> User | None:
        """The user of a token; None for one nobody has."""
        return self._by_token.get(token)

    def get(self, name: str) -> User | None:
        return self._by_name.get(name)


TOKEN_PREFIX = "/as/"  # noqa: S105 - a path, no secret
"""A path that starts with this and a token is asked as that token's user.

kubectl (client-go) sends credentials over TLS only, and the sandbox speaks plain HTTP on loopback: so a kubeconfig has
the token in the server's path too. Clients that send the bearer token need no prefix.
"""


def kubeconfig(user: User, url: str, *, namespace: str = "default") -> dict[str, Any]:
    """A kubeconfig with which kubectl and the clients act as `user` on the server at `url`."""
    server = f"{url}{TOKEN_PREFIX}{user.token}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": server}}],
        "users": [{"name": user.name, "user": {"token": user.token}}],
        "contexts": [
            {"name": "sandbox", "context": {"cluster": "sandbox", "user": user.name, "namespace": namespace}},
        ],
        "current-context": "sandbox",
    }
