"""The choice of a column's schema and id, on the driver: from the column, from an option, or from the registry."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.schemas.column_format import ColumnFormat
from spark_producer.schemas.names import full_name
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.references import SchemaReference
from spark_producer.schemas.registry import AVRO, RegisteredSchema
from spark_producer.schemas.schema_lookup import FindSchema, SchemaLookup, column_framing, complete_text, schema_text
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.types import Schema, avro_schema, name_of
from spark_producer.schemas.wire_format import parse_indexes, prefix_of


def column_format(
    column: ColumnOptions,
    kind: pa.DataType | None,
    topic: str | None,
    options: RegistryOptions,
    find_schema: FindSchema,
) -> ColumnFormat | None:
    """Return the format of a column, or None if its bytes are sent as they are.

    Args:
        column: The options of the column.
        kind: The type of the column; None only if it is not encoded.
        topic: The topic of all rows, or None.
        options: The options of the registry.
        find_schema: Looks schemas up in the registry.

    Raises:
        ConfigError: an option is wrong.
        SchemaError: the column and its schema do not match, or the format has no such type.
        RegistryError: as `Registry`.
    """
    if not column.encoded:
        if column.schema_id is None:
            return None
        indexes = parse_indexes(f"{column.name}MessageIndexes", column.indexes)
        return ColumnFormat(prefix_of(column.schema_id, indexes))
    assert kind is not None
    if column.format == "protobuf":
        from spark_producer.schemas.protobuf.column_schema import protobuf_format  # a write of Avro does without it

        return protobuf_format(column, kind, topic, options, find_schema)
    if column.format == "json-schema":
        from spark_producer.schemas.json_schema.column_schema import json_schema_format

        return json_schema_format(column, kind, topic, options, find_schema)
    return _avro_format(column, kind, topic, options, find_schema)


def _avro_format(
    column: ColumnOptions, kind: pa.DataType, topic: str | None, options: RegistryOptions, find_schema: FindSchema
) -> ColumnFormat:
    text = None if column.schema is None else schema_text(column.schema, f"{column.name}Schema")
    given: Schema | None = None
    references: tuple[SchemaReference, ...] = ()
    if text is not None:
        whole, references = complete_text(text, column, options, AVRO, find_schema)
        given = parse_schema(whole, f"{column.name}Schema")
    schema: Schema
    if column.schema_id is not None:
        assert given is not None
        schema, found = given, RegisteredSchema(column.schema_id)
    elif options.use_latest_version:
        found = find_schema(SchemaLookup(options, subject_of(column, topic, None), None))
        schema = parse_schema(found.text or "", "the registry's latest schema")
    else:
        subject = subject_of(column, topic, _record_name(given))
        schema = (
            avro_schema(kind, name_of(f"{topic}_{column.name}" if topic else column.name)) if given is None else given
        )
        plan_of(
            schema, kind, column.name, fill=column.fill
        )  # before registration, so that no schema is registered that the column does not fit
        own = parse_schema(text or "") if references else schema
        sent = json.dumps(own, separators=(",", ":"))
        found = find_schema(SchemaLookup(options, subject, sent, AVRO, references))
    prefix, header = column_framing(column, found)
    return ColumnFormat(prefix, plan_of(schema, kind, column.name, fill=column.fill), header)


def _record_name(schema: Schema | None) -> str | None:
    return full_name(schema) if isinstance(schema, dict) and isinstance(schema.get("name"), str) else None
