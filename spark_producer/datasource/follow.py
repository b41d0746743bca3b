"""Reports of writes for the program that runs them: `follow` registers a source whose commits report to it.

Spark commits in a separate process. An accumulator carries the reports to the program; only classic Spark has accumulators.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.types import StructType

from spark_producer.datasource.error_boundary import hide_internal_traceback
from spark_producer.datasource.registration import followed, register_once
from spark_producer.datasource.source import PyProducerDataSource
from spark_producer.datasource.write.writers import BatchWriter, StreamWriter
from spark_producer.errors import ConfigError
from spark_producer.metrics import OffsetRange, WriteReport

if TYPE_CHECKING:
    from spark_producer.datasource.read.readers import BatchReader

MAX_REPORTS = 1000
"""Maximum reports that are kept, the newest ones; one has about 2 kB, and more with very many topics."""

_RANGES = "array<struct<topic: string, partition: int, first: bigint, last: bigint, records: bigint>>"
FRAME = (
    "write string, status string, query_id string, batch_id bigint, started timestamp, ended timestamp, records bigint, "
    f"bytes bigint, batches bigint, requests bigint, retries bigint, ranges {_RANGES}, "
    f"rejected bigint, rejected_by map<string, bigint>, dead_letters {_RANGES}"
)
"""The columns of `Reports.to_frame`."""


@dataclass(frozen=True)
class Written:
    """The report of one write."""

    write: str
    """`batch write`, or `micro-batch 7`"""
    status: str
    """`committed`, `aborted`, or `unknown` where an exactly-once write was left to a newer driver"""
    report: WriteReport
    """The rows in the topics. After an abort these are the rows that stay there: none for an exactly-once write."""
    query_id: str | None
    batch_id: int | None
    """The number of the micro-batch; None for batch writes."""
    started: datetime | None
    """The start of the first task; None if no task wrote anything."""
    ended: datetime
    outputs: tuple[Mapping[str, str], ...]
    """The topics under their names in OpenLineage: `namespace` and `name`."""
    metrics: Mapping[str, Mapping[str, Any]]
    """Number by group, metric, and node or topic if the group has these (docs/metrics.md)."""
    exactly_once: Mapping[str, Any] | None = None

    @property
    def records(self) -> int:
        """The records that were acknowledged."""
        return self.report.records

    @property
    def ranges(self) -> Mapping[tuple[str, int], OffsetRange]:
        """The offsets that were written, by topic and partition."""
        return self.report.ranges

    @classmethod
    def from_json(cls, text: str) -> Written:
        """Return the report of a file of `reportPath`, or of a writer's message to `follow`."""
        report = json.loads(text)
        counts = {name: report[name] for name in WriteReport._fields if name in report}
        counts["ranges"] = _by_partition(report["ranges"])
        counts["dead_letters"] = _by_partition(report.get("dead_letters", []))
        return cls(
            write=report["write"],
            status=report["status"],
            report=WriteReport(**counts),
            query_id=report["query_id"],
            batch_id=report["batch_id"],
            started=None if report["started"] is None else datetime.fromisoformat(report["started"]),
            ended=datetime.fromisoformat(report["ended"]),
            outputs=tuple(report["outputs"]),
            metrics=report.get("metrics", {}),
            exactly_once=report.get("exactly_once"),
        )


def _by_partition(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], OffsetRange]:
    return {(row["topic"], row["partition"]): OffsetRange(row["first"], row["last"], row["records"]) for row in rows}


def _rows(ranges: Mapping[tuple[str, int], OffsetRange]) -> list[tuple[str | int, ...]]:
    return [(topic, partition, *found) for (topic, partition), found in sorted(ranges.items())]


class Reports:
    """The reports of a session's writes, oldest first; the last 1,000 are kept. They arrive while the program does other things.

    A task that Spark runs twice is counted once, since only the commit or the abort of a write reports.
    """

    def __init__(self, spark: SparkSession, accumulator: Accumulator[deque[str]]) -> None:
        self._spark = spark
        self._pending = accumulator.value
        """PySpark's thread appends, and `_collect` removes; a deque allows both at the same time."""
        self._kept: deque[Written] = deque(maxlen=MAX_REPORTS)
        self._new: deque[Written] = deque(maxlen=MAX_REPORTS)

    @property
    def latest(self) -> Written:
        """The newest report.

        Raises:
            LookupError: no write has ended yet.
        """
        self._collect()
        if not self._kept:
            raise LookupError('no write of this session through format("pyproducer") has ended since follow()')
        return self._kept[-1]

    def take(self) -> list[Written]:
        """Return the reports that arrived since the last call, for exporters (docs/reports.md)."""
        self._collect()
        found = []
        while self._new:
            found.append(self._new.popleft())
        return found

    def to_frame(self) -> DataFrame:
        """Return the kept reports as a DataFrame, one row for each write, with the columns of `FRAME`."""
        rows = [
            (
                one.write, one.status, one.query_id, one.batch_id, one.started, one.ended, one.records, one.report.bytes,
                one.report.batches, one.report.requests, one.report.retries,
                _rows(one.ranges), one.report.rejected, dict(one.report.rejected_by), _rows(one.report.dead_letters),
            )
            for one in self
        ]  # fmt: skip
        return self._spark.createDataFrame(rows, FRAME)

    def __iter__(self) -> Iterator[Written]:
        self._collect()
        return iter(list(self._kept))

    def __len__(self) -> int:
        self._collect()
        return len(self._kept)

    def _collect(self) -> None:
        while self._pending:
            written = Written.from_json(self._pending.popleft())
            self._kept.append(written)
            self._new.append(written)


class _ReportQueue(AccumulatorParam[deque[str]]):
    """An accumulator of reports in JSON. It is extended in place, so that `Reports` can empty it meanwhile; and bounded."""

    def zero(self, value: deque[str]) -> deque[str]:  # noqa: ARG002 - PySpark's signature
        return deque(maxlen=MAX_REPORTS)

    def addInPlace(self, value1: deque[str], value2: deque[str]) -> deque[str]:  # noqa: N802 - PySpark's name
        value1.extend(value2)
        return value1


_followed: WeakKeyDictionary[SparkSession, Reports] = WeakKeyDictionary()


def follow(spark: SparkSession) -> Reports:
    """Return the reports of all writes that this session begins from now on; see `spark_producer.follow`.

    Raises:
        ConfigError: Spark Connect, which has no accumulators.
    """
    if not isinstance(spark, SparkSession):
        raise ConfigError(
            "follow() needs a classic Spark session: Spark Connect has no accumulators, which carry the reports. Set the option "
            "reportPath instead, which saves a file for each write"
        )
    if spark not in _followed:
        accumulator = spark.sparkContext.accumulator(deque(maxlen=MAX_REPORTS), _ReportQueue())
        register_once(spark, _followed_source(accumulator))
        followed.add(spark)
        _followed[spark] = Reports(spark, accumulator)
    return _followed[spark]


def _followed_source(accumulator: Accumulator[deque[str]]) -> type[PyProducerDataSource]:
    """Return a class that Spark pickles by value with the accumulator, since it is defined in a function."""

    class FollowedDataSource(PyProducerDataSource):
        """The data source, whose commits and aborts report to the program."""

        reads = False
        """Whether this process has made a reader. Then Spark pickles the data source for the tasks of the read."""

        def __reduce__(self) -> Any:
            """Pickle the data source; for tasks of a read the plain one, without the accumulator."""
            return PyProducerDataSource(self.options).__reduce__() if self.reads else super().__reduce__()

        @hide_internal_traceback
        def reader(self, schema: StructType) -> BatchReader:
            self.reads = True
            return super().reader(schema)

        @hide_internal_traceback
        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            self.reads = True
            return super().streamReader(schema)

        @hide_internal_traceback
        def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
            writer = super().writer(schema, overwrite)
            writer.follower = accumulator
            return writer

        @hide_internal_traceback
        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
            writer = super().streamWriter(schema, overwrite)
            writer.follower = accumulator
            return writer

    return FollowedDataSource
