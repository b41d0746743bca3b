"""The newer requests of administrators, and compacted topics, with kafka-python and librdkafka."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, OffsetSpec  # type: ignore[attr-defined]
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import NewPartitions as KafkaPythonPartitions

from spark_producer.broker import BrokerSettings, LocalBroker, TopicSettings
from spark_producer.producer import Producer
from tests.interop.broker_records import SECONDS
from tests.support.kafka_node import KAFKA_4, run_tool
from tests.support.waiting import wait_until

KEYS = 5
ROUNDS = 60


SETTINGS = BrokerSettings(compaction_check_s=0.05, topic=TopicSettings(segment_bytes=2000))
"""Compaction often, of segments of some batches."""


def test_administrators_of_librdkafka(local: LocalBroker) -> None:
    local.create_topic("t", 2)
    admin = AdminClient({"bootstrap.servers": local.bootstrap_servers})
    admin.create_partitions([NewPartitions("t", 4)], request_timeout=SECONDS)["t"].result(SECONDS)
    assert local.topics() == {"t": 4}
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        admin.create_partitions([NewPartitions("t", 3)])["t"].result(SECONDS)
    admin.create_partitions([NewPartitions("t", 9)], validate_only=True)["t"].result(SECONDS)
    assert local.topics() == {"t": 4}
    with Producer({"bootstrap.servers": local.bootstrap_servers}) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number, partition=1)
    wanted = TopicPartition("t", 1, 6)
    assert admin.delete_records([wanted])[wanted].result(SECONDS).low_watermark == 6
    place = TopicPartition("t", 1)
    earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    assert admin.list_offsets({place: earliest})[place].result(SECONDS).offset == 6
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t", set_config={"retention.ms": "1000000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        (altered,) = admin.alter_configs([resource]).values()
    altered.result(SECONDS)
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "t")]).values()
    assert described.result(SECONDS)["retention.ms"].value == "1000000"


def test_administrators_of_kafka_python(local: LocalBroker) -> None:
    local.create_topic("t", 1)
    with closing(KafkaAdminClient(bootstrap_servers=local.bootstrap_servers)) as admin:
        admin.create_partitions({"t": KafkaPythonPartitions(total_count=3)})
        assert local.topics() == {"t": 3}
        with Producer({"bootstrap.servers": local.bootstrap_servers}) as producer:
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0)
        admin.delete_records({KafkaPythonPartition("t", 0): 4})
        consumer = KafkaConsumer(bootstrap_servers=local.bootstrap_servers)
        with closing(consumer):
            assert consumer.beginning_offsets([KafkaPythonPartition("t", 0)]) == {KafkaPythonPartition("t", 0): 4}


def write_rounds(local: LocalBroker) -> dict[int, tuple[bytes, bytes]]:
    """Write each key again and again; return what is the last of each key, by offset."""
    local.create_topic("t", 1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
    last: dict[bytes, tuple[int, bytes]] = {}
    with Producer({"bootstrap.servers": local.bootstrap_servers}) as producer:
        for number in range(ROUNDS):
            for key in range(KEYS):
                name, value = b"k%d" % key, b"%d" % number
                sent = producer.send("t", value, key=name)
                producer.flush()
                last[name] = (sent.result(SECONDS).offset, value)
    return {offset: (key, value) for key, (offset, value) in last.items()}


def wait_until_compacted(local: LocalBroker) -> None:
    wait_until(lambda: earliest_record(local) >= KEYS * ROUNDS // 2, "compaction", seconds=SECONDS, pause=0.05)


def earliest_record(local: LocalBroker) -> int:
    return min(read_kafka_python(local, 1))


def read_kafka_python(local: LocalBroker, wanted: int) -> dict[int, tuple[bytes, bytes]]:
    """Records from the beginning on, until `wanted` of them came and no more do."""
    place = KafkaPythonPartition("t", 0)
    with closing(KafkaConsumer(bootstrap_servers=local.bootstrap_servers, enable_auto_commit=False)) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end: int = consumer.end_offsets([place])[place]
        found: dict[int, tuple[bytes, bytes]] = {}
        deadline = time.monotonic() + SECONDS
        while consumer.position(place) < end and len(found) < (wanted if wanted == 1 else end):
            assert time.monotonic() < deadline
            for each in consumer.poll(500).get(place, []):
                found[each.offset] = (each.key, each.value)
    return found


def read_librdkafka(local: LocalBroker) -> dict[int, tuple[bytes, bytes]]:
    settings = {"bootstrap.servers": local.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    found: dict[int, tuple[bytes, bytes]] = {}
    deadline = time.monotonic() + SECONDS
    while (message := consumer.poll(1.0)) is None or not message.error():
        assert time.monotonic() < deadline
        if message is not None:
            found[message.offset() or 0] = (message.key() or b"", message.value() or b"")
    consumer.close()
    return found


@pytest.mark.kafka
def test_kafkas_own_consumer_reads_a_compacted_log(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with LocalBroker(data_dir, settings=SETTINGS) as local:
        last = write_rounds(local)
    with LocalBroker(data_dir, settings=SETTINGS) as local:
        wait_until_compacted(local)
        known = read_kafka_python(local, KEYS * ROUNDS)
        arguments = ("--bootstrap-server", local.bootstrap_servers, "--topic", "t", "--partition", "0")
        shown = ("--offset", "earliest", "--max-messages", str(len(known)), "--property", "print.offset=true")
        lines = run_tool(
            KAFKA_4, tmp_path, "org.apache.kafka.tools.consumer.ConsoleConsumer", (*arguments, *shown), SECONDS
        )
    found = dict(line.split("\t") for line in lines.splitlines() if line.startswith("Offset:"))
    assert found == {f"Offset:{offset}": value.decode() for offset, (_, value) in known.items()}
    assert last.items() <= known.items()


def test_foreign_consumers_read_a_compacted_log(tmp_path: Path) -> None:
    with LocalBroker(tmp_path, settings=SETTINGS) as local:
        last = write_rounds(local)
    with LocalBroker(tmp_path, settings=SETTINGS) as local:  # the end of the first one has flushed its memory
        wait_until_compacted(local)
        for found in (read_kafka_python(local, KEYS * ROUNDS), read_librdkafka(local)):
            assert len(found) < KEYS * ROUNDS // 2
            assert last.items() <= found.items()
            assert dict(value for _, value in sorted(found.items())) == dict(last.values())
