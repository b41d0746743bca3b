"""The read cache's misses of a reader with a large lag: one for each time that entries are read ahead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from benchmarks.broker_memory.stand import Reader, Stand
from spark_producer.broker.storage.tiered.entry_log_format import ENTRY_HEADER
from spark_producer.broker.storage.tiered.interfaces import Location
from spark_producer.broker.storage.tiered.options import TieredOptions


def predicted_misses(stand: Stand, reader: Reader, begins: Sequence[int], options: TieredOptions) -> int:
    """Return Σ⌈R ÷ (B + 1)⌉ over the runs of R adjacent entries that the reader has read, from `begins` to its positions.

    B is how many entries are read ahead: `read_ahead_entries`, or half of the read cache if that is less. In a run each miss
    brings the next B entries.
    """
    half, size = options.read_cache_bytes // 2, len(stand.entry)
    ahead = min(options.read_ahead_entries, -(-half // size))
    return sum(
        -(-run // (ahead + 1))
        for index, begin in enumerate(begins)
        for run in runs(locations(stand, index, begin, reader.positions[index]))
    )


def locations(stand: Stand, index: int, begin: int, end: int) -> Iterator[Location]:
    """Yield where the entries of a partition lie that hold the offsets from `begin` to before `end`."""
    engine = stand.storage.engine
    state = engine.find("t", index)
    while state is not None and begin < end:
        found = engine.ledgers.find(state.log_id, begin)
        if found is None:
            raise LookupError(f"offset {begin} of partition {index} is not flushed: its reader does not lag enough")
        yield found
        begin = found.end_offset


def runs(found: Iterator[Location]) -> list[int]:
    """Return the number of entries in each run of adjacent ones."""
    places = list(found)
    lengths = [1] if places else []
    for before, after in pairwise(places):
        end = before.position + ENTRY_HEADER.size + before.size
        if (after.file_id, after.position) == (before.file_id, end):
            lengths[-1] += 1
        else:
            lengths.append(1)
    return lengths
