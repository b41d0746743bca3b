"""Decodes a column of Avro in Confluent's wire format: rows are grouped by schema id, decoded by column, and put in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordError, SchemaError
from spark_producer.kernel import decode_avro
from spark_producer.kernel.arrays import ArrowArray, ByteArray, BytesArray, Int64Array
from spark_producer.kernel.avro_program import REASONS, Failure, Program, Reason
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.kernel.decoded_avro import arrow_array
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.reader_types import ReaderType, TypeRules, reader_type
from spark_producer.schemas.references import UnknownSchema
from spark_producer.schemas.resolution import program_of
from spark_producer.schemas.row_decoding import DecodedColumn, DecodedRows, RowsAndFailures, decode_rows, in_order
from spark_producer.schemas.texts import arrow_type_name
from spark_producer.schemas.types import Schema
from spark_producer.schemas.wire_format import ID_BYTES

_HEAD = 1 + ID_BYTES
NO_FRAME = "it is not in Confluent's wire format, a zero and four bytes of schema id"

SchemaOf = Callable[[int], str]
"""Returns the text of a writer's schema by its id. It raises `UnknownSchema` for an id that the registry does not have."""


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
        self._programs: dict[int, Program | str] = {}

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of the decoded column."""
        return self._reader.kind

    def decode(self, column: ArrowArray) -> DecodedColumn:
        """Return a binary column decoded. A null stays null.

        Raises:
            SchemaError: the column is not binary. RegistryError: the registry cannot be reached, or refuses.
            RecordError: the decoded values have more than 2 GiB.
        """
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            raise SchemaError(
                f"column '{self._reader.path}' is {arrow_type_name(column.type)}, but Avro in Confluent's wire format is binary"
            )
        frames = _frames(cast("BytesArray", column))
        ids = np.unique(frames.ids) if len(frames.ids) and (frames.ids != frames.ids[0]).any() else frames.ids[:1]
        parts, positions, bad = [], [], list(frames.bad)
        for schema_id in ids.tolist():
            chosen = np.flatnonzero(frames.ids == schema_id) if len(ids) > 1 else np.arange(len(frames.ids))
            program = self._program(schema_id)
            if isinstance(program, str):
                bad.append((frames.rows[chosen], program))
                continue
            found = _decoded(program, frames.data, frames.starts[chosen], frames.ends[chosen])
            parts.append(found.values)
            positions.append(frames.rows[chosen][found.good])
            bad += [(frames.rows[chosen][rows], reason) for rows, reason in found.bad]
        return in_order(self.kind, len(column), parts, positions, bad)

    def _program(self, schema_id: int) -> Program | str:
        """Return the program of an id, or the reason why none of its values can be decoded."""
        known = self._programs.get(schema_id)
        if known is None:
            try:
                writer = parse_schema(self._schema_of(schema_id), f"schema {schema_id}")
                known = program_of(writer, self._reader, self._schema)
            except UnknownSchema as error:  # it may be registered later
                return str(error)
            except SchemaError as error:
                known = str(error)
            self._programs[schema_id] = known
        return known


class _Frames(NamedTuple):
    """The rows that are frames: their numbers, schema ids, and the positions of their Avro values in `data`."""

    rows: Int64Array
    ids: Int64Array
    data: ByteArray
    starts: Int64Array
    ends: Int64Array
    bad: list[tuple[Int64Array, str]]


def _frames(column: BytesArray) -> _Frames:
    view = BinaryColumn(column)
    starts, ends = view.offsets[:-1].astype(np.int64), view.offsets[1:].astype(np.int64)
    if len(column) and (starts[0] < 0 or ends[-1] > len(view.data) or (starts > ends).any()):
        raise RecordError("the offsets of a binary column are wrong: the input is damaged")
    live = np.ones(len(column), np.bool_) if view.valid is None else view.valid
    framed = live & (ends - starts >= _HEAD)
    framed[framed] = view.data[starts[framed]] == 0
    rows = np.flatnonzero(framed)
    starts, ends = starts[rows], ends[rows]
    ids = np.zeros(len(rows), np.int64)
    for index in range(1, _HEAD):
        ids = ids << 8 | view.data[starts + index]
    odd = np.flatnonzero(live & ~framed)
    return _Frames(rows, ids, view.data, starts + _HEAD, ends, [(odd, NO_FRAME)] if len(odd) else [])


def _decoded(program: Program, data: ByteArray, starts: Int64Array, ends: Int64Array) -> DecodedRows:
    def decode(first: Int64Array, last: Int64Array) -> RowsAndFailures:
        raw, failures = decode_avro(program, data, first, last)
        values, mismatches = arrow_array(program, raw, len(first) - len(failures))
        return values, failures, mismatches

    return decode_rows(decode, lambda failure: _reason(program, failure), "an Avro column", starts, ends)


def _reason(program: Program, failure: Failure) -> str:
    failed = program.ops[failure.op]
    text = failed.reason if failure.reason == Reason.SCHEMA else REASONS[Reason(failure.reason)]
    where = text if text.startswith("field '") else f"field '{failed.path}': {text}"
    return f"{where} (byte {_HEAD + failure.position})"
