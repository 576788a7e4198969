"""Which objects have a value: the keys under which a mirror holds them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

from taintctl.adapters.kubernetes.selection import K, Key, key

V = TypeVar("V", bound=Hashable)


class Index(Generic[V]):
    """Most values are of one object alone: its key is held as it is, and a set only where there are several."""

    def __init__(self) -> None:
        self._keys: dict[V, Key | set[Key]] = {}

    def get(self, value: V) -> frozenset[Key]:
        found = self._keys.get(value)
        if found is None:
            return frozenset()
        return frozenset((found,)) if isinstance(found, tuple) else frozenset(found)

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
            self._remove(value, key(old))
        for value in after - before:
            assert new is not None
            self._add(value, key(new))

    def _add(self, value: V, name: Key) -> None:
        held = self._keys.get(value)
        if held is None:
            self._keys[value] = name
        elif isinstance(held, set):
            held.add(name)
        elif held != name:
            self._keys[value] = {held, name}

    def _remove(self, value: V, name: Key) -> None:
        held = self._keys[value]
        if isinstance(held, set):
            held.discard(name)
            if len(held) == 1:
                self._keys[value] = held.pop()
        elif held == name:
            del self._keys[value]
