"""Pure packages read no clock, no random numbers, no environment and no files: values in, values out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).resolve().parents[2] / "taintctl"
PURE = ("api", "cel", "impact", "policy", "workflow")

MODULES = frozenset(
    {"time", "random", "secrets", "uuid", "os", "pathlib", "io", "tempfile", "shutil", "glob", "logging"}
)
"""No part of these has a place in a pure package."""
METHODS = frozenset({"now", "utcnow", "today"})
"""Of datetime and date wherever they are named, and of anything else (a clock) where they are called."""
BUILTINS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})


def impurities(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in MODULES:
                    yield f"line {line}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in MODULES:
                yield f"line {line}: from {node.module} import"
        elif (
            isinstance(node, ast.Attribute) and node.attr in METHODS and _last_name(node.value) in {"datetime", "date"}
        ):
            yield f"line {line}: .{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            yield f"line {line}: .{node.func.attr}()"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BUILTINS:
            yield f"line {line}: {node.func.id}()"


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


FILES = [path for package in PURE for path in sorted((PACKAGES / package).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGES)))
def test_a_pure_package_only_computes(path: Path) -> None:
    assert list(impurities(path.read_text())) == []


def test_every_pure_package_is_looked_at() -> None:
    assert {path.relative_to(PACKAGES).parts[0] for path in FILES} == set(PURE)


@pytest.mark.parametrize(
    "source",
    [
        "from datetime import datetime\nnow = datetime.now()",
        "import datetime as dt\nnow = dt.datetime.utcnow()",
        "from datetime import date\ntoday = date.today()",
        "f = datetime.now",
        "late = clock.now() > deadline",
        "import time",
        "from time import monotonic",
        "import random",
        "import os.path",
        "from os import environ",
        "from uuid import uuid4",
        "text = open('file').read()",
        "print('here')",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert list(impurities(source))


def test_what_is_pure_passes() -> None:
    assert (
        list(impurities("from datetime import datetime\n\ndef later(now: datetime) -> datetime:\n    return now\n"))
        == []
    )
