"""Counts and names in sentences."""

from __future__ import annotations

from taintctl.api.text import plural, some


def test_counting_words() -> None:
    assert (plural(1, "pod"), plural(2, "pod"), plural(2, "policy", "policies")) == ("1 pod", "2 pods", "2 policies")
    assert plural(0, "pod") == "0 pods"


def test_names_are_three_and_how_many_more() -> None:
    assert some([]) == ""
    assert some(["a"]) == "a"
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert some(["a", "b"], 1) == "a and 1 more"
