"""The contenders: every way to write a DataFrame to Kafka that is compared, and the two floors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from benchmarks.confluent import BatchLoop, RowLoop
from benchmarks.counting import CountingSource
from benchmarks.portable import PORTABLE, register_portable
from benchmarks.scenes import Scene

TUNED = {"kafka.batch.size": "262144", "kafka.linger.ms": "20", "kafka.buffer.memory": "134217728"}
"""The buffer holds two batches of this size for each of 200 partitions; the default of 32 MiB would be far too small there."""

SLOW_ROWS = 200_000
"""The rows for the row-by-row loop, which is some 30 times slower than the others."""


@dataclass(frozen=True)
class Target:
    """The brokers and the topic that one run writes to."""

    bootstrap: str
    topic: str
    rows: int
    security: Mapping[str, str] = field(default_factory=dict)
    """A client's settings to connect, beside the address, in the names of Kafka's Java clients."""


@dataclass(frozen=True)
class Contender:
    """One row of the tables."""

    name: str
    label: str
    settings: str
    write: Callable[[DataFrame, Target], None]
    reaches_kafka: bool = True
    most_rows: int | None = None
    compressed: bool = False
    """Whether it compresses, and so runs only in the scene of contenders that do."""
    named_only: bool = False
    """Whether it runs only in scenes that name it."""
    transactional: bool = False
    """Whether it writes in transactions, whose markers take offsets too."""
    protocol: str = "PLAINTEXT"
    """The broker's listener that it connects to. Those with another one run in scenes that have such listeners, and name them."""
    base: str = "spark"
    """The contender with which its rate is compared in the table."""


def _noop(frame: DataFrame, target: Target) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _counting(frame: DataFrame, target: Target) -> None:
    frame.write.format("counting").option("rows", str(target.rows)).mode("append").save()


def _sink(name: str, options: dict[str, str]) -> Callable[[DataFrame, Target], None]:
    def write(frame: DataFrame, target: Target) -> None:
        writer = frame.write.format(name).option("kafka.bootstrap.servers", target.bootstrap)
        security = {f"kafka.{option}": value for option, value in target.security.items()}
        writer.option("topic", target.topic).options(**options, **security).mode("append").save()

    return write


def _confluent_rows(frame: DataFrame, target: Target) -> None:
    frame.foreachPartition(RowLoop(target.bootstrap, target.topic))


def _confluent_batches(frame: DataFrame, target: Target) -> None:
    nothing = frame.mapInArrow(BatchLoop(target.bootstrap, target.topic, librdkafka(target.security)), "key binary")
    nothing.write.format("noop").mode("overwrite").save()


def librdkafka(security: Mapping[str, str]) -> dict[str, str]:
    """Return how librdkafka says to which certificates of a file TLS is to trust. It knows no JAAS."""
    other = {"ssl.truststore.location": "ssl.ca.location", "security.protocol": "security.protocol"}
    return {other[option]: value for option, value in security.items() if option != "ssl.truststore.type"}


_TUNED_TEXT = "batch.size 262144, linger.ms 20, buffer.memory 128 MiB"
_BATCHES, _BATCHES_TEXT = "confluent-kafka over Arrow", "mapInArrow and produce_batch, batch.size 262144, linger.ms 20"
_CODECS = ("lz4", "zstd")


def _zstd_as_java() -> Contender:
    """Return our sink with Java's default level of zstd, which is higher than ours."""
    options = {"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "3"}
    sink = _sink("pyproducer", options)
    text = "defaults, compression.type zstd, compression.zstd.level 3"
    return Contender("pyproducer-zstd-3", "pyproducer, zstd level 3", text, sink, compressed=True, base="spark-zstd")


def _compressed(codec: str) -> tuple[Contender, Contender]:
    """Return both sinks with one codec, and all else by default."""
    options, base = {"kafka.compression.type": codec}, f"spark-{codec}"
    text = f"defaults, compression.type {codec}"
    return (
        Contender(
            f"pyproducer-{codec}",
            f"pyproducer, {codec}",
            text,
            _sink("pyproducer", options),
            compressed=True,
            base=base,
        ),
        Contender(base, f"Spark's sink, {codec}", text, _sink("kafka", options), compressed=True, base=base),
    )


def _secured() -> tuple[Contender, ...]:
    """Return those of the scenes over TLS. Settings are as without it, so that the price of TLS is all that differs."""
    ours, default = _sink("pyproducer", {}), "defaults"
    made = (
        ("pyproducer-ssl", "pyproducer, SSL", default, ours, "SSL"),
        ("pyproducer-sasl-ssl", "pyproducer, SASL_SSL", f"{default}, SCRAM-SHA-512", ours, "SASL_SSL"),
        ("spark-ssl", "Spark's sink, SSL", default, _sink("kafka", {}), "SSL"),
        ("spark-tuned-ssl", "Spark's sink, tuned, SSL", _TUNED_TEXT, _sink("kafka", TUNED), "SSL"),
        ("confluent-batches-ssl", f"{_BATCHES}, SSL", _BATCHES_TEXT, _confluent_batches, "SSL"),
    )
    return tuple(
        Contender(name, label, text, write, named_only=True, protocol=protocol, base="spark-ssl")
        for name, label, text, write, protocol in made
    )


CONTENDERS = (
    Contender("noop", "JVM noop sink", "reads the cache, writes nothing", _noop, reaches_kafka=False),
    Contender("floor", "Arrow, only counted", "the floor of any Python sink", _counting, reaches_kafka=False),
    Contender("pyproducer", "pyproducer", "defaults", _sink("pyproducer", {})),
    Contender("pyproducer-portable", "pyproducer, portable kernel", "defaults, no compiled code", _sink(PORTABLE, {})),
    Contender(
        "pyproducer-32-mib",
        "pyproducer, buffer.memory 32 MiB",
        "Kafka's default, and ours on small executors",
        _sink("pyproducer", {"kafka.buffer.memory": "33554432"}),
        named_only=True,
    ),
    Contender(
        "pyproducer-tuned", "pyproducer, tuned", "profile throughput", _sink("pyproducer", {"profile": "throughput"})
    ),
    Contender(
        "pyproducer-exactly-once",
        "pyproducer, exactly once",
        "a transaction for each task",
        _sink("pyproducer", {"exactlyOnceId": "benchmarks"}),
        named_only=True,
        transactional=True,
    ),
    Contender("spark", "Spark's sink", "defaults (batch.size 16384, linger.ms 0)", _sink("kafka", {})),
    Contender("spark-tuned", "Spark's sink, tuned", _TUNED_TEXT, _sink("kafka", TUNED)),
    Contender(
        "confluent-batches",
        _BATCHES,
        _BATCHES_TEXT,
        _confluent_batches,
    ),
    Contender(
        "confluent",
        "confluent-kafka by row",
        "foreachPartition, one produce() per row",
        _confluent_rows,
        most_rows=SLOW_ROWS,
    ),
    *(contender for codec in _CODECS for contender in _compressed(codec)),
    _zstd_as_java(),
    *_secured(),
)


def chosen(only: list[str]) -> list[Contender]:
    """Return the named contenders, or all if none is named. Raises ValueError for a name that does not exist."""
    known = {contender.name: contender for contender in CONTENDERS}
    unknown = sorted(set(only) - set(known))
    if unknown:
        raise ValueError(f"unknown contenders {', '.join(unknown)}; there are: {', '.join(known)}")
    return [contender for name, contender in known.items() if not only or name in only]


def takes_part(contender: Contender, scene: Scene) -> bool:
    """Return whether a contender runs in a scene. If the scene names none, those run that compress exactly if the scene does."""
    if scene.contenders:
        return contender.name in scene.contenders
    return contender.compressed is scene.compressed and not contender.named_only


def rows_in(contender: Contender, scene: Scene) -> int:
    """Return how many rows a contender writes in a scene."""
    return min(scene.rows, contender.most_rows or scene.rows, scene.fewer.get(contender.name, scene.rows))


def register(spark: SparkSession, contenders: list[Contender]) -> None:
    """Register the Python data sources of these contenders with the session."""
    if any(contender.name == "floor" for contender in contenders):
        spark.dataSource.register(CountingSource)
    if any(contender.name == PORTABLE for contender in contenders):
        register_portable(spark)
