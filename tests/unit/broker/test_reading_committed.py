"""Fetch and ListOffsets of transactions with both isolation levels, as steps without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, TopicSettings
from spark_producer.broker.context import Context
from spark_producer.broker.log.partition import Partition
from spark_producer.broker.requests import fetch
from spark_producer.broker.requests.fetch import ABORTED_COST, READ_COMMITTED
from spark_producer.broker.requests.list_offsets import MAX_TIMESTAMP
from spark_producer.broker.settings import STORAGE_ENGINES
from spark_producer.broker.topic_store import TopicStore
from spark_producer.common.offsets import EARLIEST, LATEST
from spark_producer.protocol import FETCH, LIST_OFFSETS, messages
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, batches
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask, context_of

BATCH = 100
MARKER = 78


@pytest.fixture(params=STORAGE_ENGINES)
def context(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Context]:
    settings = BrokerSettings(storage_engine=request.param, topic=TopicSettings())
    store = TopicStore(tmp_path, settings)
    store.create("t", 1)
    yield context_of(store, settings)
    store.close()


@pytest.fixture
def partition(context: Context) -> Partition:
    return context.topics.partition("t", 0)


def row(producer_id: int, sequence: int = 0, *, timestamp: int = 1000) -> memoryview:
    return make_batch(
        producer_id=producer_id, epoch=0, sequence=sequence, attributes=TRANSACTIONAL_BIT, timestamp=timestamp
    )


def fetch_request(
    offset: int, isolation: int, max_bytes: int = 1 << 20, min_bytes: int = 1, max_wait_ms: int = 0
) -> messages.FetchRequest:
    wanted = messages.FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return messages.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        isolation_level=isolation,
        topics=(messages.FetchTopic("t", partitions=(wanted,)),),
    )


def fetched(
    context: Context, offset: int, isolation: int = READ_COMMITTED, max_bytes: int = 1 << 20
) -> messages.FetchPartitionResponse:
    return ask(context, FETCH, fetch_request(offset, isolation, max_bytes)).responses[0].partitions[0]


def offsets(response: messages.FetchPartitionResponse) -> list[int]:
    """The base offsets of the batches in a response that was not encoded."""
    assert isinstance(response.records, bytes)
    return [header.base_offset for header, _ in batches(response.records)]


def aborted(response: messages.FetchPartitionResponse) -> list[tuple[int, int]]:
    """(producer id, first offset) of each, in the order of the response."""
    assert response.aborted_transactions is not None
    return [(each.producer_id, each.first_offset) for each in response.aborted_transactions]


def listed(context: Context, timestamp: int, isolation: int) -> int:
    wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=timestamp),))
    body = ask(context, LIST_OFFSETS, messages.ListOffsetsRequest(isolation_level=isolation, topics=(wanted,)))
    return body.topics[0].partitions[0].offset


def test_committed_reading_ends_at_the_last_stable_offset(context: Context, partition: Partition) -> None:
    partition.append(make_batch())
    partition.append(row(1))
    partition.append(make_batch())
    response = fetched(context, 0)
    assert (offsets(response), response.last_stable_offset, response.high_watermark) == ([0], 1, 3)
    assert offsets(fetched(context, 1)) == []
    assert offsets(fetched(context, 3)) == []
    everything = fetched(context, 0, isolation=0)
    assert (offsets(everything), everything.last_stable_offset) == ([0, 1, 2], 1)
    assert everything.aborted_transactions is None
    partition.write_marker(1, 0, True, 0)
    assert offsets(fetched(context, 0)) == [0, 1, 2, 3], "with the marker"
    assert offsets(fetched(context, 0, isolation=0)) == [0, 1, 2, 3]


def test_aborted_transactions_come_with_their_batches(context: Context, partition: Partition) -> None:
    for producer_id in range(1, 40):
        partition.append(row(producer_id))
        partition.write_marker(producer_id, 0, False, 0)
    partition.append(make_batch())
    assert aborted(fetched(context, 0)) == [(number, 2 * number - 2) for number in range(1, 40)]
    assert aborted(fetched(context, 1, max_bytes=1))[:1] == [(1, 0)], "its marker is read"
    assert aborted(fetched(context, 76)) == aborted(fetched(context, 77)) == [(39, 76)]
    assert aborted(fetched(context, 78)) == []
    assert aborted(fetched(context, 79)) == []
    partition.append(row(50))
    partition.append(row(51))
    partition.write_marker(51, 0, False, 0)
    assert aborted(fetched(context, 79)) == [], "nothing is read there yet"


def test_one_page_of_many_aborted_transactions_does_not_name_them_all(context: Context, partition: Partition) -> None:
    for producer_id in range(2000):
        partition.append(row(producer_id))
        partition.write_marker(producer_id, 0, False, 0)
    response = fetched(context, 2000, max_bytes=10_000)
    named = aborted(response)
    assert set(named) >= {(offset // 2, offset) for offset in offsets(response) if offset % 2 == 0}
    assert len(named) < 10_000 // (BATCH + MARKER) + 4096 // (BATCH + MARKER) + 3


def test_aborted_transactions_count_as_bytes_of_the_response(context: Context, partition: Partition) -> None:
    """Otherwise the response for many such partitions would have no limit."""
    for producer_id in range(100):
        partition.append(row(producer_id))
    for producer_id in range(100):
        partition.write_marker(producer_id, 0, False, 0)
    context.topics.create("u", 1).partitions[0].append(make_batch())
    both = tuple(
        messages.FetchTopic(
            topic, partitions=(messages.FetchPartition(0, fetch_offset=offset, partition_max_bytes=BATCH),)
        )
        for topic, offset in (("t", 99), ("u", 0))
    )

    def read(max_bytes: int) -> list[int]:
        request = messages.FetchRequest(max_bytes=max_bytes, isolation_level=READ_COMMITTED, topics=both)
        rows = [topic.partitions[0] for topic in ask(context, FETCH, request).responses]
        return [len(row.records) for row in rows if isinstance(row.records, bytes)]

    assert read(2 * BATCH + 100 * ABORTED_COST) == [BATCH, BATCH]
    assert read(100 * ABORTED_COST) == [BATCH, 0]


def test_a_fetch_waits_for_the_marker_and_counts_only_what_it_may_see(context: Context, partition: Partition) -> None:
    partition.append(row(1))
    partition.append(make_batch(size=500))

    def waits(offset: int, isolation: int, min_bytes: int) -> bool:
        return fetch.must_wait(context, fetch_request(offset, isolation, min_bytes=min_bytes, max_wait_ms=500))

    assert waits(0, READ_COMMITTED, 1)
    assert waits(1, READ_COMMITTED, 1)
    assert not waits(0, 0, BATCH + 500)
    partition.write_marker(1, 0, True, 0)
    assert not waits(0, READ_COMMITTED, BATCH + 500 + MARKER)
    assert waits(0, READ_COMMITTED, BATCH + 500 + MARKER + 1)


def test_listed_offsets_end_at_the_last_stable_offset(context: Context, partition: Partition) -> None:
    partition.append(make_batch(timestamp=1000))
    partition.append(row(1, timestamp=5000))
    table = {
        LATEST: (2, 1),
        EARLIEST: (0, 0),
        MAX_TIMESTAMP: (1, -1),
        1000: (0, 0),
        1001: (1, -1),
    }
    assert {each: (listed(context, each, 0), listed(context, each, READ_COMMITTED)) for each in table} == table
    partition.write_marker(1, 0, False, 0, now_ms=5001)
    assert listed(context, LATEST, READ_COMMITTED) == 3
