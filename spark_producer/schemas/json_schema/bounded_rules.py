"""Rules of the package `jsonschema` by which a text or a schema could take endless time, with bounds.

These are patterns, items that are compared with each other, and definitions that refer to others in ever more ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spark_producer.schemas.json_schema.patterns import matches

FREE_REFERENCES = 20_000
REFERENCES_PER_CHARACTER = 10
"""Maximum references that are followed for one text: `FREE_REFERENCES`, about a second's work, and this number for each of its
characters."""

Rule = Callable[[Any, Any, Any, Any], Iterator[Any]]
"""A rule of jsonschema: its validator, the rule's value, the text's part, and the schema. It yields errors."""


class TooManyReferences(Exception):
    """The schema refers to its definitions in too many ways."""


class BoundedRules:
    """The rules for one validator, and the references that may still be followed for the text at hand."""

    def __init__(self, rules: Mapping[str, Rule], make_error: Callable[[str], Any]) -> None:
        """`rules` are those of jsonschema, and `make_error` makes its error."""
        self._left = 0
        self._make_error = make_error
        self._rules = rules

    def begin(self, text: str) -> None:
        """Begin with a text."""
        self._left = FREE_REFERENCES + REFERENCES_PER_CHARACTER * len(text)

    def rules(self) -> dict[str, Rule]:
        """Return the rules in place of those of jsonschema with the same names."""
        own: dict[str, Rule] = {
            "pattern": self._pattern,
            "patternProperties": self._pattern_properties,
            "additionalProperties": self._additional_properties,
            "uniqueItems": self._unique_items,
        }
        found = {name: rule for name, rule in own.items() if name in self._rules}
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if name in self._rules:
                found[name] = self._counted(self._rules[name])
        return found

    def _counted(self, rule: Rule) -> Rule:
        def follow(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            self._left -= 1
            if self._left < 0:
                raise TooManyReferences("it refers to its definitions in too many ways. Simplify it")
            yield from rule(validator, value, instance, schema) or ()

        return follow

    def _pattern(self, validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        if validator.is_type(instance, "string") and not matches(value, instance):
            yield self._make_error("it does not match")

    def _pattern_properties(self, validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "object"):
            return
        for pattern, inner in value.items():
            for name, each in instance.items():
                if matches(pattern, name):
                    yield from validator.descend(each, inner, path=name, schema_path=pattern)

    def _additional_properties(self, validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(instance, "object"):
            return
        patterns, named = schema.get("patternProperties", {}), schema.get("properties", {})
        others = [
            name for name in instance if name not in named and not any(matches(pattern, name) for pattern in patterns)
        ]
        if isinstance(value, dict):
            for name in others:
                yield from validator.descend(instance[name], value, path=name)
        elif not value and others:
            yield self._make_error("it has other properties")

    def _unique_items(self, validator: Any, value: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        if (
            value
            and validator.is_type(instance, "array")
            and len({_comparable(each) for each in instance}) < len(instance)
        ):
            yield self._make_error("it has an item twice")


def _comparable(value: Any) -> Any:
    """Return something with a hash that equals that of an equal value of JSON: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, dict):
        return "object", frozenset((name, _comparable(each)) for name, each in value.items())
    if isinstance(value, list):
        return "array", tuple(_comparable(each) for each in value)
    return (type(value) if isinstance(value, bool) else None), value
