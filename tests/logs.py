"""The controller sets logging up for its process; the tests of that process get theirs back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("taintctl")
    handlers, level, own = root.handlers[:], root.level, ours.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        ours.setLevel(own)
