"""What the rows of a micro-batch are, in one number: the sum of their values' hashes, in whatever order and tasks they come.

A batch that Spark plans anew may have as many rows as before, and others: a file that came late, in the place of another one.
Rows that are the same in another order have the same sum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer import kernel
from spark_producer.exactly_once.repetition import CONTENT
from spark_producer.kernel import BinaryColumn

_MIX = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1

ArrowArray: TypeAlias = Any
"""An array of any type: each has its own methods."""


class Uncounted:
    """Batches of which nobody reckons what they have."""

    content: int | None = None

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches


class Contents(Uncounted):
    """Batches that are summed up on their way. `content` is the sum of those that were taken."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        super().__init__(batches)
        self.content = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.content = (self.content or 0) + content_of(batch) & CONTENT
            yield batch


def content_of(batch: pa.RecordBatch) -> int:
    """Return the sum of the hashes of a batch's values, and of the keys of rows without one, modulo 2**63.

    The order of rows does not matter. Other columns do not count: what a query adds by itself, as a time, is often there.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    value, key = columns.get("value"), columns.get("key")
    if value is None:
        return 0
    found = _of(value, _seed("value"))
    if key is not None and value.null_count:
        found += _of(key.filter(value.is_null()), _seed("key"))
    return found & CONTENT


def _seed(name: str) -> int:
    return zlib.crc32(name.encode()) * _MIX + 1 & _WORD


def _of(array: ArrowArray, seed: int) -> int:
    """Return the sum of the hashes of the values of a column that are not null, and of their number."""
    count: int = len(array) - array.null_count
    return count * seed + _values(array, seed) & _WORD


def _values(array: ArrowArray, seed: int) -> int:
    kind = array.type
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode(), seed)
    if pa.types.is_struct(kind):
        fields = zip(kind, array.flatten(), strict=True)
        return sum(_of(child, seed ^ _seed(field.name)) for field, child in fields)
    if pa.types.is_map(kind):
        keys, items = array.keys, array.items
        return _of(keys, seed ^ 1) + _of(items, seed ^ 2)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _of(array.flatten(), seed ^ 3)
    if pa.types.is_boolean(kind):
        return _sum(array.drop_null().cast(pa.uint8()).to_numpy(zero_copy_only=False).astype(np.uint64), seed)
    if _is_text(kind):
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        plain = array.drop_null().cast(pa.large_binary() if large else pa.binary())
        return _sum(kernel.murmur2(BinaryColumn(plain)).astype(np.uint64), seed)
    return _sum(_words(array.drop_null()), seed)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    views = (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in (*tests, *views)) and not pa.types.is_decimal(kind)


def _words(array: ArrowArray) -> npt.NDArray[np.uint64]:
    """Return one number for each value of a type of fixed width."""
    width = array.type.byte_width
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(0, dtype=np.uint64)
    count, first = len(array) * width, array.offset * width
    raw = np.frombuffer(memoryview(data), dtype=np.uint8, count=count, offset=first).reshape(-1, width)
    padded = np.zeros((len(array), -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = raw
    words = padded.view(np.uint64)
    mixed: npt.NDArray[np.uint64] = words[:, 0].copy()
    for column in range(1, words.shape[1]):
        mixed = mixed * np.uint64(_MIX) + words[:, column]
    return mixed


def _sum(hashes: npt.NDArray[np.uint64], seed: int) -> int:
    """Mix each hash with the seed, so that sums of other values differ, and add them up."""
    mixed = (hashes ^ np.uint64(seed)) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return int(mixed.sum(dtype=np.uint64))
