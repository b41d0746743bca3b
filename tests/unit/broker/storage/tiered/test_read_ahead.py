"""Read-ahead ends for one of five reasons, and for no other (RAH1 to RAH5)."""

from __future__ import annotations

import random

import pytest

from spark_producer.broker.storage.tiered.read_ahead import ReadAhead, ReadAheadLimits, Stop
from spark_producer.errors import CorruptRecord
from tests.unit.broker.storage.tiered.read_path_harness import LOG, OTHER, batch_at, batches_from, stored

WIDE = ReadAheadLimits(max_entries=1000, cache_bytes=1_000_000)
FIRST = batch_at(8)
"""The requested batch. Those after it are read ahead."""


class Ahead:
    """The entries taken after `FIRST` from a file with these bytes; `left` has the others."""

    def __init__(self, data: bytes, limits: ReadAheadLimits = WIDE) -> None:
        self.decision = ReadAhead(limits, LOG, 8)
        run, at = self.decision.take(memoryview(stored(FIRST) + data))
        assert run is not None
        assert (run.bases[0], bytes(run.batches[0])) == (8, FIRST)
        self.bases, self.batches = run.bases[1:], list(map(bytes, run.batches[1:]))
        self.end_offset, self.left = run.end_offset, len(stored(FIRST)) + len(data) - at
        assert (self.decision.entries, self.decision.bytes) == (len(self.bases), sum(map(len, self.batches)))

    @property
    def stop(self) -> Stop | None:
        return self.decision.stop


def entries(*batches: bytes) -> bytes:
    return b"".join(map(stored, batches))


@pytest.mark.covers("RAH1")
@pytest.mark.parametrize("most", [0, 1, 4])
def test_it_ends_after_so_many_entries(most: int) -> None:
    ahead = Ahead(entries(*batches_from(10, 5)), WIDE._replace(max_entries=most))
    assert (ahead.stop, ahead.bases) == (Stop.COUNT, [10, 12, 14, 16][:most])
    assert ahead.left == (5 - most) * 116, "not one entry more was taken"


@pytest.mark.covers("RAH2")
@pytest.mark.parametrize("limits", [WIDE._replace(cache_bytes=250), WIDE._replace(max_bytes=250)])
def test_it_ends_with_the_entry_that_reaches_a_limit_of_bytes(limits: ReadAheadLimits) -> None:
    ahead = Ahead(entries(*batches_from(10, 5)), limits)
    assert (ahead.stop, ahead.decision.bytes) == (Stop.BYTES, 300), "200 bytes are less than 250, 300 are not"
    assert ahead.left == 2 * 116


@pytest.mark.covers("RAH2")
def test_a_limit_that_is_met_exactly_is_reached() -> None:
    ahead = Ahead(entries(*batches_from(10, 5)), WIDE._replace(cache_bytes=200))
    assert (ahead.stop, len(ahead.bases)) == (Stop.BYTES, 2)


@pytest.mark.covers("RAH2")
@pytest.mark.parametrize("max_bytes", [-1, 0])
def test_the_second_limit_of_bytes_may_be_off(max_bytes: int) -> None:
    ahead = Ahead(entries(*batches_from(10, 5)), WIDE._replace(max_bytes=max_bytes))
    assert (ahead.stop, len(ahead.bases)) == (None, 5)


@pytest.mark.covers("RAH3")
def test_it_ends_at_an_entry_of_another_log() -> None:
    ahead = Ahead(entries(*batches_from(10, 2)) + stored(batch_at(14), OTHER) + entries(batch_at(14)))
    assert (ahead.stop, ahead.bases) == (Stop.OTHER_LOG, [10, 12])


@pytest.mark.covers("RAH4")
@pytest.mark.parametrize("unexpected", [13, 16, 12, 0])
def test_it_ends_at_an_entry_that_does_not_follow(unexpected: int) -> None:
    ahead = Ahead(entries(batch_at(10), batch_at(12), batch_at(unexpected), batch_at(14)))
    assert (ahead.stop, ahead.bases) == (Stop.GAP, [10, 12])


@pytest.mark.covers("RAH5")
def test_it_ends_where_the_file_ends() -> None:
    ahead = Ahead(entries(*batches_from(10, 2)))
    ahead.decision.on_damage()
    assert (ahead.stop, ahead.bases) == (Stop.END, [10, 12])


@pytest.mark.covers("RAH5")
@pytest.mark.parametrize("byte", range(8, 116))
def test_it_ends_at_damage_wherever_that_is(byte: int) -> None:
    """After the size: a damaged size makes an entry larger than the file, or gives bytes whose checksum is another."""
    damaged = bytearray(stored(batch_at(12)))
    damaged[byte] ^= 1
    ahead = Ahead(entries(batch_at(10)) + bytes(damaged) + entries(batch_at(14)))
    assert (ahead.stop, ahead.bases) == (Stop.END, [10])


@pytest.mark.covers("RAH5")
@pytest.mark.parametrize("batch", [b"no batch" * 8, batch_at(12)[:16] + b"\1" + batch_at(12)[17:], batch_at(12)[:60]])
def test_what_is_no_batch_is_damage(batch: bytes) -> None:
    ahead = Ahead(entries(batch_at(10), batch, batch_at(14)))
    assert (ahead.stop, ahead.bases) == (Stop.END, [10])


def test_a_requested_entry_that_is_damaged_is_reported() -> None:
    damaged = bytearray(stored(FIRST))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecord):
        ReadAhead(WIDE, LOG, 8).take(memoryview(damaged))
    with pytest.raises(CorruptRecord):
        ReadAhead(WIDE, LOG, 8).on_damage()


@pytest.mark.parametrize(("entry", "why"), [(stored(FIRST, OTHER), Stop.OTHER_LOG), (stored(batch_at(9)), Stop.GAP)])
def test_another_entry_than_the_wanted_one_is_not_taken(entry: bytes, why: Stop) -> None:
    decision = ReadAhead(WIDE, LOG, 8)
    assert decision.take(memoryview(entry)) == (None, 0)
    assert decision.stop is why


def test_entries_are_given_with_their_offsets_and_bytes() -> None:
    batches = [batch_at(10, 3), batch_at(13, 1)]
    ahead = Ahead(entries(*batches))
    assert (ahead.bases, ahead.batches, ahead.end_offset) == ([10, 13], batches, 14)


@pytest.mark.parametrize("limits", [WIDE, WIDE._replace(max_entries=30), WIDE._replace(cache_bytes=4000)])
@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_give_the_same_as_one(limits: ReadAheadLimits, seed: int) -> None:
    chance = random.Random(seed)
    data = entries(
        FIRST, *(batch for base in range(10, 90, 2) for batch in [batch_at(base, size=chance.randrange(61, 200))])
    )
    whole, split = ReadAhead(limits, LOG, 8), ReadAhead(limits, LOG, 8)
    run, end = whole.take(memoryview(data))
    assert run is not None
    bases, batches, at = [], [], 0
    while not split.is_done and at < len(data):
        part, taken = split.take(memoryview(data[at : at + chance.randrange(400)]))
        at += taken
        if part is not None:
            bases += part.bases
            batches += list(map(bytes, part.batches))
    assert (bases, batches, at) == (run.bases, list(map(bytes, run.batches)), end)
    assert (split.entries, split.bytes, split.stop) == (whole.entries, whole.bytes, whole.stop)
