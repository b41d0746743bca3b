"""Names of options: how a field's name follows Kafka or Spark, and all the names of the options of a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

Fields = dict[str, dataclasses.Field[Any]]
"""Fields of a class of options by their names for users."""


def kafka_name(field: str) -> str:
    """Return Kafka's name of an option: `batch_size` → `batch.size`."""
    return field.replace("_", ".")


def camel_case(field: str) -> str:
    """Return the name of an option that follows Spark: `include_headers` → `includeHeaders`."""
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)


def by_kafka_name(table: type) -> Fields:
    """Return the fields of a class by Kafka's name, or by the other name that their row of the table gives."""
    fields = dataclasses.fields(table)
    return {field.metadata["option"].name or kafka_name(field.name): field for field in fields}


def by_camel_case(table: type) -> Fields:
    """Return the fields of a class by names that follow Spark."""
    return {camel_case(field.name): field for field in dataclasses.fields(table)}


def spellings(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, str]:
    """Return the key of `fields` for every name of its options in lower case: current names, aliases and former names."""
    rows = {name: field.metadata["option"] for name, field in fields.items()}
    return {each.lower(): name for name, row in rows.items() for each in (name, *row.aliases, *row.former_names)}
