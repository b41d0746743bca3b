"""The rules that keep, rewrite or remove the batches of a log (Kafka's Cleaner.shouldRetainRecord and
CleanedTransactionMetadata)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_producer.broker.log.compaction.rewriting import filtered_batch, rows_of
from spark_producer.broker.log.transaction_index import AbortedTxn
from spark_producer.broker.storage.empty_batch import empty_batch
from spark_producer.record.batch_v2 import BatchHeader


class AbortedBatches:
    """The aborted transactions of a log, by producer."""

    def __init__(self, transactions: Sequence[AbortedTxn]) -> None:
        self._by_producer: dict[int, list[AbortedTxn]] = {}
        for each in transactions:
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def has(self, header: BatchHeader) -> bool:
        """Return whether a batch of data belongs to an aborted transaction."""
        return header.is_transactional and any(
            each.first_offset <= header.base_offset <= each.last_offset
            for each in self._by_producer.get(header.producer_id, ())
        )


@dataclass
class CompactionRetention:
    """The rules for one pass over a log, whose batches it gets in order from the first on.

    latest: the last offset of each key before the offset `clean_end`; from there on everything stays.
    remembered: the base offsets of batches whose headers have the state of producers.
    now_ms, delete_retention_ms: the time, and for how long tombstones and the markers of empty transactions stay.

    After the pass, `dropped_markers` has the offsets of removed markers, `next_horizon` the time at which more can be removed,
    and `without_key` the number of records that were removed because they have no key.
    """

    latest: Mapping[bytes, int]
    clean_end: int
    aborted: AbortedBatches
    remembered: Collection[int]
    now_ms: int
    delete_retention_ms: int
    dropped_markers: list[int] = field(default_factory=list)
    next_horizon: int | None = None
    without_key: int = 0
    _with_data: set[int] = field(default_factory=set)
    """The producers whose current transaction has records that stay."""

    def retained(self, header: BatchHeader, batch: memoryview) -> bytes | None:
        """Return the remainder of a batch; None if nothing remains, not even its header.

        Raises:
            CorruptRecord: the batch cannot be read.
        """
        if header.base_offset >= self.clean_end:
            return bytes(batch)
        if header.is_control:
            return self._marker(header, batch)
        if not header.records_count or self.aborted.has(header):
            return self._header_only(header)
        rows = rows_of(batch)
        past_horizon = header.delete_horizon is not None and header.delete_horizon <= self.now_ms
        kept = []
        for row in rows:
            if row.key is None:
                self.without_key += 1
            elif row.offset >= self.latest.get(row.key, -1) and not (row.is_tombstone and past_horizon):
                kept.append(row)
        if not kept:
            return self._header_only(header)
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        needs_horizon = header.delete_horizon is None and any(row.is_tombstone for row in kept)
        horizon = self._horizon() if needs_horizon else header.delete_horizon
        self._note_horizon(horizon)
        if len(kept) == len(rows) and not needs_horizon:
            return bytes(batch)
        return filtered_batch(header, batch, [row.offset for row in kept], horizon if needs_horizon else None)

    def _marker(self, header: BatchHeader, batch: memoryview) -> bytes | None:
        """Return the remainder of a marker. It stays while its transaction has records, and then until its delete horizon, so
        that a reader that has read those records also reads the marker. A producer's last marker stays because it has the
        epoch."""
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if had_data or header.base_offset in self.remembered:
            return bytes(batch)
        if header.delete_horizon is None and header.records_count:
            self._note_horizon(self._horizon())
            return filtered_batch(header, batch, [header.base_offset], self._horizon())
        if header.delete_horizon is not None and header.delete_horizon > self.now_ms:
            self._note_horizon(header.delete_horizon)
            return bytes(batch)
        self.dropped_markers.append(header.base_offset)
        return None

    def _header_only(self, header: BatchHeader) -> bytes | None:
        if header.base_offset not in self.remembered:
            return None
        return empty_batch(header.base_offset, header.last_offset, header)

    def _horizon(self) -> int:
        return min(self.now_ms + self.delete_retention_ms, 2**63 - 1)

    def _note_horizon(self, horizon: int | None) -> None:
        if horizon is not None:
            self.next_horizon = horizon if self.next_horizon is None else min(horizon, self.next_horizon)
