"""The portable decoder of Avro: value by value, as the specification describes it (Avro 1.12, Binary Encoding).

Values of a row depend on those before them, so this decoder is a loop over values in Python: the reference of the compiled one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_program import (
    ITEM_TYPES,
    ITEMS_WITHOUT_BYTES,
    MAX_NESTING,
    MAX_OFFSET,
    NO_COLUMN,
    NO_SYMBOL,
    TOO_MUCH,
    Failure,
    Op,
    OpCode,
    Program,
    RawColumn,
    Reason,
    Storage,
)

_MIN_LONG, _MAX_LONG = -(1 << 63), (1 << 63) - 1
_MAX_VARINT_BYTES = 10


def decode_avro(
    program: Program, data: ByteArray, starts: Int64Array, ends: Int64Array
) -> tuple[list[RawColumn], list[Failure]]:
    """Return the columns of the rows that can be decoded, and the rows that cannot, which have no values in the columns.

    Args:
        program: The program.
        data: The memory with the rows.
        starts, ends: The positions of each row's value in `data`.

    Raises:
        ValueError: a row is not within `data`.
        OverflowError: a column would have more than 2 GiB.
    """
    if len(starts) != len(ends) or (
        len(starts) and (starts.min() < 0 or ends.max() > len(data) or bool((starts > ends).any()))
    ):
        raise ValueError("the positions of Avro values are wrong: the input is damaged")
    content = data.tobytes() if len(starts) else b""
    decoder = _Decoder(program, content)
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        decoder.decode_row(row, start, end)
    return [column.finished() for column in decoder.columns], decoder.failures


class _Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


class _Column:
    """A column that grows by a value at a time."""

    def __init__(self, storage: Storage, nullable: bool, children: list[_Column]) -> None:
        self.storage = storage
        self.nullable = nullable
        self.children = children
        self.length = 0
        self.items = 0
        self.valid = bytearray()
        self.values: list[float] = [0] if storage in (Storage.BYTES, Storage.ARRAY) else []
        """The numbers, or offsets; of FLOAT the bits, since Python's floats do not keep those of every NaN."""
        self.data = bytearray()

    def counts(self) -> tuple[int, int, int]:
        return self.length, self.items, len(self.data)

    def cut(self, length: int, items: int, size: int) -> None:
        offsets = self.storage in (Storage.BYTES, Storage.ARRAY)
        self.length, self.items = length, items
        del self.valid[length:], self.data[size:], self.values[length + offsets :]

    def add(self, value: float | None = None) -> None:
        if self.nullable:
            self.valid.append(1)
        self.length += 1
        if value is not None:
            self.values.append(value)

    def add_bytes(self, content: bytes) -> None:
        if len(self.data) + len(content) > MAX_OFFSET:
            raise OverflowError(TOO_MUCH)
        self.data += content
        self.add(len(self.data))

    def add_null(self) -> None:
        self.length += 1
        if self.nullable:
            self.valid.append(0)
        if self.storage is Storage.BYTES:
            self.values.append(len(self.data))
        elif self.storage is Storage.ARRAY:
            self.values.append(self.items)
        elif self.storage is Storage.RECORD:
            for child in self.children:
                child.add_null()
        elif self.storage is not Storage.NOTHING:
            self.values.append(0)

    def finished(self) -> RawColumn:
        valid = np.frombuffer(self.valid, np.uint8) if self.nullable else None
        kind = ITEM_TYPES[self.storage]
        if self.storage is Storage.FLOAT:
            values = np.array(self.values, dtype="<u4").view(kind)
        else:
            values = np.array(self.values, dtype=kind)
        return RawColumn(self.length, valid, values, np.frombuffer(self.data, np.uint8))


def _float_bits(number: int) -> int:
    return int(np.int64(number).astype("<f4").view("<u4"))


class _Decoder:
    """The columns, and the position in the row that is decoded."""

    def __init__(self, program: Program, content: bytes) -> None:
        self.columns: list[_Column] = []
        for plan in program.columns:
            self.columns.append(_Column(plan.storage, plan.nullable, []))
        for plan, column in zip(program.columns, self.columns, strict=True):
            column.children += [self.columns[child] for child in plan.children]
        self.failures: list[Failure] = []
        self._program = program
        self._content = content
        self._at = self._end = self._items_left = self._nesting = self._op = 0

    def decode_row(self, row: int, start: int, end: int) -> None:
        counts = [column.counts() for column in self.columns]
        self._at, self._end, self._nesting = start, end, 0
        self._items_left = end - start + ITEMS_WITHOUT_BYTES
        try:
            self._run(self._program.first)
            if self._at != end:
                self._op = self._program.first
                raise _Refused(Reason.TRAILING)
        except _Refused as refused:
            self.failures.append(Failure(row, refused.reason, self._at - start, self._op))
            for column, count in zip(self.columns, counts, strict=True):
                column.cut(*count)

    def _run(self, number: int) -> None:
        op = self._program.ops[number]
        self._op = number
        column = None if op.column == NO_COLUMN else self.columns[op.column]
        _RUN[op.code](self, op, column)

    def _take(self, count: int) -> bytes:
        if count > self._end - self._at:
            raise _Refused(Reason.TRUNCATED)
        self._at += count
        return self._content[self._at - count : self._at]

    def _long(self) -> int:
        found = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self._take(1)[0]
            if index == _MAX_VARINT_BYTES - 1 and byte > 1:
                raise _Refused(Reason.VARINT)
            found |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                break
        return (found >> 1) ^ -(found & 1)

    def _length(self) -> int:
        found = self._long()
        if found < 0:
            raise _Refused(Reason.LENGTH)
        return found

    def _null(self, _: Op, column: _Column | None) -> None:
        if column is not None:
            column.add()

    def _absent(self, _: Op, column: _Column | None) -> None:
        if column is not None:
            column.add_null()

    def _number(self, op: Op, column: _Column | None) -> None:
        found = self._long()
        if op.code is OpCode.INT and not -(1 << 31) <= found < 1 << 31:
            raise _Refused(Reason.NOT_INT)
        if column is not None:
            found = found // op.divisor * op.factor
            if not _MIN_LONG <= found <= _MAX_LONG:
                raise _Refused(Reason.TIME)
            column.add(_float_bits(found) if column.storage is Storage.FLOAT else found)

    def _real(self, op: Op, column: _Column | None) -> None:
        form, width = ("<f", 4) if op.code is OpCode.FLOAT else ("<d", 8)
        content = self._take(width)
        if column is not None:
            bits = column.storage is Storage.FLOAT
            column.add(int.from_bytes(content, "little") if bits else struct.unpack(form, content)[0])

    def _boolean(self, _: Op, column: _Column | None) -> None:
        found = self._take(1)[0]
        if found > 1:
            raise _Refused(Reason.NOT_BOOLEAN)
        if column is not None:
            column.add(found)

    def _bytes(self, op: Op, column: _Column | None) -> None:
        found = self._take(op.width if op.code is OpCode.FIXED else self._length())
        if column is not None:
            column.add_bytes(found)

    def _enum(self, op: Op, column: _Column | None) -> None:
        index = self._long()
        if not 0 <= index < len(op.children):
            raise _Refused(Reason.SYMBOL)
        if column is not None:
            if op.children[index] == NO_SYMBOL:
                raise _Refused(Reason.SCHEMA)
            column.add(op.children[index])

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise _Refused(Reason.NESTING)

    def _record(self, op: Op, column: _Column | None) -> None:
        self._enter()
        if column is not None:
            column.add()
        for child in op.children:
            self._run(child)
        self._nesting -= 1

    def _array(self, op: Op, column: _Column | None) -> None:
        number = self._op
        self._enter()
        while count := self._long():
            size = -1
            if count < 0:
                count, size = -count, self._length()
            self._items_left -= count
            if self._items_left < 0:
                raise _Refused(Reason.ITEMS)
            if column is None and size >= 0:
                self._take(size)
                continue
            for _ in range(count):
                for child in op.children:
                    self._run(child)
                self._op = number
            if column is not None:
                column.items += count
                if column.items > MAX_OFFSET:
                    raise OverflowError(TOO_MUCH)
        if column is not None:
            column.add(column.items)
        self._nesting -= 1

    def _union(self, op: Op, _: _Column | None) -> None:
        index = self._long()
        if not 0 <= index < len(op.children):
            raise _Refused(Reason.BRANCH)
        self._run(op.children[index])

    def _member(self, op: Op, column: _Column | None) -> None:
        assert column is not None
        column.add()
        for index, child in enumerate(column.children):
            if index != op.width:
                child.add_null()
        self._run(op.children[0])

    def _default(self, op: Op, _: _Column | None) -> None:
        kept = self._content, self._at, self._end
        self._content, self._at, self._end = op.constant, 0, len(op.constant)
        try:
            self._run(op.children[0])
        finally:
            self._content, self._at, self._end = kept

    def _fail(self, _: Op, __: _Column | None) -> None:
        raise _Refused(Reason.SCHEMA)


_RUN: dict[OpCode, Callable[[_Decoder, Op, _Column | None], None]] = {
    OpCode.NULL: _Decoder._null,
    OpCode.INT: _Decoder._number,
    OpCode.LONG: _Decoder._number,
    OpCode.FLOAT: _Decoder._real,
    OpCode.DOUBLE: _Decoder._real,
    OpCode.BOOLEAN: _Decoder._boolean,
    OpCode.BYTES: _Decoder._bytes,
    OpCode.FIXED: _Decoder._bytes,
    OpCode.ENUM: _Decoder._enum,
    OpCode.RECORD: _Decoder._record,
    OpCode.ARRAY: _Decoder._array,
    OpCode.UNION: _Decoder._union,
    OpCode.MEMBER: _Decoder._member,
    OpCode.ABSENT: _Decoder._absent,
    OpCode.DEFAULT: _Decoder._default,
    OpCode.FAIL: _Decoder._fail,
}
