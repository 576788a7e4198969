"""What differs from kind to kind when an object is written: defaults, preparation, validation, deletion.

Upstream calls the same thing a strategy (`k8s.io/apiserver/pkg/registry/rest`); the store calls it in upstream's order:
default, prepare, validate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from taintctl.sandbox.apiserver.errors import FieldError
from taintctl.sandbox.apiserver.meta import Object, copied, dns_subdomain_problems


class Strategy:
    """Plain storage: nothing defaulted, nothing refused. Kinds override what is different for them."""

    name_problems: Callable[[str], Iterator[str]] = staticmethod(dns_subdomain_problems)

    status_takes_metadata = False
    """Whether a write of the status subresource also changes labels, annotations and finalizers."""

    creates_with_status = False
    """Whether the client's status at creation is kept, where the kind has a status subresource."""

    def default(self, obj: Object, now: datetime) -> None:
        """Fills in, in place, what the client left out. Runs before admission."""

    def prepare_create(self, obj: Object, now: datetime) -> None:
        """Sets, in place, what a client cannot choose at creation, such as an initial status."""

    def prepare_update(self, obj: Object, old: Object, subresource: str | None, now: datetime) -> None:
        """Carries over, in place, what this kind of write may not change. `status` and spec are carried already."""

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        """What is wrong with `obj`, beyond its metadata; `old` is None at creation."""
        return []

    def grace_seconds(self, obj: Object, asked: int | None) -> int | None:
        """How long the object may take to end; None for kinds that end at once."""
        return None

    def mark_deleted(self, obj: Object) -> None:
        """Edits, in place, an object that has just got its deletionTimestamp."""

    def held(self, obj: Object) -> bool:
        """Whether something beside `metadata.finalizers` keeps a deleted object."""
        return False


class StatusStrategy(Strategy):
    """Plain storage of a kind whose `status` is a struct: it is there, if only empty, from the start."""

    def __init__(self, initial: Object | None = None) -> None:
        self._initial: Object = initial if initial is not None else {}

    def prepare_create(self, obj: Object, now: datetime) -> None:
        obj["status"] = copied(self._initial)
