"""Transactions by requests to the broker's handlers, without a socket: what a producer sends, with either transaction version."""

from spark_producer.broker.context import Context
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    PRODUCE,
    messages,
)
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.unit.broker.batches import make_batch
from tests.unit.broker.handler_calls import ask

EXPLICIT, IMPLICIT = 1, 2
NEWEST_END = {EXPLICIT: 4, IMPLICIT: 5}
NEWEST_PRODUCE = {EXPLICIT: 11, IMPLICIT: 12}
BATCH, MARKER = 100, 78
"""The bytes of a batch that is produced here, and of a marker."""


def initialize(
    context: Context,
    transactional_id: str = "id",
    *,
    timeout_ms: int = 60_000,
    expected: tuple[int, int] = (-1, -1),
    version: int | None = None,
) -> tuple[int, int, int]:
    """(error code, producer id, epoch)."""
    response = ask(
        context,
        INIT_PRODUCER_ID,
        messages.InitProducerIdRequest(transactional_id, timeout_ms, *expected),
        version,
    )
    return response.error_code, response.producer_id, response.producer_epoch


def add(
    context: Context,
    producer: tuple[int, int],
    *partitions: tuple[str, int],
    transactional_id: str = "id",
    version: int | None = None,
) -> dict[tuple[str, int], int]:
    """Partition → error code."""
    topics = tuple(messages.AddPartitionsToTxnTopic(name, (index,)) for name, index in partitions)
    request = messages.AddPartitionsToTxnRequest(transactional_id, *producer, topics)
    response = ask(context, ADD_PARTITIONS_TO_TXN, request, version)
    return {
        (topic.name, row.partition_index): row.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }


def write(
    context: Context,
    producer: tuple[int, int],
    partition: tuple[str, int] = ("t", 0),
    *,
    transactional_id: str | None = "id",
    sequence: int = 0,
    version: int = 12,
    transactional: bool = True,
) -> int:
    """Produce one row; its error code."""
    topic, index = partition
    batch = make_batch(
        1,
        size=BATCH,
        producer_id=producer[0],
        epoch=producer[1],
        sequence=sequence,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
    )
    rows = (messages.ProduceTopic(topic, partition_data=(messages.ProducePartition(index, batch),)),)
    response = ask(context, PRODUCE, messages.ProduceRequest(transactional_id, -1, 1000, rows), version)
    return response.responses[0].partition_responses[0].error_code


def end(
    context: Context,
    producer: tuple[int, int],
    *,
    commit: bool = True,
    txn_version: int = IMPLICIT,
    transactional_id: str = "id",
    version: int | None = None,
) -> tuple[int, int, int]:
    """(error code, producer id, epoch)."""
    request = messages.EndTxnRequest(transactional_id, *producer, commit)
    response = ask(context, END_TXN, request, NEWEST_END[txn_version] if version is None else version)
    return response.error_code, response.producer_id, response.producer_epoch


def begin(context: Context, producer: tuple[int, int], txn_version: int, *partitions: tuple[str, int]) -> None:
    """Write one row to each partition, in a transaction that stays open."""
    if txn_version == EXPLICIT:
        assert set(add(context, producer, *partitions).values()) == {Code.NONE}
    for partition in partitions:
        assert write(context, producer, partition, version=NEWEST_PRODUCE[txn_version]) == Code.NONE


def state(context: Context, transactional_id: str = "id") -> messages.DescribedTransaction:
    request = messages.DescribeTransactionsRequest((transactional_id,))
    return ask(context, DESCRIBE_TRANSACTIONS, request).transaction_states[0]


def committed(context: Context, partition: tuple[str, int] = ("t", 0)) -> tuple[int, int, int]:
    """Return a committed read: (bytes, end of the readable records, aborted transactions)."""
    topic, index = partition
    wanted = messages.FetchTopic(
        topic, partitions=(messages.FetchPartition(index, fetch_offset=0, partition_max_bytes=100_000),)
    )
    response = ask(context, FETCH, messages.FetchRequest(max_bytes=100_000, isolation_level=1, topics=(wanted,)))
    row = response.responses[0].partitions[0]
    assert row.error_code == Code.NONE
    assert isinstance(row.records, memoryview | bytes)
    return len(row.records), row.last_stable_offset, len(row.aborted_transactions or ())
