"""Which objects have a value: the keys under which a mirror holds them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from taintctl.adapters.kubernetes.selection import K, key

V = TypeVar("V", bound=Hashable)


class Index(Generic[V]):
    def __init__(self) -> None:
        self._keys: dict[V, set[tuple[str, str]]] = {}

    def get(self, value: V) -> frozenset[tuple[str, str]]:
        return frozenset(self._keys.get(value, ()))

    def __contains__(self, value: object) -> bool:
        return value in self._keys

    def __iter__(self) -> Iterator[V]:
        return iter(self._keys)

    def move(self, old: K | None, new: K | None, values: Callable[[K], Iterable[V]]) -> None:
        """An object was added (`old` None), changed, or removed (`new` None). An empty value leaves nothing behind."""
        before = set(values(old)) if old is not None else set()
        after = set(values(new)) if new is not None else set()
        for value in before - after:
            assert old is not None
            keys = self._keys[value]
            keys.discard(key(old))
            if not keys:
                del self._keys[value]
        for value in after - before:
            assert new is not None
            self._keys.setdefault(value, set()).add(key(new))
