"""The interface of a storage engine: `Storage` for a data directory, `Log` for one partition in it.

Every engine implements these protocols, is listed in `engines`, and passes tests/unit/broker/storage/test_contract.py.

A batch is appended in two steps. `Log.admit` assigns the next offsets, which fixes the order of the batches. The batch is
*confirmed* once it is as durable as the engine guarantees; only then may it be read and its producer get a response. An engine
may do both at once. Or it confirms many batches of many partitions together, later and in a thread of its own (a journal with
group commit); then it calls the function that was passed to `Storage.watch`. A failure in between makes the log read-only:
batches that were admitted and not confirmed cannot be read until the next `open`, which finds out whether they were stored.

Except for `close`, a log raises only `BrokerError`, whose code is sent to the client. `Storage` raises the OSErrors of the disk
where its docstrings say so, because the caller knows their consequences for a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.settings import TopicSettings
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader

LEADER_EPOCH: Final = 0
"""Leader epoch of every stored batch. It never changes, since a single broker is the only leader."""


Recovered: TypeAlias = Callable[[BatchHeader, bytes], None]
"""Called with the header of a stored batch, and with the whole batch if it is a control batch, since the outcome of a transaction
is in the record of its marker. For all other batches the bytes are empty, so an engine need not read their records."""


class TimestampOffset(NamedTuple):
    """An offset, and the timestamp by which it was found, in milliseconds since 1970."""

    timestamp: int
    offset: int


class UnreadableLog(BrokerError):
    """A stored partition cannot be opened without losing records (KAFKA_STORAGE_ERROR); the message says what to do."""


class Rewriting(Protocol):
    """New batches that replace the first batches of a log: see `Log.rewrite`. Readers do not see them before `commit`."""

    def add(self, batch: bytes) -> bool:
        """Add the next batch, whose offsets follow those of the last one without a gap. Return False if the engine is busy; then
        add the batch again later.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def commit(self) -> bool:
        """Replace the old batches atomically: a crash at any moment leaves either the old or the new ones. Return False, with no
        change, if the engine is busy; then call it again later.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def abort(self) -> None:
        """Discard the new batches."""


class Log(Protocol):
    """The record batches of one partition. Their offsets have no gaps. Only the broker's thread uses it.

    `settings` may be replaced at any time.
    """

    settings: TopicSettings

    @property
    def start_offset(self) -> int:
        """The log start offset: the first offset that may be read. It rises when records are deleted, and survives restarts."""

    @property
    def high_watermark(self) -> int:
        """The offset at which reading ends: all batches before it are confirmed, and none from it on. After `open` it is the
        offset after the last recovered batch."""

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        """Assign the next offsets to `batch` and store it; return its base offset. The stored batch differs from `batch` in its
        base offset and leader epoch only.

        Args:
            batch: one whole V2 batch. It is not changed, and the log does not use it after this has returned.
            header: the header of the batch.

        Raises:
            BrokerError: the batch was not admitted, and no offset was assigned. The code is KAFKA_STORAGE_ERROR; or a retriable
                one if the engine has no space now.
        """

    def is_written(self, offset: int) -> bool:
        """Return whether the admitted batch that holds `offset` may be acknowledged with acks=1: the system has it. A confirmed
        batch is also written.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the batch cannot be written before the log is opened again.
        """

    def is_confirmed(self, offset: int) -> bool:
        """Return whether the admitted batch that holds `offset` is confirmed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the batch cannot be confirmed before the log is opened again.
        """

    def check_offset(self, offset: int) -> None:
        """Check that a consumer may read from `offset` on, now or when more batches are there.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE; or KAFKA_STORAGE_ERROR if after a failure it is unknown whether the offset exists,
                since a consumer must not reset its position then.
        """

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None) -> bytes:
        """Return whole confirmed batches, in order, from the one that holds `offset` on.

        The engine chooses their number; they have `max_bytes` at most, and end at the high watermark or at `up_to`, which is the
        base offset of a batch or the end of the log. With `at_least_one` the first batch may be larger (KIP-74).

        Raises:
            BrokerError: as `check_offset`, or KAFKA_STORAGE_ERROR.
        """

    def offset_upper_bound(self, offset: int, size: int) -> int:
        """Return an upper bound for the offset after the `size` bytes that `read` returned from `offset` on, as small as is
        possible without reading them (Kafka's LogSegment.fetchUpperBoundOffset).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def available(self, offset: int, at_most: int, *, up_to: int | None = None) -> int:
        """Return the number of bytes that may be read from the batch that holds `offset` on, up to the batch that begins at
        `up_to`; `at_most` if there are more.

        It is called each time that a waiting Fetch is checked, so it must be cheap.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the base offset of the first confirmed *batch* whose maximum timestamp is `timestamp` or later, None if there is
        none.

        Headers identify only the batch; `record_times` searches the record in it.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def latest_timestamp(self) -> TimestampOffset | None:
        """Return the maximum timestamp in the log with the last offset of its batch (ListOffsets -3), None if there is none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def delete_old(self, now_ms: int) -> None:
        """Delete the oldest records that the retention settings allow to delete at the time `now_ms` (milliseconds since 1970).

        The engine chooses the unit of deletion; Kafka deletes whole segments.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; records that could not be deleted now are deleted when the log is opened again.
        """

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, which is at most the high watermark, and may lie within a batch. `start_offset` is
        then `offset`, also after a crash; a smaller `offset` changes nothing.

        The engine chooses the unit in which disk space is freed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    @property
    def rewritable_end(self) -> int:
        """The offset before which batches may be rewritten: the base offset of a batch or the end of the log. As Kafka does not
        compact the active segment, no engine rewrites the unit that takes the next batch."""

    def rewrite(self, end: int) -> Rewriting:
        """Start to rewrite all batches from the one that holds `start_offset` to `end`, which is the `rewritable_end`.

        The new batches cover the same offsets: the first begins where the first old one begins, the last ends at `end`. If
        `start_offset` changes meanwhile, abort. A log has one rewriting at a time.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def close(self, *, discard: bool = False) -> None:
        """Close the log, and force all confirmed batches to the disk if the broker's settings say so.

        With `discard`, for a log that will be deleted, nothing is forced.

        Raises:
            OSError: the disk refused; the log is closed nevertheless.
        """


class Storage(Protocol):
    """An engine: it keeps the records of all partitions in one data directory, which the broker has locked.

    Only the broker's thread uses it. It calls `recover` first, `watch` before the first `admit`, and `close` last.

    `name` is the name of the engine in settings, reports and metrics.
    """

    name: str

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        """Set the callbacks of the engine. They are called from any thread.

        Args:
            confirmed: called with topic and partition when batches of that log were written or confirmed after their `admit` had
                returned, or when they cannot be confirmed any more.
            space_freed: called when there is space again after `has_space` has returned False.
        """

    def has_space(self, size: int) -> bool:
        """Return whether there is space for a request of `size` bytes, all batches and the frame together.

        The broker calls this before it handles a Produce, and lets the request wait if there is no space. After the maximum wait
        the request is handled nevertheless; then `admit` refuses the batches that do not fit.
        """

    def check_largest_batch(self, size: int) -> None:
        """Check that a topic can have `size` as its `max.message.bytes`.

        Raises:
            BrokerError: INVALID_CONFIG, the engine cannot admit a batch of this size.
        """

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        """Record whether any consumer group has an active cursor in a partition: a member that the partition is assigned to.

        An engine may keep the newest batches of such partitions in memory. The broker calls this again after a partition with a
        cursor was deleted and created again.
        """

    def readings(self) -> Iterable[MetricReading]:
        """Return the metrics of the engine. Any thread may call this, at any time."""

    def orphaned(self, topics: Mapping[str, int]) -> list[str]:
        """Return the names of logs with records that belong to no partition of `topics` (name → number of partitions).

        An administrator must be able to find the logs by these names.

        Raises:
            OSError: the disk refused.
        """

    def partitions(self) -> list[str]:
        """Return the names of all stored partitions, with or without records, except for those that were set aside.

        Raises:
            OSError: the disk refused.
        """

    def recover(self, topics: Mapping[str, int]) -> None:
        """Complete what the previous run of the broker left incomplete, such as deletions, and warn of `orphaned` logs.

        It is called once, before the first partition is opened.

        Raises:
            OSError: the disk refused.
        """

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> Log:
        """Open the log of an existing partition.

        `recovered` is called with the header of every batch in the log, in order: the broker rebuilds its state of producers and
        transactions from them. If it raises CorruptRecord, that batch is damaged.

        Raises:
            UnreadableLog: the log cannot be opened.
        """

    def create(self, topic: str, partition: int, settings: TopicSettings) -> Log:
        """Create an empty log. Records that are stored under its name belong to no topic; they are set aside, and never erased.

        Raises:
            UnreadableLog: as `open`.
            OSError: the disk refused.
        """

    def delete(self, partitions: Collection[tuple[str, int]]) -> None:
        """Delete closed logs, given as (topic, partition), with all of their records.

        After this has returned, no crash restores them. After a crash during the call, their records are gone, or orphaned.

        Raises:
            OSError: the disk refused.
        """

    def close(self) -> bool:
        """Stop the engine. All of its logs must have been closed.

        Return False if the disk does not respond: then the engine still waits for it, and the directory must stay locked until
        this process has ended. No confirmed batch is lost.
        """
