"""The filter for readers of committed records: it hides control batches and the batches of aborted transactions.

Aborted transactions begin and end in the order that KIP-98 and Kafka's CompletedFetch define.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import BatchHeader
from spark_producer.record.control import ControlType, read_control_key
from spark_producer.record.record_cursor import read_key


class AbortedTransactions:
    """Selects the batches that a reader of committed records sees. `shows` must be called in the order of the offsets.

    `transactions` holds (producer id, first offset) of each aborted transaction, in any order.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def shows(self, header: BatchHeader, records: memoryview) -> bool:
        """Return whether a reader sees the records of this batch. `records` holds its decompressed bytes after the header.

        Raises:
            CorruptRecord: The batch is a control batch whose marker cannot be read.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.is_control:
            # Compaction keeps the header of a batch whose marker it removed. Quorums write several markers at once (KIP-853).
            if header.records_count and marker_type(header, records) == ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


def marker_type(header: BatchHeader, records: memoryview) -> int:
    """Return the type of a control batch by its first record: 0 is abort, 1 is commit, and Kafka may add others.

    Raises:
        CorruptRecord: The key of the record, or a field before it, is malformed.
    """
    try:
        return read_control_key(read_key(records))
    except CorruptRecord as error:
        offset = header.base_offset
        raise CorruptRecord(f"record at offset {offset}: {error}", offset=offset) from error
