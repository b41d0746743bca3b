"""One wait for one topic, as a decision: what an answer of the brokers means to somebody who waits for the topic.

Owns: which answers are waited out, and the error that ends a wait. Whoever waits, and however it asks, asks here: the
producer, the driver's check, the command line, jobs. Must not know: how the question travels; the clock is passed in.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

from spark_producer.cluster import NO_LEADER
from spark_producer.codes import Action, Code
from spark_producer.errors import MetadataTimeout, PyProducerError, broker_error

PARTITION_GRACE = 2.0
"""Seconds for which a topic that exists may still grow: brokers hear of new partitions one after the other. Java's producer
waits `max.block.ms` for it; a row with a wrong number in it should not hold up a write for a minute."""


class TopicAnswer(Protocol):
    """What the brokers say of a topic."""

    @property
    def error_code(self) -> int:
        """0: the topic exists."""

    @property
    def leaders(self) -> Sequence[int]:
        """The leader of each partition; -1: none now."""


class Verdict(enum.Enum):
    """What to do after an answer. The third way, an error, is raised."""

    READY = "ready"
    ASK_AGAIN = "ask again"
    NO_PARTITION = "the topic exists, the partition that was asked for does not"


class TopicWait:
    """Fed with the answers to questions that were sent after the wait began, oldest first.

    `deadline`: in seconds of the caller's clock; `patience`: the same in words ("60 s (kafka.max.block.ms)").
    `partition`: the highest one that must be there; -1: whichever there are. `led`: it must have a leader, too.
    `appears`: an unknown topic is waited for, since the question may create it, or somebody has just done so.
    """

    def __init__(
        self,
        topic: str,
        deadline: float,
        patience: str,
        *,
        partition: int = -1,
        led: bool = False,
        appears: bool = True,
    ) -> None:
        self.topic = topic
        self.deadline = deadline
        self._patience = patience
        self._partition = partition
        self._led = led
        self._appears = appears
        self.code = Code.NONE
        """what the brokers said last; none for nothing, or that the topic is there"""
        self._short_since: float | None = None

    @property
    def answered(self) -> bool:
        """Whether anything was said of the topic yet."""
        return bool(self.code) or self._short_since is not None

    def judge(self, now: float, answer: TopicAnswer) -> Verdict:
        """What the newest answer means.

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
            return Verdict.READY
        hopeless = Action.RETRY not in self.code.action
        if hopeless or now >= self.deadline or (self.code is Code.UNKNOWN_TOPIC_OR_PARTITION and not self._appears):
            raise self.error(hopeless)
        return Verdict.ASK_AGAIN

    def error(self, at_once: bool = False) -> PyProducerError:
        """What the brokers said last, as the end of the wait."""
        subject = f"topic {self.topic!r}" + (f", partition {self._partition}" if self._led else "")
        if self.code is Code.UNKNOWN_TOPIC_OR_PARTITION and self._appears:
            return broker_error(self.code, f"{subject}, still after {self._patience}", topic=self.topic)
        if at_once or self.code is Code.UNKNOWN_TOPIC_OR_PARTITION:
            return broker_error(self.code, subject, topic=self.topic)
        said = f"The brokers answer {self.code.name} ({self.code}). What to do: {self.code.advice}."
        if not self.code:
            said = f"The brokers know of no partition {self._partition}."
        return MetadataTimeout(f"{subject} was not ready within {self._patience}. {said}", code=self.code)

    def _short(self, now: float) -> Verdict:
        """The topic has too few partitions, as of now."""
        self.code = Code.NONE
        if self._short_since is None:
            self._short_since = now
        patient = self._appears and now - self._short_since < PARTITION_GRACE and now < self.deadline
        return Verdict.ASK_AGAIN if patient else Verdict.NO_PARTITION
