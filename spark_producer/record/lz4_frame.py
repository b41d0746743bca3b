"""LZ4 frames as Kafka has them: their size before they are unpacked, and the wrong checksum of message format V0.

Owns: the layout of the frame around the blocks (spec: kafka_producer.md §3.5; Kafka's Lz4BlockOutputStream, KAFKA-3160).
Must not know: LZ4's blocks, which the library packs, unpacks and checks.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import lz4.frame

from spark_producer.errors import CorruptRecord

MAGIC = b"\x04\x22\x4d\x18"

_VERSION_MASK, _VERSION_1 = 0xC0, 0x40
_INDEPENDENT, _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_STORED = 0x80000000
"""high bit of a block's length: the block is not packed"""
_BLOCK_SIZES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LENGTH = struct.Struct("<I")

FAST_LEVEL = 9
"""Kafka's default level of LZ4, which in Java means the fast compressor; every other one means the slow one."""

_DESCRIPTOR, _RIGHT_CHECKSUM, _V0_CHECKSUM = b"\x60\x40", 0x82, 0x1A
_CHECKSUM_AT = 6


class Frame(NamedTuple):
    """What a frame's outside says: bytes of its header, its flags, and the most bytes that its blocks can hold."""

    header_size: int
    flags: int
    block_size_code: int
    bound: int


def compress(records: memoryview, level: int) -> bytes:
    """One frame of independent 64 KiB blocks without sums, which is what Java writes and all that it reads.

    `level`: 9 is fast, as in Java; any other one from 1 to 17 packs harder, up to the library's 12.
    """
    library_level = 0 if level == FAST_LEVEL else min(max(level, 3), 12)
    packed: bytes = lz4.frame.compress(
        records, compression_level=library_level, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False,
        store_size=False,
    )  # fmt: skip
    return packed


def with_v0_checksum(frame: bytes) -> bytes:
    """A frame made by `compress` with the checksum that message format V0 wants: computed over the magic too."""
    return b"".join((frame[:_CHECKSUM_AT], bytes([_V0_CHECKSUM]), frame[_CHECKSUM_AT + 1 :]))


def decompress(data: memoryview, limit: int, *, check_header: bool) -> bytes:
    """The content of the one frame that `data` is; `check_header` False passes over its header checksum (V0).

    Raises:
        CorruptRecord: not a whole LZ4 frame, a sum is wrong, or more than `limit` bytes come out.
    """
    frame = _measure(data)
    room = min(frame.bound, limit) + 1
    unpacker = lz4.frame.LZ4FrameDecompressor()
    try:
        if check_header:
            content: bytes = unpacker.decompress(data, max_length=room)
        else:
            unpacker.decompress(_header_like(frame))
            content = unpacker.decompress(data[frame.header_size :], max_length=room)
    except RuntimeError as error:
        raise CorruptRecord(f"LZ4 data is damaged: {error}") from None
    if len(content) > limit:
        raise CorruptRecord(f"LZ4 data unpacks to more than {limit} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptRecord("LZ4 data does not end where its frame does")
    return content


def _measure(data: memoryview) -> Frame:
    """Walk over the blocks without unpacking them.

    The sizes that a frame declares are not trusted: memory is taken for what its blocks can hold.
    """
    if len(data) < 7 or data[:4] != MAGIC:
        raise CorruptRecord("LZ4 data does not start with the magic of a frame")
    flags, block_size = data[4], _BLOCK_SIZES.get(data[5] >> 4)
    if flags & _VERSION_MASK != _VERSION_1 or block_size is None or flags & _DICTIONARY:
        raise CorruptRecord(f"LZ4 frame descriptor {bytes(data[4:6]).hex()} is not one that Kafka uses")
    header_size = position = 15 if flags & _CONTENT_SIZE else 7
    bound = 0
    while True:
        if position + 4 > len(data):
            raise CorruptRecord("LZ4 data ends inside its frame")
        length = _LENGTH.unpack_from(data, position)[0]
        if length == 0:
            return Frame(header_size, flags, data[5] >> 4, bound)
        position += 4 + (length & ~_STORED) + (4 if flags & _BLOCK_CHECKSUM else 0)
        bound += length & ~_STORED if length & _STORED else min(block_size, length * 255)


def _header_like(frame: Frame) -> bytes:
    """A header for the same blocks, with the right checksum and without a content size; the library writes it."""
    header: bytes = lz4.frame.compress_begin(
        lz4.frame.create_compression_context(), block_size=frame.block_size_code,
        block_linked=not frame.flags & _INDEPENDENT, block_checksum=bool(frame.flags & _BLOCK_CHECKSUM),
        content_checksum=bool(frame.flags & _CONTENT_CHECKSUM),
    )  # fmt: skip
    return header
