"""Answers that are remembered for a time, and only so many of them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """`size` answers at most, the oldest of which goes first; each is forgotten after `seconds` of the event loop's."""

    def __init__(self, size: int, seconds: float) -> None:
        self._size = size
        self._seconds = seconds
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: K) -> V | None:
        found = self._answers.get(key)
        if found is None:
            return None
        until, value = found
        if asyncio.get_running_loop().time() >= until:
            del self._answers[key]
            return None
        return value

    def put(self, key: K, value: V) -> None:
        self._answers.pop(key, None)
        while len(self._answers) >= self._size:
            self._answers.popitem(last=False)
        self._answers[key] = (asyncio.get_running_loop().time() + self._seconds, value)
