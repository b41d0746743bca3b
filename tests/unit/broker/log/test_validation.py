"""The records of a batch against its header: every one is looked at, whatever the codec."""

import random
from pathlib import Path

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_producer.broker.log.partition import Partition
from spark_producer.broker.log.validation import ROWS_AT_ONCE, DecompressionBudget, check_records
from spark_producer.broker.settings import BrokerSettings, TopicSettings
from spark_producer.broker.storage.engines import open_storage
from spark_producer.common.error_codes import Code
from spark_producer.errors import BrokerError
from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header
from spark_producer.record.codecs import Codec, Compressor
from spark_producer.record.sequence_numbers import MAX_SEQUENCE
from tests.support.sampling import Sample
from tests.unit.broker.batches import FILLER, make_batch, make_record, sealed
from tests.unit.record.foreign_records import rows_of_every_shape
from tests.unit.record.plain_reader import read_plainly

RECORDS = [make_record(delta, key=b"k" * (delta % 5), value=FILLER[: delta * 7 % 200]) for delta in range(40)]


def batch_of(content: bytes, records: int, codec: Codec = Codec.NONE) -> memoryview:
    return sealed(Compressor(codec).compress(content), records, attributes=codec)


def refused(batch: memoryview, decompression: DecompressionBudget | None = None) -> str:
    with pytest.raises(BrokerError) as refusal:
        check_records(read_header(batch), batch, decompression)
    assert refusal.value.code == Code.INVALID_RECORD
    return str(refusal.value)


@pytest.mark.parametrize("codec", Codec)
def test_a_good_batch_is_accepted(codec: Codec) -> None:
    batch = batch_of(b"".join(RECORDS), 40, codec)
    check_records(read_header(batch), batch)


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [2, 41, 1000, MAX_SEQUENCE])
def test_a_count_that_is_not_true_is_refused(codec: Codec, claimed: int) -> None:
    """2^31 - 1 records in a batch of 68 bytes would leave no offsets for those who write properly."""
    one = refused(batch_of(RECORDS[0], claimed, codec))
    assert str(claimed) in one
    assert str(claimed) in refused(batch_of(b"".join(RECORDS), claimed, codec))


def test_the_batch_of_68_bytes_leaves_the_offsets_alone(tmp_path: Path) -> None:
    partition = Partition(open_storage(tmp_path, BrokerSettings(sync_on_close=False)), "t", 0, TopicSettings())
    batch = sealed(make_record(0), MAX_SEQUENCE)
    assert len(batch) == 68
    with pytest.raises(BrokerError):
        partition.append(batch)
    assert partition.append(make_batch()) == 0


BAD = {
    "bytes after the last record": (b"".join(RECORDS) + b"\0", 40, "1 bytes are left"),
    "cut in the last record": (b"".join(RECORDS)[:-1], 40, "record 39 of 40"),
    "deltas from 1": (make_record(1) + make_record(2), 2, "record 0 has offset delta 1"),
    "a gap": (make_record(0) + make_record(2), 2, "record 1 has offset delta 2"),
    "the same delta twice": (make_record(0) * 2, 2, "record 1 has offset delta 0"),
    "a key beyond the record": (b"\x0c\0\0\0\x10\x01\0", 1, "record 0 of 1"),
    "a negative key length": (b"\x0c\0\0\0\x05\x01\0", 1, "record 0 of 1"),
    "more headers than bytes": (b"\x0c\0\0\0\x01\x01\x04", 1, "record 0 of 1"),
    "a length of zero": (b"\0" * 7, 1, "record 0 of 1"),
    "a length of 2^31 - 1": (encode_varint(MAX_SEQUENCE) + b"\0" * 6, 1, "record 0 of 1"),
}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("case", BAD)
def test_records_that_are_not_what_they_should_be_are_refused(case: str, codec: Codec) -> None:
    content, records, message = BAD[case]
    assert message in refused(batch_of(content, records, codec))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_what_cannot_be_unpacked_is_refused(codec: Codec) -> None:
    batch = bytes(batch_of(b"".join(RECORDS) * 10, 400, codec))
    refused(sealed(batch[HEADER_SIZE:-20], 400, attributes=codec))
    refused(sealed(b"no stream of any codec", 1, attributes=codec))


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_that_unpacks_to_more_than_the_limit_is_refused(codec: Codec) -> None:
    content = make_record(0, value=bytes(5000))
    batch = batch_of(content, 1, codec)
    check_records(read_header(batch), batch, DecompressionBudget(batch_limit=len(content)))
    assert str(len(content) - 1) in refused(batch, DecompressionBudget(batch_limit=len(content) - 1))


def test_batches_of_more_records_than_are_validated_together() -> None:
    records = [make_record(delta) for delta in range(2 * ROWS_AT_ONCE + 1)]
    for count in (ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 2 * ROWS_AT_ONCE, 2 * ROWS_AT_ONCE + 1):
        content = b"".join(records[:count])
        batch = batch_of(content, count)
        check_records(read_header(batch), batch)
        assert f"it has {count} records" in refused(batch_of(content, count + 1))
        assert "are left after the last" in refused(batch_of(content, count - 1))
    wrong = 2 * ROWS_AT_ONCE - 1
    content = b"".join([*records[:wrong], records[0]])
    assert f"record {wrong} has offset delta 0" in refused(batch_of(content, wrong + 1))


def test_more_headers_than_one_call_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    headers = encode_varint(1000) + b"\0\x01" * 1000
    content = b"".join(make_record(delta, headers=headers) for delta in range(600))
    batch = batch_of(content, 600)
    check_records(read_header(batch), batch)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_foreign_batches_of_every_shape_are_accepted(codec: Codec) -> None:
    rows = rows_of_every_shape(2)
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for row in rows:
        assert builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers)) is not None
    batch = memoryview(bytes(builder.build()))
    check_records(read_header(batch), batch)


def test_what_is_accepted_after_damage_is_what_a_plain_reader_reads_whole(sample: Sample) -> None:
    rng = random.Random(11)
    whole = b"".join(RECORDS)
    outcomes, cases = {True: 0, False: 0}, sample(range(5000))
    for _ in cases:
        content = bytearray(whole)
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        batch = batch_of(bytes(content), 40)
        try:
            check_records(read_header(batch), batch)
        except BrokerError:
            accepted = False
        else:
            accepted = True
        found, fails = read_plainly(bytes(batch), verify_crc=True, limit=1 << 20)
        assert accepted == (not fails and [record.offset for record in found] == list(range(40)))
        outcomes[accepted] += 1
    assert min(outcomes.values()) > len(cases) / 50
