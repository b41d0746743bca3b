"""A producer's own metrics, against the embedded broker: names as in Java, numbers that agree with each other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spark_producer import MockProducer, Producer
from spark_producer.broker import LocalBroker
from spark_producer.errors import BufferExhausted, IllegalState, ProducerClosed, RecordTooLarge, TopicNotFound
from spark_producer.metrics.metric_table import CLIENT, METRICS, NODE, OWN, TOPIC
from spark_producer.producer import parts_of
from spark_producer.record.codecs import Codec
from tests.fakes.hurry import impatient
from tests.fakes.scripted_cluster import ScriptedCluster, knowing_the_topic
from tests.support.waiting import wait_until
from tests.unit.metrics.test_metric_table import JAVA, SEED

Start = Callable[..., Producer]
ROWS = 500
SECONDS = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(default_partitions=3, auto_create_topics=False) as made:
        made.create_topic("t", 3)
        yield made


def producer_to(broker: LocalBroker, **options: object) -> Producer:
    given = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 4096, "client.id": "me"} | given)


def rows(count: int = ROWS, width: int = 100) -> pa.RecordBatch:
    values = [f"{number}".ljust(width) for number in range(count)]
    return pa.record_batch({"key": [f"{number}" for number in range(count)], "value": values})


def client(producer: Producer, name: str, group: str = CLIENT, **tag: str) -> float:
    tags = tuple((key.replace("_", "-"), value) for key, value in tag.items())
    return producer.metrics()[group, name, (("client-id", "me"), *tags)]


@pytest.mark.covers("SN3")
def test_every_name_of_java_is_there(broker: LocalBroker) -> None:
    with producer_to(broker) as producer:
        producer.send_batch(rows(), topic="t")
        producer.flush()
        found = producer.metrics()
    for group, names in JAVA.items():
        assert {name for of, name, _ in found if of == group} == names
    assert {dict(tags)["topic"] for group, _, tags in found if group == TOPIC} == {"t"}
    assert {dict(tags)["node-id"] for group, _, tags in found if group == NODE} >= {"node--1"}
    assert all(dict(tags)["client-id"] == "me" for _, _, tags in found)


def test_every_name_of_the_article_has_a_value_after_a_write(broker: LocalBroker) -> None:
    with producer_to(broker, compression_type="lz4") as producer:
        producer.send_batch(rows(), topic="t")
        producer.flush()
        wait_until(lambda: client(producer, "requests-in-flight") == 0, "every response is in")
        values = producer.metrics()
    nodes = {tags for group, _, tags in values if group == NODE}
    leader = next(tags for tags in nodes if dict(tags)["node-id"] != "node--1")
    tags = {CLIENT: (("client-id", "me"),), NODE: leader, TOPIC: (("client-id", "me"), ("topic", "t"))}
    found = {(group, name): values[group, name, tags[group]] for group in SEED for name in SEED[group].split()}
    assert len(found) == sum(map(len, map(str.split, SEED.values())))
    assert not [name for name, value in found.items() if not math.isfinite(value)]
    zero = {name for (_, name), value in found.items() if value == 0}
    assert zero <= {
        "connection-close-rate", "failed-authentication-rate", "successful-authentication-rate", "waiting-threads",
        "bufferpool-wait-ratio", "batch-split-rate", "batch-split-total", "produce-throttle-time-avg",
        "produce-throttle-time-max", "record-error-rate", "record-error-total", "record-retry-rate",
        "record-retry-total", "requests-in-flight", "metadata-age",
    }  # fmt: skip
    assert {name for group, name, _ in values if group == OWN} == {row.name for row in METRICS if row.group == OWN}


def test_units_are_those_that_the_table_says(broker: LocalBroker) -> None:
    """A batch that lingers for 300 ms, in a call that takes a little longer: every unit is seen in what it gives."""
    began = time.monotonic()
    with producer_to(broker, linger_ms=300) as producer:
        producer.send("t", "v" * 100).result(SECONDS)
        producer.send("t", "v" * 100)
        producer.flush()
        ms = (time.monotonic() - began) * 1e3
        assert 300 <= client(producer, "record-queue-time-max") < ms
        assert 300 <= client(producer, "record-latency-max", OWN) < ms
        assert 300 / 2 <= client(producer, "record-queue-time-avg") < ms
        assert 0.02 < client(producer, "request-latency-max") < ms
        assert 0 < client(producer, "flush-time-ns-total") < ms * 1e6
        assert 0 < client(producer, "metadata-wait-time-ns-total") < ms * 1e6
        assert 250e6 < client(producer, "io-wait-time-ns-total") < ms * 1e6
        assert 1e4 < client(producer, "io-time-ns-total") < ms * 1e6
        assert client(producer, "io-wait-ratio") <= client(producer, "io-wait-time-ns-total") / 30e9
        assert 0 < client(producer, "metadata-age") < time.monotonic() - began
        assert 2 / 30 >= client(producer, "record-send-rate") > 2 / (30 + time.monotonic() - began)
        assert 100 < client(producer, "batch-size-max") < 250


@pytest.mark.covers("SN3")
def test_each_call_about_transactions_is_timed_under_its_own_name(broker: LocalBroker) -> None:
    """A call that fails counts too, since its caller has waited."""
    began = time.monotonic()
    with producer_to(broker, transactional_id="timed") as producer:
        calls: list[tuple[str, Callable[[], None]]] = [
            ("init", producer.init_transactions),
            ("begin", producer.begin_transaction),
            ("send-offsets", lambda: producer.send_offsets_to_transaction({("t", 0): 1}, "readers")),
            ("commit", producer.commit_transaction),
            ("begin", producer.begin_transaction),
            ("abort", producer.abort_transaction),
            ("abort", lambda: refused(producer.abort_transaction)),
        ]
        for name, call in calls:
            before = transaction_times(producer)
            call()
            after = transaction_times(producer)
            assert {one for one, value in after.items() if value > before[one]} == {name}
        assert 0 < sum(after.values()) < (time.monotonic() - began) * 1e9


def transaction_times(producer: Producer) -> dict[str, float]:
    names = ("init", "begin", "send-offsets", "commit", "abort")
    return {name: client(producer, f"txn-{name}-time-ns-total") for name in names}


def refused(call: Callable[[], None]) -> None:
    with pytest.raises(IllegalState):
        call()


def test_the_numbers_of_a_write_agree(broker: LocalBroker) -> None:
    with producer_to(broker) as producer:
        producer.send_batch(rows(), topic="t")
        producer.flush()
        report = parts_of(producer).take_report()
        wait_until(lambda: client(producer, "requests-in-flight") == 0, "every response is in")
        assert client(producer, "record-send-total") == client(producer, "record-delivered-total", OWN) == ROWS
        assert client(producer, "batch-delivered-total", OWN) == report.batches > 3
        assert client(producer, "byte-delivered-total", OWN) == client(producer, "byte-total", TOPIC, topic="t")
        assert client(producer, "byte-delivered-total", OWN) == report.bytes
        assert client(producer, "record-retry-total") == client(producer, "record-error-total") == 0
        assert client(producer, "request-total") == client(producer, "response-total") > report.requests
        sizes = client(producer, "request-size-avg") * client(producer, "request-total")
        assert sizes == pytest.approx(client(producer, "outgoing-byte-total"))
        assert client(producer, "outgoing-byte-total") > report.bytes
        assert client(producer, "incoming-byte-total") > 0
        assert 100 < client(producer, "record-bytes-max", OWN) < 130
        assert client(producer, "record-size-max") > client(producer, "record-bytes-avg", OWN)
        for latency in ("request-latency-avg", "record-queue-time-avg"):
            assert client(producer, latency) > 0, latency
        assert client(producer, "record-latency-p99", OWN) > 0
        assert client(producer, "connection-count") == client(producer, "connection-creation-total") > 0
        assert client(producer, "buffer-total-bytes") == client(producer, "buffer-available-bytes") == 33554432
        assert client(producer, "flush-time-ns-total") > 0
        assert client(producer, "metadata-wait-time-ns-total") > 0
        assert 0 < client(producer, "metadata-age") < 60
        assert client(producer, "produce-throttle-time-max") == 0
        assert client(producer, "select-total") > 0
    assert client(producer, "connection-count") == 0
    assert client(producer, "connection-close-total") == client(producer, "connection-creation-total")


@pytest.mark.parametrize("codec", Codec)
def test_requests_are_timed_whatever_version_of_produce_their_codec_needs(broker: LocalBroker, codec: Codec) -> None:
    with producer_to(broker, compression_type=codec.name.lower()) as producer:
        producer.send_batch(rows(), topic="t")
        producer.flush()
        assert 0 < client(producer, "request-latency-avg") <= client(producer, "request-latency-max")
        assert client(producer, "request-latency-p99", OWN) >= 0


def test_calls_that_are_refused_count(broker: LocalBroker) -> None:
    with impatient(producer_to(broker, max_block_ms=20_000)) as producer:
        with pytest.raises(TopicNotFound):
            producer.send_batch(rows(1), topic="nowhere")
        with pytest.raises(TopicNotFound):
            producer.send("nowhere", "v")
        with pytest.raises(RecordTooLarge):
            producer.send_table(pa.table({"value": ["v" * (5 << 20)]}), topic="t")
        assert client(producer, "record-error-total") == 3
        assert client(producer, "record-failed-total", OWN) == 0
        waited = client(producer, "metadata-wait-time-ns-total")
        assert waited >= 2 * 20e9
        assert math.isnan(client(producer, "batch-size-avg"))
    with pytest.raises(ProducerClosed):
        producer.send("t", "v")
    assert client(producer, "record-error-total") == 4


def test_waits_for_memory_count(broker: LocalBroker) -> None:
    with producer_to(broker, buffer_memory=65536, batch_size=65536, linger_ms=60000) as producer:
        producer.send("t", "v", partition=0)
        producer.send_batch(rows(2000, 300), topic="t")
        producer.flush()
        assert client(producer, "bufferpool-wait-time-ns-total") > 0
        assert client(producer, "bufferpool-wait-time-p99", OWN) > 0
        assert client(producer, "buffer-exhausted-total") == 0
        assert client(producer, "waiting-threads") == 0


@pytest.mark.covers("BP4")
def test_a_wait_for_memory_in_vain_is_counted_as_such(cluster: ScriptedCluster, start: Start) -> None:
    cluster.holding = True
    producer = knowing_the_topic(
        start(client_id="me", buffer_memory=65536, batch_size=65536, linger_ms=60_000, max_block_ms=30)
    )
    with pytest.raises(BufferExhausted):
        producer.send_batch(rows(2000, 300), topic="t")
    assert client(producer, "buffer-exhausted-total") == 1
    assert client(producer, "bufferpool-wait-time-ns-total") > 0
    assert client(producer, "record-error-total") == 1
    assert client(producer, "buffer-available-bytes") < 65536


def test_an_interval_belongs_to_one_task_alone(broker: LocalBroker) -> None:
    with producer_to(broker) as producer:
        intervals = []
        for count in (300, 20):
            parts_of(producer).meter.start_interval()
            producer.send_batch(rows(count), topic="t")
            producer.flush()
            intervals.append(parts_of(producer).meter.interval().snapshot())
        assert [taken.value(OWN, "record-delivered-total") for taken in intervals] == [300, 20]
        assert [taken.value(TOPIC, "record-send-total", "t") for taken in intervals] == [300, 20]
        assert intervals[1].value(CLIENT, "connection-creation-total") == 0
        assert intervals[1].value(CLIENT, "connection-count") > 0
        assert intervals[0].client_id == "me"
        assert client(producer, "record-delivered-total", OWN) == 320


def test_the_windows_are_those_of_the_configuration(broker: LocalBroker) -> None:
    with producer_to(broker, metrics_sample_window_ms=1, metrics_num_samples=1) as producer:
        producer.send_batch(rows(), topic="t")
        producer.flush()
        wait_until(lambda: math.isnan(client(producer, "batch-size-avg")), "the window is over")
        assert client(producer, "record-send-total") == ROWS


@pytest.mark.covers("MP1")
def test_the_double_returns_the_metrics_that_a_test_sets() -> None:
    mock = MockProducer()
    assert mock.metrics() == {}
    mock.mock_metrics = {(CLIENT, "record-send-total", ()): 1.0}
    assert mock.metrics() == {(CLIENT, "record-send-total", ()): 1.0}
