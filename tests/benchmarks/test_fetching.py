"""The benchmark of fetching runs against a real Kafka, and each contender reads every record; figures are not judged here."""

from __future__ import annotations

import pytest

from benchmarks.fetching import CONTENDERS, PARTITIONS, Scene, rows
from tests.support.kafka_cluster import KafkaCluster


@pytest.mark.nightly
def test_every_contender_reads_every_record(kafka_4: KafkaCluster) -> None:
    scene = Scene(100, "zstd")
    kafka_4.create_topic(scene.topic, PARTITIONS)
    table = list(rows(kafka_4.bootstrap_servers, [scene], 400_000, 1, []))
    assert [line.split(" | ")[1] for line in table[2:]] == list(CONTENDERS)
