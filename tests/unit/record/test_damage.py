"""Damage: more than 200,000 flipped bits and cuts over all formats and codecs, seeded.

Every outcome is compared with that of a plain second reader: the same rows, and an error where it finds one; nothing else
is ever raised. Nine of ten cases are for the checksum to find, which is quick; the others get past it.
"""

from __future__ import annotations

import random
import re
import struct
import tracemalloc

import pytest
from crc32c import crc32c

from spark_producer.errors import CorruptRecord
from spark_producer.record.batch_v2 import HEADER_SIZE, write_header
from spark_producer.record.codecs import ONLY_IN_V2, Codec, Compressor
from spark_producer.record.reading import ConsumerRecord, read_records, single_records
from tests.unit.record.messages import message, wrapper
from tests.unit.record.plain_reader import read_plainly
from tests.unit.record.test_reading import record_bytes, zigzag

LIMIT = 100_000
CHECKED, UNCHECKED = 13_400, 1_000
"""Cases for each of the 14 logs with and without a look at checksums: 201,600 in all"""

LONG = b"long " * 60

NAMES_PLACE_AND_REASON = re.compile(
    r"(record|record batch|message|wrapper message) at (byte|offset) -?\d+[:, ]+\w+", re.DOTALL
)


def batch_log(codec: Codec) -> list[bytes]:
    """Three batches with headers, nulls, gaps and long values."""
    bodies = [
        record_bytes(key=b"\x06key", value=b"\x0avalue") + record_bytes(offset_delta=1, timestamp_delta=zigzag(-5)),
        record_bytes(value=zigzag(len(LONG)) + LONG, headers=b"\x04\x02h\x02x\x02n\x01") + record_bytes(offset_delta=3),
        b"".join(record_bytes(offset_delta=delta, value=b"\x0evalue%02d" % delta) for delta in range(40)),
    ]
    batches = []
    for number, body in enumerate(bodies):
        batch = bytearray(HEADER_SIZE) + bytes(Compressor(codec).compress(body))
        count = (2, 2, 40)[number]
        attributes = codec | (8 if number == 1 else 0)
        write_header(
            memoryview(batch), records_count=count, base_timestamp=1000, max_timestamp=5000, attributes=attributes
        )
        struct.pack_into(">q", batch, 0, 700 + 10 * number)
        struct.pack_into(">i", batch, 23, 3 if number == 1 else count - 1)
        seal_again(batch)
        batches.append(bytes(batch))
    return batches


def seal_again(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))


def message_log(magic: int, codec: Codec) -> list[bytes]:
    """Messages one by one, or in two wrappers."""
    contents = [(b"key", b"value"), (None, b"v2"), (b"", None), (b"k", LONG)]
    if codec is Codec.NONE:
        return [message(magic, 5 + place, *content) for place, content in enumerate(contents)]
    first = 0 if magic else 5
    inner = b"".join(message(magic, first + place, *content) for place, content in enumerate(contents))
    return [wrapper(magic, 8, inner, codec), wrapper(magic, 12, inner, codec, attributes=8 if magic else 0)]


LOGS = {f"V2 {codec.name}": batch_log(codec) for codec in Codec} | {
    f"V{magic} {codec.name}": message_log(magic, codec)
    for magic in (0, 1)
    for codec in Codec
    if codec not in ONLY_IN_V2
}
LOGS["V2 and V1"] = batch_log(Codec.NONE) + message_log(1, Codec.NONE) + batch_log(Codec.LZ4)


def damaged(log: bytes, chance: random.Random) -> bytes:
    """`log` with up to three bits flipped, or a byte replaced, or cut somewhere."""
    changed = bytearray(log)
    kind = chance.random()
    if kind < 0.2:
        return bytes(changed[: chance.randrange(len(changed))])
    for _ in range(1 if kind < 0.7 else 3):
        place = chance.randrange(len(changed))
        changed[place] = chance.randrange(256) if kind > 0.9 else changed[place] ^ 1 << chance.randrange(8)
    return bytes(changed)


def read(data: bytes, *, verify_crc: bool) -> tuple[list[ConsumerRecord], bool]:
    """Rows and whether damage was found; the error must name an offset and a reason."""
    rows: list[ConsumerRecord] = []
    said = ""
    try:
        for batch in read_records(data, verify_crc=verify_crc, limit=LIMIT):
            rows += single_records(batch)
    except CorruptRecord as error:
        said = str(error)
    assert not said or NAMES_PLACE_AND_REASON.match(said), said
    return rows, bool(said)


@pytest.mark.parametrize("name", LOGS)
def test_the_logs_are_whole(name: str) -> None:
    log = b"".join(LOGS[name])
    rows, corrupt = read(log, verify_crc=True)
    assert not corrupt
    assert len(rows) >= 4
    assert (rows, False) == read_plainly(log, verify_crc=True, limit=LIMIT)


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("name", LOGS)
def test_damage_under_a_checksum_is_found(name: str) -> None:
    """A batch or message whose bytes changed is refused, but for the few bytes that no checksum covers."""
    chance = random.Random(f"checked {name}")
    for _ in range(CHECKED):
        data = damaged(chance.choice(LOGS[name]), chance)
        assert read(data, verify_crc=True) == read_plainly(data, verify_crc=True, limit=LIMIT), data.hex()


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("name", LOGS)
def test_damage_without_a_checksum_reads_as_a_plain_reader_does(name: str) -> None:
    chance, log = random.Random(f"unchecked {name}"), b"".join(LOGS[name])
    for _ in range(UNCHECKED):
        data = damaged(log, chance)
        assert read(data, verify_crc=False) == read_plainly(data, verify_crc=False, limit=LIMIT), data.hex()


def test_what_a_header_claims_costs_no_memory() -> None:
    body = record_bytes(headers=zigzag(2**31 - 1))
    claims = [
        claiming(body, 2**31 - 1),
        claiming(record_bytes(value=zigzag(2**31 - 1)), 1),
        claiming(bytes(Compressor(Codec.ZSTD).compress(bytes(50_000_000))), 1, attributes=4),
        claiming(bytes(Compressor(Codec.GZIP).compress(bytes(50_000_000))), 1, attributes=1),
    ]
    for data in claims:
        tracemalloc.start()
        rows, corrupt = read(data, verify_crc=True)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (rows, corrupt) == ([], True)
        assert peak < 3_000_000


def claiming(body: bytes, count: int, attributes: int = 0) -> bytes:
    batch = bytearray(HEADER_SIZE) + body
    write_header(memoryview(batch), records_count=count, base_timestamp=0, max_timestamp=0, attributes=attributes)
    return bytes(batch)
