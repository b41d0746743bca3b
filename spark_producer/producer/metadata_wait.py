"""Looks up the topics of rows to be queued. Task threads wait here for topics that are not known yet.

`Metadata` sends the requests, and `TopicWait` evaluates the responses. The first request has all unknown topics, each further one
only those that are still pending.
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
    LOGIN_ADVICE,
    AuthenticationFailed,
    BrokerError,
    BrokersUnreachable,
    MetadataTimeout,
    PyProducerError,
    RecordError,
    TopicNotFound,
    text_and_advice,
)
from spark_producer.network.metadata_wait import DELETED_TOPIC_GRACE, TopicStatus, TopicWait
from spark_producer.partitioner import TopicPartitions
from spark_producer.protocol import MAX_STRING_BYTES
from spark_producer.record.columns import CheckedColumns
from spark_producer.record.rejected import NONE_REJECTED, RejectedRows, RowErrorKind, errors_at
from spark_producer.sender import KnownTopics, Metadata

MAX_QUOTED_CHARACTERS = 100
"""Maximum characters of a name in a message. A name that is too long may be a value in the wrong column."""

FIRST_LOG_AFTER_S = 5.0
"""Seconds after which a wait is logged; then after twice as long, and so on. Brokers take about 25 s to create a thousand topics,
during which a write logs nothing else."""

MAX_ABSENT_TOPICS = 1000
"""Maximum number of topic names that are kept as missing: a column of topics may have any values."""

logger = escaping_logger("pyproducer")


class WaitLog:
    """Logs the progress of one wait for topics."""

    def __init__(self, began: float, topics: int, timeout_text: str) -> None:
        self._began, self._topics, self._timeout_text = began, topics, timeout_text
        self._next = FIRST_LOG_AFTER_S
        self._silent_since = began

    def log_pending(self, now: float, pending: Mapping[str, TopicWait]) -> None:
        """Log the number of pending topics after a response, if that is due."""
        self._silent_since = now
        seconds = now - self._began
        if seconds < self._next or not pending:
            return
        self._next = 2 * seconds
        name, wait = next(iter(pending.items()))
        count = (
            f"{len(pending):,} of {self._topics:,} topics, among them {name!r}"
            if self._topics > 1
            else f"topic {name!r}"
        )
        reason = f"the brokers return {wait.code.name}" if wait.code else "it has too few partitions yet"
        logger.warning("still waiting for %s (%s) after %.0f s, at most %s", count, reason, seconds, self._timeout_text)

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
    """Looks up topics for task threads. Any thread except the I/O thread may wait here."""

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
        """`check_open` raises the error that has ended the producer; `waited(seconds, now)` records a wait. `user` is the
        producer's principal.

        A waiting thread checks every `max_sleep` seconds whether the producer has ended, even without a wake-up.
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
        """Topics that did not appear during a whole wait, oldest first. Later writes that collect bad rows request them once."""
        self._lock = threading.Lock()
        """Acquire it directly, not by the condition: Ctrl-C within the condition's `__enter__` would leave it locked for ever."""
        self._changed = threading.Condition(self._lock)
        self.io_thread = 0
        """the identifier of the I/O thread, which receives the responses and so cannot wait for them"""
        self.last_error: PyProducerError | None = None
        """the last connection error that the I/O thread has seen since the last response"""

    def find(
        self,
        highest: Mapping[str, int],
        deadline: float | None = None,
        refused: dict[str, BrokerError] | None = None,
    ) -> list[TopicPartitions]:
        """Return the topics for partitioners, in the order given. Wait up to `max.block.ms`, or until `deadline`.

        `highest` maps each topic to the highest partition of its rows, or to -1. If that partition does not exist after the wait,
        no error is raised here: the check of the rows does that, and can name the row.

        With `refused`, topics that do not exist or may not be used raise nothing: their errors are put there, and the result is
        empty if there are any. A topic that has not appeared during an earlier wait is requested once, without a wait.

        Raises:
            RecordError: a name is not valid for a topic.
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
        """Wake the waiting threads after a response, or after the end of the producer. The I/O thread calls this."""
        with self._lock:
            self._changed.notify_all()

    def _await(
        self, highest: Mapping[str, int], deadline: float | None, refused: dict[str, BrokerError] | None
    ) -> dict[str, TopicInfo]:
        for name in highest:
            check_topic_name(name)
        began = self._clock()
        limit = began + self._config.max_block_ms / 1000 if deadline is None else deadline
        self._check_not_io_thread(next(iter(highest)))
        pending = {
            name: TopicWait(
                name, limit, self._timeout_text, partition=highest[name], user=self._user,
                may_appear=refused is None or name not in self._absent,
                unknown_timeout=DELETED_TOPIC_GRACE if self._metadata.existed(name) else float("inf"),
            )
            for name in highest
        }  # fmt: skip
        found: dict[str, TopicInfo] = {}
        wait_log = WaitLog(began, len(pending), self._timeout_text)
        rounds, not_before = 0, 0.0
        try:
            while pending:
                try:
                    response = self._request_and_wait(
                        list(pending), not_before, limit, next(iter(pending.values())), wait_log
                    )
                except TopicNotFound:  # the deadline passed between two requests
                    if refused is None:
                        raise
                    refused |= {name: self._not_found(wait) for name, wait in pending.items()}
                    break
                now = self._clock()
                for name, info in response.items():
                    if self._evaluate(pending[name], now, info, refused) is not TopicStatus.PENDING:
                        found[name] = info
                        del pending[name]
                wait_log.log_pending(now, pending)
                not_before = now + self._backoff(rounds)
                rounds += 1
        finally:
            now = self._clock()
            self._waited(now - began, now)
        return found

    def _evaluate(
        self, wait: TopicWait, now: float, info: TopicInfo, refused: dict[str, BrokerError] | None
    ) -> TopicStatus | None:
        """Return the state of a topic after a response; None for one with an error, which is put into `refused`, or raised."""
        try:
            status = wait.evaluate(now, info)
        except BrokerError as error:
            if refused is None:
                raise
            refused[wait.topic] = error
            if isinstance(error, TopicNotFound):
                self._remember_absent(wait.topic)
            return None
        if status is not TopicStatus.PENDING:
            self._absent.pop(wait.topic, None)
        return status

    def _not_found(self, wait: TopicWait) -> BrokerError:
        """Return the error of a topic that has not appeared in time; raise any other error of its wait."""
        error = wait.error()
        if not isinstance(error, BrokerError):
            raise error
        self._remember_absent(wait.topic)
        return error

    def _remember_absent(self, name: str) -> None:
        self._absent[name] = None
        while len(self._absent) > MAX_ABSENT_TOPICS:
            del self._absent[next(iter(self._absent))]

    def _request_and_wait(
        self, names: Sequence[str], not_before: float, limit: float, wait: TopicWait, wait_log: WaitLog
    ) -> Mapping[str, TopicInfo]:
        """Request the topics, wait, and return those of the response. Responses to earlier requests do not count."""
        waiter = self._metadata.request_topics(*names, not_before=not_before)
        self._wakeup()
        try:
            while waiter.response is None:
                wait_log.log_silence(self._clock(), wait.topic, self.last_error)
                with self._lock:
                    if waiter.response is not None:
                        break
                    self._check_open()
                    remaining = limit - self._clock()
                    if remaining <= 0:
                        raise wait.error() if wait.answered else self._no_response_error(wait)
                    self._changed.wait(min(remaining, self._max_sleep))
        finally:
            waiter.done = True
        return waiter.response

    def _no_response_error(self, wait: TopicWait) -> PyProducerError:
        """Return the error of a wait that has ended without a response about the topic."""
        within = f"within {self._timeout_text}"
        if self._metadata.cluster.nodes:
            return MetadataTimeout(
                f"no broker has returned topic {wait.topic!r} {within}. Check the network, and whether the brokers run"
            )
        reason = f" Last error: {text_and_advice(self.last_error)[0]}." if self.last_error else ""
        advice = " Check kafka.bootstrap.servers, the network, and whether the brokers run"
        if isinstance(
            self.last_error, AuthenticationFailed
        ):  # not fatal, so there is no token: the brokers may be well
            advice = f" {LOGIN_ADVICE}"
        return BrokersUnreachable(
            f"none of the bootstrap servers {self._config.bootstrap_servers} answered {within}.{reason}{advice}"
        )

    def _check_not_io_thread(self, topic: str) -> None:
        if threading.get_ident() == self.io_thread:
            raise MetadataTimeout(
                f"a callback cannot send a record to topic {topic!r}: the topic, or the partition, is not known yet, and the "
                "callback runs on the thread that would look it up. Send a record to the topic before, or send this one on "
                "another thread"
            )


def check_topic_name(name: str) -> None:
    """Check that a request can hold a name: an invalid one would break the request for all waiting threads.

    Other invalid names are left to the brokers, which reject each by name.

    Raises:
        RecordError: the name is empty, cannot be encoded, or is longer than a string of the protocol.
    """
    problem = _name_problem(name)
    if problem:
        raise RecordError(problem)


def invalid_topic_names(columns: CheckedColumns) -> RejectedRows:
    """Return the rows whose topic `check_topic_name` rejects. A caller can remove them before `MetadataWaiter.find`."""
    problems = [_name_problem(name) for name in columns.topics]
    bad = np.array([problem != "" for problem in problems], dtype=np.bool_)
    if not bad.any():
        return NONE_REJECTED
    codes = np.zeros(len(columns.records), dtype=np.int32) if columns.topic_codes is None else columns.topic_codes
    return RejectedRows.among(
        columns, [errors_at(bad[codes], RowErrorKind.TOPIC, lambda spot: problems[spot.found], codes)]
    )


def of_control_topics(columns: CheckedColumns) -> RejectedRows:
    """Return the rows that name a topic of control records (`config.control_topics`)."""
    if not any(map(is_control_topic, columns.topics)):
        return NONE_REJECTED
    bad = np.array([is_control_topic(name) for name in columns.topics], dtype=np.bool_)
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


def _name_problem(name: str) -> str:
    """Return the problem of a name; empty if it is valid."""
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
    return f"{quoted} is not a topic name: a name has 1 to 249 letters, digits, '.', '_' and '-'"
