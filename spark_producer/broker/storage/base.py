"""The interface of an engine that keeps the broker's records: `Storage` for a data directory, `Log` for one partition in it.

Every engine is written against these Protocols, is chosen in `engines`, and passes tests/unit/broker/storage/test_contract.py.

A batch is appended in two steps. `Log.admit` gives it the next offsets, which settles the order of all batches. The batch is
*confirmed* once it is as safe as the engine promises; only then may it be read, and its producer be told. An engine may do
both at once. Or it may confirm many batches of many partitions together, later and from a thread of its own (a journal with
group commit); then it calls the function that `Storage.watch` was given. A failure in between makes the log read-only: batches
that were admitted and not confirmed cannot be read until the next `open`, which finds out whether they were kept.

Except for `close`, a log raises nothing but `BrokerError`, with which the client is answered. `Storage` lets an OSError of the
disk pass where it says so, because its caller knows what that means for a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from spark_producer.broker.counters import MetricReading
from spark_producer.broker.settings import TopicSettings
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader

LEADER_EPOCH: Final = 0
"""The leader epoch in every stored batch; it stays the same because the one leader never changes."""


Recovered: TypeAlias = Callable[[BatchHeader, bytes], None]
"""Called with the header of a batch that was found, and with the whole batch if it is a control batch: what markers say stands in
their records. For all other batches the bytes are empty, so an engine need not read their records."""


class TimestampOffset(NamedTuple):
    """An offset, and the timestamp (epoch milliseconds) by which it was found."""

    timestamp: int
    offset: int


class UnreadableLog(BrokerError):
    """A partition is stored but cannot be opened without losing records (KAFKA_STORAGE_ERROR); the text says what to do."""


class Rewriting(Protocol):
    """Batches that are to replace the first ones of a log: see `Log.rewrite`. Readers do not see them before `commit`."""

    def add(self, batch: bytes) -> bool:
        """Keep the next batch, whose offsets follow those of the last one without a gap. Return False if it cannot be taken now,
        because the engine is busy; then add it again later.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def commit(self) -> bool:
        """Replace the old batches, all at once: after a crash at any moment either the old or the new ones are
        there. Return False, with nothing changed, if the engine is busy; then call it again later.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def abort(self) -> None:
        """Throw the new batches away."""


class Log(Protocol):
    """The record batches of one partition, with offsets that have no gaps. Only the broker's thread uses it.

    `settings` may be replaced at any time, and apply from then on.
    """

    settings: TopicSettings

    @property
    def start_offset(self) -> int:
        """The first offset that may be read. It rises when old records are deleted, and is the same after a restart."""

    @property
    def high_watermark(self) -> int:
        """The offset at which reading ends: every batch before it is confirmed, and none after it is. Right after `open` it is
        the offset after the last batch that was recovered."""

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        """Give `batch` the next offsets and keep it; return its base offset. Only its base offset and leader epoch are changed in
        what is kept.

        Args:
            batch: one whole V2 batch. It is not changed itself, and the log must not need it after this returns.
            header: the header of the batch.

        Raises:
            BrokerError: the batch was not admitted, and has used up no offset. The code is KAFKA_STORAGE_ERROR; or, where an
                engine has no room for more, one that says when to send the batch again.
        """

    def is_written(self, offset: int) -> bool:
        """Return whether the admitted batch that holds `offset` may be acknowledged to those who do not wait until it is
        confirmed (acks=1). An engine that writes in the background says so once the system has the batch; a confirmed batch is
        written.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the batch will not be written before the log is opened again.
        """

    def is_confirmed(self, offset: int) -> bool:
        """Return whether the admitted batch that holds `offset` is confirmed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, the batch will not be confirmed before the log is opened again.
        """

    def check_offset(self, offset: int) -> None:
        """Check that a consumer may read from `offset` on, now or when more batches have come.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, or KAFKA_STORAGE_ERROR where a failure has made the offset doubtful, which is no
                reason for a consumer to begin elsewhere.
        """

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None) -> bytes:
        """Return whole confirmed batches, in order, from the one that holds `offset` on.

        They are as many as the engine likes, of `max_bytes` at most, and none at the high watermark, nor at `up_to`: the base
        offset of a batch, or the end of the log. With `at_least_one` the first batch is returned however large it is (KIP-74).

        Raises:
            BrokerError: as `check_offset`, or KAFKA_STORAGE_ERROR.
        """

    def offset_upper_bound(self, offset: int, size: int) -> int:
        """Return an offset at or behind the end of the `size` bytes that `read` returned from `offset` on, as near as the engine
        can tell without reading them.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def available(self, offset: int, at_most: int, *, up_to: int | None = None) -> int:
        """Return the bytes that may be read from the batch that holds `offset` on, counted no further than `at_most` bytes, and
        only before the batch that begins at `up_to`.

        Each look at a waiting Fetch asks this, so it must be cheap.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the base offset of the first confirmed *batch* whose largest timestamp is `timestamp` or later, None if there is
        none.

        The headers lead to the batch alone; `record_times` looks for the record in it.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def latest_timestamp(self) -> TimestampOffset | None:
        """Return the largest timestamp in the log with the last offset of its batch (ListOffsets -3), None if there is none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def delete_old(self, now_ms: int) -> None:
        """Delete the oldest records that the settings do not retain at the time `now_ms` (milliseconds since 1970).

        The engine chooses the units in which it deletes; Kafka deletes whole segments.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; records that could not be deleted are deleted once the log is opened again.
        """

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, which is at most the high watermark, and may lie within a batch. `start_offset` is
        `offset` then, also after a crash; one that is smaller already stays.

        The engine frees the space on the disk in units that it chooses.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    @property
    def rewritable_end(self) -> int:
        """The offset before which batches may be rewritten, which is the base offset of a batch or the end of the log: Kafka
        leaves the active segment alone, and so does each engine the unit that takes the next batch."""

    def rewrite(self, end: int) -> Rewriting:
        """Begin to rewrite all batches from the one that holds `start_offset` to `end`, which is the `rewritable_end`.

        The new batches have the same offsets: the first begins where the first old one begins, the last ends at `end`. Nobody may
        change `start_offset` meanwhile: abort it then. There is one rewriting of a log at a time.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def close(self, *, discard: bool = False) -> None:
        """Close the log, and make everything that was confirmed durable, as the broker's settings say.

        With `discard`, which is for logs that are to be deleted, nothing is made durable.

        Raises:
            OSError: the disk refused; the log is closed all the same.
        """


class Storage(Protocol):
    """An engine, which keeps the records of all partitions in one data directory. The broker has locked the directory.

    Only the broker's thread uses it. It calls `recover` first, `watch` before anything is admitted, and `close` last.

    `name` is what the report and the page of metrics call the engine.
    """

    name: str

    def watch(self, confirmed: Callable[[str, int], None], space_freed: Callable[[], None]) -> None:
        """Have functions called, from any thread.

        Args:
            confirmed: called with topic and partition when batches of that log are written or confirmed after their `admit` has
                returned, or can no longer be.
            space_freed: called when there is space again after `has_space` has returned False.
        """

    def has_space(self, size: int) -> bool:
        """Return whether a request of `size` bytes, all batches and their frame together, may be handled now.

        The broker asks before it handles a Produce, and lets the request wait if there is no room. A request that has waited for
        too long is handled all the same; then `admit` refuses what does not fit.
        """

    def check_largest_batch(self, size: int) -> None:
        """Check whether a topic may promise to take batches of `size` bytes (`max.message.bytes`).

        Raises:
            BrokerError: INVALID_CONFIG, no log of this engine would admit such a batch.
        """

    def cursor_changed(self, topic: str, partition: int, exists: bool) -> None:
        """Learn whether any consumer group has an active cursor in a partition: a member that the partition is assigned to.

        An engine may keep the newest batches of such partitions in memory. It is told again of a partition that was deleted and
        created anew, if it has a cursor then.
        """

    def readings(self) -> Iterable[MetricReading]:
        """Return what the engine counts, for the page of metrics and the report. Any thread may call this, at any time."""

    def orphaned(self, topics: Mapping[str, int]) -> list[str]:
        """Return the names of places that hold records of no partition of `topics` (name → number of partitions).

        A person must be able to find them by these names.

        Raises:
            OSError: the disk refused.
        """

    def partitions(self) -> list[str]:
        """Return the names of all partitions that are kept, with records or without, except for those that were set aside.

        Raises:
            OSError: the disk refused.
        """

    def recover(self, topics: Mapping[str, int]) -> None:
        """Finish what the broker's last life left undone, such as deletions that were cut short, and warn of what is `orphaned`.

        It is called once, before the first partition is opened.

        Raises:
            OSError: the disk refused.
        """

    def open(self, topic: str, partition: int, settings: TopicSettings, recovered: Recovered) -> Log:
        """Open the log of a partition that was created in this life of the broker or in an earlier one.

        `recovered` is called with the header of every batch in the log, with its offset, in order: the broker learns from them
        again what it knew of producers and of their transactions. If it raises CorruptRecord, that batch is damaged.

        Raises:
            UnreadableLog: the log cannot be opened, for whatever reason.
        """

    def create(self, topic: str, partition: int, settings: TopicSettings) -> Log:
        """Make a new, empty log. Records in its place belong to no topic; they are moved out of the way, and never erased.

        Raises:
            UnreadableLog: as `open`.
            OSError: the disk refused.
        """

    def delete(self, partitions: Collection[tuple[str, int]]) -> None:
        """Remove closed logs, by topic and number, with all of their records.

        When this has returned, no crash brings them back. If one cuts it short, their records are gone, or belong to no topic.

        Raises:
            OSError: the disk refused.
        """

    def close(self) -> bool:
        """End the engine. All of its logs must have been closed.

        Return False if the disk does not answer: then the engine still waits for it, and the directory must stay locked until
        this process has ended. Nothing is lost that was confirmed.
        """
