"""The checksum of a micro-batch: the sum of the hashes of its rows' values, which does not depend on their order or tasks.

It detects other rows where their number is the same: a source may replay a micro-batch with another file than the first time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer import kernel
from spark_producer.exactly_once.protocol.repeated_batch_check import CONTENT_MASK
from spark_producer.kernel import BinaryColumn

_MIX = 0x9E3779B97F4A7C15
_MASK_64 = (1 << 64) - 1

ArrowArray: TypeAlias = Any
"""An Arrow array of any type; Arrow's stubs have no common class with the methods used here."""


class HashedBatches:
    """An iterator that adds the checksum of each batch to `content` before it yields the batch; `content` is None without
    `hashes`."""

    def __init__(self, batches: Iterator[pa.RecordBatch], *, hashes: bool) -> None:
        self._batches = batches
        self.content: int | None = 0 if hashes else None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            if self.content is not None:
                self.content = (self.content + content_of(batch)) & CONTENT_MASK
            yield batch


def content_of(batch: pa.RecordBatch) -> int:
    """Return the checksum of a batch, modulo 2**63: of each row its value is hashed, or its key if the value is null.

    Other columns do not count, since queries often put new values there in each attempt, such as the current time.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    value, key = columns.get("value"), columns.get("key")
    if value is None:
        return 0
    found = _of(value, _seed("value"))
    if key is not None and value.null_count:
        found += _of(key.filter(value.is_null()), _seed("key"))
    return found & CONTENT_MASK


def _seed(name: str) -> int:
    return zlib.crc32(name.encode()) * _MIX + 1 & _MASK_64


def _of(array: ArrowArray, seed: int) -> int:
    """Return the sum of the hashes of a column's non-null values, plus their number times `seed`."""
    count: int = len(array) - array.null_count
    return count * seed + _values(array, seed) & _MASK_64


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
    return _sum(_uint64s(array.drop_null()), seed)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    views = (pa.types.is_string_view, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(kind) for test in (*tests, *views)) and not pa.types.is_decimal(kind)


def _uint64s(array: ArrowArray) -> npt.NDArray[np.uint64]:
    """Return one number for each value of a fixed-width type."""
    width = array.type.byte_width
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(0, dtype=np.uint64)
    count, first = len(array) * width, array.offset * width
    raw = np.frombuffer(memoryview(data), dtype=np.uint8, count=count, offset=first).reshape(-1, width)
    padded = np.zeros((len(array), -(-width // 8) * 8), dtype=np.uint8)
    padded[:, :width] = raw
    parts = padded.view(np.uint64)
    mixed: npt.NDArray[np.uint64] = parts[:, 0].copy()
    for column in range(1, parts.shape[1]):
        mixed = mixed * np.uint64(_MIX) + parts[:, column]
    return mixed


def _sum(hashes: npt.NDArray[np.uint64], seed: int) -> int:
    """Return the sum of the hashes, each mixed with the seed, so that the same value in another field adds another number."""
    mixed = (hashes ^ np.uint64(seed)) * np.uint64(_MIX)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return int(mixed.sum(dtype=np.uint64))
