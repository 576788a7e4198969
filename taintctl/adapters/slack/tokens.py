"""The app's tokens: from environment variables or from files, checked, and never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BOT, APP, SECRET = "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_SIGNING_SECRET"
MAX_FILE = 4096
"""Bytes; a token has under a hundred."""
_FORM = {
    BOT: (re.compile(r"xoxb-[A-Za-z0-9-]{6,500}", re.ASCII), "a bot token, which begins with xoxb-"),
    APP: (re.compile(r"xapp-[A-Za-z0-9-]{6,500}", re.ASCII), "an app-level token, which begins with xapp-"),
    SECRET: (re.compile(r"[A-Za-z0-9]{16,200}", re.ASCII), "a signing secret, which is letters and digits only"),
}


class TokenError(ValueError):
    """A token that can't be used. The text names the variable and never the value."""


class SlackMissing(ImportError):
    """slack-sdk is not installed."""


@dataclass(frozen=True)
class SlackTokens:
    """`app` is for Socket Mode, `signing_secret` for HTTP; at least one of them is there."""

    bot: str = field(repr=False)
    app: str = field(default="", repr=False)
    signing_secret: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        for variable, value in ((BOT, self.bot), (APP, self.app), (SECRET, self.signing_secret)):
            if value or variable == BOT:
                _check(variable, value)
        if not self.app and not self.signing_secret:
            raise TokenError(
                f"{BOT} needs {APP} (Socket Mode) or {SECRET} (HTTP) beside it: without one no click would arrive."
            )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> SlackTokens | None:
        """None where none of the variables is set: there is no Slack. Raises TokenError."""
        bot, app, secret = (_given(environment, variable) for variable in (BOT, APP, SECRET))
        if not bot and not app and not secret:
            return None
        if not bot:
            raise TokenError(f"{APP if app else SECRET} is set and {BOT} is not: set {BOT} or {BOT}_FILE too.")
        return cls(bot, app, secret)


def _given(environment: Mapping[str, str], variable: str) -> str:
    value, path = environment.get(variable, ""), environment.get(f"{variable}_FILE", "")
    if value and path:
        raise TokenError(f"{variable} and {variable}_FILE are both set: keep one of them.")
    if not path:
        return value.strip()
    try:
        with Path(path).open("rb") as file:
            read = file.read(MAX_FILE + 1)
    except OSError as error:
        raise TokenError(f"{variable}_FILE can't be read: {error.strerror or type(error).__name__}.") from None
    text = read.decode("ascii", "replace").strip()
    if not text or len(read) > MAX_FILE:
        raise TokenError(f"{variable}_FILE names a file that is {'too long' if text else 'empty'}.")
    return text


def _check(variable: str, value: str) -> None:
    form, what = _FORM[variable]
    if not form.fullmatch(value):
        raise TokenError(f"{variable} is not {what}: copy it again from the app's pages at api.slack.com/apps.")
