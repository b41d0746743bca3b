"""What a reader of committed records does not see: control batches, and the batches of aborted transactions.

Owns: the order in which aborted transactions begin and end (KIP-98; Kafka's CompletedFetch).
Must not know: how records are decoded, or who answered with the aborted transactions.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import BatchHeader
from spark_producer.record.control import ControlType, read_control_key
from spark_producer.record.record_cursor import read_key


class AbortedTransactions:
    """Which batches a reader sees, asked in the order of their offsets.

    `transactions`: (producer id, first offset) of each aborted one, in any order.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._open: set[int] = set()

    def shows(self, header: BatchHeader, records: memoryview) -> bool:
        """Whether the records of this batch are for readers. `records`: its unpacked bytes behind the header.

        Raises:
            CorruptRecord: it is a control batch whose marker cannot be read.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._open.add(self._coming.pop()[1])
        if header.is_control:
            # Compaction leaves the header of a batch whose marker it took. Quorums write several markers at once (KIP-853).
            if header.records_count and marker_type(header, records) == ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)


def marker_type(header: BatchHeader, records: memoryview) -> int:
    """The type of a control batch by its first record: 0 abort, 1 commit, others as Kafka adds them.

    Raises:
        CorruptRecord: the record is malformed up to its key, or the key is.
    """
    try:
        return read_control_key(read_key(records))
    except CorruptRecord as error:
        offset = header.base_offset
        raise CorruptRecord(f"record at offset {offset}: {error}", offset=offset) from error
