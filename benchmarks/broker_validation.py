"""The cost of the embedded broker's validation of batches: `python -m benchmarks.broker_validation`."""

from __future__ import annotations

import os
import timeit
from collections.abc import Iterator
from functools import partial

from spark_producer.broker.log.validation import check_records
from spark_producer.kernel import KERNEL
from spark_producer.kernel.varint import encode_varint
from spark_producer.record.batch_v2 import HEADER_SIZE, read_header, write_header
from spark_producer.record.codecs import Codec, Compressor

FULL = 9_500
"""The number of records of 110 bytes in a batch of 1 MiB."""
SHAPES = [(1, Codec.NONE), (10, Codec.NONE), (100, Codec.NONE), *[(FULL, codec) for codec in Codec]]


def batch_of(records: int, codec: Codec) -> memoryview:
    """Return a batch of records with 100 bytes of hexadecimal digits, half of which any codec can save."""
    value = encode_varint(100) + os.urandom(50).hex().encode()
    bodies = [b"\0\0" + encode_varint(delta) + b"\x01" + value + b"\0" for delta in range(records)]
    content = Compressor(codec).compress(b"".join(encode_varint(len(body)) + body for body in bodies))
    batch = memoryview(bytearray(HEADER_SIZE + len(content)))
    batch[HEADER_SIZE:] = content
    write_header(batch, records_count=records, base_timestamp=0, max_timestamp=0, attributes=codec)
    return batch


def table(rounds: int = 200) -> Iterator[str]:
    """Yield lines: records in a batch, codec, microseconds a batch, nanoseconds a record."""
    yield f"{'records':>8} {'codec':>8} {'µs/batch':>10} {'ns/record':>10}   ({KERNEL} kernel)"
    for records, codec in SHAPES:
        batch = batch_of(records, codec)
        header = read_header(batch)
        timer = timeit.Timer(partial(check_records, header, batch))
        seconds = min(timer.repeat(5, rounds)) / rounds
        yield f"{records:8,} {codec.name:>8} {seconds * 1e6:10.1f} {seconds * 1e9 / records:10.1f}"


if __name__ == "__main__":
    for line in table():
        print(line)
