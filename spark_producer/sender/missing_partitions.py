"""Distinguishes a partition that no longer exists from one that the brokers do not know yet.

A single response proves nothing: the metadata of a broker may be some seconds older than that of the controller, above all when
the broker or the topic is new. A topic id does not help either, since such a broker has the id of the previous topic. A topic
never loses partitions, so fewer of them mean that it was deleted and created again.
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
"""Minimum seconds without a response that has the partition, before it counts as missing."""

MIN_RESPONSES = 3
"""Minimum number of responses that must agree."""

MIN_BROKERS = 3
"""Minimum number of brokers that must agree, or all if there are fewer, since the metadata of one may be stale."""

FEW_BROKERS_AFTER = 30.0
"""Seconds after which fewer brokers are enough, because the others are unavailable."""

MAX_RESPONSES = 128
"""Maximum number of responses that are kept for each topic; with the default backoff there is one per second."""

FORGOTTEN_AFTER = 120.0
"""Seconds after which a response no longer counts."""


WITHOUT_PARTITIONS = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.TOPIC_AUTHORIZATION_FAILED})
"""The error codes of a topic without partitions for this producer, whose rows would wait until they expire."""


class Absence(NamedTuple):
    """A topic that lacks a partition: the number of its partitions, or 0 if the topic does not exist."""

    partitions: int
    code: Code = Code.NONE
    """the error code of the topic in the last response"""


class _TopicResponse(NamedTuple):
    time: float
    node: int
    partitions: int
    code: Code = Code.NONE


class MissingPartitions:
    """Keeps the responses of each broker about topics that rows wait for. Only the I/O thread uses it."""

    def __init__(self) -> None:
        self._responses: dict[str, deque[_TopicResponse]] = {}

    def watch(self, topics: Collection[str]) -> None:
        """Begin to keep the responses about these topics, whose batches have no leader."""
        for topic in topics:
            self._responses.setdefault(topic, deque(maxlen=MAX_RESPONSES))

    def on_response(self, requested: Set[str], topics: Mapping[str, TopicInfo], node: int, now: float) -> None:
        """Keep a broker's response about the `requested` topics, and forget topics without recent responses.

        The number of partitions is known from a response without an error, or with one of `WITHOUT_PARTITIONS`. After any other
        error, or a response without the topic, the topic may exist, and its responses are forgotten.
        """
        for topic in requested & self._responses.keys():
            info, responses = topics.get(topic), self._responses[topic]
            if info is not None and (not info.error_code or info.error_code in WITHOUT_PARTITIONS):
                count = 0 if info.error_code else len(info.leaders)
                responses.append(_TopicResponse(now, node, count, Code(info.error_code)))
            else:
                del self._responses[topic]
        for topic, responses in list(self._responses.items()):
            if responses and now - responses[-1].time > FORGOTTEN_AFTER:
                del self._responses[topic]

    def other_nodes(self, nodes: Collection[int]) -> list[int]:
        """Return the nodes without a response about a topic that other nodes have responded about."""
        responding = [{response.node for response in responses} for responses in self._responses.values() if responses]
        return [node for node in nodes if any(node not in those for those in responding)] if responding else []

    def absence(self, tp: TopicPartition, nodes: Collection[int], now: float) -> Absence | None:
        """Return the absence of a partition, once it is confirmed; else None. `nodes` are those of the cluster."""
        responses = self._responses.get(tp.topic)
        agreeing: list[_TopicResponse] = []
        for response in reversed(responses or ()):
            if response.partitions > tp.partition or now - response.time > FORGOTTEN_AFTER:
                break
            agreeing.append(response)
        if len(agreeing) < MIN_RESPONSES:
            return None
        seconds = agreeing[0].time - agreeing[-1].time
        brokers = {response.node for response in agreeing} & set(nodes)
        enough = len(brokers) >= min(MIN_BROKERS, len(nodes))
        if seconds < CONFIRMED_AFTER or not (enough or seconds >= FEW_BROKERS_AFTER):
            return None
        return Absence(agreeing[0].partitions, agreeing[0].code)


def missing_error(batch: ProducerBatch, absence: Absence, user: str = "") -> BrokerError:
    """Return the error of a batch whose partition no longer exists, or whose topic `user` may no longer write to."""
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
        f"{records} for {tp} were not written: {why}. The brokers have agreed on that for at least "
        f"{CONFIRMED_AFTER:g} s. What to do: {advice}.",
        code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        topic=topic,
        partition=partition,
    )
