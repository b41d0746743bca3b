"""Turns decoded Protobuf columns into Arrow arrays, and finds values that their types cannot hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.kernel.arrays import ArrowArray, BoolArray, Int64Array, buffer_of, from_numbers
from spark_producer.kernel.avro_program import RawColumn, Storage
from spark_producer.kernel.decoded_avro import MismatchedValues, RowsOf, bits_of, checked_text, named
from spark_producer.kernel.protobuf_program import ProtobufColumn, ProtobufProgram, Rendering

_MICROS = 1_000_000
_MAX_SECONDS = ((1 << 63) - 1) // _MICROS - 3
"""Maximum seconds whose microseconds fit into 64 bits, whatever the 32 bits of nanoseconds are."""


def protobuf_array(
    program: ProtobufProgram, raw: list[RawColumn], length: int
) -> tuple[ArrowArray, list[MismatchedValues]]:
    """Return the result of `length` decoded rows, and the values that it does not hold. If there are any, the array is not valid.

    Raises:
        OverflowError: names of enums would make a column of more than 2 GiB.
    """
    builder = _Builder(program, raw)
    return builder.build(0, length, lambda rows: rows, None), builder.mismatches


class _Builder:
    def __init__(self, program: ProtobufProgram, raw: list[RawColumn]) -> None:
        self.mismatches: list[MismatchedValues] = []
        self._program = program
        self._raw = raw

    def build(self, number: int, length: int, rows: RowsOf, live: BoolArray | None) -> ArrowArray:
        """Return a column, which is `length` values long.

        `rows` is for mismatches, and `live` says which of the messages that have the values are present; None for all.
        """
        plan, raw = self._program.columns[number], self._raw[number]
        if raw.length != length:
            raise ValueError(f"a Protobuf column has {raw.length} values instead of {length}: the program is damaged")
        present = None if raw.valid is None or raw.valid.all() else raw.valid.view(np.bool_)
        if plan.required and present is not None:
            self._mismatch(~present if live is None else live & ~present, plan, "it is required, but missing", rows)
        valid = None if present is None else bits_of(present)
        if plan.storage is Storage.RECORD:
            inner = present if live is None else live if present is None else live & present
            return self._message(plan, length, valid, rows, inner)
        if plan.storage is Storage.ARRAY:
            return self._list(plan, raw, rows)
        return self._scalars(plan, raw, valid, rows)

    def _mismatch(self, bad: BoolArray, plan: ProtobufColumn, reason: str, rows: RowsOf) -> None:
        if bad.any():
            self.mismatches.append(MismatchedValues(np.unique(rows(np.flatnonzero(bad))), plan.path, reason))

    def _message(
        self, plan: ProtobufColumn, length: int, valid: pa.Buffer | None, rows: RowsOf, live: BoolArray | None
    ) -> ArrowArray:
        if plan.rendering in (Rendering.TIMESTAMP, Rendering.DURATION):
            return self._time(plan, length, valid, rows)
        fields = [self.build(child, length, rows, live) for child in plan.children]
        if plan.rendering is Rendering.WRAPPED:
            return pa.Array.from_buffers(plan.kind, length, [valid, *fields[0].buffers()[1:]])
        return pa.Array.from_buffers(plan.kind, length, [valid], children=fields)

    def _time(self, plan: ProtobufColumn, length: int, valid: pa.Buffer | None, rows: RowsOf) -> ArrowArray:
        seconds, nanos = (self._raw[child].values for child in plan.children)
        bad: BoolArray = (seconds > _MAX_SECONDS) | (seconds < -_MAX_SECONDS)
        self._mismatch(bad, plan, "its microseconds do not fit into 64 bits", rows)
        if plan.rendering is Rendering.TIMESTAMP:
            micros = nanos // 1000  # rounded down
        else:
            micros = np.sign(nanos) * (np.abs(nanos) // 1000)  # rounded towards zero, as in Protobuf's libraries
        found = np.where(bad, 0, seconds) * _MICROS + micros
        return pa.Array.from_buffers(plan.kind, length, [valid, buffer_of(found)])

    def _list(self, plan: ProtobufColumn, raw: RawColumn, rows: RowsOf) -> ArrowArray:
        items = int(raw.values[-1])

        def inner(positions: Int64Array) -> Int64Array:
            return rows(np.searchsorted(raw.values, positions, side="right") - 1)

        children: Any = [self.build(child, items, inner, None) for child in plan.children]
        offsets: npt.NDArray[Any] = raw.values
        if len(children) == 2:
            kept = _last_of_each_key(children[0], offsets)
            if kept is not None:
                places = from_numbers(np.flatnonzero(kept))
                children = [child.take(places) for child in children]
                offsets = np.concatenate(([0], np.cumsum(kept)))[offsets].astype(np.int32)
                items = len(places)
            entry: Any = plan.kind
            kind = pa.struct([entry.key_field, entry.item_field])
            children = [pa.Array.from_buffers(kind, items, [None], children=children)]
        return pa.Array.from_buffers(plan.kind, raw.length, [None, buffer_of(offsets)], children=children)

    def _scalars(self, plan: ProtobufColumn, raw: RawColumn, valid: pa.Buffer | None, rows: RowsOf) -> ArrowArray:
        kind, values = plan.kind, raw.values
        if plan.storage is Storage.BYTES:
            found = pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(values), buffer_of(raw.data)])
            bad = checked_text(found, raw) if pa.types.is_string(kind) else None
            if bad is not None:
                self._mismatch(bad, plan, "it is not UTF-8", rows)
            return found
        if plan.rendering is Rendering.ENUM:
            return _enum(plan, raw)
        if plan.rendering is Rendering.UNSIGNED:
            whole = np.zeros((raw.length, 2), np.int64)  # 128 bits
            whole[:, 0] = values
            values = whole.reshape(-1)
        elif plan.storage is Storage.BOOLEAN:
            return pa.Array.from_buffers(kind, raw.length, [valid, bits_of(values)])
        elif pa.types.is_int32(kind):
            values = values.astype(np.int32)
        return pa.Array.from_buffers(kind, raw.length, [valid, buffer_of(values)])


def _enum(plan: ProtobufColumn, raw: RawColumn) -> ArrowArray:
    """Return the names of an enum's numbers; a number without a name is its own, as in Protobuf's JSON."""
    known: Int64Array = np.array([number for number, _ in plan.names], np.int64)
    texts = [name for _, name in plan.names]
    indexes = np.minimum(np.searchsorted(known, raw.values), len(known) - 1)
    unknown = known[indexes] != raw.values
    if unknown.any():
        others, places = np.unique(raw.values[unknown], return_inverse=True)
        indexes[unknown] = len(texts) + places
        texts += map(str, others.tolist())
    return named(pa.array(texts, pa.string()), indexes, raw)


def _last_of_each_key(keys: ArrowArray, offsets: npt.NDArray[Any]) -> BoolArray | None:
    """Return which entries of maps are the last ones with their key, or None if all are."""
    counts = np.diff(offsets)
    if not len(counts) or int(counts.max()) < 2:
        return None
    owners = np.repeat(np.arange(len(counts)), counts)
    encoded: Any = keys.dictionary_encode()
    codes = np.frombuffer(memoryview(encoded.indices.buffers()[1]), np.int32, len(keys)).astype(np.int64)
    both = owners * max(1, len(encoded.dictionary)) + codes
    _, last = np.unique(both[::-1], return_index=True)
    if len(last) == len(both):
        return None
    kept: BoolArray = np.zeros(len(both), np.bool_)
    kept[len(both) - 1 - last] = True
    return kept
