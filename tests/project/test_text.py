"""The repository works anywhere: no text in it names a package registry or a folder of one machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Written so that this file does not find itself.
REGISTRIES = ["py[p]i\\.org", "python[h]osted", "npm[j]s\\.org", "deb\\.debian[.]org", "[d]ocker\\.io", "gh[c]r\\.io"]
FOLDERS = ["/[w]ork/", "/[r]oot/", "/hom[e]/", "/opt/whe[e]ls", "/Use[r]s/"]
FORBIDDEN = re.compile("|".join([*REGISTRIES, *FOLDERS, "index-url [h]ttp"]), re.IGNORECASE)


def tracked() -> list[Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("git, or the repository's history, is not here: which files belong to it is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["https://" + "pypi" + ".org/simple", "cd /" + "work/main", "FROM " + "ghcr" + ".io/x"]
)
def test_what_must_not_be_there_would_be_found(text: str) -> None:
    assert FORBIDDEN.search(text)
