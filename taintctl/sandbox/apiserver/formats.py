"""String formats that a schema may ask for; a format that is not here is not checked, as upstream does it."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+")


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except (ValueError, binascii.Error):
            return False
        return True

    return check


def _date_time(value: str) -> bool:
    return bool(_DATE_TIME.fullmatch(value)) and _parses(datetime.fromisoformat)(re.sub(r"(\.\d{6})\d+", r"\1", value))


FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _date_time,
    "date": _parses(date.fromisoformat),
    "duration": lambda value: bool(_DURATION.fullmatch(value)),
    "uuid": _parses(uuid.UUID),
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "cidr": _parses(ipaddress.ip_network),
    "byte": _parses(lambda value: base64.b64decode(value, validate=True)),
    "uri": lambda value: bool(urlsplit(value).scheme),
}
