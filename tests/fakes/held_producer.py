"""A producer with transactions, as a task of Spark sees it: rows are only counted, and nothing is sent.

Owns: the order of calls that is allowed, and when rows would be sent. Must not know: which calls a task makes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import pyarrow as pa

from spark_producer.common.cluster import Span, TransactionVersion
from spark_producer.config import ProducerConfig
from spark_producer.errors import IllegalState
from spark_producer.metrics import WriteReport
from spark_producer.metrics.write_report import OffsetRange

ROW_BYTES = 100
"""The bytes of one encoded row, whatever is in it."""


class PreparedDouble(NamedTuple):
    """The return value of `prepare`, with the fields of the real one."""

    transactional_id: str
    producer_id: int
    epoch: int
    transaction_version: TransactionVersion
    spans: tuple[Span, ...]
    started_ms: int


class HeldTransactions:
    """The transactions of the double. `calls` has the calls in order; `memory` is the most bytes that can be deferred."""

    def __init__(self, transactional_id: str, memory: int) -> None:
        self.transactional_id = transactional_id
        self.calls: list[str] = []
        self.held_rows = self.sent_rows = 0
        self.is_deferred = self.open = False
        self.epoch = -1
        self.refuses: Exception | None = None
        """The error that the next call of `prepare` raises."""
        self._memory = memory

    def take(self, rows: int) -> None:
        """Queue rows, as `send_batch` does."""
        if not self.is_deferred and not self.open:
            raise IllegalState("no transaction is open")
        if self.is_deferred:
            self.held_rows += rows
            if self.deferred_bytes() > self._memory:
                self._release()
        else:
            self.sent_rows += rows

    def begin_deferred(self) -> None:
        """Begin a deferred transaction."""
        if self.is_deferred or self.open:
            raise IllegalState("begin_deferred in a transaction")
        self.calls.append("begin_deferred")
        self.is_deferred, self.held_rows, self.sent_rows = True, 0, 0

    def deferred_bytes(self) -> int:
        """Return the bytes of the deferred transaction."""
        return self.held_rows * ROW_BYTES

    def take_deferred(self) -> list[tuple[str, int, int, bytes]] | None:
        """Return all batches of the deferred transaction, and end it; None if it has begun already."""
        if not self.is_deferred:
            return None
        self.calls.append("take_deferred")
        self.is_deferred = False
        return [("t", 0, self.held_rows, bytes(self.deferred_bytes()))] if self.held_rows else []

    def release(self) -> None:
        """Begin the transaction, and send the queued rows."""
        if not self.is_deferred:
            raise IllegalState("release without a deferred transaction")
        self.calls.append("release")
        self._release()

    def prepare(self) -> PreparedDouble:
        """Wait for all acknowledgements, of which there are none, and leave the transaction open."""
        if not self.open:
            raise IllegalState("prepare without a transaction")
        self.calls.append("prepare")
        if self.refuses is not None:
            raise self.refuses
        self.open = False
        spans = (Span("t", 0, 10, 9 + self.sent_rows, self.sent_rows),)
        return PreparedDouble(self.transactional_id, 4000, self.epoch, TransactionVersion.IMPLICIT, spans, 1)

    def try_abort(self) -> bool:
        """End the transaction."""
        self.calls.append("try_abort")
        self.open = self.is_deferred = False
        return True

    def _release(self) -> None:
        self.is_deferred, self.open = False, True
        self.epoch += 1
        self.sent_rows = self.held_rows


class HeldPool:
    """The memory of the double."""

    def __init__(self, transactions: HeldTransactions, total: int) -> None:
        self.total = total
        self._transactions = transactions

    @property
    def available(self) -> int:
        """Return what is not held."""
        return self.total - self._transactions.deferred_bytes()

    def trim(self) -> None:
        """Keep everything."""


class HeldProducer:
    """The double. `fails_at` is the number of the row at which `send_batch` raises an error."""

    def __init__(self, config: ProducerConfig, *, memory: int = 1 << 30, fails_at: int | None = None) -> None:
        self.config = config
        self.closed = False
        self.first_rows: list[int] = []
        self.transactions = HeldTransactions(str(getattr(config, "transactional_id", "")), memory)
        self._fails_at = fails_at
        self._parts = SimpleNamespace(
            config=config,
            transactions=self.transactions,
            meter=SimpleNamespace(start_interval=lambda: None, interval=lambda: None),
            pool=HeldPool(self.transactions, memory),
            partition_count=lambda _: 1,
            take_report=self._take_report,
            failed=False,
        )

    def send_batch(self, batch: pa.RecordBatch, *, topic: str | None, first_row: int, with_headers: bool) -> None:
        """Queue all rows."""
        del topic, with_headers
        if self._fails_at is not None and first_row + batch.num_rows > self._fails_at:
            raise ValueError(f"row {self._fails_at}")
        self.transactions.take(batch.num_rows)
        self.first_rows.append(first_row)

    def close(self, timeout: float | None = None) -> None:
        """Close it."""
        del timeout
        self.closed = True

    def _take_report(self) -> WriteReport:
        sent = self.transactions.sent_rows
        return WriteReport({("t", 0): OffsetRange(10, 9 + sent, sent)}, sent, sent * ROW_BYTES, 1, 1)
