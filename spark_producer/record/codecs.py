"""The codecs of record batches, which compress the records of a batch into one stream, and decompress it within a limit.

The framing is the one that Kafka's clients and brokers expect (docs/formats.md). Damaged data raise `CorruptRecord`, and
nothing decompresses to more than the caller's limit, because a few bytes can claim gigabytes. Memory is allocated for the size
that the data can have, never for the size that they declare.

A new codec is a member of `Codec`, with an entry in `_PACKERS` and in `_UNPACK`. It is also a choice in `config.options`;
`producer.factories` passes its level, and the Produce versions that it needs.
"""

from __future__ import annotations

import enum
import functools
import importlib
import struct
import zlib
from collections.abc import Callable
from types import ModuleType

import pyarrow as pa
import zstandard

from spark_producer.errors import CorruptRecord
from spark_producer.record import lz4_frame

Bytes = bytes | bytearray | memoryview
Packer = Callable[[memoryview], Bytes]


class Codec(enum.IntEnum):
    """The codecs, by their numbers in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


ONLY_IN_V2 = frozenset({Codec.ZSTD})
"""The codecs that the message formats V0 and V1 do not have (KIP-110)."""

DEFAULT_LEVELS = {Codec.GZIP: -1, Codec.LZ4: lz4_frame.FAST_LEVEL, Codec.ZSTD: 1}
"""These are Java's defaults except for zstd, where Java has 3: batches of the default size get as small at 1 as Java's smaller
batches do at 3, in 40 to 80 % of the time (`benchmarks/zstd_levels.py`). -1 leaves the choice to the library."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16
_BLOCK_LENGTH = struct.Struct(">i")
_SNAPPY_GREATEST_RATIO = 22
"""The densest element of Snappy copies 64 bytes and takes 3."""

_GZIP_WINDOW = 31
"""This asks for a window of 32 KiB, with gzip's header and trailer."""
_FASTEST_OF_ZLIB = 3
_NEXT_MEMBER = 1 << 10
"""The bytes that a second or later member of gzip data gets at first; surplus bytes are copied each time."""

_FIRST_GUESS, _GUESS_RATIO = 1 << 16, 16
_ZSTD_GREATEST_RATIO = 1 << 15
"""The densest block of zstd repeats a byte 128 Ki times and takes four bytes."""
_MAX_EMPTY_FRAME_BYTES = 25
"""The longest empty frame of zstd has the longest header, an empty block and a checksum."""


def _import_isal() -> ModuleType | None:
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return None


_isal = _import_isal()
"""Intel's zlib, if it is installed (`pip install pyproducer[isal]`): its levels 1 to 3 take a tenth of zlib's time."""


class Compressor:
    """One codec at one level, for one thread at a time, because a shared zstd context crashes the process (measured).

    If `level` is None, the level of `DEFAULT_LEVELS` is used. The ranges, which `config` checks, are 1 … 9 or -1 for gzip,
    1 … 17 for lz4 and -131072 … 22 for zstd.

    Raises:
        ConfigError: the codec is lz4, and its package is missing.
    """

    def __init__(self, codec: Codec, level: int | None = None) -> None:
        self.codec = codec
        self.level = DEFAULT_LEVELS.get(codec, 0) if level is None else level
        self._pack = _PACKERS[codec](self.level)

    def compress(self, records: Bytes) -> memoryview:
        """Return the stream that replaces `records`, which are read in place; codec none returns a view of them.

        The stream may be longer than the records. The GIL is released while a library packs.
        """
        return memoryview(self._pack(memoryview(records)))


def _packer_none(_: int) -> Packer:
    return lambda records: records


def _packer_gzip(level: int) -> Packer:
    isal = _isal
    if isal is None or level > _FASTEST_OF_ZLIB:
        return lambda records: zlib.compress(records, level, _GZIP_WINDOW)
    isal_level = isal.Z_DEFAULT_COMPRESSION if level == -1 else level
    return lambda records: isal.compress(records, isal_level, _GZIP_WINDOW)


def _packer_snappy(_: int) -> Packer:
    """Compress into one raw block, as librdkafka and franz-go do; Java reads it as well as its own framing."""
    codec = pa.Codec("snappy")
    return lambda records: _arrow_bytes(codec.compress(records))


def _packer_lz4(level: int) -> Packer:
    lz4_frame.library(writes=True)  # raises before the first row, if it is missing
    return functools.partial(lz4_frame.compress, level=level)


def _packer_zstd(level: int) -> Packer:
    return zstandard.ZstdCompressor(level=level).compress


_PACKERS: dict[Codec, Callable[[int], Packer]] = {
    Codec.NONE: _packer_none,
    Codec.GZIP: _packer_gzip,
    Codec.SNAPPY: _packer_snappy,
    Codec.LZ4: _packer_lz4,
    Codec.ZSTD: _packer_zstd,
}


def decompress(codec: int, data: Bytes, limit: int, *, check_lz4_header: bool = True) -> memoryview:
    """Decompress data of `codec`, which is a codec's number; codec none returns a view of `data`.

    `check_lz4_header` is False for message format V0, whose LZ4 frames carry a wrong header checksum.

    Raises:
        CorruptRecord: The codec is unknown, the data are damaged or incomplete, or they decompress to more than `limit` bytes.
            The caller adds the offset.
    """
    view = memoryview(data)
    if codec == Codec.NONE:
        _check_limit("uncompressed", len(view), limit)
        return view
    if codec == Codec.LZ4:
        return memoryview(lz4_frame.decompress(view, limit, check_header=check_lz4_header))
    unpack = _UNPACK.get(codec)
    if unpack is None:
        known = ", ".join(f"{one} {one.name.lower()}" for one in Codec)
        raise CorruptRecord(f"codec {codec} is unknown: {known}")
    return memoryview(unpack(view, limit))


def _check_limit(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise CorruptRecord(f"{what} data unpacks to {size} bytes, more than the limit of {limit}")


def _gunzip(data: memoryview, limit: int) -> bytes:
    """Decompress all members one after the other, as Java does."""
    engine: ModuleType = zlib if _isal is None else _isal
    contents: list[bytes] = []
    position, remaining, given = 0, limit, len(data)
    while position < len(data) or not contents:
        unpacker = engine.decompressobj(_GZIP_WINDOW)
        while not unpacker.eof:
            piece = data[position : position + given]
            if not piece:
                raise CorruptRecord("gzip data ends inside its stream")
            try:
                content = unpacker.decompress(piece, remaining + 1)
            except (zlib.error, engine.error) as error:
                raise CorruptRecord(f"gzip data is damaged: {error}") from None
            if len(content) > remaining:
                raise CorruptRecord(f"gzip data unpacks to more than {limit} bytes")
            contents.append(content)
            position, remaining, given = (
                position + len(piece) - len(unpacker.unused_data),
                remaining - len(content),
                2 * given,
            )
        given = _NEXT_MEMBER
    return contents[0] if len(contents) == 1 else b"".join(contents)


def _unsnappy(data: memoryview, limit: int) -> Bytes:
    """Decompress a raw block, or xerial's framing: a header of 16 bytes, then blocks, each after its length (big-endian)."""
    codec = pa.Codec("snappy")
    if data[:8] != XERIAL_MAGIC:
        return _unsnappy_block(codec, data, limit)
    blocks, position, remaining = [], _XERIAL_HEADER_SIZE, limit
    while position < len(data):
        end = position + 4
        if end <= len(data):
            end += _BLOCK_LENGTH.unpack_from(data, position)[0]
        if not position + 4 <= end <= len(data):
            raise CorruptRecord("snappy data ends inside a block, or a block has a negative length")
        blocks.append(_unsnappy_block(codec, data[position + 4 : end], remaining))
        position, remaining = end, remaining - len(blocks[-1])
    return b"".join(blocks)


def _unsnappy_block(codec: pa.Codec, block: memoryview, limit: int) -> memoryview:
    size = _snappy_size(block)
    _check_limit("snappy", size, limit)
    if size > len(block) * _SNAPPY_GREATEST_RATIO:
        raise CorruptRecord(f"snappy data of {len(block)} bytes claims {size}, more than it can hold")
    try:
        return _arrow_bytes(codec.decompress(block, decompressed_size=size))
    except (OSError, pa.ArrowInvalid) as error:
        raise CorruptRecord(f"snappy data is damaged: {error}") from None


def _snappy_size(block: memoryview) -> int:
    """Return the unpacked size at the start of a block, which is an unsigned varint of 32 bits."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return size
    raise CorruptRecord("snappy data does not start with its unpacked size")


_idle_zstd: list[zstandard.ZstdDecompressor] = []
"""Contexts that no call is using: creating one takes a quarter of the time of a batch. Each is taken and put back in one atomic
step, so that two threads never have the same one. There are at most as many as threads that ever ran at the same time."""


def _zstd_unpacker() -> zstandard.ZstdDecompressor:
    try:
        return _idle_zstd.pop()
    except IndexError:
        return zstandard.ZstdDecompressor()


def _unzstd(data: memoryview, limit: int) -> bytes:
    """Decompress one frame. Java leaves out the content size; then the buffer grows from a guess until the content fits.

    Bytes after a frame that declares its size are refused; the library ignores those after other frames.
    """
    try:
        declared = zstandard.frame_content_size(data)
        if declared == 0:
            return _unzstd_nothing(data)
        _check_limit("zstd", declared, limit)
        max_size = min(limit, len(data) * _ZSTD_GREATEST_RATIO)
        if declared > max_size:
            raise CorruptRecord(f"zstd data of {len(data)} bytes claims {declared}, more than it can hold")
        capacity = declared if declared > 0 else min(max_size, max(_FIRST_GUESS, len(data) * _GUESS_RATIO))
        while True:
            unpacker = _zstd_unpacker()
            try:
                content = unpacker.decompress(data, max_output_size=capacity, allow_extra_data=False)
                _idle_zstd.append(unpacker)
                return content
            except zstandard.ZstdError:
                if declared > 0 or capacity >= max_size:
                    raise
            capacity = min(8 * capacity, max_size)
    except zstandard.ZstdError as error:
        raise CorruptRecord(f"zstd data is damaged or unpacks to more than {limit} bytes: {error}") from None


def _unzstd_nothing(data: memoryview) -> bytes:
    """Check a frame that declares to be empty: the library would not check the rest of the frame or bytes after it."""
    unpacker = zstandard.ZstdDecompressor().decompressobj()
    if len(data) > _MAX_EMPTY_FRAME_BYTES or unpacker.decompress(data) or not unpacker.eof or unpacker.unused_data:
        raise CorruptRecord("zstd data declares no content, but is not one complete empty frame")
    return b""


_UNPACK: dict[int, Callable[[memoryview, int], Bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.ZSTD: _unzstd,
}


def _arrow_bytes(buffer: pa.Buffer) -> memoryview:
    """Return a buffer's bytes: to a memoryview, Arrow's buffers show their whole capacity, and signed bytes."""
    return memoryview(buffer).cast("B")[: buffer.size]
