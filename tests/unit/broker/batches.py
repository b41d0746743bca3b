"""Record batches for the broker's tests: real ones, and filler for the log, which does not decode batches."""

from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import CODEC_MASK, HEADER_SIZE, write_header
from spark_producer.record.codecs import Codec, Compressor

FILLER = bytes(range(251))  # a prime, so that no block of the file looks like another


def make_batch(records: int = 1, *, size: int | None = None, attributes: int = 0, **fields: int) -> memoryview:
    """A sealed batch of `size` bytes, before they are compressed as `attributes` say, with `records` records.

    None is for 100, or as many as the records need.
    """
    content_size = (max(100, HEADER_SIZE + records * 12) if size is None else size) - HEADER_SIZE
    content = b"".join(make_record(delta) for delta in range(records - 1))
    content += last_record(records - 1, content_size - len(content))
    codec = attributes & CODEC_MASK
    packed = Compressor(Codec(codec)).compress(content) if codec in set(Codec) else content
    return sealed(packed, records, attributes=attributes, **fields)


def filler_batch(records: int = 1, *, size: int = 100, **fields: int) -> memoryview:
    """A sealed batch of `size` bytes with `records` records in its header."""
    content_size = max(size - HEADER_SIZE, 0)
    return sealed((FILLER * (content_size // len(FILLER) + 1))[:content_size], records, **fields)


def make_record(offset_delta: int, key: bytes = b"", value: bytes = b"", headers: bytes = b"\0") -> bytes:
    """One record, at the time of the batch."""
    body = b"\0\0" + encode_varint(offset_delta) + encode_varint(len(key)) + key + encode_varint(len(value)) + value
    return encode_varint(len(body + headers)) + body + headers


def last_record(offset_delta: int, size: int) -> bytes:
    """A record of exactly `size` bytes."""
    for key in (b"", b"k", b"ke"):  # where the length of the value gets one byte longer, sizes are left out
        fixed = len(make_record(offset_delta, key)) - 2  # without the lengths of the record and of the value
        for content_size in range(max(size - fixed - 8, 0), size - fixed):
            length = fixed + len(encode_varint(content_size)) + content_size
            if len(encode_varint(length)) + length == size:
                return make_record(offset_delta, key, (FILLER * (content_size // len(FILLER) + 1))[:content_size])
    raise ValueError(f"no record has {size} bytes")


def sealed(
    content: bytes | memoryview,
    records: int,
    *,
    timestamp: int = 1000,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
) -> memoryview:
    """The batch with these bytes after its header."""
    batch = memoryview(bytearray(HEADER_SIZE + len(content)))
    batch[HEADER_SIZE:] = content
    write_header(
        batch,
        records_count=records,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=attributes,
    )
    return batch.toreadonly()
