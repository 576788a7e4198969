"""Imports point one way: the contracts of pyproject.toml hold, and they are checked for real."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]


def test_every_contract_is_kept() -> None:
    done = subprocess.run(LINT, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_package_has_its_layer() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in config["contracts"] if contract["type"] == "layers")
    named = {name.strip().removeprefix("taintctl.") for layer in layers for name in layer.split("|")}
    assert named == {path.parent.name for path in (ROOT / "taintctl").glob("*/__init__.py")}


@pytest.mark.parametrize(
    ("package", "statement"),
    [("api", "import taintctl.ports.clock"), ("workflow", "import aiohttp"), ("sandbox", "import taintctl.policy")],
)
def test_an_import_that_points_the_wrong_way_is_found(tmp_path: Path, package: str, statement: str) -> None:
    copy = tmp_path / "taintctl"
    for path in (ROOT / "taintctl").rglob("*.py"):
        target = copy / path.relative_to(ROOT / "taintctl")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text())
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    (copy / package / "wrong.py").write_text(f"{statement}\n")
    # The working directory comes first, so that the copy is what is looked at.
    done = subprocess.run(LINT, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert f"taintctl.{package}.wrong -> " in done.stdout
