"""What an answer of the brokers means to a caller that waits for a topic: it is ready, ask again, or an error.

The producer, the driver's check, the command line and the jobs all use it, each with its own way to ask and its own clock.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from spark_producer.common.cluster import NO_LEADER
from spark_producer.common.error_codes import Action, Code
from spark_producer.errors import MetadataTimeout, PyProducerError, broker_error

PARTITION_GRACE = 2.0
"""The seconds for which an existing topic may still get more partitions, since brokers hear of new ones one after the other.
Java's producer waits `max.block.ms`; here a row with a wrong partition number should not delay a write for a minute."""

UNKNOWN_TOPIC_GRACE = 8.0
"""The seconds for which the driver and the commands wait by default for an unknown topic, which brokers may create automatically.
They do so within a second or two; far more often the name is wrong."""

DELETED_TOPIC_GRACE = 5.0
"""The seconds for which a producer waits for a topic that was deleted while it was written to, since it may be created again."""


class TopicMetadata(Protocol):
    """The brokers' answer about a topic."""

    @property
    def error_code(self) -> int:
        """The error code, which is 0 if the topic exists."""

    @property
    def leaders(self) -> Sequence[int]:
        """The leader of each partition; -1 if it has none now."""


class TopicStatus(enum.Enum):
    """The meaning of an answer. If it ends the wait with an error, that is raised instead."""

    READY = "ready"
    ASK_AGAIN = "ask again"
    NO_PARTITION = "the topic exists, the partition that was asked for does not"


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
        """An unknown topic is waited for at most `unknown_timeout` seconds from the first answer that says so.

        `user` is whom a message names that says that a right is missing, and `called` is what it calls the topic.
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
        """The last error code of the brokers; `NONE` if there was no answer yet, or the topic exists."""
        self._short_since: float | None = None

    @property
    def answered(self) -> bool:
        """Whether the brokers have said anything about the topic yet."""
        return bool(self.code) or self._short_since is not None

    def evaluate(self, now: float, answer: TopicMetadata) -> TopicStatus:
        """Return what the newest answer means.

        Raises:
            TopicNotFound: there is no such topic, and none has appeared in time.
            BrokerError: the brokers refuse; asking again would not help.
            MetadataTimeout: the time is up, and the topic, or the partition's leader, is still not ready.
        """
        leaders = answer.leaders
        if not answer.error_code and leaders and self._partition >= len(leaders):
            return self._short(now)
        ready = bool(leaders) and not (self._led and leaders[self._partition] == NO_LEADER)
        self.code = Code(answer.error_code or (Code.NONE if ready else Code.LEADER_NOT_AVAILABLE))
        if not self.code:
            return TopicStatus.READY
        fatal_error = Action.RETRY not in self.code.action
        if fatal_error or now >= self.deadline or self._still_unknown(now):
            raise self.error(fatal_error)
        return TopicStatus.ASK_AGAIN

    def ends_early(self, now: float) -> bool:
        """Return whether the wait has ended before its deadline, because no broker that was asked knows the topic."""
        return self._appears and now < self.deadline

    def exists(self) -> None:
        """Note that another broker knows the topic, so that the wait lasts until the deadline."""
        self._unknown_timeout, self._unknown_too_long = float("inf"), False

    def _still_unknown(self, now: float) -> bool:
        """Return whether the topic has been unknown for as long as an unknown topic is waited for."""
        if self.code is not Code.UNKNOWN_TOPIC_OR_PARTITION:
            self._unknown_since = None
            return False
        if self._unknown_since is None:
            self._unknown_since = now
        self._unknown_too_long = now - self._unknown_since >= self._unknown_timeout
        return self._unknown_too_long or not self._appears

    def error(self, at_once: bool = False) -> PyProducerError:
        """Return the error that ends the wait after the brokers' last answer."""
        subject = f"{self._called} {self.topic!r}" + (f", partition {self._partition}" if self._led else "")
        if self.code is Code.UNKNOWN_TOPIC_OR_PARTITION and self._appears:
            waited = f"{self._unknown_timeout:g} s" if self._unknown_too_long else self._timeout_text
            return broker_error(self.code, f"{subject}, still after {waited}", topic=self.topic)
        if at_once or self.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            return broker_error(self.code, subject, user=self._user, topic=self.topic)
        said = f"The brokers answer {self.code.name} ({self.code}). What to do: {self.code.advice}."
        if not self.code:
            said = f"The brokers know of no partition {self._partition}."
        return MetadataTimeout(f"{subject} was not ready within {self._timeout_text}. {said}", code=self.code)

    def _short(self, now: float) -> TopicStatus:
        """Return what it means that the topic has too few partitions now."""
        self.code = Code.NONE
        if self._short_since is None:
            self._short_since = now
        patient = self._appears and now - self._short_since < PARTITION_GRACE and now < self.deadline
        return TopicStatus.ASK_AGAIN if patient else TopicStatus.NO_PARTITION
