"""The header of a record batch, judged by golden bytes and by kafka-python. Ids (tests/ids.md): RB and LS."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import (
    HEADER_SIZE,
    assign_base_offset,
    batch_attributes,
    batches,
    check_crc,
    read_header,
    write_header,
)
from spark_producer.record.sequence_numbers import MAX_SEQUENCE, add_to_sequence

G1 = bytes.fromhex(
    "0000000000000000000000500000000002ce90982d0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "000000021c000000066b65790a76616c7565001e000a02010476320402680278026e01"
)
G2 = bytes.fromhex(
    "0000000000000000000000390000000002353321ac0010000000000000018bcfe568000000018bcfe5680000000000000004d20005000000070"
    "00000010e000000026b0100"
)
NOW = 1_700_000_000_000


def test_golden_g1_is_read_field_by_field() -> None:
    header = read_header(G1)
    assert header == (0, 80, 0, 2, 0xCE90982D, 0, 1, NOW, NOW + 5, -1, -1, -1, 2)
    assert (header.size, header.last_offset, header.codec) == (len(G1), 1, 0)
    check_crc(header, memoryview(G1))


def test_golden_g2_is_read_field_by_field() -> None:
    header = read_header(G2)
    assert header == (0, 57, 0, 2, 0x353321AC, 0x10, 0, NOW, NOW, 1234, 5, 7, 1)
    check_crc(header, memoryview(G2))


@pytest.mark.parametrize(
    ("golden", "fields"),
    [
        (G1, {"records_count": 2, "base_timestamp": NOW, "max_timestamp": NOW + 5}),
        (
            G2,
            {
                "records_count": 1,
                "base_timestamp": NOW,
                "max_timestamp": NOW,
                "producer_id": 1234,
                "producer_epoch": 5,
                "base_sequence": 7,
                "attributes": 0x10,
            },
        ),
    ],
    ids=["G1", "G2"],
)
def test_sealing_gives_the_golden_bytes_but_for_the_leader_epoch(golden: bytes, fields: dict[str, int]) -> None:
    batch = memoryview(bytearray(golden))
    batch[:HEADER_SIZE] = bytes([0xAA]) * HEADER_SIZE
    write_header(batch, **fields)
    assert bytes(batch[12:16]) == b"\xff\xff\xff\xff", "Java writes -1 too; the CRC does not cover it"
    assert bytes(batch[:12]) + bytes(4) + bytes(batch[16:]) == golden


@pytest.mark.covers("RB2", "RB5")
@pytest.mark.parametrize(("golden", "sizes"), [(G1, (15, 16)), (G2, (8,))], ids=["G1", "G2"])
def test_a_batch_is_its_header_and_its_records(golden: bytes, sizes: tuple[int, ...]) -> None:
    header = read_header(golden)
    assert header.records_count == len(sizes)
    assert header.size == HEADER_SIZE + sum(sizes) == len(golden)
    at = HEADER_SIZE
    for size in sizes:
        assert golden[at] == 2 * (size - 1), "a record begins with the zigzag length of what follows"
        at += size
    foreign = DefaultRecordBatch(golden)
    assert (foreign.size_in_bytes, foreign.magic, foreign.crc) == (len(golden), 2, header.crc)


@pytest.mark.covers("RB3")
def test_a_sealed_batch_is_sealed_again_with_other_numbers() -> None:
    batch = memoryview(bytearray(G1))
    write_header(
        batch,
        records_count=2,
        base_timestamp=NOW,
        max_timestamp=NOW + 5,
        producer_id=9,
        producer_epoch=1,
        base_sequence=3,
    )
    foreign = DefaultRecordBatch(bytes(batch))
    assert foreign.validate_crc()
    assert (foreign.producer_id, foreign.producer_epoch, foreign.base_sequence) == (9, 1, 3)
    assert [record.value for record in foreign] == [b"value", b"v2"]


@pytest.mark.covers("RB4")
@pytest.mark.parametrize("sequence", [0, 2**31 - 3, 2**31 - 1])
def test_every_sequence_fits(sequence: int) -> None:
    batch = memoryview(bytearray(G1))
    write_header(
        batch, records_count=2, base_timestamp=NOW, max_timestamp=NOW, producer_id=2**63 - 1, base_sequence=sequence
    )
    header = read_header(batch)
    assert (header.producer_id, header.base_sequence) == (2**63 - 1, sequence)


@pytest.mark.covers("RB13")
def test_base_offset_and_leader_epoch_leave_the_crc_valid() -> None:
    batch = memoryview(bytearray(G1))
    assign_base_offset(batch, 2**40, 17)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.last_offset) == (2**40, 17, 2**40 + 1)
    check_crc(header, batch)
    assert [record.offset for record in MemoryRecords(bytes(batch)).next_batch()] == [2**40, 2**40 + 1]


@pytest.mark.covers("RB11")
@pytest.mark.parametrize("position", range(21, len(G1)))
def test_every_flipped_bit_after_the_crc_is_found(position: int) -> None:
    batch = bytearray(G1)
    batch[position] ^= 0x10
    header = read_header(batch)
    with pytest.raises(CorruptRecord, match=r"offset 0: CRC is 0x[0-9a-f]{8}, header says 0xce90982d"):
        check_crc(header, memoryview(batch))


@pytest.mark.covers("RB6", "LS1")
@pytest.mark.parametrize("size", [0, 1, 12, 60])
def test_fewer_bytes_than_a_header_are_an_error(size: int) -> None:
    with pytest.raises(CorruptRecord, match=f"needs 61 header bytes, {size} are there"):
        read_header(G1[:size])


@pytest.mark.covers("LS1")
@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_magic_is_an_error(magic: int) -> None:
    batch = bytearray(b"x" * 7 + G1)
    batch[7 + 16] = magic
    with pytest.raises(CorruptRecord, match=r"at byte 7 has magic -?\d+; only 2"):
        read_header(batch, 7)


@pytest.mark.covers("RB6")
@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_length_that_does_not_cover_the_header_is_an_error(length: int) -> None:
    batch = bytearray(G1)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptRecord, match=f"claims {length} bytes, less than its header"):
        read_header(batch)


@pytest.mark.covers("RB1")
def test_a_batch_without_records_is_its_header() -> None:
    batch = memoryview(bytearray(HEADER_SIZE))
    write_header(batch, records_count=0, base_timestamp=-1, max_timestamp=-1)
    header = read_header(batch)
    assert (header.size, header.records_count, header.last_offset_delta) == (61, 0, -1)
    check_crc(header, batch)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_walks_over_all_of_them(kind: type) -> None:
    found = list(batches(kind(G1 + G2 + G1)))
    assert [bytes(view) for _, view in found] == [G1, G2, G1]
    for header, view in found:
        check_crc(header, view)


@pytest.mark.covers("LS1")
@pytest.mark.parametrize("cut", [1, 30, 60, 61, len(G2) - 1])
def test_an_incomplete_last_batch_is_left_out(cut: int) -> None:
    assert [bytes(view) for _, view in batches(G1 + G2[:cut])] == [G1]


@pytest.mark.covers("LS1")
def test_garbage_between_batches_is_an_error() -> None:
    with pytest.raises(CorruptRecord):
        list(batches(G1 + bytes(100) + G2))


def test_batches_of_nothing() -> None:
    assert list(batches(b"")) == []


@pytest.mark.parametrize(("attributes", "codec"), [(0, 0), (1, 1), (0x14, 4), (0x38, 0)])
def test_the_codec_is_three_bits_of_the_attributes(attributes: int, codec: int) -> None:
    batch = memoryview(bytearray(HEADER_SIZE))
    write_header(batch, records_count=1, base_timestamp=0, max_timestamp=0, attributes=attributes)
    assert read_header(batch).codec == codec


def producer_batch(base_sequence: int, records: int) -> memoryview:
    """A sealed batch without its records, which the header's tests do not need."""
    batch = memoryview(bytearray(HEADER_SIZE))
    write_header(
        batch,
        records_count=records,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=9,
        producer_epoch=0,
        base_sequence=base_sequence,
    )
    return batch


@pytest.mark.covers("RB4")
@pytest.mark.parametrize(
    ("base", "records", "last"),
    [(0, 1, 0), (5, 10, 14), (MAX_SEQUENCE - 2, 3, MAX_SEQUENCE), (MAX_SEQUENCE - 2, 4, 0)],
)
def test_sequences_wrap_around(base: int, records: int, last: int) -> None:
    assert read_header(producer_batch(base, records)).last_sequence == last


@pytest.mark.covers("RB4")
def test_no_sequence_stays_none() -> None:
    assert read_header(producer_batch(-1, 3)).last_sequence == -1


@pytest.mark.covers("RB16")
def test_control_transaction_and_delete_horizon_are_read_from_the_attributes() -> None:
    attributes = batch_attributes(codec=4, transactional=True, delete_horizon=True) | 0x20
    assert attributes == 0x74
    batch = memoryview(bytearray(HEADER_SIZE))
    write_header(batch, records_count=1, base_timestamp=77, max_timestamp=NOW, attributes=attributes)
    header = read_header(batch)
    assert (header.codec, header.is_transactional, header.is_control, header.delete_horizon) == (4, True, True, 77)
    plain = read_header(G1)
    assert (plain.codec, plain.is_transactional, plain.is_control, plain.delete_horizon) == (0, False, False, None)


@pytest.mark.covers("RB18")
@pytest.mark.parametrize(
    ("sequence", "records", "expected"),
    [
        (0, 1, 1),
        (MAX_SEQUENCE, 1, 0),
        (MAX_SEQUENCE - 1, 10, 8),
        (0, -1, MAX_SEQUENCE),
        (5, -10, MAX_SEQUENCE - 4),
        (10, -10, 0),
    ],
)
def test_sequences_go_round_both_ways(sequence: int, records: int, expected: int) -> None:
    assert add_to_sequence(sequence, records) == expected
