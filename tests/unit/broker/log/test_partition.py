"""The checks of a batch, each with Kafka's error code."""

import errno
import struct
from pathlib import Path

import pytest

from spark_producer.broker.log.partition import Partition, checked_header
from spark_producer.broker.settings import STORAGE_ENGINES, BrokerSettings, TopicSettings
from spark_producer.broker.storage.engines import open_storage
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.record.batch_v2 import CONTROL_BIT, CRC_START, TRANSACTIONAL_BIT
from spark_producer.record.checksum import crc32c
from tests.fakes.disk import Disk
from tests.unit.broker.batches import make_batch

LIMIT = 10_000


def changed(batch: memoryview, position: int, value: bytes, *, fix_crc: bool = True) -> memoryview:
    data = bytearray(batch)
    data[position : position + len(value)] = value
    if fix_crc:
        struct.pack_into(">I", data, 17, crc32c(data[CRC_START:]))
    return memoryview(bytes(data))


def refused(records: memoryview | None) -> int:
    with pytest.raises(BrokerError) as refusal:
        checked_header(records, LIMIT)
    return refusal.value.code


BAD = {
    "null": (None, Code.INVALID_RECORD),
    "empty": (memoryview(b""), Code.INVALID_RECORD),
    "less than a header": (make_batch()[:60], Code.INVALID_RECORD),
    "cut off": (make_batch(size=100)[:99], Code.INVALID_RECORD),
    "two batches": (memoryview(bytes(make_batch()) * 2), Code.INVALID_RECORD),
    "magic 1": (changed(make_batch(), 16, b"\1"), Code.INVALID_RECORD),
    "length of 48": (changed(make_batch(), 8, struct.pack(">i", 48)), Code.CORRUPT_MESSAGE),
    "negative length": (changed(make_batch(), 8, struct.pack(">i", -5)), Code.CORRUPT_MESSAGE),
    "a flipped bit": (changed(make_batch(), 80, b"\xff", fix_crc=False), Code.CORRUPT_MESSAGE),
    "a wrong CRC": (changed(make_batch(), 17, b"\1\2\3\4", fix_crc=False), Code.CORRUPT_MESSAGE),
    "too large": (make_batch(size=LIMIT + 1), Code.MESSAGE_TOO_LARGE),
    "no records": (changed(make_batch(), 57, struct.pack(">i", 0)), Code.INVALID_RECORD),
    "a count that is not the offsets'": (changed(make_batch(3), 57, struct.pack(">i", 2)), Code.INVALID_RECORD),
    "negative last offset": (changed(make_batch(), 23, struct.pack(">i", -1)), Code.INVALID_RECORD),
    "control batch": (make_batch(attributes=CONTROL_BIT), Code.INVALID_RECORD),
    "transactional without producer": (make_batch(attributes=TRANSACTIONAL_BIT), Code.INVALID_RECORD),
    "producer without sequence": (make_batch(producer_id=1, epoch=0), Code.INVALID_RECORD),
    "producer without epoch": (make_batch(producer_id=1, sequence=0), Code.INVALID_RECORD),
    "codec 7": (make_batch(attributes=7), Code.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_gets_kafkas_code(case: str) -> None:
    records, code = BAD[case]
    assert refused(records) == code


def test_a_batch_of_exactly_the_limit_is_accepted() -> None:
    assert checked_header(make_batch(size=LIMIT), LIMIT).size == LIMIT


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_of_kafka_is_accepted(codec: int) -> None:
    assert checked_header(make_batch(attributes=codec), LIMIT).codec == codec


def open_partition(path: Path, engine: str | None = None) -> Partition:
    return Partition(open_storage(path, BrokerSettings(storage_engine=engine)), "t", 0, TopicSettings())


def test_a_repeated_batch_gets_its_first_offset_and_is_not_appended(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    first = make_batch(3, producer_id=5, epoch=0, sequence=0)
    assert partition.append(make_batch(10)) == 0
    assert partition.append(first) == 10
    assert partition.append(make_batch(2, producer_id=5, epoch=0, sequence=3)) == 13
    assert partition.append(first) == 10
    assert partition.log.high_watermark == 15
    partition.close()


def test_a_refused_batch_leaves_no_trace(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    assert partition.append(make_batch(1, producer_id=5, epoch=0, sequence=0)) == 0
    with pytest.raises(BrokerError):
        partition.append(make_batch(1, producer_id=5, epoch=0, sequence=4))
    assert partition.append(make_batch(1, producer_id=5, epoch=0, sequence=1)) == 1
    partition.close()


@pytest.mark.parametrize("engine", STORAGE_ENGINES)
def test_producers_are_remembered_across_a_restart(engine: str, tmp_path: Path) -> None:
    partition = open_partition(tmp_path, engine)
    sent = [make_batch(2, producer_id=5, epoch=1, sequence=sequence) for sequence in (0, 2, 4)]
    for batch in sent:
        partition.append(batch)
    partition.close()
    partition = open_partition(tmp_path)
    assert [partition.append(batch) for batch in sent] == [0, 2, 4]
    assert partition.append(make_batch(1, producer_id=5, epoch=1, sequence=6)) == 6
    with pytest.raises(BrokerError) as refusal:
        partition.append(make_batch(1, producer_id=5, epoch=0, sequence=7))
    assert refusal.value.code == Code.INVALID_PRODUCER_EPOCH
    partition.close()


def test_a_batch_whose_sync_failed_is_in_the_log_once_after_the_restart_and_the_retry(
    tmp_path: Path, disk: Disk
) -> None:
    storage = open_storage(tmp_path, BrokerSettings(sync_each_append=True, storage_engine="segments"))
    partition = Partition(storage, "t", 0, TopicSettings())
    batches = [make_batch(2, producer_id=5, epoch=0, sequence=sequence) for sequence in (0, 2)]
    assert partition.append(batches[0]) == 0
    disk.refuse("fdatasync", errno.EIO)
    for _ in range(3):
        with pytest.raises(BrokerError, match="sync") as refusal:
            partition.append(batches[1])
        assert refusal.value.code == Code.KAFKA_STORAGE_ERROR
    disk.accept_syncs()
    with pytest.raises(BrokerError, match="read-only"):
        partition.append(batches[1])
    partition.close()
    partition = Partition(storage, "t", 0, TopicSettings())
    assert partition.append(batches[1]) == 2
    assert partition.log.high_watermark == 4
    assert len(partition.log.read(0, 10_000)) == sum(map(len, batches))
    partition.close()
