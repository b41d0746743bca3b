"""A partitioner that calls a function of the user over columns, and checks its result."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_producer.errors import ConfigError, PartitionerError
from spark_producer.kernel import BinaryColumn, SingleRecord
from spark_producer.kernel.arrays import BytesArray, Int32Array, Int64Array, from_numbers
from spark_producer.partitioner.topic import RowRule, TopicPartitions
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.send_arguments import as_columns

PartitionFunction = Callable[[BytesArray, BytesArray, str, int], object]
"""(keys, values, topic, partition count) → one partition per row, as an integer array of numpy or Arrow.

Keys and values are Arrow arrays of binary or large_binary, of equal length, and may hold nulls."""


class CustomPartitioner(RowRule):
    """Calls a function for the partition of every row without an explicit one; keys are left to the function.

    It can be pickled if the function can.
    """

    def __init__(self, function: PartitionFunction, name: str = "") -> None:
        self._function = function
        self._name = name or getattr(function, "__qualname__", type(function).__qualname__)

    def assign(self, topic: TopicPartitions, columns: CheckedColumns, rows: Int64Array) -> Int32Array:
        """Return one partition per row.

        Raises:
            PartitionerError: the function raised, or did not return one partition of the topic for each row.
        """
        records, count = columns.records, len(rows)
        keys, values = _rows_of(records.key, rows, len(records)), _rows_of(records.value, rows, len(records))
        try:
            returned = self._function(keys, values, topic.topic, topic.partition_count)
        except Exception as error:
            raise self._wrong(topic, f"raised {type(error).__name__}: {error}") from error
        found = self._as_array(returned, topic)
        if found.shape != (count,):
            raise self._wrong(topic, f"returned {_shape(found)} for {count} rows")
        bad = (found < 0) | (found >= topic.partition_count)
        if bad.any():
            first = int(bad.argmax())
            raise self._wrong(
                topic,
                f"returned partition {found[first]} ({columns.location(int(rows[first]))}); "
                f"the topic has the partitions 0 to {topic.partition_count - 1}",
            )
        return found.astype(np.int32, copy=False)

    def assign_one(self, topic: TopicPartitions, record: SingleRecord) -> int:
        """Call the function with columns of one row. Raises: as `assign`."""
        return int(self.assign(topic, as_columns(topic.topic, record), np.zeros(1, dtype=np.int64))[0])

    def _as_array(self, returned: object, topic: TopicPartitions) -> npt.NDArray[np.integer[Any]]:
        nulls = _nulls_in(returned)
        if nulls:
            raise self._wrong(topic, f"returned {nulls} nulls")
        try:
            if isinstance(returned, pa.ChunkedArray):
                returned = returned.to_numpy()
            elif isinstance(returned, pa.Array):
                returned = returned.to_numpy(zero_copy_only=False)
            found = np.asarray(returned)
        except Exception as error:
            raise self._wrong(topic, f"returned {type(returned).__name__}, which is not an array: {error}") from error
        if found.dtype.kind not in "iu":  # `np.integer` has timedelta64 among its kinds
            raise self._wrong(topic, f"returned {type(returned).__name__} of {found.dtype}, not of integers")
        return found

    def _wrong(self, topic: TopicPartitions, what: str) -> PartitionerError:
        return PartitionerError(
            f"the partitioner {self._name!r} {what}, for topic {topic.topic!r}. It takes (keys, values, topic, "
            "partition_count) and returns an int32 array with one partition per row",
            topic=topic.topic,
        )


def load_function(name: str) -> PartitionFunction:
    """Return the function that `module:function` names; the part after the colon may have dots.

    Raises:
        ConfigError: there is no such module or function, or it cannot be called.
    """
    module_name, _, path = name.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:  # a foreign module may raise anything
        raise ConfigError(
            f"kafka.partitioner.class={name!r} cannot be loaded: {type(error).__name__}: {error}. The module must be "
            "importable on the driver and on the workers (spark.submit.pyFiles)"
        ) from error
    if not callable(found):
        raise ConfigError(f"kafka.partitioner.class={name!r} is {type(found).__name__}, not a function")
    function: PartitionFunction = found
    return function


def _rows_of(column: BinaryColumn | None, rows: Int64Array, of: int) -> BytesArray:
    """Return some rows of a column, or the column itself if they are all its rows."""
    if column is None:
        return pa.nulls(len(rows), pa.binary())
    return column.array if len(rows) == of else column.array.take(from_numbers(rows))


def _nulls_in(returned: object) -> int:
    """Count the nulls of an Arrow array, or the masked values of a numpy array, which `np.asarray` would uncover."""
    if isinstance(returned, pa.Array | pa.ChunkedArray):
        return int(returned.null_count)
    return int(np.count_nonzero(returned.mask)) if isinstance(returned, np.ma.MaskedArray) else 0


def _shape(found: npt.NDArray[np.integer[Any]]) -> str:
    return f"{len(found)} partitions" if found.ndim == 1 else f"an array of shape {found.shape}"
