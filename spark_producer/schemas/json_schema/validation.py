"""Validates JSON texts by all rules of their schema, with the package `jsonschema`, which only this module imports."""

from __future__ import annotations

import json
from typing import Any

from spark_producer.common.escape import for_log
from spark_producer.errors import ConfigError, SchemaError
from spark_producer.schemas.json_schema.bounded_rules import BoundedRules
from spark_producer.schemas.json_schema.documents import parse_json_schema

INSTALL = "pip install 'pyproducer[jsonschema]', or what it brings, 'jsonschema'"
"""The command that installs the extra, or its package where pyproducer itself is not installed by pip."""

_MAX_RULE_SHOWN = 100
"""Maximum characters of a rule in a message."""


class SchemaValidator:
    """Validates texts by one schema, which is compiled once. References that lead out of it are never followed.

    Raises:
        SchemaError: the schema is not valid; the message calls it `what`. ConfigError: the package is not installed.
    """

    def __init__(self, text: str, what: str) -> None:
        jsonschema, registry = _package()
        schema: Any = parse_json_schema(text, what)
        if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
            raise SchemaError(f"{what} is not a valid JSON Schema: its $schema is no text")
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft7Validator)
        try:
            kind.check_schema(schema)
        except jsonschema.SchemaError as error:
            raise SchemaError(
                f"{what} is not a valid JSON Schema: {for_log(error.message)} (at {for_log(error.json_path)})"
            ) from None
        except BaseException as error:
            if _is_too_deep(error):
                raise SchemaError(f"{what} is nested too deeply") from None
            raise
        self._bounded = BoundedRules(kind.VALIDATORS, jsonschema.ValidationError)
        extended = jsonschema.validators.extend(kind, self._bounded.rules())
        self._validator: Any = extended(schema, registry=registry)
        self._best = jsonschema.exceptions.best_match

    def reason(self, text: str, path: str) -> str | None:
        """Return why a text is not valid, without its content; None if it is valid, or not JSON. `path` is the column's."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None  # the reader has the reason
        self._bounded.begin(text)
        try:
            if self._validator.is_valid(found):
                return None
            self._bounded.begin(text)
            error: Any = self._best(self._validator.iter_errors(found))
        except BaseException as failed:
            if _is_too_deep(failed):
                return f"field '{path}': it is nested too deeply to be validated"
            if not isinstance(failed, Exception):
                raise
            # a reference that leads nowhere, or a pattern that Python does not have
            return f"field '{path}': its schema cannot be applied: {type(failed).__name__}: {for_log(str(failed))}"
        rule = json.dumps(error.validator_value, default=str)
        shown = rule if len(rule) <= _MAX_RULE_SHOWN else f"{rule[:_MAX_RULE_SHOWN]}…"
        return (
            f"field '{_field(path, error.absolute_path)}': it violates {error.validator} {for_log(shown)} of its schema"
        )


def check_installed() -> None:
    """Raise ConfigError if the package is not installed."""
    _package()


def _is_too_deep(error: BaseException) -> bool:
    """Whether Python's recursion came to its end, perhaps within jsonschema's rpds: in Rust that is a panic, and no Exception."""
    return isinstance(error, RecursionError) or (type(error).__name__ == "PanicException" and "Recursion" in str(error))


def _field(path: str, steps: Any) -> str:
    for step in steps:
        path = f"{path}[]" if isinstance(step, int) else f"{path}.{step}"
    return for_log(path)


def _package() -> tuple[Any, Any]:
    """Return the package, and an empty registry of schemas, which makes no requests."""
    try:
        import jsonschema
        import jsonschema.exceptions
        import jsonschema.validators
        from referencing import Registry
    except ImportError as error:
        raise ConfigError(
            f"json.fail.invalid.schema=true needs jsonschema, which is not installed: {error}. Run {INSTALL}"
        ) from None
    return jsonschema, Registry()
