"""`python -m tests.interop.conversations.record [VERSION ...]` plays all scenes to real Kafka and writes its answers down."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Protocol

from tests.interop.conversations.answers import file_of, page
from tests.interop.conversations.looking import DescribeTransactions, FindCoordinator, OffsetFetch
from tests.interop.conversations.scene import IMPLICIT, Line, Scene, Step, TxnVersion, play
from tests.interop.conversations.scenes import SCENES
from tests.interop.conversations.talk import Place
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39

SETTINGS = {
    # Transactions that take too long are found within a second instead of ten, and ids expire within ten instead of a week.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
PARTITIONS_EACH = 4
COORDINATORS_ARE_THERE = [
    Step("A", FindCoordinator("any", kind=0), until="here"),
    Step("A", FindCoordinator("any", kind=1), until="here"),
    Step("A", DescribeTransactions("any"), until="105"),
    Step("A", OffsetFetch(False, group="any"), until="^NONE"),
]
"""A coordinator makes its topic when it is first looked for, and answers when it has read it."""


class ABroker(Protocol):
    """The part of a broker's interface that a recording needs."""

    @property
    def bootstrap_servers(self) -> str:
        """Its bootstrap servers."""

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic; it can be written to when this returns."""


def known_to(version: str) -> list[tuple[Scene, TxnVersion]]:
    """The scenes that a Kafka can play: before 4.0 there was only one transaction version."""
    return [
        (scene, txn_version)
        for scene in SCENES
        for txn_version in scene.txn_versions
        if version >= "4" or txn_version is not IMPLICIT
    ]


class Places:
    """Places for conversations with one broker, each with partitions of its own in one topic, which is created here."""

    def __init__(self, broker: ABroker, count: int) -> None:
        self._port = int(broker.bootstrap_servers.rpartition(":")[2])
        self._topic = f"conversations-{uuid.uuid4().hex[:8]}"
        self._free = iter(range(0, count * PARTITIONS_EACH, PARTITIONS_EACH))
        broker.create_topic(self._topic, count * PARTITIONS_EACH)
        play(COORDINATORS_ARE_THERE, Place(self._port, self._topic, 0, ""))

    def take(self) -> Place:
        """Return partitions that no conversation has used."""
        return Place(self._port, self._topic, next(self._free), uuid.uuid4().hex[:8])


def played_to(cluster: KafkaCluster) -> Iterator[tuple[Scene, TxnVersion, list[Line]]]:
    """All scenes, one after the other."""
    scenes = known_to(cluster.version)
    places = Places(cluster, len(scenes))
    for scene, txn_version in scenes:
        began = time.monotonic()
        lines = play(scene.steps(txn_version), places.take())
        print(f"{cluster.version}: {scene.name}, {txn_version.name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        yield scene, txn_version, lines


def main(versions: Sequence[str]) -> None:
    """Write the page of each version."""
    for version in versions or (KAFKA_39, KAFKA_4):
        with KafkaCluster(version, settings=SETTINGS) as cluster:
            text = page(version, list(played_to(cluster)))
        file_of(version).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
