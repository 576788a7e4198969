"""A rule of ours always names driver and pool, its run, and the round of its dry run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from taintctl.api.reasons import Effect
from taintctl.api.rule import RuleManifest, run_label

RULE = RuleManifest(
    name="taintctl-1b4e28ba-0",
    role="taint",
    round=3,
    run_name="swap-gpu",
    run_uid="1b4e28ba",
    driver="gpu.example.com",
    pool="node-1",
    device="gpu-0",
    key="taintctl.dev/maintenance",
    value="swap-gpu",
    effect=Effect.NONE,
)


@pytest.mark.parametrize("missing", ["driver", "pool"])
def test_a_rule_without_driver_or_pool_can_not_be_made(missing: str) -> None:
    with pytest.raises(ValueError, match="names driver and pool"):
        replace(RULE, **{missing: ""})


def test_the_selector_has_what_the_target_names_and_no_more() -> None:
    assert RULE.to_object()["spec"] == {
        "deviceSelector": {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"},
        "taint": {"key": "taintctl.dev/maintenance", "value": "swap-gpu", "effect": "None"},
    }
    whole_pool = replace(RULE, device=None).to_object()["spec"]["deviceSelector"]
    assert whole_pool == {"driver": "gpu.example.com", "pool": "node-1"}


def test_a_rule_says_whose_it_is() -> None:
    metadata = RULE.to_object()["metadata"]
    assert metadata["labels"] == {
        "taintctl.dev/run": "swap-gpu",
        "taintctl.dev/role": "taint",
        "app.kubernetes.io/managed-by": "taintctl",
    }
    assert metadata["annotations"] == {"taintctl.dev/dry-run-round": "3"}
    assert "ownerReferences" not in metadata, "the garbage collector would take the taint off before the run goes"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("short", "short"),
        ("n" * 63, "n" * 63),
        ("n" * 64, "n" * 63),
        ("n" * 62 + "-" + "m" * 20, "n" * 62),
        ("n" * 60 + ".-." + "m" * 20, "n" * 60),
    ],
)
def test_a_run_s_name_becomes_a_label_value_of_at_most_63_characters(name: str, label: str) -> None:
    assert run_label(name) == label
