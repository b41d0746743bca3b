"""Functions over Spark columns, for other sources and sinks than this one: the same encoder, the same decoder."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_producer.config.registry_parsing import parse_registry_options
from spark_producer.errors import ConfigError, RecordError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.column_format import ColumnFormat, encode_column
from spark_producer.schemas.column_reader import ColumnReader, Reader, check_mode, column_kind, subject_schemas
from spark_producer.schemas.header_ids import header_ids
from spark_producer.schemas.plan import parse_schema, plan_of
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.registry import AVRO, JSON, PROTOBUF, SchemaKey
from spark_producer.schemas.types import avro_schema
from spark_producer.schemas.wire_format import header_name, header_of, prefix_of
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas

if TYPE_CHECKING:
    from pyspark.sql import Column

TIMEOUT = 60.0
"""Seconds for each request to a registry of functions that decode; those of a write have `kafka.max.block.ms`."""


def to_confluent_avro(
    column: Column | str, schema_id: int | str, schema: str | None = None, *, fill_missing_fields: bool = False
) -> Column:
    """Return a column of Avro in Confluent's wire format: a zero, the schema's id in four bytes, and the value. Null stays null.

    No registry is used: the caller has registered the schema and knows its id.

    Args:
        column: A column, mostly a struct, or its name.
        schema_id: The id under which the registry has the schema, 0 to 2147483647; or its GUID: then values have no prefix, and
            belong to records with the header of `confluent_schema_header`.
        schema: The Avro schema of that id as JSON; by default it follows from the column's type (docs/avro.md).
        fill_missing_fields: Whether fields of `schema` that the column lacks get their default, or null.

    Raises:
        ValueError: the id is out of range, or the text is not a GUID.
        SchemaError: `schema` is not an Avro schema; or, in tasks, column and schema do not match.
        RecordError: in tasks, a value does not fit its schema; the message names the field.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    prefix = _prefix(schema_id)
    if schema is not None:
        parse_schema(schema)

    def encode(values: ArrowArray) -> ArrowArray:
        return _encoded(values, prefix, schema, fill_missing_fields)

    encode.__annotations__ = {
        "values": pa.Array,
        "return": pa.Array,
    }  # Spark reads them, and accepts no type variables

    found: Column = arrow_udf(encode, "binary")(column)  # type: ignore[call-overload]  # in the stubs the kind is no default
    return found


def _encoded(values: ArrowArray, prefix: bytes, schema: str | None, fill: bool) -> ArrowArray:
    wanted = avro_schema(values.type, "value") if schema is None else parse_schema(schema)
    return _fitting(ColumnFormat(prefix, plan_of(wanted, values.type, "value", fill=fill)), values)


def to_confluent_protobuf(
    column: Column | str,
    schema_id: int | str,
    schema: str,
    *,
    message: str | None = None,
    fill_missing_fields: bool = False,
) -> Column:
    """Return a column of Protobuf in Confluent's wire format: a zero, the schema's id in four bytes, the indexes of the message,
    and the message. Null stays null.

    No registry is used: the caller has registered the schema and knows its id. The driver compiles the schema; tasks need
    Protobuf's library.

    Args:
        column: A column of structs, or its name.
        schema_id: The id under which the registry has the schema, 0 to 2147483647; or its GUID: then values have no prefix, and
            belong to records with the header of `confluent_schema_header`.
        schema: The schema of that id as the text of a `.proto` file.
        message: The name of the message, with or without its package; by default the first one of the schema.
        fill_missing_fields: Whether fields of the message that the column lacks are absent.

    Raises:
        ValueError: the id is out of range, or the text is not a GUID.
        ConfigError: the compiler or the library is not installed.
        SchemaError: the schema is not valid, or has no such message; or, in tasks, column and message do not match.
        RecordError: in tasks, a value does not fit its schema; the error names the field.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    from spark_producer.schemas.protobuf.compiler import (
        ProtobufSchema,
        descriptor_set,
        file_of,
        message_indexes,
        message_of,
    )
    from spark_producer.schemas.protobuf.plan import plan_of as protobuf_plan

    what = "the schema"
    descriptors = descriptor_set(ProtobufSchema(schema), what)
    prefix = _prefix(schema_id, message_indexes(message_of(file_of(descriptors, what), message, what)))
    plans: dict[pa.DataType, ColumnFormat] = {}

    def encode(values: ArrowArray) -> ArrowArray:
        if values.type not in plans:
            found = message_of(file_of(descriptors, what), message, what)
            plan = protobuf_plan(found, values.type, "value", fill=fill_missing_fields)
            plans[values.type] = ColumnFormat(prefix, plan)
        return _fitting(plans[values.type], values)

    encode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    found: Column = arrow_udf(encode, "binary")(column)  # type: ignore[call-overload]
    return found


def _prefix(schema_id: int | str, indexes: tuple[int, ...] = ()) -> bytes:
    if isinstance(schema_id, str):
        uuid.UUID(schema_id)
        return b""
    if not 0 <= schema_id < 1 << 31:
        raise ValueError(f"schema_id must lie between 0 and 2147483647, not {schema_id}")
    return prefix_of(schema_id, indexes)


def confluent_schema_header(
    guid: str, *, schema: str | None = None, message: str | None = None, is_key: bool = False
) -> Column:
    """Return the header of records whose values name their schema by its GUID: a struct of `key` and `value`, for the column
    `headers`. The functions `to_confluent_…` write such values if they get the GUID in place of an id.

    Args:
        guid: The GUID of the schema.
        schema: The schema as the text of a `.proto` file, for Protobuf, whose header has the message too.
        message: The name of the message, as in `to_confluent_protobuf`.
        is_key: Whether the schema is the key's: then the header is `__key_schema_id` and not `__value_schema_id`.

    Raises:
        ValueError: the text is not a GUID.
        ConfigError: the compiler or the library is not installed.
        SchemaError: the schema is not valid, or has no such message.
    """
    from pyspark.sql import functions

    indexes: tuple[int, ...] = ()
    if schema is not None:
        from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_indexes, message_of

        indexes = message_indexes(message_of(compiled(ProtobufSchema(schema), "the schema"), message, "the schema"))
    key, value = header_name("key" if is_key else "value"), header_of(guid, indexes)
    named = functions.unhex(functions.lit(value.hex())).alias("value")
    return functions.struct(functions.lit(key).alias("key"), named)


def _fitting(form: ColumnFormat, values: ArrowArray) -> ArrowArray:
    encoded, unfit = encode_column(form, values)
    if encoded is None:
        raise RecordError(f"a value does not fit its {form.name} schema: field '{unfit[0].path}': {unfit[0].reason}")
    return encoded


def from_confluent_avro(
    column: Column | str,
    options: Mapping[str, object] | None = None,
    *,
    subject: str | None = None,
    schema: str | None = None,
    writer_schemas: Mapping[int, str] | None = None,
    mode: str = "FAILFAST",
    recursive_field_max_depth: int = 0,
    headers: Column | str | None = None,
    is_key: bool = False,
) -> Column:
    """Return a column of Avro in Confluent's wire format decoded. Null stays null.

    The driver asks the registry for the subject. A task asks for ids that are not among the subject's newest versions; then it
    needs the registry's client, and the files of its options.

    Args:
        column: A binary column, or its name.
        options: The options of the registry (docs/avro.md), and `secretsAllow` for references to secrets.
        subject: The subject of the column, such as `flights-value`.
        schema: The reader's schema as JSON; by default the subject's latest.
        writer_schemas: Schemas by their ids that are known without the registry.
        mode: The result for a value that cannot be decoded: an error (`FAILFAST`), or null (`PERMISSIVE`), as in Spark's
            `from_avro`.
        recursive_field_max_depth: How often a record may occur within itself; 0 refuses such schemas. As in `from_avro`.
        headers: The column `headers` of the same rows, or its name: values whose header names a schema by its GUID are decoded
            by it, as by reads of this source. By default all values have a prefix.
        is_key: Whether the column is the key: then the header is `__key_schema_id` and not `__value_schema_id`.

    Raises:
        ConfigError: an option is wrong, neither `schema` nor `subject` is given, or the registry's client is not installed.
        SchemaError: the reader's schema is not valid, or Spark has no such type.
        RegistryError: the registry cannot be reached, or does not have the subject.
        RecordError: in tasks, with `FAILFAST`, a value cannot be decoded; the message has its row in the batch, and the reason.
    """

    access = _access(options or {}, needed=schema is None)
    known: dict[SchemaKey, str] = dict((writer_schemas or {}).items())
    if subject is not None and access is not None:
        latest, versions = subject_schemas(access, subject)
        schema, known = schema or latest, versions | known
    if schema is None:
        raise ConfigError(
            "the reader's schema is missing. Give a schema, or a subject, whose latest schema is then used"
        )
    rules = TypeRules(_has_times(), recursive_field_max_depth)
    reader = ColumnReader("value", schema, rules, check_mode(mode), WriterSchemas(known, access))
    return _decoded(reader, column, headers, is_key=is_key)


def from_confluent_protobuf(
    column: Column | str,
    options: Mapping[str, object] | None = None,
    *,
    subject: str | None = None,
    schema: str | None = None,
    message: str | None = None,
    mode: str = "FAILFAST",
    recursive_field_max_depth: int = 0,
    headers: Column | str | None = None,
    is_key: bool = False,
) -> Column:
    """Return a column of Protobuf in Confluent's wire format decoded. Null stays null.

    The driver asks the registry for the subject, and compiles its schemas. A task asks for ids that are not among the subject's
    newest versions, to know which message they name; then it needs the registry's client, the compiler, and the files of the
    options. Without a registry values of all ids are taken for the message.

    Args:
        column: A binary column, or its name.
        options: The options of the registry (docs/protobuf.md), and `secretsAllow` for references to secrets.
        subject: The subject of the column, such as `flights-value`.
        schema: The reader's schema as the text of a `.proto` file; by default the subject's latest.
        message: The name of the message, with or without its package; by default the first one of the schema. Values of
            another message cannot be decoded.
        mode: The result for a value that cannot be decoded: an error (`FAILFAST`), or null (`PERMISSIVE`), as in Spark's
            `from_protobuf`.
        recursive_field_max_depth: How often a message may occur within itself; 0 refuses such messages.
        headers: The column `headers` of the same rows, or its name: values whose header names a schema by its GUID are decoded
            by it, as by reads of this source. By default all values have a prefix.
        is_key: Whether the column is the key: then the header is `__key_schema_id` and not `__value_schema_id`.

    Raises:
        ConfigError: an option is wrong, neither `schema` nor `subject` is given, or the registry's client or the compiler is not
            installed.
        SchemaError: the reader's schema is not valid, has no such message, or Spark has no such type.
        RegistryError: the registry cannot be reached, or does not have the subject.
        RecordError: in tasks, with `FAILFAST`, a value cannot be decoded; the message has its row in the batch, and the reason.
    """

    from spark_producer.schemas.protobuf.column_reader import ReaderSchema, protobuf_reader

    access = _access(options or {}, needed=schema is None, kind=PROTOBUF)
    latest: str | None = None
    known: dict[SchemaKey, str] = {}
    if subject is not None and access is not None:
        latest, known = subject_schemas(access, subject)
    wanted = ReaderSchema(schema, message, recursive_field_max_depth)
    reader = protobuf_reader("value", wanted, check_mode(mode), known, access, latest)
    return _decoded(reader, column, headers, is_key=is_key)


def _decoded(reader: Reader, column: Column | str, headers: Column | str | None, *, is_key: bool) -> Column:
    """Return the column of a reader's values; `headers` has the headers of the rows, if they are searched for ids."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    decoders: list[Any] = []

    def decode(values: ArrowArray, *others: ArrowArray) -> ArrowArray:
        if not decoders:
            decoders.append(reader.decoder())
        header = header_ids(others[0], "key" if is_key else "value") if others else None
        return reader.decode(decoders[0], values, lambda row: f"row {row} of a batch", header)

    def decode_both(values: ArrowArray, headers: ArrowArray) -> ArrowArray:
        return decode(values, headers)

    def decode_one(values: ArrowArray) -> ArrowArray:
        return decode(values)

    decode_both.__annotations__ = {"values": pa.Array, "headers": pa.Array, "return": pa.Array}
    decode_one.__annotations__ = {"values": pa.Array, "return": pa.Array}
    kind = from_arrow_type(column_kind(reader))
    found: Column
    if headers is None:
        found = arrow_udf(decode_one, kind)(column)  # type: ignore[call-overload]
    else:
        found = arrow_udf(decode_both, kind)(column, headers)  # type: ignore[call-overload]
    return found


def from_confluent_json_schema(
    column: Column | str,
    options: Mapping[str, object] | None = None,
    *,
    subject: str | None = None,
    schema: str | None = None,
    mode: str = "FAILFAST",
    validate: bool = False,
    headers: Column | str | None = None,
    is_key: bool = False,
) -> Column:
    """Return a column of JSON in Confluent's wire format decoded. Null stays null.

    The driver asks the registry for the subject. A task asks for ids that are not among the subject's newest versions; then it
    needs the registry's client, and the files of its options. Without a registry values of all ids are taken for JSON.

    Args:
        column: A binary column, or its name.
        options: The options of the registry (docs/json_schema.md), and `secretsAllow` for references to secrets.
        subject: The subject of the column, such as `flights-value`.
        schema: The reader's schema as JSON; by default the subject's latest. It decides the type of the column.
        mode: The result for a value that cannot be decoded: an error (`FAILFAST`), or null (`PERMISSIVE`), as in `from_json`.
        validate: Whether values must be valid by the schema of their id, or without a registry by `schema`. The option
            `json.fail.invalid.schema` does the same.
        headers: The column `headers` of the same rows, or its name: values whose header names a schema by its GUID are decoded
            by it, as by reads of this source. By default all values have a prefix.
        is_key: Whether the column is the key: then the header is `__key_schema_id` and not `__value_schema_id`.

    Raises:
        ConfigError: an option is wrong, neither `schema` nor `subject` is given, or the registry's client or the validator is
            not installed.
        SchemaError: the reader's schema is not valid.
        RegistryError: the registry cannot be reached, or does not have the subject.
        RecordError: in tasks, with `FAILFAST`, a value cannot be decoded; the message has its row in the batch, and the reason.
    """
    from spark_producer.schemas.json_schema.column_reader import json_schema_reader

    access = _access(options or {}, needed=schema is None, kind=JSON)
    known: dict[SchemaKey, str] = {}
    if subject is not None and access is not None:
        latest, known = subject_schemas(access, subject)
        schema = schema or latest
    validate = validate or (access is not None and access.options.json_fail_invalid_schema)
    reader = json_schema_reader("value", schema, check_mode(mode), known, access, validate=validate)
    return _decoded(reader, column, headers, is_key=is_key)


def to_confluent_json_schema(
    column: Column | str,
    schema_id: int | str,
    schema: str | None = None,
    *,
    validate: bool = False,
    fill_missing_fields: bool = False,
) -> Column:
    """Return a column of JSON in Confluent's wire format: a zero, the schema's id in four bytes, and the text, which is that of
    `as_records`. Null stays null.

    No registry is used: the caller has registered the schema and knows its id.

    Args:
        column: A column, mostly a struct, or its name.
        schema_id: The id under which the registry has the schema, 0 to 2147483647; or its GUID: then values have no prefix, and
            belong to records with the header of `confluent_schema_header`.
        schema: The schema of that id as JSON; by default it follows from the column's type (docs/json_schema.md).
        validate: Whether values must be valid by all rules of the schema.
        fill_missing_fields: Whether required fields of `schema` that the column lacks get their default, or null.

    Raises:
        ValueError: the id is out of range, or the text is not a GUID.
        ConfigError: the validator is not installed.
        SchemaError: `schema` is not a JSON Schema; or, in tasks, column and schema do not match.
        RecordError: in tasks, a value does not fit its schema; the message names the field.
    """
    from pyspark.sql.pandas.functions import arrow_udf

    from spark_producer.schemas.json_schema.column_plan import derived_plan, json_plan
    from spark_producer.schemas.json_schema.documents import parse_json_schema
    from spark_producer.schemas.json_schema.validation import SchemaValidator

    prefix = _prefix(schema_id)
    if schema is not None:
        parse_json_schema(schema, "the schema")
        if validate:
            SchemaValidator(schema, "the schema")

    plans: dict[pa.DataType, ColumnFormat] = {}

    def encode(values: ArrowArray) -> ArrowArray:
        kind = values.type
        if kind not in plans:
            if schema is None:
                plan = derived_plan(kind, "value")
            else:
                plan = json_plan(schema, kind, "value", validate=validate, fill=fill_missing_fields)
            plans[kind] = ColumnFormat(prefix, plan)
        return _fitting(plans[kind], values)

    encode.__annotations__ = {"values": pa.Array, "return": pa.Array}
    found: Column = arrow_udf(encode, "binary")(column)  # type: ignore[call-overload]
    return found


def _access(options: Mapping[str, object], *, needed: bool, kind: str = AVRO) -> RegistryAccess | None:
    if not options and not needed:
        return None
    registry, allowed = parse_registry_options(options)
    return RegistryAccess(registry, allowed, TIMEOUT, kind)


def _has_times() -> bool:
    """Return whether Spark has times of day, which it has from 4.1 on if a setting says so."""
    from pyspark.sql import SparkSession, types

    session = SparkSession.getActiveSession()
    if session is None or not hasattr(types, "TimeType"):
        return False
    return str(session.conf.get("spark.sql.timeType.enabled", "false")).lower() == "true"
