"""Custom resources: pruned, defaulted and validated by their definition's schema."""

from __future__ import annotations

from datetime import datetime

from taintctl.sandbox.apiserver import schema, schema_rules
from taintctl.sandbox.apiserver.errors import FieldError
from taintctl.sandbox.apiserver.meta import Object
from taintctl.sandbox.apiserver.strategies.base import Strategy


class CustomStrategy(Strategy):
    """One definition's version: its schema, CEL rules and printer columns."""

    def __init__(self, version: Object) -> None:
        self.version = version
        self.openapi: Object = version["schema"]["openAPIV3Schema"]
        self._rules = schema_rules.Rules(self.openapi)

    def unknown_fields(self, obj: Object) -> list[str]:
        """The paths that pruning would drop, for `fieldValidation=Strict` and `Warn`."""
        return schema.prune(obj, self.openapi, drop=False)

    def default(self, obj: Object, now: datetime) -> None:
        schema.prune(obj, self.openapi, drop=True)
        schema.apply_defaults(obj, self.openapi)

    def validate(self, obj: Object, old: Object | None, subresource: str | None) -> list[FieldError]:
        errors = schema.validate(obj, self.openapi, old)
        # Upstream does not ask the rules of an object whose shape is wrong: they may not even apply.
        return errors or self._rules.check(obj, old)
