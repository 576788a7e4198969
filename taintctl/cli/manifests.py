"""What `kubectl apply -k deploy/` would install, for the sandbox: CRDs, roles, the admission policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from taintctl.api.crds import manifests as crds
from taintctl.cli.errors import Failure

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("namespace.yaml", "service-account.yaml", "rbac.yaml", "roles-for-people.yaml", "admission.yaml")
"""Of deploy/. The Deployment stays out: a sandbox runs no containers, the controller runs as a process."""
CONTROLLER_NAMESPACE, CONTROLLER_ACCOUNT = "taintctl-system", "taintctl"
"""As in deploy/service-account.yaml."""


def installation() -> list[dict[str, Any]]:
    """In an order in which each object finds what it needs. Raises Failure where deploy/ is not beside the package."""
    found = list(crds().values())
    for part in PARTS:
        found += read(ROOT / "deploy" / part)
    return found


def read(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(
            f"{path} can't be read ({error.strerror}); `taintctl sandbox` and `demo` run from a checkout of the project"
        ) from None
    return [document for document in yaml.safe_load_all(text) if document]
