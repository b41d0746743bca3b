"""The look-up of the topics of rows that are about to be queued, in which task threads wait for topics that are not known yet.

`Metadata` asks the brokers, and `TopicWait` says what an answer means. One question asks for all topics that are missing, and
each further round asks only for those that are not settled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from spark_producer.common.cluster import TopicInfo
from spark_producer.common.escape import escaping_logger
from spark_producer.config import ProducerConfig
from spark_producer.config.control_topics import is_control_topic, refusal
from spark_producer.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokersUnreachable,
    MetadataTimeout,
    PyProducerError,
    RecordError,
    TopicNotFound,
)
from spark_producer.network.metadata_wait import DELETED_TOPIC_GRACE, TopicStatus, TopicWait
from spark_producer.partitioner import TopicPartitions
from spark_producer.protocol import MAX_STRING_BYTES
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowErrorKind, errors_at
from spark_producer.sender import KnownTopics, Metadata

MAX_QUOTED_CHARACTERS = 100
"""The most characters of a name that a message shows. A name that is too long is perhaps a value in the wrong column."""

FIRST_LOG_AFTER_S = 5.0
"""The seconds after which the log says what a thread waits for; then after twice as long, and so on. Brokers take some 25 s to
make a thousand topics, in which nothing else is heard of the write."""

MAX_ABSENT_TOPICS = 1000
"""The names of topics that are remembered as missing: a column of topics may hold anything."""

logger = escaping_logger("pyproducer")


class WaitLog:
    """What the log hears of one wait for topics, between the answers."""

    def __init__(self, began: float, topics: int, timeout_text: str) -> None:
        self._began, self._topics, self._timeout_text = began, topics, timeout_text
        self._next = FIRST_LOG_AFTER_S
        self._silent_since = began

    def tell(self, now: float, left: Mapping[str, TopicWait]) -> None:
        """Log how many topics are still waited for, if that is due after an answer."""
        self._silent_since = now
        seconds = now - self._began
        if seconds < self._next or not left:
            return
        self._next = 2 * seconds
        name, wait = next(iter(left.items()))
        count = (
            f"{len(left):,} of {self._topics:,} topics, among them {name!r}" if self._topics > 1 else f"topic {name!r}"
        )
        said = f"the brokers answer {wait.code.name}" if wait.code else "it has too few partitions yet"
        logger.warning("still waiting for %s (%s) after %.0f s, at most %s", count, said, seconds, self._timeout_text)

    def log_silence(self, now: float, topic: str, last_error: PyProducerError | None) -> None:
        """Log that no broker answers, if that is due."""
        if now - self._silent_since < FIRST_LOG_AFTER_S or now - self._began < self._next:
            return
        self._next = 2 * (now - self._began)
        reason = f" (last error: {str(last_error).rstrip('.')})" if last_error is not None else ""
        logger.warning(
            "no broker has answered about topic %r for %.0f s%s: still waiting, at most %s",
            topic,
            now - self._silent_since,
            reason,
            self._timeout_text,
        )


class MetadataWaiter:
    """The questions that task threads ask about topics. Any thread except the I/O thread may wait here."""

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
        max_sleep: float,
        user: str = "",
    ) -> None:
        """`check_open` raises what has ended the producer; `waited(seconds, now)` records a wait. `user` is what brokers
        know us as.

        A thread that waits looks every `max_sleep` seconds whether the producer has ended, even if nobody wakes it.
        """
        self._config = config
        self._timeout_text = f"{config.max_block_ms / 1000:g} s (kafka.max.block.ms)"
        self._metadata = metadata
        self._known = known
        self._clock = clock
        self._backoff = backoff
        self._wakeup = wakeup
        self._check_open = check_open
        self._waited = waited
        self._max_sleep = max_sleep
        self._user = user
        self._absent: dict[str, None] = {}
        """Topics that did not appear in the whole of a wait, oldest first. The next writes that can do without them ask once."""
        self._lock = threading.Lock()
        """Take it itself, not by the condition: Ctrl-C within the condition's own `__enter__` would leave it locked for ever."""
        self._changed = threading.Condition(self._lock)
        self.io_thread = 0
        """the identity of the I/O thread, which receives the answers and so cannot wait for them"""
        self.last_error: PyProducerError | None = None
        """the last reason why a broker could not be reached, seen by the I/O thread since the last answer"""

    def find(
        self,
        highest: Mapping[str, int],
        deadline: float | None = None,
        refused: dict[str, BrokerError] | None = None,
    ) -> list[TopicPartitions]:
        """Return the topics as partitioners see them, in the order given. Wait up to `max.block.ms`, or until `deadline`.

        `highest` maps each topic to the highest partition that a row asks for, or to -1. If that partition does not exist
        after the wait, no error is raised here: the check of the rows does that, and can name the row.

        With `refused`, topics that do not exist or may not be used raise nothing: their errors are put there, and nothing is
        returned if there are any. One that was waited for in vain before is asked for once, and not waited for again.

        Raises:
            RecordError: a name cannot be that of a topic.
            BrokersUnreachable, MetadataTimeout, TopicNotFound, BrokerError: see `TopicWait`.
        """
        topics = self._metadata.cluster.topics
        found: dict[str, TopicInfo] = {}
        for name, partition in highest.items():
            info = topics.get(name)
            if info is not None and info.leaders and partition < len(info.leaders):
                found[name] = info
        if len(found) < len(highest):
            missing = {name: highest[name] for name in highest if name not in found}
            found |= self._await(missing, deadline, refused)
        if refused and not refused.keys().isdisjoint(highest):
            return []
        now = self._clock()
        for name in highest:
            self._metadata.use(name, now)
        return [self._known.describe(name, found[name]) for name in highest]

    def wake_waiters(self) -> None:
        """Wake the threads that wait, because there is an answer or the producer has ended. The I/O thread calls this."""
        with self._lock:
            self._changed.notify_all()

    def _await(
        self, highest: Mapping[str, int], deadline: float | None, refused: dict[str, BrokerError] | None
    ) -> dict[str, TopicInfo]:
        for name in highest:
            check_topic_name(name)
        began = self._clock()
        limit = began + self._config.max_block_ms / 1000 if deadline is None else deadline
        self._refuse_io_thread(next(iter(highest)))
        left = {
            name: TopicWait(
                name, limit, self._timeout_text, partition=highest[name], user=self._user,
                may_appear=refused is None or name not in self._absent,
                unknown_timeout=DELETED_TOPIC_GRACE if self._metadata.existed(name) else float("inf"),
            )
            for name in highest
        }  # fmt: skip
        found: dict[str, TopicInfo] = {}
        told = WaitLog(began, len(left), self._timeout_text)
        rounds, not_before = 0, 0.0
        try:
            while left:
                try:
                    answer = self._ask(list(left), not_before, limit, next(iter(left.values())), told)
                except TopicNotFound:  # the time was up between two questions
                    if refused is None:
                        raise
                    refused |= {name: self._not_found(wait) for name, wait in left.items()}
                    break
                now = self._clock()
                for name, info in answer.items():
                    if self._judged(left[name], now, info, refused) is not TopicStatus.PENDING:
                        found[name] = info
                        del left[name]
                told.tell(now, left)
                not_before = now + self._backoff(rounds)
                rounds += 1
        finally:
            now = self._clock()
            self._waited(now - began, now)
        return found

    def _judged(
        self, wait: TopicWait, now: float, info: TopicInfo, refused: dict[str, BrokerError] | None
    ) -> TopicStatus | None:
        """Return what an answer means; None if the topic is refused, which is noted in `refused`, or else raised."""
        try:
            verdict = wait.evaluate(now, info)
        except BrokerError as error:
            if refused is None:
                raise
            refused[wait.topic] = error
            if isinstance(error, TopicNotFound):
                self._remember_absent(wait.topic)
            return None
        if verdict is not TopicStatus.PENDING:
            self._absent.pop(wait.topic, None)
        return verdict

    def _not_found(self, wait: TopicWait) -> BrokerError:
        """Return the error of a topic that has not appeared in time, or raise what else its wait ended with."""
        error = wait.error()
        if not isinstance(error, BrokerError):
            raise error
        self._remember_absent(wait.topic)
        return error

    def _remember_absent(self, name: str) -> None:
        self._absent[name] = None
        while len(self._absent) > MAX_ABSENT_TOPICS:
            del self._absent[next(iter(self._absent))]

    def _ask(
        self, names: Sequence[str], not_before: float, limit: float, wait: TopicWait, told: WaitLog
    ) -> Mapping[str, TopicInfo]:
        """Ask for the topics, wait, and return what the answer says. Answers to questions sent earlier do not count."""
        wish = self._metadata.request_topics(*names, not_before=not_before)
        self._wakeup()
        try:
            while wish.response is None:
                told.log_silence(self._clock(), wait.topic, self.last_error)
                with self._lock:
                    if wish.response is not None:
                        break
                    self._check_open()
                    left = limit - self._clock()
                    if left <= 0:
                        raise wait.error() if wait.answered else self._nothing_learnt(wait)
                    self._changed.wait(min(left, self._max_sleep))
        finally:
            wish.done = True
        return wish.response

    def _nothing_learnt(self, wait: TopicWait) -> PyProducerError:
        """Return the error for a wait that has ended before any broker said anything about the topic."""
        within = f"within {self._timeout_text}"
        if self._metadata.cluster.nodes:
            return MetadataTimeout(f"no broker told of topic {wait.topic!r} {within}")
        reason = f" Last error: {str(self.last_error).rstrip('.')}." if self.last_error else ""
        advice = " Check kafka.bootstrap.servers, the network, and whether the brokers run"
        if isinstance(self.last_error, AuthenticationFailed):  # no token, as it is not fatal: the brokers are well
            advice = " Without a login no broker answers: see to that first"
        return BrokersUnreachable(
            f"none of the bootstrap servers {self._config.bootstrap_servers} answered {within}.{reason}{advice}"
        )

    def _refuse_io_thread(self, topic: str) -> None:
        if threading.get_ident() == self.io_thread:
            raise MetadataTimeout(
                f"a callback sent a record to topic {topic!r}, but the topic, or the partition, is not known yet, and a "
                "callback cannot wait until it is: it runs on the thread that asks the brokers. Send a record to the topic "
                "before, or hand this one to another thread"
            )


def check_topic_name(name: str) -> None:
    """Refuse a name that no request can hold, because it would spoil the request for all threads that wait.

    Other bad names are left to the brokers, which refuse each by name.

    Raises:
        RecordError: the name is empty, cannot be encoded, or is longer than a string of the protocol.
    """
    complaint = _complaint(name)
    if complaint:
        raise RecordError(complaint)


def invalid_topic_names(columns: CheckedColumns) -> RejectedRows:
    """Return the rows whose topic `check_topic_name` refuses. A caller can leave them out before `MetadataWaiter.find`."""
    complaints = [_complaint(name) for name in columns.topics]
    bad = np.array([complaint != "" for complaint in complaints], dtype=np.bool_)
    if not bad.any():
        return NONE_REJECTED
    codes = np.zeros(len(columns.records), dtype=np.int32) if columns.topic_codes is None else columns.topic_codes
    return RejectedRows.among(
        columns, [errors_at(bad[codes], RowErrorKind.TOPIC, lambda spot: complaints[spot.found], codes)]
    )


def of_control_topics(columns: CheckedColumns) -> RejectedRows:
    """Return the rows that name a topic of control records (`config.control_topics`)."""
    bad = np.array([is_control_topic(name) for name in columns.topics], dtype=np.bool_)
    if not bad.any():
        return NONE_REJECTED
    codes = np.zeros(len(columns.records), dtype=np.int32) if columns.topic_codes is None else columns.topic_codes
    return RejectedRows.among(
        columns,
        [
            errors_at(
                bad[codes],
                RowErrorKind.TOPIC,
                lambda at: f"row {at.row} of the task: {refusal(columns.topics[at.found])}",
                codes,
            )
        ],
    )


def _complaint(name: str) -> str:
    """Return what is wrong with a name; an empty string if nothing is."""
    try:
        fits = 0 < len(name.encode()) <= MAX_STRING_BYTES
    except (AttributeError, UnicodeEncodeError):
        fits = False
    if fits:
        return ""
    quoted = (
        f"{name[:MAX_QUOTED_CHARACTERS]!r}…"
        if isinstance(name, str) and len(name) > MAX_QUOTED_CHARACTERS
        else repr(name)
    )
    return f"{quoted} is no topic name: a name is text of 1 to 249 letters, digits, '.', '_' and '-'"
