"""Transactions of our producer through a proxy that loses requests and answers, and that brings an old request again.

Whatever is lost, readers of committed records see each row of each committed transaction once, and none of the others.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from random import Random

import pytest

from spark_producer import Producer
from spark_producer.common.cluster import TransactionVersion
from spark_producer.errors import PyProducerError
from spark_producer.producer import parts_of
from spark_producer.protocol import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    AnyApi,
)
from tests.conftest import BROKERS, ProxiedBroker
from tests.support.campaigns import sample_and_campaign
from tests.support.read_back import read_topic

IN_TRANSACTIONS: tuple[AnyApi, ...] = (ADD_PARTITIONS_TO_TXN, PRODUCE, ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, END_TXN)
APIS: tuple[AnyApi, ...] = (FIND_COORDINATOR, INIT_PRODUCER_ID, *IN_TRANSACTIONS)
PARTITIONS = 2

pytestmark = pytest.mark.parametrize("proxied", BROKERS, indirect=True)


@pytest.fixture
def producer(proxied: ProxiedBroker, topic: str) -> Iterator[Producer]:
    """A transactional producer that tries again soon, and the topic."""
    proxied.create_topic(topic, PARTITIONS)
    options = {
        "bootstrap.servers": proxied.bootstrap_servers,
        "transactional.id": f"cut-{uuid.uuid4()}",
        "linger.ms": 0,
        "request.timeout.ms": 500,
        "retry.backoff.ms": 5,
        "retry.backoff.max.ms": 50,
        "reconnect.backoff.ms": 5,
        "reconnect.backoff.max.ms": 50,
    }
    made = Producer(options)
    yield made
    proxied.proxy.heal()
    made.close()


def write(producer: Producer, topic: str, *values: str) -> None:
    for value in values:
        for partition in range(PARTITIONS):
            producer.send(topic, value, partition=partition)
    producer.flush()


def committed(proxied: ProxiedBroker, topic: str) -> list[list[str]]:
    """Return the committed records by partition."""
    proxied.proxy.heal()
    rows = read_topic(proxied.bootstrap_servers, topic, client="confluent", isolation="read_committed")
    return [[(row.value or b"").decode() for row in rows if row.partition == number] for number in range(PARTITIONS)]


@pytest.mark.parametrize("what", ["request", "answer", "answer alone"])
def test_what_is_lost_once_is_asked_again(proxied: ProxiedBroker, producer: Producer, topic: str, what: str) -> None:
    """Cuts for each API in turn: the request with its connection, the response with its connection, or only the response."""
    lose = {
        "request": proxied.proxy.lose_request,
        "answer": proxied.proxy.lose_response,
        "answer alone": proxied.proxy.drop_response,
    }[what]
    group = f"g-{uuid.uuid4()}"
    lose(FIND_COORDINATOR.key)
    lose(INIT_PRODUCER_ID.key)
    producer.init_transactions()
    assert proxied.proxy.waiting_faults() == {}
    for number, api in enumerate(IN_TRANSACTIONS):
        for outcome in ("commit", "abort"):
            lose(api.key)
            producer.begin_transaction()
            write(producer, topic, f"{api.name}, {outcome}")
            producer.send_offsets_to_transaction({(topic, 0): number}, group)
            if outcome == "commit":
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            # with transaction.version 2 two of the requests are not needed
            assert proxied.proxy.waiting_faults().keys() <= {ADD_PARTITIONS_TO_TXN.key, ADD_OFFSETS_TO_TXN.key}
    assert committed(proxied, topic) == [[f"{api.name}, commit" for api in IN_TRANSACTIONS]] * PARTITIONS


@pytest.mark.parametrize("seed", sample_and_campaign(range(10)))
def test_random_cuts_leave_every_committed_row_once(
    proxied: ProxiedBroker, producer: Producer, topic: str, seed: int
) -> None:
    random = Random(seed)
    producer.init_transactions()
    expected = []
    for api in APIS:
        proxied.proxy.cut_at_random(api.key, 0.2, seed=random.randrange(1 << 30))
    for number in range(25):
        producer.begin_transaction()
        values = [f"{number} {row}" for row in range(random.randrange(1, 4))]
        write(producer, topic, *values)
        if random.random() < 0.3:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += values
    assert committed(proxied, topic) == [expected] * PARTITIONS


def test_an_end_that_comes_late_ends_no_other_transaction(
    proxied: ProxiedBroker, producer: Producer, topic: str
) -> None:
    """KAFKA-17754: with transaction.version 2 it is refused. Before, it ends the transaction, and the producer fails."""
    proxied.proxy.copy_requests(END_TXN.key)
    producer.init_transactions()
    producer.begin_transaction()
    write(producer, topic, "first")
    producer.commit_transaction()
    (late,) = proxied.proxy.copies[END_TXN.key]
    producer.begin_transaction()
    write(producer, topic, "second")
    proxied.proxy.send_again(late)
    if late[7] >= 5:
        producer.abort_transaction()
        assert committed(proxied, topic) == [["first"]] * PARTITIONS
    else:
        with pytest.raises(PyProducerError, match="INVALID_TXN_STATE"):
            producer.abort_transaction()
        assert committed(proxied, topic) == [["first", "second"]] * PARTITIONS


def test_an_end_that_comes_late_does_not_touch_what_was_held(
    proxied: ProxiedBroker, producer: Producer, topic: str
) -> None:
    """Each deferred transaction has an epoch of its own, so the late end finds a newer one with all brokers."""
    transactions = parts_of(producer).transactions
    assert transactions is not None
    proxied.proxy.copy_requests(END_TXN.key)
    late: bytes | None = None
    for number in range(3):
        transactions.begin_deferred()
        for partition in range(PARTITIONS):
            producer.send(topic, f"aborted {number}", partition=partition)
        prepared = transactions.prepare()
        assert prepared.transaction_version in TransactionVersion
        if late is not None:
            proxied.proxy.send_again(late)
        assert transactions.try_abort()
        late = proxied.proxy.copies[END_TXN.key][-1]
    assert committed(proxied, topic) == [[]] * PARTITIONS
