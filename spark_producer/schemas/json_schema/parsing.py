"""Parses JSON texts into the columns of a schema.

Objects of plain columns are read by Arrow's JSON reader, many at a time. It is asked only about texts whose ends it cannot
misplace: they begin with a brace and end with one, so that as many objects as texts mean one object in each text. Where it
refuses, or finds another number of objects, fewer texts are read at a time, and the last few by `exact.py`, which decides.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_producer.errors import RecordError
from spark_producer.kernel.arrays import ArrowArray, BoolArray, ByteArray, Int64Array, buffer_of, from_numbers, join
from spark_producer.kernel.binary_slices import binary_slices
from spark_producer.kernel.column_views import BinaryColumn
from spark_producer.schemas.json_schema.column_types import JsonForm, JsonType
from spark_producer.schemas.json_schema.exact import UnfitValue, parse_text, value_of
from spark_producer.schemas.json_schema.values import finished, parsed_type

MAX_JSON_DEPTH = 200
"""Maximum nesting of objects and arrays in a text, also in parts that no column has."""

FEW_ROWS = 32
"""Number of texts that are read one by one where Arrow's reader refuses them."""

PARTS = 8
"""Parts into which texts are divided that Arrow's reader refuses together."""

MAX_GAP = 8
"""Maximum bytes between two texts that are overwritten, in place of a copy of each text; an id has five."""

_BRACE, _END, _NEWLINE = ord("{"), ord("}"), ord("\n")
_OPENING, _CASE = 0x7B, 0x20
"""A brace; the bit that a bracket lacks."""


class ParsedRows(NamedTuple):
    """The values of rows by parts, the numbers of the rows of each part, and those that cannot be decoded, with the reasons."""

    parts: list[ArrowArray]
    positions: list[Int64Array]
    bad: list[tuple[Int64Array, str]]


class Texts:
    """JSON texts: the positions of the first and last byte of each in `data`.

    Raises:
        RecordError: they have more than 2 GiB.
    """

    def __init__(self, data: ByteArray, starts: Int64Array, ends: Int64Array) -> None:
        first, last = (int(starts.min()), int(ends.max())) if len(starts) else (0, 0)
        if last - first >= 1 << 31:
            raise RecordError("a JSON column has more than 2 GiB in one batch. Set a smaller batch size")
        self.data, self.starts, self.ends = data[first:last], starts - first, ends - first

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, row: int) -> str:
        """Return a text, which must be UTF-8."""
        return self.data[self.starts[row] : self.ends[row]].tobytes().decode()

    def joined(self, rows: Int64Array) -> ByteArray:
        """Return the texts of these rows, each on lines of its own."""
        starts, ends = self.starts[rows], self.ends[rows]
        if not len(rows):
            return self.data[:0]
        gaps = starts[1:] - ends[:-1]
        gap = int(gaps[0]) if len(gaps) else 1
        if not 1 <= gap <= MAX_GAP or (gaps != gap).any():
            view = BinaryColumn(join([binary_slices(self.data, starts, ends - starts), b"\n"]))
            return view.data[view.offsets[0] : view.offsets[-1]]
        text = self.data[starts[0] : ends[-1]].copy()
        for at in range(gap):
            text[ends[:-1] - starts[0] + at] = _NEWLINE
        return text


def parse_rows(node: JsonType, texts: Texts) -> ParsedRows:
    """Return the values of texts, those that cannot be decoded left out.

    Raises:
        RecordError: the values have more than 2 GiB.
    """
    parser = _Parser(node, texts)
    rows = parser.legible(np.arange(len(texts)))
    try:
        parser.parse(rows)
    except (pa.ArrowCapacityError, OverflowError):
        raise RecordError("a JSON column cannot be decoded: its values have more than 2 GiB in one batch") from None
    return parser.found


class _Parser:
    def __init__(self, node: JsonType, texts: Texts) -> None:
        self.found = ParsedRows([], [], [])
        self._node = node
        self._texts = texts
        self._kind = parsed_type(node)

    def legible(self, rows: Int64Array) -> Int64Array:
        """Return the rows that are UTF-8 and not nested too deeply."""
        if not _is_utf8(self._texts.joined(rows)):
            rows = self._without(rows, [row for row in rows.tolist() if not self._is_text(row)], "it is not UTF-8")
        long = rows[self._texts.ends[rows] - self._texts.starts[rows] > MAX_JSON_DEPTH]
        deep = [row for row in long.tolist() if _is_deep(self._texts, row)] if self._has_many_openings(long) else []
        return self._without(rows, deep, f"it is nested too deeply: the maximum is {MAX_JSON_DEPTH} objects and arrays")

    def _without(self, rows: Int64Array, bad: list[int], reason: str) -> Int64Array:
        if not bad:
            return rows
        self.found.bad.append((np.array(bad, np.int64), reason))
        return np.setdiff1d(rows, bad)

    def _is_text(self, row: int) -> bool:
        try:
            self._texts.text(row)
        except UnicodeDecodeError:
            return False
        return True

    def _has_many_openings(self, rows: Int64Array) -> bool:
        """Return whether one of the rows has as many brackets and braces as a text that is nested too deeply."""
        if not len(rows):
            return False
        openings = np.concatenate(([0], np.cumsum((self._texts.data | _CASE) == _OPENING)))
        counts = openings[self._texts.ends[rows]] - openings[self._texts.starts[rows]]
        return bool(counts.max() > MAX_JSON_DEPTH)

    def parse(self, rows: Int64Array) -> None:
        """Parse rows into parts."""
        if not _is_plain(self._node):
            self._exactly(rows)
            return
        data, starts, ends = self._texts.data, self._texts.starts[rows], self._texts.ends[rows]
        framed: BoolArray = ends - starts > 1
        framed[framed] = (data[starts[framed]] == _BRACE) & (data[ends[framed] - 1] == _END)
        self._blocks(rows[framed])
        self._exactly(rows[~framed])

    def _blocks(self, rows: Int64Array) -> None:
        if len(rows) <= FEW_ROWS:
            self._exactly(rows)
            return
        parsed = self._together(rows)
        if parsed is not None:
            self._finish(rows, parsed)
            return
        for part in np.array_split(rows, PARTS):
            self._blocks(part)

    def _together(self, rows: Int64Array) -> ArrowArray | None:
        """Return the values of rows as Arrow's reader reads them, or None if they must be read otherwise."""
        from pyarrow import json  # loaded only if used

        joined = self._texts.joined(rows).tobytes()
        if b"NaN" in joined or b"Inf" in joined:  # perhaps the names of numbers that this reader takes, and JSON lacks
            return None
        text: Any = pa.BufferReader(joined)
        fields = [self._kind.field(at) for at in range(self._kind.num_fields)]
        try:
            table = json.read_json(
                text,
                read_options=json.ReadOptions(use_threads=False, block_size=text.size() + 1),
                parse_options=json.ParseOptions(explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"),
            )
        except ValueError:
            return None
        if table.num_rows != len(rows):
            return None
        columns: Any = [column.combine_chunks() for column in table.columns]
        found: ArrowArray = pa.StructArray.from_arrays(columns, fields=fields)
        return found

    def _exactly(self, rows: Int64Array) -> None:
        if not len(rows):
            return
        values, good = [], []
        for row in rows.tolist():
            try:
                values.append(value_of(self._node, parse_text(self._texts.text(row))))
                good.append(row)
            except UnfitValue as error:
                self.found.bad.append((np.array([row], np.int64), str(error)))
        self._finish(np.array(good, np.int64), pa.array(values, self._kind))

    def _finish(self, rows: Int64Array, parsed: ArrowArray) -> None:
        """Add parsed rows, without those whose values a column does not hold."""
        values, mismatches = finished(self._node, parsed)
        if mismatches:
            good = np.delete(np.arange(len(rows)), np.unique(np.concatenate([each.rows for each in mismatches])))
            self.found.bad.extend((rows[each.rows], f"field '{each.path}': {each.reason}") for each in mismatches)
            values, rows = values.take(from_numbers(good)), rows[good]
        self.found.parts.append(values)
        self.found.positions.append(rows)


def _is_plain(node: JsonType) -> bool:
    """Return whether Arrow's reader reads the values of a column, which are objects."""
    return node.form is JsonForm.OBJECT and _has_only_plain(node)


def _has_only_plain(node: JsonType) -> bool:
    return node.form not in (JsonForm.MAP, JsonForm.TEXT) and all(map(_has_only_plain, node.children))


def _is_utf8(text: ByteArray) -> bool:
    offsets = buffer_of(np.array([0, len(text)], np.int64))
    one: Any = pa.Array.from_buffers(pa.large_string(), 1, [None, offsets, buffer_of(text)])
    try:
        one.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_deep(texts: Texts, row: int) -> bool:
    """Return whether a text is nested too deeply, by its brackets and braces outside of strings."""
    depth, in_string, escaped = 0, False, False
    for byte in texts.data[texts.starts[row] : texts.ends[row]].tobytes():
        if in_string:
            in_string, escaped = escaped or byte != _QUOTE, byte == _BACKSLASH and not escaped
        elif byte == _QUOTE:
            in_string, escaped = True, False
        elif byte | _CASE == _OPENING:
            depth += 1
            if depth > MAX_JSON_DEPTH:
                return True
        elif byte in b"}]":
            depth -= 1
    return False


_QUOTE, _BACKSLASH = ord('"'), ord("\\")
