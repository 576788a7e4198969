"""One line a record on stderr, as text or JSON; a traceback is folded into its line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Literal

LogFormat = Literal["text", "json"]


def set_up(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Sends the log of taintctl to stderr, and of the libraries only what is a warning or worse; of kopf nothing, for
    it logs whole addresses and tracebacks of what it then tries again, and what ends it is logged by us."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("taintctl").setLevel(level)
    logging.getLogger("kopf").setLevel(logging.CRITICAL + 1)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        if record.exc_info:
            text += f" | {self.formatException(record.exc_info)}"
        # What objects say (an approval's comment) must not steer a terminal.
        lines = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
        return " | ".join(line for line in lines if line)


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            # What a record is about, for whoever collects them (the audit of approvals).
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)
