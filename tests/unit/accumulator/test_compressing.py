"""Compressed batches: what they hold, how they fill, where they lie, how they are cut. Ids (tests/ids.md): CR, MB and RA."""

from __future__ import annotations

import json
import random
import threading
from concurrent.futures import Future

import pytest

from spark_producer.accumulator import ProducerBatch, RecordMetadata
from spark_producer.accumulator.compressing import MAX_GATHERED_BYTES
from spark_producer.errors import ProducerClosed
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.compression_ratio import REMEMBERED
from tests.fakes.accumulator_fakes import OTHER, TP, AccumulatorFakes, Runner, accumulator_fakes, values_of
from tests.support.waiting import wait_until

CODECS = [codec for codec in Codec if codec is not Codec.NONE]
SIZE = 4096


def events(count: int, seed: int = 1) -> list[bytes]:
    """Lines of JSON, about 120 bytes each, that pack to a third or less."""
    choose = random.Random(seed)
    names = ("click", "view", "purchase", "search")
    return [
        json.dumps(
            {"user": choose.randrange(10**6), "event": choose.choice(names), "page": f"/p/{choose.randrange(500)}",
             "agent": "Mozilla/5.0 (X11; Linux x86_64)", "ok": True}
        ).encode()
        for _ in range(count)
    ]  # fmt: skip


def sizes_of_batches(fakes: AccumulatorFakes, *bursts: list[bytes]) -> list[int]:
    """The sizes of the batches that become full while rows arrive, burst after burst."""
    sizes = []
    for burst in bursts:
        fakes.append(*burst)
        while batch := fakes.try_take():
            sizes.append(batch.size)
            fakes.complete(batch)
    return sizes


def noise(size: int, seed: int = 2) -> bytes:
    return random.Random(seed).randbytes(size)


def everything(fakes: AccumulatorFakes) -> list[ProducerBatch]:
    """All batches of PLACE, taken out; none is acknowledged."""
    fakes.incomplete.begin_close()
    taken = []
    while batch := fakes.try_take():
        taken.append(batch)
    return taken


def held(batches: list[ProducerBatch]) -> int:
    return sum(len(batch.buffer) for batch in batches)


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_by_a_foreign_client_and_all_bytes_are_the_pools(codec: Codec) -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=codec)
    values = events(400)
    fakes.append(*values)
    batches = everything(fakes)
    assert [value for batch in batches for value in values_of(batch)] == values
    for batch in batches:
        header = read_header(batch.data)
        assert (header.codec, header.size, header.records_count) == (codec, batch.size, batch.records_count)
        assert batch.size < 0.6 * sum(len(value or b"") for value in values_of(batch))
    assert fakes.pool.total - fakes.pool.available == held(batches)
    for batch in batches:
        fakes.complete(batch)  # the pool refuses a buffer that is not its own
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("CR1")
@pytest.mark.slow
@pytest.mark.parametrize("size", [SIZE, 1 << 17])
def test_batches_grow_until_they_have_their_size_compressed(size: int) -> None:
    fakes = accumulator_fakes(memory=1 << 24, batch_size=size, linger=1e6, codec=Codec.ZSTD)
    sizes = sizes_of_batches(fakes, *(events(size // 8, seed) for seed in range(30)))
    assert sizes[0] < size // 2, "nothing is known"
    assert len(sizes) > 3 * REMEMBERED
    assert max(sizes) <= size
    assert max(sizes[-20:]) > 0.9 * size
    assert min(sizes[REMEMBERED + 3 :]) > 0.6 * size, "like the worst of the last ones, and a little more than that"


@pytest.mark.covers("CR1")
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.SNAPPY, Codec.ZSTD, Codec.GZIP])
@pytest.mark.parametrize("burst", [3, 6, 10])
def test_data_that_changes_back_and_forth_makes_no_batch_too_large(codec: Codec, burst: int) -> None:
    """`batch.size` is a twentieth below what topics take."""
    fakes = accumulator_fakes(memory=1 << 24, batch_size=SIZE, linger=1e6, codec=codec)
    dull = [b"%d: all is well, as it was before, and nothing else" % number for number in range(burst * SIZE // 60)]
    wild = [noise(100, seed) for seed in range(burst * SIZE // 100)]
    sizes = sizes_of_batches(fakes, *[dull, wild] * 20)
    assert len(sizes) > 30 * burst
    assert max(sizes) <= 1.0486 * SIZE


@pytest.mark.covers("CR1")
def test_a_batch_with_little_in_it_teaches_nothing() -> None:
    fakes = accumulator_fakes(memory=1 << 20, batch_size=SIZE, linger=0, codec=Codec.GZIP)
    teach(fakes, Codec.GZIP, 0.2)
    fakes.append(b"{}")
    fakes.complete(fakes.take())
    assert fakes.ratios.estimate(TP.topic, Codec.GZIP) == 0.2


@pytest.mark.covers("CR1")
def test_what_does_not_get_smaller_counts_as_what_it_is_sent_as() -> None:
    fakes = accumulator_fakes(memory=1 << 20, batch_size=SIZE, linger=0, codec=Codec.GZIP)
    teach(fakes, Codec.GZIP, 0.9)
    fakes.append(noise(3000))
    batch = fakes.take()
    assert batch.codec == Codec.NONE
    assert fakes.ratios.estimate(TP.topic, Codec.GZIP) == 1.0


def max_bytes(fakes: AccumulatorFakes, size: int) -> int:
    """The bytes that should pack to a batch of `size` bytes."""
    assert fakes.compression is not None
    return fakes.compression.target_size(TP.topic, size)


def teach(fakes: AccumulatorFakes, codec: Codec = Codec.LZ4, ratio: float = 0.001) -> None:
    """Make all data compress to a thousandth, or to `ratio`."""
    for _ in range(REMEMBERED):
        fakes.ratios.observe(TP.topic, codec, ratio)


def test_the_uncompressed_buffer_stays_within_its_share_of_the_pool() -> None:
    fakes = accumulator_fakes(memory=16 * SIZE, batch_size=SIZE, linger=0, codec=Codec.LZ4)
    teach(fakes)
    assert max_bytes(fakes, SIZE) > 64 * SIZE
    fakes.append(b"{}")
    assert len(fakes.queue().batches[0].buffer) == 8 * SIZE
    fakes.append(b"{}", tp=OTHER)
    assert len(fakes.queue(OTHER).batches[0].buffer) == 8 * SIZE
    assert fakes.pool.available == 0


def test_a_batch_of_the_default_size_gathers_a_few_megabytes_at_most() -> None:
    """The I/O thread compresses what has lingered, and readers unpack it whole."""
    fakes = accumulator_fakes(memory=16 * SIZE, batch_size=SIZE, linger=0, codec=Codec.LZ4)
    teach(fakes)
    assert max_bytes(fakes, 1_000_000) == MAX_GATHERED_BYTES < 8_000_000
    assert max_bytes(fakes, 2 * MAX_GATHERED_BYTES) == 2 * MAX_GATHERED_BYTES


def test_what_does_not_get_smaller_goes_out_as_it_is() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=Codec.LZ4)
    values = [noise(500, seed) for seed in range(20)]
    fakes.append(*values)
    batches = everything(fakes)
    assert [value for batch in batches for value in values_of(batch)] == values
    assert {read_header(batch.data).codec for batch in batches} == {Codec.NONE}
    assert all(len(batch.buffer) == SIZE for batch in batches)
    assert batches[0].compression_ratio >= 1.0
    assert max_bytes(fakes, SIZE) == SIZE


def test_a_compressed_batch_moves_into_a_buffer_of_its_size_and_the_large_one_is_free() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=10, codec=Codec.ZSTD)
    fakes.append(*events(20))
    assert fakes.pool.available == fakes.pool.total - SIZE
    (batch,) = everything(fakes)
    assert len(batch.buffer) == batch.size < SIZE // 2
    assert fakes.pool.available == fakes.pool.total - batch.size


def test_nearly_the_pools_size_is_rounded_up_to_it_so_that_the_buffer_is_kept() -> None:
    fakes = accumulator_fakes(memory=8 * SIZE, batch_size=SIZE, linger=10, codec=Codec.ZSTD)
    teach(fakes, Codec.ZSTD, 0.3)
    fakes.append(*events(2), noise(3600))
    (batch,) = everything(fakes)
    assert 0.75 * SIZE < batch.size < SIZE
    assert len(batch.buffer) == SIZE


@pytest.mark.parametrize("closed", [False, True])
def test_without_memory_for_a_second_buffer_the_bytes_stay_where_they_were(closed: bool) -> None:
    fakes = accumulator_fakes(memory=SIZE, batch_size=SIZE, linger=10, codec=Codec.GZIP)
    share = SIZE // 2
    values = events(15)
    fakes.append(*values)
    rest = fakes.pool.try_allocate(fakes.pool.available)
    assert rest is not None
    if closed:
        fakes.pool.close()
    (batch,) = everything(fakes)
    assert len(batch.buffer) == share
    assert batch.codec == Codec.GZIP
    assert values_of(batch) == values
    fakes.complete(batch)
    fakes.pool.release(rest)
    assert fakes.pool.available == fakes.pool.total


def test_a_full_batch_is_compressed_by_who_fills_it_and_the_last_one_by_who_flushes() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=10, codec=Codec.SNAPPY)
    fakes.append(*events(40))
    full, last = fakes.queue().batches
    assert (full.closed, full.codec) == (True, Codec.SNAPPY)
    assert (last.closed, last.codec) == (False, Codec.NONE)
    flush = Runner(fakes.accumulator.flush)
    wait_until(lambda: last.closed, "the flush closes what is open before it waits")
    assert last.codec == Codec.SNAPPY
    wait_until(lambda: fakes.incomplete.flushing == 1, "the flush waits")
    for batch in (fakes.take(), fakes.take()):
        fakes.complete(batch)
    flush.result()


def test_a_batch_that_lingered_is_compressed_by_who_takes_it() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=10, codec=Codec.LZ4)
    fakes.append(*events(10))
    fakes.clock.advance(10)
    batch = fakes.take()
    assert batch.codec == Codec.LZ4
    assert values_of(batch) == events(10)


class Failing(Compressor):
    """Fails to pack from the moment on that it has an error."""

    error: Exception | None = None

    def compress(self, records: bytes | bytearray | memoryview) -> memoryview:
        if self.error is not None:
            raise self.error
        return super().compress(records)


@pytest.mark.parametrize("error", [MemoryError("no memory"), RuntimeError("LZ4F_compressFrame failed")])
def test_a_codec_that_fails_lets_the_batch_go_uncompressed(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    compressor = Failing(Codec.LZ4, None)
    compressor.error = error
    fakes = accumulator_fakes(batch_size=SIZE, linger=10, codec=Codec.LZ4, new_compressor=lambda *_: compressor)
    values = events(60)
    fakes.append(*values)
    batch = fakes.take()
    assert batch.codec == Codec.NONE
    assert values_of(batch) == values[: batch.records_count]
    assert (
        f"lz4 cannot compress {batch.position - HEADER_SIZE} bytes of records for topic 'orders'" in caplog.messages[0]
    )


def test_every_thread_has_a_codec_object_of_its_own() -> None:
    made: list[int] = []

    def make(codec: Codec, level: int | None) -> Compressor:
        made.append(threading.get_ident())
        return Compressor(codec, level)

    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=Codec.ZSTD, new_compressor=make)
    fakes.append(*events(80))
    fakes.append(*events(80))
    Runner(lambda: fakes.append(*events(80), tp=OTHER)).result()
    assert len(made) == len(set(made)) == 2


# --- cut in two -----------------------------------------------------------------------------------------------------


def with_futures(fakes: AccumulatorFakes, values: list[bytes]) -> list[Future[RecordMetadata]]:
    return [fakes.append_one(value, 7000) for value in values]


def deliver(fakes: AccumulatorFakes) -> list[list[bytes | None]]:
    """Acknowledge one batch after the other; their values."""
    fakes.incomplete.begin_close()
    found, offset = [], 0
    while not fakes.incomplete.idle:
        batch = fakes.take()
        found.append(values_of(batch))
        fakes.complete(batch, offset)
        offset += batch.records_count
    return found


@pytest.mark.covers("RA19", "PB6")
@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_is_cut_and_both_halves_are_compressed(codec: Codec) -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=codec)
    values = events(20)
    futures = with_futures(fakes, values)
    whole = fakes.take()
    before = whole.size
    fakes.split(whole)
    head, tail = fakes.queue().batches
    assert head.codec == tail.codec == codec
    assert max(head.size, tail.size) < 0.8 * before
    found = deliver(fakes)
    assert [value for half in found for value in half] == values
    assert len(found) == 2
    assert [future.result(0).offset for future in futures] == list(range(20))
    assert fakes.pool.available == fakes.pool.total


def test_halves_that_the_codec_fails_to_pack_go_uncompressed() -> None:
    compressor = Failing(Codec.LZ4, None)
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=Codec.LZ4, new_compressor=lambda *_: compressor)
    values = events(20)
    with_futures(fakes, values)
    whole = fakes.take()
    assert whole.codec == Codec.LZ4
    compressor.error = ZeroDivisionError()
    fakes.split(whole)
    assert [half.codec for half in fakes.queue().batches] == [Codec.NONE] * 2
    assert [value for half in deliver(fakes) for value in half] == values
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("RA21")
@pytest.mark.parametrize("full", [False, True])
def test_halves_that_need_more_bytes_than_the_whole_get_them(full: bool) -> None:
    """Half of a batch repeats the other half, which only the whole can make use of."""
    fakes = accumulator_fakes(memory=4 * SIZE, batch_size=SIZE, linger=0, codec=Codec.ZSTD)
    values = [noise(190, seed) for seed in range(10)] * 2
    futures = with_futures(fakes, values)
    whole = fakes.take()
    assert whole.size < 2400
    rest = fakes.pool.try_allocate(fakes.pool.available) if full else None
    fakes.split(whole)
    lent = fakes.pool.total - fakes.pool.available - (0 if rest is None else len(rest))
    assert lent == (
        len(whole.buffer) if rest is None else 0 if whole.shared_buffer is None else len(whole.shared_buffer.buffer)
    )
    assert [value for half in deliver(fakes) for value in half] == values
    assert [future.result(0).offset for future in futures] == list(range(20))
    if rest is not None:
        fakes.pool.release(rest)
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("RA21")
@pytest.mark.parametrize("full", [False, True])
def test_halves_are_cut_again_and_again(full: bool) -> None:
    fakes = accumulator_fakes(memory=4 * SIZE, batch_size=SIZE, linger=0, codec=Codec.LZ4)
    values = events(16, 3)
    futures = with_futures(fakes, values)
    fakes.split(fakes.take())
    rest = fakes.pool.try_allocate(fakes.pool.available) if full else None
    found: list[bytes | None] = []
    while not fakes.incomplete.idle:
        batch = fakes.take()
        if batch.records_count > 2:
            fakes.split(batch)
            continue
        found += values_of(batch)
        fakes.complete(batch, len(found) - batch.records_count)
    assert found == values
    assert [future.result(0).offset for future in futures] == list(range(16))
    if rest is not None:
        fakes.pool.release(rest)
    assert fakes.pool.available == fakes.pool.total


@pytest.mark.covers("CR1")
def test_a_batch_that_was_too_large_counts_however_little_it_held() -> None:
    fakes = accumulator_fakes(memory=1 << 20, batch_size=SIZE, linger=0, codec=Codec.ZSTD)
    teach(fakes, Codec.ZSTD, 0.05)
    assert max_bytes(fakes, SIZE) > 10 * SIZE
    fakes.append(*(noise(400, seed) for seed in range(4)))
    whole = fakes.take()
    assert max_bytes(fakes, SIZE) > 10 * SIZE
    fakes.split(whole)
    assert max_bytes(fakes, SIZE) == SIZE


def test_a_batch_that_stayed_uncompressed_is_cut_where_it_lies() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=Codec.SNAPPY)
    values = [noise(300, seed) for seed in range(10)]
    fakes.append(*values)
    whole = fakes.take()
    buffer = whole.buffer
    fakes.split(whole)
    assert {id(batch.buffer) for batch in fakes.queue().batches} == {id(buffer)}
    assert [value for half in deliver(fakes) for value in half] == values
    assert fakes.pool.available == fakes.pool.total


def test_an_abort_gives_back_compressed_batches() -> None:
    fakes = accumulator_fakes(batch_size=SIZE, linger=0, codec=Codec.ZSTD)
    fakes.append(*events(200))
    flying = fakes.take()
    fakes.completion.abort(ProducerClosed("closed"))
    fakes.completion.remove_in_flight(flying)
    assert fakes.pool.available == fakes.pool.total
    assert flying.size > HEADER_SIZE
