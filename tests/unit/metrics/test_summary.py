"""How a write reads in the log."""

from __future__ import annotations

import json
import math

from spark_producer.metrics import (
    Levels,
    OffsetRange,
    ProducerMetrics,
    Snapshot,
    WriteReport,
    describe,
    summarize,
    to_json,
)
from spark_producer.metrics.summary import MOST_NODES, MOST_PARTITIONS
from tests.unit.metrics.events import drain, everything_once, new_metrics

REPORT = WriteReport({("b", 0): OffsetRange(7, 8, 2), ("a", 0): OffsetRange(20, 29, 10)}, 12345, 2_000_000, 3, 2, 4)


def quiet_lap() -> ProducerMetrics:
    """A task in which nothing went wrong."""
    metrics = new_metrics()
    metrics.start_lap(0.0)
    drain(metrics, records=12345, size=2_000_000, uncompressed=4_000_000, compressed=2_000_000, queued=0.01)
    metrics.node_drained(12345, 1.0)
    metrics.bytes_sent(1, 2_000_000, 2_000_000, 1.0)
    metrics.produce_answered(1, 0.02, 1.5)
    metrics.batch_delivered(12345, 2_000_000, 0.031, 1.5)
    return metrics


def lap_of(metrics: ProducerMetrics) -> Snapshot:
    return metrics.lap(Levels(), 2.0)


def test_without_metrics_a_report_reads_as_totals_and_a_line_for_each_partition_in_order() -> None:
    assert describe(REPORT).splitlines() == [
        "12,345 records, 2,000,000 bytes, 3 batches, 4 retries",
        "  a-0: offsets 20..29, 10 records",
        "  b-0: offsets 7..8, 2 records",
    ]


def test_one_line_says_how_much_how_fast_and_how_late() -> None:
    assert summarize(REPORT, lap_of(quiet_lap())) == (
        "12,345 records, 2,000,000 bytes, 3 batches, 4 retries in 2.00 s (6,172 records/s, 1.0 MB/s); compression 0.50; "
        "latency p50 31.0 ms, p99 31.0 ms, max 31.0 ms"
    )


def test_the_page_of_a_quiet_write_says_nothing_of_troubles() -> None:
    assert describe(REPORT, lap_of(quiet_lap())).splitlines()[1:] == [
        "  2 requests of 12,345 records, batches of 2,000,000 bytes; "
        "latency of requests p50 20.0 ms, p99 20.0 ms, max 20.0 ms",
        "  batches waited before they were sent: p50 10.0 ms, p99 10.0 ms, max 10.0 ms",
        "  node-1: 1 requests, 2,000,000 bytes, latency avg 20.0 ms, max 20.0 ms",
        "  a-0: offsets 20..29, 10 records",
        "  b-0: offsets 7..8, 2 records",
    ]


def test_the_page_of_a_troubled_write_says_what_went_wrong_and_what_was_waited_for() -> None:
    metrics = quiet_lap()
    everything_once(metrics)
    page = describe(REPORT, lap_of(metrics)).splitlines()
    assert "  tasks waited, all together: 0.20 s for buffer memory, 0.10 s for metadata, 0.30 s in flush, " in page[3]
    assert page[3].endswith("0.10 s asked for by brokers")
    assert page[4] == (
        "  10 records sent again, 1 batches split, 10 records failed, 1 waits for memory in vain, 1 logins failed"
    )


def test_a_write_of_nothing_and_one_without_answers_read_well() -> None:
    metrics = new_metrics()
    assert describe(WriteReport({}), lap_of(metrics)) == "0 records, 0 bytes, 0 batches, 0 retries"
    metrics.bytes_sent(1, 30, 30, 1.0)
    assert describe(REPORT, lap_of(metrics)).splitlines()[0].endswith("MB/s); latency unknown")
    drain(metrics)
    metrics.node_drained(10, 1.0)
    page = describe(REPORT, lap_of(metrics))
    assert "nan" not in page
    assert "latency of requests unknown" in page
    assert "  node-1: 1 requests, 30 bytes\n" in page


def test_a_page_is_bounded() -> None:
    metrics = new_metrics()
    drain(metrics)
    for node in range(MOST_NODES + 2):
        metrics.bytes_sent(node, 1, 1, 1.0)
        metrics.produce_answered(node, 0.1, 1.0)
    ranges = {("t", number): OffsetRange(0, 0, 1) for number in range(MOST_PARTITIONS + 7)}
    page = describe(REPORT._replace(ranges=ranges), lap_of(metrics)).splitlines()
    assert len(page) < MOST_PARTITIONS + MOST_NODES + 8
    assert page[-1] == "  … and 7 more partitions"
    assert "  … and 2 more nodes" in page


def test_programs_get_json_on_one_line() -> None:
    line = to_json("micro-batch 7", REPORT, lap_of(quiet_lap()))
    assert "\n" not in line
    page = json.loads(line, parse_constant=lambda name: math.nan / 0)  # NaN is no JSON
    assert page["write"] == "micro-batch 7"
    assert (page["records"], page["bytes"], page["batches"], page["requests"], page["retries"]) == REPORT[1:]
    assert page["ranges"][0] == {"topic": "a", "partition": 0, "first": 20, "last": 29, "records": 10}
    assert page["seconds"] == 2.0
    assert page["metrics"]["pyproducer-metrics"]["record-latency-max"] == 31.0
    assert page["metrics"]["producer-topic-metrics"]["record-send-total"] == {"t": 12345}
    assert page["metrics"]["producer-node-metrics"]["request-total"] == {"node-1": 1}
    assert "batch-split-total" in page["metrics"]["producer-metrics"]
    assert "produce-throttle-time-avg" not in page["metrics"]["producer-metrics"], "the average of nothing"


def test_json_without_metrics() -> None:
    assert set(json.loads(to_json("batch write", REPORT))) == {"write", *REPORT._fields}
