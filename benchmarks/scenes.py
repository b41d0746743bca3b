"""The data that every contender writes: cached DataFrames of binary keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

INPUT_PARTITIONS = 4
KEY_BYTES = 9
_DIGEST = 32  # characters of an MD5 in hexadecimal
_FIRST_EVENT = 1_700_000_000_000
_EVENTS = ("view", "search", "add_to_cart", "remove_from_cart", "checkout", "purchase")
_AGENTS = ("Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "Mozilla/5.0 (Macintosh) Safari/605.1.15", "okhttp/5.1.0")


_OF_MIXED = ("noop", "floor", "pyproducer", "pyproducer-portable", "spark", "spark-tuned")
"""The contenders of the mixed scene, without confluent-kafka, whose produce_batch takes no headers."""
_OF_THOUSAND = ("floor", "pyproducer", "pyproducer-32-mib", "pyproducer-tuned", "spark-tuned")
"""The contenders with 1,000 partitions. Spark's sink fails there by default, since batches expire after 120 s. Tuned, it takes a
minute for a few million rows."""
_OF_EXACTLY_ONCE = ("floor", "pyproducer", "pyproducer-exactly-once", "spark", "spark-tuned")
"""Ours with and without transactions, beside Spark's sink, which has none."""
_SECURED = (
    "pyproducer", "pyproducer-ssl", "pyproducer-sasl-ssl", "spark-ssl", "spark-tuned-ssl", "confluent-batches-ssl",
)  # fmt: skip
"""The contenders over TLS, and ours without it, beside which its price is seen."""


@dataclass(frozen=True)
class Scene:
    """One data set and one topic shape."""

    name: str
    rows: int
    value_bytes: int
    partitions: int
    compressed: bool = False
    """Whether its contenders compress. If so, the values are JSON of about this size instead of digits."""
    shortest: int | None = None
    """The bytes of the shortest value, if lengths vary up to `value_bytes`."""
    headers: bool = False
    """Whether each row has three headers."""
    secured: bool = False
    """Whether the broker has listeners with TLS, for contenders that use one."""
    contenders: Sequence[str] = ()
    """The names of those that take part; all if it is empty."""
    fewer: Mapping[str, int] = field(default_factory=dict)
    """Contender → the smaller number of rows that it writes here."""

    @property
    def title(self) -> str:
        """The title for people."""
        if self.compressed:
            kind = f"JSON of about {self.value_bytes:,} B, compressed"
        elif self.shortest is not None:
            kind = f"Values of {self.shortest} to {self.value_bytes:,} B"
        else:
            kind = f"{self.value_bytes:,} B values"
        kind += " exactly once" * ("pyproducer-exactly-once" in self.contenders)
        kind += " and 3 headers" * self.headers + " over TLS" * self.secured
        return f"{kind}, {self.partitions:,} partitions"

    @property
    def about(self) -> str:
        """The facts about the data that the title leaves out, or an empty text."""
        if self.compressed:
            return "Events of a web shop as JSON: names, user agents and kinds of events repeat."
        if self.secured and self.value_bytes == 100:
            return (
                "TLS 1.3 with AES-256-GCM, and an RSA key of 2,048 bits. SASL_SSL logs in with SCRAM-SHA-512. The broker "
                "decrypts on the same cores."
            )
        if self.headers:
            return (
                "Each row has another length, and headers: a trace id of 32 B, a content type, a source of 5 to 24 B."
            )
        return ""


def all_scenes(rows: int) -> dict[str, Scene]:
    """Return the scenes by name. The one with large values has a quarter of the rows, so that it fits into the cache."""
    scenes = [
        Scene("small", rows, 100, 4),
        Scene("many-partitions", rows, 100, 200),
        Scene(
            "thousand-partitions", rows, 100, 1000, contenders=_OF_THOUSAND, fewer={"spark-tuned": max(1, rows // 4)}
        ),
        Scene("large", max(1, rows // 4), 1000, 4),
        Scene("mixed", max(1, rows // 2), 400, 4, shortest=10, headers=True, contenders=_OF_MIXED),
        Scene("compressed", max(1, rows // 2), 200, 4, compressed=True),
        Scene("exactly-once", max(1, rows // 4), 100, 4, contenders=_OF_EXACTLY_ONCE),
        Scene("tls", rows, 100, 4, secured=True, contenders=_SECURED),
        Scene("tls-large", max(1, rows // 4), 1000, 4, secured=True, contenders=_SECURED),
    ]
    return {scene.name: scene for scene in scenes}


def _digits(value_bytes: int) -> Column:
    """Return hexadecimal digits in which nothing repeats, so a codec that looks for repetitions finds none."""
    digests = [f.md5((f.col("id") * 64 + part).cast("string")) for part in range(-(-value_bytes // _DIGEST))]
    return f.substring(f.concat(*digests), 1, value_bytes)


def _value(scene: Scene) -> Column:
    if scene.compressed:
        return _events()
    if scene.shortest is None:
        return _digits(scene.value_bytes)
    length = f.pmod(f.xxhash64(f.col("id")), f.lit(scene.value_bytes - scene.shortest + 1)) + scene.shortest
    return f.substring(_digits(scene.value_bytes), f.lit(1), length.cast("int"))


def _three_headers() -> Column:
    def header(key: str, value: Column) -> Column:
        return f.struct(f.lit(key).alias("key"), value.cast("binary").alias("value"))

    digest = f.md5(f.col("id").cast("string"))
    return f.array(
        header("trace-id", digest),
        header("content-type", f.lit("application/json")),
        header("source", f.substring(digest, f.lit(1), (f.pmod(f.col("id"), f.lit(20)) + 5).cast("int"))),
    )


def _events() -> Column:
    """Return a click of a web shop as JSON: names and texts that repeat, as in real logs, around numbers that do not."""

    def chance(salt: int, below: int) -> Column:
        return f.pmod(f.xxhash64(f.col("id"), f.lit(salt)), f.lit(below))

    return f.to_json(
        f.struct(
            f.date_format(f.timestamp_millis(f.lit(_FIRST_EVENT) + f.col("id") * 37), "yyyy-MM-dd HH:mm:ss.SSS").alias(
                "at"
            ),
            chance(1, 200_000).alias("user"),
            f.substring(f.md5(f.floor(f.col("id") / 20).cast("string")), 1, 12).alias("session"),
            f.element_at(f.array(*map(f.lit, _EVENTS)), (chance(2, len(_EVENTS)) + 1).cast("int")).alias("event"),
            f.concat(f.lit("/product/"), chance(3, 5_000)).alias("page"),
            f.element_at(f.array(*map(f.lit, _AGENTS)), (chance(4, len(_AGENTS)) + 1).cast("int")).alias("agent"),
            (chance(5, 1_000_000) / 100).alias("price"),
            f.lit("EUR").alias("currency"),
        )
    )


def cached(spark: SparkSession, scene: Scene) -> DataFrame:
    """Return a cached frame with distinct keys from `k00000000` upwards, the scene's values, and its headers."""
    columns = [
        f.format_string("k%08d", f.col("id")).cast("binary").alias("key"),
        _value(scene).cast("binary").alias("value"),
    ]
    columns += [_three_headers().alias("headers")] if scene.headers else []
    frame = spark.range(0, scene.rows, 1, INPUT_PARTITIONS).select(*columns)
    frame = frame.persist(StorageLevel.MEMORY_ONLY)
    if frame.count() != scene.rows:
        raise RuntimeError(f"the cached DataFrame does not have {scene.rows} rows")
    _check_cached(spark)
    return frame


def _check_cached(spark: SparkSession) -> None:
    """Check that all data fits into the cache. Every run would silently compute the rest again, and so measure that too."""
    context: Any = spark.sparkContext._jsc
    for stored in context.sc().getRDDStorageInfo():
        if stored.numCachedPartitions() < stored.numPartitions():
            raise RuntimeError("the DataFrame does not fit Spark's cache: take fewer --rows")


def part_of(frame: DataFrame, rows: int) -> DataFrame:
    """Return the first rows of every input partition, `rows` in all, cached, for contenders that would take too long."""
    limit = f"k{rows:08d}".encode()
    per_partition = frame.where(f.col("key") < f.lit(limit)).repartition(INPUT_PARTITIONS).persist()
    if per_partition.count() != rows:
        raise RuntimeError(f"the part of the DataFrame does not have {rows} rows")
    return per_partition
