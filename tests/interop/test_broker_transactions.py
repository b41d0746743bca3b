"""Transactions in the logs of the embedded broker, as foreign consumers read them."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer, TopicPartition

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.error_codes import Code
from spark_producer.protocol import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    WRITE_TXN_MARKERS,
    messages,
)
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT
from tests.fakes.raw_client import RawClient
from tests.interop.broker_records import CLIENTS, SECONDS
from tests.support.read_back import Client, read_topic
from tests.support.read_confluent import count_rows
from tests.unit.broker.batches import make_record, sealed
from tests.unit.broker.partition_writer import write_transactions

COMMITTED = [b"plain 1", b"committed 1", b"committed 2", b"committed 3", b"plain 2", b"committed 4"]
OPEN_PRODUCER = 1


@pytest.fixture
def local(tmp_path: Path, engine_of_the_kit: str) -> Iterator[LocalBroker]:
    """A broker that finds transactions in its data directory."""
    write_transactions(tmp_path, "t", BrokerSettings(storage_engine=engine_of_the_kit))
    with LocalBroker(tmp_path) as broker:
        yield broker


@pytest.mark.parametrize("reader", CLIENTS)
def test_readers_see_committed_rows_in_order_up_to_the_open_transaction(local: LocalBroker, reader: Client) -> None:
    rows = read_topic(local.bootstrap_servers, "t", client=reader, isolation="read_committed")
    assert [row.value for row in rows] == COMMITTED


@pytest.mark.parametrize("reader", CLIENTS)
def test_readers_of_everything_see_what_is_open_and_aborted_too(local: LocalBroker, reader: Client) -> None:
    rows = read_topic(local.bootstrap_servers, "t", client=reader)
    assert len(rows) == len(COMMITTED) + 4
    assert {row.value for row in rows} > {*COMMITTED, b"aborted 1", b"aborted 2", b"open"}


def test_the_count_of_committed_rows_has_no_markers_and_no_aborted_rows_in_it(local: LocalBroker) -> None:
    assert count_rows(local.bootstrap_servers, "t", transactional=True) == len(COMMITTED)
    assert count_rows(local.bootstrap_servers, "t", transactional=False) > len(COMMITTED) + 4


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("reader", CLIENTS)
def test_a_reader_that_waits_goes_on_when_a_marker_comes(local: LocalBroker, reader: Client, commit: bool) -> None:
    with reading(reader, local.bootstrap_servers) as take:
        assert [take() for _ in COMMITTED] == COMMITTED
        topics = (messages.WritableTxnMarkerTopic("t", (0,)),)
        marker = messages.WritableTxnMarker(OPEN_PRODUCER, 0, commit, topics, 0)
        with RawClient(local.port) as client:
            client.ask(WRITE_TXN_MARKERS, messages.WriteTxnMarkersRequest((marker,)))
        after = [b"open"] * commit + [b"plain 3, after the open transaction"]
        assert [take() for _ in after] == after


@contextmanager
def reading(reader: Client, bootstrap: str) -> Iterator[Callable[[], bytes]]:
    """A consumer that has begun at the start of the topic; what is yielded takes its next value, or raises TimeoutError."""
    consumer: Any
    if reader == "confluent":
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([Place("t", 0, 0)])
    else:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        consumer.assign([TopicPartition("t", 0)])

    def values() -> Iterator[bytes]:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if reader == "confluent":
                message = consumer.poll(0.2)
                if message is not None:
                    assert message.error() is None
                    yield message.value()
            else:
                found = consumer.poll(timeout_ms=200).values()
                yield from (record.value for record in itertools.chain.from_iterable(found))
        raise TimeoutError(f"no record within {SECONDS} s")

    taken = values()
    try:
        yield lambda: next(taken)
    finally:
        consumer.close()


class Transacting:
    """A producer that makes its transactions by raw requests, with the transaction version of Kafka 3.9 (explicit) or of 4
    (KIP-890).

    It asks again while the transaction before is not complete, as clients do: EndTxn is answered before its markers are there.
    """

    def __init__(self, client: RawClient, name: str, *, explicit: bool) -> None:
        self._client = client
        self._name = name
        self._explicit = explicit
        answer = client.ask(INIT_PRODUCER_ID, messages.InitProducerIdRequest(name, 60_000))
        self._holder = (answer.producer_id, answer.producer_epoch)
        self._sequences: Counter[int] = Counter()

    def write(self, partition: int, value: bytes) -> tuple[int, int]:
        """Write one row; return error code and offset."""
        if self._explicit:
            self._when_complete(lambda: (self._add(partition), 0))
        batch = sealed(
            make_record(0, b"k", value),
            1,
            producer_id=self._holder[0],
            epoch=self._holder[1],
            sequence=self._sequences[partition],
            attributes=TRANSACTIONAL_BIT,
        )
        self._sequences[partition] += 1
        data = (messages.ProduceTopic("t", partition_data=(messages.ProducePartition(partition, batch),)),)
        return self._when_complete(lambda: self._produce(messages.ProduceRequest(self._name, -1, 10_000, data)))

    def _add(self, partition: int) -> int:
        topics = (messages.AddPartitionsToTxnTopic("t", (partition,)),)
        request = messages.AddPartitionsToTxnRequest(self._name, *self._holder, topics)
        answer = self._client.ask(ADD_PARTITIONS_TO_TXN, request)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def _produce(self, request: messages.ProduceRequest) -> tuple[int, int]:
        answer = self._client.ask(PRODUCE, request, 11 if self._explicit else 12)
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset

    @staticmethod
    def _when_complete(ask: Callable[[], tuple[int, int]]) -> tuple[int, int]:
        """Ask until the answer is not CONCURRENT_TRANSACTIONS; return it."""
        deadline = time.monotonic() + SECONDS
        while True:
            error, offset = ask()
            if error != Code.CONCURRENT_TRANSACTIONS or time.monotonic() > deadline:
                return error, offset

    def end(self, *, commit: bool) -> int:
        """Commit or abort; return the error code."""
        request = messages.EndTxnRequest(self._name, *self._holder, commit)
        answer = self._client.ask(END_TXN, request, 4 if self._explicit else 5)
        if not self._explicit:
            self._holder = (answer.producer_id, answer.producer_epoch)
            self._sequences.clear()
        return answer.error_code


def test_interleaved_transactions_of_raw_requests_are_read_as_committed_in_both_lives_of_the_broker(
    tmp_path: Path,
) -> None:
    rng = random.Random(15)
    committed: list[tuple[int, int, bytes]] = []
    with LocalBroker(tmp_path) as broker, RawClient(broker.port) as client:
        broker.create_topic("t", 2)
        producers = [Transacting(client, f"id {number}", explicit=number % 2 == 0) for number in range(4)]
        rows: dict[Transacting, list[tuple[int, int, bytes]]] = {each: [] for each in producers}
        for number in range(300):
            who = rng.choice(producers)
            if rows[who] and rng.random() < 0.3:
                commit = rng.random() < 0.5
                assert who.end(commit=commit) == 0
                committed += rows[who] if commit else []
                rows[who] = []
            else:
                partition, value = rng.randrange(2), b"%d" % number
                error, offset = who.write(partition, value)
                assert error == 0
                rows[who].append((partition, offset, value))
        for who in producers:
            assert not rows[who] or who.end(commit=False) == 0
        seen = [seen_by(reader, broker.bootstrap_servers) for reader in CLIENTS]
        assert seen == [sorted(committed)] * len(CLIENTS)
    with LocalBroker(tmp_path) as broker:
        assert [seen_by(reader, broker.bootstrap_servers) for reader in CLIENTS] == seen


def seen_by(reader: Client, bootstrap: str) -> list[tuple[int, int, bytes | None]]:
    """(partition, offset, value) of every row that a reader of committed records sees."""
    rows = read_topic(bootstrap, "t", client=reader, isolation="read_committed")
    return [(row.partition, row.offset, row.value) for row in rows]
