"""CustomResourceDefinitions: what a valid one is, and the status that says it is served."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from taintctl.sandbox.apiserver import jsonpath
from taintctl.sandbox.apiserver.errors import FieldError, forbidden_field, invalid_value, required, unsupported
from taintctl.sandbox.apiserver.meta import Object, timestamp
from taintctl.sandbox.apiserver.schema_definition import schema_problems
from taintctl.sandbox.apiserver.strategies.base import Strategy


class DefinitionStrategy(Strategy):
    """A definition is established as soon as it is stored."""

    def default(self, obj: Object, now: datetime) -> None:
        spec = obj["spec"] = obj["spec"] if isinstance(obj.get("spec"), dict) else {}
        names = spec["names"] = spec["names"] if isinstance(spec.get("names"), dict) else {}
        kind = names.get("kind", "")
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
        spec.setdefault("conversion", {"strategy": "None"})

    def prepare_create(self, obj: Object, now: datetime) -> None:
        moment = timestamp(now)
        obj["status"] = {
            "conditions": [
                {
                    "type": "NamesAccepted",
                    "status": "True",
                    "lastTransitionTime": moment,
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                },
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": moment,
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                },
            ],
            "acceptedNames": obj["spec"]["names"],
            "storedVersions": [one.get("name") for one in obj["spec"].get("versions") or [] if one.get("storage")],
        }

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        if subresource == "status":
            return []
        spec = obj["spec"]
        names = spec["names"]
        errors: list[FieldError] = []
        for part in ("plural", "kind"):
            if not names.get(part):
                errors.append(required(f"spec.names.{part}"))
        if not spec.get("group"):
            errors.append(required("spec.group"))
        expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
        if obj["metadata"].get("name") != expected:
            why = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid_value("metadata.name", obj["metadata"].get("name", ""), why))
        if spec.get("scope") not in ("Cluster", "Namespaced"):
            errors.append(unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced")))
        versions = spec.get("versions") or []
        if len(versions) != 1 or not versions[0].get("storage") or not versions[0].get("served"):
            why = "the sandbox serves exactly one version of a custom resource: list it alone, served and storage: true"
            errors.append(forbidden_field("spec.versions", why))
        for index, version in enumerate(versions):
            schema = (version.get("schema") or {}).get("openAPIV3Schema")
            field = f"spec.versions[{index}].schema.openAPIV3Schema"
            if not isinstance(schema, dict):
                errors.append(required(field, "schemas are required"))
            else:
                errors += schema_problems(field, schema)
            errors += _column_problems(f"spec.versions[{index}]", version)
        if old is not None:
            for part in ("group", "scope"):
                if spec.get(part) != old["spec"].get(part):
                    errors.append(invalid_value(f"spec.{part}", spec.get(part), "field is immutable"))
        return errors


def _column_problems(field: str, version: Object) -> Iterator[FieldError]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or []):
        path = f"{field}.additionalPrinterColumns[{index}]"
        for part in ("name", "type", "jsonPath"):
            if not column.get(part):
                yield required(f"{path}.{part}")
        try:
            jsonpath.find({}, column.get("jsonPath", ""))
        except ValueError as error:
            yield invalid_value(f"{path}.jsonPath", column["jsonPath"], str(error))
