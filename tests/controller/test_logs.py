"""The log: one line a record, and nothing in it steers a terminal."""

from __future__ import annotations

import json
import logging

import pytest

from taintctl.controller.logs import JsonFormatter, TextFormatter

HOSTILE = "run a: denied: \x1b[2J\u202egnihton\nERROR forged"


def record(message: str) -> logging.LogRecord:
    return logging.LogRecord("taintctl.reconcile", logging.INFO, "", 0, "%s", (message,), None)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_what_objects_say_stays_one_line(formatter: logging.Formatter) -> None:
    assert len(formatter.format(record(HOSTILE)).splitlines()) == 1


def test_control_and_direction_characters_do_not_reach_a_terminal() -> None:
    text = TextFormatter().format(record(HOSTILE))
    assert text.isprintable()
    assert text.endswith("INFO taintctl.reconcile: run a: denied:  [2J gnihton | ERROR forged")


def test_json_keeps_what_was_said() -> None:
    assert json.loads(JsonFormatter().format(record(HOSTILE)))["message"] == HOSTILE
