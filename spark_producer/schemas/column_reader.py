"""What a task needs to decode a column: the reader's schema, the mode, and where writers' schemas come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from spark_producer.errors import ConfigError, RecordError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.schemas.decoded_column import ColumnDecoder
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.reader_types import TypeRules
from spark_producer.schemas.references import SchemaReference
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.row_decoding import DecodedColumn
from spark_producer.schemas.subjects import Subject
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas

MODES = ("FAILFAST", "PERMISSIVE")
"""The result for a value that cannot be decoded: an error, or null, as in Spark's `from_avro`."""


class Reader(Protocol):
    """How a column is decoded, whatever its format. It is pickled for the tasks."""

    @property
    def by_header(self) -> bool:
        """Whether headers of records are searched for ids of schemas."""

    def decoder(self) -> Any:
        """Return the decoder of one task, whose `kind` is the Arrow type of the decoded column."""

    def decode(
        self, decoder: Any, column: ArrowArray, row_name: Callable[[int], str], header: HeaderIds | None = None
    ) -> ArrowArray:
        """Return a binary column decoded, as `ColumnReader.decode`."""


class ColumnReader(NamedTuple):
    """How a column is decoded. It is pickled for the tasks.

    Attributes:
        name: The column's name in messages.
        schema: The reader's schema as JSON.
        rules: What the schema's types become.
        mode: One of `MODES`.
        writers: The writers' schemas.
        by_header: Whether headers of records are searched for ids of schemas.
    """

    name: str
    schema: str
    rules: TypeRules
    mode: str
    writers: WriterSchemas
    by_header: bool = True

    def decoder(self) -> ColumnDecoder:
        """Return the decoder of one task.

        Raises:
            SchemaError: as `ColumnDecoder`.
        """
        return ColumnDecoder(self.schema, self.writers.text, self.name, self.rules)

    def decode(
        self,
        decoder: ColumnDecoder,
        column: ArrowArray,
        row_name: Callable[[int], str],
        header: HeaderIds | None = None,
    ) -> ArrowArray:
        """Return a binary column decoded; `header` has the ids that the headers of rows hold.

        With the mode PERMISSIVE, rows that cannot be decoded are null.

        Raises:
            RecordError: with FAILFAST, a row cannot be decoded; `row_name` returns what the message calls it. And as
            `ColumnDecoder.decode`.
        """
        return check_decoded(decoder.decode(column, header), self.name, self.mode, "Avro", row_name)


def check_decoded(found: DecodedColumn, name: str, mode: str, form: str, row_name: Callable[[int], str]) -> ArrowArray:
    """Return the values of a decoded column, in which rows that cannot be decoded are null.

    Raises:
        RecordError: with the mode FAILFAST, there is such a row; `row_name` returns what the message calls it, and `form` is the
            name of the format.
    """
    if found.first is not None and mode == "FAILFAST":
        raise RecordError(
            f"{row_name(found.first.row)}: column '{name}' cannot be decoded as {form}: {found.first.reason}. To read "
            "null in place of such values, set mode to PERMISSIVE",
            row=found.first.row,
        )
    return found.values


def column_kind(reader: Reader) -> pa.DataType:
    """Return the Arrow type of the decoded column.

    Raises:
        SchemaError: as `ColumnDecoder`.
    """
    found: pa.DataType = reader.decoder().kind
    return found


def check_mode(mode: str) -> str:
    """Return a mode in capitals.

    Raises:
        ConfigError: there is no such mode.
    """
    if mode.upper() not in MODES:
        raise ConfigError(f"mode must be {' or '.join(MODES)}, not {mode!r}")
    return mode.upper()


def subject_schemas(access: RegistryAccess, subject: Subject) -> tuple[str, dict[SchemaKey, str]]:
    """Return the latest schema of a subject, and its newest versions by their ids and GUIDs.

    Raises:
        ConfigError: an option is wrong, or the registry's client is not installed. RegistryError: as `Registry.versions`.
    """
    registry = access.connect()
    try:
        versions = registry.versions(registry.subject(subject))
    finally:
        registry.close()
    texts = {key: each.text or "" for each in versions for key in (each.schema_id, each.guid) if key is not None}
    return versions[-1].text or "", texts


def complete_schema(access: RegistryAccess, text: str, references: Sequence[SchemaReference], what: str) -> str:
    """Return a given schema with those that it refers to, as `Registry.complete`.

    Raises:
        ConfigError: an option is wrong, or the registry's client is not installed. RegistryError: as `Registry.complete`.
    """
    registry = access.connect()
    try:
        return registry.complete(text, references, what)
    finally:
        registry.close()
