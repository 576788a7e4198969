"""Writes crds/ from the models, or with --check says where they differ (exit status 1).

`make crds` and `make check` call it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from taintctl.api.crds import manifests

FOLDER = Path(__file__).resolve().parent.parent / "crds"
HEAD = "# Generated from taintctl/api/ by `make crds`; changes made here are lost.\n"
KUSTOMIZATION = "Kustomization"
"""Without an ending, so that `kubectl apply -f crds/` does not take it for a manifest."""


class _Dumper(yaml.SafeDumper):
    """Lists indented below their key, no anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render() -> dict[str, str]:
    """The text of every file in crds/."""
    crds = manifests()
    files = {name: HEAD + _yaml(crd) for name, crd in crds.items()}
    files[KUSTOMIZATION] = HEAD + _yaml(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(crds)}
    )
    return files


def _yaml(data: dict[str, Any]) -> str:
    # A width that no line reaches: a rule on one line can be searched for.
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def differences(files: dict[str, str], folder: Path = FOLDER) -> list[str]:
    """One line for each file that is missing, other than `files` says, or not among them."""
    there = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    lines = [f"{name}: missing" for name in sorted(files.keys() - there.keys())]
    lines += [f"{name}: not made by any model" for name in sorted(there.keys() - files.keys())]
    lines += [f"{name}: differs" for name in sorted(files.keys() & there.keys()) if files[name] != there[name]]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where crds/ differs")
    files = render()
    if parser.parse_args().check:
        wrong = differences(files)
        for line in wrong:
            print(f"crds/{line}; run `make crds` and commit the result", file=sys.stderr)
        return 1 if wrong else 0
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.iterdir():
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
