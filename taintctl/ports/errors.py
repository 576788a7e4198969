"""What can go wrong between us and the API server, by what the caller can do about it."""

from __future__ import annotations


class ClusterError(Exception):
    """The API server refused or did not answer: `status` is the HTTP code (0: no answer), `message` one line."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class Unavailable(ClusterError):
    """No answer, a 5xx or a 429 after bounded retries: try again later."""


class NotFound(ClusterError):
    """404."""


class Conflict(ClusterError):
    """409: the object changed, exists already, or a precondition failed. Read again, then decide again."""


class Forbidden(ClusterError):
    """401 or 403: our rights do not reach."""


class Invalid(ClusterError):
    """400 or 422: the server refuses what we sent, with its own words."""


class Unsupported(ClusterError):
    """This cluster has no DeviceTaintRule with effect None (before 1.35, or the feature gate is off)."""
