"""Decodes a column of Protobuf in Confluent's wire format, whatever ids its rows have: fields are found by their numbers."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa

from spark_producer.common.escape import for_log
from spark_producer.errors import SchemaError
from spark_producer.kernel import decode_protobuf
from spark_producer.kernel.arrays import ArrowArray, BoolArray, BytesArray, Int64Array
from spark_producer.kernel.avro_program import Failure
from spark_producer.kernel.decoded_protobuf import protobuf_array
from spark_producer.kernel.protobuf_program import PROTOBUF_REASONS, ProtobufProgram, ProtobufReason
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.protobuf.compiler import MessageNames
from spark_producer.schemas.protobuf.frames import Frames, frames_of
from spark_producer.schemas.protobuf.message_names import WriterMessages
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.row_decoding import DecodedColumn, RowsAndFailures, decode_rows, in_order
from spark_producer.schemas.texts import arrow_type_name


class ProtobufDecoder:
    """Decodes the values of a column into one type.

    Args:
        program: How the message is decoded.
        message: The full name of the message.
        writers: The names of messages, by which values of another message are found; None takes all values for this one.
    """

    def __init__(self, program: ProtobufProgram, message: str, writers: WriterMessages | None) -> None:
        self._program = program
        self._message = message
        self._writers = writers

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the decoded column."""
        return self._program.columns[0].kind

    def decode(self, column: ArrowArray, header: HeaderIds | None = None) -> DecodedColumn:
        """Return a binary column decoded; `header` has the ids that the headers of rows hold. A null stays null.

        Raises:
            SchemaError: the column is not binary. RegistryError: the registry cannot be reached, or refuses.
            ConfigError: a schema of the registry must be compiled, and the extra is not installed.
            RecordError: the decoded values have more than 2 GiB.
        """
        path = self._program.columns[0].path
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise SchemaError(
                f"column '{path}' is {arrow_type_name(column.type)}, but Protobuf in Confluent's wire format is binary"
            )
        frames = frames_of(cast("BytesArray", column), header)
        bad = list(frames.bad)
        chosen: BoolArray = np.ones(len(frames.pairs), np.bool_)
        names: dict[SchemaKey, MessageNames | str] = {}
        for number, (key, indexes) in enumerate(frames.pairs):
            if self._writers is not None and key not in names:  # once for all indexes: bytes at random have many
                names[key] = self._names(self._writers, key)
            reason = self._other_message(key, indexes, names.get(key))
            if reason:
                chosen[number] = False
                bad.append((frames.rows[frames.sources == number], reason))
        rows = np.arange(len(frames.rows)) if chosen.all() else np.flatnonzero(chosen[frames.sources])
        found = decode_rows(
            lambda first, last: self._decode(frames, first, last),
            self._reason,
            "a Protobuf column",
            frames.starts[rows],
            frames.ends[rows],
        )
        bad += [(frames.rows[rows[numbers]], reason) for numbers, reason in found.bad]
        return in_order(self.kind, len(column), [found.values], [frames.rows[rows[found.good]]], bad)

    def _names(self, writers: WriterMessages, key: SchemaKey) -> MessageNames | str:
        """Return the names of a schema's messages, or the reason why it has none."""
        try:
            return writers.names(key)
        except (UnknownSchema, SchemaError) as error:
            return str(error)

    def _other_message(self, key: SchemaKey, indexes: tuple[int, ...], names: MessageNames | str | None) -> str:
        """Return the reason why values are not of this message, or nothing."""
        if names is None:
            return ""
        if isinstance(names, str):
            return names
        found = names.get(indexes, ())
        if self._message in found:
            return ""
        if not found:
            return f"schema {key} has no message with the indexes {list(indexes)}"
        return f"it is the message {for_log(found[0])}, not {for_log(self._message)}"

    def _decode(self, frames: Frames, first: Int64Array, last: Int64Array) -> RowsAndFailures:
        raw, failures = decode_protobuf(self._program, frames.data, first, last)
        values, mismatches = protobuf_array(self._program, raw, len(first) - len(failures))
        return values, failures, mismatches

    def _reason(self, failure: Failure) -> str:
        text = PROTOBUF_REASONS[ProtobufReason(failure.reason)]
        return f"field '{self._program.columns[failure.op].path}': {text} (byte {failure.position} of the message)"
