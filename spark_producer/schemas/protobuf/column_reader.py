"""What a task needs to decode a column of Protobuf: the program of its message, the mode, and the names of written messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spark_producer.errors import ConfigError
from spark_producer.kernel.arrays import ArrowArray
from spark_producer.kernel.protobuf_program import ProtobufProgram
from spark_producer.schemas.column_reader import check_decoded
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.protobuf.compiler import ProtobufSchema, compiled, message_of, parse_registered
from spark_producer.schemas.protobuf.decoded_column import ProtobufDecoder
from spark_producer.schemas.protobuf.message_names import WriterMessages, all_names
from spark_producer.schemas.protobuf.message_types import program_of
from spark_producer.schemas.registry import KnownSchemas
from spark_producer.schemas.writer_schemas import RegistryAccess, WriterSchemas


class ProtobufReader(NamedTuple):
    """How a column is decoded. It is pickled for the tasks, which need no compiler for it.

    Attributes:
        name: The column's name in messages.
        program: How its message is decoded.
        message: The full name of the message.
        mode: One of `MODES`.
        writers: The names of written messages; None if all values are taken for this message.
        by_header: Whether headers of records are searched for ids of schemas.
    """

    name: str
    program: ProtobufProgram
    message: str
    mode: str
    writers: WriterMessages | None
    by_header: bool = True

    def decoder(self) -> ProtobufDecoder:
        """Return the decoder of one task."""
        return ProtobufDecoder(self.program, self.message, self.writers)

    def decode(
        self,
        decoder: ProtobufDecoder,
        column: ArrowArray,
        row_name: Callable[[int], str],
        header: HeaderIds | None = None,
    ) -> ArrowArray:
        """Return a binary column decoded, as `ColumnReader.decode`.

        Raises:
            RecordError: with FAILFAST, a row cannot be decoded. And as `ProtobufDecoder.decode`.
        """
        return check_decoded(decoder.decode(column, header), self.name, self.mode, "Protobuf", row_name)


class ReaderSchema(NamedTuple):
    """Which message a column is read as.

    Attributes:
        schema: The text of a `.proto` file; None takes the latest of the subject.
        message: The name of the message; None takes the first one.
        recursion: How often a message may occur within itself.
        complete: Whether `schema` has those that it refers to, as `Registry.complete` returns it.
    """

    schema: str | None
    message: str | None
    recursion: int = 0
    complete: bool = False


def protobuf_reader(
    name: str,
    wanted: ReaderSchema,
    mode: str,
    known: KnownSchemas,
    access: RegistryAccess | None,
    latest: str | None = None,
) -> ProtobufReader:
    """Return how a column is decoded.

    Args:
        name: The column's name in messages.
        wanted: The reader's schema, and the name of its message.
        mode: One of `MODES`.
        known: The schemas of ids and GUIDs that are known, as `Registry` returns them.
        access: How tasks look up other ids. If it is None and `known` is empty, values have no ids, only the message.
        latest: The subject's latest schema, as `Registry` returns it.

    Raises:
        ConfigError: there is no schema, or the extra is not installed.
        SchemaError: the schema is not valid, has no such message, or has one that Spark's types do not hold.
    """
    if wanted.schema is None and latest is None:
        raise ConfigError(
            "the reader's schema is missing. Give a schema, or a subject, whose latest schema is then used"
        )
    if wanted.schema is None or wanted.complete:
        schema = parse_registered(wanted.schema or latest or "")
    else:
        schema = ProtobufSchema(wanted.schema)
    what = "the subject's latest schema" if wanted.schema is None else "the reader's schema"
    message = message_of(compiled(schema, what), wanted.message, what)
    writers = WriterMessages(all_names(known), WriterSchemas({}, access)) if known or access else None
    return ProtobufReader(name, program_of(message, name, wanted.recursion), message.full_name, mode, writers)
