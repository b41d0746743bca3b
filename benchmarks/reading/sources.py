"""The sources that are compared, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contenders import TUNED
from benchmarks.reading.topics import PARTITIONS

TUNED_SOURCE = {
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.min.bytes": "1000000",
}
TUNED_SOURCE_TEXT = "max.poll.records 20000, max.partition.fetch.bytes 8 MiB, fetch.min.bytes 1 MB"


@dataclass(frozen=True)
class Source:
    """A way to read topics; it has one row in each table. `sink` is the format that it is paired with from Kafka to Kafka."""

    name: str
    label: str
    form: str
    options: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    text: str = "defaults"
    columns: tuple[str, ...] = ()
    """The columns that it selects; all if it is empty."""

    def read(self, spark: SparkSession, servers: str, topic: str) -> DataFrame:
        """Return the rows of a topic, from its start to its end."""
        reader = spark.read.format(self.form).option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        reader = reader.options(**self.options)
        if self.columns and self.form == "pyproducer":  # its schema says which columns are fetched
            reader = reader.schema(", ".join(f"{name} binary" for name in self.columns))
        frame = reader.load()
        return frame.select(*self.columns) if self.columns else frame

    def read_stream(self, spark: SparkSession, servers: str, topic: str, rows: int) -> DataFrame:
        """Return the rows of a topic from its start as a stream with `rows` rows in each micro-batch."""
        reader = spark.readStream.format(self.form).option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**self.options)
        return reader.option("maxOffsetsPerTrigger", rows).load()


SPARK = Source("spark", "Spark's source", "kafka")
SPARK_TUNED = Source("spark-tuned", "Spark's source, tuned", "kafka", TUNED_SOURCE, TUNED, TUNED_SOURCE_TEXT)
OURS = Source("pyproducer", "pyproducer", "pyproducer")
SPARK_VALUES = Source("spark-values", "Spark's source, value only", "kafka", columns=("value",))
OUR_VALUES = Source(
    "pyproducer-values",
    "pyproducer, value only",
    "pyproducer",
    text='defaults, .schema("value binary")',
    columns=("value",),
)
WHOLE = (SPARK, SPARK_TUNED, OURS, SPARK_VALUES, OUR_VALUES)
PAIRS = (SPARK, SPARK_TUNED, OURS)


@dataclass(frozen=True)
class MemoryRows:
    """A stream of constant rows from memory, the floor: what PySpark takes for a source that reads nothing."""

    name: str
    label: str
    tasks: int = PARTITIONS
    tricks: bool = True

    def read_stream(self, spark: SparkSession, _servers: str, _topic: str, rows: int) -> DataFrame:
        """Return a stream with `rows` rows in each micro-batch, as that of a `Source`."""
        reader = spark.readStream.format("memory-rows").option("tasks", self.tasks).option("rows", rows)
        return (reader.option("tricks", "true") if self.tricks else reader).load()


OURS_IN_ONE_TASK = Source(
    "pyproducer-one-task", "pyproducer, `minRecordsPerPartition` 1000", "pyproducer", {"minRecordsPerPartition": "1000"}
)
FLOOR = MemoryRows("floor", "Python, rows from memory")
STREAMS: tuple[Source | MemoryRows, ...] = (
    SPARK,
    OURS,
    OURS_IN_ONE_TASK,
    FLOOR,
    MemoryRows("floor-plain", "Python, rows from memory, without our settings", tricks=False),
    MemoryRows("floor-one-task", "Python, rows from memory, in one task", tasks=1),
)
