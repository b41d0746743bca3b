"""What a task needs to decode a column of JSON: the reader's schema, the mode, and where writers' schemas come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_producer.errors import ConfigError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.column_reader import check_decoded
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.json_schema.column_types import JsonType, column_type
from spark_producer.schemas.json_schema.decoded_column import JsonDecoder
from spark_producer.schemas.json_schema.documents import SchemaDocument
from spark_producer.schemas.json_schema.validation import SchemaValidator
from spark_producer.schemas.registry import KnownSchemas
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas


class JsonSchemaReader(NamedTuple):
    """How a column is decoded. It is pickled for the tasks.

    Attributes:
        name: The column's name in messages.
        node: What its values become.
        schema: The reader's schema.
        mode: One of `MODES`.
        writers: The writers' schemas; None if all values are taken for JSON.
        validate: Whether values must be valid by their schema.
        by_header: Whether headers of records are searched for ids of schemas.
    """

    name: str
    node: JsonType
    schema: str
    mode: str
    writers: WriterSchemas | None
    validate: bool
    by_header: bool = True

    def decoder(self) -> JsonDecoder:
        """Return the decoder of one task."""
        return JsonDecoder(self.node, self.writers, self.schema, self.validate)

    def decode(
        self,
        decoder: JsonDecoder,
        column: ArrowArray,
        row_name: Callable[[int], str],
        header: HeaderIds | None = None,
    ) -> ArrowArray:
        """Return a binary column decoded, as `ColumnReader.decode`.

        Raises:
            RecordError: with FAILFAST, a row cannot be decoded. And as `JsonDecoder.decode`.
        """
        return check_decoded(decoder.decode(column, header), self.name, self.mode, "JSON", row_name)


def json_schema_reader(
    name: str,
    schema: str | None,
    mode: str,
    known: KnownSchemas,
    access: RegistryAccess | None,
    *,
    validate: bool = False,
) -> JsonSchemaReader:
    """Return how a column is decoded.

    Args:
        name: The column's name in messages.
        schema: The reader's schema.
        mode: One of `MODES`.
        known: The schemas of ids that are known.
        access: How tasks look up other ids. If it is None and `known` is empty, values of all ids are taken for JSON.
        validate: Whether values must be valid by the schema of their id, or by the reader's if ids are not looked up.

    Raises:
        ConfigError: there is no schema, or the validator is not installed.
        SchemaError: the schema is not valid, or Spark's types do not hold its values.
    """
    if schema is None:
        raise ConfigError(
            "the reader's schema is missing. Give a schema, or a subject, whose latest schema is then used"
        )
    node = column_type(SchemaDocument(schema, "the reader's schema"), name)
    if validate:
        SchemaValidator(schema, "the reader's schema")
    writers = WriterSchemas(known, access) if known or access else None
    return JsonSchemaReader(name, node, schema, mode, writers, validate)
