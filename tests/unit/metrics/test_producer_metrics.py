"""Events and what they make of the metrics: Java's formulas, its oddities, and the twins that mend them."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from spark_producer.metrics import Levels, ProducerMetrics, Snapshot
from spark_producer.metrics.metric_table import CLIENT, NODE, OWN, TOPIC
from spark_producer.metrics.registry import MAX_NODES, MAX_TOPICS
from tests.fakes.metric_events import drain, everything_once, new_metrics

SECONDS = 30


@pytest.fixture
def metrics() -> ProducerMetrics:
    return new_metrics()


def taken(metrics: ProducerMetrics, now: float = 1.0) -> Snapshot:
    return metrics.snapshot(Levels(), now)


@pytest.mark.covers("SN2")
def test_throttle_times_with_zeros_and_of_every_api(metrics: ProducerMetrics) -> None:
    """Java's own test: 400 in the answer to ApiVersions, then 100, 200 and 300 in those to Produce."""
    for milliseconds in (400, 100, 200, 300):
        metrics.response_received(1, milliseconds, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "produce-throttle-time-avg") == 250
    assert found.value(CLIENT, "produce-throttle-time-max") == 400
    for _ in range(4):
        metrics.response_received(1, 0, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "produce-throttle-time-avg") == 125
    assert found.value(OWN, "throttled-time-avg") == 250
    assert found.value(OWN, "throttled-time-total") == 1000


def test_records_count_when_drained_and_so_again_with_each_retry(metrics: ProducerMetrics) -> None:
    for _ in range(3):
        drain(metrics, records=10)
        metrics.node_drained(10, 1.0)
    metrics.batch_retried("t", 10, 1.0)
    metrics.batch_retried("t", 10, 1.0)
    metrics.batch_delivered(10, 1061, 0.5, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "record-send-total") == found.value(TOPIC, "record-send-total", "t") == 30
    assert found.value(CLIENT, "record-retry-total") == found.value(TOPIC, "record-retry-total", "t") == 20
    assert found.value(OWN, "batch-retry-total") == 2
    assert found.value(OWN, "record-delivered-total") == 10
    assert found.value(OWN, "batch-delivered-total") == 1
    assert found.value(OWN, "byte-delivered-total") == 1061


def test_a_node_that_got_nothing_counts_as_zero_records_per_request(metrics: ProducerMetrics) -> None:
    for records in (100, 0, 0, 20):
        metrics.node_drained(records, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "records-per-request-avg") == 30
    assert found.value(OWN, "records-per-produce-request-avg") == 60
    assert found.value(OWN, "records-per-produce-request-max") == 100


def test_a_batch_that_fails_again_counts_twice_but_not_in_the_twin(metrics: ProducerMetrics) -> None:
    metrics.batch_failed("t", 10, 1.0)
    metrics.batch_failed("t", 10, 1.0, again=True)
    metrics.call_refused(1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "record-error-total") == 21
    assert found.value(TOPIC, "record-error-total", "t") == 20
    assert found.value(OWN, "record-failed-total") == 10


def test_record_sizes_are_bounds_of_the_largest_and_the_twin_is_a_mean(metrics: ProducerMetrics) -> None:
    drain(metrics, records=10, uncompressed=1000, largest=300)
    drain(metrics, records=90, uncompressed=1800, largest=100)
    metrics.rows_accepted(216, 1.0)
    found = taken(metrics)
    assert (found.value(CLIENT, "record-size-avg"), found.value(CLIENT, "record-size-max")) == (200, 300)
    assert (found.value(OWN, "record-bytes-avg"), found.value(OWN, "record-bytes-max")) == (28, 216)


def test_compression_by_batch_and_by_byte(metrics: ProducerMetrics) -> None:
    drain(metrics, uncompressed=100, compressed=100)
    drain(metrics, uncompressed=9900, compressed=900)
    found = taken(metrics)
    by_batch = (1 + 1 / 11) / 2
    assert found.value(CLIENT, "compression-rate-avg") == pytest.approx(by_batch)
    assert found.value(TOPIC, "compression-rate", "t") == pytest.approx(by_batch)
    assert found.value(OWN, "compression-ratio") == pytest.approx(0.1)


def test_queue_times_and_latencies_are_milliseconds(metrics: ProducerMetrics) -> None:
    drain(metrics, records=99, queued=0.1)
    drain(metrics, records=1, queued=0.3)
    metrics.batch_delivered(99, 1, 0.2, 1.0)
    metrics.batch_delivered(1, 1, 1.2, 1.0)
    metrics.produce_completed(7, 0.05, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "record-queue-time-avg") == pytest.approx(200), "of batches"
    assert found.value(CLIENT, "record-queue-time-max") == pytest.approx(300)
    assert found.value(OWN, "record-queue-time-p99") == pytest.approx(100, rel=1 / 16), "of records"
    assert found.value(OWN, "record-latency-avg") == pytest.approx(210)
    assert found.value(OWN, "record-latency-max") == pytest.approx(1200)
    assert found.value(OWN, "record-latency-p99") == pytest.approx(200, rel=1 / 16), "of records, too"
    assert found.value(OWN, "record-latency-p999") == pytest.approx(1200, rel=1 / 16)
    assert found.value(CLIENT, "request-latency-avg") == found.value(NODE, "request-latency-max", "node-7") == 50


def test_waits_are_shares_of_time_and_nanoseconds(metrics: ProducerMetrics) -> None:
    """Ten seconds old, so a rate divides by 40: two threads waited for 8 s each."""
    metrics.buffer_waited(0, 0.0)
    metrics.buffer_waited(8.0, 10.0)
    metrics.buffer_waited(8.0, 10.0)
    metrics.polled(9.0, 2.5, 10.0)
    metrics.polled(0.0, 0.5, 10.0)
    found = taken(metrics, 10.0)
    assert found.value(CLIENT, "bufferpool-wait-ratio") == pytest.approx(16 / 40)
    assert found.value(CLIENT, "bufferpool-wait-time-ns-total") == 16_000_000_000
    assert found.value(OWN, "bufferpool-wait-time-p99") == pytest.approx(8000, rel=1 / 16)
    assert found.value(CLIENT, "select-total") == 2
    assert found.value(CLIENT, "io-wait-time-ns-avg") == 4.5e9
    assert found.value(CLIENT, "io-wait-time-ns-total") == 9e9
    assert found.value(CLIENT, "io-time-ns-avg") == 1.5e9
    assert found.value(CLIENT, "io-ratio") == pytest.approx(3 / 30)


def test_traffic_of_all_nodes_and_of_each(metrics: ProducerMetrics) -> None:
    for node, size in ((1, 100), (1, 200), (2, 600)):
        metrics.bytes_sent(node, size - 90, 0, 1.0)
        metrics.bytes_sent(node, 90, size, 1.0)
        metrics.bytes_received(node, 10, 1.0)
    metrics.response_received(2, None, 1.0)
    found = taken(metrics)
    assert found.value(CLIENT, "network-io-total") == 9
    assert found.value(CLIENT, "outgoing-byte-total") == 900
    assert found.value(CLIENT, "request-size-avg") == 300
    assert found.value(CLIENT, "request-rate") == pytest.approx(3 / 30)
    assert found.owners("node-id") == ["node-1", "node-2"]
    assert found.value(NODE, "outgoing-byte-total", "node-1") == 300
    assert found.value(NODE, "request-size-max", "node-2") == 600
    assert found.value(NODE, "incoming-byte-rate", "node-1") == pytest.approx(20 / 30)
    assert found.value(NODE, "response-total", "node-1") == 0
    assert found.value(CLIENT, "response-total") == found.value(NODE, "response-total", "node-2") == 1
    assert math.isnan(found.value(CLIENT, "produce-throttle-time-avg")), "its kind has no such field"


def test_levels_and_tags(metrics: ProducerMetrics) -> None:
    everything_once(metrics)
    values = metrics.snapshot(Levels(1, 2, 3, 4, 5, 6.5), 1.0).values()
    client = (("client-id", "spark"),)
    assert values[CLIENT, "waiting-threads", client] == 1
    assert values[CLIENT, "buffer-available-bytes", client] == 3
    assert values[CLIENT, "requests-in-flight", client] == 4
    assert values[CLIENT, "metadata-age", client] == 6.5
    assert values[NODE, "request-total", (*client, ("node-id", "node-1"))] == 1
    assert values[TOPIC, "byte-total", (*client, ("topic", "t"))] == 1061
    assert values["kafka-metrics-count", "count", client] == len(values)


def test_topics_beyond_the_bound_share_one_entry(metrics: ProducerMetrics) -> None:
    for number in range(MAX_TOPICS + 5):
        drain(metrics, topic=f"t{number}", records=1)
        metrics.node_drained(1, 1.0)
        metrics.batch_retried(f"t{number}", 1, 1.0)
    found = taken(metrics)
    assert len(found.owners("topic")) == MAX_TOPICS + 1
    assert (
        found.value(TOPIC, "record-send-total", "(other)") == found.value(TOPIC, "record-retry-total", "(other)") == 5
    )
    assert found.value(TOPIC, "record-send-total", f"t{MAX_TOPICS - 1}") == 1
    assert found.value(CLIENT, "record-send-total") == MAX_TOPICS + 5


def test_nodes_beyond_the_bound_share_one_entry(metrics: ProducerMetrics) -> None:
    for number in range(MAX_NODES + 3):
        metrics.bytes_sent(number, 1, 1, 1.0)
    found = taken(metrics)
    assert len(found.owners("node-id")) == MAX_NODES + 1
    assert found.value(NODE, "request-total", "node-other") == 3


def test_the_interval_is_the_time_of_a_task_and_holds_only_what_happened(metrics: ProducerMetrics) -> None:
    everything_once(metrics)
    metrics.mark(100.0)
    drain(metrics, topic="u", records=50, now=101.0)
    metrics.node_drained(50, 101.0)
    metrics.batch_delivered(50, 1061, 0.25, 104.0)
    sent = metrics.since_mark(Levels(), 105.0)
    interval = sent.snapshot()
    assert (interval.since, interval.until) == (1_000_100.0, 1_000_105.0)
    assert interval.value(CLIENT, "record-send-total") == 50
    assert interval.value(CLIENT, "record-send-rate") == 10
    assert interval.value(OWN, "record-latency-p999") == pytest.approx(250, rel=1 / 16)
    assert interval.owners("topic") == ["u"]
    assert interval.owners("node-id") == []
    assert interval.value(CLIENT, "request-total") == 0
    assert math.isnan(interval.value(CLIENT, "request-latency-avg"))
    assert {sensor for sensor, _ in interval.tallies} < {"delivered", *(sensor for sensor, _ in taken(metrics).tallies)}
    assert metrics.since_mark(Levels(), 105.0) == sent, "reading ends no interval"
    assert taken(metrics, 105.0).value(CLIENT, "record-send-total") == 60, "totals go on"


def test_no_event_is_lost_between_threads(metrics: ProducerMetrics) -> None:
    """Any thread reports rare events, one thread the others, while other threads read and begin intervals."""
    rounds, threads = 3000, 4

    def io_thread() -> None:
        for number in range(rounds):
            metrics.bytes_sent(1, 1, 0, number / 10)
            drain(metrics, topic=f"t{number % 10}", size=number, now=number / 10)

    def work() -> None:
        for number in range(rounds):
            metrics.call_refused(number / 10)

    workers = [threading.Thread(target=work) for _ in range(threads)] + [threading.Thread(target=io_thread)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        taken(metrics, rounds / 10)
        metrics.mark(rounds / 10)
        metrics.since_mark(Levels(), rounds / 10)
    for worker in workers:
        worker.join(SECONDS)
    found = taken(metrics, rounds / 10)
    assert found.value(CLIENT, "record-error-total") == rounds * threads
    assert found.value(NODE, "outgoing-byte-total", "node-1") == rounds
    assert found.value(TOPIC, "byte-total", "t7") == sum(range(7, rounds, 10))
    assert found.value(CLIENT, "batch-size-max") == rounds - 1


class Lock:
    """Counts how often it is taken."""

    held = 0
    taken = 0

    def __enter__(self) -> Lock:
        assert not self.held, "the lock need not be one that its owner may take twice"
        self.held, self.taken = 1, self.taken + 1
        return self

    def __exit__(self, *_: Any) -> None:
        self.held = 0


def test_reading_is_done_under_the_lock_and_leaves_it_free() -> None:
    lock = Lock()
    metrics = ProducerMetrics("c", lock, 0.0, 0.0)
    everything_once(metrics)
    assert lock.taken > 0
    before = lock.taken
    metrics.mark(1.0)
    metrics.since_mark(Levels(), 2.0)
    metrics.snapshot(Levels(), 2.0)
    assert (lock.taken, lock.held) == (before + 3, 0)


def test_what_comes_often_takes_no_lock_but_to_turn_samples() -> None:
    lock = Lock()
    metrics = ProducerMetrics("c", lock, 0.0, 0.0)

    def often(now: float) -> None:
        drain(metrics, now=now)
        metrics.node_drained(10, now)
        metrics.batch_delivered(10, 1061, 0.75, now)
        metrics.bytes_sent(1, 500, 1200, now)
        metrics.bytes_received(1, 80, now)
        metrics.response_received(1, 100, now)
        metrics.produce_completed(1, 0.05, now)
        metrics.polled(0.004, 0.001, now)

    often(1.0)
    before = lock.taken
    for _ in range(10):
        often(29.0)
    assert lock.taken == before
    often(32.0)
    assert lock.taken == before + 7, "as many kinds of events"
