"""The broker as a whole on another engine than its own: nothing above `storage/base.py` knows which one it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from spark_producer.common.error_codes import Code
from spark_producer.protocol import FETCH, LIST_OFFSETS, PRODUCE, decoded_records, messages
from tests.fakes.memory_storage import MemoryStorage
from tests.fakes.raw_client import RawClient
from tests.interop.broker_records import assert_holds, read, records_of_every_kind, write
from tests.unit.broker.batches import make_batch
from tests.unit.broker.connections.test_lifecycle import FOREVER, fetch
from tests.unit.broker.unconfirmed_broker import UnconfirmedBroker, produce, results


@pytest.fixture
def late(tmp_path: Path) -> Iterator[UnconfirmedBroker]:
    made = UnconfirmedBroker(tmp_path)
    yield made
    made.close()


def test_kafka_python_writes_and_reads_on_an_engine_in_memory(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, open_storage=MemoryStorage) as broker:
        broker.create_topic("t", 3)
        records = records_of_every_kind(3, writer="kafka-python")
        write("kafka-python", broker.bootstrap_servers, "t", records)
        assert_holds(read("kafka-python", broker.bootstrap_servers, "t"), records)
    assert not list(tmp_path.rglob("*.log")), "no file of the other engine"


def test_another_thread_confirms_what_a_whole_broker_was_asked_to_write(tmp_path: Path) -> None:
    engines: list[MemoryStorage] = []

    def opened(path: Path, settings: BrokerSettings) -> MemoryStorage:
        engines.append(MemoryStorage(path, settings, confirms_at_once=False))
        return engines[0]

    with LocalBroker(tmp_path, open_storage=opened) as broker, RawClient(broker.port) as client:
        broker.create_topic("t", 1)
        sent = client.send(PRODUCE, produce(0, timeout_ms=FOREVER))
        with RawClient(broker.port) as other:
            for earlier in range(10_000):  # until the batch that waits was admitted, which takes two offsets
                if other.ask(PRODUCE, one_record()).responses[0].partition_responses[0].base_offset != earlier:
                    break
            wanted = messages.ListOffsetsTopic("t", (messages.ListOffsetsPartition(0, timestamp=-1),))
            answer = other.ask(LIST_OFFSETS, messages.ListOffsetsRequest(topics=(wanted,)))
            assert answer.topics[0].partitions[0].offset == 0
            engines[0].confirm_all()
            number, response = client.receive(PRODUCE)
    assert (number, response.responses[0].partition_responses[0].base_offset) == (sent, earlier)


def one_record() -> messages.ProduceRequest:
    """Produce without an idempotent producer, answered before it is confirmed."""
    data = (messages.ProducePartition(0, make_batch(1)),)
    return messages.ProduceRequest(acks=1, topic_data=(messages.ProduceTopic("t", partition_data=data),))


def test_a_produce_with_acks_all_is_answered_when_all_of_its_batches_are_confirmed(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0, 1))
    late.broker.turns()
    assert not late.producer.has_response()
    assert late.broker.clients.budget.unconfirmed.amount > 0
    late.storage.logs["t", 0].confirmed = 1
    late.broker.clients.changed(("t", 0))
    late.broker.turns()
    assert not late.producer.has_response(), "the other partition's is not confirmed"
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0), (Code.NONE, 0)]
    assert late.broker.clients.budget.held == 0


def test_a_produce_with_acks_1_does_not_wait(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0, acks=1))
    assert results(late.producer) == [(Code.NONE, 0)]


def test_a_waiting_produce_keeps_other_clients_going_and_its_own_requests_in_order(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0))
    late.producer.ask(PRODUCE, produce(0, sequence=2))
    late.consumer.ask(FETCH, fetch())
    assert late.consumer.response(FETCH).responses[0].partitions[0].records == b""
    late.broker.turns()
    late.storage.confirm_all()
    assert results(late.producer) == [(Code.NONE, 0)]
    assert results(late.producer) == [(Code.NONE, 2)]


def test_a_fetch_waits_until_what_it_would_read_is_confirmed(late: UnconfirmedBroker) -> None:
    late.consumer.ask(FETCH, fetch(max_wait_ms=FOREVER))
    late.producer.ask(PRODUCE, produce(0))
    late.broker.turns()
    assert not late.consumer.has_response()
    late.storage.confirm_all()
    partition = late.consumer.response(FETCH).responses[0].partitions[0]
    assert (len(decoded_records(partition.records) or b""), partition.high_watermark) == (100, 2)


def test_a_repeated_batch_is_answered_no_sooner_than_the_first(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0))
    late.broker.turns()
    late.consumer.ask(PRODUCE, produce(0))
    late.broker.turns()
    assert not late.consumer.has_response()
    late.storage.confirm_all()
    assert results(late.producer) == results(late.consumer) == [(Code.NONE, 0)]
    assert len(late.storage.logs["t", 0].batches) == 1


def test_a_batch_that_is_not_confirmed_in_time_is_timed_out_and_the_repetition_gets_its_offset(
    late: UnconfirmedBroker,
) -> None:
    late.producer.ask(PRODUCE, produce(0, 1, timeout_ms=1000))
    late.broker.turns()
    late.storage.logs["t", 0].confirmed = 1
    late.broker.now += 1.0
    assert results(late.producer) == [(Code.NONE, 0), (Code.REQUEST_TIMED_OUT, -1)]
    late.storage.confirm_all()
    late.producer.ask(PRODUCE, produce(1))
    assert results(late.producer) == [(Code.NONE, 0)]


def test_a_journal_that_fails_refuses_what_waits_for_it(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0))
    late.broker.turns()
    late.storage.fail()
    assert results(late.producer) == [(Code.KAFKA_STORAGE_ERROR, -1)]


def test_a_topic_that_is_deleted_meanwhile_ends_all_waits(late: UnconfirmedBroker) -> None:
    late.producer.ask(PRODUCE, produce(0))
    late.broker.turns()
    late.broker.store.delete("t")
    late.broker.clients.changed(("t", 0))
    assert results(late.producer) == [(Code.UNKNOWN_TOPIC_OR_PARTITION, -1)]
