"""Read-ahead ends for one of five reasons, and for no other (RAH1 to RAH5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_producer.broker.storage.tiered.read_ahead import ReadAhead, ReadAheadLimits, Stop, read_ahead
from spark_producer.broker.storage.tiered.sources import Entry, EntryMissing, StoredEntry
from spark_producer.errors import CorruptRecord
from tests.unit.broker.storage.tiered.read_stage import LOG, OTHER, batch_at, batches_from

WIDE = ReadAheadLimits(max_entries=1000, cache_bytes=1_000_000)


def entries(*batches: bytes, log_id: int = LOG, error: Exception | None = None) -> Iterator[StoredEntry]:
    for number, batch in enumerate(batches):
        yield StoredEntry(log_id, batch, number + 1)
    if error is not None:
        raise error


def ahead(found: Iterator[StoredEntry], limits: ReadAheadLimits = WIDE) -> tuple[Stop, list[Entry], ReadAhead]:
    taken: list[Entry] = []
    decision = ReadAhead(limits, LOG, 10)
    return read_ahead(decision, found, taken.append), taken, decision


@pytest.mark.parametrize("most", [0, 1, 4])
def test_rah1_it_ends_after_so_many_entries(most: int) -> None:
    following = entries(*batches_from(10, 5))
    stop, taken, decision = ahead(following, WIDE._replace(max_entries=most))
    assert stop is Stop.COUNT
    assert [each.base_offset for each in taken] == [10, 12, 14, 16][:most]
    assert (decision.entries, decision.bytes) == (most, most * 100)
    assert len(list(following)) == 5 - most, "not one entry more was read"


@pytest.mark.parametrize("limits", [WIDE._replace(cache_bytes=250), WIDE._replace(max_bytes=250)])
def test_rah2_it_ends_with_the_entry_that_reaches_a_limit_of_bytes(limits: ReadAheadLimits) -> None:
    following = entries(*batches_from(10, 5))
    stop, taken, decision = ahead(following, limits)
    assert stop is Stop.BYTES
    assert (len(taken), decision.bytes) == (3, 300), "200 bytes are less than 250, 300 are not"
    assert len(list(following)) == 2


def test_rah2_a_limit_that_is_met_exactly_is_reached() -> None:
    stop, taken, _ = ahead(entries(*batches_from(10, 5)), WIDE._replace(cache_bytes=200))
    assert (stop, len(taken)) == (Stop.BYTES, 2)


@pytest.mark.parametrize("max_bytes", [-1, 0])
def test_rah2_the_second_limit_of_bytes_may_be_off(max_bytes: int) -> None:
    stop, taken, _ = ahead(entries(*batches_from(10, 5)), WIDE._replace(max_bytes=max_bytes))
    assert (stop, len(taken)) == (Stop.END, 5)


def test_rah3_it_ends_at_an_entry_of_another_log() -> None:
    def two_logs() -> Iterator[StoredEntry]:
        yield from entries(*batches_from(10, 2))
        yield from entries(batch_at(14), log_id=OTHER)
        yield from entries(batch_at(14))

    stop, taken, _ = ahead(two_logs())
    assert (stop, [each.base_offset for each in taken]) == (Stop.OTHER_LOG, [10, 12])


@pytest.mark.parametrize("unexpected", [13, 16, 12, 0])
def test_rah4_it_ends_at_an_entry_that_does_not_follow(unexpected: int) -> None:
    stop, taken, _ = ahead(entries(batch_at(10), batch_at(12), batch_at(unexpected), batch_at(14)))
    assert (stop, [each.base_offset for each in taken]) == (Stop.GAP, [10, 12])


@pytest.mark.parametrize(
    "error", [None, CorruptRecord("damaged"), EntryMissing("deleted"), OSError("refused")], ids=repr
)
def test_rah5_it_ends_where_the_file_ends_or_cannot_be_read(error: Exception | None) -> None:
    stop, taken, _ = ahead(entries(*batches_from(10, 2), error=error))
    assert (stop, len(taken)) == (Stop.END, 2)


def test_rah5_what_is_no_batch_is_damage() -> None:
    stop, taken, _ = ahead(entries(batch_at(10), b"no batch"))
    assert (stop, len(taken)) == (Stop.END, 1)


def test_entries_are_given_with_their_offsets_and_bytes() -> None:
    batches = [batch_at(10, 3), batch_at(13, 1)]
    _, taken, _ = ahead(entries(*batches))
    assert taken == [Entry(10, 13, batches[0]), Entry(13, 14, batches[1])]
