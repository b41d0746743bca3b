"""Decodes a column of Avro in Confluent's wire format: rows are grouped by schema id, decoded by column, and put in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordError, SchemaError
from spark_producer.kernel import decode_avro
from spark_producer.kernel.arrays import (
    ArrowArray,
    BoolArray,
    ByteArray,
    BytesArray,
    Int64Array,
    buffer_of,
    from_numbers,
)
from spark_producer.kernel.avro_program import REASONS, Failure, Program, Reason
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.kernel.decoded_avro import arrow_array
from spark_producer.schemas.plan import parse_schema
from spark_producer.schemas.reader_types import ReaderType, TypeRules, reader_type
from spark_producer.schemas.registry import UnknownSchema
from spark_producer.schemas.resolution import program_of
from spark_producer.schemas.texts import arrow_type_name
from spark_producer.schemas.types import Schema
from spark_producer.schemas.wire_format import ID_BYTES

_HEAD = 1 + ID_BYTES
NO_FRAME = "it is not in Confluent's wire format, a zero and four bytes of schema id"

SchemaOf = Callable[[int], str]
"""Returns the text of a writer's schema by its id. It raises `UnknownSchema` for an id that the registry does not have."""


class BadRow(NamedTuple):
    """A row that cannot be decoded, and the reason."""

    row: int
    reason: str


class DecodedColumn(NamedTuple):
    """The decoded column, in which null and bad rows are null; the number of bad rows, and the first one."""

    values: ArrowArray
    bad_rows: int
    first: BadRow | None


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
        return _in_order(self.kind, len(column), parts, positions, bad)

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


class _Decoded(NamedTuple):
    """Decoded values, the numbers of the rows that have them, and those that have not, with the reasons."""

    values: ArrowArray
    good: Int64Array
    bad: list[tuple[Int64Array, str]]


def _decoded(program: Program, data: ByteArray, starts: Int64Array, ends: Int64Array) -> _Decoded:
    try:
        raw, failures = decode_avro(program, data, starts, ends)
        good = np.delete(np.arange(len(starts)), [failure.row for failure in failures])
        values, mismatches = arrow_array(program, raw, len(good))
    except OverflowError as error:
        raise RecordError(f"an Avro column cannot be decoded: {error}") from None
    bad = _by_reason(program, failures)
    if not mismatches:
        return _Decoded(values, good, bad)
    unfit = np.unique(np.concatenate([each.rows for each in mismatches]))
    rest = np.delete(good, unfit)
    again = _decoded(program, data, starts[rest], ends[rest])
    bad += [(good[each.rows], f"field '{each.path}': {each.reason}") for each in mismatches]
    return _Decoded(again.values, rest[again.good], bad)


def _by_reason(program: Program, failures: list[Failure]) -> list[tuple[Int64Array, str]]:
    """Return the rows of each reason; its byte is that of the first row."""
    found: dict[tuple[int, int], list[int]] = {}
    positions: dict[tuple[int, int], int] = {}
    for failure in failures:
        key = failure.reason, failure.op
        found.setdefault(key, []).append(failure.row)
        positions.setdefault(key, failure.position)
    return [(np.array(rows, np.int64), _reason(program, *key, positions[key])) for key, rows in found.items()]


def _reason(program: Program, reason: int, op: int, position: int) -> str:
    failed = program.ops[op]
    text = failed.reason if reason == Reason.SCHEMA else REASONS[Reason(reason)]
    where = text if text.startswith("field '") else f"field '{failed.path}': {text}"
    return f"{where} (byte {_HEAD + position})"


def _in_order(
    kind: pa.DataType, length: int, parts: list[Any], positions: list[Int64Array], bad: list[tuple[Int64Array, str]]
) -> DecodedColumn:
    rows = [numbers for numbers, _ in bad if len(numbers)]
    first = min((BadRow(int(numbers.min()), reason) for numbers, reason in bad if len(numbers)), default=None)
    count = len(np.unique(np.concatenate(rows))) if rows else 0
    if len(parts) == 1 and len(parts[0]) == length:
        return DecodedColumn(parts[0], count, first)
    if not parts:
        return DecodedColumn(_nulls(length, kind), count, first)
    places: Int64Array = np.full(length, -1, np.int64)
    places[np.concatenate(positions)] = np.arange(sum(map(len, parts)))
    found = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
    return DecodedColumn(_taken(found, places), count, first)


def _taken(values: ArrowArray, places: Int64Array) -> ArrowArray:
    """Return the values at these places; null where they are negative."""
    valid: BoolArray = places >= 0
    bits = buffer_of(np.packbits(valid, bitorder="little"))
    numbers = from_numbers(places)
    return values.take(pa.Array.from_buffers(pa.int64(), len(places), [bits, numbers.buffers()[1]]))


def _nulls(length: int, kind: Any) -> ArrowArray:
    found: ArrowArray = pa.nulls(length, kind)
    return found
