"""What the broker asks of whatever keeps its records: `Storage` for a data directory, `Log` for one partition in it.

Any engine is written against these Protocols, is chosen in `engines`, and passes tests/unit/broker/storage/test_contract.py.

A batch is appended in two steps. `Log.admit` gives it the next offsets, so that the order of all batches is settled. It is
*confirmed* once it is as safe as the engine promises: only then may it be read and its producer be told. An engine may do
both at once, or confirm many batches of many partitions together, later and from a thread of its own (a journal with group
commit); then it calls whom `Storage.watch` named. A failure in between makes the log read-only: what was admitted and not
confirmed stays out of sight until the next `open`, which tells what is there after all.

Logs raise `BrokerError` and nothing else, whatever goes wrong (`close` apart): it is what a client is answered. `Storage` lets
an OSError of the disk pass where it says so, since its caller knows what that means for a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from spark_producer.broker.settings import TopicSettings
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import BatchHeader

LEADER_EPOCH: Final = 0
"""What every stored batch carries: the one leader never changes."""


class TimestampOffset(NamedTuple):
    """An offset and the timestamp (epoch milliseconds) that it was found by."""

    timestamp: int
    offset: int


class UnreadableLog(BrokerError):
    """A partition is stored and cannot be opened without losing records (KAFKA_STORAGE_ERROR); the text says what to do."""


class Log(Protocol):
    """The record batches of one partition, offsets without gaps. Used by the broker's thread alone.

    `settings` may be replaced at any time, and apply from then on.
    """

    settings: TopicSettings

    @property
    def start_offset(self) -> int:
        """The first offset that may be read. It rises when old records are deleted, and is the same after a restart."""

    @property
    def high_watermark(self) -> int:
        """The end of what may be read: every batch before it is confirmed, none behind it is. After `open` it is behind the
        last batch that was recovered."""

    def admit(self, batch: memoryview, header: BatchHeader) -> int:
        """Give `batch` the next offsets and take it in; return its base offset. It is kept as it came but for its base offset
        and its leader epoch.

        Args:
            batch: one whole V2 batch. It is not changed, and must not be needed after this returns.
            header: its header.

        Raises:
            BrokerError: it was not taken in, and has used up no offset. KAFKA_STORAGE_ERROR, or a code that says when to send it
                again, where an engine has no room for more.
        """

    def is_confirmed(self, offset: int) -> bool:
        """Whether the admitted batch that holds `offset` is confirmed.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR, it will not be in this life of the log.
        """

    def check_offset(self, offset: int) -> None:
        """See that it makes sense to read from `offset` on, now or when more has come.

        Raises:
            BrokerError: OFFSET_OUT_OF_RANGE, or KAFKA_STORAGE_ERROR where a failure has made it doubtful: that is no reason for
                a consumer to begin elsewhere.
        """

    def read(self, offset: int, max_bytes: int, *, at_least_one: bool = True) -> bytes:
        """Whole confirmed batches, in order, from the one that holds `offset` on: as many as the engine likes, `max_bytes` at
        most; nothing at the high watermark. With `at_least_one` the first batch comes however large it is (KIP-74).

        Raises:
            BrokerError: as `check_offset`, or KAFKA_STORAGE_ERROR.
        """

    def available(self, offset: int, at_most: int) -> int:
        """Bytes that may be read from the batch that holds `offset` on, counted no further than `at_most`: what a waiting Fetch
        asks, cheaply.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Base offset of the first confirmed *batch* whose largest timestamp is `timestamp` or later, None if there is none.

        Kafka answers with the very record; a batch is as near as headers tell, and it never skips a record.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def latest_timestamp(self) -> TimestampOffset | None:
        """The largest timestamp in the log with the last offset of its batch (ListOffsets -3), None if it has none.

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR.
        """

    def delete_old(self, now_ms: int) -> None:
        """Delete the oldest records that the settings do not retain at this time (milliseconds since 1970), in units of the
        engine's (Kafka: whole segments).

        Raises:
            BrokerError: KAFKA_STORAGE_ERROR; what could not be deleted is, once the log is opened again.
        """

    def close(self, *, discard: bool = False) -> None:
        """Make everything that was confirmed durable, as the broker's settings say; with `discard`, which is for logs that are
        to be deleted, nothing.

        Raises:
            OSError: the disk refused; the log is closed.
        """


class Storage(Protocol):
    """An engine: the records of all partitions in one data directory, which the broker has locked. Used by its thread alone.

    `recover` comes first, `watch` before anything is admitted, `close` last.
    """

    def watch(self, confirmed: Callable[[str, int], None]) -> None:
        """Have `confirmed(topic, partition)` called, from any thread, after batches of that log were confirmed, or can no more
        be, that were not when their `admit` returned."""

    def unowned(self, topics: Mapping[str, int]) -> list[str]:
        """What holds records of no partition of `topics` (name → number of partitions), by names that a person can find.

        Raises:
            OSError: the disk refused.
        """

    def recover(self, topics: Mapping[str, int]) -> None:
        """Finish what the last life left, such as deletions that were cut short, and warn of what is `unowned`: once, before the
        first partition is opened.

        Raises:
            OSError: the disk refused.
        """

    def open(
        self, topic: str, partition: int, settings: TopicSettings, recovered: Callable[[BatchHeader], None]
    ) -> Log:
        """The log of a partition that was created in this life or an earlier one. `recovered` gets the header of every batch in
        it, with its offset, in order: what is known of producers is made again from that.

        Raises:
            UnreadableLog: it cannot be opened, for whatever reason.
        """

    def create(self, topic: str, partition: int, settings: TopicSettings) -> Log:
        """A new, empty log. Records that are in its place belong to nobody, and are moved out of the way, never erased.

        Raises:
            UnreadableLog: as `open`.
            OSError: the disk refused.
        """

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log, which is closed, with all of its records. After a crash in the middle of it `recover` does the rest.

        Raises:
            OSError: the disk refused.
        """

    def close(self) -> None:
        """End the engine, all of whose logs are closed."""
