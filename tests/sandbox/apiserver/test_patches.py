"""The four kinds of patches, against the examples of their specifications."""

from __future__ import annotations

from typing import Any

import pytest

from taintctl.sandbox.apiserver.apply import applied_object, builtin_list_keys, schema_list_keys
from taintctl.sandbox.apiserver.errors import ApiError
from taintctl.sandbox.apiserver.patch import json_patch, merge_patch
from taintctl.sandbox.apiserver.strategic import strategic_merge
from taintctl.sandbox.resources import BUILTIN


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        # RFC 7386, appendix A.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


@pytest.mark.parametrize(
    ("target", "operations", "expected"),
    [
        # RFC 6902, appendix A.
        ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
        ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
        ({"foo": ["a", "b", "c"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["a", "c"]}),
        ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
        (
            {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
            [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
            {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
        ),
        ({"a": {"b": 1}}, [{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"b": 1}, "c": {"b": 1}}),
        ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
        ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ],
)
def test_json_patch(target: Any, operations: Any, expected: Any) -> None:
    assert json_patch(target, operations) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "replace", "path": "/nope", "value": 1},
        {"op": "remove", "path": "/nope"},
        {"op": "remove", "path": "/list/7"},
        {"op": "add", "path": "/no/where", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/x"},
        {"op": "invent", "path": "/a"},
    ],
)
def test_a_json_patch_that_fails_is_refused_as_recorded(operation: dict[str, Any]) -> None:
    original = {"a": 1, "list": [1]}
    with pytest.raises(ApiError, match="the server rejected our request due to an error in our request") as refused:
        json_patch(original, [operation])
    assert refused.value.status == 422
    assert original == {"a": 1, "list": [1]}


def test_a_json_patch_has_a_limit() -> None:
    with pytest.raises(ApiError, match="more than 10000 operations"):
        json_patch({"a": 1}, [{"op": "test", "path": "/a", "value": 1}] * 10_001)


def test_strategic_merge_goes_by_the_merge_key() -> None:
    target = {
        "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
    }
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}],
            "containers": [
                {"name": "a", "image": "2", "env": [{"name": "Y", "value": "2"}]},
                {"name": "b", "$patch": "delete"},
                {"name": "c"},
            ],
        }
    }
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    expected = {"spec": {"containers": [{"name": "a", "image": "2", "env": env}, {"name": "c"}]}}
    assert strategic_merge(target, patch) == expected


def test_strategic_merge_directives() -> None:
    assert strategic_merge({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 2}}) == {"a": {"y": 2}}
    assert strategic_merge({"a": {"x": 1}}, {"a": {"$patch": "delete"}}) == {"a": {}}
    assert strategic_merge({"a": {"x": 1, "y": 2}}, {"a": {"$retainKeys": ["x"], "x": 3}}) == {"a": {"x": 3}}
    finalizers = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_merge(finalizers, {"metadata": {"finalizers": ["c"]}}) == {
        "metadata": {"finalizers": ["a", "b", "c"]}
    }
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(finalizers, gone) == {"metadata": {"finalizers": ["b"]}}
    # A list without a merge key is replaced.
    assert strategic_merge({"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": []}}) == {
        "spec": {"tolerations": []}
    }


@pytest.mark.parametrize(
    "patch", [{"a": {"$patch": "invent"}}, {"spec": {"containers": [{"image": "x"}]}}, ["not", "an", "object"]]
)
def test_a_strategic_patch_that_is_none_is_refused(patch: Any) -> None:
    with pytest.raises(ApiError) as refused:
        strategic_merge({}, patch)
    assert refused.value.status == 400


CONFIG_MAPS = next(info for info in BUILTIN if info.key == "configmaps")
PODS = next(info for info in BUILTIN if info.key == "pods")


def _apply(live: Any, config: Any, manager: str = "me", *, force: bool = False, info: Any = CONFIG_MAPS) -> Any:
    return applied_object(
        live,
        {"metadata": {"name": "c"}, **config},
        manager=manager,
        force=force,
        info=info,
        keys=builtin_list_keys,
        now="T",
        status=False,
    )


def test_apply_removes_what_its_manager_applies_no_more() -> None:
    first = _apply(None, {"data": {"a": "1", "b": "2"}})
    first["data"]["other"] = "kept"
    second = _apply(first, {"data": {"a": "1"}})
    assert second["data"] == {"a": "1", "other": "kept"}
    managed = second["metadata"]["managedFields"]
    assert [(one["manager"], one["fieldsV1"]) for one in managed] == [("me", {"f:data": {"f:a": {}}})]


def test_apply_conflicts_unless_forced() -> None:
    first = _apply(None, {"data": {"a": "1"}})
    assert _apply(first, {"data": {"a": "1"}}, "you")["data"] == {"a": "1"}
    with pytest.raises(ApiError, match=r'Apply failed with 1 conflict with "me": \.data\.a') as refused:
        _apply(first, {"data": {"a": "2"}}, "you")
    assert refused.value.status == 409
    forced = _apply(first, {"data": {"a": "2"}}, "you", force=True)
    assert forced["data"] == {"a": "2"}
    # The field is the other's now: leaving it out does not remove it.
    assert _apply(forced, {"data": {}})["data"] == {"a": "2"}


def test_what_two_applied_stays_when_one_drops_it() -> None:
    both = _apply(_apply(None, {"data": {"a": "1"}}), {"data": {"a": "1"}}, "you")
    assert _apply(both, {"data": {}})["data"] == {"a": "1"}


def test_apply_merges_lists_by_their_keys() -> None:
    first = _apply(None, {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}}, info=PODS)
    second = _apply(first, {"spec": {"containers": [{"name": "c"}]}}, "you", info=PODS)
    assert [one["name"] for one in second["spec"]["containers"]] == ["a", "b", "c"]
    third = _apply(second, {"spec": {"containers": [{"name": "a", "image": "2"}]}}, info=PODS)
    assert third["spec"]["containers"] == [{"name": "a", "image": "2"}, {"name": "c"}]


def test_the_schema_says_how_lists_of_custom_resources_are_merged() -> None:
    part = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {"properties": {"inner": {"type": "array", "x-kubernetes-list-type": "atomic"}}},
    }
    keys = schema_list_keys({"properties": {"spec": {"properties": {"parts": part}}}})
    assert keys("spec.parts") == ("k",)
    assert keys("spec.parts.inner") == ()
    assert keys("spec.other.deep") == ()
