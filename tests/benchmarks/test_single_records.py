"""The benchmark of single records runs against a real Kafka; figures are not judged here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.single_contenders import SCENES, TOPIC
from benchmarks.single_records import CONTENDERS, PARTITIONS, draw, headlines, measure, page, taking_part
from tests.support.kafka_cluster import KafkaCluster
from tests.support.kafka_node import KAFKA_4


@pytest.mark.kafka
@pytest.mark.nightly
def test_every_contender_runs_every_scene(tmp_path: Path) -> None:
    with KafkaCluster(KAFKA_4) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        found = measure(cluster.bootstrap_servers, dict.fromkeys(SCENES, 400), rounds=1, warmups=0)
    text = page(found)
    for contender in CONTENDERS:
        assert text.count(f"| {contender.label} |") == sum(contender in taking_part(scene) for scene in SCENES)
    assert [line.others.keys() for line in headlines(found)] == [{"kafka-python", "confluent-kafka"}] * 2
    assert all(line.ours > 0 for line in headlines(found))
    draw(found, tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").stat().st_size > 1000
