"""The rule that tells a partition that no longer exists from one whose brokers have not heard of it yet.

A single answer proves nothing: a broker may be some seconds behind the controller, above all when it has just started, or when a
topic was just created. A topic id does not help either, since such a broker names the id of the former topic. Partitions are
never taken from a topic, so fewer of them mean that the topic was deleted and created again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from spark_producer.accumulator import ProducerBatch
from spark_producer.cluster import TopicInfo, TopicPartition
from spark_producer.codes import Code
from spark_producer.errors import BrokerError, TopicNotFound
from spark_producer.sender.older_epochs import LONGEST_BROKER_LAG

CONFIRMED_AFTER = LONGEST_BROKER_LAG
"""Seconds for which no answer may know of a partition before it counts as missing."""

MIN_ANSWERS = 3
"""The answers that must agree within this time."""

MIN_BROKERS = 3
"""The brokers that must agree, or all if there are fewer, since one of them may be behind."""

FEW_BROKERS_AFTER = 30.0
"""Seconds after which fewer brokers are enough, because the others cannot be asked."""

MAX_ANSWERS = 128
"""The answers that are remembered of each topic; with the default backoff they come once a second."""

FORGOTTEN_AFTER = 120.0
"""Seconds after which an answer no longer counts."""


class Absence(NamedTuple):
    """What the brokers know of a topic that lacks a partition: the number of its partitions, 0 if there is no such topic."""

    partitions: int


class _Answer(NamedTuple):
    time: float
    node: int
    partitions: int


class MissingPartitions:
    """Remembers what each broker has answered about topics that rows wait for. Only the I/O thread uses it."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[_Answer]] = {}

    def watch(self, topics: Collection[str]) -> None:
        """Begin to remember the answers about these topics, whose rows have no leader to go to."""
        for topic in topics:
            self._answers.setdefault(topic, deque(maxlen=MAX_ANSWERS))

    def answered(self, asked: Set[str], told: Mapping[str, TopicInfo], node: int, now: float) -> None:
        """Take in what a broker says about the topics that it was asked for, and forget topics without recent answers.

        Only a topic that does not exist, or exists without an error, says something of its partitions. An answer with another
        error, or one that leaves the topic out, ends all doubt: the topic may be there.
        """
        for topic in asked & self._answers.keys():
            info, answers = told.get(topic), self._answers[topic]
            if info is not None and info.error_code in (Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION):
                answers.append(_Answer(now, node, 0 if info.error_code else len(info.leaders)))
            else:
                del self._answers[topic]
        for topic, answers in list(self._answers.items()):
            if answers and now - answers[-1].time > FORGOTTEN_AFTER:
                del self._answers[topic]

    def other_nodes(self, nodes: Collection[int]) -> list[int]:
        """Return the nodes that have not been asked yet about one of the topics that another broker has answered about."""
        asked = [{answer.node for answer in answers} for answers in self._answers.values() if answers]
        return [node for node in nodes if any(node not in those for those in asked)] if asked else []

    def absence(self, place: TopicPartition, nodes: Collection[int], now: float) -> Absence | None:
        """Return why a partition does not exist, once that is sure; else None. `nodes` are the cluster's."""
        answers = self._answers.get(place.topic)
        agreeing: list[_Answer] = []
        for answer in reversed(answers or ()):
            if answer.partitions > place.partition or now - answer.time > FORGOTTEN_AFTER:
                break
            agreeing.append(answer)
        if len(agreeing) < MIN_ANSWERS:
            return None
        seconds = agreeing[0].time - agreeing[-1].time
        brokers = {answer.node for answer in agreeing} & set(nodes)
        enough = len(brokers) >= min(MIN_BROKERS, len(nodes))
        if seconds < CONFIRMED_AFTER or not (enough or seconds >= FEW_BROKERS_AFTER):
            return None
        return Absence(agreeing[0].partitions)


def missing_error(batch: ProducerBatch, absence: Absence) -> BrokerError:
    """Return the error of a batch whose partition does not exist."""
    topic, partition = place = batch.place
    records = "1 record" if batch.records_count == 1 else f"{batch.records_count} records"
    if not absence.partitions:
        why = "the topic no longer exists"
        advice = "create it again, or correct its name, and write the rows again"
    else:
        count = "only partition 0" if absence.partitions == 1 else f"only partitions 0 to {absence.partitions - 1}"
        why = f"the partition no longer exists: the topic was deleted and created again, and has {count} now"
        advice = (
            f"write the rows again, so that they are shared among these, or give the topic {partition + 1} partitions"
        )
    return TopicNotFound(
        f"{records} for {place} were not written, because {why}. All brokers that were asked agree, for "
        f"{CONFIRMED_AFTER:g} s or longer. What to do: {advice}.",
        code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        topic=topic,
        partition=partition,
    )
