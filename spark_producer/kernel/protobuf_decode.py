"""The portable decoder of Protobuf: field by field, as the specification describes it (Protobuf, Encoding).

Each row begins with the values of absent fields. Fields of the row, in any order, replace them: the last value of a field counts,
items are appended, and messages that come in parts are merged. It is a loop in Python: the reference of the compiled decoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from spark_producer.kernel.arrays import ByteArray, Int64Array
from spark_producer.kernel.avro_program import ITEM_TYPES, MAX_OFFSET, TOO_MUCH, Failure, RawColumn, Storage
from spark_producer.kernel.protobuf_program import (
    FREE_VALUES,
    MAX_DEPTH,
    VALUES_PER_BYTE,
    WIRE_TYPES,
    Field,
    Form,
    ProtobufColumn,
    ProtobufProgram,
    ProtobufReason,
    WireType,
    filled_values,
)

_MASK32, _MASK64 = (1 << 32) - 1, (1 << 64) - 1
_MAX_LENGTH = (1 << 31) - 1
_VARINT_BYTES, _TAG_BYTES = 10, 5


def decode_protobuf(
    program: ProtobufProgram, data: ByteArray, starts: Int64Array, ends: Int64Array
) -> tuple[list[RawColumn], list[Failure]]:
    """Return the columns of the rows that can be decoded, and the rows that cannot, which have no values in the columns.

    Args:
        program: The program.
        data: The memory with the rows.
        starts, ends: The positions of each row's message in `data`.

    Returns:
        The columns, and the failures, whose `op` is the number of the column of the field.

    Raises:
        ValueError: a row is not within `data`.
        OverflowError: a column would have more than 2 GiB.
    """
    if len(starts) != len(ends) or (
        len(starts) and (starts.min() < 0 or ends.max() > len(data) or bool((starts > ends).any()))
    ):
        raise ValueError("the positions of Protobuf values are wrong: the input is damaged")
    decoder = _Decoder(program, data.tobytes() if len(starts) else b"")
    for row, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        decoder.decode_row(row, start, end)
    return [column.finished() for column in decoder.columns], decoder.failures


class _Refused(Exception):
    def __init__(self, reason: ProtobufReason) -> None:
        self.reason = reason


class _Column:
    """A column whose last value belongs to the message that is decoded."""

    def __init__(self, plan: ProtobufColumn) -> None:
        self._storage = plan.storage
        self._nullable = plan.nullable
        self._item = ITEM_TYPES[plan.storage]
        self._default = plan.default
        if plan.storage not in (Storage.BYTES, Storage.ARRAY, Storage.RECORD):
            self._default = plan.default or bytes(self._item.itemsize)
        self.children: list[_Column] = []
        self._length = self._items = 0
        self._valid = bytearray()
        self._values = bytearray()
        self._ends = [0]
        self._data = bytearray()

    def begin(self) -> None:
        """Append the value of an absent field."""
        self._length += 1
        if self._nullable:
            self._valid.append(0)
        if self._storage is Storage.BYTES:
            self._append(self._default)
        elif self._storage is Storage.ARRAY:
            self._ends.append(self._items)
        elif self._storage is Storage.RECORD:
            for child in self.children:
                child.begin()
        else:
            self._values += self._default

    def clear(self) -> None:
        """Replace the last value by that of an absent field."""
        if self._nullable:
            self._valid[-1] = 0
        if self._storage is Storage.BYTES:
            self._pop()
            self._append(self._default)
        elif self._storage is Storage.ARRAY:
            self.keep_items(self._ends[-2])
        elif self._storage is Storage.RECORD:
            for child in self.children:
                child.clear()
        else:
            self._values[-len(self._default) :] = self._default

    def cut(self, length: int) -> None:
        """Remove all values from the one numbered `length` on."""
        self._length = length
        del self._valid[length:]
        if self._storage is Storage.BYTES:
            del self._data[self._ends[length] :], self._ends[length + 1 :]
        elif self._storage is Storage.ARRAY:
            del self._ends[length + 1 :]
            self.keep_items(self._ends[-1])
        elif self._storage is Storage.RECORD:
            for child in self.children:
                child.cut(length)
        else:
            del self._values[length * self._item.itemsize :]

    def is_present(self) -> bool:
        """Return whether the last value, of a nullable column, is not that of an absent field."""
        return bool(self._valid[-1])

    def mark(self) -> None:
        """Mark the last value as present."""
        if self._nullable:
            self._valid[-1] = 1

    def put(self, value: bytes) -> None:
        """Replace the last value."""
        self.mark()
        if self._storage is Storage.BYTES:
            self._pop()
            self._append(value)
        else:
            self._values[-len(value) :] = value

    def begin_item(self) -> None:
        """Append an item to the last list or map."""
        self._items += 1
        if self._items > MAX_OFFSET:
            raise OverflowError(TOO_MUCH)
        self._ends[-1] = self._items
        for child in self.children:
            child.begin()

    def drop_item(self) -> None:
        """Remove the last item."""
        self.keep_items(self._items - 1)

    def keep_items(self, count: int) -> None:
        """Remove all items from the one numbered `count` on; they are those of the last list."""
        self._items = self._ends[-1] = count
        for child in self.children:
            child.cut(count)

    def finished(self) -> RawColumn:
        offsets = self._storage in (Storage.BYTES, Storage.ARRAY)
        values: Any = np.array(self._ends, self._item) if offsets else np.frombuffer(self._values, self._item)
        valid = np.frombuffer(self._valid, np.uint8) if self._nullable else None
        return RawColumn(self._length, valid, values, np.frombuffer(self._data, np.uint8))

    def _append(self, content: bytes) -> None:
        self._data += content
        if len(self._data) > MAX_OFFSET:
            raise OverflowError(TOO_MUCH)
        self._ends.append(len(self._data))

    def _pop(self) -> None:
        self._ends.pop()
        del self._data[self._ends[-1] :]


class _Decoder:
    """The columns, and the position in the row that is decoded."""

    def __init__(self, program: ProtobufProgram, content: bytes) -> None:
        self.columns = [_Column(plan) for plan in program.columns]
        for plan, column in zip(program.columns, self.columns, strict=True):
            column.children += [self.columns[child] for child in plan.children]
        self.failures: list[Failure] = []
        self._program = program
        self._fields = [{field.number: field for field in message.fields} for message in program.messages]
        self._filled = filled_values(program.columns)
        self._content = content
        self._at = self._end = self._depth = self._values_left = self._column = 0
        self._unknown_symbol = False

    def decode_row(self, row: int, start: int, end: int) -> None:
        self._at, self._end, self._depth = start, end, 0
        self._values_left = FREE_VALUES + VALUES_PER_BYTE * (end - start)
        self.columns[0].begin()
        try:
            self._message(0, 0)
        except _Refused as refused:
            self.failures.append(Failure(row, refused.reason, self._at - start, self._column))
            self.columns[0].cut(row + 1 - len(self.failures))

    def _message(self, number: int, group: int) -> None:
        """Decode the fields of a message up to its end, or to that of the group with this number."""
        column = self._program.messages[number].column
        while True:
            self._column = column
            if self._at == self._end:
                if group:
                    raise _Refused(ProtobufReason.TRUNCATED)
                return
            field_number, wire = self._tag()
            if wire == WireType.END:
                if field_number != group:
                    raise _Refused(ProtobufReason.GROUP)
                return
            field = self._fields[number].get(field_number)
            if field is None or not self._field(field, wire):
                self._skip(field_number, wire)

    def _field(self, field: Field, wire: int) -> bool:
        """Decode a field, or return False if it is not written as the program says."""
        packed = False
        if wire != WIRE_TYPES.get(field.form, WireType.VARINT):
            packed = wire == WireType.BYTES and field.repeated and field.form < Form.BYTES
            if not packed:
                return False
        self._column = field.column
        if field.form in (Form.MESSAGE, Form.GROUP):
            self._inner(field)
        elif packed:
            size = self._length()
            self._require(size)
            end, self._end = self._end, self._at + size
            while self._at < self._end:
                self._number(field)
            self._end = end
        elif field.form is Form.BYTES:
            size = self._length()
            self._target(field).put(self._take(size))
        else:
            self._number(field)
        return True

    def _inner(self, field: Field) -> None:
        self._enter()
        size = self._end - self._at
        if field.form is Form.MESSAGE:
            size = self._length()
            self._require(size)
        if field.repeated:
            self._spend(self._filled[field.column])
        column = self._target(field)
        if not field.repeated:
            column.mark()
        end, self._end = self._end, self._at + size
        self._unknown_symbol = False
        self._message(field.message, field.number if field.form is Form.GROUP else 0)
        self._end = end
        self._depth -= 1
        if self._unknown_symbol and field.repeated and len(self.columns[field.column].children) == 2:
            self.columns[field.column].drop_item()
        self._unknown_symbol = False

    def _spend(self, values: int) -> None:
        """Count values that a few bytes begin, or clear, all of them in memory."""
        self._values_left -= values
        if self._values_left < 0:
            raise _Refused(ProtobufReason.ITEMS)

    def _target(self, field: Field) -> _Column:
        """Return the column of a value that has been read: that of a new item, or of the field, whose rivals become null."""
        column = self.columns[field.column]
        if field.repeated:
            column.begin_item()
            return column.children[0]
        for rival in field.rivals:
            if self.columns[rival].is_present():
                self._spend(self._filled[rival])
                self.columns[rival].clear()
        return column

    def _number(self, field: Field) -> None:
        value = _NUMBERS[field.form](self)
        if field.known and int.from_bytes(value, "little", signed=True) not in field.known:
            self._unknown_symbol = True
            return
        self._target(field).put(value)

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Refused(ProtobufReason.NESTING)

    def _skip(self, number: int, wire: int) -> None:
        groups: list[int] = []
        while True:
            if wire == WireType.VARINT:
                self._varint()
            elif wire == WireType.FIXED64:
                self._take(8)
            elif wire == WireType.FIXED32:
                self._take(4)
            elif wire == WireType.BYTES:
                self._take(self._length())
            elif wire == WireType.START:
                self._enter()
                groups.append(number)
            else:
                if groups.pop() != number:
                    raise _Refused(ProtobufReason.GROUP)
                self._depth -= 1
            if not groups:
                return
            number, wire = self._tag()

    def _require(self, count: int) -> None:
        if count > self._end - self._at:
            raise _Refused(ProtobufReason.TRUNCATED)

    def _take(self, count: int) -> bytes:
        self._require(count)
        self._at += count
        return self._content[self._at - count : self._at]

    def _varint(self, limit: int = _VARINT_BYTES, reason: ProtobufReason = ProtobufReason.VARINT) -> int:
        found = 0
        for index in range(limit):
            byte = self._take(1)[0]
            found |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                return found & _MASK64
        raise _Refused(reason)

    def _tag(self) -> tuple[int, int]:
        tag = self._varint(_TAG_BYTES, ProtobufReason.TAG)
        if not 8 <= tag <= _MASK32 or tag & 7 > WireType.FIXED32:
            raise _Refused(ProtobufReason.TAG)
        return tag >> 3, tag & 7

    def _length(self) -> int:
        found = self._varint(_TAG_BYTES, ProtobufReason.LENGTH)
        if found > _MAX_LENGTH:
            raise _Refused(ProtobufReason.LENGTH)
        return found

    def _int64(self) -> bytes:
        return self._varint().to_bytes(8, "little")

    def _int32(self) -> bytes:
        return _signed32(self._varint() & _MASK32)

    def _uint32(self) -> bytes:
        return (self._varint() & _MASK32).to_bytes(8, "little")

    def _sint32(self) -> bytes:
        found = self._varint() & _MASK32
        return ((found >> 1) ^ -(found & 1)).to_bytes(8, "little", signed=True)

    def _sint64(self) -> bytes:
        found = self._varint()
        return ((found >> 1) ^ -(found & 1)).to_bytes(8, "little", signed=True)

    def _bool(self) -> bytes:
        return b"\x01" if self._varint() else b"\x00"

    def _fixed32(self) -> bytes:
        return self._take(4) + bytes(4)

    def _sfixed32(self) -> bytes:
        return _signed32(int.from_bytes(self._take(4), "little"))

    def _four(self) -> bytes:
        return self._take(4)

    def _eight(self) -> bytes:
        return self._take(8)


def _signed32(number: int) -> bytes:
    return (number - (number >> 31 << 32)).to_bytes(8, "little", signed=True)


_NUMBERS: dict[Form, Callable[[_Decoder], bytes]] = {
    Form.INT32: _Decoder._int32,
    Form.INT64: _Decoder._int64,
    Form.UINT32: _Decoder._uint32,
    Form.SINT32: _Decoder._sint32,
    Form.SINT64: _Decoder._sint64,
    Form.BOOL: _Decoder._bool,
    Form.FIXED32: _Decoder._fixed32,
    Form.SFIXED32: _Decoder._sfixed32,
    Form.FLOAT: _Decoder._four,
    Form.FIXED64: _Decoder._eight,
    Form.DOUBLE: _Decoder._eight,
}
