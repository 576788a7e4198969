"""What `kubectl apply -k deploy/` would install, for the sandbox: CRDs, roles, the admission policies."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from taintctl.api.crds import manifests as crds
from taintctl.cli.errors import Failure

CHECKOUT = Path(__file__).resolve().parents[2]
PARTS = ("namespace.yaml", "service-account.yaml", "rbac.yaml", "roles-for-people.yaml", "admission.yaml")
"""Of deploy/. The Deployment stays out: a sandbox runs no containers, the controller runs as a process."""


def installation() -> list[dict[str, Any]]:
    """In an order in which each object finds what it needs. Raises Failure where the files are missing."""
    found = list(crds().values())
    for part in PARTS:
        found += shipped("deploy", part)
    return found


def shipped(folder: str, name: str) -> list[dict[str, Any]]:
    """The objects of one of the project's own manifests. Raises Failure where it is missing."""
    path = CHECKOUT / folder / name
    if not path.is_file():
        path = _installed(f"share/taintctl/{folder}/{name}")
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def _installed(name: str) -> Path:
    """A data file of the installed package (pyproject.toml, data-files), wherever the installer put it."""
    for file in (file for found in metadata.distributions(name="taintctl") for file in found.files or ()):
        if file.as_posix().endswith(name) and (path := Path(str(file.locate()))).is_file():
            return path
    raise Failure(f"{name} is not where taintctl is installed; install it again, or run it from a checkout")
