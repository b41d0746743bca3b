"""The choice of a column's JSON Schema and its id, on the driver: from the column, an option, or the registry."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.schemas.column_format import ColumnFormat
from spark_producer.schemas.json_schema.column_plan import json_plan
from spark_producer.schemas.json_schema.derived_schema import json_schema
from spark_producer.schemas.json_schema.documents import Schema, parse_json_schema
from spark_producer.schemas.json_schema.validation import SchemaValidator
from spark_producer.schemas.registry import JSON, RegisteredSchema
from spark_producer.schemas.schema_lookup import FindSchema, SchemaLookup, column_framing, complete_text, schema_text
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.types import name_of


def json_schema_format(
    column: ColumnOptions, kind: pa.DataType, topic: str | None, options: RegistryOptions, find_schema: FindSchema
) -> ColumnFormat:
    """Return the format of a column that is encoded as JSON. The arguments are those of `column_format`.

    Raises:
        ConfigError: an option is wrong, or the validator is not installed.
        SchemaError: the schema is not valid, does not fit the column, or JSON has no such type.
        RegistryError: as `Registry`.
    """
    validate = options.json_fail_invalid_schema
    if column.schema_id is None and options.use_latest_version:
        found = find_schema(SchemaLookup(options, subject_of(column, topic, None), None, JSON))
        whole = found.text or ""
        plan = json_plan(whole, kind, column.name, validate=validate, fill=column.fill)
    else:
        schema = _given(column, kind, topic)
        text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
        whole, references = complete_text(text, column, options, JSON, find_schema)
        plan = json_plan(
            whole, kind, column.name, validate=validate, fill=column.fill
        )  # before registration, as for Avro
        if column.schema_id is None:
            subject = subject_of(column, topic, None if column.schema is None else _title(schema))
            found = find_schema(SchemaLookup(options, subject, text, JSON, references))
        else:
            found = RegisteredSchema(column.schema_id)
    if validate:
        SchemaValidator(whole, "the schema")  # a task would be late
    prefix, header = column_framing(column, found)
    return ColumnFormat(prefix, plan, header)


def _given(column: ColumnOptions, kind: pa.DataType, topic: str | None) -> Schema:
    """Return the schema of the option, or that which follows from the column."""
    what = f"{column.name}Schema"
    if column.schema is not None:
        return parse_json_schema(schema_text(column.schema, what), what)
    return json_schema(kind, column.name, name_of(f"{topic}_{column.name}" if topic else column.name))


def _title(schema: Schema) -> str | None:
    """Return the name of a schema, which for JSON Schema is its title, as in Confluent's serialisers."""
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) and title else None
