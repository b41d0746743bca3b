"""murmur2 against the Java vectors (KY1), kafka-python, and hard shapes."""

import itertools
import random
import sys
import tracemalloc
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as foreign_murmur2

from spark_producer.kernel import BinaryColumn, compiled_murmur2
from spark_producer.kernel.arrays import BytesType
from spark_producer.kernel.portable_murmur2 import murmur2

portable = sys.modules[murmur2.__module__]
Hashes = npt.NDArray[np.uint32]

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    b"": 275646681,
    b"a": -1563381124,
    b"ab": 316155434,
    b"abcd": -1323649548,
    b"\xff": -311467685,
    b"\xff\x80": -442788720,
    b"\xff\x80\x81": 1120456546,
    bytes(range(256)): -1948347274,
    "日本語".encode(): 1431860170,
}


def hashes(keys: Sequence[bytes | None], kind: "BytesType | None" = None) -> list[int]:
    found: list[int] = murmur2(BinaryColumn(pa.array(keys, kind or pa.binary()))).astype(np.int32).tolist()
    return found


@pytest.mark.covers("KY1")
def test_java_vectors_together_and_alone() -> None:
    assert hashes(list(VECTORS)) == list(VECTORS.values())
    for key, expected in VECTORS.items():
        assert hashes([key]) == [expected]
        assert hashes([key], pa.large_binary()) == [expected]


@pytest.mark.covers("KY1")
def test_checksum_of_100100_arrays() -> None:
    """Java's own test: SplittableRandom(0), 100 random arrays of every length to 1000; sum of unsigned hashes."""
    lengths = [length for length in range(1001) for _ in range(100)]
    starts = [0, *itertools.accumulate((length + 7) // 8 * 8 for length in lengths)]
    drawn = splittable_random(starts[-1] // 8)
    keys = [drawn[start : start + length] for start, length in zip(starts, lengths, strict=False)]
    total = murmur2(BinaryColumn(pa.array(keys, pa.binary()))).astype(np.uint64).sum()
    assert int(total) == 0xC3B8CF7C99FC


def splittable_random(longs: int) -> bytes:
    """Return the results of nextLong of java.util.SplittableRandom(0), each as eight bytes, little-endian."""
    state = np.arange(1, longs + 1, dtype="<u8") * np.uint64(0x9E3779B97F4A7C15)
    mixed = (state ^ state >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ mixed >> np.uint64(31)).tobytes()


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=200), st.integers(0, 5), st.booleans())
def test_equals_kafka_python_on_slices_nulls_and_large_offsets(
    keys: list[bytes | None], start: int, large: bool
) -> None:
    array = pa.array(keys, pa.large_binary() if large else pa.binary())[start:]
    expected = [foreign_murmur2(key or b"") & 0xFFFFFFFF for key in keys[start:]]
    assert murmur2(BinaryColumn(array)).tolist() == expected


@pytest.mark.parametrize("length", [1 << 20, (1 << 20) + 3])
def test_one_huge_key_among_short_ones(length: int) -> None:
    huge = random.Random(length).randbytes(length)
    keys = [b"12345678"] * 500 + [b"1"] + [huge] + [b"1234567"] * 500  # no block of 4 bytes is aligned
    expected = [foreign_murmur2(key) & 0xFFFFFFFF for key in (b"12345678", huge, b"1234567")]
    found = murmur2(BinaryColumn(pa.array(keys, pa.binary()))).tolist()
    assert [found[0], found[501], found[502]] == expected


def test_a_huge_key_costs_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Column steps go over the blocks of the short keys; those of the huge key are hashed once, in steps of one row."""
    steps = list[int]()
    mix_block: Callable[[Hashes, Hashes], Hashes] = portable._mix_block

    def counted(hashes: Hashes, blocks: Hashes) -> Hashes:
        steps.append(len(hashes))
        return mix_block(hashes, blocks)

    monkeypatch.setattr(portable, "_mix_block", counted)
    murmur2(BinaryColumn(pa.array([b"12345678"] * 99_999 + [bytes(1 << 20)], pa.binary())))
    assert sum(steps) == pytest.approx(2 * 100_000, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("hash_of", [murmur2, compiled_murmur2.murmur2], ids=["portable", "compiled"])
@pytest.mark.parametrize("length", [8, 9, None])
def test_a_huge_key_takes_no_memory_of_its_size(
    hash_of: Callable[[BinaryColumn], np.ndarray], length: int | None
) -> None:
    short = [bytes(length or at % 30) for at in range(5_000)]
    column = BinaryColumn(pa.array([*short, bytes(1 << 22), *short], pa.binary()))
    tracemalloc.start()
    try:
        hash_of(column)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(70_000, 65_535, 65_536, 131_072), (65_534, 65_535), (1 << 17,) * 9])
def test_keys_beyond_16_bit_lengths(sizes: tuple[int, ...]) -> None:
    chance = random.Random(3)
    keys = [b"1234", *(chance.randbytes(size) for size in sizes), b"", b"123"]
    alone = [hashes([key])[0] for key in keys]
    assert hashes(list(keys)) == alone
    assert alone[1] == np.int32(np.uint32(foreign_murmur2(keys[1]) & 0xFFFFFFFF).view(np.int32))


@pytest.mark.parametrize("block", [1, 3, 7])
def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    keys: list[bytes | None] = [*VECTORS, None, b"1234", b"abcd", b"efgh", b"ijkl", None, b"", b"", b""]
    whole = hashes(keys)
    monkeypatch.setattr(portable, "_ROWS", block)
    assert hashes(keys) == whole


def test_a_null_that_covers_bytes_hashes_as_empty() -> None:
    buffers = pa.array([b"abcd", b"efgh"], pa.binary()).buffers()
    array = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x01"), buffers[1], buffers[2]])
    assert array.null_count == 1
    assert murmur2(BinaryColumn(array)).astype(np.int32).tolist() == [VECTORS[b"abcd"], VECTORS[b""]]
