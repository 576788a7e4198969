"""The documentation is whole: every reason is explained, commands exist, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from taintctl.api.reasons import Phase, Reason
from taintctl.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
EVERY_COMMAND = {name for section in COMMANDS.values() for name in section}


def test_every_reason_is_explained_once_with_what_to_do() -> None:
    rows = re.findall(r"^\| `([A-Z]\w+)` \| (.+) \| (.+) \|$", OPERATIONS, re.MULTILINE)
    assert sorted(name for name, _, _ in rows) == sorted(reason.value for reason in Reason)
    for _, meaning, step in rows:
        assert meaning.endswith(".")
        assert step.endswith(".")


def test_the_ladder_names_every_phase() -> None:
    concepts = (ROOT / "docs" / "concepts.md").read_text()
    assert [phase.value for phase in Phase if f"**{phase.value}**" not in concepts] == []


def code(text: str) -> list[str]:
    """The lines of fenced blocks, and what stands between backticks."""
    fenced = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line.strip() for block in fenced for line in block.splitlines()] + inline


def taken(arguments: list[str]) -> None:
    """Fails where the command or one of its options does not exist. Placeholders such as RUN stand for a value; an
    argument that a sentence leaves out is no mistake."""
    root = click.Context(cli)
    command = cli.get_command(root, arguments[0])
    assert command is not None, arguments
    options = {name for param in command.params + cli.params for name in param.opts}
    for argument in arguments[1:]:
        assert not argument.startswith("--") or argument.partition("=")[0] in options, arguments


def test_a_command_that_does_not_exist_would_be_found() -> None:
    for wrong in (["stat"], ["status", "--wach"]):
        with pytest.raises(AssertionError):
            taken(wrong)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_commands_that_exist_and_links_that_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for line in code(text):
        arguments = shlex.split(line.partition(" # ")[0].partition("#")[0])
        if arguments[:1] == ["taintctl"] and len(arguments) > 1:
            taken(arguments[1:])
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_the_readme_has_every_command() -> None:
    table = (ROOT / "README.md").read_text().split("## Commands")[1].split("\n## ")[0]
    assert set(re.findall(r"`taintctl ([a-z]+)`", table)) == EVERY_COMMAND


def test_the_image_s_tag_is_the_project_s_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"newTag: {version[1]}\n" in (ROOT / "deploy" / "kustomization.yaml").read_text()
    assert f"taintctl:{version[1]}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/operations.md", "docs/sandbox.md"])
def test_the_pages_for_newcomers_have_no_long_lines(name: str) -> None:
    """Rows of tables and what a command printed are as long as they are."""
    prose = re.sub(r"^```.*?^```$", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in prose.splitlines() if len(line) > 120 and not line.startswith("|")] == []
