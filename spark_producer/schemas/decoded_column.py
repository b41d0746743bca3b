"""Decodes a column of Avro in Confluent's wire format: rows are grouped by schema id, decoded by column, and put in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import SchemaError
from spark_producer.kernel import decode_avro
from spark_producer.kernel.arrays import ArrowArray, BytesArray, Int64Array
from spark_producer.kernel.avro_program import REASONS, Failure, Program, Reason
from spark_producer.kernel.decoded_avro import arrow_array
from spark_producer.schemas.frames import Frames, frames_of
from spark_producer.schemas.header_ids import HeaderIds
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.reader_types import ReaderType, TypeRules, reader_type
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.registry import SchemaKey
from spark_producer.schemas.resolution import program_of
from spark_producer.schemas.row_decoding import DecodedColumn, DecodedRows, RowsAndFailures, decode_rows, in_order
from spark_producer.schemas.texts import arrow_type_name
from spark_producer.schemas.types import Schema

SchemaOf = Callable[[SchemaKey], str]
"""Returns the text of a writer's schema by its id or GUID. It raises `UnknownSchema` if the registry has none."""


class ColumnDecoder:
    """Decodes the values of a column into one type, whatever ids they have. Programs are made once for each id.

    Args:
        schema: The reader's schema as JSON.
        schema_of: Returns writers' schemas.
        name: The column's name in messages.
        rules: What the schema's types become.

    Raises:
        SchemaError: the reader's schema is not valid, or Spark has no such type.
    """

    def __init__(self, schema: str, schema_of: SchemaOf, name: str, rules: TypeRules) -> None:
        self._schema: Schema = parse_schema(schema, "the reader's schema")
        self._reader: ReaderType = reader_type(self._schema, name, rules)
        self._schema_of = schema_of
        self._programs: dict[SchemaKey, Program | str] = {}

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the decoded column."""
        return self._reader.kind

    def decode(self, column: ArrowArray, header: HeaderIds | None = None) -> DecodedColumn:
        """Return a binary column decoded; `header` has the ids that the headers of rows hold. A null stays null.

        Raises:
            SchemaError: the column is not binary. RegistryError: the registry cannot be reached, or refuses.
            RecordError: the decoded values have more than 2 GiB.
        """
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise SchemaError(
                f"column '{self._reader.path}' is {arrow_type_name(column.type)}, but Avro in Confluent's wire format is binary"
            )
        frames = frames_of(cast("BytesArray", column), header)
        ids = np.unique(frames.ids) if len(frames.ids) and (frames.ids != frames.ids[0]).any() else frames.ids[:1]
        parts, positions, bad = [], [], list(frames.bad)
        for number in ids.tolist():
            chosen = np.flatnonzero(frames.ids == number) if len(ids) > 1 else np.arange(len(frames.ids))
            program = self._program(frames.key(number))
            if isinstance(program, str):
                bad.append((frames.rows[chosen], program))
                continue
            found = _decoded(program, frames, frames.head(number), chosen)
            parts.append(found.values)
            positions.append(frames.rows[chosen][found.good])
            bad += [(frames.rows[chosen][rows], reason) for rows, reason in found.bad]
        return in_order(self.kind, len(column), parts, positions, bad)

    def _program(self, key: SchemaKey) -> Program | str:
        """Return the program of an id or GUID, or the reason why none of its values can be decoded."""
        known = self._programs.get(key)
        if known is None:
            try:
                writer = parse_schema(self._schema_of(key), f"schema {key}")
                known = program_of(writer, self._reader, self._schema)
            except UnknownSchema as error:  # it may be registered later
                return str(error)
            except SchemaError as error:
                known = str(error)
            self._programs[key] = known
        return known


def _decoded(program: Program, frames: Frames, head: int, chosen: Int64Array) -> DecodedRows:
    def decode(first: Int64Array, last: Int64Array) -> RowsAndFailures:
        raw, failures = decode_avro(program, frames.data, first, last)
        values, mismatches = arrow_array(program, raw, len(first) - len(failures))
        return values, failures, mismatches

    starts, ends = frames.starts[chosen], frames.ends[chosen]
    return decode_rows(decode, lambda failure: _reason(program, failure, head), "an Avro column", starts, ends)


def _reason(program: Program, failure: Failure, head: int) -> str:
    failed = program.ops[failure.op]
    text = failed.reason if failure.reason == Reason.SCHEMA else REASONS[Reason(failure.reason)]
    where = text if text.startswith("field '") else f"field '{failed.path}': {text}"
    return f"{where} (byte {head + failure.position})"
