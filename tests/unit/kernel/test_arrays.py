"""Numpy and Arrow share memory: views see what is written, nothing is read beyond it, and no copy is made where none is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spark_producer.kernel.arrays import buffer_of, from_numbers, is_valid, numbers, one_row, values_of, view_of


@pytest.mark.parametrize("dtype", ["<i8", ">i4", "u1", np.dtype([("offset", ">i8"), ("magic", "i1")])], ids=str)
def test_a_buffer_is_the_memory_of_an_array(dtype: np.dtype[np.generic]) -> None:
    values = np.zeros(3, dtype=dtype)
    buffer = buffer_of(values)
    assert buffer.size == values.nbytes
    values.view(np.uint8)[-1] = 7
    assert bytes(buffer)[-1] == 7, "the memory is shared"


def test_a_view_is_the_memory_of_a_buffer() -> None:
    source = np.arange(4, dtype=np.int64)
    view = view_of(buffer_of(source), np.dtype(np.int64), 2, 8)
    source[1] = 9
    assert view.tolist() == [9, 2]


def test_a_view_ends_with_its_buffer() -> None:
    with pytest.raises(ValueError, match="buffer is smaller"):
        view_of(pa.py_buffer(b"12345678"), np.dtype(np.int64), 2)


def test_numbers_become_an_arrow_array_and_come_back() -> None:
    values = np.array([3, -1, 2**62], dtype=np.int64)
    assert from_numbers(values).equals(pa.array([3, -1, 2**62], pa.int64()))
    assert np.shares_memory(numbers(from_numbers(values)), values)
    assert from_numbers(values[::2]).to_pylist() == [3, 2**62]


def test_other_integers_become_those_of_64_bits() -> None:
    assert from_numbers(np.array([1, -2], dtype=np.int32)).equals(pa.array([1, -2], pa.int64()))


def test_nulls_become_the_number_that_is_asked_for() -> None:
    array = pa.array([1, None, 3], pa.int16()).slice(1)
    assert numbers(array, nulls=-1).tolist() == [-1, 3]
    assert is_valid(array).tolist() == [False, True]


def test_the_values_of_an_array_lie_in_one_piece() -> None:
    assert bytes(values_of(pa.array([b"ab", None, b"c"], pa.binary()))[:3]) == b"abc"
    assert bytes(values_of(one_row(b"xyz"))) == b"xyz"
