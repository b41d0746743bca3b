"""Evaluates Metadata responses for a caller that waits for a topic: ready, pending, or an error.

The producer, the driver's check, the command line and the jobs use it, each with its own requests and clock.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import MetadataTimeout, PyProducerError, broker_error

PARTITION_GRACE = 2.0
"""Seconds to wait for more partitions of an existing topic, since brokers learn of new ones at different times. Java's producer
waits `max.block.ms`; here a row with a wrong partition number should not delay a write for a minute."""

UNKNOWN_TOPIC_GRACE = 8.0
"""Seconds to wait by default, in the driver and the commands, for an unknown topic that brokers may create automatically. They do
so within a second or two; far more often the name is wrong."""

DELETED_TOPIC_GRACE = 5.0
"""Seconds to wait, in a producer, for a topic that was deleted during a write, since it may be created again."""


class TopicMetadata(Protocol):
    """A topic in a Metadata response."""

    @property
    def error_code(self) -> int:
        """The error code, which is 0 if the topic exists."""

    @property
    def leaders(self) -> Sequence[int]:
        """The leader of each partition; -1 if it has none now."""


class TopicStatus(enum.Enum):
    """The state of a topic after a response. An error that ends the wait is raised instead."""

    READY = "ready"
    PENDING = "not ready yet"
    NO_PARTITION = "the topic exists, but not the partition"


class TopicWait:
    """A wait for one topic. It takes the responses to Metadata requests that were sent after it began, oldest first.

    `deadline` is in seconds of the caller's clock, and `timeout_text` names the same limit in messages, such as
    "60 s (kafka.max.block.ms)". `partition` is the highest one that must exist, or -1. With `needs_leader` it must also have a
    leader. With `may_appear` an unknown topic is waited for, since the request may create it, or another client just has.
    """

    def __init__(
        self,
        topic: str,
        deadline: float,
        timeout_text: str,
        *,
        partition: int = -1,
        needs_leader: bool = False,
        may_appear: bool = True,
        unknown_timeout: float = float("inf"),
        user: str = "",
        called: str = "topic",
    ) -> None:
        """The wait for an unknown topic ends `unknown_timeout` seconds after the first response without it.

        `user` is the principal that messages about missing rights name, and `called` is what messages call the topic.
        """
        self.topic = topic
        self.deadline = deadline
        self._timeout_text = timeout_text
        self._partition = partition
        self._led = needs_leader
        self._appears = may_appear
        self._unknown_timeout = unknown_timeout
        self._unknown_since: float | None = None
        self._unknown_too_long = False
        self._user = user
        self._called = called
        self.code = Code.NONE
        """The last error code of the brokers; `NONE` without a response, or if the topic exists."""
        self._short_since: float | None = None

    @property
    def answered(self) -> bool:
        """Whether there was a response with the topic."""
        return bool(self.code) or self._short_since is not None

    def evaluate(self, now: float, topic: TopicMetadata) -> TopicStatus:
        """Return the state of the topic after the newest response.

        Raises:
            TopicNotFound: the topic does not exist, and has not appeared in time.
            BrokerError: the brokers return an error that is not retriable.
            MetadataTimeout: the topic, or the leader of the partition, is not ready at the deadline.
        """
        leaders = topic.leaders
        if not topic.error_code and leaders and self._partition >= len(leaders):
            return self._too_few_partitions(now)
        ready = bool(leaders) and not (self._led and leaders[self._partition] == NO_LEADER)
        self.code = Code(topic.error_code or (Code.NONE if ready else Code.LEADER_NOT_AVAILABLE))
        if not self.code:
            return TopicStatus.READY
        not_retriable = Action.RETRY not in self.code.action
        if not_retriable or now >= self.deadline or self._still_unknown(now):
            raise self.error(not_retriable)
        return TopicStatus.PENDING

    def ends_early(self, now: float) -> bool:
        """Return whether the wait has ended before its deadline, because the responses lack the topic."""
        return self._appears and now < self.deadline

    def exists(self) -> None:
        """Record that another broker knows the topic, so that the wait lasts until the deadline."""
        self._unknown_timeout, self._unknown_too_long = float("inf"), False

    def _still_unknown(self, now: float) -> bool:
        """Return whether the topic has been unknown for longer than the wait for an unknown topic."""
        if self.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown_since = None
            return False
        if self._unknown_since is None:
            self._unknown_since = now
        self._unknown_too_long = now - self._unknown_since >= self._unknown_timeout
        return self._unknown_too_long or not self._appears

    def error(self, immediate: bool = False) -> PyProducerError:
        """Return the error that ends the wait after the last response."""
        subject = f"{self._called} {self.topic!r}" + (f", partition {self._partition}" if self._led else "")
        if self.code is Code.UNKNOWN_TOPIC_OR_PARTITION and self._appears:
            waited = f"{self._unknown_timeout:g} s" if self._unknown_too_long else self._timeout_text
            return broker_error(self.code, f"{subject}, still after {waited}", topic=self.topic)
        if immediate or self.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            return broker_error(self.code, subject, user=self._user, topic=self.topic)
        reason = f"The brokers return {self.code.name} ({self.code}). What to do: {self.code.advice}."
        if not self.code:
            reason = f"The brokers do not know partition {self._partition}."
        return MetadataTimeout(f"{subject} was not ready within {self._timeout_text}. {reason}", code=self.code)

    def _too_few_partitions(self, now: float) -> TopicStatus:
        """Return the state of a topic that has too few partitions now."""
        self.code = Code.NONE
        if self._short_since is None:
            self._short_since = now
        pending = self._appears and now - self._short_since < PARTITION_GRACE and now < self.deadline
        return TopicStatus.PENDING if pending else TopicStatus.NO_PARTITION
