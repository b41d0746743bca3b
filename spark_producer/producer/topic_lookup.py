"""The topics of rows that are about to be queued: known already, or waited for.

Owns: the wait of task threads for what the brokers say of topics. Must not know: what is done with them, nor how brokers are
asked (`Metadata`) or what an answer means (`TopicWait`).

All topics that are missing are asked for at once, in one question; each round asks only for those that are not settled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spark_producer.cluster import TopicInfo
from spark_producer.config import ProducerConfig
from spark_producer.errors import BrokersUnreachable, MetadataTimeout, PyProducerError, RecordError
from spark_producer.partitioner import TopicPartitions
from spark_producer.protocol import LONGEST_STRING
from spark_producer.record.columns import Columns
from spark_producer.record.rejected import NONE_REJECTED, Kind, RejectedRows, Tell, fault_where
from spark_producer.sender import KnownTopics, Metadata
from spark_producer.topic_wait import TopicWait, Verdict

QUOTED = 100
"""Characters of a name that a message shows: one that is too long is no name, but perhaps a value in the wrong column."""

LONGEST_SLEEP = 1.0
"""Seconds between two looks whether the producer has ended: nothing depends on it, it bounds what a lost wake-up costs."""


class Topics:
    """What task threads ask of the cluster. Any thread but the I/O thread may wait here."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: Metadata,
        known: KnownTopics,
        *,
        clock: Callable[[], float],
        backoff: Callable[[int], float],
        wakeup: Callable[[], None],
        check_open: Callable[[], None],
        waited: Callable[[float, float], None],
    ) -> None:
        """`check_open` raises what has ended the producer; `waited(seconds, now)` records a wait."""
        self._config = config
        self._patience = f"{config.max_block_ms / 1000:g} s (kafka.max.block.ms)"
        self._metadata = metadata
        self._known = known
        self._clock = clock
        self._backoff = backoff
        self._wakeup = wakeup
        self._check_open = check_open
        self._waited = waited
        self._changed = threading.Condition()
        self.io_thread = 0
        """identity of the thread by which answers come, which cannot wait for them"""
        self.last_error: PyProducerError | None = None
        """why a broker could not be reached, as far as the I/O thread has seen since the last answer"""

    def find(self, highest: Mapping[str, int], deadline: float | None = None) -> list[TopicPartitions]:
        """The topics as partitioners see them, in the order given; `highest` is the highest partition that a row of the topic
        asks for, or -1. Waits up to `max.block.ms`, or until the deadline of a whole call.

        A partition that does not exist after all is left to the check of the rows, which can name the row.

        Raises:
            RecordError: no topic name. BrokersUnreachable, MetadataTimeout, TopicNotFound, BrokerError: see `TopicWait`.
        """
        topics = self._metadata.cluster.topics
        found: dict[str, TopicInfo] = {}
        for name, partition in highest.items():
            info = topics.get(name)
            if info is not None and info.leaders and partition < len(info.leaders):
                found[name] = info
        if len(found) < len(highest):
            found |= self._await({name: highest[name] for name in highest if name not in found}, deadline)
        now = self._clock()
        for name in highest:
            self._metadata.use(name, now)
        return [self._known.describe(name, found[name]) for name in highest]

    def answered(self) -> None:
        """The I/O thread has news for those who wait: an answer, or the end of the producer."""
        with self._changed:
            self._changed.notify_all()

    def _await(self, highest: Mapping[str, int], deadline: float | None) -> dict[str, TopicInfo]:
        for name in highest:
            check_topic_name(name)
        began = self._clock()
        limit = began + self._config.max_block_ms / 1000 if deadline is None else deadline
        self._refuse_io_thread(next(iter(highest)))
        left = {name: TopicWait(name, limit, self._patience, partition=highest[name]) for name in highest}
        found: dict[str, TopicInfo] = {}
        rounds, not_before = 0, 0.0
        try:
            while left:
                answer = self._ask(list(left), not_before, limit, next(iter(left.values())))
                now = self._clock()
                for name, info in answer.items():
                    if left[name].judge(now, info) is not Verdict.ASK_AGAIN:
                        found[name] = info
                        del left[name]
                not_before = now + self._backoff(rounds)
                rounds += 1
        finally:
            now = self._clock()
            self._waited(now - began, now)
        return found

    def _ask(self, names: Sequence[str], not_before: float, limit: float, wait: TopicWait) -> Mapping[str, TopicInfo]:
        """What is said of the topics by an answer to a question that is sent from now on."""
        wish = self._metadata.want(*names, not_before=not_before)
        self._wakeup()
        try:
            with self._changed:
                while wish.answer is None:
                    self._check_open()
                    left = limit - self._clock()
                    if left <= 0:
                        raise wait.error() if wait.answered else self._nothing_learnt(wait)
                    self._changed.wait(min(left, LONGEST_SLEEP))
        finally:
            wish.over = True
        return wish.answer

    def _nothing_learnt(self, wait: TopicWait) -> PyProducerError:
        """The wait has ended, and nobody said anything of the topic."""
        within = f"within {self._patience}"
        if self._metadata.cluster.nodes:
            return MetadataTimeout(f"nothing was learnt of topic {wait.topic!r} {within}")
        reason = f" Last error: {str(self.last_error).rstrip('.')}." if self.last_error else ""
        return BrokersUnreachable(
            f"none of the bootstrap servers {self._config.bootstrap_servers} answered {within}.{reason} "
            "Check kafka.bootstrap.servers, the network, and whether the brokers run"
        )

    def _refuse_io_thread(self, topic: str) -> None:
        if threading.get_ident() == self.io_thread:
            raise MetadataTimeout(
                f"a callback sent to topic {topic!r}, which, or a partition of which, is not known yet; it cannot wait for "
                "the answer, which comes by its own thread. Send to the topic before, or hand the record to another thread"
            )


def check_topic_name(name: str) -> None:
    """One name that no question can hold would spoil it for all who wait; what brokers refuse they refuse by name.

    Raises:
        RecordError: it is empty, cannot be encoded, or is longer than a string of the protocol.
    """
    complaint = _complaint(name)
    if complaint:
        raise RecordError(complaint)


def misnamed(columns: Columns) -> RejectedRows:
    """The rows with a topic that `check_topic_name` refuses: who asks before `Topics.find` can spare it these."""
    faults = []
    for code, name in enumerate(columns.topics):
        complaint = _complaint(name)
        if complaint:
            rows = np.full(len(columns.records), True) if columns.topic_codes is None else columns.topic_codes == code
            faults.append(fault_where(rows, Kind.TOPIC, _telling(complaint)))
    return RejectedRows.among(columns, faults) if faults else NONE_REJECTED


def _telling(complaint: str) -> Tell:
    return lambda _: complaint


def _complaint(name: str) -> str:
    """What is wrong with a name; empty if nothing is."""
    try:
        fits = 0 < len(name.encode()) <= LONGEST_STRING
    except (AttributeError, UnicodeEncodeError):
        fits = False
    if fits:
        return ""
    quoted = f"{name[:QUOTED]!r}…" if isinstance(name, str) and len(name) > QUOTED else repr(name)
    return f"{quoted} is no topic name: a name is text of 1 to 249 letters, digits, '.', '_' and '-'"
