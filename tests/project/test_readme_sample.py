"""The sample output in the README is what the command prints on a fresh sandbox."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from taintctl.api.crds import manifests
from taintctl.cli.main import run
from taintctl.sandbox.cluster import Sandbox

ROOT = Path(__file__).resolve().parents[2]


async def test_the_plan_in_the_readme_is_a_real_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"^```\n\$ taintctl (plan [^\n]+)\n(.*?)^```$", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None
    async with Sandbox(speed=50) as sandbox:
        sandbox.apply(manifests().values())
        sandbox.apply(yaml.safe_load(path.read_text()) for path in (ROOT / "policies").glob("*.yaml"))
        kubeconfig = sandbox.write_kubeconfig(tmp_path / "kubeconfig")
        status = await asyncio.to_thread(run, [*found[1].split(), "--kubeconfig", str(kubeconfig)])
        printed = capfd.readouterr().out
    assert status == 1  # what would be blocked is a refusal
    assert [line.rstrip() for line in printed.splitlines()] == found[2].splitlines()
