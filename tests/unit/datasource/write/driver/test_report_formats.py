"""The log line of a write."""

from __future__ import annotations

import json
import math

from spark_producer.datasource.write.driver.report_formats import MAX_NODES, MAX_PARTITIONS, describe, to_json
from spark_producer.metrics import Levels, OffsetRange, ProducerMetrics, Snapshot, WriteReport
from tests.fakes.metric_events import drain, everything_once, new_metrics

REPORT = WriteReport({("b", 0): OffsetRange(7, 8, 2), ("a", 0): OffsetRange(20, 29, 10)}, 12345, 2_000_000, 3, 2, 4)


def quiet_metrics() -> ProducerMetrics:
    """A task in which nothing went wrong."""
    metrics = new_metrics()
    metrics.mark(0.0)
    drain(metrics, records=12345, size=2_000_000, uncompressed=4_000_000, compressed=2_000_000, queued=0.01)
    metrics.node_drained(12345, 1.0)
    metrics.bytes_sent(1, 2_000_000, 2_000_000, 1.0)
    metrics.produce_completed(1, 0.02, 1.5)
    metrics.batch_delivered(12345, 2_000_000, 0.031, 1.5)
    return metrics


def interval_of(metrics: ProducerMetrics) -> Snapshot:
    return metrics.since_mark(Levels(), 2.0).snapshot()


def test_without_metrics_a_report_reads_as_totals_and_a_line_for_each_partition_in_order() -> None:
    assert describe(REPORT).splitlines() == [
        "12,345 records, 2,000,000 bytes, 3 batches, 2 requests, 4 batches sent again",
        "  a-0: offsets 20 to 29, 10 records",
        "  b-0: offsets 7 to 8, 2 records",
    ]


def test_the_page_of_a_quiet_write_says_how_much_how_fast_how_late_and_nothing_of_troubles() -> None:
    assert describe(REPORT._replace(retries=0), interval_of(quiet_metrics())).splitlines() == [
        "12,345 records in 2.00 s (6,172/s); 2,000,000 bytes (1.0 MB/s), compressed to 50 %; 3 batches, 2 requests, no retries",
        "  from a batch's first row to its acknowledgement: half within 31.0 ms, 99 % within 31.0 ms, all within 31.0 ms",
        "    waiting to be sent: half within 10.0 ms, 99 % within 10.0 ms, all within 10.0 ms",
        "    request and answer: half within 20.0 ms, 99 % within 20.0 ms, all within 20.0 ms",
        "  on average 2,000,000 bytes in a batch, 12,345 records in a request",
        "  broker 1: 1 request, 2,000,000 bytes, answered within 20.0 ms on average, 20.0 ms at most",
        "  a-0: offsets 20 to 29, 10 records",
        "  b-0: offsets 7 to 8, 2 records",
    ]


def test_the_page_of_a_troubled_write_says_what_went_wrong_and_what_was_waited_for() -> None:
    metrics = quiet_metrics()
    everything_once(metrics)
    page = describe(REPORT, interval_of(metrics)).splitlines()
    assert page[0].endswith("; 3 batches, 2 requests, 4 batches sent again")
    assert page[5:7] == [
        "  time that tasks waited, summed up: 0.20 s for buffer memory, 0.10 s for metadata, "
        "0.30 s for the last responses (flush), 0.10 s because brokers asked for it",
        "  not everything went well: 10 records sent again, 1 batch too large for the broker and split, 10 records failed, "
        "1 wait for buffer memory timed out, 1 connection failed to authenticate",
    ]


def test_waits_too_short_to_be_seen_are_not_reported() -> None:
    metrics = quiet_metrics()
    metrics.buffer_waited(0.004, 1.0)
    assert "waited" not in describe(REPORT, interval_of(metrics))
    metrics.buffer_waited(0.004, 1.0)
    assert "0.01 s for buffer memory\n" in describe(REPORT, interval_of(metrics))


def test_a_bootstrap_server_is_no_broker_with_a_strange_number() -> None:
    metrics = quiet_metrics()
    metrics.bytes_sent(-2, 40, 40, 1.0)
    assert "  bootstrap server 2: 1 request, 40 bytes\n" in describe(REPORT, interval_of(metrics))


def test_nothing_is_said_of_compression_where_there_was_none() -> None:
    metrics = new_metrics()
    drain(metrics, uncompressed=1000, compressed=1000)
    assert "compressed" not in describe(REPORT, interval_of(metrics))


def test_a_write_of_nothing_and_one_without_answers_read_well() -> None:
    metrics = new_metrics()
    assert describe(WriteReport({}), interval_of(metrics)) == "0 records, 0 bytes, 0 batches, 0 requests, no retries"
    metrics.bytes_sent(1, 30, 30, 1.0)
    drain(metrics)
    metrics.node_drained(10, 1.0)
    page = describe(REPORT, interval_of(metrics))
    assert "nan" not in page
    assert "request and answer: unknown\n" in page
    assert "  broker 1: 1 request, 30 bytes\n" in page


def test_a_page_is_bounded() -> None:
    metrics = new_metrics()
    drain(metrics)
    for node in range(MAX_NODES + 2):
        metrics.bytes_sent(node, 1, 1, 1.0)
        metrics.produce_completed(node, 0.1, 1.0)
    ranges = {("t", number): OffsetRange(0, 0, 1) for number in range(MAX_PARTITIONS + 7)}
    page = describe(REPORT._replace(ranges=ranges), interval_of(metrics)).splitlines()
    assert len(page) < MAX_PARTITIONS + MAX_NODES + 8
    assert page[-1] == "  … and 7 more partitions"
    assert "  … and 2 more nodes" in page


def test_programs_get_json_on_one_line() -> None:
    line = to_json("micro-batch 7", REPORT, interval_of(quiet_metrics()))
    assert "\n" not in line
    page = json.loads(line, parse_constant=lambda name: math.nan / 0)  # NaN is no JSON
    assert page["write"] == "micro-batch 7"
    assert (page["records"], page["bytes"], page["batches"], page["requests"], page["retries"]) == REPORT[1:6]
    assert page["ranges"][0] == {"topic": "a", "partition": 0, "first": 20, "last": 29, "records": 10}
    assert page["seconds"] == 2.0
    assert page["metrics"]["pyproducer-metrics"]["record-latency-max"] == 31.0
    assert page["metrics"]["producer-topic-metrics"]["record-send-total"] == {"t": 12345}
    assert page["metrics"]["producer-node-metrics"]["request-total"] == {"node-1": 1}
    assert "batch-split-total" in page["metrics"]["producer-metrics"]
    assert "produce-throttle-time-avg" not in page["metrics"]["producer-metrics"], "the average of nothing"


def test_json_without_metrics() -> None:
    assert set(json.loads(to_json("batch write", REPORT))) == {"write", *REPORT._fields}
