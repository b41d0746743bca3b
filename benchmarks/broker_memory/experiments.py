"""The experiments. Each says by its counters which tiers served its readers; what they must be is checked here and by tests.

E1 and E2 are those of the article; E3 is the band between them, which it names and does not show; E6 has both kinds of readers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.broker_memory.prediction import predicted_misses
from benchmarks.broker_memory.stand import REAL, Clock, Stand, stand
from spark_producer.broker.memory.plan import plan_memory
from spark_producer.broker.memory.sizes import KIB, MIB
from spark_producer.broker.storage.tiered import TieredOptions
from spark_producer.broker.storage.tiered.options import options_of

MB: Final = 1_000_000.0


@dataclass(frozen=True)
class Sizes:
    """The size of an experiment. Rates are in bytes a second.

    pause_s: how long the reader of a backlog does not read; seconds: how long it then does, and every other reader.
    lag: the entries of all partitions by which the reader of E3 lags.
    """

    options: TieredOptions
    partitions: int
    entry_bytes: int = 32 * KIB
    records: int = 32
    tail_rate: float = 31.0 * MB
    backlog_rate: float = 34.5 * MB
    band_rate: float = 10.0 * MB
    reader_rate: float = 5.2 * MB
    pause_s: float = 20.0
    seconds: float = 15.0
    lag: int = 400
    sync: bool = True
    clock: Clock = REAL


REFERENCE: Final = Sizes(options_of(plan_memory(512 * MIB)), partitions=8)
"""The article's: both budgets have 256 MiB; entries of 32 messages of 1 KiB. It pauses for 10 minutes."""


class Outcome(NamedTuple):
    """The counts of an experiment, in entries unless the name says otherwise.

    tail_reader: what was read at the end. expected_misses: Σ⌈R ÷ (B + 1)⌉; None if no reader had a backlog.
    """

    name: str
    partitions: int
    seconds: float
    written: int
    written_bytes: int
    read: int
    read_bytes: int
    tail_reader: int
    tail_hit: int
    tail_miss: int
    write_cache: int
    read_cache_hit: int
    read_cache_miss: int
    entry_log: int
    read_ahead: int
    expected_misses: int | None = None

    @property
    def hit_rate(self) -> float | None:
        """The part of the read cache's reads that it had; None if there were none."""
        total = self.read_cache_hit + self.read_cache_miss
        return self.read_cache_hit / total if total else None


@contextmanager
def _opened(sizes: Sizes) -> Iterator[Stand]:
    with tempfile.TemporaryDirectory(prefix="pyproducer-experiment-") as directory:
        place = (Path(directory), sizes.options, sizes.partitions, sizes.entry_bytes, sizes.records)
        with stand(*place, sync=sizes.sync) as opened:
            opened.set_cursors()
            yield opened


def tail_read(sizes: Sizes) -> Outcome:
    """E1: a reader at the end is served by the tail cache alone."""
    with _opened(sizes) as opened:
        reader = opened.reader_at_end()
        opened.run(sizes.seconds, sizes.tail_rate, [reader], sizes.clock)
        return _outcome("E1 tail", opened, sizes, opened.written, reader.entries, reader.entries)


def catch_up(sizes: Sizes) -> Outcome:
    """E2: a reader that returns after a pause is served by the read cache and the entry logs, while the writer goes on."""
    with _opened(sizes) as opened:
        reader = opened.reader_at_end(sizes.reader_rate)
        begins = list(reader.positions)
        opened.run(sizes.pause_s, sizes.backlog_rate, (), sizes.clock)
        opened.storage.engine.read_path.expire()
        before = opened.written
        opened.run(sizes.seconds, sizes.backlog_rate, [reader], sizes.clock)
        expected = predicted_misses(opened, reader, begins, sizes.options)
        found = _outcome("E2 catch-up", opened, sizes, opened.written - before, reader.entries, 0)
        return found._replace(expected_misses=expected)


def band_between(sizes: Sizes) -> Outcome:
    """E3: a reader that lags too far for the tail cache, and not far enough for the entry logs, reads the write cache.

    It ends before the half of the write cache is full: what was flushed is not in it any more.
    """
    sizes = replace(sizes, seconds=0.9 * sizes.options.write_cache_bytes / 2 / sizes.band_rate)
    with _opened(sizes) as opened:
        reader = opened.reader_at_end(lag=sizes.lag // sizes.partitions)
        opened.run(sizes.seconds, sizes.band_rate, [reader], sizes.clock)
        return _outcome("E3 between", opened, sizes, opened.written, reader.entries, 0)


def both_readers(sizes: Sizes) -> Outcome:
    """E6: a reader with a large lag does not slow one at the end."""
    with _opened(sizes) as opened:
        lagging = opened.reader_at_end(sizes.reader_rate)
        begins = list(lagging.positions)
        opened.run(sizes.pause_s, sizes.backlog_rate, (), sizes.clock)
        before = opened.written
        reader = opened.reader_at_end()
        opened.run(sizes.seconds, sizes.tail_rate, [reader, lagging], sizes.clock)
        expected = predicted_misses(opened, lagging, begins, sizes.options)
        written = opened.written - before
        found = _outcome("E6 both", opened, sizes, written, reader.entries + lagging.entries, reader.entries)
        return found._replace(expected_misses=expected)


def _outcome(name: str, opened: Stand, sizes: Sizes, written: int, read: int, tail_reader: int) -> Outcome:
    """Return the counts of the seconds in which a reader was active."""
    counters, size = opened.counters, len(opened.entry)
    if not counters.served == counters.read.fetched == read:
        raise AssertionError(f"the tiers served {counters.served} entries, and {read} were read")
    return Outcome(
        name, sizes.partitions, sizes.seconds, written, written * size, read, read * size, tail_reader,
        tail_hit=counters.tail.hit,
        tail_miss=counters.tail.miss,
        write_cache=counters.write_cache.hit_active + counters.write_cache.hit_flushing,
        read_cache_hit=counters.read_cache.hit,
        read_cache_miss=counters.read_cache.miss,
        entry_log=counters.entrylog.read,
        read_ahead=counters.readahead.entries,
    )  # fmt: skip


def faults(found: Outcome, least_hit_rate: float = 0.99) -> list[str]:
    """Return what an outcome contradicts of what the article says; nothing if it agrees."""
    of_storage = found.write_cache + found.read_cache_hit + found.entry_log
    wrong: list[str] = []
    if found.tail_hit != found.tail_reader:
        wrong.append(f"{found.tail_hit} tail hits, and {found.tail_reader} entries were read at the end")
    if found.expected_misses is None:
        if found.entry_log or found.read_cache_hit:
            wrong.append(f"{found.entry_log} reads of entry logs by readers near the end")
        if of_storage != found.read - found.tail_reader:
            wrong.append(f"{of_storage} reads of the storage instead of {found.read - found.tail_reader}")
        return wrong
    if abs(found.read_cache_miss - found.expected_misses) > found.partitions:
        wrong.append(f"{found.read_cache_miss} misses of the read cache instead of {found.expected_misses}")
    if (found.hit_rate or 0.0) < least_hit_rate:
        wrong.append(f"the read cache has {found.hit_rate} of what is read, which is less than {least_hit_rate}")
    if found.write_cache:
        wrong.append(f"{found.write_cache} reads of the write cache by a lagging reader")
    return wrong


class Scene(NamedTuple):
    """A row of the page.

    seed: what the article's experiment shows, and what its text claims; empty where it has none.
    least_hit_rate: of the read cache.
    """

    title: str
    run: Callable[[Sizes], Outcome]
    sizes: Sizes
    seed: str = ""
    least_hit_rate: float = 0.99


SEED_TAIL: Final = "31 MB/s in and out; reads of the bookie 0, of its read cache 0"
SEED_CATCH_UP: Final = "34.5 MB/s in, 5.2 MB/s out, all of it read by the bookie; read cache hits above 0"


def scenes(sizes: Sizes) -> list[Scene]:
    """Return the rows, in their order: some also with one partition, and E2 with less read-ahead.

    With 8 partitions a flush leaves runs of 128 entries, of which the first is a miss: so at most 127 of 128 are hits, and less
    if the last runs are not read to their ends.
    """
    one = replace(sizes, partitions=1)
    less = replace(sizes, options=replace(sizes.options, read_ahead_entries=100))
    return [
        Scene("E1 tail", tail_read, one, SEED_TAIL),
        Scene("E1 tail", tail_read, sizes, SEED_TAIL),
        Scene("E2 catch-up", catch_up, one, SEED_CATCH_UP),
        Scene("E2 catch-up", catch_up, sizes, SEED_CATCH_UP, 0.98),
        Scene("E2, 100 read ahead", catch_up, less, "", 0.97),
        Scene("E3 between", band_between, sizes),
        Scene("E6 both readers", both_readers, sizes, "", 0.98),
    ]
