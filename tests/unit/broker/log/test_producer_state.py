"""Sequences, epochs and transactions of producers, as Kafka's ProducerAppendInfo judges them."""

import pytest

from spark_producer.broker.log.producer_state import MAX_PRODUCERS, ProducerStates
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import TRANSACTIONAL_BIT, BatchHeader, read_header
from spark_producer.record.control import EndMarker
from spark_producer.record.sequence_numbers import MAX_SEQUENCE
from tests.unit.broker.batches import make_batch


def header(sequence: int, records: int = 1, epoch: int = 0, producer_id: int = 7, base_offset: int = 0) -> BatchHeader:
    batch = make_batch(records, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return read_header(batch)._replace(base_offset=base_offset)


def refused(states: ProducerStates, batch: BatchHeader) -> int:
    with pytest.raises(BrokerError) as refusal:
        states.check(batch)
    return refusal.value.code


def filled(*batches: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    for batch in batches:
        assert states.check(batch) is None
        states.remember(batch)
    return states


def test_sequences_that_follow_are_accepted() -> None:
    states = filled(header(0, 3), header(3, 2), header(5))
    assert states.check(header(6)) is None


def test_batches_without_a_producer_id_have_no_state() -> None:
    plain = read_header(make_batch())
    assert filled(plain, plain).check(plain) is None


@pytest.mark.parametrize("sequence", [0, 4, 6, 100])
def test_a_gap_or_an_overlap_is_out_of_order(sequence: int) -> None:
    assert refused(filled(header(0, 5)), header(sequence)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised_the_sixth_last_is_not() -> None:
    sent = [header(sequence, base_offset=100 + sequence) for sequence in range(6)]
    states = filled(*sent)
    assert [states.check(again._replace(base_offset=0)) for again in sent[1:]] == [101, 102, 103, 104, 105]
    assert refused(states, sent[0]) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_must_have_the_same_last_sequence() -> None:
    assert refused(filled(header(0, 5)), header(0, 4)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_fenced_even_with_the_right_sequence() -> None:
    states = filled(header(0), header(0, epoch=2))
    assert refused(states, header(1, epoch=1)) == Code.INVALID_PRODUCER_EPOCH
    assert refused(states, header(0, epoch=0)) == Code.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_sequence_zero() -> None:
    states = filled(header(0), header(1))
    assert refused(states, header(2, epoch=1)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, epoch=1)) is None


def test_an_unknown_producer_may_start_anywhere() -> None:
    """Accepted, as in Kafka: the partition may have been deleted and recreated."""
    assert ProducerStates().check(header(9)) is None


def test_with_an_epoch_for_each_transaction_an_unknown_producer_begins_at_zero() -> None:
    """Rejected, as in Kafka since transaction.version 2: an earlier batch of the transaction must have been lost."""
    batch = make_batch(producer_id=7, epoch=0, sequence=5, attributes=TRANSACTIONAL_BIT)
    late = read_header(batch)
    with pytest.raises(BrokerError) as refusal:
        ProducerStates().check(late, new_epochs=True)
    assert refusal.value.code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert ProducerStates().check(late) is None
    assert ProducerStates().check(late._replace(base_sequence=0), new_epochs=True) is None


def test_sequences_wrap_to_zero() -> None:
    states = ProducerStates()
    states.remember(header(MAX_SEQUENCE - 4, 5))
    assert states.check(header(0)) is None
    states.remember(header(0, 3))
    assert states.check(header(3)) is None


def test_a_batch_may_span_the_wrap() -> None:
    states = ProducerStates()
    states.remember(header(MAX_SEQUENCE - 4, 10, base_offset=50))
    assert states.check(header(5)) is None
    assert states.check(header(MAX_SEQUENCE - 4, 10)) == 50


def test_producers_do_not_disturb_each_other() -> None:
    states = filled(header(0), header(0, producer_id=8), header(1))
    assert states.check(header(1, producer_id=8)) is None
    assert refused(states, header(2, producer_id=8)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_producer_that_was_silent_longest_is_forgotten_first() -> None:
    first, newest = header(0), MAX_PRODUCERS + 1
    states = filled(*(first._replace(producer_id=number) for number in range(1, newest)))
    states.remember(header(1, producer_id=1))
    states.remember(header(0, producer_id=newest))
    assert states.check(header(5, producer_id=2)) is None, "it is as good as new"
    assert refused(states, header(5, producer_id=1)) == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    going_on = [(2, 1), (1, 3), (1, newest)]
    assert [states.check(header(number, producer_id=who)) for number, who in going_on] == [None] * 3


# Transactions (ProducerAppendInfo.appendDataBatch and appendEndTxnMarker)

NOTHING = None
HISTORIES: dict[str, list[tuple[str, int, int]]] = {
    "unknown": [],
    "idempotent": [("plain", 3, 0)],
    "open": [("row", 3, 0)],
    "ended, same epoch": [("row", 3, 0), ("marker", 3, 0)],
    "ended, next epoch": [("row", 3, 0), ("marker", 4, 0)],
    "marker alone": [("marker", 3, 0)],
}
"""The producer's past: batches with (epoch, sequence) and markers with (epoch, epoch of the coordinator)."""

TABLE: dict[str, dict[tuple[str, int, int], Code | None]] = {
    "unknown": {("row", 0, 5): NOTHING, ("marker", 0, 0): NOTHING},
    "idempotent": {
        ("row", 3, 1): NOTHING,
        ("row", 3, 2): Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ("row", 2, 1): Code.INVALID_PRODUCER_EPOCH,
        ("row", 4, 0): NOTHING,
        ("marker", 2, 0): Code.INVALID_PRODUCER_EPOCH,
        ("marker", 3, 0): NOTHING,
    },
    "open": {
        ("row", 3, 1): NOTHING,
        ("plain", 3, 1): Code.INVALID_TXN_STATE,
        ("plain", 3, 7): Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ("row", 4, 0): NOTHING,
        ("plain", 4, 0): Code.INVALID_TXN_STATE,
        ("marker", 2, 0): Code.INVALID_PRODUCER_EPOCH,
        ("marker", 3, 0): NOTHING,
        ("marker", 4, 0): NOTHING,
    },
    "ended, same epoch": {
        ("row", 3, 1): NOTHING,
        ("plain", 3, 1): NOTHING,
        ("row", 3, 2): Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ("marker", 3, 0): NOTHING,
        ("marker", 3, -1): Code.TRANSACTION_COORDINATOR_FENCED,
        ("marker", 2, -1): Code.INVALID_PRODUCER_EPOCH,
    },
    "ended, next epoch": {
        ("row", 3, 1): Code.INVALID_PRODUCER_EPOCH,
        ("row", 4, 0): NOTHING,
        ("row", 4, 1): Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ("row", 5, 0): NOTHING,
        ("marker", 3, 0): Code.INVALID_PRODUCER_EPOCH,
    },
    "marker alone": {
        ("row", 3, 0): NOTHING,
        ("row", 3, 1): Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ("row", 2, 0): Code.INVALID_PRODUCER_EPOCH,
    },
}
"""History → what comes next → the refusal, or nothing."""


def happens(states: ProducerStates, kind: str, epoch: int, number: int) -> Code | None:
    """Check it, and remember it if it is not refused."""
    batch = header(number if kind != "marker" else 0, epoch=epoch)
    try:
        if kind == "marker":
            states.check_marker(batch.producer_id, epoch, number)
            states.remember_marker(batch._replace(base_sequence=-1), EndMarker(commits=True, coordinator_epoch=number))
            return None
        batch = batch._replace(attributes=TRANSACTIONAL_BIT if kind == "row" else 0)
        assert states.check(batch) is None
        states.remember(batch)
    except BrokerError as error:
        return Code(error.code)
    return None


@pytest.mark.parametrize("history", TABLE)
def test_transactions_are_judged_as_by_kafka(history: str) -> None:
    found = {}
    for event in TABLE[history]:
        states = ProducerStates()
        assert [happens(states, *before) for before in HISTORIES[history]] == [None] * len(HISTORIES[history])
        found[event] = happens(states, *event)
    assert found == TABLE[history]
