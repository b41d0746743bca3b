"""Real brokers take every format and codec; Java's consumer and DumpLogSegments find them sound; Java's batches are read."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from crc32c import crc32c

from spark_producer.legacy_formats import convert, encode_table
from spark_producer.record.codecs import ONLY_IN_V2, Codec, Compressor
from spark_producer.record.reading import read_records, single_records
from tests.interop.generated_batches import build, generate
from tests.interop.raw_produce import RawProducer
from tests.interop.read_with_reader import read_with_reader, write_with_librdkafka
from tests.support.kafka_cluster import KafkaCluster
from tests.support.read_back import read_topic
from tests.unit.record.foreign_records import NOW, Row

OF_KAFKA = {Codec.NONE: "none", Codec.GZIP: "gzip", Codec.SNAPPY: "snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstd"}
LEGACY = [(magic, codec) for magic in (0, 1) for codec in Codec if codec not in ONLY_IN_V2]
BATCHES = 40
ROWS = 3000


@pytest.fixture(params=["kafka_39", "kafka_4"])
def cluster(request: pytest.FixtureRequest) -> KafkaCluster:
    found: KafkaCluster = request.getfixturevalue(request.param)
    return found


pytestmark = pytest.mark.kafka


def read_rows(cluster: KafkaCluster, topic: str, expected: int) -> list[Row]:
    rows = read_topic(cluster.bootstrap_servers, topic, client="confluent", expected=expected)
    return [Row(row.offset, row.timestamp_ms, row.key, row.value, tuple(row.headers)) for row in rows]


def test_brokers_take_v2_with_every_codec_and_find_it_sound(cluster: KafkaCluster, topic: str) -> None:
    """The broker unpacks each batch to check its records; DumpLogSegments does so again, from the log's files."""
    cluster.create_topic(topic, 1)
    written: list[Row] = []
    codecs: list[str] = []
    with RawProducer(cluster.bootstrap_servers) as producer:
        for batch in generate(seed=11, count=BATCHES * len(Codec), formats=[(2, codec) for codec in Codec]):
            answer = producer.produce(topic, batch.data)
            assert answer == (0, len(written)), f"{batch.codec.name}, {len(batch.rows)} records"
            written += [row._replace(offset=len(written) + row.offset) for row in batch.rows]
            codecs.append(OF_KAFKA[batch.codec])
    assert read_rows(cluster, topic, len(written)) == written
    dump = cluster.dump_log(1, topic, 0)
    batches = [line for line in dump.splitlines() if line.startswith("baseOffset:")]
    assert all("isvalid: true" in line and "magic: 2" in line for line in batches)
    assert [codec.lower() for line in batches for codec in re.findall(r"compresscodec: (\w+)", line)] == codecs
    assert [int(line.split()[2]) for line in dump.splitlines() if line.startswith("| offset:")] == list(
        range(len(written))
    )


def test_javas_console_consumer_prints_what_was_packed(cluster: KafkaCluster, topic: str) -> None:
    """With every codec."""
    cluster.create_topic(topic, 1)
    with RawProducer(cluster.bootstrap_servers) as producer:
        for codec in Codec:
            rows = [
                Row(number, NOW + number, b"key-%d" % number, f"{codec.name}-{number}".encode())
                for number in range(ROWS)
            ]
            assert producer.produce(topic, build(2, rows, Compressor(codec))).error == 0
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"]
    show = ["--property", "print.key=true", "--property", "print.timestamp=true"]
    printed = cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, *show, "--max-messages", str(ROWS * len(Codec)),
        "--timeout-ms", "100000",
    )  # fmt: skip
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("CreateTime:")]
    assert lines == [
        [f"CreateTime:{NOW + number}", f"key-{number}", f"{codec.name}-{number}"]
        for codec in Codec
        for number in range(ROWS)
    ]


NO_TEXT = [b"\xff\xfe--", b"-\xe2\x82-", b"\xed\xa0\x80-", b"\xf0\x9f\x98-", b"\xc0\xaf\xf8-", b"\xed\xa0--"]


def test_javas_consumer_reads_header_keys_that_are_no_text_alike(cluster: KafkaCluster, topic: str) -> None:
    """Ours are UTF-8; those of C programs may be any bytes."""
    cluster.create_topic(topic, 1)
    expected: list[str] = []
    with RawProducer(cluster.bootstrap_servers) as producer:
        for number, name in enumerate(NO_TEXT):
            value = b"value %d" % number
            batch = bytes(build(2, [Row(0, NOW, None, value, (("NAME", b"x"),))], Compressor(Codec.NONE)))
            batch = batch.replace(b"NAME", name)
            batch = batch[:17] + crc32c(batch[21:]).to_bytes(4, "big") + batch[21:]
            assert producer.produce(topic, batch).error == 0
            (record,) = [record for rows in read_records(batch) for record in single_records(rows)]
            expected.append(f"{record.headers[0][0]}:x\tvalue {number}")
    arguments = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning"]
    printed = cluster.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", *arguments, "--property", "print.headers=true",
        "--max-messages", str(len(NO_TEXT)), "--timeout-ms", "100000",
    )  # fmt: skip
    assert [line for line in printed.splitlines() if "\tvalue " in line] == expected


@pytest.mark.parametrize("version", [0, 1, 2])
def test_kafka_39_takes_message_sets_in_the_old_requests(kafka_39: KafkaCluster, topic: str, version: int) -> None:
    """Kafka reads them, compressed or not, and converts them to V2: the records of a consumer went through Java's reader."""
    kafka_39.create_topic(topic, 1)
    formats = LEGACY if version == 2 else [(magic, codec) for magic, codec in LEGACY if magic == 0]
    written: list[Row] = []
    with RawProducer(kafka_39.bootstrap_servers) as producer:
        for batch in generate(seed=20 + version, count=10 * len(formats), formats=formats, in_a_log=True):
            answer = producer.produce(topic, batch.data, version)
            assert answer == (0, len(written)), f"V{batch.magic} {batch.codec.name}, {len(batch.rows)} records"
            written += [row._replace(offset=offset) for offset, row in enumerate(batch.rows, len(written))]
    assert read_rows(kafka_39, topic, len(written)) == written


@pytest.mark.parametrize("codec", Codec)
def test_what_javas_producer_packs_is_read(cluster: KafkaCluster, topic: str, codec: Codec) -> None:
    """Console producer: keys, nulls and headers, in batches of some hundred records, as the broker stored them."""
    cluster.create_topic(topic, 1)
    lines, wanted = [], []
    for number in range(3000):
        headers = [(f"h{place}", f"value {place}") for place in range(number % 4)]
        key, value = f"key-{number}", "NULL" if number % 11 == 0 else f"value {number} " * (number % 9)
        lines.append(f"{','.join(f'{name}:{content}' for name, content in headers) or 'NULL'}\t{key}\t{value}\n")
        packed = tuple((name, content.encode()) for name, content in headers)
        wanted.append((number, key.encode(), None if value == "NULL" else value.encode(), packed))
    package = "kafka.tools" if cluster.version.startswith("3.") else "org.apache.kafka.tools"
    cluster.run_tool(
        f"{package}.ConsoleProducer", "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic,
        "--compression-codec", OF_KAFKA[codec], "--batch-size", "8000",
        *(f"--property={name}" for name in ("parse.key=true", "parse.headers=true", "null.marker=NULL")),
        stdin="".join(lines),
    )  # fmt: skip
    found, codecs = read_with_reader(cluster.bootstrap_servers, topic, len(wanted))
    assert [(each.offset, each.key, each.value, each.headers) for each in found] == wanted
    assert all(each.timestamp > NOW for each in found)
    assert set(codecs) == {codec}


@pytest.mark.parametrize("codec", Codec)
def test_what_librdkafka_packs_is_read(cluster: KafkaCluster, topic: str, codec: Codec) -> None:
    cluster.create_topic(topic, 1)
    wanted = write_with_librdkafka(cluster.bootstrap_servers, topic, codec, BATCHES)
    found, codecs = read_with_reader(cluster.bootstrap_servers, topic, len(wanted))
    assert found == wanted
    assert set(codecs) <= {0, codec}
    assert codecs[codec] >= BATCHES // 2, "what does not get smaller goes out as it is"


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2"])
def test_kafka_39_takes_what_is_written_for_archives(kafka_39: KafkaCluster, topic: str, version: str) -> None:
    """One write of a table, and a V2 log converted to message sets, both sent by Produce 2."""
    kafka_39.create_topic(topic, 1)
    written: list[Row] = []
    with RawProducer(kafka_39.bootstrap_servers) as producer:
        for codec in ("none", "gzip", "snappy", "lz4"):
            table = pa.table({"key": [b"k"] * 500, "value": [b"value-%d" % number for number in range(500)]})
            timed = table.append_column("timestamp", pa.array(range(NOW, NOW + 500), pa.int64()))
            source = timed if version == "0.10.2" else table  # V0 has no place for the column
            options = {"message_format_version": version, "compression_type": codec}
            sets = list(encode_table(source, **options, base_offset=12_345, batch_bytes=4096))
            assert len(sets) > 3
            log = b"".join(encode_table(timed, message_format_version="2.0", compression_type="zstd", base_offset=77))
            sets += [data for data, _ in convert(log, **options)]
            for data in sets:
                assert producer.produce(topic, data, 2).error == 0
            for row in (*range(500), *range(500)):
                time = NOW + row if version == "0.10.2" else -1
                written.append(Row(len(written), time, b"k", b"value-%d" % row))
    assert read_rows(kafka_39, topic, len(written)) == written
