"""The data that every contender writes: cached DataFrames of binary keys and values.

Owns: sizes and content. Must not know: who writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

INPUT_PARTITIONS = 4
KEY_BYTES = 9
_DIGEST = 32  # characters of an MD5 in hexadecimal


@dataclass(frozen=True)
class Scene:
    """One data set and one topic shape."""

    name: str
    rows: int
    value_bytes: int
    partitions: int

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.value_bytes:,} B values, {self.partitions} partitions, {self.rows:,} rows"


def all_scenes(rows: int) -> dict[str, Scene]:
    """The scenes by name; the one with large values has a quarter of the rows, to fit the cache."""
    scenes = [
        Scene("small", rows, 100, 4),
        Scene("many-partitions", rows, 100, 200),
        Scene("large", max(1, rows // 4), 1000, 4),
    ]
    return {scene.name: scene for scene in scenes}


def cached(spark: SparkSession, rows: int, value_bytes: int) -> DataFrame:
    """Keys `k00000000` upwards (all distinct), values of hexadecimal digits that compress to about a half."""
    identifier = f.col("id")
    digests = [f.md5((identifier * 64 + part).cast("string")) for part in range(-(-value_bytes // _DIGEST))]
    frame = spark.range(0, rows, 1, INPUT_PARTITIONS).select(
        f.format_string("k%08d", identifier).cast("binary").alias("key"),
        f.substring(f.concat(*digests), 1, value_bytes).cast("binary").alias("value"),
    )
    frame = frame.persist(StorageLevel.MEMORY_ONLY)
    if frame.count() != rows:
        raise RuntimeError(f"the cached DataFrame does not have {rows} rows")
    _check_cached(spark)
    return frame


def _check_cached(spark: SparkSession) -> None:
    """What does not fit is made anew by every run, silently: then the runs would measure that."""
    context: Any = spark.sparkContext._jsc
    for stored in context.sc().getRDDStorageInfo():
        if stored.numCachedPartitions() < stored.numPartitions():
            raise RuntimeError("the DataFrame does not fit Spark's cache: take fewer --rows")


def part_of(frame: DataFrame, rows: int) -> DataFrame:
    """The first rows of every input partition, `rows` in all, cached: for contenders that would take too long."""
    limit = f"k{rows:08d}".encode()
    per_partition = frame.where(f.col("key") < f.lit(limit)).repartition(INPUT_PARTITIONS).persist()
    if per_partition.count() != rows:
        raise RuntimeError(f"the part of the DataFrame does not have {rows} rows")
    return per_partition
