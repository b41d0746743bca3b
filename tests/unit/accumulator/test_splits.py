"""Batches that are too large for a broker, until none is any more. Ids (tests/ids.md): RA19, RA22, RA31, FU1."""

from __future__ import annotations

import random
from concurrent.futures import Future

import pytest

from spark_producer.accumulator import RecordMetadata
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import HEADER_SIZE
from spark_producer.record.codecs import Codec
from tests.fakes.accumulator_fakes import TP, AccumulatorFakes, Runner, accumulator_fakes, values_of
from tests.fakes.sender_fakes import answer_to, sender_fakes

MESSAGE_TOO_LARGE = 10


def single(value: bytes, fakes: AccumulatorFakes) -> Future[RecordMetadata]:
    return fakes.append_one(value)


@pytest.mark.covers("RA19")
def test_halves_go_before_everything_that_was_appended_later() -> None:
    fakes = accumulator_fakes(linger=0)
    futures = [single(b"%d" % number + b"." * 199, fakes) for number in range(12)]
    whole, later = fakes.take(), fakes.take()
    fakes.split(whole)
    fakes.put_back(later, backoff=0)
    found: list[bytes] = []
    while fakes.ready():
        batch = fakes.take()
        values = [value for value in values_of(batch) if value is not None]
        fakes.complete(batch, len(found))
        found += values
    assert [int(value.rstrip(b".")) for value in found] == list(range(12))
    assert [future.result(0).offset for future in futures] == list(range(12))
    assert (fakes.incomplete.idle, fakes.pool.available) == (True, fakes.pool.total)


def test_a_topic_that_refuses_batches_gets_smaller_ones_from_then_on() -> None:
    fakes = accumulator_fakes(batch_size=8192, linger=0)
    full = fakes.accumulator.full_size
    fakes.append(*(b"." * 90 for _ in range(400)))
    assert (full(TP.topic), full("other")) == (8192, 8192)
    batch = fakes.take()
    fakes.split(batch)
    assert 4000 < full(TP.topic) < 4096
    assert full("other") == 8192


def test_batches_do_not_become_smaller_than_batch_size_may_be() -> None:
    fakes = accumulator_fakes(batch_size=1024, linger=0)
    fakes.append(*(b"." * 90 for _ in range(11)))
    fakes.split(fakes.take())
    assert fakes.accumulator.full_size(TP.topic) == 1024


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_broker_with_a_lower_limit_refuses_a_handful_of_batches_and_no_more(codec: Codec) -> None:
    choose, limit = random.Random(3), 3000
    fakes = accumulator_fakes(memory=1 << 20, batch_size=16384, linger=1000, codec=codec)
    refused = 0
    for _ in range(100):
        fakes.append(*(row(choose, True) for _ in range(200)))
        while (batch := fakes.try_take()) is not None:
            if batch.size > limit:
                refused += 1
                fakes.split(batch)
            else:
                fakes.complete(batch)
    assert 2 <= refused <= 20, "those that were full when the first was refused, and their halves"


def row(choose: random.Random, well: bool) -> bytes:
    """Up to a hundred bytes that pack to less than a half, or not at all."""
    length = 1 + choose.randrange(100)
    return b"".join(b"%03d " % choose.randrange(1000) for _ in range(25))[:length] if well else choose.randbytes(length)


@pytest.mark.covers("RA22")
@pytest.mark.slow
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("good", [1, 50, 80, 99, None])
def test_few_batches_are_split_whatever_share_of_the_rows_packs_well(codec: Codec, good: int | None) -> None:
    """A broker that takes `batch.size` and not more: less than a tenth of the batches come out larger than was thought,
    also if the share (None) is another one every 2,000 rows."""
    choose, batch_size, share = random.Random(7), 1024, good or 0
    fakes = accumulator_fakes(memory=1 << 22, batch_size=batch_size, linger=1000, codec=codec)
    splits = batches = 0
    for number in range(400):
        if good is None and number % 40 == 0:
            share = choose.randrange(100)
        fakes.append(*(row(choose, choose.randrange(100) < share) for _ in range(50)))
        while (batch := fakes.try_take()) is not None:
            if batch.size > batch_size + HEADER_SIZE:
                splits += 1
                fakes.split(batch)
            else:
                batches += 1
                fakes.complete(batch)
    assert fakes.compression is not None
    assert good != 99 or fakes.compression.target_size(TP.topic, batch_size) > 1.2 * batch_size, (
        "or nothing is ventured"
    )
    assert batches > 500
    assert splits < batches / 10


@pytest.mark.covers("RA31")
def test_a_broker_that_finds_everything_too_large_ends_with_a_failure_for_each_record() -> None:
    made = sender_fakes()
    futures = [single(b"x" * 90, made.fakes) for _ in range(9)]
    refusals = 0
    while requests := made.produce():
        for outgoing in requests:
            refusals += 1
            assert refusals < 50, "this goes on for ever"
            made.complete(outgoing, answer_to(outgoing, MESSAGE_TOO_LARGE))
    errors = [future.exception(0) for future in futures]
    assert all(isinstance(error, BrokerError) and error.code == MESSAGE_TOO_LARGE for error in errors)
    assert all("a record of" in str(error) for error in errors)
    assert refusals == 2 * 9 - 1, "each cut makes one batch more, down to single records"
    assert (made.fakes.incomplete.idle, made.fakes.pool.available) == (True, made.fakes.pool.total)


@pytest.mark.covers("FU1")
def test_a_wait_goes_on_through_a_split_with_what_is_left_of_its_time() -> None:
    """Java chains the future of the whole to those of the halves; here it is one and the same."""
    fakes = accumulator_fakes(linger=0)
    first, last = single(b"a" * 90, fakes), single(b"b" * 90, fakes)
    waiting = Runner(lambda: last.result(20))
    fakes.split(fakes.take())
    fakes.complete(fakes.take(), 7)
    assert first.result(0).offset == 7
    with pytest.raises(TimeoutError):
        last.result(0.001)
    assert not waiting.done.is_set()
    fakes.complete(fakes.take(), 30)
    assert waiting.result().offset == 30
