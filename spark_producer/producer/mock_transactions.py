"""The transactions of a `MockProducer`: the state for tests, and the checks of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from spark_producer.common.cluster import TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import IllegalState, ProducerFenced, TransactionAbortable, TransactionTimeout
from spark_producer.producer.transactions import group_offsets
from spark_producer.sender.transactions.partitions import ConsumerGroup, GroupOffset

Record = TypeVar("Record")
GroupsOffsets = dict[str, dict[TopicPartition, GroupOffset]]


class MockTransactions(Generic[Record]):
    """The state of a producer's transactions, without a broker. Tests read its fields and set its errors."""

    def __init__(self) -> None:
        self.initialized = False
        self.in_flight = False
        self.commits = 0
        """the number of committed transactions"""
        self.uncommitted: list[Record] = []
        """the records of the transaction in flight"""
        self.offsets: GroupsOffsets = {}
        """the committed offsets, by group, topic and partition"""
        self.uncommitted_offsets: GroupsOffsets = {}
        """those of the transaction in flight"""
        self.init_error: Exception | None = None
        self.begin_error: Exception | None = None
        self.offsets_error: Exception | None = None
        self.commit_error: Exception | None = None
        self.abort_error: Exception | None = None
        self.failure: Exception | None = None
        """the error of a transaction that can only be aborted"""
        self.commit_goes_on = False
        """whether the commit timed out (`commit_error`), so that it must be called again"""
        self._fenced = False

    def fence(self) -> None:
        """Fence this producer, so that every call raises from now on."""
        self._fenced = True

    def check_fenced(self) -> None:
        """Raise if the producer is fenced."""
        if self._fenced:
            raise ProducerFenced("a newer producer took over: fence() was called", code=Code.PRODUCER_FENCED)

    def check_rows(self) -> None:
        """Reject rows outside of a transaction, once transactions are initialized."""
        self.check_fenced()
        if self.failure is not None:
            raise TransactionAbortable(str(self.failure))
        if self.initialized and not self.in_flight:
            raise IllegalState("no transaction is open. Call begin_transaction() first")

    def mark_abortable(self, error: Exception) -> None:
        """Make the transaction in flight abortable only, because it lacks a row."""
        if self.in_flight and self.failure is None:
            self.failure = TransactionAbortable(f"the transaction lacks rows and cannot be committed: {error}")

    def init(self) -> None:
        """Initialize; only once."""
        self._check(self.init_error, initialized=False)
        self.initialized = True

    def begin(self) -> None:
        """Begin a transaction."""
        self._check(self.begin_error, in_flight=False)
        self.in_flight = True

    def send_offsets(self, offsets: Mapping[tuple[str, int], int | GroupOffset], group: str | ConsumerGroup) -> None:
        """Add offsets of a group to the transaction."""
        self._check(self.offsets_error, in_flight=True)
        added = group_offsets(offsets, group)
        self.uncommitted_offsets.setdefault(added.group.group_id, {}).update(added.offsets)

    def check_commit(self) -> None:
        """Reject a commit outside of a transaction, or of one that lacks rows."""
        self.commit_goes_on = isinstance(self.commit_error, TransactionTimeout)
        self._check(self.commit_error, in_flight=True)
        if self.failure is not None:
            raise TransactionAbortable(str(self.failure))

    def committed(self) -> list[Record]:
        """End the transaction, and return its records."""
        for group, offsets in self.uncommitted_offsets.items():
            self.offsets.setdefault(group, {}).update(offsets)
        records = self.uncommitted
        self._end()
        self.commits += 1
        return records

    def abort(self) -> None:
        """End the transaction, and drop its contents."""
        self._check(self.abort_error, in_flight=True)
        self._end()

    def _end(self) -> None:
        self.in_flight, self.failure, self.commit_goes_on = False, None, False
        self.uncommitted, self.uncommitted_offsets = [], {}

    def _check(self, injected: Exception | None, *, initialized: bool = True, in_flight: bool | None = None) -> None:
        self.check_fenced()
        if self.initialized is not initialized:
            raise IllegalState("call init_transactions() once, before any other call")
        if in_flight is not None and self.in_flight is not in_flight:
            raise IllegalState("a transaction is open" if self.in_flight else "no transaction is open")
        if injected is not None:
            raise injected


class MockOwner(Protocol):
    """The mock producer of the transactions."""

    transactions: MockTransactions[Any]

    def begin_transaction(self) -> None:
        """Begin."""

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit."""

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort."""


@contextmanager
def transaction_of(producer: MockOwner) -> Iterator[None]:
    """Do what `Producer.transaction` does."""
    producer.begin_transaction()
    try:
        yield
        producer.commit_transaction()
    except BaseException:
        if producer.transactions.in_flight and not producer.transactions.commit_goes_on:
            producer.abort_transaction()
        raise
