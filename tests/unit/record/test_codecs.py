"""Codecs: what goes in comes out, within the limit, and damage is named. Ids (tests/ids.md): LZ and MB."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import lz4.frame
import pytest
import zstandard
from isal import isal_zlib
from kafka import codec as kafka_codec

from spark_producer.errors import CorruptRecord
from spark_producer.record import codecs, lz4_frame
from spark_producer.record.codecs import Codec, Compressor, decompress

LIMIT = 1 << 24
PACKING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(
    b'{"flight": %d, "carrier": "UA", "delay": %d}' % (number, number * 7919 % 360) for number in range(6000)
)
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": TEXT,
    "noise": random.Random(7).randbytes(200_000),
    "zeros": bytes(300_000),
}


@pytest.fixture(params=["zlib", "isal"])
def _gzip_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process has one of the two, whichever is installed; there is no option for it."""
    monkeypatch.setattr(codecs, "_isal", None if request.param == "zlib" else isal_zlib)


def streamed_zstd(data: bytes) -> bytes:
    """A frame without content size, as Java's stream writes it."""
    packer = zstandard.ZstdCompressor().compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.usefixtures("_gzip_engine")
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", Codec)
def test_what_is_packed_is_unpacked(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    packed = Compressor(codec).compress(memoryview(bytearray(data)))
    assert packed.format == "B"
    assert decompress(codec, packed, len(data)) == data
    if data:
        with pytest.raises(CorruptRecord, match=r"more than"):
            decompress(codec, packed, len(data) - 1)
    if sample in ("text", "zeros") and codec:
        assert len(packed) < len(data) / 3


FOREIGN_DECODERS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.GZIP: gzip.decompress,
    Codec.SNAPPY: kafka_codec.snappy_decode,
    Codec.LZ4: kafka_codec.lz4_decode,
    Codec.ZSTD: lambda data: zstandard.ZstdDecompressor().decompress(data),
}
FOREIGN_ENCODERS: dict[Codec, list[Callable[[bytes], bytes]]] = {
    Codec.GZIP: [gzip.compress, lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:])],
    Codec.SNAPPY: [
        kafka_codec.snappy_encode,
        lambda data: kafka_codec.snappy_encode(data, xerial_compatible=False),
        lambda data: little_endian_xerial(kafka_codec.snappy_encode(data)),
    ],
    Codec.LZ4: [
        kafka_codec.lz4_encode,
        lambda data: lz4.frame.compress(data, content_checksum=True, block_checksum=True, block_linked=False),
        lambda data: lz4.frame.compress(data, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX4MB),
    ],
    Codec.ZSTD: [zstandard.ZstdCompressor().compress, streamed_zstd],
}


def little_endian_xerial(data: bytes) -> bytes:
    """The header as some writers have it."""
    return data[:8] + struct.pack("<ii", 1, 1) + data[16:]


@pytest.mark.usefixtures("_gzip_engine")
@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", PACKING)
def test_other_implementations_read_and_are_read(codec: Codec, sample: str) -> None:
    data = SAMPLES[sample]
    if data or codec is not Codec.SNAPPY:  # python-snappy refuses to unpack nothing
        assert FOREIGN_DECODERS[codec](bytes(Compressor(codec).compress(data))) == data
    for encode in FOREIGN_ENCODERS[codec]:
        assert decompress(codec, encode(data), LIMIT) == data


@pytest.mark.covers("LZ1")
@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 3, 4, 9)), (Codec.LZ4, (1, 9, 10, 12, 17)), (Codec.ZSTD, (-131072, -1, 1, 3, 19, 22))],
)
@pytest.mark.usefixtures("_gzip_engine")
def test_every_level_gives_what_any_reader_unpacks(codec: Codec, levels: tuple[int, ...]) -> None:
    packed = {level: bytes(Compressor(codec, level).compress(TEXT)) for level in levels}
    assert {FOREIGN_DECODERS[codec](data) for data in packed.values()} == {TEXT}
    assert len(packed[levels[-1]]) < len(packed[levels[0]])


@pytest.mark.covers("LZ1")
def test_level_9_is_fast_and_every_other_one_packs_harder() -> None:
    """As in Java, where 9 is the default and means the fast compressor."""
    sizes = {level: len(Compressor(Codec.LZ4, level).compress(TEXT)) for level in (3, 8, 9, 10)}
    assert Compressor(Codec.LZ4).level == 9
    assert sizes[9] > sizes[3] >= sizes[8] >= sizes[10]


@pytest.mark.covers("LZ1")
def test_framing_is_javas() -> None:
    frame = bytes(Compressor(Codec.LZ4).compress(TEXT))
    assert frame[:7].hex() == "04224d18604082", "version 1, independent blocks of 64 KiB, no sums, no size"
    assert frame[-4:] == bytes(4)
    assert lz4.frame.get_frame_info(frame)["block_linked"] is False


@pytest.mark.covers("LZ1")
def test_framing_of_v0_has_the_wrong_checksum_and_is_read_by_who_knows() -> None:
    frame = bytes(Compressor(Codec.LZ4).compress(TEXT))
    wrong = lz4_frame.with_v0_checksum(frame)
    assert wrong[:7].hex() == "04224d1860401a"
    assert wrong[7:] == frame[7:]
    assert kafka_codec.lz4_decode_old_kafka(wrong) == TEXT
    assert decompress(Codec.LZ4, wrong, LIMIT, check_lz4_header=False) == TEXT
    assert decompress(Codec.LZ4, kafka_codec.lz4_encode_old_kafka(TEXT), LIMIT, check_lz4_header=False) == TEXT
    with pytest.raises(CorruptRecord, match="LZ4 data is damaged"):
        decompress(Codec.LZ4, wrong, LIMIT)


@pytest.mark.covers("LZ1")
@pytest.mark.parametrize(
    ("options", "check"),
    [
        ({"content_checksum": True}, True),
        ({"block_checksum": True}, True),
        ({"content_checksum": True}, False),
        ({"block_checksum": True}, False),
    ],
)
def test_sums_are_checked(options: dict[str, bool], check: bool) -> None:
    noise = SAMPLES["noise"]  # stored blocks: only a checksum finds the damage
    frame = bytearray(lz4.frame.compress(noise, store_size=False, block_linked=False, **options))
    assert decompress(Codec.LZ4, frame, LIMIT, check_lz4_header=check) == noise
    frame[1000] ^= 1
    with pytest.raises(CorruptRecord, match="LZ4 data is damaged"):
        decompress(Codec.LZ4, frame, LIMIT, check_lz4_header=check)


LZ4_FRAME = bytes(Compressor(Codec.LZ4).compress(TEXT))


@pytest.mark.covers("LZ1")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "magic of a frame"),
        (LZ4_FRAME[:6], "magic of a frame"),
        (b"\x05" + LZ4_FRAME[1:], "magic of a frame"),
        (LZ4_FRAME[:4] + b"\xa0" + LZ4_FRAME[5:], "descriptor a040"),
        (LZ4_FRAME[:4] + b"\x61" + LZ4_FRAME[5:], "descriptor 6140"),
        (LZ4_FRAME[:4] + b"\x62" + LZ4_FRAME[5:], "damaged"),
        (LZ4_FRAME[:5] + b"\x30" + LZ4_FRAME[6:], "descriptor 6030"),
        (LZ4_FRAME[:6] + b"\x00" + LZ4_FRAME[7:], "damaged"),
        (LZ4_FRAME[:-4], "ends inside its frame"),
        (LZ4_FRAME[:5000], "ends inside its frame"),
        (LZ4_FRAME[:7] + b"\xff\xff\xff\x7f" + LZ4_FRAME[11:], "damaged"),
        (LZ4_FRAME + b"x", "does not end where its frame does"),
        (lz4.frame.compress(TEXT, content_checksum=True)[:-2], "ends inside its frame"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_frames_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecord, match=reason):
        decompress(Codec.LZ4, data, LIMIT)


@pytest.mark.usefixtures("_gzip_engine")
@pytest.mark.parametrize("codec", PACKING)
def test_truncated_data_is_named(codec: Codec) -> None:
    packed = bytes(Compressor(codec).compress(TEXT))
    for length in (0, 1, 3, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptRecord, match=codec.name.lower() if codec is not Codec.LZ4 else "LZ4"):
            decompress(codec, packed[:length], LIMIT)


@pytest.mark.usefixtures("_gzip_engine")
@pytest.mark.parametrize("codec", PACKING)
def test_what_follows_the_data_is_named(codec: Codec) -> None:
    packed = bytes(Compressor(codec).compress(TEXT))
    for rest in (b"x", packed[:20]):
        with pytest.raises(CorruptRecord, match=codec.name.lower() if codec is not Codec.LZ4 else "LZ4"):
            decompress(codec, packed + rest, LIMIT)


@pytest.mark.usefixtures("_gzip_engine")
def test_many_members_of_gzip_cost_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest after a gzip member is returned as a copy: a thousand members must not copy all the others a thousand times."""
    engine: Any = codecs._isal or zlib
    left: list[int] = []

    class Unpacker:
        def __init__(self, window: int) -> None:
            self.unpacker = engine.decompressobj(window)
            self.decompress = self.unpacker.decompress

        @property
        def eof(self) -> bool:
            return bool(self.unpacker.eof)

        @property
        def unused_data(self) -> bytes:
            rest: bytes = self.unpacker.unused_data
            left.append(len(rest))
            return rest

    members = b"".join(gzip.compress(b"%d" % number) for number in range(1000)) + gzip.compress(TEXT)
    monkeypatch.setattr(codecs, "_isal", SimpleNamespace(decompressobj=Unpacker, error=engine.error))
    assert decompress(Codec.GZIP, members, LIMIT) == b"".join(b"%d" % number for number in range(1000)) + TEXT
    assert sum(left) < 1100 * 1024 + len(members)


@pytest.mark.parametrize(("level", "as_library"), [(None, 1), (-5, -5), (1, 1), (3, 3), (19, 19)])
def test_levels_of_zstd_are_those_of_the_library(level: int | None, as_library: int) -> None:
    data = b"".join(b"%d,%d;" % (number, number * number % 997) for number in range(30_000))
    assert Compressor(Codec.ZSTD, level).compress(data) == zstandard.ZstdCompressor(level=as_library).compress(data)


def test_zstd_without_its_size_is_unpacked_however_well_it_packs() -> None:
    data = bytes(3 << 20)
    packed = streamed_zstd(data)
    assert len(data) > 1000 * len(packed)
    assert decompress(Codec.ZSTD, packed, len(data)) == data
    with pytest.raises(CorruptRecord, match="zstd"):
        decompress(Codec.ZSTD, packed, len(data) - 1)


def test_zstd_that_declares_more_than_it_can_hold_is_not_unpacked() -> None:
    """12 bytes that declare 127 MiB, which the limit allows; 4 bytes can stand for 128 KiB, and no more."""
    declared = 127 << 20
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", declared) + b"\x01\0\0"
    with pytest.raises(CorruptRecord, match=f"of 12 bytes claims {declared}, more than it can hold"):
        decompress(Codec.ZSTD, frame, 1 << 27)
    blocks = b"\x02\0\x10z" * 99 + b"\x03\0\x10z"
    densest = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", 100 << 17) + blocks
    assert decompress(Codec.ZSTD, densest, 1 << 27) == b"z" * (100 << 17)


def test_zstd_without_its_size_gets_no_more_memory_than_it_can_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    capacities: list[int] = []

    class Unpacker:
        def decompress(self, _: memoryview, *, max_output_size: int, allow_extra_data: bool) -> bytes:
            capacities.append(max_output_size)
            raise zstandard.ZstdError(f"damaged; extra data: {allow_extra_data}")

    monkeypatch.setattr(codecs, "_zstd_unpacker", Unpacker)  # only the library sees its arguments
    frame = streamed_zstd(b"x" * 20)
    with pytest.raises(CorruptRecord, match="damaged"):
        decompress(Codec.ZSTD, frame, 1 << 27)
    assert capacities == [1 << 16, 1 << 19, len(frame) << 15]


EMPTY_ZSTD = zstandard.ZstdCompressor(write_checksum=True).compress(b"")


@pytest.mark.parametrize(
    "data",
    [
        b"\x28\xb5\x2f\xfd\x20\0garbage!",
        EMPTY_ZSTD + b"x",
        EMPTY_ZSTD + streamed_zstd(TEXT),
        EMPTY_ZSTD[:-1],
        b"\x28\xb5\x2f\xfd\x80\x38\0\0\0\0\x03\0\x10z",
        b"\x50\x2a\x4d\x18\x04\0\0\0meta" + streamed_zstd(TEXT),
    ],
    ids=["garbage", "a byte more", "another frame", "a byte less", "content", "a frame to skip"],
)
def test_zstd_that_declares_to_be_empty_is_looked_at(data: bytes) -> None:
    assert zstandard.frame_content_size(data) == 0
    assert bytes(decompress(Codec.ZSTD, EMPTY_ZSTD, 0)) == b""
    with pytest.raises(CorruptRecord, match="zstd"):
        decompress(Codec.ZSTD, data, LIMIT)


@pytest.mark.covers("LZ4")
@pytest.mark.parametrize("check", [True, False])
def test_that_packs_better_than_its_first_buffer_is_unpacked_in_steps(check: bool) -> None:
    data = bytes(3 << 20) + TEXT[:10_000]
    frame = bytes(Compressor(Codec.LZ4).compress(data))
    assert len(data) > 100 * len(frame)
    assert decompress(Codec.LZ4, frame, len(data), check_lz4_header=check) == data
    for limit in (len(data) - 1, 1 << 20, 70_000, 10):
        with pytest.raises(CorruptRecord, match=f"more than {limit} bytes"):
            decompress(Codec.LZ4, frame, limit, check_lz4_header=check)
    with pytest.raises(CorruptRecord, match="ends inside its frame"):
        decompress(Codec.LZ4, frame[:-9], len(data), check_lz4_header=check)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_not_unpacked() -> None:
    with pytest.raises(CorruptRecord, match="of 53 bytes claims 1048575, more than it can hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\x3f" + bytes(50), LIMIT)


def test_unknown_codecs_are_named() -> None:
    for number in range(len(Codec), 8):
        with pytest.raises(CorruptRecord, match=f"codec {number} is unknown"):
            decompress(number, b"x", LIMIT)


BOMBS = {
    "gzip": (Codec.GZIP, zlib.compress(bytes(50 << 20), 9, 31)),
    "gzip members": (Codec.GZIP, zlib.compress(bytes(1 << 19), 9, 31) * 100),
    "snappy claims 4 GB": (Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(50)),
    "snappy claims what fits": (Codec.SNAPPY, b"\xff\xff\x3f" + bytes(50)),
    "xerial": (Codec.SNAPPY, kafka_codec.snappy_encode(bytes(50 << 20))),
    "lz4": (Codec.LZ4, bytes(Compressor(Codec.LZ4).compress(bytes(50 << 20)))),
    "lz4 declares 2^62": (Codec.LZ4, LZ4_FRAME[:4] + b"\x68\x40" + struct.pack("<Q", 1 << 62) + b"\x00" + bytes(20)),
    "zstd": (Codec.ZSTD, bytes(Compressor(Codec.ZSTD).compress(bytes(50 << 20)))),
    "zstd without size": (Codec.ZSTD, streamed_zstd(bytes(50 << 20))),
}


@pytest.mark.usefixtures("_gzip_engine")
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_takes_no_more_memory_than_the_limit(bomb: str) -> None:
    codec, data = BOMBS[bomb]
    limit = 1 << 20
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecord):
            decompress(codec, data, limit)
        assert tracemalloc.get_traced_memory()[1] < 3 * limit
    finally:
        tracemalloc.stop()


def test_codec_none_copies_nothing() -> None:
    data = bytearray(b"records")
    packed = Compressor(Codec.NONE).compress(data)
    assert packed.obj is data
    assert decompress(Codec.NONE, data, 7).obj is data
