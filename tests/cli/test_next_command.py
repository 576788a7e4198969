"""What `taintctl explain` sends people to next is never itself."""

from __future__ import annotations

import pytest

from taintctl.api.reasons import Phase, Reason
from taintctl.cli.views.explain import next_command
from tests.cli.builders import NOW, at, run


@pytest.mark.parametrize("phase", [None, *Phase])
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unseen"])
def test_explain_never_sends_to_itself(phase: Phase | None, seen: bool) -> None:
    for reason in Reason:
        status = {"phase": phase, "reason": reason, "nextStep": "", "observedGeneration": 1 if seen else 0}
        asked = run(**status, metadata={"generation": 1, "creationTimestamp": at(3600)})
        command = next_command(asked, NOW)
        assert command
        assert not command.startswith(f"taintctl explain {asked.name}")
