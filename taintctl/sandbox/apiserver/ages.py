"""How long ago something was, as kubectl writes it."""

from __future__ import annotations

from datetime import datetime

from taintctl.sandbox.apiserver.meta import parse_time


def duration(seconds: float) -> str:
    """A duration as kubectl writes it (`HumanDuration`): 45s, 3m5s, 12m, 5h2m, 3d4h, 40d."""
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = whole // 3600
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    return f"{years}y{days % 365}d" if years < 8 and days % 365 else f"{years}y"


def since(text: str | None, now: datetime) -> str:
    """How long ago a time was; `<unknown>` for none."""
    if not text:
        return "<unknown>"
    try:
        return duration((now - parse_time(text)).total_seconds())
    except ValueError:
        return "<invalid>"
