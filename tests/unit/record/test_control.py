"""Control records: keys of markers (KIP-98), and the markers that end transactions, by bytes of real brokers. Id: MB6."""

from __future__ import annotations

import pytest
from kafka.record import MemoryRecords

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE, assign_base_offset, read_header
from spark_producer.record.control import ControlType, EndMarker, end_marker_batch, read_control_key, read_end_marker
from tests.unit.broker.batches import make_record


@pytest.mark.parametrize("control_type", ControlType)
def test_keys_are_version_0_and_the_type(control_type: ControlType) -> None:
    assert read_control_key(bytes.fromhex(f"0000{control_type:04x}")) == control_type


def test_unknown_types_and_longer_keys_are_tolerated() -> None:
    assert read_control_key(bytes.fromhex("00000063")) == 99
    assert read_control_key(bytes.fromhex("00010001ffff")) == ControlType.COMMIT


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_damaged_keys_are_named(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord, match="key of a control record"):
        read_control_key(key)


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("coordinator_epoch", [0, -1, 2**31 - 1])
def test_an_end_marker_is_read_as_it_was_written(commits: bool, coordinator_epoch: int) -> None:
    marker = EndMarker(commits, coordinator_epoch)
    batch = end_marker_batch(marker, producer_id=2**40, producer_epoch=7, timestamp=1_700_000_000_000)
    assert read_end_marker(batch[HEADER_SIZE:]) == marker


@pytest.mark.parametrize(("key", "value"), [(b"\0\0\0\1", b""), (b"\0\0\0\1", b"\xff\xff\0\0\0\0"), (b"\0\0", b"")])
def test_a_malformed_end_marker_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(CorruptRecord, match=r"has (2|0) bytes|version -1"):
        read_end_marker(memoryview(make_record(0, key, value)))


def test_other_control_records_end_no_transaction() -> None:
    assert read_end_marker(memoryview(make_record(0, b"\0\0\0\2", b"anything"))) is None


GOLDEN = {
    "commit, 3.9.2": (
        "00000000000000010000004200000000022fd293f4003000000000000001a206e28186000001a206e2818600000000000000000000ffffffff"
        "000000012000000008000000010c00000000000000"
    ),
    "abort, 3.9.2": (
        "00000000000000030000004200000000027f5b963d003000000000000001a206e2819b000001a206e2819b00000000000000000000ffffffff"
        "000000012000000008000000000c00000000000000"
    ),
    "abort of a fenced producer, 3.9.2": (
        "0000000000000005000000420000000002474ddbd7003000000000000001a206e281fd000001a206e281fd00000000000000000001ffffffff"
        "000000012000000008000000000c00000000000000"
    ),
    "commit, 4.3.1": (
        "0000000000000001000000420000000002102cb0ae003000000000000001a206e29e0c000001a206e29e0c00000000000000000000ffffffff"
        "000000012000000008000000010c00000000000000"
    ),
}
"""Markers in the logs of real brokers, and which of Kafka's versions wrote them."""


@pytest.mark.covers("MB6")
@pytest.mark.parametrize("name", GOLDEN)
def test_an_end_marker_has_kafkas_bytes_in_a_transactional_control_batch(name: str) -> None:
    golden = bytes.fromhex(GOLDEN[name])
    header = read_header(golden)
    assert (header.is_transactional, header.is_control) == (True, True)
    marker = read_end_marker(memoryview(golden)[HEADER_SIZE:])
    assert marker == EndMarker(name.startswith("commit"), 0)
    written = end_marker_batch(
        marker,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        timestamp=header.max_timestamp,
    )
    stored = bytearray(written)
    assign_base_offset(memoryview(stored), header.base_offset, 0)
    assert stored == golden


@pytest.mark.parametrize("commits", [True, False])
def test_kafka_python_takes_an_end_marker_for_one(commits: bool) -> None:
    batch = end_marker_batch(EndMarker(commits, 5), producer_id=9, producer_epoch=2, timestamp=1234)
    decoded = MemoryRecords(bytes(batch)).next_batch()
    assert decoded.validate_crc()
    assert decoded.is_control_batch
    assert decoded.is_transactional
    assert (decoded.producer_id, decoded.producer_epoch) == (9, 2)
    (record,) = decoded
    assert (record.timestamp, record.commit, record.abort) == (1234, commits, not commits)
