"""The sending of a command's batches to a topic, with a summary in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa

from spark_producer.admin import BlockingClient
from spark_producer.admin.missing_topics import suggest_topic_on_not_found
from spark_producer.cli.progress import WaitNotice
from spark_producer.config import ProducerConfig
from spark_producer.metrics import Snapshot, WriteReport
from spark_producer.metrics.metric_table import OWN
from spark_producer.network import ConnectionSettings
from spark_producer.network.metadata_wait import UNKNOWN_TOPIC_GRACE
from spark_producer.producer import Producer, parts_of

WARNING = "some records may be in the topic already"


class Sent(NamedTuple):
    """The report of acknowledged records, and the metrics of the same time."""

    report: WriteReport
    metrics: Snapshot

    @property
    def speed(self) -> float:
        """Records per second; 0 without records."""
        return self.report.records / self.metrics.seconds if self.metrics.seconds > 0 else 0.0

    def line(self) -> str:
        """Return a summary in one line."""
        records = f"{self.report.records:,} record" + ("" if self.report.records == 1 else "s")
        return f"{records} in {self.metrics.seconds:,.2f} s ({self.speed:,.0f}/s), {self.report.bytes:,} bytes as sent"

    def fields(self) -> dict[str, object]:
        """Return the summary for JSON; `bytes` are those of the record batches as sent."""
        return {
            "records": self.report.records,
            "bytes": self.report.bytes,
            "seconds": self.metrics.seconds,
            "records_per_second": self.speed,
        }

    @property
    def latency_p99(self) -> float:
        """The 99th percentile of the milliseconds from the first record of a batch to its acknowledgement."""
        return min(self.metrics.value(OWN, "record-latency-p99"), self.metrics.value(OWN, "record-latency-max"))


WAIT_SECONDS = 30.0
"""Maximum seconds that a command waits for brokers and for the leaders of a topic without `--timeout`."""


def wait_for_topic(config: ProducerConfig, topic: str, seconds: float | None) -> tuple[int, ...]:
    """Wait until the topic can be written to, which the broker may create. So errors of the topic come before any file is read.

    `seconds` is the maximum wait; by default `WAIT_SECONDS`, and `UNKNOWN_TOPIC_GRACE` for a topic that no broker knows.

    Raises: as `BlockingClient.wait_for_topic`.
    """
    settings = ConnectionSettings.from_config(config)
    timeout, unknown_timeout = (WAIT_SECONDS, UNKNOWN_TOPIC_GRACE) if seconds is None else (seconds, float("inf"))
    with (
        BlockingClient(settings, timeout=timeout, on_wait=WaitNotice(timeout)) as client,
        suggest_topic_on_not_found(client, topic),
    ):
        return client.wait_for_topic(topic, create=True, unknown_timeout=unknown_timeout)


def send_all(
    config: ProducerConfig, topic: str, batches: Iterable[pa.RecordBatch], on_count: Callable[[int], None]
) -> Sent:
    """Send batches of the sink's columns, and return when all rows are acknowledged. `on_count` gets the rows sent so far.

    Raises: as `Producer.send_batch` and `flush`.
    """
    row = 0
    with Producer(config) as producer:
        parts = parts_of(producer)
        parts.meter.start_interval()
        for batch in batches:
            producer.send_batch(batch, topic=topic, first_row=row)
            row += batch.num_rows
            on_count(row)
        producer.flush()
        return Sent(parts.take_report(), parts.meter.interval().snapshot())
