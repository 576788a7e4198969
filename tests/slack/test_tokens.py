"""Tokens come from the environment or from files, and are seen nowhere."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taintctl.adapters.slack.text import code, listed, plain, prose, redact
from taintctl.adapters.slack.tokens import SlackTokens, TokenError
from tests.slack.conftest import until
from tests.slack.runs import view

BOT, APP, SECRET = "xoxb-1234567890-abcdefABCDEF", "xapp-1-A0123-456-abcdef", "8f742231b10e8888abcd99yyyzzz85a5"


def test_without_variables_there_is_no_slack() -> None:
    assert SlackTokens.from_environment({"PATH": "/bin"}) is None


def test_tokens_come_from_variables_or_files(tmp_path: Path) -> None:
    (tmp_path / "bot").write_text(f"{BOT}\n")
    given = {"SLACK_BOT_TOKEN_FILE": str(tmp_path / "bot"), "SLACK_APP_TOKEN": APP, "SLACK_SIGNING_SECRET": SECRET}
    assert SlackTokens.from_environment(given) == SlackTokens(BOT, APP, SECRET)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"SLACK_BOT_TOKEN": BOT, "SLACK_BOT_TOKEN_FILE": "/x", "SLACK_APP_TOKEN": APP}, "SLACK_BOT_TOKEN_FILE"),
        ({"SLACK_BOT_TOKEN": APP, "SLACK_APP_TOKEN": APP}, "SLACK_BOT_TOKEN is not a bot token"),
        ({"SLACK_BOT_TOKEN": BOT, "SLACK_APP_TOKEN": BOT}, "SLACK_APP_TOKEN is not an app-level token"),
        ({"SLACK_BOT_TOKEN": BOT, "SLACK_SIGNING_SECRET": "se cret"}, "SLACK_SIGNING_SECRET is not"),
        ({"SLACK_BOT_TOKEN": BOT}, "SLACK_APP_TOKEN"),
        ({"SLACK_APP_TOKEN": APP}, "SLACK_BOT_TOKEN is not: set"),
        ({"SLACK_BOT_TOKEN_FILE": "/nowhere/at/all", "SLACK_APP_TOKEN": APP}, "SLACK_BOT_TOKEN_FILE can't be read"),
        ({"SLACK_BOT_TOKEN_FILE": "/dev/null", "SLACK_APP_TOKEN": APP}, "empty"),
        ({"SLACK_BOT_TOKEN_FILE": "/dev/zero", "SLACK_APP_TOKEN": APP}, "too long"),
    ],
)
def test_a_wrong_token_is_refused_by_its_variables_name(given: dict[str, str], named: str) -> None:
    with pytest.raises(TokenError, match=named) as caught:
        SlackTokens.from_environment(given)
    assert all(value not in str(caught.value) for value in (BOT, APP, "se cret"))


def test_tokens_are_in_no_repr() -> None:
    assert repr(SlackTokens(BOT, APP, SECRET)) == "SlackTokens()"


def test_tokens_in_a_text_are_struck_out() -> None:
    said = (
        f"failed with {BOT} and {APP}, wss://wss.slack.com/link/?ticket=abc-123&app=1, https://hooks.slack.com/T0/B0/x"
    )
    assert redact(said) == (
        "failed with [redacted] and [redacted], wss://wss.slack.com/link/?ticket=[redacted]&app=1, "
        "https://hooks.slack.com/[redacted]"
    )
    assert BOT not in plain(said, 500)


async def test_no_log_line_has_a_token_whatever_fails(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stage.slack.fail("apps.connections.open", "internal_error")
    await stage.connect()
    await stage.app.chat.post("C0123456789", view(), nonce="n")
    await stage.slack.sockets.drop()
    await stage.slack.connected()
    stage.slack.fail("users.info", "internal_error")
    await stage.click("U0ALICE", "Approve")
    stage.slack.revoked = True
    await stage.slack.sockets.drop()
    await until(lambda: "revoked" in stage.app.state().error)
    said = caplog.text + repr(stage.app.state()) + repr(stage.app.__dict__)
    assert "users.info" in caplog.text
    assert stage.slack.bot_token not in said
    assert stage.slack.app_token not in said
    assert "/socket/" not in said


def test_outside_words_are_harmless() -> None:
    assert plain("a & <!channel> @here\x00\u202e", 100) == "a &amp; &lt;!channel&gt; ＠here"
    assert prose("*b* _i_ ~s~ `c`", 100) == "∗b∗ ＿i＿ ∼s∼ ˋcˋ"
    assert code("we`ird*") == "`weˋird*`"
    assert code("") == "`-`"
    assert plain("&" * 50, 20) == "&amp;" * 3 + "…"
    assert len(plain("a" * 500, 20)) == 20


def test_lists_are_cut_at_whole_lines() -> None:
    assert listed(["a" * 30, "b" * 30, "c" * 30], 110) == "a" * 30 + "\n" + "b" * 30 + "\nand 1 more"
    assert listed(["a"], 100, total=4) == "a\nand 3 more"


def test_without_slack_sdk_one_line_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['slack_sdk'] = None\n"
        "try:\n    import taintctl.adapters.slack.app\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "Slack needs the package slack-sdk, which is missing: pip install 'taintctl[slack]'.\n"
