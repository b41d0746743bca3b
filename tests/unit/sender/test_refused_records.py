"""Records that brokers refuse one by one are taken out of their batch, and the others are written. Ids: COM2, COM3, SN35."""

from __future__ import annotations

import random

import numpy as np
import pytest

from spark_producer.accumulator import BrokerRejection, RejectionCollector
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, ConnectionFailed, RecordsRefused
from spark_producer.kernel import ArrangedRows
from spark_producer.protocol.messages import (
    BatchIndexAndErrorMessage,
    ProducePartitionResponse,
    ProduceResponse,
    ProduceTopicResponse,
)
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import TP, rows_of
from tests.fakes.choosy_partition import STALE_EPOCH, ChoosyPartition, carry_out
from tests.fakes.sender_fakes import TOPIC, SenderFakes, answer_to, sender_fakes, sent_in

CODES = (Code.INVALID_RECORD, Code.INVALID_TIMESTAMP, Code.MESSAGE_TOO_LARGE)


def wanting(*codes: Code, most: int = 1 << 20) -> RejectionCollector:
    return RejectionCollector(lambda error: error.code in (codes or CODES), most)


def send(made: SenderFakes, refused: RejectionCollector | None, *values: bytes, first: int = 0) -> None:
    """Rows of the task, numbered from `first` on."""
    rows = rows_of(values)
    rows.columns.numbers = first
    made.fakes.accumulator.append(TP, rows, 0, len(rows), listener=refused)


def named(values: list[bytes], found: list[BrokerRejection]) -> list[tuple[int, bytes]]:
    """The refused rows by number, whose bytes must be those of the row."""
    rows = [
        (row, value or b"")
        for refused in found
        for row, value in zip(refused.rows, refused.records["value"].to_pylist(), strict=True)
    ]
    assert all(values[row] == value for row, value in rows)
    return sorted(rows)


@pytest.mark.covers("COM2")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("idempotent", [True, False])
def test_bad_records_of_two_kinds_are_taken_out_and_the_others_keep_their_order(idempotent: bool, codec: Codec) -> None:
    made = sender_fakes(idempotent=idempotent, batch_size=1 << 16, codec=codec)
    refused, partition = wanting(), ChoosyPartition()
    values = [(b"n" if row % 90 == 7 else b"t" if row == 500 else b"g") + b"%05d" % row for row in range(1000)]
    send(made, refused, *values)
    made.fakes.accumulator.close_open()
    carry_out(made, partition)
    good = [value for value in values if value[:1] == b"g"]
    assert partition.log == good
    found = refused.take()
    assert named(values, found) == [(row, value) for row, value in enumerate(values) if value[:1] != b"g"]
    assert [each.error.code for each in found] == [87, 32]
    assert found[0].texts == ["n: bad"] * 12
    assert made.error is None
    assert made.fakes.pool.available == made.fakes.pool.total
    assert not refused


@pytest.mark.covers("COM2")
@pytest.mark.parametrize("lost", [0.0, 0.15])
@pytest.mark.parametrize("seed", range(60))
def test_whatever_is_in_flight_every_good_row_is_written_once_and_no_row_in_doubt_is_dead(
    seed: int, lost: float
) -> None:
    choose = random.Random(seed)
    made = sender_fakes(memory=1 << 22, batch_size=1024, linger=choose.choice((0, 0.02)))
    refused = wanting()
    partition = ChoosyPartition(largest=choose.choice((1 << 30, 700)))
    partition.epoch = 0
    bad = choose.choice((0.02, 0.3, 1.0))
    values = [
        (choose.choice((b"n", b"t")) if choose.random() < bad else b"g")
        + b"%05d" % row
        + b"." * choose.choice((10, 300))
        for row in range(choose.choice((5, 60)))
    ]
    for row, value in enumerate(values):
        send(made, refused, value, first=row)
    made.fakes.accumulator.close_open()
    carry_out(made, partition, choose, lost)
    dead = [value for _, value in named(values, refused.take())]
    assert len(set(dead)) == len(dead)
    assert not set(dead) & set(partition.log)
    assert len(set(partition.log)) == len(partition.log)
    if made.error is None:
        assert partition.log == [value for value in values if value[:1] == b"g"]
        assert sorted(dead) == sorted(value for value in values if value[:1] != b"g")
    else:
        assert lost, "nothing was lost, and yet a batch failed"
    assert made.fakes.pool.available == made.fakes.pool.total
    send(made, None, b"g-last")
    made.fakes.accumulator.close_open()
    carry_out(made, partition)
    assert partition.log[-1] == b"g-last", "the partition goes on"


@pytest.mark.covers("COM2")
def test_the_seeds_above_meet_what_they_are_for() -> None:
    """Rejected records with later batches in flight, which need new sequence numbers, and an emptied batch among them."""
    made, refused, partition = sender_fakes(), wanting(), ChoosyPartition(epoch=0)
    letters = b"g", b"n", b"g", b"t", b"g"
    for row, letter in enumerate(letters):
        send(made, refused, letter * 600 + b"%d" % row, first=row)
    made.fakes.accumulator.close_open()
    requests = made.produce()
    assert len(requests) == 5
    first = [sent_in(request)[0].header.base_sequence for request in requests]
    assert first == [0, 1, 2, 3, 4]
    from_broker = [partition.take(bytes(request.batches[0].data)) for request in requests]
    assert [answer.error_code for answer in from_broker] == [0, 87, 45, 32, 45]
    for request, answer in zip(requests, from_broker, strict=True):
        made.complete(request, answer_of(answer))
    made.fakes.clock.advance(1)
    carry_out(made, partition)
    assert [value[:1] for value in partition.log] == [b"g"] * 3
    assert (partition.epoch, partition.expected) == (0, 3), "in the same epoch, without a gap"
    assert [each.rows for each in refused.take()] == [[1], [3]]


@pytest.mark.covers("COM2")
@pytest.mark.parametrize("gap", [1, 2])
def test_a_late_copy_of_a_batch_after_a_refused_one_is_not_written(gap: int) -> None:
    """The next batch has no response. New numbers in the same epoch would leave its old sequence number to the late copy."""
    made, refused, partition = sender_fakes(batch_size=4096), wanting(), ChoosyPartition(epoch=0)
    for values in ([b"g0"], [b"n1", b"n2"][:gap], [b"g3", b"g4"][:gap]):
        send(made, refused, *values)
        made.fakes.accumulator.close_open()
    requests = made.produce()
    copies = [bytes(request.batches[0].data) for request in requests]
    for request, copy in zip(requests[:2], copies, strict=False):
        made.complete(request, answer_of(partition.take(copy)))
    made.complete(requests[2], error=ConnectionFailed("cut"))
    made.sender.on_disconnect()
    carry_out(made, partition)
    assert partition.take(copies[2]).error_code == STALE_EPOCH
    assert partition.log == [b"g0", b"g3", b"g4"][: 1 + gap]
    assert made.error is None
    assert [len(each.rows) for each in refused.take()] == [gap]


def answer_of(row: ProducePartitionResponse) -> ProduceResponse:
    return ProduceResponse((ProduceTopicResponse(TOPIC, partition_responses=(row,)),))


def complaints(*indices: int) -> tuple[BatchIndexAndErrorMessage, ...]:
    return tuple(BatchIndexAndErrorMessage(index, "bad") for index in indices)


@pytest.mark.covers("COM3")
def test_a_batch_whose_first_attempt_got_no_answer_fails_as_a_whole() -> None:
    """The batch may have been written then."""
    made, refused = sender_fakes(), wanting()
    send(made, refused, b"a", b"b")
    (outgoing,) = made.produce()
    made.complete(outgoing, error=ConnectionFailed("cut"))
    made.fakes.clock.advance(1)
    (again,) = [request for request in made.step().requests if request.batches] or made.produce()
    made.complete(again, answer_to(again, 87, record_errors=complaints(1)))
    assert isinstance(made.error, RecordsRefused)
    assert not refused.take()


@pytest.mark.covers("COM3")
@pytest.mark.parametrize("code", [code for code in Code if not code.action and code not in (0, 59, *CODES)])
def test_no_other_code_gives_a_row_back(code: Code) -> None:
    made, refused = sender_fakes(), wanting()
    send(made, refused, b"a")
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, code, record_errors=complaints(0)))
    assert isinstance(made.error, BrokerError)
    assert made.error.code == code
    assert not refused.take()


@pytest.mark.covers("COM3")
@pytest.mark.parametrize("indices", [(), (5,), (-1,), (0, 5)])
def test_a_refusal_that_names_no_record_or_one_that_is_not_there_fails_the_batch(indices: tuple[int, ...]) -> None:
    made, refused = sender_fakes(), wanting()
    send(made, refused, b"a", b"b")
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(*indices)))
    assert isinstance(made.error, BrokerError)
    assert not refused.take()


@pytest.mark.covers("COM3")
def test_a_record_of_another_thread_that_wants_none_back_fails_the_batch() -> None:
    made, refused = sender_fakes(batch_size=4096), wanting()
    send(made, refused, b"a")
    send(made, None, b"b")
    future = made.fakes.append_one(b"c")
    made.fakes.accumulator.close_open()
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(0, 1)))
    assert isinstance(made.error, RecordsRefused)
    assert isinstance(future.exception(0), RecordsRefused)
    assert not refused.take()


@pytest.mark.covers("COM2")
def test_the_futures_of_other_records_follow_them() -> None:
    made, refused = sender_fakes(batch_size=4096), wanting()
    send(made, refused, b"a", b"b")
    future = made.fakes.append_one(b"c", 77)
    send(made, refused, b"d", first=2)
    made.fakes.accumulator.close_open()
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(1, 3)))
    (again,) = made.produce()
    assert sent_in(again)[0].values == [b"a", b"c"]
    made.complete(again, answer_to(again, base_offset=40))
    assert future.result(0).offset == 41
    assert [(each.rows, each.texts) for each in refused.take()] == [([1], ["bad"]), ([2], ["bad"])]


@pytest.mark.covers("COM2")
def test_complaints_of_a_second_round_reach_the_rows_of_later_runs() -> None:
    made, refused = sender_fakes(batch_size=4096), wanting()
    send(made, refused, b"a", b"b", first=10)
    send(made, refused, b"c", b"d", first=50)
    made.fakes.accumulator.close_open()
    for index in (0, 2):
        (outgoing,) = made.produce()
        made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(index)))
    assert [each.rows for each in refused.take()] == [[10], [51]]


@pytest.mark.covers("COM2")
def test_after_ten_rounds_a_batch_fails() -> None:
    made, refused = sender_fakes(batch_size=4096), wanting()
    send(made, refused, *[b"%d" % row for row in range(20)])
    rounds = 0
    while made.error is None:
        (outgoing,) = made.produce()
        made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(0)))
        rounds += 1
    assert rounds == 11
    assert [row for each in refused.take() for row in each.rows] == list(range(10))


@pytest.mark.covers("COM4")
def test_what_waits_to_be_taken_is_bounded() -> None:
    made, refused = sender_fakes(batch_size=1 << 16), wanting(most=1000)
    for row in range(4):
        send(made, refused, b"x" * 900, first=row)
        made.fakes.accumulator.close_open()
        (outgoing,) = made.produce()
        made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(0)))
        if made.error is not None:
            break
    assert isinstance(made.error, RecordsRefused)
    assert [row for each in refused.take() for row in each.rows] == [0, 1]


@pytest.mark.covers("SN35")
def test_flush_reports_to_each_thread_its_own_rows() -> None:
    made = sender_fakes(batch_size=4096)
    send(made, None, b"a", b"b", first=100)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(1)))
    with pytest.raises(RecordsRefused) as caught:
        made.fakes.accumulator.incomplete.failures.raise_unreported()
    assert caught.value.rows == {101: "bad"}


def test_row_numbers_are_right_for_rows_that_are_not_consecutive() -> None:
    made = sender_fakes(batch_size=1 << 16)
    columns = rows_of([b"%d" % row for row in range(100)]).columns
    columns.numbers = 1000
    rows = ArrangedRows(columns, np.arange(0, 100, 3))
    made.fakes.accumulator.append(TP, rows, 0, 34)
    (outgoing,) = made.produce()
    made.complete(outgoing, answer_to(outgoing, 87, record_errors=complaints(0, 33)))
    with pytest.raises(RecordsRefused) as caught:
        made.fakes.accumulator.incomplete.failures.raise_unreported()
    assert caught.value.rows == {1000: "bad", 1099: "bad"}
