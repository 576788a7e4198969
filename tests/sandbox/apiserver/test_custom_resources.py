"""CustomResourceDefinitions: schema, defaults, pruning, CEL rules, columns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from taintctl.sandbox.apiserver import schema as schemas
from taintctl.sandbox.apiserver.formats import FORMATS

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/widgets"
MERGE = {"content_type": "application/merge-patch+json"}

SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": [
        {"rule": "!has(self.end) || self.end != self.start", "message": "end is the start"},
        {"rule": "self.size >= oldSelf.size", "messageExpression": "'size was ' + string(oldSelf.size)"},
    ],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
        "start": {"type": "string", "format": "date-time"},
        "end": {"type": "string", "format": "date-time"},
        "limit": {
            "x-kubernetes-int-or-string": True,
            "x-kubernetes-validations": [
                {"rule": "type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')", "message": "no limit"}
            ],
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 3, "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": {
                "type": "object",
                "required": ["key"],
                "properties": {"key": {"type": "string"}, "mode": {"type": "string", "default": "on"}},
                "x-kubernetes-validations": [{"rule": "self.mode == oldSelf.mode", "message": "mode is immutable"}],
            },
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
        "maybe": {"type": "string", "nullable": True},
    },
}


def definition(spec: dict[str, Any] = SPEC, **version: Any) -> dict[str, Any]:
    root = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}, "required": ["spec"]}
    root["properties"]["status"]["x-kubernetes-preserve-unknown-fields"] = True
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wi"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": root},
                    **version,
                }
            ],
        },
    }


@pytest.fixture
async def widgets(api: Any) -> Any:
    await api.ok("POST", CRDS, definition())
    return api


def widget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3, **spec}}


async def test_a_definition_is_served_at_once(api: Any) -> None:
    assert (await api.refused("GET", WIDGETS))[0] == 404
    made = await api.ok("POST", CRDS, definition())
    assert {(c["type"], c["status"]) for c in made["status"]["conditions"]} == {
        ("Established", "True"),
        ("NamesAccepted", "True"),
    }
    assert made["status"]["acceptedNames"]["singular"] == "widget"
    assert (await api.ok("GET", WIDGETS))["kind"] == "WidgetList"
    listed = await api.ok("GET", "/apis/example.com/v1")
    assert [one["name"] for one in listed["resources"]] == ["widgets", "widgets/status"]
    document = await api.ok("GET", "/openapi/v3/apis/example.com/v1")
    published = document["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"]["properties"]
    assert published["size"] == {"type": "integer", "minimum": 1, "maximum": 10}
    assert published["limit"]["oneOf"] == [{"type": "integer"}, {"type": "string"}]


async def test_deleting_a_definition_takes_its_objects_and_its_watches(widgets: Any) -> None:
    body = widget()
    body["metadata"]["finalizers"] = ["example.com/x"]
    await widgets.ok("POST", WIDGETS, body)
    watch = await widgets.watch(f"{WIDGETS}?watch=1")
    assert await watch.types_and_names(1) == [("ADDED", "w")]
    await widgets.ok("DELETE", f"{CRDS}/widgets.example.com")
    assert (await watch.next())["type"] == "MODIFIED"
    assert (await watch.next())["type"] == "DELETED"
    with pytest.raises(EOFError):
        await watch.next()
    assert (await widgets.refused("GET", WIDGETS))[0] == 404


async def test_defaults_pruning_and_generation(widgets: Any) -> None:
    body = widget(parts=[{"key": "a"}], free={"x": {"y": 1}}, labels={"l": "1"}, nope=1)
    body["status"] = {"early": True}
    made = await widgets.ok("POST", WIDGETS, body)
    assert made["spec"] == {
        "size": 3,
        "color": "red",
        "parts": [{"key": "a", "mode": "on"}],
        "free": {"x": {"y": 1}},
        "labels": {"l": "1"},
    }
    assert "status" not in made
    assert made["metadata"]["generation"] == 1
    status = await widgets.ok("PATCH", f"{WIDGETS}/w/status", {"spec": {"size": 9}, "status": {"a": 1}}, **MERGE)
    assert (status["spec"]["size"], status["status"], status["metadata"]["generation"]) == (3, {"a": 1}, 1)
    changed = await widgets.ok("PATCH", f"{WIDGETS}/w", {"spec": {"size": 4}, "status": {"a": 2}}, **MERGE)
    assert (changed["status"], changed["metadata"]["generation"]) == ({"a": 1}, 2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 11}, "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": None}, "spec.size: Required value"),
        ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red", "blue"'),
        ({"name": "A1"}, "spec.name: Invalid value: \"A1\": spec.name in body should match '^[a-z]+$'"),
        ({"name": "abc\n"}, "spec.name: Invalid value"),
        ({"name": "abcdef"}, "spec.name: Too long: may not be more than 5 bytes"),
        ({"name": "a"}, 'spec.name: Invalid value: "a": spec.name in body should be at least 2 chars long'),
        ({"start": "soon"}, 'spec.start: Invalid value: "soon": spec.start in body must be of type date-time: "soon"'),
        ({"limit": "101%"}, 'spec.limit: Invalid value: "101%": no limit'),
        ({"limit": -1}, "spec.limit: Invalid value: -1: no limit"),
        ({"limit": 1.5}, 'spec.limit: Invalid value: "number": spec.limit in body must be of type integer,string'),
        ({"tags": ["a", "b", "a"]}, 'spec.tags[2]: Duplicate value: "a"'),
        ({"tags": list("abcd")}, "spec.tags: Too many: 4: must have at most 3 items"),
        ({"parts": [{"key": "a"}, {"key": "a"}]}, 'spec.parts[1]: Duplicate value: {"key":"a"}'),
        ({"parts": [{}]}, "spec.parts[0].key: Required value"),
        ({"labels": {"a": 1}}, 'spec.labels.a: Invalid value: "integer"'),
        ({"labels": {"a": "", "b": "", "c": ""}}, "spec.labels: Too many: 3: must have at most 2 items"),
        (
            {"start": "2026-11-30T21:00:00Z", "end": "2026-11-30T21:00:00Z"},
            'spec: Invalid value: "object": end is the start',
        ),
    ],
)
async def test_what_does_not_fit_is_refused(widgets: Any, spec: dict[str, Any], message: str) -> None:
    status, answer = await widgets.refused("POST", WIDGETS, widget(**spec))
    assert status == 422
    assert answer.startswith('Widget.example.com "w" is invalid: ')
    assert message in answer


async def test_a_required_field_that_is_not_there(widgets: Any) -> None:
    body = widget()
    del body["spec"]
    message = 'Widget.example.com "w" is invalid: spec: Required value'
    assert await widgets.refused("POST", WIDGETS, body) == (422, message)


async def test_what_fits(widgets: Any) -> None:
    spec = {"name": "abc", "start": "2026-11-30T21:00:00.5+01:00", "limit": "25%", "tags": ["a"], "maybe": None}
    made = await widgets.ok("POST", WIDGETS, widget(**spec))
    assert made["spec"] == {"size": 3, "color": "red", **spec}


async def test_a_null_of_what_is_not_nullable_is_absent(widgets: Any) -> None:
    # https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting-and-nullable
    made = await widgets.ok("POST", WIDGETS, widget(name=None, color=None, labels={"l": None}, maybe=None))
    assert made["spec"] == {"size": 3, "color": "red", "labels": {}, "maybe": None}


async def test_transition_rules_are_asked_on_update_only(widgets: Any) -> None:
    await widgets.ok("POST", WIDGETS, widget(parts=[{"key": "a"}, {"key": "b"}]))
    smaller = await widgets.refused("PATCH", f"{WIDGETS}/w", {"spec": {"size": 2}}, **MERGE)
    assert smaller == (422, 'Widget.example.com "w" is invalid: spec: Invalid value: size was 3')
    # Elements of a map list are found by their key, wherever they stand; a new one has no past.
    moved = {"spec": {"parts": [{"key": "c", "mode": "off"}, {"key": "b"}, {"key": "a"}]}}
    await widgets.ok("PATCH", f"{WIDGETS}/w", moved, **MERGE)
    changed = {"spec": {"parts": [{"key": "b", "mode": "off"}]}}
    status, message = await widgets.refused("PATCH", f"{WIDGETS}/w", changed, **MERGE)
    assert status == 422
    assert 'spec.parts[0]: Invalid value: "object": mode is immutable' in message


async def test_what_was_let_in_before_is_not_held_against_an_update(widgets: Any) -> None:
    await widgets.ok("POST", WIDGETS, widget(name="abc"))
    stricter = json.loads(json.dumps(SPEC))
    stricter["properties"]["name"]["pattern"] = "^x"
    await widgets.ok("PATCH", f"{CRDS}/widgets.example.com", {"spec": definition(stricter)["spec"]}, **MERGE)
    await widgets.ok("PATCH", f"{WIDGETS}/w", {"spec": {"size": 5}}, **MERGE)
    assert (await widgets.refused("PATCH", f"{WIDGETS}/w", {"spec": {"name": "abcd"}}, **MERGE))[0] == 422


async def test_unknown_fields_are_refused_warned_of_or_ignored(widgets: Any) -> None:
    body = widget(nope=1, parts=[{"key": "a", "odd": 1}])
    strict = await widgets.refused("POST", f"{WIDGETS}?fieldValidation=Strict", body)
    assert strict == (
        400,
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "spec.nope", unknown field "spec.parts[0].odd"',
    )
    _, _, headers = await widgets.raw("POST", f"{WIDGETS}?dryRun=All", body)
    assert headers["Warning"] == '299 - "unknown field \\"spec.nope\\""'
    _, _, headers = await widgets.raw("POST", f"{WIDGETS}?fieldValidation=Ignore", body)
    assert "Warning" not in headers


async def test_updates_of_custom_resources_need_a_revision_and_no_strategic_patch(widgets: Any) -> None:
    await widgets.ok("POST", WIDGETS, widget())
    status, message = await widgets.refused("PUT", f"{WIDGETS}/w", widget())
    assert status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in message
    strategic = {"content_type": "application/strategic-merge-patch+json"}
    assert (await widgets.refused("PATCH", f"{WIDGETS}/w", {}, **strategic))[0] == 415


async def test_printer_columns(api: Any) -> None:
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Tags", "type": "string", "jsonPath": ".spec.tags[*]", "priority": 1},
        {"name": "Since", "type": "date", "jsonPath": ".spec.start"},
    ]
    await api.ok("POST", CRDS, definition(additionalPrinterColumns=columns))
    await api.ok("POST", WIDGETS, widget(tags=["a", "b"], start="2020-11-30T00:00:00Z"))
    ready = {"status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}}
    await api.ok("PATCH", f"{WIDGETS}/w/status", ready, **MERGE)
    table = await api.ok("GET", WIDGETS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [(one["name"], one["type"], one["priority"]) for one in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Tags", "string", 1),
        ("Since", "string", 0),
    ]
    cells = table["rows"][0]["cells"]
    assert cells[:4] == ["w", 3, "True", "a,b"]
    assert cells[4].startswith("6y")


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"name": "A", "type": "string", "jsonPath": "spec["}, "is no JSONPath that the sandbox understands"),
        ({"name": "A", "type": "string"}, "additionalPrinterColumns[0].jsonPath: Required value"),
    ],
)
async def test_columns_that_are_refused(api: Any, column: dict[str, str], message: str) -> None:
    status, answer = await api.refused("POST", CRDS, definition(additionalPrinterColumns=[column]))
    assert status == 422
    assert message in answer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"metadata": {"name": "other"}},
            'metadata.name: Invalid value: "other": must be spec.names.plural+"."+spec.group',
        ),
        ({"spec": {"scope": "Galaxy"}}, 'spec.scope: Unsupported value: "Galaxy"'),
        ({"spec": {"versions": []}}, "the sandbox serves exactly one version of a custom resource"),
    ],
)
async def test_definitions_that_are_refused(api: Any, change: dict[str, Any], message: str) -> None:
    body = definition()
    for part, values in change.items():
        body[part] |= values
    status, answer = await api.refused("POST", CRDS, body)
    assert status == 422
    assert message in answer


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "object", "properties": {"a": {}}}, "properties[a].type: Required value"),
        ({"type": "array"}, "properties[spec].items: Required value"),
        ({"type": "array", "items": [1]}, "properties[spec].items: Invalid value: [1]: must be an object"),
        ({"type": "object", "properties": {"a": 1}}, "properties[a]: Invalid value: 1: must be an object"),
        ({"type": "string", "pattern": "("}, "must be a valid regular expression"),
        (
            {"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]},
            "x-kubernetes-validations[0].rule: Invalid value",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "mutual exclusive",
        ),
    ],
)
async def test_schemas_that_are_refused(api: Any, spec: dict[str, Any], message: str) -> None:
    status, answer = await api.refused("POST", CRDS, definition(spec))
    assert status == 422
    assert message in answer


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 2}]}, 3, "one and only one schema (oneOf)"),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 2}]}, 3, "at least one schema (anyOf)"),
        ({"type": "integer", "allOf": [{"minimum": 5}]}, 3, "all the schemas (allOf)"),
        ({"type": "integer", "not": {"minimum": 2}}, 3, "must not validate the schema (not)"),
        ({"type": "integer", "multipleOf": 2}, 3, "multiple of 2"),
        ({"type": "integer", "maximum": 3, "exclusiveMaximum": True}, 3, "less than 3"),
        ({"type": "number", "minimum": 3, "exclusiveMinimum": True}, 3, "greater than 3"),
        ({"type": "array", "minItems": 1, "items": {"type": "string"}}, [], "at least 1 items"),
        ({"type": "object", "minProperties": 1}, {}, "at least 1 properties"),
    ],
)
def test_rarer_constraints(schema: dict[str, Any], value: Any, message: str) -> None:
    whole = {"type": "object", "properties": {"spec": schema}}
    errors = schemas.validate({"spec": value}, whole)
    assert len(errors) == 1
    assert message in str(errors[0])


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date-time", "2026-11-30T21:00:00Z", "2026-11-30"),
        ("date-time", "2026-11-30T21:00:00.123456789Z", "2026-13-30T21:00:00Z"),
        ("date", "2026-11-30", "30.11.2026"),
        ("duration", "1h30m", "90 minutes"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
        ("ipv4", "10.0.0.1", "10.0.0"),
        ("ipv6", "::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("byte", "YQ==", "a"),
        ("uri", "https://example.com", "example"),
    ],
)
def test_formats(name: str, good: str, bad: str) -> None:
    assert FORMATS[name](good)
    assert not FORMATS[name](bad)
