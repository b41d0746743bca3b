"""Bytes that are no message: rows become null and say why; the rows beside them are not touched, and memory is bounded."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_producer.kernel import compiled_protobuf_decode, protobuf_decode
from spark_producer.schemas.protobuf.message_types import program_of
from tests.unit.schemas.protobuf.judging import NUMBERS, decode, decode_by_both, expected, message_class
from tests.unit.schemas.protobuf.protobuf_schemas import files, messages

pytestmark = pytest.mark.covers("RD22")


def schema() -> Any:
    file = FileDescriptorProto(name="bad.proto", syntax="proto2")
    message = file.message_type.add(name="M0")
    inner = file.message_type.add(name="M1")
    inner.field.add(name="n", number=1, label=1, type=NUMBERS["int32"])
    inner.field.add(name="t", number=2, label=1, type=NUMBERS["string"])
    kinds = {1: "int32", 2: "string", 5: "double", 6: "fixed32"}
    for number, kind in kinds.items():
        message.field.add(name=kind, number=number, label=1, type=NUMBERS[kind])
    message.field.add(name="one", number=3, label=1, type=NUMBERS["message"], type_name=".M1")
    message.field.add(name="many", number=4, label=3, type=NUMBERS["message"], type_name=".M1")
    message.field.add(name="list", number=7, label=3, type=NUMBERS["fixed64"])
    message.field.add(name="group", number=8, label=1, type=NUMBERS["group"], type_name=".M1")
    return message_class(file).DESCRIPTOR


GOOD = b"\x08\x05"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x08", "field 'value.int32': it ends too early (byte 1 of the message)"),
        (b"\x08\x80", "field 'value.int32': it ends too early (byte 2 of the message)"),
        (b"\x08" + b"\x80" * 11, "field 'value.int32': a number has more than ten bytes (byte 11 of the message)"),
        (b"\x12\x05abcd", "field 'value.string': it ends too early (byte 2 of the message)"),
        (
            b"\x12\xff\xff\xff\xff\x0f",
            "field 'value.string': a length does not fit into 31 bits (byte 6 of the message)",
        ),
        (b"\x12" + b"\x80" * 6, "field 'value.string': a length does not fit into 31 bits (byte 6 of the message)"),
        (b"\x12\x01\xff", "field 'value.string': it is not UTF-8"),
        (b"\x22\x03\x12\x01\xff", "field 'value.many[].t': it is not UTF-8"),
        (b"\x29" + bytes(7), "field 'value.double': it ends too early (byte 1 of the message)"),
        (b"\x35" + bytes(3), "field 'value.fixed32': it ends too early (byte 1 of the message)"),
        (b"\x3a\x09" + bytes(9), "field 'value.list': it ends too early (byte 10 of the message)"),
        (b"\x3a\x09" + bytes(8), "field 'value.list': it ends too early (byte 2 of the message)"),
        (b"\x1a\x02\x08\x80\x01", "field 'value.one.n': it ends too early (byte 4 of the message)"),
        (b"\x1a\x7f", "field 'value.one': it ends too early (byte 2 of the message)"),
        (b"\x00\x00", "field 'value': a field has no valid number or wire type (byte 1 of the message)"),
        (b"\x0e\x00", "field 'value': a field has no valid number or wire type (byte 1 of the message)"),
        (
            b"\xf8\xff\xff\xff\x7f\x00",
            "field 'value': a field has no valid number or wire type (byte 5 of the message)",
        ),
        (b"\xf8" + b"\x80" * 7, "field 'value': a field has no valid number or wire type (byte 5 of the message)"),
        (b"\x0c", "field 'value': a group ends that did not begin (byte 1 of the message)"),
        (b"\x1a\x01\x44", "field 'value.one': a group ends that did not begin (byte 3 of the message)"),
        (b"\x43\x08\x01", "field 'value.group': it ends too early (byte 3 of the message)"),
        (b"\x43\x08\x01\x4c", "field 'value.group': a group ends that did not begin (byte 4 of the message)"),
        (b"\x7b\x08\x01", "field 'value': it ends too early (byte 3 of the message)"),
        (b"\x7b\x74", "field 'value': a group ends that did not begin (byte 2 of the message)"),
        (b"\x7b" * 101, "field 'value': it is nested too deeply: the maximum is 100 messages and groups (byte 101 of"),
        (b"\x7a\x05", "field 'value': it ends too early (byte 2 of the message)"),
    ],
)
def test_a_row_that_is_no_message_is_null_with_its_reason(content: bytes, reason: str) -> None:
    found = decode(schema(), [GOOD, content, GOOD, None])
    assert [None if row is None else row["int32"] for row in found.rows] == [5, None, 5, None]
    assert found.bad == 1
    assert found.first is not None
    assert found.first[0] == 1
    assert found.first[1].startswith(reason)


def test_groups_that_are_closed_and_unknown_fields_are_skipped() -> None:
    row = (
        b"\x7b\x7b\x7a\x01x\x7c\x7c"
        + b"\x78\x80\x01"
        + b"\x79"
        + bytes(8)
        + b"\x7d"
        + bytes(4)
        + GOOD
        + b"\x43\x08\x09\x44"
    )
    found = decode(schema(), [row, b"\x7b" * 100 + b"\x7c" * 100])
    assert found.bad == 0
    assert (found.rows[0]["int32"], found.rows[0]["group"]) == (5, {"n": 9, "t": None})


def test_items_that_fill_too_many_columns_are_refused() -> None:
    file = FileDescriptorProto(name="wide.proto", syntax="proto3")
    message, inner = file.message_type.add(name="M0"), file.message_type.add(name="M1")
    message.field.add(name="many", number=1, label=3, type=NUMBERS["message"], type_name=".M1")
    for number in range(1, 501):
        inner.field.add(name=f"f{number}", number=number, label=1, type=NUMBERS["double"])
    wide = message_class(file).DESCRIPTOR
    assert len(decode(wide, [b"\x0a\x00" * 1000]).rows[0]["many"]) == 1000
    rows = [b"\x0a\x00" * 20_000]
    tracemalloc.start()
    try:
        program = program_of(wide, "value", 0)
        data, starts = np.frombuffer(rows[0], np.uint8), np.array([0])
        found = compiled_protobuf_decode.decode_protobuf(program, data, starts, starts + len(rows[0]))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    assert [each.reason for each in found[1]] == [7]


@pytest.mark.parametrize(
    "content", [b"\x12\xff\xff\xff\xff\x07abc", b"\x22\xf0\xff\xff\x7f", b"\x3a\xf8\xff\xff\xff\x07"]
)
def test_memory_is_bounded_by_the_rows(content: bytes) -> None:
    program = program_of(schema(), "value", 0)
    data = np.frombuffer(content * 1000, np.uint8)
    starts = np.arange(0, len(data), len(content))
    tracemalloc.start()
    try:
        _, failures = compiled_protobuf_decode.decode_protobuf(program, data, starts, starts + len(content))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert len(failures) == 1000


@pytest.mark.parametrize("kernel", [protobuf_decode, compiled_protobuf_decode])
def test_positions_outside_of_the_data_are_refused(kernel: Any) -> None:
    program, data = program_of(schema(), "value", 0), np.zeros(4, np.uint8)
    for start, end in ((-1, 2), (3, 5), (3, 2)):
        with pytest.raises(ValueError, match="the input is damaged"):
            kernel.decode_protobuf(program, data, np.array([start]), np.array([end]))


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data(), files())
def test_any_bytes_leave_the_rows_beside_them_alone(data: st.DataObject, file: Any) -> None:
    kind = message_class(file)
    value = data.draw(messages(kind))
    good = value.SerializePartialToString()
    broken = [data.draw(st.binary(max_size=30)), good[: data.draw(st.integers(0, len(good)))]]
    found = decode(kind.DESCRIPTOR, [good, broken[0], good, broken[1], good])
    if value.IsInitialized():
        assert [found.rows[index] for index in (0, 2, 4)] == [expected(value)] * 3


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(files(), st.lists(st.binary(max_size=40), max_size=20))
def test_both_kernels_find_the_same_in_any_bytes(file: Any, rows: list[bytes]) -> None:
    program = program_of(message_class(file).DESCRIPTOR, "value", 0)
    ends = np.cumsum([0, *map(len, rows)])
    decode_by_both(program, np.frombuffer(b"".join(rows) + b"\x00", np.uint8), ends[:-1], ends[1:])
