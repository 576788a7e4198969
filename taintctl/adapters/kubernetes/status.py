"""What the API server's refusals mean: `Status` objects become the errors of ports/errors.py."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from taintctl.api.text import one_line
from taintctl.ports.errors import ClusterError, Conflict, Forbidden, Invalid, NotFound, Unavailable

MAX_CAUSES = 20


class Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True):
    """metav1.Status, as far as we read it."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: Details | None = None


class Expired(ClusterError):
    """410: the resourceVersion or continue token is too old; 504: it is one that the server has not come to, as after a
    restore from a backup. List again."""


class Refusal(msgspec.Struct, frozen=True):
    """An answer that is not 2xx; `text` is one line."""

    status: int
    reason: str
    text: str
    causes: tuple[Cause, ...] = ()
    retry_after: float | None = None
    """Seconds that the server asks to wait."""

    def cause(self, reason: str) -> str | None:
        """The message of the first cause with that reason, in one line."""
        return next((one_line(c.message) for c in self.causes if c.reason == reason), None)


def refusal(http_status: int, body: bytes, retry_after_header: str | None = None) -> Refusal:
    """Reads an answer that is not 2xx. What is not a Status (a proxy's page, an empty body) is shown as it is, cut."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:2000].decode("utf-8", "replace"))
    details = status.details or Details()
    return Refusal(
        status=http_status,
        reason=one_line(status.reason, 64),
        text=one_line(status.message) or f"HTTP {http_status}",
        causes=(details.causes or ())[:MAX_CAUSES],
        retry_after=_seconds(retry_after_header, details.retry_after_seconds),
    )


def _seconds(header: str | None, details: int | None) -> float | None:
    if header and header.strip().isdecimal():
        return float(min(int(header.strip()[:9]), 3600))
    return float(max(0, min(details, 3600))) if details is not None else None


def to_error(refused: Refusal, what: str) -> ClusterError:
    """The error for the caller; `what` says what was asked, such as `GET /api/v1/pods`."""
    message = f"{refused.text} ({what}: HTTP {refused.status})"
    if refused.status == 401:
        message = f"The API server does not know these credentials; log in again: {message}"
    kinds: dict[int, type[ClusterError]] = {401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Expired}
    kind = Expired if refused.cause("ResourceVersionTooLarge") is not None else kinds.get(refused.status)
    if kind is None and (refused.status >= 500 or refused.status in (408, 429)):
        kind = Unavailable
    elif kind is None and _precondition(refused):
        kind = Conflict
    return (kind or Invalid)(message, status=refused.status, reason=refused.reason)


def _precondition(refused: Refusal) -> bool:
    """A patch with another object's uid is answered as an immutable field (recording 04); it means: not that object."""
    return refused.status == 422 and any(c.field == "metadata.uid" for c in refused.causes)


@lru_cache(maxsize=128)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def decode(body: bytes | msgspec.Raw, kind: Any, what: str) -> Any:
    """JSON to a type; what does not fit is an error, never a guess. Raises ClusterError."""
    try:
        return _decoder(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterError(
            f"The API server's answer can't be read ({what}): {one_line(str(error), 200)}", reason="Unreadable"
        ) from None
