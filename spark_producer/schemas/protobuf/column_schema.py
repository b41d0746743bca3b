"""The choice of a column's Protobuf message and schema id, on the driver: from the column, an option, or the registry."""

from __future__ import annotations

import pyarrow as pa

from spark_producer.config import RegistryOptions
from spark_producer.config.registry_table import ColumnOptions
from spark_producer.schemas.column_format import ColumnFormat
from spark_producer.schemas.protobuf.column_types import proto_schema
from spark_producer.schemas.protobuf.compiler import (
    ProtobufSchema,
    compiled,
    message_indexes,
    message_of,
    parse_registered,
)
from spark_producer.schemas.protobuf.plan import plan_of
from spark_producer.schemas.registry import PROTOBUF, RegisteredSchema
from spark_producer.schemas.schema_lookup import FindSchema, SchemaLookup, column_framing, complete_text, schema_text
from spark_producer.schemas.subjects import subject_of
from spark_producer.schemas.types import name_of


def protobuf_format(
    column: ColumnOptions, kind: pa.DataType, topic: str | None, options: RegistryOptions, find_schema: FindSchema
) -> ColumnFormat:
    """Return the format of a column that is encoded as Protobuf. The arguments are those of `column_format`.

    Raises:
        ConfigError: an option is wrong, or the extra is not installed.
        SchemaError: the schema is not valid, has no such message, does not fit the column, or Protobuf has no such type.
        RegistryError: as `Registry`.
    """
    if column.schema_id is None and options.use_latest_version:
        what = "the registry's latest schema"
        found = find_schema(SchemaLookup(options, subject_of(column, topic, None), None, PROTOBUF))
        message = message_of(compiled(parse_registered(found.text or ""), what), column.message, what)
        node = plan_of(message, kind, column.name, fill=column.fill)
    else:
        what = f"{column.name}Schema"
        if column.schema is None:
            text = proto_schema(kind, name_of(f"{topic}_{column.name}" if topic else column.name), column.name)
        else:
            text = schema_text(column.schema, what)
        whole, references = complete_text(text, column, options, PROTOBUF, find_schema)
        schema = parse_registered(whole) if references else ProtobufSchema(text)
        message = message_of(compiled(schema, what), column.message, what)
        node = plan_of(message, kind, column.name, fill=column.fill)  # before registration, as for Avro
        if column.schema_id is None:
            subject = subject_of(column, topic, None if column.schema is None else message.full_name)
            found = find_schema(SchemaLookup(options, subject, text, PROTOBUF, references))
        else:
            found = RegisteredSchema(column.schema_id)
    prefix, header = column_framing(column, found, message_indexes(message))
    return ColumnFormat(prefix, node, header)
