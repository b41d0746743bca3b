"""DescribeProducers and WriteTxnMarkers, as steps without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings
from spark_producer.broker.context import Context
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.requests.producers import MAX_DESCRIBED_PRODUCERS, MAX_MARKERS
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.error_codes import Code
from spark_producer.protocol import DESCRIBE_PRODUCERS, WRITE_TXN_MARKERS, messages
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.fakes.memory_storage import MemoryStorage
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask, context_of, handled


@pytest.fixture(params=STORAGE_ENGINES)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    settings = BrokerSettings(storage_engine=request.param)
    store = TopicStore(tmp_path, settings)
    store.create("t", 2)
    yield context_of(store, settings)
    store.close()


@pytest.fixture
def partition(context: Context) -> Partition:
    return context.topics.partition("t", 0)


def row(producer_id: int, sequence: int, epoch: int = 0, *, timestamp: int = 1000) -> memoryview:
    return make_batch(
        producer_id=producer_id, epoch=epoch, sequence=sequence, attributes=TRANSACTIONAL_BIT, timestamp=timestamp
    )


def described(context: Context, *indexes: int, topic: str = "t") -> list[messages.DescribeProducersPartition]:
    request = messages.DescribeProducersRequest((messages.DescribeProducersTopic(topic, indexes),))
    return list(ask(context, DESCRIBE_PRODUCERS, request).topics[0].partitions)


def markers(
    *indexes: int, epoch: int = 0, commit: bool = True, coordinator_epoch: int = 3
) -> messages.WriteTxnMarkersRequest:
    topics = (messages.WritableTxnMarkerTopic("t", indexes),)
    return messages.WriteTxnMarkersRequest((messages.WritableTxnMarker(7, epoch, commit, topics, coordinator_epoch),))


def codes(response: messages.WriteTxnMarkersResponse) -> list[int]:
    return [result.error_code for result in response.markers[0].topics[0].partitions]


def test_producers_are_described_with_their_open_transactions(context: Context, partition: Partition) -> None:
    partition.append(make_batch(2, producer_id=5, epoch=1, sequence=0, timestamp=900))
    partition.append(row(7, 0, timestamp=1001))
    partition.append(row(7, 1, timestamp=1002))
    (found,) = described(context, 0)
    assert found == messages.DescribeProducersPartition(
        0,
        Code.NONE,
        None,
        (messages.ActiveProducer(5, 1, 1, 900, -1, -1), messages.ActiveProducer(7, 0, 1, 1002, -1, 2)),
    )
    assert described(context, 1)[0].active_producers == ()


def test_a_marker_of_an_administrator_ends_the_transaction_and_wakes_readers(
    context: Context, partition: Partition
) -> None:
    partition.append(row(7, 0))
    response = handled(context, WRITE_TXN_MARKERS, markers(0, 1, 2))
    assert response.body is not None
    assert codes(response.body) == [Code.NONE, Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert response.changed == (("t", 0), ("t", 1))
    assert partition.last_stable_offset == 2
    assert partition.aborted_transactions(0, 1) == []
    (producer,) = described(context, 0)[0].active_producers
    assert (producer.last_sequence, producer.coordinator_epoch, producer.current_txn_start_offset) == (0, 3, -1)
    assert producer.last_timestamp > 1000, "that of the marker"


@pytest.mark.parametrize(
    ("then", "code"), [("confirm_all", Code.NONE), ("fail", Code.KAFKA_STORAGE_ERROR), ("", Code.REQUEST_TIMED_OUT)]
)
def test_a_marker_of_an_administrator_is_acknowledged_when_it_is_confirmed(
    tmp_path: Path, then: str, code: Code
) -> None:
    """Otherwise a crash would open the transaction again after the administrator's request has succeeded."""
    settings = BrokerSettings()
    storage = MemoryStorage(tmp_path, settings, confirms_at_once=False)
    store = TopicStore(tmp_path, settings, lambda *_: storage)
    store.create("t", 2)
    context = context_of(store, settings)
    store.partition("t", 0).append(row(7, 0))
    response = handled(context, WRITE_TXN_MARKERS, markers(0, 1, 2))
    assert response.body is None
    assert response.deferred is not None
    assert response.changed == response.deferred.keys == (("t", 0), ("t", 1))
    assert not response.deferred.is_ready()
    if then:
        getattr(storage, then)()
    assert response.deferred.is_ready() == bool(then)
    assert codes(response.deferred.response(0)) == [code, code, Code.UNKNOWN_TOPIC_OR_PARTITION]
    store.close()


def test_markers_of_an_administrator_are_judged_as_others(context: Context, partition: Partition) -> None:
    partition.append(row(7, 0, epoch=4))
    assert codes(ask(context, WRITE_TXN_MARKERS, markers(0, epoch=3))) == [Code.INVALID_PRODUCER_EPOCH]
    assert codes(ask(context, WRITE_TXN_MARKERS, markers(0, epoch=5, commit=False))) == [Code.NONE]
    late = markers(0, epoch=5, coordinator_epoch=2)
    assert codes(ask(context, WRITE_TXN_MARKERS, late)) == [Code.TRANSACTION_COORDINATOR_FENCED]
    assert [each.producer_id for each in partition.aborted_transactions(0, 5)] == [7]


def test_partitions_that_do_not_exist_are_named_with_the_reason(context: Context) -> None:
    (found,) = described(context, 0, topic="nothing")
    assert (found.error_code, found.active_producers) == (Code.UNKNOWN_TOPIC_OR_PARTITION, ())
    assert "nothing" in (found.error_message or "")


def test_a_small_request_has_no_endless_work(context: Context, partition: Partition) -> None:
    found = codes(ask(context, WRITE_TXN_MARKERS, markers(*[0] * (MAX_MARKERS + 5))))
    assert (found.count(Code.NONE), found[MAX_MARKERS:]) == (MAX_MARKERS, [Code.REQUEST_TIMED_OUT] * 5)
    for producer_id in range(1000):
        partition.append(make_batch(producer_id=producer_id, epoch=9, sequence=0))
    each = partition.producer_count
    response = described(context, *[0] * (MAX_DESCRIBED_PRODUCERS // each + 3))
    assert sum(len(result.active_producers) for result in response) == MAX_DESCRIBED_PRODUCERS // each * each
    assert [result.error_code for result in response[-3:]] == [Code.REQUEST_TIMED_OUT] * 3
