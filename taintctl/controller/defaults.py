"""What deploy/ and the controller agree on; apart from the rest, so that a command line that needs one of them loads no
operator framework."""

from __future__ import annotations

NAMESPACE = "taintctl-system"
"""The controller's namespace (deploy/namespace.yaml); its Lease lives there."""
ACCOUNT = "taintctl"
"""Its ServiceAccount (deploy/service-account.yaml)."""
LEASE = "taintctl"
"""The Lease that lets one controller work at a time (deploy/rbac.yaml)."""
PROBES_PORT = 8081
"""Of /healthz and /readyz (deploy/deployment.yaml)."""
SPEED_ANNOTATION = "taintctl.dev/speed"
"""On the Lease: by how much the controller divides its delays. Only on a sandbox; without it, 1."""
