"""VB: varints by known vectors: one at a time, by the column, of one width, and by both twins of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.kernel import (
    BinaryColumn,
    Limits,
    RecordColumns,
    V2Batch,
    compiled,
    compiled_decode,
    decode,
    portable,
)
from spark_producer.kernel.varint import (
    TABLE_SIZE,
    consecutive_varints,
    encode_varint,
    varint_column,
    varint_items,
    varint_sizes,
)

MAX_32, MIN_32, MAX_64, MIN_64 = 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)
VECTORS = {
    0: "00", -1: "01", 1: "02", 63: "7E", -64: "7F", 64: "8001", -65: "8101", 8191: "FE7F", 8192: "808001",
    MAX_32: "FEFFFFFF0F", MIN_32: "FFFFFFFF0F", MAX_64: "FEFFFFFFFFFFFFFFFF01", MIN_64: "FFFFFFFFFFFFFFFFFF01",
}  # fmt: skip
BOUNDARIES = sorted(
    {value for bits in range(6, 63, 7) for edge in (1 << bits, -(1 << bits)) for value in (edge - 1, edge, edge + 1)}
)


def plain(value: int) -> bytes:
    """The definition, in Python's own numbers."""
    rest, out = value * 2 if value >= 0 else -value * 2 - 1, bytearray()
    while rest > 0x7F:
        out.append(0x80 | rest % 128)
        rest //= 128
    return bytes([*out, rest])


@pytest.mark.covers("VB")
@pytest.mark.parametrize("value", VECTORS)
def test_vectors(value: int) -> None:
    expected = bytes.fromhex(VECTORS[value])
    assert plain(value) == encode_varint(value) == expected
    assert varint_column(np.array([value])).to_pylist() == [expected]
    assert varint_sizes(np.array([value])).tolist() == [len(expected)]


@pytest.mark.covers("VB")
def test_sizes_are_those_of_the_bytes_at_every_boundary() -> None:
    values = np.array(BOUNDARIES)
    expected = [plain(value) for value in BOUNDARIES]
    assert varint_column(values).to_pylist() == expected
    assert [encode_varint(value) for value in BOUNDARIES] == expected
    assert varint_sizes(values).tolist() == [len(each) for each in expected]


@pytest.mark.covers("VB")
@pytest.mark.parametrize("edge", [64, 8192, TABLE_SIZE - 1, 1 << 20, 1 << 27])
def test_consecutive_numbers_across_a_boundary(edge: int) -> None:
    expected = [plain(value) for value in range(edge - 3, edge + 3)]
    assert consecutive_varints(edge - 3, edge + 3).to_pylist() == expected
    width = len(plain(edge - 1))
    assert [bytes(item) for item in varint_items(edge - 3, edge)] == expected[:3]
    assert {len(each) for each in expected[:3]} == {width}


@pytest.mark.covers("VB")
@pytest.mark.parametrize("twin", [portable, compiled], ids=["portable", "compiled"])
def test_both_twins_write_timestamp_deltas_of_every_width(twin: Any) -> None:
    deltas = [value for value in (*VECTORS, *BOUNDARIES) if value >= 0]
    columns = RecordColumns(BinaryColumn(pa.array([b""] * len(deltas))), timestamps=np.array(deltas))
    out = memoryview(bytearray(40 * len(deltas)))
    arranged = twin.ArrangedRows(columns, np.arange(len(deltas)))
    following, end, _ = twin.encode_v2(arranged, 0, len(deltas), 0, 0, out, 0, len(out))
    assert following == len(deltas)
    bodies = [b"\0" + plain(delta) + plain(number) + b"\x01\0\0" for number, delta in enumerate(deltas)]
    assert bytes(out[:end]) == b"".join(plain(len(body)) + body for body in bodies)


@pytest.mark.covers("VB")
@pytest.mark.parametrize("twin", [decode, compiled_decode], ids=["portable", "compiled"])
def test_both_twins_read_timestamp_deltas_of_every_width(twin: Any) -> None:
    deltas = [*VECTORS, *BOUNDARIES]
    bodies = [b"\0" + plain(delta) + plain(number) + b"\x01\x01\0" for number, delta in enumerate(deltas)]
    data = memoryview(b"".join(plain(len(body)) + body for body in bodies))
    batch = V2Batch(data, len(deltas), base_offset=0, last_offset_delta=len(deltas), base_timestamp=0)
    found = twin.decode_v2([batch], frozenset({"timestamp"}), Limits())
    assert (found.batch, found.timestamps.to_pylist()) == (1, deltas)


@pytest.mark.covers("VB")
@pytest.mark.parametrize("twin", [decode, compiled_decode], ids=["portable", "compiled"])
def test_a_varint_without_an_end_is_refused(twin: Any) -> None:
    for data in (b"\xff" * 5, b"\x80" * 12, b"\x80", b"\x10\x00" + b"\x80" * 7):
        content = np.frombuffer(data, dtype=np.uint8).copy().data  # the buffer ends at its last byte
        batch = V2Batch(content, 1, base_offset=0, last_offset_delta=0, base_timestamp=0)
        found = twin.decode_v2([batch], frozenset({"timestamp"}), Limits())
        assert (found.rows, found.batch, found.position) == (0, 0, 0)
