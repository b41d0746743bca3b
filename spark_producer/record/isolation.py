"""What a reader of committed records does not see: control batches, and the batches of aborted transactions.

Owns: the order in which aborted transactions begin and end (KIP-98; Kafka's CompletedFetch).
Must not know: how records are decoded, or who answered with the aborted transactions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from spark_producer.record.record_cursor import read_key

ABORT, COMMIT = 0, 1
_MARKER_KEY = struct.Struct(">hh")


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
        if header.attributes & CONTROL_BIT:
            if marker_type(header, records) == ABORT:
                self._open.discard(header.producer_id)
            return False
        return not (header.attributes & TRANSACTIONAL_BIT and header.producer_id in self._open)


def marker_type(header: BatchHeader, records: memoryview) -> int:
    """The type of a control batch: 0 abort, 1 commit, others as Kafka adds them (spec: kafka_producer.md §3.4).

    Raises:
        CorruptRecord: the record is malformed, or its key too short.
    """
    try:
        key = read_key(bytes(records))
    except CorruptRecord as error:
        raise _corrupt(header, str(error)) from error
    if key is None or len(key) < _MARKER_KEY.size:
        raise _corrupt(header, "the key of a control record has version and type, four bytes")
    return int(_MARKER_KEY.unpack_from(key)[1])


def _corrupt(header: BatchHeader, reason: str) -> CorruptRecord:
    return CorruptRecord(f"record at offset {header.base_offset}: {reason}", offset=header.base_offset)
