"""LZ4 frames as Kafka uses them: unpacking within a limit, and the wrong checksum of message format V0.

The module handles the frame around the blocks (Kafka's Lz4BlockOutputStream, KAFKA-3160); the library handles the blocks.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

from spark_producer.errors import ConfigError, CorruptRecord

MAGIC = b"\x04\x22\x4d\x18"

_VERSION_MASK, _VERSION_1 = 0xC0, 0x40
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_BLOCK_SIZE_CODES = range(4, 8)
"""The codes of block sizes from 64 KiB to 4 MiB."""
_MIN_CAPACITY, _CAPACITY_RATIO = 1 << 16, 8
"""The first output buffer: minimum bytes, and its ratio to the input. Records mostly compress to a third or a fifth."""

FAST_LEVEL = 9
"""Kafka's default level of LZ4. In Java it selects the fast compressor, and every other level selects the slow one."""

_DESCRIPTOR, _RIGHT_CHECKSUM, _V0_CHECKSUM = b"\x60\x40", 0x82, 0x1A
_CHECKSUM_AT = 6


@functools.cache
def library(*, writes: bool) -> ModuleType:
    """Return the package lz4, which is optional because it has no wheels for musl.

    Raises:
        ConfigError: it is not installed. Only writes (`writes`) are advised to use another codec.
    """
    try:
        return importlib.import_module("lz4.frame")
    except ImportError as error:
        failed = "compression.type lz4 cannot be used" if writes else "records compressed with lz4 cannot be read"
        choice = ", or use another compression.type, such as zstd" if writes else ""
        cause = "the package lz4 is missing or does not work"
        raise ConfigError(f"{failed}: {cause}. pip install lz4 (on musl pip compiles it){choice}") from error


def compress(records: memoryview, level: int) -> bytes:
    """Compress into one frame of independent 64 KiB blocks without checksums, the only kind that Java writes and reads.

    `level`: 9 is fast, as in Java; any other level from 1 to 17 compresses more, up to the library's 12.
    """
    library_level = 0 if level == FAST_LEVEL else min(max(level, 3), 12)
    lz4 = library(writes=True)
    packed: bytes = lz4.compress(
        records, compression_level=library_level, block_size=lz4.BLOCKSIZE_MAX64KB, block_linked=False,
        store_size=False,
    )  # fmt: skip
    return packed


def with_v0_checksum(frame: bytes) -> bytes:
    """Give a frame made by `compress` the checksum that message format V0 wants, which covers the magic too."""
    return b"".join((frame[:_CHECKSUM_AT], bytes([_V0_CHECKSUM]), frame[_CHECKSUM_AT + 1 :]))


def decompress(data: memoryview, limit: int, *, check_header: bool) -> bytes:
    """Return the content of `data`, which is one frame; if `check_header` is False, its header checksum is ignored (V0).

    The sizes that a frame declares are not trusted: the buffer holds eight times the data, and grows once it is full.

    Raises:
        CorruptRecord: The data are not a whole LZ4 frame, a checksum is wrong, or more than `limit` bytes come out.
        ConfigError: The package lz4 is missing.
    """
    _check_descriptor(data)
    lz4 = library(writes=False)
    context = lz4.create_decompression_context()
    contents: list[bytes] = []
    capacity, size = min(max(_MIN_CAPACITY, _CAPACITY_RATIO * len(data)), limit) + 1, 0
    try:
        if not check_header:
            lz4.decompress_chunk(context, _header_like(data, lz4))
            data = data[15 if data[4] & _CONTENT_SIZE else 7 :]
        while True:
            content, read, ended = lz4.decompress_chunk(context, data, max_length=capacity)
            contents.append(content)
            size += len(content)
            if size > limit:
                raise CorruptRecord(f"LZ4 data unpacks to more than {limit} bytes")
            if ended or len(content) < capacity:
                break
            data, capacity = data[read:], min(_CAPACITY_RATIO * size, limit - size) + 1
    except RuntimeError as error:
        raise CorruptRecord(f"LZ4 data is damaged: {error}") from None
    if not ended:
        raise CorruptRecord("LZ4 data ends inside its frame")
    if read < len(data):
        raise CorruptRecord("LZ4 data does not end where its frame does")
    return contents[0] if len(contents) == 1 else b"".join(contents)


def _check_descriptor(data: memoryview) -> None:
    if len(data) < 7 or data[:4] != MAGIC:
        raise CorruptRecord("LZ4 data does not start with the magic of a frame")
    if data[4] & _VERSION_MASK != _VERSION_1 or data[5] >> 4 not in _BLOCK_SIZE_CODES or data[4] & _DICTIONARY:
        raise CorruptRecord(f"LZ4 frame descriptor {bytes(data[4:6]).hex()} is not one that Kafka uses")


def _header_like(data: memoryview, lz4: ModuleType) -> bytes:
    """Return a header, written by the library, for the same blocks with the right checksum and without a content size."""
    flags = data[4]
    header: bytes = lz4.compress_begin(
        lz4.create_compression_context(), block_size=data[5] >> 4, block_linked=not flags & _INDEPENDENT,
        block_checksum=bool(flags & _BLOCK_CHECKSUM), content_checksum=bool(flags & _CONTENT_CHECKSUM),
    )  # fmt: skip
    return header
