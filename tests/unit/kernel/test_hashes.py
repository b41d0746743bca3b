"""CRC-32 and FNV-1a by the column against zlib and the published vectors, on hard shapes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_producer.kernel import BinaryColumn
from spark_producer.kernel.hashes import crc32, fnv1a

FNV_VECTORS = {b"": 0x811C9DC5, b"a": 0xE40C292C, b"b": 0xE70C2DE5, b"foobar": 0xBF9CF968, b"\xff": 0x7A0B824E}
"""The first four: draft-eastlake-fnv, appendix C. The last one: (0x811c9dc5 ^ 0xff) * 0x01000193 modulo 2^32."""


def plain_fnv1a(key: bytes) -> int:
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 % 2**32
    return hashed


def column(keys: Sequence[bytes | None]) -> BinaryColumn:
    return BinaryColumn(pa.array(keys, pa.binary()))


def test_the_vectors_of_fnv1a() -> None:
    assert fnv1a(column(list(FNV_VECTORS))).tolist() == list(FNV_VECTORS.values())


def test_the_check_value_of_crc32() -> None:
    assert crc32(column([b"123456789"])).tolist() == [0xCBF43926]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=90)), max_size=200), st.integers(0, 5), st.booleans())
def test_equal_to_the_plain_ones_on_slices_nulls_and_large_offsets(
    keys: list[bytes | None], start: int, large: bool
) -> None:
    array = pa.array(keys, pa.large_binary() if large else pa.binary())[start:]
    given_keys = [key or b"" for key in keys[start:]]
    assert crc32(BinaryColumn(array)).tolist() == [zlib.crc32(key) for key in given_keys]
    assert fnv1a(BinaryColumn(array)).tolist() == [plain_fnv1a(key) for key in given_keys]


@pytest.mark.parametrize("length", [0, 1, 9, 64, 65, 200])
def test_keys_of_one_length(length: int) -> None:
    keys = [bytes((number * 7 + place * 13) % 256 for place in range(length)) for number in range(300)]
    array = pa.array([b"before", *keys], pa.binary())[1:]
    assert crc32(BinaryColumn(array)).tolist() == [zlib.crc32(key) for key in keys]
    assert fnv1a(BinaryColumn(array)).tolist() == [plain_fnv1a(key) for key in keys]


def test_one_huge_key_among_short_ones() -> None:
    huge = bytes(range(256)) * 4096
    keys = [b"12345678"] * 500 + [huge] + [b"1234567"] * 500
    assert crc32(column(keys)).tolist() == [zlib.crc32(key) for key in keys]
    found = fnv1a(column(keys)).tolist()
    assert (found[0], found[500], found[501]) == (plain_fnv1a(b"12345678"), plain_fnv1a(huge), plain_fnv1a(b"1234567"))


def test_no_rows() -> None:
    assert crc32(column([])).tolist() == fnv1a(column([])).tolist() == []
