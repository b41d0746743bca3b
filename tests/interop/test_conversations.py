"""The scenes of transactions and groups, played to real Kafka and to the embedded broker: all must answer as it is written down.

The stored answers are in conversations/answers, one page for each Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from spark_producer.broker import BrokerSettings, LocalBroker
from tests.interop.conversations import scenes_edge, scenes_static
from tests.interop.conversations.answers import read, title
from tests.interop.conversations.embedded import DIFFERENCES, Difference, expected
from tests.interop.conversations.record import SETTINGS, Places, known_to
from tests.interop.conversations.scene import Scene, TxnVersion, play
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4, KAFKA_39


def cases(version: str) -> list[object]:
    """Every scene that a Kafka plays in less than seconds.

    Kafka's answers do not depend on our code; these cases check that the recorded answers are Kafka's.
    """
    return [
        pytest.param(scene, txn_version, id=title(scene, txn_version))
        for scene, txn_version in known_to(version)
        if not scene.slow
    ]


@pytest.fixture(scope="module")
def places_39(kafka_39: KafkaCluster) -> Places:
    return Places(kafka_39, len(known_to(KAFKA_39)))


@pytest.fixture(scope="module")
def places_4(kafka_4: KafkaCluster) -> Places:
    return Places(kafka_4, len(known_to(KAFKA_4)))


@pytest.mark.parametrize(("scene", "txn_version"), cases(KAFKA_39))
def test_kafka_39_answers_as_it_is_written_down(places_39: Places, scene: Scene, txn_version: TxnVersion) -> None:
    assert play(scene.steps(txn_version), places_39.take()) == read(KAFKA_39)[title(scene, txn_version)]


@pytest.mark.parametrize(("scene", "txn_version"), cases(KAFKA_4))
def test_kafka_4_answers_as_it_is_written_down(places_4: Places, scene: Scene, txn_version: TxnVersion) -> None:
    assert play(scene.steps(txn_version), places_4.take()) == read(KAFKA_4)[title(scene, txn_version)]


@pytest.mark.kafka
@pytest.mark.campaign
@pytest.mark.parametrize("version", [KAFKA_39, KAFKA_4])
def test_kafka_answers_as_it_is_written_down_when_time_goes_by(version: str) -> None:
    """Transactions that take too long, ids that expire, the last epoch: by a Kafka that looks for them every second."""
    slow = [(scene, txn_version) for scene, txn_version in known_to(version) if scene.slow]
    with KafkaCluster(version, settings=SETTINGS) as cluster:
        places = Places(cluster, len(slow))
        played = {
            title(scene, txn_version): play(scene.steps(txn_version), places.take()) for scene, txn_version in slow
        }
    pages = read(version)
    assert played == {name: pages[name] for name in played}


LEVELS = {KAFKA_39: 0, KAFKA_4: 2}
"""The Kafka that the embedded broker is compared with at each level of transactions."""


@pytest.fixture(scope="module")
def places_embedded() -> Iterator[dict[str, Places]]:
    """The embedded broker at both levels."""
    with ExitStack() as stack:
        yield {
            version: Places(stack.enter_context(embedded(level)), len(known_to(version)))
            for version, level in LEVELS.items()
        }


def embedded(level: int) -> LocalBroker:
    """Return a broker with the segments engine. Like Kafka it lists the aborted transactions up to the next entry of its offset
    index; the tiered engine lists only those among the records that were read."""
    settings = BrokerSettings(
        storage_engine="segments",
        transaction_version=level,
        transaction_scan_s=0.2,
        transactional_id_expiration_ms=2000,
        default_partitions=1,
    )
    return LocalBroker(settings=settings)


@pytest.mark.parametrize(
    ("version", "scene", "txn_version"),
    [
        pytest.param(
            version,
            scene,
            txn_version,
            id=f"{version}: {title(scene, txn_version)}",
            marks=[pytest.mark.campaign] if scene in (*scenes_edge.SCENES, scenes_static.LATE) else [],
        )
        for version in LEVELS
        for scene, txn_version in known_to(version)
    ],
)
def test_the_embedded_broker_answers_as_kafka(
    places_embedded: dict[str, Places], version: str, scene: Scene, txn_version: TxnVersion
) -> None:
    name = title(scene, txn_version)
    played = play(scene.steps(txn_version), places_embedded[version].take())
    assert played == expected(version, name, read(version)[name])


@pytest.mark.parametrize("difference", DIFFERENCES, ids=str)
def test_every_difference_is_there(difference: Difference) -> None:
    """A reason that no answer needs any more is to be removed."""
    pages = {f"{version} {name}": lines for version in LEVELS for name, lines in read(version).items()}
    assert any(
        re.match(difference.scene, name) and any(difference.seen_in(line) for line in lines)
        for name, lines in pages.items()
    )
