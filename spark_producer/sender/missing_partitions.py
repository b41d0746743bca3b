"""Distinguishes a partition that no longer exists from one that the brokers do not know yet.

A single answer proves nothing: the metadata of a broker may lag some seconds behind the controller, above all when the broker or
the topic is new. A topic id does not help either, since such a broker has the id of the former topic. A topic never loses
partitions, so fewer of them mean that it was deleted and created again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Set
from typing import NamedTuple

from spark_producer.accumulator import ProducerBatch
from spark_producer.common.cluster import TopicInfo, TopicPartition
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError, TopicNotFound, broker_error
from spark_producer.sender.stale_leader_epochs import MAX_BROKER_LAG_S

CONFIRMED_AFTER = MAX_BROKER_LAG_S
"""Seconds without an answer that has the partition, before it counts as missing."""

MIN_RESPONSES = 3
"""The minimum number of answers that must agree."""

MIN_BROKERS = 3
"""The minimum number of brokers that must agree, or all if there are fewer, since the metadata of one may lag."""

FEW_BROKERS_AFTER = 30.0
"""Seconds after which fewer brokers are enough, because the others cannot be asked."""

MAX_RESPONSES = 128
"""The maximum number of answers that are remembered of each topic; with the default backoff they come once a second."""

FORGOTTEN_AFTER = 120.0
"""Seconds after which an answer no longer counts."""


WITHOUT_PARTITIONS = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED})
"""The codes of a topic that has no partitions for us: without a right to it brokers name none, and rows would wait in vain."""


class Absence(NamedTuple):
    """A topic that lacks a partition, as brokers answer: the number of its partitions, 0 if there is no such topic."""

    partitions: int
    code: Code = Code.NONE
    """what the last answer said of the topic"""


class _TopicResponse(NamedTuple):
    time: float
    node: int
    partitions: int
    code: Code = Code.NONE


class MissingPartitions:
    """Remembers what each broker has answered about topics that rows wait for. Only the I/O thread uses it."""

    def __init__(self) -> None:
        self._answers: dict[str, deque[_TopicResponse]] = {}

    def watch(self, topics: Collection[str]) -> None:
        """Begin to remember the answers about these topics, whose batches have no leader."""
        for topic in topics:
            self._answers.setdefault(topic, deque(maxlen=MAX_RESPONSES))

    def answered(self, asked: Set[str], topics: Mapping[str, TopicInfo], node: int, now: float) -> None:
        """Remember a broker's answer about the topics that it was `asked` for, and forget topics without recent answers.

        Only the answer that a topic does not exist or is refused to us, or one without an error, tells the number of its
        partitions. After any other error, or an answer without the topic, the topic may exist, and its answers are forgotten.
        """
        for topic in asked & self._answers.keys():
            info, answers = topics.get(topic), self._answers[topic]
            if info is not None and (not info.error_code or info.error_code in WITHOUT_PARTITIONS):
                count = 0 if info.error_code else len(info.leaders)
                answers.append(_TopicResponse(now, node, count, Code(info.error_code)))
            else:
                del self._answers[topic]
        for topic, answers in list(self._answers.items()):
            if answers and now - answers[-1].time > FORGOTTEN_AFTER:
                del self._answers[topic]

    def other_nodes(self, nodes: Collection[int]) -> list[int]:
        """Return the nodes that have not answered yet about a topic of which another broker has."""
        asked = [{answer.node for answer in answers} for answers in self._answers.values() if answers]
        return [node for node in nodes if any(node not in those for those in asked)] if asked else []

    def absence(self, tp: TopicPartition, nodes: Collection[int], now: float) -> Absence | None:
        """Return the absence of a partition, once that is sure; else None. `nodes` are those of the cluster."""
        answers = self._answers.get(tp.topic)
        agreeing: list[_TopicResponse] = []
        for answer in reversed(answers or ()):
            if answer.partitions > tp.partition or now - answer.time > FORGOTTEN_AFTER:
                break
            agreeing.append(answer)
        if len(agreeing) < MIN_RESPONSES:
            return None
        seconds = agreeing[0].time - agreeing[-1].time
        brokers = {answer.node for answer in agreeing} & set(nodes)
        enough = len(brokers) >= min(MIN_BROKERS, len(nodes))
        if seconds < CONFIRMED_AFTER or not (enough or seconds >= FEW_BROKERS_AFTER):
            return None
        return Absence(agreeing[0].partitions, agreeing[0].code)


def missing_error(batch: ProducerBatch, absence: Absence, user: str = "") -> BrokerError:
    """Return the error of a batch whose partition no longer exists, or whose topic `user` may not write to any more."""
    topic, partition = tp = batch.topic_partition
    records = "1 record" if batch.records_count == 1 else f"{batch.records_count} records"
    if absence.code is Code.TOPIC_AUTHORIZATION_FAILED:
        return broker_error(absence.code, f"{records} for {tp}", user=user)
    if not absence.partitions:
        why = "the topic no longer exists"
        advice = "create it again, or correct its name, and write the rows again"
    else:
        count = "only partition 0" if absence.partitions == 1 else f"only partitions 0 to {absence.partitions - 1}"
        why = f"the partition no longer exists: the topic was deleted and created again, and has {count} now"
        advice = f"write the rows again, which distributes them over these, or add partitions up to {partition}"
    return TopicNotFound(
        f"{records} for {tp} were not written, because {why}. All brokers that were asked have agreed for at least "
        f"{CONFIRMED_AFTER:g} s. What to do: {advice}.",
        code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        topic=topic,
        partition=partition,
    )
